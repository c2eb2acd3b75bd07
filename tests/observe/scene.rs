//! Traffic of every kind, a second at a time, in front of a gateway that has everything which metrics tell of.

use super::prometheus::Prometheus;
use crate::approval::decide::say;
use crate::support::agent::Agent;
use crate::support::browser::Browser;
use crate::support::gateway::{Gateway, IDENTITY, Launch};
use crate::support::http::{Connection, Request};
use crate::support::issuer::Issuer;
use crate::support::oauth::{Client, Tokens, token};
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use crate::support::tls::Identity;
use crate::support::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

/// The secret of every webhook here.
const SECRET: &str = "whsec_c2VjcmV0IG9mIGEgd2ViaG9vayBpbiB0ZXN0cw==";
/// After so many seconds everything has happened once, and begins again.
const ROUND: usize = 60;

/// A gateway, and all that it talks with.
pub(super) struct Scene {
    pub(super) gateway: Gateway,
    yaml: String,
    recorder: Recorder,
    issuer: Issuer,
    /// They end with the scene.
    _sealed: Recorder,
    _hooks: [Recorder; 2],
}

/// Who talks to the gateway.
struct Cast {
    alice: Agent,
    modern: Agent,
    gone: Agent,
    sealed: Agent,
    client: Client,
}

impl Scene {
    #[track_caller]
    pub(super) fn start() -> Scene {
        let (recorder, issuer) = (Recorder::start(), Issuer::start());
        let hooks = [Recorder::start(), Recorder::start()];
        hooks[0].answer_with(|_| Reply::new(204, ""));
        hooks[1].answer_with(|_| Reply::new(410, ""));
        let authority = Identity::authority("observe");
        let sealed = Recorder::start_tls(&authority.sign(&["127.0.0.1"]), Some(&authority));
        let yaml = configuration(&recorder, &sealed, &issuer, &hooks);
        let ours = authority.sign(&["gateway"]);
        let launch = Launch::new(&yaml).file("hook-secret", SECRET);
        let secret = fs::Permissions::from_mode(0o600);
        fs::set_permissions(launch.path("hook-secret"), secret).expect("the file is ours");
        let launch = launch.file("ca.pem", authority.cert).file("ours.pem", ours.cert).file("ours.key", ours.key);
        let gateway = launch.start();
        ["up", "gone", "sealed"].iter().for_each(|upstream| gateway.wait_until_asked(upstream));
        Scene { gateway, yaml, recorder, issuer, _sealed: sealed, _hooks: hooks }
    }

    /// Lets everything happen for so long. At the end a call waits for a person, and the file on disk is a bad one.
    pub(super) fn play(&self, seconds: usize) {
        let gateway = &self.gateway;
        let cast = Cast {
            alice: gateway.agent("alice", "up"),
            modern: gateway.agent("alice", "up").modern(),
            gone: gateway.agent("alice", "gone"),
            sealed: gateway.agent("alice", "sealed"),
            client: Client::register(gateway),
        };
        let began = Instant::now();
        for second in 0..seconds {
            let at = second % ROUND;
            self.always(&cast, second);
            self.sometimes(&cast, at);
            // What came too late for its second is not made up for: a busy machine is a slow one, not a burst.
            let due = Duration::from_secs(second as u64 + 1);
            thread::sleep(due.saturating_sub(began.elapsed()));
        }
    }

    fn always(&self, cast: &Cast, second: usize) {
        // A wave, so that pictures have something to show.
        let n = 3 + (4.0 * (1.0 + (second as f64 / 9.0).sin())) as usize;
        for i in 0..n {
            let agent = if i % 3 == 0 { &cast.modern } else { &cast.alice };
            drop(agent.tool("echo", json!({ "n": i })));
        }
        drop(cast.alice.tool("add", json!({})));
        if second.is_multiple_of(2) {
            drop(cast.alice.tool("unheard-of", json!({})));
            drop(cast.gone.tool("echo", json!({})));
        }
        if second.is_multiple_of(3) {
            let (agent, issuer) = (self.gateway.agent, &self.issuer);
            Request::mcp("/mcp/up", "{}").is_answered_by(agent);
            Request::mcp("/mcp/up", "{}").bearer("nonsense").is_answered_by(agent);
            Request::mcp("/mcp/invented", "{}").is_answered_by(agent);
            Request::mcp("/mcp/up", "{")
                .bearer(&issuer.token(&self.gateway.url("up"), &json!({})))
                .is_answered_by(agent);
            drop(cast.sealed.tool("echo", json!({})));
        }
        if second % 5 == 4 {
            self.recorder.answer_next(Reply::new(500, ""));
            drop(cast.alice.tool("echo", json!({})));
            let foreign = json!({ "jsonrpc": "2.0", "id": "x", "result": {} });
            let (request, id) = cast.alice.request("tools/call", json!({ "name": "echo" }));
            self.recorder.answer_next(Reply::sse(&[foreign, json!({ "jsonrpc": "2.0", "id": id, "result": {} })]));
            drop(cast.alice.send(&request, Some(&id)));
        }
    }

