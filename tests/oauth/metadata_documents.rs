//! Clients whose id is the URL of a document about them. The documents come over TLS from a server that counts.

use super::RULES;
use crate::support::browser::{Browser, parameter};
use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::http::{Request, Response};
use crate::support::issuer::{SigningKey, now};
use crate::support::oauth::{Client, Tokens, token};
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::tls::Identity;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A host with documents of clients.
pub(super) struct Site {
    pub(super) recorder: Recorder,
    authority: Identity,
    replies: Arc<Mutex<HashMap<String, Answer>>>,
}

type Answer = Arc<dyn Fn() -> Reply + Send + Sync>;
/// The same, of one that answers in a bad way.
type Bad = Box<dyn Fn() -> Reply + Send + Sync>;

impl Site {
    pub(super) fn start() -> Site {
        let authority = Identity::authority("test authority");
        let recorder = Recorder::start_tls(&authority.sign(&["localhost"]), None);
        let replies: Arc<Mutex<HashMap<String, Answer>>> = Arc::default();
        let answers = Arc::clone(&replies);
        recorder.answer_with(move |request: &Recorded| {
            let answer = answers.lock().expect("nobody panics").get(&request.target).cloned();
            answer.map_or_else(|| Reply::new(404, "not here"), |answer| answer())
        });
        Site { recorder, authority, replies }
    }

    pub(super) fn host(&self) -> String {
        format!("localhost:{}", self.recorder.address().port())
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.host())
    }

    /// Answers this path so from now on.
    pub(super) fn answer(&self, path: &str, answer: impl Fn() -> Reply + Send + Sync + 'static) {
        self.replies.lock().expect("nobody panics").insert(path.to_owned(), Arc::new(answer));
    }

    pub(super) fn json(&self, path: &str, body: &Value) {
        let body = body.to_string();
        self.answer(path, move || Reply::json(body.clone()));
    }

    /// Publishes a document there, with these members besides, and gives the client.
    pub(super) fn publish(&self, path: &str, more: &Value) -> Client {
        let uris = json!(["http://localhost/callback", "http://127.0.0.1/callback"]);
        let mut document = json!({ "client_id": self.url(path), "client_name": "App", "redirect_uris": uris });
        for (name, value) in more.as_object().expect("members") {
            document[name] = value.clone();
        }
        self.json(path, &document);
        Client { id: self.url(path), secret: None, redirect_uri: "http://localhost:52002/callback".to_owned() }
    }

    /// How often this path was asked for.
    pub(super) fn n_fetches(&self, path: &str) -> usize {
        self.recorder.requests().iter().filter(|request| request.target == path).count()
    }

    /// A gateway that may fetch from here.
    #[track_caller]
    pub(super) fn gateway(&self) -> Gateway {
        self.launch(&self.settings("")).start()
    }

    pub(super) fn settings(&self, more: &str) -> String {
        format!("oauth: {{ metadata_documents: {{ private: [\"{}\"], ca: ca.pem{more} }} }}\n", self.host())
    }

    pub(super) fn launch(&self, settings: &str) -> Launch {
        let yaml = format!("{settings}{}", in_front_of("http://127.0.0.1:9/mcp", RULES));
        Launch::new(&yaml).file("ca.pem", &self.authority.cert)
    }
}

pub(super) fn authorize(gateway: &Gateway, client: &Client) -> Response {
    Request::get(&client.ask(gateway, "up").url()).send(gateway.agent)
}

pub(super) fn is_login(response: &Response) -> bool {
    response.status == 200 && response.text().contains("name=\"password\"")
}

/// Nobody is sent anywhere, and the person reads why.
#[track_caller]
pub(super) fn is_refused(response: &Response, why: &str) {
    assert_eq!((response.status, response.header("location")), (400, None), "{}", response.text());
    assert!(response.text().contains(why), "{} does not say {why}", response.text());
}

