//! The endpoints for machines, as clients see them, with a clock that only the test moves.

mod code;
mod refresh;

use super::*;
use crate::audit::{Settings, sha256};
use crate::config;
use crate::identity::Verifier;
use crate::snapshot::Surroundings;
use crate::store::{Code, Grant, Subject};
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use pingora::connectors::http::Connector;
use std::net::SocketAddr;
use std::path::PathBuf;
use tempfile::TempDir;
use tower::ServiceExt as _;

const ORIGIN: &str = "https://gw.example.com";
const RESOURCE: &str = "https://gw.example.com/mcp/up";
const REDIRECT: &str = "http://127.0.0.1/callback";
/// RFC 7636, Appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
/// As [`VERIFIER`], but for one character.
const WRONG_VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXl";

const SECOND: i64 = 1_000;
const DAY: i64 = 24 * 60 * 60 * SECOND;

/// A gateway's endpoints with routes `up` and `two`, people `alice` and `bob`, and public clients `app` and `other`.
struct World {
    dir: TempDir,
    clock: Clock,
    shared: Shared,
    router: Router,
}

/// Where the audit log belongs, and where it is instead.
struct Outage {
    log: PathBuf,
    away: PathBuf,
}

/// What a client got.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Value,
}

fn yaml(people: &[(&str, &str)]) -> String {
    let people: String = people
        .iter()
        .map(|(name, hash)| format!("    - {{ name: {name}, groups: [admins], password_hash: \"{hash}\" }}\n"))
        .collect();
    format!(
        r#"
listen: 127.0.0.1:8080
public_url: {ORIGIN}
data_dir: data
audit: {{ sync: relaxed }}
upstreams:
  up: {{ http: {{ url: "http://127.0.0.1:1/mcp" }} }}
  two: {{ http: {{ url: "http://127.0.0.1:1/mcp" }} }}
policy:
  rules:
    - {{ name: all, tools: ["*/*"], allow: {{}} }}
    - {{ name: deploy, tools: ["up/deploy"], who: {{ scopes: [deploy] }}, allow: {{}} }}
identity:
  users:
{people}  clients:
    - {{ id: app, redirect_uris: ["{REDIRECT}"] }}
    - {{ id: other, redirect_uris: ["{REDIRECT}"] }}
"#
    )
}

/// A password hash that nobody knows the password of; `n` makes it another one.
fn hash(n: u8) -> String {
    let salt = base64::engine::general_purpose::STANDARD_NO_PAD.encode([n; 16]);
    format!("$argon2id$v=19$m=19456,t=2,p=1${salt}$MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI")
}

fn compile(dir: &TempDir, people: &[(&str, &str)]) -> Snapshot {
    compile_text(dir, &yaml(people))
}

fn compile_text(dir: &TempDir, yaml: &str) -> Snapshot {
    let file = dir.path().join("gateway.yaml");
    std::fs::write(&file, yaml).unwrap();
    let loaded = config::read(&file).unwrap_or_else(|problems| panic!("{problems}"));
    let listening = SocketAddr::from(([127, 0, 0, 1], 8080));
    let around = Surroundings { listening, admin: None, previous: None };
    Snapshot::compile(&loaded, &around).unwrap_or_else(|problems| panic!("{problems}"))
}

