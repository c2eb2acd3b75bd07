//! Clients known by a document, while the document cannot be had: whoever was let in goes on, nobody else comes in.

use super::RULES;
use super::metadata_documents::{Site, assertion, authorize, code_of, is_login, is_refused, with_assertion};
use crate::support::gateway::{Gateway, in_front_of};
use crate::support::http::Response;
use crate::support::issuer::SigningKey;
use crate::support::oauth::{Client, Tokens, post_form, token};
use crate::support::reply::Reply;
use portcullis::store::{FetchedDocument, Store};
use serde_json::json;

fn configuration(site: &Site, more: &str) -> String {
    format!("{}{more}\n{}", site.settings(""), in_front_of("http://127.0.0.1:9/mcp", RULES))
}

/// Kills it and starts it again under the same address: it remembers what it has written down, and nothing else.
#[track_caller]
fn restarted(gateway: Gateway, site: &Site) -> Gateway {
    gateway.rewrite(&configuration(site, &format!("listen: {}", gateway.agent)));
    gateway.crash_and_restart()
}

fn refresh_of(tokens: &Tokens) -> String {
    tokens.refresh.clone().expect("a refresh token")
}

#[track_caller]
fn refreshed(gateway: &Gateway, client: &Client, refresh: &str) -> String {
    refresh_of(&Tokens::of(&token(gateway, &client.refresh(refresh))))
}

fn error(response: &Response) -> (u16, String) {
    (response.status, response.json()["error"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_client_goes_on_while_the_host_of_its_document_is_down_and_nobody_new_comes_in() {
    let site = Site::start();
    let client = site.publish("/meta.json", &json!({}));
    let stranger = site.publish("/stranger.json", &json!({}));
    let gateway = site.gateway();
    let mut refresh = refresh_of(&client.log_in(&gateway, "alice", "up"));
    let code = code_of(&gateway, &client);
    let gateway = restarted(gateway, &site);
    for path in ["/meta.json", "/stranger.json"] {
        site.answer(path, Reply::close);
    }

    refresh = refreshed(&gateway, &client, &refresh);
    Tokens::of(&token(&gateway, &code));
    site.answer("/meta.json", || Reply::new(503, ""));
    refresh = refreshed(&gateway, &client, &refresh);
    let page = authorize(&gateway, &client);
    assert_eq!((page.status, page.header("location")), (503, None), "{}", page.text());
    assert_eq!(error(&token(&gateway, &stranger.refresh(&refresh))), (503, "temporarily_unavailable".to_owned()));
    let revoked = post_form(&gateway, "/revoke", &client.form(&[("token", &refresh)]));
    assert_eq!(revoked.status, 200, "{}", revoked.text());
    assert_eq!(error(&token(&gateway, &client.refresh(&refresh))), (400, "invalid_grant".to_owned()));

    site.publish("/meta.json", &json!({}));
    assert!(is_login(&authorize(&gateway, &client)), "it is back");
}

#[test]
fn a_document_that_is_gone_for_a_while_ends_no_login() {
    let site = Site::start();
    let client = site.publish("/meta.json", &json!({}));
    let gateway = site.gateway();
    let mut refresh = refresh_of(&client.log_in(&gateway, "alice", "up"));
    let gateway = restarted(gateway, &site);

    for (status, kind) in [(404, "text/html"), (410, "application/json"), (301, "text/html"), (200, "text/html")] {
        site.answer("/meta.json", move || Reply::new(status, "<html>").header("Content-Type", kind));
        refresh = refreshed(&gateway, &client, &refresh);
    }
    is_refused(&authorize(&gateway, &client), "content type");
    site.answer("/meta.json", || Reply::new(404, ""));
    is_refused(&authorize(&gateway, &client), "404");
}

#[test]
fn what_a_document_said_more_than_a_week_ago_does_not_count() {
    let site = Site::start();
    let client = site.publish("/meta.json", &json!({}));
    let gateway = site.gateway();
    let refresh = refresh_of(&client.log_in(&gateway, "alice", "up"));
    let mut gateway = restarted(gateway, &site);
    site.answer("/meta.json", Reply::close);

    for (hours, status) in [(7 * 24 + 1, 503), (7 * 24 - 1, 200)] {
        back_date(&gateway, &client.id, hours * 60 * 60 * 1000);
        gateway = restarted(gateway, &site);
        let answer = token(&gateway, &client.refresh(&refresh));
        assert_eq!(answer.status, status, "{hours} hours: {}", answer.text());
    }
}

fn back_date(gateway: &Gateway, id: &str, by_ms: i64) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let store = Store::open(&gateway.path("data")).await.expect("its store");
        let kept = store.document(id, id).await.expect("the store reads").expect("it is kept");
        let now_ms = crate::support::issuer::now() * 1000;
        store.forget_documents(id).await.expect("the store writes");
        store.keep_document(FetchedDocument { fetched_at_ms: now_ms - by_ms, ..kept }, 10).await.expect("it writes");
    });
}

