//! How clients show who they are at `/token`, `/revoke` and `/introspect`.

use super::RULES;
use crate::support::browser::encode_form;
use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::http::{Request, Response};
use crate::support::issuer::{SigningKey, now};
use crate::support::oauth::{Client, Tokens, form_request, status_with, token};
use crate::support::wait_for;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

fn gateway() -> Gateway {
    Gateway::start(&in_front_of("http://127.0.0.1:9/mcp", RULES))
}

fn register(gateway: &Gateway, method: &str, more: &Value) -> Client {
    let mut about = json!({ "client_name": method, "redirect_uris": ["http://127.0.0.1:3999/callback"],
        "token_endpoint_auth_method": method });
    for (name, value) in more.as_object().expect("members") {
        about[name] = value.clone();
    }
    Client::register_as(gateway, &about)
}

/// Logs alice in, and gives the form that redeems her code, without anything that shows who the client is.
#[track_caller]
fn code_of(gateway: &Gateway, client: &Client) -> Vec<(String, String)> {
    let asked = client.ask(gateway, "up");
    let code = client.code(gateway, "alice", &asked);
    without(client.redeem(&code, &asked.verifier), &["client_id", "client_secret"])
}

fn without(form: Vec<(String, String)>, names: &[&str]) -> Vec<(String, String)> {
    form.into_iter().filter(|(name, _)| !names.contains(&name.as_str())).collect()
}

fn with(form: &[(String, String)], more: &[(&str, &str)]) -> Vec<(String, String)> {
    let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    form.iter().cloned().chain(more).collect()
}

fn basic(id: &str, secret: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")))
}

fn with_basic(gateway: &Gateway, form: &[(String, String)], credentials: &str) -> Response {
    form_request("/token", form).header("Authorization", credentials).send(gateway.agent)
}

#[track_caller]
fn is_refused(response: &Response, status: u16, code: &str) {
    assert_eq!((response.status, &response.json()["error"]), (status, &json!(code)), "{}", response.text());
    assert_eq!(response.header("cache-control"), Some("no-store"));
}

const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

fn assertion(client: &Client, key: &SigningKey, gateway: &Gateway, more: &Value) -> String {
    let mut payload = json!({ "iss": client.id, "sub": client.id, "aud": format!("http://{}", gateway.agent),
        "iat": now(), "exp": now() + 60, "jti": portcullis::id::unguessable("") });
    for (name, value) in more.as_object().expect("claims") {
        payload[name] = value.clone();
    }
    key.sign(&json!({ "alg": "ES256", "kid": key.kid }), &payload)
}

/// O-31, AS-41, AS-43: the same code is then redeemed by who has the secret.
#[test]
fn as_43_a_wrong_secret_is_refused_by_every_method_and_burns_no_code() {
    let gateway = gateway();
    for method in ["client_secret_basic", "client_secret_post"] {
        let client = register(&gateway, method, &json!({}));
        let other = register(&gateway, method, &json!({}));
        let (secret, others) = (client.secret.clone().unwrap(), other.secret.clone().unwrap());
        let form = code_of(&gateway, &client);
        for wrong in ["wrong", "", " ", &others, &secret[1..], &secret.to_uppercase(), &format!("{secret} ")] {
            let refused = with_basic(&gateway, &form, &basic(&client.id, &wrong.replace(' ', "+")));
            is_refused(&refused, 401, "invalid_client");
            assert!(refused.header("www-authenticate").is_some_and(|it| it.starts_with("Basic ")), "{refused:?}");
            let posted = with(&form, &[("client_id", &client.id), ("client_secret", wrong)]);
            let refused = token(&gateway, &posted);
            is_refused(&refused, 401, "invalid_client");
            assert_eq!(refused.header("www-authenticate"), None);
        }
        // AS-44: a client with a secret that shows none.
        is_refused(&token(&gateway, &with(&form, &[("client_id", &client.id)])), 401, "invalid_client");
        let answer = if method == "client_secret_basic" {
            with_basic(&gateway, &form, &basic(&client.id, &secret))
        } else {
            token(&gateway, &with(&form, &[("client_id", &client.id), ("client_secret", &secret)]))
        };
        let tokens = Tokens::of(&answer);
        // AS-66, and the other way round: what refreshes is the client.
        let refresh = without(client.refresh(tokens.refresh.as_deref().unwrap()), &["client_secret"]);
        is_refused(&token(&gateway, &refresh), 401, "invalid_client");
        Tokens::of(&token(&gateway, &client.refresh(tokens.refresh.as_deref().unwrap())));
        assert!(!gateway.log().contains(&secret) && !gateway.audit_text().contains(&secret));
    }
}

