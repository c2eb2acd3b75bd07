//! `/token`, after a login through the browser: what the tokens are good for, and what a code is not.

use super::app::{SECRET, app, gate, of, with_rules};
use crate::support::PATIENCE;
use crate::support::canary::{Canary, texts};
use crate::support::gate::{Gate, call, eventually};
use crate::support::gateway::Gateway;
use crate::support::http::{Request, Response};
use crate::support::oauth::{Tokens, form_request, status_with, token};
use serde_json::json;

#[track_caller]
fn is_error(response: &Response, status: u16, code: &str) {
    let seen = response.json();
    assert_eq!((response.status, seen["error"].as_str()), (status, Some(code)), "{}", response.text());
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert_eq!(response.header("content-type"), Some("application/json"));
}

#[test]
fn as_56_a_login_gives_tokens_for_one_route() {
    let Gate { gateway, .. } = gate("");
    let tokens = app().log_in(&gateway, "alice", "up");

    assert_eq!(tokens.answer["token_type"], json!("Bearer"));
    assert_eq!(tokens.answer["expires_in"], json!(600));
    assert_eq!(tokens.answer["scope"], json!("mcp"));
    assert!(tokens.refresh.unwrap().starts_with("pcr_"));
    assert_eq!(status_with(&gateway, &tokens.access), 200);
    let elsewhere = Request::mcp("/mcp/two", call("echo", "{}")).bearer(&tokens.access).send(gateway.agent);
    assert_eq!(elsewhere.status, 401, "a token for one route opens no other");
}

/// The scope of an answer, after a login that asked for this one, and whether there is a refresh token.
fn granted(gateway: &Gateway, scope: Option<&str>) -> (String, bool) {
    let asked = app().ask(gateway, "up");
    let asked = match scope {
        Some(scope) => asked.with("scope", scope),
        None => asked.without("scope"),
    };
    let code = app().code(gateway, "alice", &asked);
    let tokens = Tokens::of(&token(gateway, &app().redeem(&code, &asked.verifier)));
    assert!(tokens.answer["expires_in"].is_u64());
    (tokens.answer["scope"].as_str().expect("a scope").to_owned(), tokens.refresh.is_some())
}

#[test]
fn b08_no_scope_an_empty_one_and_habits_get_what_can_be_granted_and_a_refresh_token() {
    let rules = "- { name: read, tools: [\"up/*\"], who: { scopes: [\"mcp:read\"] }, allow: {} }";
    let gate = Gate::with(|url| with_rules(url, "", rules));
    let gateway = &gate.gateway;
    let metadata = Request::get("/.well-known/oauth-authorization-server").send(gateway.agent).json();
    assert_eq!(metadata["scopes_supported"], json!(["mcp", "mcp:read"]));

    assert_eq!(granted(gateway, None), ("mcp".to_owned(), true));
    assert_eq!(granted(gateway, Some("")), ("mcp".to_owned(), true));
    assert_eq!(granted(gateway, Some("mcp:read offline_access")), ("mcp:read".to_owned(), true));
    assert_eq!(granted(gateway, Some("mcp:read nonsense")), ("mcp:read".to_owned(), true));
}

#[test]
fn b10_a_client_that_asks_for_exactly_what_the_challenge_says_gets_on() {
    let rules = r#"
- { name: read, tools: ["up/echo"], who: { scopes: ["mcp:read"] }, allow: {} }
- { name: write, tools: ["up/add"], who: { scopes: ["mcp:write"] }, allow: {} }"#;
    let gate = Gate::with(|url| with_rules(url, "", rules));
    let gateway = &gate.gateway;
    let log_in = |scope: &str| {
        let asked = app().ask(gateway, "up").with("scope", scope);
        let code = app().code(gateway, "alice", &asked);
        Tokens::of(&token(gateway, &app().redeem(&code, &asked.verifier)))
    };
    let of_tool =
        |tool: &str, access: &str| Request::mcp("/mcp/up", call(tool, "{}")).bearer(access).send(gateway.agent);
    let narrow = log_in("mcp:read");
    assert_eq!(of_tool("echo", &narrow.access).status, 200);

    let mut challenges = Vec::new();
    for _ in 0..3 {
        let refused = of_tool("add", &narrow.access);
        assert_eq!(refused.status, 403);
        challenges.push(refused.header("www-authenticate").expect("a challenge").to_owned());
    }
    challenges.dedup();
    assert_eq!(challenges.len(), 1);
    let scope = challenges[0].split("scope=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a scope");

    let wide = log_in(scope);
    assert_eq!((of_tool("add", &wide.access).status, of_tool("echo", &wide.access).status), (200, 200));
    // A refresh of the old login does not widen it.
    let refreshed = Tokens::of(&token(gateway, &app().refresh(narrow.refresh.as_deref().unwrap())));
    assert_eq!(of_tool("add", &refreshed.access).status, 403);
}

