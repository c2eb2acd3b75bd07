//! `/authorize`: which requests reach a person, which are told to the client, and which to nobody but the person.

use super::{RULES, gate};
use crate::support::browser::{Browser, Page, parameter, parameters};
use crate::support::gate::Gate;
use crate::support::gateway::{Gateway, in_front_of, password};
use crate::support::http::{Connection, Request, Response};
use crate::support::oauth::{Asked, CALLBACK, Client};
use crate::support::recorder::Recorder;
use serde_json::json;

fn get(gateway: &Gateway, asked: &Asked) -> Response {
    Request::get(&asked.url()).send(gateway.agent)
}

/// The error page: nobody is sent anywhere.
#[track_caller]
fn is_page(response: &Response) {
    assert_eq!(response.status, 400, "{}", response.text());
    assert_eq!(response.header("location"), None);
    assert!(response.header("content-type").unwrap_or_default().starts_with("text/html"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
}

/// The redirect with this error, which carries `state` and `iss` once each.
#[track_caller]
fn is_told(gateway: &Gateway, response: &Response, code: &str) {
    assert_eq!(response.status, 303, "{}", response.text());
    let to = response.header("location").expect("a redirect leads somewhere");
    assert!(to.starts_with(&format!("{CALLBACK}?")), "{to}");
    assert_eq!(parameter(to, "error").as_deref(), Some(code), "{to}");
    assert_eq!(parameter(to, "iss"), Some(format!("http://{}", gateway.agent)));
    assert_eq!(parameter(to, "state").as_deref(), Some("st/at e+1"));
    assert_eq!(parameter(to, "code"), None);
}

fn login_page(response: &Response) -> bool {
    response.status == 200 && response.text().contains("name=\"password\"")
}

#[test]
fn as_06_an_unknown_or_missing_client_gets_a_page_and_a_known_one_a_login() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    let asked = client.ask(&gateway, "up");
    assert!(login_page(&get(&gateway, &asked)));

    for bent in [
        asked.clone().without("client_id"),
        asked.clone().with("client_id", ""),
        asked.clone().with("client_id", "c_unknown"),
        asked.clone().with("client_id", &client.id.to_uppercase()),
    ] {
        is_page(&get(&gateway, &bent));
    }
    let unknown = get(&gateway, &asked.with("client_id", "<b>\u{202e}x"));
    is_page(&unknown);
    assert!(!unknown.text().contains("<b>"));
}

#[test]
fn as_07_as_09_o_11_a_redirect_uri_that_differs_in_anything_but_a_loopback_port_gets_a_page() {
    let Gate { gateway, .. } = gate("");
    let about =
        json!({ "redirect_uris": ["https://app.example/cb?x=1", "http://127.0.0.1:33418/cb", "http://127.0.0.1/"] });
    let client = Client::register_as(&gateway, &about);
    let with = |uri: &str| get(&gateway, &client.ask(&gateway, "up").with("redirect_uri", uri));
    for good in ["https://app.example/cb?x=1", "http://127.0.0.1:52001/cb", "http://127.0.0.1:1/"] {
        assert!(login_page(&with(good)), "{good}");
    }
    for bad in [
        "https://app.example/cb",
        "https://app.example/cb?x=1&y=2",
        "https://app.example/cb?x=1#f",
        "https://app.example/CB?x=1",
        "https://app.example/cb/?x=1",
        "https://app.example/%63b?x=1",
        "https://app.example:444/cb?x=1",
        "https://app.example.evil.test/cb?x=1",
        "https://u@app.example/cb?x=1",
        "http://app.example/cb?x=1",
        "http://127.0.0.1:52001/cb/other",
        "http://127.0.0.2:52001/cb",
        "http://localhost:52001/cb",
        "http://[::1]:52001/cb",
        "https://127.0.0.1:52001/cb",
        "http://127.0.0.1.evil.test:1/cb",
        "http://127.0.0.1@evil.test/cb",
        "http://127.0.0.1:52001\\@evil.test/cb",
        "javascript:alert(1)",
        "//app.example/cb",
        "/cb",
    ] {
        is_page(&with(bad));
    }
    // AS-10: of several, none is meant.
    is_page(&get(&gateway, &client.ask(&gateway, "up").without("redirect_uri")));
    let only_one = Client::register(&gateway);
    assert!(login_page(&get(&gateway, &only_one.ask(&gateway, "up").without("redirect_uri"))));
}

#[test]
fn as_11_o_12_a_parameter_that_comes_twice_is_refused_and_an_unknown_one_ignored() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    let asked = client.ask(&gateway, "up");
    let twice = |name: &str, value: &str| {
        let mut asked = asked.clone();
        asked.parameters.push((name.to_owned(), value.to_owned()));
        get(&gateway, &asked)
    };
    is_page(&twice("client_id", &client.id));
    is_page(&twice("redirect_uri", CALLBACK));
    is_told(&gateway, &twice("code_challenge", "x"), "invalid_request");
    is_told(&gateway, &twice("scope", "mcp"), "invalid_request");
    is_told(&gateway, &twice("resource", &gateway.url("up")), "invalid_target");
    assert!(login_page(&twice("unknown", "x")));
}

