//! A client introduces itself (RFC 7591).

use crate::support::gateway::{Gateway, in_front_of};
use crate::support::http::{Request, Response};
use crate::support::issuer::SigningKey;
use serde_json::{Value, json};

const RULES: &str = "- { name: any, tools: [\"up/*\"], allow: {} }";

fn yaml(more: &str) -> String {
    format!("{more}{}", in_front_of("http://127.0.0.1:9/mcp", RULES))
}

#[track_caller]
fn register(gateway: &Gateway, metadata: &Value) -> Response {
    register_raw(gateway, &metadata.to_string())
}

#[track_caller]
fn register_raw(gateway: &Gateway, body: &str) -> Response {
    Request::post("/register").header("Content-Type", "application/json").body(body).send(gateway.agent)
}

/// The clients there are, by the command that lists them.
#[track_caller]
fn clients(gateway: &Gateway) -> Vec<String> {
    gateway.cli(&["clients", "list"]).success().stdout.lines().map(str::to_owned).collect()
}

fn sorted(value: &Value) -> Vec<&str> {
    let mut list: Vec<&str> = value.as_array().expect("a list").iter().map(|it| it.as_str().expect("a text")).collect();
    list.sort_unstable();
    list
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.iter().any(has_null),
        Value::Object(members) => members.values().any(has_null),
        _ => false,
    }
}

/// B12.
#[test]
fn an_answer_has_every_default_filled_in_and_nothing_that_is_null() {
    let gateway = Gateway::start(&yaml(""));
    let key = SigningKey::new("k1");
    for (method, more, has_secret) in [
        (None, json!({}), true),
        (Some("none"), json!({}), false),
        (Some("client_secret_basic"), json!({}), true),
        (Some("client_secret_post"), json!({}), true),
        (Some("private_key_jwt"), json!({ "jwks": { "keys": [key.jwk()] } }), false),
        (Some("none"), json!({ "something_else": { "a": [1, null] }, "client_uri": null, "logo_uri": "" }), false),
    ] {
        let mut metadata = json!({ "client_name": "qa", "redirect_uris": ["http://127.0.0.1:40100/cb"] });
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        if let Some(method) = method {
            metadata["token_endpoint_auth_method"] = json!(method);
        }

        let response = register(&gateway, &metadata);

        assert_eq!(response.status, 201, "{}", response.text());
        assert_eq!(response.header("cache-control"), Some("no-store"));
        assert_eq!(response.header("content-type"), Some("application/json"));
        let answer = response.json();
        assert!(!has_null(&answer), "{answer}");
        assert_eq!(answer["redirect_uris"], metadata["redirect_uris"]);
        assert_eq!(answer["client_name"], "qa");
        assert_eq!(sorted(&answer["grant_types"]), ["authorization_code", "refresh_token"]);
        assert_eq!(sorted(&answer["response_types"]), ["code"]);
        assert_eq!(answer["token_endpoint_auth_method"], method.unwrap_or("client_secret_basic"));
        assert!(answer["client_id"].as_str().unwrap().starts_with("c_"), "{answer}");
        assert!(answer["client_id_issued_at"].as_i64().unwrap() > 1_700_000_000);
        assert_eq!(answer.get("client_secret").is_some(), has_secret, "{answer}");
        assert_eq!(answer.get("client_secret_expires_at"), has_secret.then_some(&json!(0)));
        assert_eq!(answer.get("jwks"), more.get("jwks"));
        assert_eq!(answer.get("something_else"), None);
    }
    assert_eq!(clients(&gateway).len(), 6);
}

