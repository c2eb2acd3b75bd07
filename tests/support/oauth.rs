//! An OAuth client of a test: registers, sends its person to `/authorize`, fetches tokens. Every step can be sent bent.

use super::browser::{Browser, encode_form, parameter};
use super::gateway::{Gateway, password};
use super::http::{Request, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// Where a client of a test wants its people back; nothing listens there.
pub(crate) const CALLBACK: &str = "http://127.0.0.1:3999/callback";

/// A registered client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Its `client_id`.
    pub(crate) id: String,
    /// Its `client_secret`, where it has one.
    pub(crate) secret: Option<String>,
    /// Where it wants its people back.
    pub(crate) redirect_uri: String,
}

/// One authorization request of a client, with what only the client knows of it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The query's parameters, in their order; a test may change them.
    pub(crate) parameters: Vec<(String, String)>,
    /// What the challenge is made of.
    pub(crate) verifier: String,
}

/// What a token endpoint gave.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    /// The access token.
    pub(crate) access: String,
    /// The refresh token, where there is one.
    pub(crate) refresh: Option<String>,
    /// The whole answer.
    pub(crate) answer: Value,
}

// === impl Client ===

impl Client {
    /// Registers a public client with [`CALLBACK`].
    #[track_caller]
    pub(crate) fn register(gateway: &Gateway) -> Client {
        let about =
            json!({ "client_name": "Test Client", "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none" });
        Client::register_as(gateway, &about)
    }

    /// Registers a client that says this of itself.
    #[track_caller]
    pub(crate) fn register_as(gateway: &Gateway, about: &Value) -> Client {
        let response = register(gateway, about);
        assert_eq!(response.status, 201, "{}", response.text());
        let registered = response.json();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Client {
            id: text(&registered["client_id"]).expect("an id"),
            secret: text(&registered["client_secret"]),
            redirect_uri: text(&about["redirect_uris"][0]).expect("a redirect URI"),
        }
    }

    /// An authorization request for a route, as MCP clients send it. Each has a verifier of its own.
    pub(crate) fn ask(&self, gateway: &Gateway, route: &str) -> Asked {
        let random: [u8; 32] = ring::rand::generate(&ring::rand::SystemRandom::new()).expect("randomness").expose();
        let verifier = URL_SAFE_NO_PAD.encode(random);
        let resource = gateway.url(route);
        let parameters = [
            ("response_type", "code"),
            ("client_id", &self.id),
            ("redirect_uri", &self.redirect_uri),
            ("state", "st/at e+1"),
            ("scope", "mcp"),
            ("resource", &resource),
            ("code_challenge", &challenge(&verifier)),
            ("code_challenge_method", "S256"),
        ];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Asked { parameters, verifier }
    }

    /// Logs `user` in, who says yes, and gives the code.
    #[track_caller]
    pub(crate) fn code(&self, gateway: &Gateway, user: &str, asked: &Asked) -> String {
        let back = Browser::new(gateway.agent).authorize(&asked.url(), user, &password(user), "allow");
        parameter(&back, "code").unwrap_or_else(|| panic!("no code in {back}"))
    }

    /// The whole way: `user` logs in and says yes, and the client fetches its tokens.
    #[track_caller]
    pub(crate) fn log_in(&self, gateway: &Gateway, user: &str, route: &str) -> Tokens {
        let asked = self.ask(gateway, route);
        let code = self.code(gateway, user, &asked);
        Tokens::of(&token(gateway, &self.redeem(&code, &asked.verifier)))
    }

    /// The same in this browser, which stays logged in; for a request that a test may have changed.
    #[track_caller]
    pub(crate) fn let_in(&self, gateway: &Gateway, browser: &mut Browser, user: &str, asked: &Asked) -> Tokens {
        let back = browser.authorize(&asked.url(), user, &password(user), "allow");
        let code = parameter(&back, "code").unwrap_or_else(|| panic!("no code in {back}"));
        let sent_to = asked.parameters.iter().find(|(name, _)| name == "redirect_uri").map(|(_, uri)| uri.clone());
        let client = Client { redirect_uri: sent_to.unwrap_or_else(|| self.redirect_uri.clone()), ..self.clone() };
        Tokens::of(&token(gateway, &client.redeem(&code, &asked.verifier)))
    }

    /// The form that redeems a code.
    pub(crate) fn redeem(&self, code: &str, verifier: &str) -> Vec<(String, String)> {
        self.form(&[
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect_uri),
            ("code_verifier", verifier),
        ])
    }

    /// The form that refreshes.
    pub(crate) fn refresh(&self, refresh_token: &str) -> Vec<(String, String)> {
        self.form(&[("grant_type", "refresh_token"), ("refresh_token", refresh_token)])
    }

    /// A form with the client's id, and its secret where it has one (`client_secret_post`).
    pub(crate) fn form(&self, fields: &[(&str, &str)]) -> Vec<(String, String)> {
        let own = [("client_id", Some(&*self.id)), ("client_secret", self.secret.as_deref())];
        let own = own.into_iter().filter_map(|(name, value)| Some((name, value?)));
        fields.iter().copied().chain(own).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

// === impl Asked ===

impl Asked {
    /// The path and query of the request.
    pub(crate) fn url(&self) -> String {
        format!("/authorize?{}", encode_form(&self.parameters))
    }

    /// The same request with another value of a parameter.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Asked {
        self = self.without(name);
        self.parameters.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same request without a parameter.
    pub(crate) fn without(mut self, name: &str) -> Asked {
        self.parameters.retain(|(key, _)| key != name);
        self
    }
}

// === impl Tokens ===

impl Tokens {
    /// Those of an answer, which must be a success.
    #[track_caller]
    pub(crate) fn of(response: &Response) -> Tokens {
        assert_eq!(response.status, 200, "{}", response.text());
        let answer = response.json();
        let access = answer["access_token"].as_str().expect("an access token").to_owned();
        Tokens { access, refresh: answer["refresh_token"].as_str().map(str::to_owned), answer }
    }
}

// === endpoints ===

/// `POST /register`.
#[track_caller]
pub(crate) fn register(gateway: &Gateway, about: &Value) -> Response {
    Request::post("/register").header("Content-Type", "application/json").body(about.to_string()).send(gateway.agent)
}

/// `POST /token`.
#[track_caller]
pub(crate) fn token(gateway: &Gateway, form: &[(String, String)]) -> Response {
    post_form(gateway, "/token", form)
}

/// A form to any endpoint.
#[track_caller]
pub(crate) fn post_form(gateway: &Gateway, path: &str, form: &[(String, String)]) -> Response {
    form_request(path, form).send(gateway.agent)
}

/// The same, to be changed before it is sent.
pub(crate) fn form_request(path: &str, form: &[(String, String)]) -> Request {
    Request::post(path).header("Content-Type", "application/x-www-form-urlencoded").body(encode_form(form))
}

/// RFC 7636 §4.2.
pub(crate) fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, verifier.as_bytes()))
}

/// The status that a call of the route `up` gets with this token.
#[track_caller]
pub(crate) fn status_with(gateway: &Gateway, access_token: &str) -> u16 {
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    Request::mcp("/mcp/up", call).bearer(access_token).send(gateway.agent).status
}