/// AS-42: RFC 6749 §2.3.1 wants id and secret encoded as in a form before they are put together.
#[test]
fn as_42_id_and_secret_in_the_header_are_decoded_as_a_form() {
    let secret = "a:b%c+d é/=";
    let digest = ring::digest::digest(&ring::digest::SHA256, secret.as_bytes());
    let hash: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let clients =
        format!("  clients:\n    - {{ id: \"ci~1.x\", secret_hash: \"sha256:{hash}\", owner: alice, routes: [up] }}\n");
    let yaml =
        format!("{}{clients}{}", crate::support::gateway::IDENTITY, in_front_of("http://127.0.0.1:9/mcp", RULES));
    let gateway = Launch::new(&yaml).start();
    let form = with(&[], &[("grant_type", "client_credentials")]);
    let encoded = encode_form(&[(String::new(), secret.to_owned())]).trim_start_matches('=').to_owned();

    Tokens::of(&with_basic(&gateway, &form, &basic("ci~1.x", &encoded)));
    Tokens::of(&with_basic(&gateway, &form, &basic("ci%7E1%2Ex", &encoded)));
    let lower = format!("basic {}", STANDARD.encode(format!("ci~1.x:{encoded}")));
    Tokens::of(&with_basic(&gateway, &form, &lower));
    for wrong in [
        basic("ci~1.x", secret),
        basic("ci~1.x", &encoded.replace("%25", "%")),
        basic("ci~1.x", &format!("{encoded}%")),
        basic("ci~1.x", &format!("{encoded}%zz")),
        basic("ci~1.x", &format!("{encoded}%ff")),
        format!("Basic {encoded}"),
        "Basic".to_owned(),
        "Basic ".to_owned(),
        format!("Bearer {}", STANDARD.encode(format!("ci~1.x:{encoded}"))),
        format!("Basic {}", STANDARD.encode("ci~1.x")),
    ] {
        let refused = with_basic(&gateway, &form, &wrong);
        is_refused(&refused, 401, "invalid_client");
        assert!(refused.header("www-authenticate").is_some(), "{wrong}");
    }
}

/// AS-39, AS-40.
#[test]
fn as_40_a_client_that_shows_who_it_is_in_two_ways_is_refused() {
    let gateway = gateway();
    let client = register(&gateway, "client_secret_basic", &json!({}));
    let other = register(&gateway, "client_secret_basic", &json!({}));
    let secret = client.secret.clone().unwrap();
    let form = code_of(&gateway, &client);
    let header = basic(&client.id, &secret);
    for (more, status, code) in [
        (vec![("client_secret", &*secret)], 400, "invalid_request"),
        (vec![("client_id", &*client.id), ("client_secret", "x")], 400, "invalid_request"),
        (vec![("client_assertion", "a.b.c"), ("client_assertion_type", ASSERTION_TYPE)], 400, "invalid_request"),
        (vec![("client_assertion_type", ASSERTION_TYPE)], 400, "invalid_request"),
        (vec![("client_id", &*other.id)], 400, "invalid_request"),
        (vec![("client_id", &*client.id), ("client_id", &*client.id)], 400, "invalid_request"),
    ] {
        is_refused(&with_basic(&gateway, &with(&form, &more), &header), status, code);
    }
    let twice = form_request("/token", &form).header("Authorization", &header).header("Authorization", &header);
    is_refused(&twice.send(gateway.agent), 400, "invalid_request");
    let posted = with(&form, &[("client_id", &client.id), ("client_secret", &secret), ("client_secret", &secret)]);
    is_refused(&token(&gateway, &posted), 400, "invalid_request");

    // The id beside the header says nothing else, and an empty parameter is as good as none.
    let same = with(&form, &[("client_id", &client.id), ("client_secret", "")]);
    Tokens::of(&with_basic(&gateway, &same, &header));
}