/// AS-70: what a client asks for and may not have is left out, and the answer says so.
#[test]
fn a_client_gets_no_more_than_codes_and_refresh_tokens_and_is_told_so() {
    let gateway = Gateway::start(&yaml(""));
    let asked = |grants: Value, responses: Value| {
        let uris = ["https://app.example/cb"];
        register(
            &gateway,
            &json!({ "redirect_uris": uris, "grant_types": grants, "response_types": responses,
                     "token_endpoint_auth_method": "none" }),
        )
    };
    let device = "urn:ietf:params:oauth:grant-type:device_code";
    for (grants, responses, expected) in [
        (json!(["authorization_code"]), json!(["code"]), &["authorization_code"][..]),
        (json!([device, "refresh_token", "authorization_code"]), json!([]), &["authorization_code", "refresh_token"]),
        (json!(["client_credentials", "authorization_code"]), json!(["token", "code"]), &["authorization_code"]),
        (json!([]), json!(null), &["authorization_code", "refresh_token"]),
    ] {
        let answer = asked(grants, responses).json();
        assert_eq!(sorted(&answer["grant_types"]), expected, "{answer}");
        assert_eq!(answer["response_types"], json!(["code"]));
    }
    for (grants, responses) in [
        (json!(["client_credentials"]), json!(["code"])),
        (json!(["password", "implicit", "refresh_token"]), json!(["code"])),
        (json!(["authorization_code"]), json!(["token"])),
        (json!(["authorization_code"]), json!(["code id_token"])),
        (json!("authorization_code"), json!(["code"])),
        (json!([1]), json!(["code"])),
    ] {
        refused(&asked(grants, responses), "invalid_client_metadata");
    }
}

#[track_caller]
fn refused(response: &Response, code: &str) {
    assert_eq!((response.status, &response.json()["error"]), (400, &json!(code)), "{}", response.text());
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert!(response.json()["error_description"].as_str().is_some_and(|text| text.is_ascii() && !text.is_empty()));
}

/// O-10, AS-69.
#[test]
fn a_redirect_uri_that_could_lead_elsewhere_is_refused_and_nothing_is_stored() {
    let gateway = Gateway::start(&yaml(""));
    let with = |uris: &Value| register(&gateway, &json!({ "redirect_uris": uris, "client_name": "evil" }));
    for uri in [
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "http://evil.example/",
        "https://app.example/#frag",
        "https://u:p@app.example/",
        "https://*.example/cb",
        "myapp:/cb",
        "/cb",
        "",
        "http://localhost.evil.example/",
        "http://127.0.0.1@evil.example/",
        "https://evil\\@good.example/",
    ] {
        refused(&with(&json!([uri])), "invalid_redirect_uri");
        refused(&with(&json!(["https://app.example/cb", uri])), "invalid_redirect_uri");
    }
    for uris in [json!([]), json!(null), json!("https://app.example/cb"), json!([1]), json!([null]), json!({})] {
        refused(&with(&uris), "invalid_redirect_uri");
    }
    let many = |n: usize| Value::from((0..n).map(|n| format!("https://app.example/{n}")).collect::<Vec<_>>());
    refused(&with(&many(21)), "invalid_redirect_uri");
    refused(&with(&many(990)), "invalid_redirect_uri");
    assert_eq!(with(&many(10_000)).status, 413);
    assert_eq!(clients(&gateway), [""; 0]);
    assert!(!gateway.audit_text().contains("client.registered"));

    assert_eq!(with(&many(20)).status, 201);
    assert_eq!(clients(&gateway).len(), 1);
    assert!(gateway.audit_text().contains("client.registered"));
}

/// The redirect URIs that clients in use register, each as it does. B11 for VS Code.
#[test]
fn the_clients_people_use_can_register() {
    let gateway = Gateway::start(&yaml(""));
    for (name, uris) in [
        ("VS Code", json!(["http://127.0.0.1/", "http://127.0.0.1:33418/", "https://vscode.dev/redirect"])),
        ("t", json!(["http://127.0.0.1/", "http://127.0.0.1:33418/", "https://app.example/cb"])),
        ("Cursor", json!(["cursor://anysphere.cursor-mcp/oauth/callback"])),
        ("Claude", json!(["https://claude.ai/api/mcp/auth_callback"])),
        ("Claude Code", json!(["http://localhost:57382/callback"])),
        ("ChatGPT", json!(["https://chatgpt.com/connector_platform_oauth_redirect"])),
        ("Codex", json!(["http://127.0.0.1:41234/callback/abc"])),
        ("a phone", json!(["com.example.app:/cb"])),
    ] {
        let response = register(
            &gateway,
            &json!({ "client_name": name, "redirect_uris": uris, "token_endpoint_auth_method": "none",
                     "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
                     "application_type": "native", "scope": "mcp" }),
        );
        assert_eq!(response.status, 201, "{name}: {}", response.text());
        assert_eq!(response.json()["redirect_uris"], uris);
    }
}

