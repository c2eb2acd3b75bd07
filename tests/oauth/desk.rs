//! What every client here meets: a person with a browser, a gateway whose tokens live for seconds, and a server behind it.

use crate::support::browser;
use crate::support::canary::{Canary, texts};
use crate::support::gateway::{Gateway, IDENTITY, Launch, in_front_of, password};
use crate::support::http::Request;
use crate::support::person::Person;
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use crate::support::sdk::Peer;
use crate::support::tap::Tap;
use crate::support::tls::Identity;
use crate::support::wait_for;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis::clock::Clock;
use serde_json::{Value, json};

/// A gateway with a login, everything around it, and what was said.
pub(crate) struct Desk {
    pub(crate) server: Peer,
    pub(crate) tap: Tap,
    pub(crate) person: Person,
    pub(crate) gateway: Gateway,
    /// Where the client is described, if that is how it makes itself known.
    pub(crate) document: Option<Document>,
}

/// Long enough for a call right after the login, short enough to wait for its end.
const TOKENS_LIVE: &str = "4s";

const RULES: &str = r#"
- { name: everything, tools: ["up/*"], allow: {} }
- { name: not that one, tools: ["up/danger"], deny: {} }
"#;

/// A client-id metadata document on an HTTPS server of its own.
pub(crate) struct Document {
    server: Recorder,
    authority: Identity,
}

impl Document {
    /// Of a public client that wants its people back here.
    pub(crate) fn publish(redirect_uris: &[&str]) -> Document {
        let authority = Identity::authority("documents");
        let server = Recorder::start_tls(&authority.sign(&["localhost"]), None);
        let url = format!("https://localhost:{}{PATH}", server.address().port());
        let document = json!({
            "client_id": url,
            "client_name": "A client with a document",
            "redirect_uris": redirect_uris,
            "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
        });
        server.answer_with(move |request| match request.target.as_str() {
            PATH => Reply::json(document.to_string()),
            _ => Reply::new(404, ""),
        });
        Document { server, authority }
    }

    /// The client's id.
    pub(crate) fn url(&self) -> String {
        format!("https://{}{PATH}", self.host())
    }

    /// How often it was fetched.
    pub(crate) fn n_fetches(&self) -> usize {
        self.server.requests().len()
    }

    fn host(&self) -> String {
        format!("localhost:{}", self.server.address().port())
    }
}

/// Where the document stands on its server.
const PATH: &str = "/oauth/client.json";

impl Desk {
    /// With the gateway's own defaults, but for how long a token lives.
    #[track_caller]
    pub(crate) fn open() -> Desk {
        Desk::new("", "", &[], None)
    }

    /// With these clients in the configuration (the list under `identity.clients`), and files that they name.
    #[track_caller]
    pub(crate) fn open_with_clients(clients: &str, files: &[(&str, &str)]) -> Desk {
        Desk::new("", &format!("{IDENTITY}  clients:\n{clients}"), files, None)
    }

    /// For a client that is known by its document.
    #[track_caller]
    pub(crate) fn open_for(document: Document) -> Desk {
        let documents = format!("  metadata_documents: {{ private: [\"{}\"], ca: ca.pem }}\n", document.host());
        let ca = document.authority.cert.clone();
        Desk::new(&documents, "", &[("ca.pem", &ca)], Some(document))
    }

    #[track_caller]
    fn new(oauth: &str, identity: &str, files: &[(&str, &str)], document: Option<Document>) -> Desk {
        let (server, tap) = (Peer::typescript_with_sessions(), Tap::start());
        let base = in_front_of(&server.url, RULES);
        let top = format!("public_url: {}\noauth:\n  access_token: {TOKENS_LIVE}\n", tap.origin());
        let mut launch = Launch::new(&format!("{top}{oauth}{base}{identity}")).env("RUST_LOG", "trace");
        for (name, contents) in files {
            launch = launch.file(name, contents);
        }
        let gateway = launch.start();
        tap.lead_to(gateway.agent);
        Desk { server, tap, person: Person::new("alice"), gateway, document }
    }

    /// What people paste into their client.
    pub(crate) fn url(&self) -> String {
        format!("{}/mcp/up", self.tap.origin())
    }

    /// Kills the gateway and starts it again.
    #[track_caller]
    pub(crate) fn crash_and_restart(self) -> Desk {
        let gateway = self.gateway.crash_and_restart();
        self.tap.lead_to(gateway.agent);
        Desk { gateway, ..self }
    }

    /// The access token that was given last.
    #[track_caller]
    pub(crate) fn latest_token(&self) -> String {
        let granted = self.tap.asked("POST", "/token").into_iter().rev();
        let granted =
            granted.filter(|exchange| exchange.response.as_ref().is_some_and(|response| response.status == 200));
        granted.map(|exchange| exchange.answered("access_token")).next().expect("a token was given")
    }

    /// Waits until the latest access token is over, for the gateway and for the client, and sees that the gateway knows.
    #[track_caller]
    pub(crate) fn wait_until_expired(&self) {
        let token = self.latest_token();
        let end = claims(&token)["exp"].as_i64().expect("a token has an end");
        // A client counts from when it got the token, and the gateway in whole seconds.
        wait_for("the end of the access token", || Clock::System.unix_seconds() > end + 1);
        assert_eq!(self.status_with(&token), 401, "the token is over");
    }