/// AS-38.
#[test]
fn as_38_what_shows_who_a_client_is_has_no_place_in_a_url() {
    let gateway = gateway();
    let client = register(&gateway, "client_secret_post", &json!({}));
    let secret = client.secret.clone().unwrap();
    let form = code_of(&gateway, &client);
    for path in ["/token", "/revoke", "/introspect"] {
        let target = format!("{path}?client_id={}&client_secret={secret}", client.id);
        is_refused(&form_request(&target, &form).send(gateway.agent), 400, "invalid_request");
    }
    let posted = with(&form, &[("client_id", &client.id), ("client_secret", &secret)]);
    assert_eq!(Request::get("/token").send(gateway.agent).status, 405);
    let json = Request::post("/token").header("Content-Type", "application/json").body("{}");
    is_refused(&json.send(gateway.agent), 400, "invalid_request");
    Tokens::of(&token(&gateway, &posted));
    assert!(!gateway.log().contains(&secret));
}

/// AS-44, O-31.
#[test]
fn as_44_a_public_client_that_shows_a_secret_is_refused() {
    let gateway = gateway();
    let client = register(&gateway, "none", &json!({}));
    let form = code_of(&gateway, &client);
    is_refused(&with_basic(&gateway, &form, &basic(&client.id, "x")), 401, "invalid_client");
    is_refused(&with_basic(&gateway, &form, &basic(&client.id, "")), 401, "invalid_client");
    let posted = with(&form, &[("client_id", &client.id), ("client_secret", "x")]);
    is_refused(&token(&gateway, &posted), 401, "invalid_client");
    is_refused(&token(&gateway, &form), 401, "invalid_client");
    for unknown in ["c_unknown", "", &client.id.to_lowercase(), "https://localhost/x"] {
        let posted = with(&form, &[("client_id", unknown)]);
        is_refused(&token(&gateway, &posted), 401, "invalid_client");
    }
    Tokens::of(&token(&gateway, &with(&form, &[("client_id", &client.id)])));
}