#[test]
fn as_13_to_as_16_o_20_only_a_code_with_an_s256_challenge_is_given() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    let asked = || client.ask(&gateway, "up");
    let is = |asked: Asked, code: &str| is_told(&gateway, &get(&gateway, &asked), code);
    for kind in ["token", "id_token", "code token", "CODE"] {
        is(asked().with("response_type", kind), "unsupported_response_type");
    }
    is(asked().without("response_type"), "invalid_request");
    is(asked().without("code_challenge"), "invalid_request");
    is(asked().without("code_challenge").without("code_challenge_method"), "invalid_request");
    is(asked().without("code_challenge_method"), "invalid_request");
    for method in ["plain", "S512", "s256", "none"] {
        is(asked().with("code_challenge_method", method), "invalid_request");
    }
    let good = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
    assert!(login_page(&get(&gateway, &asked().with("code_challenge", good))));
    for challenge in
        [&good[..42], &format!("{good}a"), &format!("{good}="), &good.replace('-', "+"), "", &"a".repeat(128)]
    {
        is(asked().with("code_challenge", challenge), "invalid_request");
    }
}

#[test]
fn as_17_b08_scopes_that_mean_nothing_here_are_left_out_and_malformed_ones_refused() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    for scope in ["", "mcp", "mcp offline_access", "openid profile", "mcp:read nonsense", "  mcp  "] {
        assert!(login_page(&get(&gateway, &client.ask(&gateway, "up").with("scope", scope))), "{scope:?}");
    }
    assert!(login_page(&get(&gateway, &client.ask(&gateway, "up").without("scope"))));
    for scope in ["mcp\"", "a\\b", "mcp\u{7}", "é"] {
        is_told(&gateway, &get(&gateway, &client.ask(&gateway, "up").with("scope", scope)), "invalid_scope");
    }
}

#[test]
fn as_18_to_as_21_o_22_a_resource_is_one_route_of_this_gateway() {
    let recorder = Recorder::start();
    let url = recorder.url();
    let two = format!(
        "upstreams:\n  one: {{ http: {{ url: \"{url}\" }} }}\n  two: {{ http: {{ url: \"{url}\" }} }}\npolicy:\n  rules:\n    - {{ name: all, tools: [\"*/*\"], allow: {{}} }}\n"
    );
    let gateway = Gateway::start(&two);
    let client = Client::register(&gateway);
    let with = |resource: &str| get(&gateway, &client.ask(&gateway, "one").with("resource", resource));
    let here = format!("http://{}", gateway.agent);
    for good in [
        gateway.url("one"),
        gateway.url("two"),
        format!("{}/", gateway.url("one")),
        gateway.url("one").replace("http", "HTTP"),
    ] {
        assert!(login_page(&with(&good)), "{good}");
    }
    for bad in [
        "https://other.example/mcp/one",
        "/mcp/one",
        &format!("{here}/mcp/three"),
        &format!("{here}/mcp/one#f"),
        &format!("{here}/mcp/one?x"),
        &format!("{here}/mcp/one/more"),
        &format!("{here}/mcp"),
        &here,
    ] {
        is_told(&gateway, &with(bad), "invalid_target");
    }
    let none = get(&gateway, &client.ask(&gateway, "one").without("resource"));
    is_told(&gateway, &none, "invalid_target");
    let why = parameter(none.header("location").unwrap(), "error_description").unwrap();
    assert!(why.contains("/mcp/one") && why.contains("/mcp/two"), "{why}");
    // With one route, that one is meant (clients of the revision 2025-03-26 know no resources).
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    assert!(login_page(&get(&gateway, &client.ask(&gateway, "up").without("resource"))));
    assert!(login_page(&get(
        &gateway,
        &client.ask(&gateway, "up").with("resource", &format!("http://{}", gateway.agent))
    )));
}

#[test]
fn as_22_as_23_o_28_request_objects_and_other_response_modes_are_refused_and_nothing_is_fetched() {
    let Gate { gateway, recorder, .. } = gate("");
    let client = Client::register(&gateway);
    let before = recorder.calls().len();
    let asked = || client.ask(&gateway, "up");
    let elsewhere = recorder.url();
    is_told(&gateway, &get(&gateway, &asked().with("request_uri", &elsewhere)), "request_uri_not_supported");
    is_told(&gateway, &get(&gateway, &asked().with("request", "e30.e30.")), "request_not_supported");
    is_told(&gateway, &get(&gateway, &asked().with("registration", "{}")), "registration_not_supported");
    for mode in ["fragment", "form_post", "web_message", "query.jwt"] {
        is_told(&gateway, &get(&gateway, &asked().with("response_mode", mode)), "invalid_request");
    }
    assert!(login_page(&get(&gateway, &asked().with("response_mode", "query").with("id_token_hint", "x"))));
    assert_eq!(recorder.calls().len(), before);
}

