//! Where people may be sent back to, with the real binary; the rule itself is in `redirect_uri`, beside a model of it.

use super::RULES;
use crate::support::browser::{Browser, parameter};
use crate::support::gateway::{Gateway, in_front_of, password};
use crate::support::http::{Request, Response};
use crate::support::oauth::Client;
use serde_json::json;

fn is_login(response: &Response) -> bool {
    response.status == 200 && response.text().contains("name=\"password\"")
}

#[test]
fn b11_a_client_that_registered_a_fixed_port_of_this_machine_may_come_with_any() {
    let gateway = Gateway::start(&in_front_of("http://127.0.0.1:9/mcp", RULES));
    let uris = ["http://127.0.0.1/", "http://127.0.0.1:33418/", "https://app.example/cb"];
    let about = json!({ "client_name": "t", "redirect_uris": uris, "token_endpoint_auth_method": "none" });
    let client = Client::register_as(&gateway, &about);
    let with =
        |uri: &str| Request::get(&client.ask(&gateway, "up").with("redirect_uri", uri).url()).send(gateway.agent);

    for good in ["http://127.0.0.1:52001/", "http://127.0.0.1/", "https://app.example/cb"] {
        assert!(is_login(&with(good)), "{good}");
    }
    for bad in [
        "http://[::1]:52001/",
        "http://127.0.0.1:52001/other",
        "http://127.0.0.1.evil.test:1/",
        "http://127.0.0.1@evil.test/",
        "https://app.example:444/cb",
        "https://app.example/cb/",
        "https://app.example/cb#x",
        "javascript:alert(1)",
        "http://127.0.0.1:52001\\@evil.test/",
        "http://127.0.0.1:52001/\r\nSet-Cookie: a=b",
    ] {
        let response = with(bad);
        assert_eq!((response.status, response.header("location")), (400, None), "{bad}: {}", response.text());
        assert_eq!(response.header("set-cookie"), None, "{bad}");
    }
    // It is this port that the person is sent back to.
    let asked = client.ask(&gateway, "up").with("redirect_uri", "http://127.0.0.1:52001/");
    let back = Browser::new(gateway.agent).authorize(&asked.url(), "alice", &password("alice"), "allow");
    assert!(back.starts_with("http://127.0.0.1:52001/?") && parameter(&back, "code").is_some(), "{back}");
}

#[test]
fn a_program_with_a_scheme_of_its_own_gets_its_people_back() {
    let gateway = Gateway::start(&in_front_of("http://127.0.0.1:9/mcp", RULES));
    let uri = "cursor://anysphere.cursor-mcp/oauth/callback";
    let client =
        Client::register_as(&gateway, &json!({ "redirect_uris": [uri], "token_endpoint_auth_method": "none" }));
    let mut browser = Browser::new(gateway.agent);

    let back = browser.authorize(&client.ask(&gateway, "up").url(), "alice", &password("alice"), "allow");

    assert!(back.starts_with(&format!("{uri}?")) && parameter(&back, "code").is_some(), "{back}");
    let other = client.ask(&gateway, "up").with("redirect_uri", "cursor://anysphere.cursor-mcp:1/oauth/callback");
    assert_eq!(Request::get(&other.url()).send(gateway.agent).status, 400);
}