pub(super) fn assertion(client: &str, key: &SigningKey, issuer: &str, more: &Value) -> String {
    let mut payload = json!({ "iss": client, "sub": client, "aud": issuer, "iat": now(), "exp": now() + 60,
        "jti": portcullis::id::unguessable("") });
    for (name, value) in more.as_object().expect("claims") {
        payload[name] = value.clone();
    }
    key.sign(&json!({ "alg": "ES256", "kid": key.kid }), &payload)
}

pub(super) fn with_assertion(mut form: Vec<(String, String)>, assertion: &str) -> Vec<(String, String)> {
    let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
    form.push(("client_assertion_type".to_owned(), kind.to_owned()));
    form.push(("client_assertion".to_owned(), assertion.to_owned()));
    form
}

/// Logs alice in, and gives the form that redeems her code.
#[track_caller]
pub(super) fn code_of(gateway: &Gateway, client: &Client) -> Vec<(String, String)> {
    let asked = client.ask(gateway, "up");
    let code = client.code(gateway, "alice", &asked);
    client.redeem(&code, &asked.verifier)
}

#[test]
fn b15_a_document_that_lists_localhost_without_a_port_lets_its_client_take_any_port() {
    let site = Site::start();
    let client = site.publish("/meta.json", &json!({ "token_endpoint_auth_method": "none" }));
    let gateway = site.gateway();
    let with = |uri: &str| {
        let asked = client.ask(&gateway, "up").with("redirect_uri", uri);
        Request::get(&asked.url()).send(gateway.agent)
    };

    for good in ["http://localhost:52002/callback", "http://127.0.0.1:1/callback", "http://localhost/callback"] {
        assert!(is_login(&with(good)), "{good}");
    }
    for bad in [
        "http://localhost:52002/callback/x",
        "http://localhost.evil.test:52002/callback",
        "https://localhost:52002/callback",
        "http://[::1]:52002/callback",
        "http://127.0.0.1@evil.test/callback",
    ] {
        is_refused(&with(bad), "Wrong address");
    }
    let tokens = client.log_in(&gateway, "alice", "up");
    assert!(tokens.refresh.is_some());
    assert_eq!(site.n_fetches("/meta.json"), 1, "it is kept");
}

#[test]
fn b16_a_client_that_prefers_a_signature_and_lists_none_may_use_either() {
    let site = Site::start();
    let key = SigningKey::new("k1");
    site.json("/jwks.json", &json!({ "keys": [key.jwk()] }));
    let about = json!({ "token_endpoint_auth_method": "private_key_jwt", "token_endpoint_auth_signing_alg": "ES256",
        "jwks_uri": site.url("/jwks.json"), "token_endpoint_auth_methods_supported": ["private_key_jwt", "none"] });
    let client = site.publish("/a.json", &about);
    let gateway = site.gateway();
    let issuer = format!("http://{}", gateway.agent);

    let none = code_of(&gateway, &client);
    assert_eq!(Tokens::of(&token(&gateway, &none)).answer["token_type"], "Bearer");
    let signed = code_of(&gateway, &client);
    let by_another = assertion(&client.id, &SigningKey::new("k1"), &issuer, &json!({}));
    let refused = token(&gateway, &with_assertion(signed.clone(), &by_another));
    assert_eq!((refused.status, &refused.json()["error"]), (401, &json!("invalid_client")));
    let own = assertion(&client.id, &key, &issuer, &json!({}));
    Tokens::of(&token(&gateway, &with_assertion(signed, &own)));
}