impl World {
    async fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = compile(&dir, &[("alice", &hash(1)), ("bob", &hash(2))]);
        let clock = Clock::manual(1_900_000_000_000);
        let data_dir = snapshot.data_dir.clone();
        let store = Store::open(&data_dir).await.unwrap();
        let settings = Settings::new(&data_dir, [7; 32], config::Sync::Relaxed, clock.clone());
        let audit = Audit::open(settings).unwrap();
        let approvals = Approvals::new(crate::approval::Given {
            store: store.clone(),
            key: &[7; 32],
            clock: clock.clone(),
            audit: audit.clone(),
            metrics: Arc::default(),
        });
        let (shared, _) = Shared::new(Given {
            snapshots: Arc::new(ArcSwap::from_pointee(snapshot)),
            keys: Arc::new(Keys::open(&data_dir).unwrap()),
            store,
            clock: clock.clone(),
            audit,
            approvals,
            fetcher: Fetcher::new(Arc::new(Connector::new(None))),
            key: &[7; 32],
        });
        World { dir, clock, router: router(shared.clone(), Arc::default()), shared }
    }

    /// Puts another configuration in force, with these people.
    fn reload(&self, people: &[(&str, &str)]) {
        self.shared.snapshots.store(Arc::new(compile(&self.dir, people)));
    }

    /// Puts a configuration in force that has no route `up`.
    fn reload_without_up(&self) {
        let text = yaml(&[("alice", &hash(1)), ("bob", &hash(2))]);
        let gone = "  up: { http: { url: \"http://127.0.0.1:1/mcp\" } }\n";
        let rule = "    - { name: deploy, tools: [\"up/deploy\"], who: { scopes: [deploy] }, allow: {} }\n";
        assert!(text.contains(gone) && text.contains(rule));
        let text = text.replace(gone, "").replace(rule, "");
        self.shared.snapshots.store(Arc::new(compile_text(&self.dir, &text)));
    }

    /// A code as `/authorize` writes it: for `alice`, `app`, route `up` and scopes `mcp` and `deploy`.
    async fn code(&self, text: &str) -> Code {
        let snapshot = self.shared.snapshots.load_full();
        let code = Code {
            digest: sha256(text.as_bytes()),
            issuer: ORIGIN.into(),
            subject: Subject::User("alice".into()),
            client: "app".into(),
            resource: RESOURCE.into(),
            scopes: ["mcp".to_owned(), "deploy".to_owned()].into(),
            password_mark: snapshot.users.get("alice").map(|alice| alice.password_mark.clone()),
            redirect_uri: REDIRECT.to_owned(),
            challenge: CHALLENGE.to_owned(),
            expires_at_ms: self.clock.unix_ms() + 60 * SECOND,
        };
        self.shared.store.insert_code(code.clone()).await.unwrap();
        code
    }

    /// Posts a form.
    async fn post(&self, path: &str, form: &[(&str, &str)]) -> Answer {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(Body::from(body)).unwrap()).await
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, 1 << 20).await.unwrap();
        let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).expect("JSON") };
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Redeems a code as its own client would, with these parameters instead of, or (`""`) without.
    async fn redeem(&self, code: &str, but: &[(&str, &str)]) -> Answer {
        let right = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("client_id", "app"),
            ("code_verifier", VERIFIER),
            ("redirect_uri", REDIRECT),
            ("resource", RESOURCE),
        ];
        self.post("/token", &changed(&right, but)).await
    }

    /// Refreshes as its own client would, with these parameters instead of, or (`""`) without.
    async fn refresh(&self, token: &str, but: &[(&str, &str)]) -> Answer {
        let right = [("grant_type", "refresh_token"), ("refresh_token", token), ("client_id", "app")];
        self.post("/token", &changed(&right, but)).await
    }

    /// Logs in and gives access and refresh token.
    async fn log_in(&self, code: &str) -> (String, String) {
        self.code(code).await;
        let answer = self.redeem(code, &[]).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        (answer.text("access_token"), answer.text("refresh_token"))
    }

    /// Whether a gateway that knows nothing yet accepts this access token.
    async fn is_accepted(&self, access: &str) -> bool {
        let (keys, store) = (Arc::clone(&self.shared.keys), self.shared.store.clone());
        let verifier = Verifier::new(ORIGIN.into(), keys, store, self.clock.clone(), 10);
        verifier.verify(access, RESOURCE).await.is_ok()
    }

    async fn grants(&self) -> Vec<Grant> {
        self.shared.store.grants().await.unwrap()
    }

    /// Puts something in the way of the audit log. Nobody has noticed yet: it counts as available.
    fn break_the_log(&self) -> Outage {
        let (log, away) = (self.dir.path().join("data/audit"), self.dir.path().join("away"));
        std::fs::rename(&log, &away).unwrap();
        std::fs::write(&log, "").unwrap();
        assert!(self.shared.audit.is_available());
        Outage { log, away }
    }

    /// Takes it out of the way, and waits until the log has mended itself.
    async fn mend_the_log(&self, Outage { log, away }: Outage) {
        std::fs::remove_file(&log).unwrap();
        std::fs::rename(&away, &log).unwrap();
        for _ in 0..3_000 {
            if self.shared.audit.is_available() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the log has not mended itself");
    }

    /// The kinds of events in the audit log, and that none of these secrets is in it.
    fn events(&self, secrets: &[&str]) -> Vec<String> {
        // What was recorded without waiting is written when the next one is that was waited for.
        self.shared.audit.close();
        let folder = self.dir.path().join("data/audit");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let text: String = files.filter_map(|path| std::fs::read_to_string(path).ok()).collect();
        for secret in secrets {
            assert!(!text.contains(secret), "a secret is in the audit log");
        }
        let event = |line: &str| serde_json::from_str::<Value>(line).ok()?["event"].as_str().map(str::to_owned);
        text.lines().filter_map(event).filter(|event| event != "start").collect()
    }
}

impl Answer {
    /// This member, a text.
    #[track_caller]
    fn text(&self, name: &str) -> String {
        self.body[name].as_str().unwrap_or_else(|| panic!("no `{name}` in {self:?}")).to_owned()
    }

    /// That it is this error, said as RFC 6749 §5.2 says it.
    #[track_caller]
    fn is_error(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.body["error"].as_str()), (status, Some(code)), "{self:?}");
        let is_allowed = |c: char| matches!(c, ' '..='~') && c != '"' && c != '\\';
        assert!(self.text("error_description").chars().all(is_allowed), "{self:?}");
        assert_eq!(self.headers[header::CACHE_CONTROL], "no-store");
        assert!(self.body.get("access_token").is_none());
        assert_eq!(self.headers.contains_key(header::RETRY_AFTER), matches!(status, 429 | 503), "{self:?}");
    }
}

fn changed<'a>(right: &[(&'a str, &'a str)], but: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let kept = right.iter().filter(|(name, _)| !but.iter().any(|(other, _)| other == name));
    let put = but.iter().filter(|(_, value)| !value.is_empty());
    kept.chain(put).copied().collect()
}

/// What an access token says, unverified.
fn claims(access: &str) -> Value {
    let payload = access.split('.').nth(1).expect("a JWT");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}