/// AS-45.
#[test]
fn as_45_an_assertion_is_for_this_server_of_this_client_and_good_once() {
    let gateway = gateway();
    let key = SigningKey::new("k1");
    let client = register(&gateway, "private_key_jwt", &json!({ "jwks": { "keys": [key.jwk()] } }));
    let other = register(&gateway, "private_key_jwt", &json!({ "jwks": { "keys": [SigningKey::new("k1").jwk()] } }));
    let form = code_of(&gateway, &client);
    let send = |form: &[(String, String)], assertion: &str| {
        let more = [("client_assertion_type", ASSERTION_TYPE), ("client_assertion", assertion)];
        token(&gateway, &with(form, &more))
    };
    let of = |more: Value| assertion(&client, &key, &gateway, &more);
    let issuer = format!("http://{}", gateway.agent);
    for bad in [
        of(json!({ "aud": format!("{issuer}/token") })),
        of(json!({ "aud": [issuer, "https://other.example"] })),
        of(json!({ "aud": format!("{issuer}/") })),
        of(json!({ "iss": other.id })),
        of(json!({ "sub": other.id })),
        of(json!({ "iss": other.id, "sub": other.id })),
        of(json!({ "exp": now() - 1 })),
        of(json!({ "exp": now() + 3600 })),
        of(json!({ "iat": now() + 300, "exp": now() + 360 })),
        of(json!({ "jti": "" })),
        assertion(&client, &SigningKey::new("k1"), &gateway, &json!({})),
        assertion(&client, &SigningKey::new("k2"), &gateway, &json!({})),
        "x".to_owned(),
        "a.b.c".to_owned(),
    ] {
        is_refused(&send(&form, &bad), 401, "invalid_client");
    }
    let wrong_type = [("client_assertion_type", "jwt"), ("client_assertion", &*of(json!({})))];
    is_refused(&token(&gateway, &with(&form, &wrong_type)), 400, "invalid_request");
    is_refused(&token(&gateway, &with(&form, &[("client_assertion", &of(json!({})))])), 400, "invalid_request");
    is_refused(&token(&gateway, &with(&form, &[("client_id", &client.id)])), 401, "invalid_client");
    let secret = with(&form, &[("client_id", &client.id), ("client_secret", "x")]);
    is_refused(&token(&gateway, &secret), 401, "invalid_client");
    let foreign = with(&form, &[("client_id", &other.id)]);
    is_refused(&send(&foreign, &of(json!({}))), 400, "invalid_request");

    let good = of(json!({}));
    let tokens = Tokens::of(&send(&form, &good));
    let refresh = without(client.refresh(tokens.refresh.as_deref().unwrap()), &["client_id"]);
    is_refused(&send(&refresh, &good), 401, "invalid_client");
    gateway.rewrite(&format!("listen: {}\n{}", gateway.agent, in_front_of("http://127.0.0.1:9/mcp", RULES)));
    let gateway = gateway.crash_and_restart();
    let replayed =
        token(&gateway, &with(&refresh, &[("client_assertion_type", ASSERTION_TYPE), ("client_assertion", &good)]));
    is_refused(&replayed, 401, "invalid_client");
    assert!(replayed.text().contains("used before"), "{}", replayed.text());
}

/// B13.
#[test]
fn b13_a_client_goes_on_after_a_restart_and_one_that_was_forgotten_is_told_so() {
    let yaml = in_front_of("http://127.0.0.1:9/mcp", RULES);
    let gateway = Gateway::start(&yaml);
    let address = gateway.agent;
    let client = register(&gateway, "none", &json!({}));
    let tokens = client.log_in(&gateway, "alice", "up");

    gateway.rewrite(&format!("listen: {address}\n{yaml}"));
    let gateway = gateway.crash_and_restart();
    assert_eq!(gateway.agent, address);
    let known = Request::get(&client.ask(&gateway, "up").url()).send(gateway.agent);
    assert_eq!(known.status, 200, "{}", known.text());
    let refreshed = Tokens::of(&token(&gateway, &client.refresh(tokens.refresh.as_deref().unwrap())));
    assert_eq!(status_with(&gateway, &refreshed.access), 200);

    let file = gateway.password_file("alice");
    let remove = ["clients", "remove", &client.id, "--as", "alice", "--password-file", file.to_str().unwrap()];
    let said = gateway.cli(&remove).success().stderr;
    assert!(said.contains("1 grant revoked"), "{said}");
    assert!(gateway.audit_text().contains("client.removed"));
    gateway.cli(&["audit", "verify"]).success();
    is_refused(&token(&gateway, &client.refresh(refreshed.refresh.as_deref().unwrap())), 401, "invalid_client");
    wait_for("the end of its access token", || status_with(&gateway, &refreshed.access) == 401);
    let page = Request::get(&client.ask(&gateway, "up").url()).send(gateway.agent);
    assert_eq!((page.status, page.header("location")), (400, None));
    assert!(page.text().contains("Unknown app") && page.text().contains(&client.id), "{}", page.text());
    // And it can begin anew at once.
    register(&gateway, "none", &json!({})).log_in(&gateway, "alice", "up");
}
