//! What is secret in a login reaches no log, record, store or answer, at the finest level, whether the login succeeds or not.

use super::desk::Desk;
use crate::support::browser::{Browser, encode_form, parameter};
use crate::support::canary::Canary;
use crate::support::http::{Connection, Request, Response};
use serde_json::{Value, json};

/// The `S256` challenge of RFC 7636 appendix B, and its verifier.
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CALLBACK: &str = "http://127.0.0.1:3999/callback";

/// A registered client with a secret, at the desk.
struct Client<'a> {
    desk: &'a Desk,
    about: Value,
}

impl Client<'_> {
    fn register(desk: &Desk) -> Client<'_> {
        let about = json!({ "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "client_secret_post" });
        let registered =
            send(desk, &Request::post("/register").header("Content-Type", "application/json").body(about.to_string()));
        assert_eq!(registered.status, 201, "{}", registered.text());
        Client { desk, about: registered.json() }
    }

    fn id(&self) -> &str {
        self.about["client_id"].as_str().expect("it is registered")
    }

    fn authorize(&self) -> String {
        let query = encode_form(&[
            ("response_type", "code"),
            ("client_id", self.id()),
            ("redirect_uri", CALLBACK),
            ("code_challenge", CHALLENGE),
            ("code_challenge_method", "S256"),
            ("resource", &self.desk.url()),
            ("state", "CANARY-state-is-no-secret"),
        ]);
        format!("/authorize?{query}")
    }

    /// A form to an endpoint, as this client.
    fn post(&self, path: &str, fields: &[(&str, &str)]) -> Response {
        let secret = self.about["client_secret"].as_str().expect("it has a secret");
        let shown = [("client_id", self.id()), ("client_secret", secret)];
        form(self.desk, path, &[&shown, fields].concat())
    }

    fn redeem(&self, code: &str, verifier: &str) -> Response {
        let resource = self.desk.url();
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", CALLBACK),
            ("code_verifier", verifier),
            ("resource", &resource),
        ];
        self.post("/token", &fields)
    }

    fn refresh(&self, token: &str) -> Response {
        self.post("/token", &[("grant_type", "refresh_token"), ("refresh_token", token)])
    }
}

fn send(desk: &Desk, request: &Request) -> Response {
    request.send(desk.tap.address())
}

fn form(desk: &Desk, path: &str, fields: &[(&str, &str)]) -> Response {
    let request = Request::post(path).header("Content-Type", "application/x-www-form-urlencoded");
    send(desk, &request.body(encode_form(fields)))
}

/// The person's browser, logged in after mistakes: a wrong password, and the password where the name belongs.
fn log_in_clumsily(client: &Client<'_>) -> (Browser, String) {
    let address = client.desk.tap.address();
    let mut browser = Browser::at(&client.desk.tap.origin(), move || Connection::open(address));
    let page = browser.get(&client.authorize());
    for (name, password) in
        [("alice", "CANARY-wrong-password"), ("CANARY-password-as-name", "CANARY-any"), ("alice", "")]
    {
        let again = browser.submit(&page, &[("username", name), ("password", password)]);
        assert!(again.has_field("password"), "{}", again.text());
    }
    let back = browser.authorize(&client.authorize(), "alice", "alice opens the gate", "allow");
    let code = parameter(&back, "code").expect("a code");
    (browser, code)
}

/// Everything that goes wrong at the endpoints, with secrets that are nobody's and with those that were somebody's.
fn fail_everywhere(client: &Client<'_>, code: &str, tokens: &Value) {
    let desk = client.desk;
    let of = |name: &str| tokens[name].as_str().expect("it is there").to_owned();
    let (access, refresh) = (of("access_token"), of("refresh_token"));
    let wrong = |response: &Response| assert!(response.status >= 400, "{} {}", response.status, response.text());
    wrong(&client.redeem("CANARY-code", VERIFIER));
    wrong(&client.redeem(code, "CANARY-verifier-CANARY-verifier-CANARY-verifier"));
    wrong(&client.refresh("CANARY-refresh"));
    wrong(
        &client.post(
            "/token",
            &[("grant_type", "password"), ("username", "alice"), ("password", "CANARY-grant-password")],
        ),
    );
    wrong(&form(
        desk,
        "/token",
        &[
            ("client_id", client.id()),
            ("client_secret", "CANARY-secret"),
            ("grant_type", "refresh_token"),
            ("refresh_token", &refresh),
        ],
    ));
    wrong(&form(
        desk,
        "/token",
        &[("client_assertion", "CANARY-assertion"), ("grant_type", "authorization_code"), ("code", code)],
    ));
    wrong(&form(desk, "/introspect", &[("token", &access), ("token", "CANARY-second-token")]));
    let basic = Request::post("/token").header("Authorization", "Basic YzpDQU5BUlktYmFzaWM=");
    wrong(&send(
        desk,
        &basic.header("Content-Type", "application/x-www-form-urlencoded").body("grant_type=refresh_token"),
    ));
    let bearer = Request::mcp("/mcp/up?access_token=CANARY-query-token", "{}").bearer("CANARY-bearer");
    wrong(&send(desk, &bearer));
    // What this one is answered is another test's; here it must not be kept.
    let strange = format!("{}&access_token=CANARY-query-token&code=CANARY-code", client.authorize());
    send(desk, &Request::get(&strange));
    let register = Request::post("/register").header("Content-Type", "application/json").bearer("CANARY-initial-token");
    wrong(&send(
        desk,
        &register.body(r#"{"redirect_uris":["javascript:CANARY-code"],"client_secret":"CANARY-secret"}"#),
    ));
    // Not refused, since who asks must not learn whether it was one.
    assert_eq!(client.post("/revoke", &[("token", "CANARY-token")]).status, 200);
    // Used up: whoever shows these has stolen them.
    wrong(&client.redeem(code, VERIFIER));
    wrong(&client.refresh(&refresh));
}

#[test]
fn no_secret_of_a_login_is_written_or_said_whether_it_succeeds_or_not() {
    let desk = Desk::open();
    let client = Client::register(&desk);

    let (_browser, code) = log_in_clumsily(&client);
    let tokens = client.redeem(&code, VERIFIER);
    assert_eq!(tokens.status, 200, "{}", tokens.text());
    fail_everywhere(&client, &code, &tokens.json());

    assert!(desk.gateway.log().contains("DEBUG portcullis::"), "the finest level is on:\n{}", desk.gateway.log());
    assert!(desk.tap.secrets().len() > 20, "{:#?}", desk.tap.secrets());
    desk.assert_no_secret_is_written();
    for value in ["password-as-name", "basic", "bearer", "query-token", "second-token", "initial-token"] {
        for (place, text) in &desk.kept() {
            Canary::new(value, format!("CANARY-{value}")).assert_absent(place, text);
        }
    }
}