#[test]
fn o_18_as_46_a_code_is_for_the_client_and_verifier_it_was_made_for() {
    let Gate { gateway, .. } = gate("");
    let asked = app().ask(&gateway, "up");
    let code = app().code(&gateway, "alice", &asked);
    let others = app().ask(&gateway, "up");

    is_error(&token(&gateway, &of("other", None).redeem(&code, &asked.verifier)), 400, "invalid_grant");
    is_error(&token(&gateway, &app().redeem(&code, &others.verifier)), 400, "invalid_grant");
    let mut elsewhere = app().redeem(&code, &asked.verifier);
    elsewhere[2].1 = "http://127.0.0.1:3999/other".to_owned();
    is_error(&token(&gateway, &elsewhere), 400, "invalid_grant");

    let tokens = Tokens::of(&token(&gateway, &app().redeem(&code, &asked.verifier)));
    assert_eq!(status_with(&gateway, &tokens.access), 200);
}

#[test]
fn o_19_as_49_as_50_a_replay_ends_the_login_and_a_guess_does_not() {
    let gate = gate("");
    let gateway = &gate.gateway;
    let asked = app().ask(gateway, "up");
    let code = app().code(gateway, "alice", &asked);
    let tokens = Tokens::of(&token(gateway, &app().redeem(&code, &asked.verifier)));

    let guess = app().redeem(&code, &app().ask(gateway, "up").verifier);
    is_error(&token(gateway, &guess), 400, "invalid_grant");
    assert_eq!(status_with(gateway, &tokens.access), 200);

    is_error(&token(gateway, &app().redeem(&code, &asked.verifier)), 400, "invalid_grant");
    let is_out = || (status_with(gateway, &tokens.access) == 401).then_some(());
    eventually(PATIENCE, is_out).expect("its access token is refused");
    is_error(&token(gateway, &app().refresh(&tokens.refresh.unwrap())), 400, "invalid_grant");
    assert!(gateway.audit().iter().any(|record| record["event"] == "token.replayed"));
}

#[test]
fn as_43_as_44_o_31_a_client_that_cannot_show_who_it_is_burns_no_code() {
    let Gate { gateway, .. } = gate("");
    let client = of("checker", Some(SECRET));
    let asked = client.ask(&gateway, "up");
    let code = client.code(&gateway, "alice", &asked);

    for _ in 0..6 {
        for secret in [None, Some("wrong"), Some("")] {
            is_error(&token(&gateway, &of("checker", secret).redeem(&code, &asked.verifier)), 401, "invalid_client");
        }
    }

    let tokens = Tokens::of(&token(&gateway, &client.redeem(&code, &asked.verifier)));
    assert_eq!(status_with(&gateway, &tokens.access), 200);
    let refresh = tokens.refresh.unwrap();
    is_error(&token(&gateway, &of("checker", None).refresh(&refresh)), 401, "invalid_client");
    assert_eq!(token(&gateway, &client.refresh(&refresh)).status, 200);
}

#[test]
fn as_38_as_39_as_53_what_is_no_token_request_is_refused_and_uses_nothing_up() {
    let Gate { gateway, .. } = gate("");
    let asked = app().ask(&gateway, "up");
    let code = app().code(&gateway, "alice", &asked);
    let right = app().redeem(&code, &asked.verifier);
    let form = form_request("/token", &right);
    let (_, _, _, body) = form.parts();
    let body = String::from_utf8(body.to_vec()).unwrap();

    for method in ["GET", "PUT", "DELETE"] {
        assert_eq!(Request::new(method, "/token").send(gateway.agent).status, 405, "{method}");
    }
    let with = |target: &str, kind: &str, body: &str| {
        Request::post(target).header("Content-Type", kind).body(body).send(gateway.agent)
    };
    let urlencoded = "application/x-www-form-urlencoded";
    let json = json!({ "grant_type": "authorization_code", "code": code }).to_string();
    is_error(&with("/token", "application/json", &json), 400, "invalid_request");
    is_error(&with("/token", "text/plain", &body), 400, "invalid_request");
    is_error(&with(&format!("/token?{body}"), urlencoded, ""), 400, "invalid_request");
    is_error(&with("/token", urlencoded, &format!("{body}&code=x")), 400, "invalid_request");
    let password = body.replace("authorization_code", "password");
    is_error(&with("/token", urlencoded, &password), 400, "unsupported_grant_type");

    Tokens::of(&with("/token", urlencoded, &body));
}

#[test]
fn no_code_and_no_token_is_anywhere_but_in_the_answer() {
    let gate = gate("");
    let gateway = &gate.gateway;
    let asked = app().ask(gateway, "up");
    let code = app().code(gateway, "alice", &asked);
    let first = Tokens::of(&token(gateway, &app().redeem(&code, &asked.verifier)));
    let second = Tokens::of(&token(gateway, &app().refresh(first.refresh.as_deref().unwrap())));
    // Also where something is wrong with them.
    token(gateway, &of("other", None).refresh(second.refresh.as_deref().unwrap()));
    token(gateway, &of("other", None).redeem(&code, &asked.verifier));
    status_with(gateway, &format!("{}x", second.access));

    let mut places = vec![("the log".to_owned(), gateway.log())];
    texts(&gateway.path("data"), &mut places);
    assert!(places.iter().any(|(place, text)| place.ends_with(".jsonl") && text.contains("token.refreshed")));
    let refreshed = |tokens: &Tokens| tokens.refresh.clone().unwrap();
    let secrets = [code, asked.verifier, refreshed(&first), refreshed(&second), first.access, second.access];
    for secret in secrets {
        let canary = Canary::new("a secret", secret);
        places.iter().for_each(|(place, text)| canary.assert_absent(place, text));
    }
}
