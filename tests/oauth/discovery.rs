//! Metadata (RFC 8414, RFC 9728): what clients find out before anybody logs in.

use super::{RULES, gate};
use crate::support::gate::Gate;
use crate::support::gateway::{Gateway, in_front_of};
use crate::support::http::Request;
use crate::support::oauth::{Client, Tokens};
use crate::support::recorder::Recorder;
use serde_json::{Value, json};

const SERVER: &str = "/.well-known/oauth-authorization-server";

fn metadata(gateway: &Gateway) -> Value {
    Request::get(SERVER).send(gateway.agent).json()
}

#[test]
fn as_01_as_03_the_metadata_say_what_there_is_and_both_well_known_paths_say_the_same() {
    let Gate { gateway, .. } = gate("");
    let issuer = format!("http://{}", gateway.agent);

    let response = Request::get(SERVER).send(gateway.agent);

    assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")));
    let found = response.json();
    assert_eq!(found["issuer"], json!(issuer));
    for (name, path) in [
        ("authorization_endpoint", "/authorize"),
        ("token_endpoint", "/token"),
        ("registration_endpoint", "/register"),
        ("revocation_endpoint", "/revoke"),
        ("introspection_endpoint", "/introspect"),
        ("jwks_uri", "/jwks"),
    ] {
        assert_eq!(found[name], json!(format!("{issuer}{path}")));
        let status = Request::get(path).send(gateway.agent).status;
        assert!(status != 404, "{path} is named and not there");
    }
    assert_eq!(found["code_challenge_methods_supported"], json!(["S256"]));
    assert_eq!(found["response_types_supported"], json!(["code"]));
    assert_eq!(found["authorization_response_iss_parameter_supported"], json!(true));
    assert_eq!(found["client_id_metadata_document_supported"], json!(true));
    assert!(!found["scopes_supported"].as_array().unwrap().contains(&json!("offline_access")));
    let openid = Request::get("/.well-known/openid-configuration").send(gateway.agent).json();
    for (name, value) in found.as_object().unwrap() {
        assert_eq!(openid[name], *value, "{name}");
    }
}

#[test]
fn as_04_the_issuer_comes_from_the_configuration_whatever_host_is_asked_for() {
    let recorder = Recorder::start();
    let top = "public_url: https://gw.example.test/\nbehind_proxy: { from: [127.0.0.1/32] }";
    let gateway = Gateway::start(&format!("{top}\n{}", in_front_of(&recorder.url(), RULES)));
    let own = format!("127.0.0.1:{}", gateway.agent.port());
    for host in ["gw.example.test", &own] {
        let response = Request::get(SERVER)
            .header("Host", host)
            .header("X-Forwarded-Host", "evil.test")
            .header("Forwarded", "host=evil.test;proto=http")
            .send(gateway.agent);
        let text = response.text();
        assert_eq!(response.json()["issuer"], json!("https://gw.example.test"), "{host}");
        assert!(!text.contains("evil.test") && !text.contains(":80"), "{text}");
    }
    let foreign = Request::get(SERVER).header("Host", "evil.test").send(gateway.agent);
    assert!(foreign.status == 403 || foreign.status == 421, "{}", foreign.status);
}

#[test]
fn b03_the_issuer_is_the_same_bytes_in_every_document_and_token() {
    for written in ["http://localhost:9123", "http://localhost:9123/"] {
        let recorder = Recorder::start();
        let gateway = Gateway::start(&format!(
            "public_url: {written}\nhosts: [\"127.0.0.1:9123\"]\n{}",
            in_front_of(&recorder.url(), RULES)
        ));
        let get = |path: &str| Request::get(path).send(gateway.agent).json();
        let resource = get("/.well-known/oauth-protected-resource/mcp/up");
        let server = get(SERVER);
        assert_eq!(resource["authorization_servers"][0], server["issuer"]);
        assert_eq!(server["issuer"], json!("http://localhost:9123"));
    }
    let Gate { gateway, .. } = gate("");
    let tokens: Tokens = Client::register(&gateway).log_in(&gateway, "alice", "up");
    let payload = tokens.access.split('.').nth(1).unwrap();
    let claims = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, payload).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["iss"], metadata(&gateway)["issuer"]);
    assert_eq!(claims["aud"], json!(gateway.url("up")));
}

#[test]
fn what_clients_probe_and_is_not_there_is_a_plain_404() {
    let Gate { gateway, .. } = gate("");
    for path in [
        "/.well-known/oauth-authorization-server/mcp/up",
        "/.well-known/openid-configuration/mcp/up",
        "/mcp/up/.well-known/openid-configuration",
        "/mcp/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp/nope",
        "/.well-known/other",
    ] {
        let response = Request::get(path).send(gateway.agent);
        assert_eq!(response.status, 404, "{path}");
        assert_eq!(response.header("www-authenticate"), None, "{path}");
        assert_eq!(response.header("content-type"), Some("application/json"), "{path}");
    }
}

#[test]
fn the_scopes_of_both_documents_are_those_that_mean_something_here() {
    let rules = "- { name: base, tools: [\"up/echo\"], allow: {} }\n- { name: more, tools: [\"up/wipe\"], who: { scopes: [wipe] }, allow: {} }";
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, rules);
    assert_eq!(metadata(&gateway)["scopes_supported"], json!(["mcp", "wipe"]));
    // The minimum to begin with (MCP, "Scope Selection Strategy"); the rest is asked for when it is needed.
    let resource = Request::get("/.well-known/oauth-protected-resource/mcp/up").send(gateway.agent).json();
    assert_eq!(resource["scopes_supported"], json!(["mcp"]));
}

#[test]
fn where_another_authorization_server_is_named_this_one_is_not_there() {
    let issuer = crate::support::issuer::Issuer::start();
    let recorder = Recorder::start();
    let identity = crate::support::gateway::IDENTITY;
    let yaml = format!(
        "{identity}  issuers:\n    - {{ issuer: \"{url}\" }}\n  authorization_server: \"{url}\"\n{}",
        in_front_of(&recorder.url(), RULES),
        url = issuer.name
    );
    let gateway = Gateway::start(&yaml);
    for path in [SERVER, "/.well-known/openid-configuration", "/authorize?client_id=x"] {
        assert_eq!(Request::get(path).send(gateway.agent).status, 404, "{path}");
    }
    for path in ["/token", "/register", "/revoke", "/introspect"] {
        assert_eq!(Request::post(path).body("a=b").send(gateway.agent).status, 404, "{path}");
    }
    // People still take back what they let act for them.
    assert_eq!(Request::get("/grants").send(gateway.agent).status, 200);
}