#[test]
fn b16_a_client_that_only_signs_must_sign_and_a_key_it_has_just_changed_is_found() {
    let site = Site::start();
    let (old, new) = (SigningKey::new("k1"), SigningKey::new("k2"));
    site.json("/jwks.json", &json!({ "keys": [old.jwk()] }));
    let about = json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": site.url("/jwks.json") });
    let client = site.publish("/b.json", &about);
    let inline = site.publish(
        "/inline.json",
        &json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks": { "keys": [new.jwk()] } }),
    );
    let gateway = site.gateway();
    let issuer = format!("http://{}", gateway.agent);

    let form = code_of(&gateway, &client);
    let bare = token(&gateway, &form);
    assert_eq!((bare.status, &bare.json()["error"]), (401, &json!("invalid_client")));
    Tokens::of(&token(&gateway, &with_assertion(form, &assertion(&client.id, &old, &issuer, &json!({})))));
    assert_eq!(site.n_fetches("/jwks.json"), 1);
    // Known for less than a minute, so it is not asked for again: strangers choose the names of keys.
    let form = code_of(&gateway, &client);
    let unknown = token(&gateway, &with_assertion(form, &assertion(&client.id, &new, &issuer, &json!({}))));
    assert_eq!(unknown.status, 401, "{}", unknown.text());
    assert_eq!(site.n_fetches("/jwks.json"), 1);

    let form = code_of(&gateway, &inline);
    Tokens::of(&token(&gateway, &with_assertion(form, &assertion(&inline.id, &new, &issuer, &json!({})))));
}