#[test]
fn as_24_as_25_as_26_b09_state_comes_back_byte_for_byte_and_iss_with_it_on_success_and_denial() {
    let Gate { gateway, .. } = gate("");
    let about = json!({ "redirect_uris": ["https://app.example/cb?keep=1"] });
    let client = Client::register_as(&gateway, &about);
    let every: String = (1..=255_u8).map(char::from).collect();
    let long = "s".repeat(8192);
    let issuer = format!("http://{}", gateway.agent);
    for (state, decision) in [("x", "deny"), (every.as_str(), "allow"), (&long, "allow")] {
        let asked = client.ask(&gateway, "up").with("state", state);
        let back = Browser::new(gateway.agent).authorize(&asked.url(), "alice", &password("alice"), decision);
        assert!(back.starts_with("https://app.example/cb?keep=1&"), "{back}");
        let mut names: Vec<String> = parameters(&back).into_iter().map(|(name, _)| name).collect();
        names.sort();
        let expected: &[&str] = match decision {
            "allow" => &["code", "iss", "keep", "state"],
            _ => &["error", "error_description", "iss", "keep", "state"],
        };
        assert_eq!(names, expected);
        assert_eq!(parameter(&back, "state").as_deref(), Some(state));
        assert_eq!(parameter(&back, "iss").as_deref(), Some(&*issuer));
    }
    let without = client.ask(&gateway, "up").without("state");
    let back = Browser::new(gateway.agent).authorize(&without.url(), "alice", &password("alice"), "allow");
    assert_eq!(parameter(&back, "state"), None);
    // Too long to be kept.
    let loopback = Client::register(&gateway);
    let too_long = get(&gateway, &loopback.ask(&gateway, "up").with("state", &"s".repeat(8193)));
    assert_eq!(parameter(too_long.header("location").unwrap(), "error").as_deref(), Some("invalid_request"));
}

#[test]
fn as_27_o_17_nobody_is_sent_unseen_to_an_address_that_a_stranger_registered() {
    let Gate { gateway, .. } = gate("");
    let about = json!({ "redirect_uris": ["https://app.example/cb"] });
    let client = Client::register_as(&gateway, &about);
    let mut browser = Browser::new(gateway.agent);
    let faulty = client.ask(&gateway, "up").with("response_type", "token").url();

    let page = browser.get(&faulty);

    is_page(&page.response);
    assert!(page.text().contains("app.example") && page.text().contains("unsupported_response_type"));
    // Who has let this client act for them has seen that address.
    client.let_in(&gateway, &mut browser, "alice", &client.ask(&gateway, "up"));
    let back = browser.get(&faulty).callback();
    assert_eq!(parameter(&back, "error").as_deref(), Some("unsupported_response_type"));
}

#[test]
fn as_28_with_prompt_none_nobody_is_asked() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    is_told(&gateway, &get(&gateway, &client.ask(&gateway, "up").with("prompt", "none")), "login_required");
    is_told(&gateway, &get(&gateway, &client.ask(&gateway, "up").with("prompt", "none login")), "invalid_request");

    let web = Client::register_as(&gateway, &json!({ "redirect_uris": ["https://app.example/cb"] }));
    let mut browser = Browser::new(gateway.agent);
    is_page(&browser.get(&web.ask(&gateway, "up").with("prompt", "none").url()).response);
    web.let_in(&gateway, &mut browser, "alice", &web.ask(&gateway, "up"));
    let silent = browser.get(&web.ask(&gateway, "up").with("prompt", "none").url()).callback();
    assert!(parameter(&silent, "code").is_some(), "{silent}");
}

#[test]
fn as_29_the_endpoint_answers_gets_only_and_no_script() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    let url = client.ask(&gateway, "up").url();
    for method in ["POST", "PUT", "DELETE"] {
        assert_eq!(Request::new(method, &url).send(gateway.agent).status, 405, "{method}");
    }
    let mut connection = Connection::open(gateway.agent);
    connection.send(&Request::new("HEAD", &url).to_bytes(&gateway.agent.to_string()));
    assert_eq!(connection.streaming().status, 405);
    let foreign = Request::get(&url).header("Origin", "https://evil.test").send(gateway.agent);
    assert_eq!(foreign.status, 403);
    assert_eq!(get(&gateway, &client.ask(&gateway, "up")).header("access-control-allow-origin"), None);
}

