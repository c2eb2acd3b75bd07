//! Scripts of other web origins (CORS): browser-based clients such as the Inspector use what machines use, never a page.

use super::gate;
use crate::support::gate::Gate;
use crate::support::http::Request;
use crate::support::oauth::{Client, form_request};

const ORIGIN: &str = "https://inspector.example";

#[test]
fn as_58_scripts_of_any_origin_may_discover_register_and_fetch_tokens_without_cookies() {
    let Gate { gateway, .. } = gate("");
    for path in [
        "/.well-known/oauth-protected-resource/mcp/up",
        "/.well-known/oauth-authorization-server",
        "/.well-known/nothing",
        "/jwks",
    ] {
        let response = Request::get(path).header("Origin", ORIGIN).send(gateway.agent);
        assert_eq!(response.header("access-control-allow-origin"), Some("*"), "{path}");
        assert_eq!(response.header("access-control-allow-credentials"), None);
    }
    for path in ["/token", "/register", "/revoke", "/.well-known/oauth-authorization-server"] {
        let preflight = Request::new("OPTIONS", path)
            .header("Origin", ORIGIN)
            .header("Access-Control-Request-Method", "POST")
            .header("Access-Control-Request-Headers", "content-type, authorization, mcp-protocol-version")
            .send(gateway.agent);
        assert_eq!(preflight.status, 204, "{path}");
        assert_eq!(preflight.header("access-control-allow-origin"), Some("*"), "{path}");
        let headers = preflight.header("access-control-allow-headers").unwrap().to_ascii_lowercase();
        for header in ["content-type", "authorization", "mcp-protocol-version"] {
            assert!(headers.contains(header), "{headers}");
        }
    }
    let client = Client::register(&gateway);
    let form = client.form(&[("grant_type", "authorization_code"), ("code", "x"), ("code_verifier", &"v".repeat(43))]);
    let response = form_request("/token", &form).header("Origin", ORIGIN).send(gateway.agent);
    assert_eq!((response.status, response.header("access-control-allow-origin")), (400, Some("*")));
}

#[test]
fn scripts_of_other_origins_get_no_page_and_no_route() {
    let Gate { gateway, token, .. } = gate("");
    for path in ["/login", "/consent", "/grants", "/logout", "/authorize", "/setup", "/introspect"] {
        for method in ["GET", "POST"] {
            let response = Request::new(method, path).header("Origin", ORIGIN).send(gateway.agent);
            assert_eq!(response.status, 403, "{method} {path}");
            assert_eq!(response.header("access-control-allow-origin"), None);
        }
    }
    for origin in [ORIGIN, "null"] {
        let call = Request::mcp("/mcp/up", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).bearer(&token);
        assert_eq!(call.header("Origin", origin).send(gateway.agent).status, 403, "{origin}");
    }
}