#[test]
fn b16_a_method_that_is_not_ours_is_named_before_the_person_is_asked_anything() {
    let site = Site::start();
    let post = site.publish("/c.json", &json!({ "token_endpoint_auth_method": "client_secret_post" }));
    let other = site.publish("/d.json", &json!({ "client_id": site.url("/e.json") }));
    let certificate = site.publish("/t.json", &json!({ "token_endpoint_auth_method": "tls_client_auth" }));
    let good = site.publish("/good.json", &json!({}));
    let gateway = site.gateway();
    let port = site.recorder.address().port();
    // S-08, S-12: where its keys are is judged as its own place is, and said now.
    for (n, keys) in [
        format!("https://127.0.0.1:{port}/jwks.json"),
        "https://169.254.169.254/jwks.json".to_owned(),
        "https://localhost:22/jwks.json".to_owned(),
        format!("http://localhost:{port}/jwks.json"),
    ]
    .into_iter()
    .enumerate()
    {
        let about = json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": keys });
        is_refused(&authorize(&gateway, &site.publish(&format!("/{n}.json"), &about)), "jwks_uri");
    }

    is_refused(&authorize(&gateway, &post), "client_secret_post");
    is_refused(&authorize(&gateway, &other), "client_id");
    is_refused(&authorize(&gateway, &certificate), "tls_client_auth");
    assert!(is_login(&authorize(&gateway, &good)));
    let metadata = Request::get("/.well-known/oauth-authorization-server").send(gateway.agent).json();
    let methods = &metadata["token_endpoint_auth_methods_supported"];
    assert_eq!(*methods, json!(["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]));
    assert_eq!(metadata["client_id_metadata_document_supported"], true);
}

/// S-09, S-10: refused, and not remembered: the moment the document is good, so is the client.
#[test]
fn s_10_a_document_that_is_too_large_moved_packed_or_not_json_is_refused_and_forgotten() {
    let site = Site::start();
    let client = site.publish("/x.json", &json!({}));
    let good = json!({ "client_id": client.id, "redirect_uris": ["http://localhost/callback"] }).to_string();
    let padded = |len: usize| good.replacen('{', &format!("{{\"pad\":\"{}\",", "x".repeat(len - good.len() - 9)), 1);
    assert_eq!(padded(5_120).len(), 5_120);
    let elsewhere = site.url("/good.json");
    site.publish("/good.json", &json!({}));
    let twice = good.replacen('{', "{\"client_id\":\"https://localhost/other\",", 1);
    let bad: Vec<(&str, Bad)> = vec![
        (
            "larger",
            Box::new({
                let body = padded(5_121);
                move || Reply::json(body.clone())
            }),
        ),
        (
            "302",
            Box::new({
                let to = elsewhere.clone();
                move || Reply::redirect(302, &to)
            }),
        ),
        ("307", Box::new(move || Reply::redirect(307, &elsewhere))),
        (
            "404",
            Box::new({
                let body = good.clone();
                move || Reply::json(body.clone()).status(404)
            }),
        ),
        ("204", Box::new(|| Reply::new(204, ""))),
        (
            "content type",
            Box::new({
                let body = good.clone();
                move || Reply::new(200, body.clone()).header("Content-Type", "text/html")
            }),
        ),
        (
            "content type",
            Box::new({
                let body = good.clone();
                move || Reply::new(200, body.clone())
            }),
        ),
        (
            "compressed",
            Box::new({
                let body = good.clone();
                move || Reply::json(body.clone()).header("Content-Encoding", "gzip")
            }),
        ),
        ("JSON", Box::new(|| Reply::json("{"))),
        ("JSON", Box::new(move || Reply::json(twice.clone()))),
    ];
    let n_before = site.n_fetches("/good.json");
    let mut bad = bad.into_iter();
    // In two halves: one address is granted ten fetches at once.
    for _ in 0..2 {
        let gateway = site.gateway();
        for (why, reply) in bad.by_ref().take(5) {
            let mark = site.recorder.mark();
            site.answer("/x.json", reply);
            is_refused(&authorize(&gateway, &client), why);
            assert_eq!(site.recorder.requests_since(mark).len(), 1, "{why}");
        }
        let body = padded(5_120);
        site.answer("/x.json", move || Reply::json(body.clone()));
        assert!(is_login(&authorize(&gateway, &client)));
    }
    assert!(bad.next().is_none(), "every case was tried");
    assert_eq!(site.n_fetches("/good.json"), n_before, "no redirect was followed");
}

#[test]
fn s_10_a_server_that_never_answers_costs_five_seconds_and_no_more() {
    let site = Site::start();
    let client = site.publish("/slow.json", &json!({}));
    site.answer("/slow.json", Reply::hang);
    let gateway = site.gateway();
    let begun = tokio::time::Instant::now();

    let response = authorize(&gateway, &client);

    assert_eq!((response.status, response.header("location")), (503, None), "{}", response.text());
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    site.publish("/slow.json", &json!({}));
    assert!(is_login(&authorize(&gateway, &client)), "a failure is not remembered");
}

/// S-01, S-02, S-07, S-08, S-11: nothing was connected to.
#[test]
fn s_11_an_id_that_leads_into_this_network_or_is_no_plain_url_is_refused_without_a_connection() {
    let site = Site::start();
    site.publish("/meta.json", &json!({}));
    // Plain: it may go nowhere but to the public internet.
    let gateway =
        site.launch("oauth: { metadata_documents: { ca: ca.pem } }\n").env("HTTPS_PROXY", &site.url("/")).start();
    let port = site.recorder.address().port();
    let own = gateway.agent;
    let client =
        |id: &str| Client { id: id.to_owned(), secret: None, redirect_uri: "http://localhost/callback".to_owned() };
    let mark = site.recorder.mark();
    for id in [
        site.url("/meta.json"),
        "https://localhost/meta.json".to_owned(),
        format!("https://127.0.0.1:{port}/meta.json"),
        "https://127.0.0.1/meta.json".to_owned(),
        "https://169.254.169.254/latest/meta-data".to_owned(),
        "https://[::1]/meta.json".to_owned(),
        "https://2130706433/meta.json".to_owned(),
        "https://[64:ff9b::7f00:1]/meta.json".to_owned(),
        "https://localhost.localdomain.invalid/meta.json".to_owned(),
        format!("https://{own}/meta.json"),
        "https://localhost/".to_owned(),
        "https://localhost/a/../meta.json".to_owned(),
        "https://localhost/meta.json?x=1".to_owned(),
        "https://localhost/meta.json#x".to_owned(),
        "https://u:p@localhost/meta.json".to_owned(),
        "https://LOCALHOST/meta.json".to_owned(),
        "http://localhost/meta.json".to_owned(),
    ] {
        let response = authorize(&gateway, &client(&id));
        assert!(matches!(response.status, 400 | 503), "{id}: {}", response.text());
        assert_eq!(response.header("location"), None);
        let refused = token(&gateway, &client(&id).refresh("rt_x"));
        assert!(matches!(refused.status, 401 | 503), "{id}: {}", refused.text());
    }
    site.recorder.assert_untouched(mark);

    let allowed = site.gateway();
    assert!(is_login(&authorize(&allowed, &client(&site.url("/meta.json")))));
}

/// AS-74.
#[test]
fn as_74_only_hosts_that_are_listed_count_where_any_are_and_none_where_it_is_off() {
    let site = Site::start();
    let client = site.publish("/meta.json", &json!({}));
    let other = site.settings(", only: [client.example]");
    let gateway = site.launch(&other).start();
    let mark = site.recorder.mark();
    is_refused(&authorize(&gateway, &client), "not a host whose documents count here");
    gateway.rewrite(&format!("{}{}", site.settings(", enabled: false"), in_front_of("http://127.0.0.1:9/mcp", RULES)));
    gateway.reload().success();
    is_refused(&authorize(&gateway, &client), "Unknown app");
    let metadata = Request::get("/.well-known/oauth-authorization-server").send(gateway.agent).json();
    assert_eq!(metadata["client_id_metadata_document_supported"], false);
    site.recorder.assert_untouched(mark);

    let own = site.settings(&format!(", only: [\"{}\"]", site.host()));
    gateway.rewrite(&format!("{own}{}", in_front_of("http://127.0.0.1:9/mcp", RULES)));
    gateway.reload().success();
    assert!(is_login(&authorize(&gateway, &client)));
    // A server that nobody vouches for.
    let strangers = Site::start();
    let client = strangers.publish("/meta.json", &json!({}));
    let settings = format!("oauth: {{ metadata_documents: {{ private: [\"{}\"], ca: ca.pem }} }}\n", strangers.host());
    let gateway = site.launch(&settings).start();
    assert_eq!(authorize(&gateway, &client).status, 503);
    assert_eq!(strangers.recorder.requests().len(), 0);
}

/// S-13.
#[test]
fn s_13_an_address_that_names_document_after_document_causes_a_few_fetches() {
    let site = Site::start();
    let gateway = site.gateway();
    let statuses: Vec<u16> = (0..25)
        .map(|n| {
            let client = site.publish(&format!("/{n}.json"), &json!({}));
            token(&gateway, &client.refresh("rt_x")).status
        })
        .collect();

    let n_fetched = site.recorder.requests().len();
    assert!((10..20).contains(&n_fetched), "{n_fetched}");
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 25 - n_fetched, "{statuses:?}");
    // What is known already is no fetch.
    let known = Client { id: site.url("/0.json"), secret: None, redirect_uri: "http://localhost/callback".to_owned() };
    assert!(is_login(&authorize(&gateway, &known)));
    assert_eq!(site.recorder.requests().len(), n_fetched);
}

/// O-15, AS-35.
#[test]
fn o_15_a_document_that_says_something_else_is_consented_to_anew() {
    let site = Site::start();
    let uri = "https://app.example/cb";
    let about = |name: &str| json!({ "client_name": name, "redirect_uris": [uri] });
    let client = Client { redirect_uri: uri.to_owned(), ..site.publish("/meta.json", &about("App")) };
    let gateway = site.gateway();
    let mut browser = Browser::new(gateway.agent);
    client.let_in(&gateway, &mut browser, "alice", &client.ask(&gateway, "up"));
    let again = browser.get(&client.ask(&gateway, "up").url());
    assert!(again.left_for.is_some_and(|to| parameter(&to, "code").is_some()), "she has said yes to this");

    site.publish("/meta.json", &about("Another App"));
    // Where documents may be is another question now, so they are all asked for again.
    let own = site.settings(&format!(", only: [\"{}\"]", site.host()));
    gateway.rewrite(&format!("{own}{}", in_front_of("http://127.0.0.1:9/mcp", RULES)));
    gateway.reload().success();
    let asked = browser.get(&client.ask(&gateway, "up").url());
    assert_eq!(asked.left_for, None, "she is asked again");
    assert!(asked.response.text().contains("Another App"));
}