/// AS-70, AS-71.
#[test]
fn what_a_client_says_of_itself_is_short_and_plain() {
    let gateway = Gateway::start(&yaml(""));
    let key = SigningKey::new("k1").jwk();
    let mut private = key.clone();
    private["d"] = json!("c2VjcmV0");
    let with = |more: Value| {
        let mut metadata = json!({ "redirect_uris": ["https://app.example/cb"], "token_endpoint_auth_method": "none" });
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        register(&gateway, &metadata)
    };
    for good in [
        json!({ "client_name": "n".repeat(120) }),
        json!({ "client_name": "<b>Клиент</b> \u{1f680} & co." }),
        json!({ "client_uri": "https://app.example/", "logo_uri": "https://app.example/logo.png" }),
        json!({ "software_id": "4NRB1-0XZABZI9E6-5SM3R", "software_version": "1.0" }),
        json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks": { "keys": [key] } }),
        json!({ "token_endpoint_auth_method": "none", "jwks_uri": "https://app.example/keys" }),
        json!({ "software_statement": "eyJhbGciOiJub25lIn0.e30.", "contacts": ["a@b"] }),
    ] {
        assert_eq!(with(good.clone()).status, 201, "{good}");
    }
    let stored = clients(&gateway).len();
    for bad in [
        json!({ "client_name": "n".repeat(121) }),
        json!({ "client_name": "n".repeat(10 * 1024) }),
        json!({ "client_name": 7 }),
        json!({ "client_name": ["Claude"] }),
        json!({ "client_name": "Claude\u{202e}edoC" }),
        json!({ "client_name": "Cla\u{200b}ude" }),
        json!({ "client_name": "Claude\nverified" }),
        json!({ "client_name": "Claude\u{0}" }),
        json!({ "client_uri": "http://app.example/" }),
        json!({ "client_uri": "javascript:alert(1)" }),
        json!({ "logo_uri": "data:image/png;base64,AAAA" }),
        json!({ "tos_uri": "https://u:p@app.example/" }),
        json!({ "policy_uri": "https://app.example/\"onload=x" }),
        json!({ "scope": "a  b" }),
        json!({ "scope": "a\"b" }),
        json!({ "software_version": "v".repeat(121) }),
        json!({ "token_endpoint_auth_method": "tls_client_auth" }),
        json!({ "token_endpoint_auth_method": "client_secret_jwt" }),
        json!({ "token_endpoint_auth_method": "NONE" }),
        json!({ "token_endpoint_auth_method": "private_key_jwt" }),
        json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks": { "keys": [] } }),
        json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks": { "keys": [private] } }),
        json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks": "https://app.example/keys" }),
        json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "https://app.example/keys" }),
        json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "https://app.example/keys",
                "jwks": { "keys": [key] } }),
    ] {
        refused(&with(bad), "invalid_client_metadata");
    }
    assert_eq!(clients(&gateway).len(), stored);
}

