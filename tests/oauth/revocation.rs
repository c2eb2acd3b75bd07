//! `/revoke` (RFC 7009): a client ends what is its own, and nothing else.

use super::app::{Codes, SECRET, app, gate, of};
use crate::support::PATIENCE;
use crate::support::gate::{Gate, eventually};
use crate::support::gateway::Gateway;
use crate::support::http::{Request, Response};
use crate::support::oauth::{Client, post_form, status_with, token};

fn revoke(gateway: &Gateway, client: &Client, token: &str, more: &[(&str, &str)]) -> Response {
    post_form(gateway, "/revoke", &client.form(&[&[("token", token)], more].concat()))
}

#[track_caller]
fn is_over(gateway: &Gateway, access: &str) {
    eventually(PATIENCE, || (status_with(gateway, access) == 401).then_some(())).expect("its access token is refused");
}

#[test]
fn as_75_either_token_ends_the_grant_whatever_the_hint_says() {
    let Gate { gateway, .. } = gate("");
    let codes = Codes::of(&gateway, &format!("http://{}", gateway.agent));
    for (is_access, hint) in [(true, ""), (true, "refresh_token"), (false, "refresh_token"), (false, "access_token")] {
        let tokens = codes.log_in(&gateway);
        assert_eq!(status_with(&gateway, &tokens.access), 200);
        let (access, refresh) = (tokens.access, tokens.refresh.unwrap());

        let answer = revoke(&gateway, &app(), if is_access { &access } else { &refresh }, &[("token_type_hint", hint)]);

        assert_eq!((answer.status, &*answer.text()), (200, ""), "{hint}");
        is_over(&gateway, &access);
        assert_eq!(token(&gateway, &app().refresh(&refresh)).status, 400);
        // Twice is once.
        assert_eq!(revoke(&gateway, &app(), &refresh, &[]).status, 200);
    }
    assert_eq!(gateway.audit().iter().filter(|record| record["event"] == "token.revoked").count(), 4);
}

#[test]
fn as_75_a_refresh_token_that_was_used_still_ends_its_grant() {
    let Gate { gateway, .. } = gate("");
    let tokens = Codes::of(&gateway, &format!("http://{}", gateway.agent)).log_in(&gateway);
    let old = tokens.refresh.unwrap();
    assert_eq!(token(&gateway, &app().refresh(&old)).status, 200);

    assert_eq!(revoke(&gateway, &app(), &old, &[]).status, 200);

    is_over(&gateway, &tokens.access);
}

#[test]
fn as_75_what_is_unknown_or_anothers_is_answered_alike_and_nothing_happens() {
    let Gate { gateway, .. } = gate("");
    let tokens = Codes::of(&gateway, &format!("http://{}", gateway.agent)).log_in(&gateway);
    let refresh = tokens.refresh.unwrap();
    let cut = &tokens.access[..tokens.access.len() - 4];
    let forged = format!("{cut}AAAA");

    for unknown in ["x", "pcr_x", "a.b.c", cut, &forged, "%00", "é"] {
        let answer = revoke(&gateway, &app(), unknown, &[]);
        assert_eq!((answer.status, &*answer.text()), (200, ""), "{unknown}");
    }
    for anothers in [&tokens.access, &refresh] {
        let answer = revoke(&gateway, &of("other", None), anothers, &[]);
        assert_eq!((answer.status, &*answer.text()), (200, ""));
    }

    assert_eq!(status_with(&gateway, &tokens.access), 200);
    assert_eq!(token(&gateway, &app().refresh(&refresh)).status, 200);
    assert!(!gateway.audit().iter().any(|record| record["event"] == "token.revoked"));
}

#[test]
fn as_75_a_request_that_is_none_or_comes_from_nobody_is_refused() {
    let Gate { gateway, .. } = gate("");
    let tokens = Codes::of(&gateway, &format!("http://{}", gateway.agent)).log_in(&gateway);
    let error = |response: &Response| response.json()["error"].as_str().map(str::to_owned);

    let without = post_form(&gateway, "/revoke", &app().form(&[]));
    assert_eq!((without.status, error(&without).as_deref()), (400, Some("invalid_request")));
    for nobody in [of("nobody", None), of("checker", None), of("checker", Some("wrong")), of("app", Some(SECRET))] {
        let refused = revoke(&gateway, &nobody, &tokens.access, &[]);
        assert_eq!((refused.status, error(&refused).as_deref()), (401, Some("invalid_client")), "{nobody:?}");
    }
    assert_eq!(Request::get("/revoke").send(gateway.agent).status, 405);
    assert_eq!(Request::post(&format!("/revoke?token={}", tokens.access)).send(gateway.agent).status, 400);

    assert_eq!(status_with(&gateway, &tokens.access), 200);
}