    fn sometimes(&self, cast: &Cast, at: usize) {
        let gateway = &self.gateway;
        match at {
            2 => self.hold(cast, &["approve"]),
            6 => self.hold(cast, &["deny", "--reason", "not today"]),
            9 => self.log_in(&cast.client),
            12 => self.guess_passwords(),
            14 => drop(gateway.reload()),
            15 => {
                let mut stranger = Connection::open(gateway.agent);
                stranger.send(b"HELO gateway\r\n\r\n");
                drop(stranger.try_response());
            }
            // It stays a bad one until the round is over, or the play: long enough for the alert.
            16 => {
                gateway.rewrite_raw("nonsense");
                gateway.operate("POST", "/reload");
            }
            20 => self.without_audit(cast),
            28 => thread::scope(|scope| {
                // Nobody decides on this one: its caller gives up after a second.
                scope.spawn(|| drop(cast.modern.tool("danger", json!({ "left": "waiting" }))));
            }),
            58 => gateway.rewrite(&self.yaml),
            _ => {}
        }
    }

    /// A call that is held, and what a person says of it.
    fn hold(&self, cast: &Cast, word: &[&str]) {
        thread::scope(|scope| {
            let call = scope.spawn(|| {
                cast.alice.tool("danger", json!({ "word": word[0], "at": Instant::now().elapsed().as_nanos() }))
            });
            let mut held = Value::Null;
            wait_for("a held call", || {
                let listed = self.gateway.cli(&["approvals", "list", "--json"]).success().stdout;
                let all: Vec<Value> = serde_json::from_str(&listed).expect("a list");
                held = all.into_iter().find(|one| one["state"] == "pending").unwrap_or_default();
                !held.is_null()
            });
            let (first, more) = word.split_first().expect("a word");
            let id = held["id"].as_str().expect("an id");
            let digest = ["--digest", held["digest"].as_str().expect("a digest")];
            let digest = if *first == "approve" { &digest[..] } else { &[] };
            say(&self.gateway, "bob", &[&[*first, id], more, digest].concat()).success();
            drop(call.join());
        });
    }

    /// Logs in, refreshes, and then somebody comes with a refresh token that is used up.
    fn log_in(&self, client: &Client) {
        let gateway = &self.gateway;
        let first = client.log_in(gateway, "alice", "up").refresh.expect("a refresh token");
        let second = Tokens::of(&token(gateway, &client.refresh(&first))).refresh.expect("a refresh token");
        let _third = Tokens::of(&token(gateway, &client.refresh(&second)));
        assert_eq!(token(gateway, &client.refresh(&first)).status, 400);
    }

    fn guess_passwords(&self) {
        let mut browser = Browser::new(self.gateway.agent);
        let page = browser.get("/login");
        for n in 0..25 {
            drop(browser.submit(&page, &[("username", "bob"), ("password", &format!("guess {n} of many"))]));
        }
    }

    /// For some seconds nothing can be recorded.
    fn without_audit(&self, cast: &Cast) {
        let (log, away) = (self.gateway.path("data/audit"), self.gateway.path("away"));
        fs::rename(&log, &away).expect("the folder is ours");
        fs::write(&log, "").expect("the folder is ours");
        for _ in 0..4 {
            drop(cast.alice.tool("echo", json!({})));
            thread::sleep(Duration::from_secs(1));
        }
        fs::remove_file(&log).expect("the folder is ours");
        fs::rename(&away, &log).expect("the folder is ours");
        wait_for("the audit log", || self.gateway.metric("portcullis_audit_available") == 1.0);
    }

    /// A Prometheus that watches it.
    #[track_caller]
    pub(super) fn watched(&self) -> Prometheus {
        Prometheus::watching(self.gateway.metrics.expect("it is configured"))
    }
}

fn configuration(recorder: &Recorder, sealed: &Recorder, issuer: &Issuer, hooks: &[Recorder; 2]) -> String {
    let hook = |name: &str, at: &Recorder| {
        let url = format!("http://{}/hook", at.address());
        format!("    - {{ name: {name}, url: \"{url}\", secret: {{ file: hook-secret }} }}\n")
    };
    let tls = "tls: { ca: ca.pem, cert: ours.pem, key: ours.key }";
    [
        IDENTITY,
        &format!("  issuers:\n    - {{ issuer: \"{}\", groups: {{ operators: ops }} }}\n", issuer.name),
        &format!("upstreams:\n  up: {{ http: {{ url: \"{}\" }} }}\n", recorder.url()),
        "  gone: { http: { url: \"http://127.0.0.1:1/mcp\" } }\n",
        &format!("  sealed: {{ http: {{ url: \"{}\", {tls} }} }}\n", sealed.url()),
        "policy:\n  rules:\n    - { name: no sums, tools: [\"*/add\"], deny: { reason: Sums are done by hand. } }\n",
        "    - { name: risky, tools: [up/danger], hold: { approvers: { users: [alice, bob] }, wait: 20s } }\n",
        "    - { name: rest, tools: [\"*/*\"], allow: {} }\n",
        "admin: { listen: \"127.0.0.1:0\" }\napprovals:\n  webhooks:\n",
        &hook("chat", &hooks[0]),
        &hook("lost", &hooks[1]),
        "audit: { also: [{ name: siem, syslog: { to: \"udp:127.0.0.1:9\" } }] }\n",
    ]
    .concat()
}