#[test]
fn as_31_as_32_pages_cannot_be_framed_leak_no_referrer_and_load_nothing_from_elsewhere() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    let mut browser = Browser::new(gateway.agent);
    let login = browser.get(&client.ask(&gateway, "up").url());
    let consent = browser.submit(&login, &[("username", "alice"), ("password", &password("alice"))]);
    let error = browser.get("/authorize");
    for page in [&login, &consent, &error] {
        let header = |name: &str| page.response.header(name).unwrap_or_else(|| panic!("{name} of {}", page.target));
        let policy = header("content-security-policy");
        for part in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("script-src") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(header("x-frame-options"), "DENY");
        assert_eq!(header("referrer-policy"), "no-referrer");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("cache-control"), "no-store");
        let html = page.text();
        assert!(!html.contains("<script") && !html.contains("style=\""), "{html}");
        let links = ["href=\"", "src=\""].into_iter().flat_map(|attribute| html.split(attribute).skip(1));
        assert!(links.into_iter().all(|link| link.starts_with('/') || link.starts_with('#')), "{html}");
    }
}

/// The page a login leads to.
fn logged_in(gateway: &Gateway, browser: &mut Browser, asked: &Asked) -> Page {
    let page = browser.get(&asked.url());
    let name = "alice";
    assert!(gateway.agent.port() > 0);
    browser.submit(&page, &[("username", name), ("password", &password(name))])
}

#[test]
fn as_33_o_14_o_16_the_page_names_client_address_route_and_scopes_and_warns_of_programs_on_the_computer() {
    let Gate { gateway, .. } = gate("");
    let web = Client::register_as(
        &gateway,
        &json!({ "client_name": "Claude <b>", "redirect_uris": ["https://app.example/cb"] }),
    );
    let page = logged_in(&gateway, &mut Browser::new(gateway.agent), &web.ask(&gateway, "up"));
    let text = page.text();
    for shown in ["Claude &#60;b&#62;", "app.example", "up", "mcp", "alice", &web.id] {
        assert!(text.contains(shown), "{shown} is not in {text}");
    }
    assert!(!text.contains("Claude <b>"));
    // Another client of the same name is another one (O-14): asked again.
    let mut browser = Browser::new(gateway.agent);
    web.let_in(&gateway, &mut browser, "alice", &web.ask(&gateway, "up"));
    assert!(browser.get(&web.ask(&gateway, "up").url()).left_for.is_some(), "the same one is not asked again");
    let twin = Client::register_as(
        &gateway,
        &json!({ "client_name": "Claude <b>", "redirect_uris": ["https://app.example/cb"] }),
    );
    assert!(browser.get(&twin.ask(&gateway, "up").url()).text().contains("value=\"allow\""));
    // A program on the computer is asked about each time (O-16).
    let local = Client::register(&gateway);
    local.let_in(&gateway, &mut browser, "alice", &local.ask(&gateway, "up"));
    assert!(browser.get(&local.ask(&gateway, "up").url()).text().contains("value=\"allow\""));
}

#[test]
fn as_05_over_https_cookies_are_bound_to_the_host() {
    let recorder = Recorder::start();
    let top = "public_url: https://gw.example.test\nbehind_proxy: { from: [127.0.0.1/32] }";
    let gateway = Gateway::start(&format!("{top}\n{}", in_front_of(&recorder.url(), RULES)));
    let agent = gateway.agent;
    let mut browser = Browser::at("https://gw.example.test", move || crate::support::http::Connection::open(agent));
    let page = browser.get("/login");
    browser.submit(&page, &[("username", "alice"), ("password", &password("alice"))]);
    let names: Vec<&str> = browser.cookies().iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.len() >= 3 && names.iter().all(|name| name.starts_with("__Host-")), "{names:?}");
}

#[test]
fn as_05_over_https_browsers_are_told_to_keep_to_it_with_every_answer() {
    let recorder = Recorder::start();
    let yaml = in_front_of(&recorder.url(), RULES);
    let top = "public_url: https://gw.example.test\nbehind_proxy: { from: [127.0.0.1/32] }";
    let (https, http) = (Gateway::start(&format!("{top}\n{yaml}")), Gateway::start(&yaml));
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

    for request in [
        Request::get("/login"),
        Request::get("/authorize"),
        Request::get("/.well-known/oauth-authorization-server"),
        Request::get("/nowhere"),
        Request::post("/token"),
        Request::mcp("/mcp/up", call),
    ] {
        let (told, plain) = (request.send(https.agent), request.send(http.agent));
        let target = request.parts().1;
        assert_eq!(told.header("strict-transport-security"), Some("max-age=31536000"), "{target}");
        assert_eq!(plain.header("strict-transport-security"), None, "{target}");
    }
}