    /// Records of the audit log of this kind.
    #[track_caller]
    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        self.gateway.audit().into_iter().filter(|record| record["event"] == kind).collect()
    }

    /// The client came as far as so many logins: it found its way by itself, registered or was known, sent the person to the
    /// login and to the consent, and got its token for the code, and for nothing else.
    #[track_caller]
    pub(crate) fn assert_logged_in(&self, times: usize) {
        let n = |method: &str, path: &str| self.tap.asked(method, path).len();
        let wire = self.tap.exchanges();
        assert!(n("GET", "/.well-known/oauth-protected-resource/mcp/up") >= 1, "no discovery: {wire:#?}");
        assert_eq!((n("POST", "/login"), n("POST", "/consent") >= 1), (times, true), "{wire:#?}");
        assert_eq!(self.tap.granted("authorization_code").len(), times, "{wire:#?}");
        for authorize in self.tap.asked("GET", "/authorize") {
            let parameter = |name: &str| browser::parameter(&authorize.target, name).unwrap_or_default();
            assert_eq!(parameter("code_challenge_method"), "S256", "{}", authorize.target);
            assert_eq!(parameter("resource"), self.url(), "{}", authorize.target);
        }
        wait_for("the records of the tokens", || self.events("token.issued").len() >= times);
        assert_eq!(self.events("token.issued").len(), times);
        let token = claims(&self.latest_token());
        assert_eq!((&token["aud"], &token["sub"]), (&Value::from(self.url()), &Value::from("user:alice")), "{token}");
    }

    /// The client has renewed its token by itself, without its person.
    #[track_caller]
    pub(crate) fn assert_refreshed(&self) {
        let refreshed = self.tap.granted("refresh_token");
        assert!(!refreshed.is_empty(), "no refresh: {:#?}", self.tap.exchanges());
        wait_for("the records of refreshed tokens", || self.events("token.refreshed").len() >= refreshed.len());
        for exchange in refreshed {
            let old = exchange.form("refresh_token").expect("it is a refresh");
            assert_ne!(exchange.answered("refresh_token"), old, "a public client's refresh token is rotated");
        }
    }

    /// Ends the client's grant from outside, as its person can: none of the clients here does so by itself. Its token, which
    /// would live on for a while, opens nothing any more.
    #[track_caller]
    pub(crate) fn revoke(&self) {
        let issued = self.events("token.issued");
        let grant = issued.last().and_then(|record| record["principal"]["grant"].as_str()).expect("a token was issued");
        let file = self.gateway.password_file("alice");
        let file = file.to_str().expect("temporary paths are UTF-8");
        self.gateway.cli(&["token", "revoke", grant, "--as", "alice", "--password-file", file]).success();
        let token = self.latest_token();
        // Another process has told the store; the gateway looks there several times a second.
        wait_for("the revocation", || self.status_with(&token) == 401);
        let listed = self.gateway.cli(&["token", "list", "--user", "alice"]).success().stdout;
        let line =
            listed.lines().find(|line| line.contains(grant)).unwrap_or_else(|| panic!("{grant} is not in {listed}"));
        assert!(line.contains("revoked"), "{line}");
    }

    /// How the gateway answers who has this token.
    #[track_caller]
    fn status_with(&self, token: &str) -> u16 {
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let host = self.tap.address().to_string();
        Request::mcp("/mcp/up", list).header("Host", &host).bearer(token).send(self.gateway.agent).status
    }

    /// Of all that went over the wire and is secret, nothing stands in what the gateway keeps or answers in vain.
    #[track_caller]
    pub(crate) fn assert_no_secret_is_written(&self) {
        let password = Canary::new("the person's password", password("alice"));
        let mut places = self.kept();
        for exchange in self.tap.exchanges() {
            let place = format!("the answer to {} {}", exchange.method, exchange.path());
            let failed = exchange.response.filter(|response| response.status >= 400);
            places.extend(failed.map(|response| (place, format!("{:?} {}", response.headers, response.text()))));
        }
        for secret in self.tap.secrets().iter().chain([&password]) {
            for (place, text) in &places {
                secret.assert_absent(place, text);
            }
        }
    }

    /// What the gateway keeps: its log, its store, the audit log.
    #[track_caller]
    pub(crate) fn kept(&self) -> Vec<(String, String)> {
        let mut places = vec![("the log".to_owned(), self.gateway.log())];
        texts(&self.gateway.path("data"), &mut places);
        assert!(places.iter().any(|(place, _)| place.ends_with("portcullis.db")), "the store is looked at");
        assert!(places.iter().any(|(place, _)| place.ends_with(".jsonl")), "the audit log is looked at");
        places
    }
}

/// What a token of ours says.
#[track_caller]
fn claims(token: &str) -> Value {
    let claims = token.split('.').nth(1).and_then(|claims| URL_SAFE_NO_PAD.decode(claims).ok());
    serde_json::from_slice(&claims.expect("it is a JWT")).expect("claims are JSON")
}