#[test]
fn a_body_that_two_readers_could_read_differently_is_refused() {
    let gateway = Gateway::start(&yaml(""));
    let good = r#"{"redirect_uris":["https://app.example/cb"],"x":1}"#;
    for body in [
        "",
        "[]",
        "null",
        "{",
        "redirect_uris=https://app.example/cb",
        r#"{"redirect_uris":["https://app.example/cb"],"redirect_uris":["https://evil.example/cb"]}"#,
        r#"{"redirect_uris":["https://app.example/cb"],"redirect_\u0075ris":["https://evil.example/cb"]}"#,
        r#"{"redirect_uris":["https://app.example/cb"],"x":{"y":1,"y":2}}"#,
        r#"{"redirect_uris":["https://app.example/cb"]} {}"#,
    ] {
        refused(&register_raw(&gateway, body), "invalid_client_metadata");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
        let request = Request::post("/register").header("Content-Type", kind).body(good);
        refused(&request.send(gateway.agent), "invalid_client_metadata");
    }
    refused(&Request::post("/register").body(good).send(gateway.agent), "invalid_client_metadata");
    assert_eq!(clients(&gateway), [""; 0]);

    let request = Request::post("/register").header("Content-Type", "Application/JSON; charset=utf-8").body(good);
    assert_eq!(request.send(gateway.agent).status, 201);
    let method = Request::get("/register").send(gateway.agent).status;
    assert_eq!(method, 405);
}

/// AS-73, B13.
#[test]
fn a_client_is_known_after_a_crash_and_its_secret_is_nowhere_in_plain() {
    let gateway = Gateway::start(&yaml("listen: 127.0.0.1:0\n"));
    let answer = register(&gateway, &json!({ "redirect_uris": ["https://app.example/cb"] })).json();
    let (id, secret) = (answer["client_id"].as_str().unwrap(), answer["client_secret"].as_str().unwrap());
    assert!(secret.len() >= 43, "256 bits");

    let gateway = gateway.crash_and_restart();

    let listed = clients(&gateway);
    assert!(listed.len() == 1 && listed[0].starts_with(id), "{listed:?}");
    let shown = gateway.cli(&["clients", "show", id]).success().stdout;
    assert!(shown.contains("https://app.example/cb") && !shown.contains(secret), "{shown}");
    assert!(!gateway.log().contains(secret));
    for file in std::fs::read_dir(gateway.path("data")).unwrap().flatten() {
        let bytes = std::fs::read(file.path()).unwrap_or_default();
        let is_in = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!is_in, "{}", file.path().display());
    }
    assert!(!gateway.audit_text().contains(secret));
    // Each registration is another client, whatever it says of itself.
    let again = register(&gateway, &json!({ "redirect_uris": ["https://app.example/cb"] })).json();
    assert!(again["client_id"] != answer["client_id"] && again["client_secret"] != answer["client_secret"]);
}

/// AS-72.
#[test]
fn an_address_that_registers_without_end_has_to_wait_and_is_told_how_long() {
    let gateway = Gateway::start(&yaml(""));
    let metadata = json!({ "redirect_uris": ["https://app.example/cb"], "token_endpoint_auth_method": "none" });
    let statuses: Vec<Response> = (0..40).map(|_| register(&gateway, &metadata)).collect();

    let (good, slowed): (Vec<_>, Vec<_>) = statuses.iter().partition(|response| response.status == 201);
    assert!((30..40).contains(&good.len()), "{}", good.len());
    for response in slowed {
        assert_eq!((response.status, &response.json()["error"]), (429, &json!("slow_down")));
        let wait: u64 = response.header("retry-after").expect("how long").parse().unwrap();
        assert!((1..=11).contains(&wait), "{wait}");
    }
    assert_eq!(clients(&gateway).len(), good.len());
    // What is malformed is told so, and costs nothing.
    refused(&register_raw(&gateway, "{}"), "invalid_redirect_uri");
}

#[test]
fn registration_that_is_closed_is_not_there() {
    let gateway = Gateway::start(&yaml("oauth: { registration: closed }\n"));
    let metadata = json!({ "redirect_uris": ["https://app.example/cb"] });
    assert_eq!(register(&gateway, &metadata).status, 404);
    assert_eq!(clients(&gateway), [""; 0]);

    gateway.rewrite(&yaml("oauth: { registration: open }\n"));
    gateway.reload().success();
    assert_eq!(register(&gateway, &metadata).status, 201);
}