#[test]
fn a_document_that_says_something_else_counts_from_then_on_also_when_it_is_gone_again() {
    let site = Site::start();
    let client = site.publish("/meta.json", &json!({}));
    let gateway = site.gateway();
    let refresh = refresh_of(&client.log_in(&gateway, "alice", "up"));

    let uris = json!(["http://localhost/elsewhere"]);
    site.publish("/meta.json", &json!({ "redirect_uris": uris }));
    let gateway = restarted(gateway, &site);
    let refresh = refreshed(&gateway, &client, &refresh);
    is_refused(&authorize(&gateway, &client), "Wrong address");
    let moved = Client { redirect_uri: "http://localhost:1/elsewhere".to_owned(), ..client };
    assert!(is_login(&authorize(&gateway, &moved)));

    // It must sign from now on.
    let key = SigningKey::new("k1");
    let signs = json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks": { "keys": [key.jwk()] } });
    let client = site.publish("/meta.json", &signs);
    let gateway = restarted(gateway, &site);
    let refused = (401, "invalid_client".to_owned());
    assert_eq!(error(&token(&gateway, &client.refresh(&refresh))), refused);
    site.answer("/meta.json", Reply::close);
    let gateway = restarted(gateway, &site);
    assert_eq!(error(&token(&gateway, &client.refresh(&refresh))), refused);
    let issuer = format!("http://{}", gateway.agent);
    let signed = with_assertion(client.refresh(&refresh), &assertion(&client.id, &key, &issuer, &json!({})));
    let refresh = refresh_of(&Tokens::of(&token(&gateway, &signed)));

    // It is nobody's any more.
    site.publish("/meta.json", &json!({ "client_id": "https://localhost/another" }));
    let signed = || with_assertion(client.refresh(&refresh), &assertion(&client.id, &key, &issuer, &json!({})));
    assert_eq!(error(&token(&gateway, &signed())), refused);
    site.answer("/meta.json", Reply::close);
    assert_eq!(token(&gateway, &signed()).status, 503, "what it said before is forgotten");
}

#[test]
fn keys_at_another_url_may_be_gone_for_a_while_too() {
    let site = Site::start();
    let key = SigningKey::new("k1");
    site.json("/jwks.json", &json!({ "keys": [key.jwk()] }));
    let about = json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": site.url("/jwks.json") });
    let client = site.publish("/meta.json", &about);
    let gateway = site.gateway();
    let issuer = format!("http://{}", gateway.agent);
    let sign = |key: &SigningKey, form| with_assertion(form, &assertion(&client.id, key, &issuer, &json!({})));
    let refresh = refresh_of(&Tokens::of(&token(&gateway, &sign(&key, code_of(&gateway, &client)))));
    let gateway = restarted(gateway, &site);
    for path in ["/meta.json", "/jwks.json"] {
        site.answer(path, Reply::close);
    }

    let by_another = token(&gateway, &sign(&SigningKey::new("k1"), client.refresh(&refresh)));
    assert_eq!(error(&by_another), (401, "invalid_client".to_owned()));
    assert_eq!(token(&gateway, &sign(&SigningKey::new("k2"), client.refresh(&refresh))).status, 503);
    Tokens::of(&token(&gateway, &sign(&key, client.refresh(&refresh))));
}

/// S-13.
#[test]
fn strangers_cannot_use_up_the_fetches_of_a_client_that_was_let_in() {
    let site = Site::start();
    let client = site.publish("/meta.json", &json!({}));
    let gateway = site.gateway();
    let refresh = refresh_of(&client.log_in(&gateway, "alice", "up"));
    let stranger = |n: usize| token(&gateway, &site.publish(&format!("/{n}.json"), &json!({})).refresh("rt_x")).status;
    let n_refused = (0..30).filter(|n| stranger(*n) == 503).count();
    assert!(n_refused >= 10, "{n_refused}");

    // A change that is none for documents: nothing is asked for again.
    gateway.rewrite(&configuration(&site, "timeouts: { keep_alive: 61s }"));
    gateway.reload().success();
    let refresh = refreshed(&gateway, &client, &refresh);
    assert_eq!(site.n_fetches("/meta.json"), 1);
    let own = site.settings(&format!(", only: [\"{}\"]", site.host()));
    gateway.rewrite(&format!("{own}{}", in_front_of("http://127.0.0.1:9/mcp", RULES)));
    gateway.reload().success();
    assert_eq!(stranger(99), 503);
    refreshed(&gateway, &client, &refresh);
    assert_eq!(site.n_fetches("/meta.json"), 2, "it was asked for, and had");
    assert!(is_login(&authorize(&gateway, &client)));
}
