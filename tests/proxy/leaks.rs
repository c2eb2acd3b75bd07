//! However a call, a stream or a session ends, nothing of it stays: no request in flight, no connection on either side,
//! no descriptor, no id, no memory.

use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::http::{Connection, Request};
use crate::support::http2::{Client, Deed, Upstream};
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::{Reply, event};
use crate::support::{wait_for, wire};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Clients at once.
const WORKERS: usize = 8;
/// Descriptors that come and go by themselves: what is open for the store, the metrics and the upstream of HTTP/2. Each
/// way is gone through far more often.
const SLACK: usize = 4;
/// What the gateway's memory may have grown by in the end, however many rounds there were.
const MEMORY_BOUND: usize = 24 << 20;

struct Scene {
    gateway: Gateway,
    /// Upstream `up`: HTTP/1.1, with sessions.
    recorder: Recorder,
    /// Upstream `two`: HTTP/2.
    _two: Upstream,
    token: String,
    token_two: String,
    /// A session that all rounds share, and in which every call has the same id.
    shared: Option<String>,
}

fn progress() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": 1, "progress": 1 } })
}

/// Answers as the call asks for in its argument `how`.
fn behave(request: &Recorded) -> Reply {
    let stream = || Reply::sse_raw(vec![format!("id: 1\n{}", event(&progress())).into_bytes()]);
    let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    match (request.method.as_str(), message["params"]["arguments"]["how"].as_str().unwrap_or_default()) {
        ("GET", _) => stream().then_hang(),
        ("DELETE", _) => Reply::new(200, ""),
        (_, "hang") => Reply::hang(),
        (_, "stream") => stream().then_hang(),
        (_, "poll") => stream(),
        (_, "cut") => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            Reply::raw(vec![head.into(), wire::chunk(event(&progress()).as_bytes())])
        }
        (_, "events") => {
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "content": [] } });
            Reply::sse(&[progress(), answer])
        }
        _ if message["method"] == "subscriptions/listen" => stream().then_hang(),
        _ if message["method"] == "initialize" => {
            static N: AtomicUsize = AtomicUsize::new(0);
            let id = format!("theirs-{}", N.fetch_add(1, Ordering::Relaxed));
            Reply::mcp(request).header("Mcp-Session-Id", &id)
        }
        _ => Reply::mcp(request),
    }
}

fn configuration(recorder: &Recorder, two: &str, has_two: bool) -> String {
    let two = if has_two { format!("  two: {{ http: {{ url: \"{two}\", http2: true }} }}\n") } else { String::new() };
    let tools = if has_two { r#"["up/*", "two/*"]"# } else { r#"["up/*"]"# };
    format!(
        "upstreams:\n  up: {{ http: {{ url: \"{}\" }} }}\n{two}policy:\n  rules:\n    - {{ name: all, tools: {tools}, allow: {{}} }}\n",
        recorder.url()
    )
}

impl Scene {
    fn set() -> Scene {
        let recorder = Recorder::start();
        recorder.answer_with(behave);
        let two = Upstream::start(|request| {
            let how = serde_json::from_slice::<Value>(&request.body).unwrap_or_default()["params"]["arguments"]["how"]
                .clone();
            match how.as_str() {
                Some("reset") => Deed::Reset,
                Some("silent") => Deed::Silent,
                _ if request.method == "GET" => Deed::Silent,
                _ => Deed::Answer(Reply::mcp(request)),
            }
        });
        let gateway = Gateway::start(&configuration(&recorder, two.url(), true));
        gateway.wait_until_asked("up");
        gateway.wait_until_asked("two");
        let (token, token_two) = (gateway.token("alice", "up"), gateway.token("alice", "two"));
        let mut scene = Scene { gateway, recorder, _two: two, token, token_two, shared: None };
        scene.shared = scene.fresh().session;
        scene
    }

    /// In the session that all rounds share.
    fn agent(&self) -> Agent {
        let mut agent = self.gateway.agent_with(&self.token, "up");
        agent.session.clone_from(&self.shared);
        agent
    }

    /// In a session of its own.
    fn fresh(&self) -> Agent {
        let mut agent = self.gateway.agent_with(&self.token, "up");
        agent.initialize();
        agent
    }

    fn two(&self) -> Agent {
        self.gateway.agent_with(&self.token_two, "two")
    }

    fn host(&self) -> String {
        self.gateway.agent.to_string()
    }
}

/// A call that is to be answered this way. All of them have one id.
fn call(agent: &Agent, how: &str) -> Request {
    let params = json!({ "name": "echo", "arguments": { "how": how } });
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    let request = agent.bare("POST").header("Content-Type", "application/json");
    request.header("Accept", "application/json, text/event-stream").body(body.to_string())
}

/// A call whose stream has begun.
#[track_caller]
fn begun(agent: &Agent, how: &str) -> Connection {
    let mut connection = agent.open(&call(agent, how));
    assert_eq!(connection.streaming().message(), Some(progress()));
    connection
}

type Way = fn(&Scene);

/// Every way that something ends.
const WAYS: &[(&str, Way)] = &[
    ("an answer", |scene| assert_eq!(scene.agent().send(&call(&scene.agent(), ""), Some(&json!(7))).message["id"], 7)),
    ("a stream to its answer", |scene| {
        let answer = scene.agent().send(&call(&scene.agent(), "events"), Some(&json!(7)));
        assert_eq!(answer.notifications, [progress()]);
    }),
    ("a stream without an answer", |scene| {
        let events = scene.agent().open(&call(&scene.agent(), "poll")).response().events();
        assert_eq!(events.last().map(|event| event.json()), Some(progress()));
    }),
    ("the client leaves in mid-stream", |scene| drop(begun(&scene.agent(), "stream"))),
    ("a reset of the client in mid-stream", |scene| begun(&scene.agent(), "stream").reset()),
    ("a client that closes its half in mid-stream", |scene| {
        let mut connection = begun(&scene.agent(), "stream");
        connection.finish_sending();
        assert!(connection.closes_within(crate::support::PATIENCE));
    }),
    ("the client leaves before any answer", |scene| drop(scene.agent().open(&call(&scene.agent(), "hang")))),
    ("a reset before any answer", |scene| scene.agent().open(&call(&scene.agent(), "hang")).reset()),
    ("half a head", |scene| {
        let bytes = call(&scene.agent(), "").to_bytes(&scene.host());
        Connection::open(scene.gateway.agent).send(&bytes[..bytes.len() / 3]);
    }),
    ("half a body, and a reset", |scene| {
        let bytes = call(&scene.agent(), "").to_bytes(&scene.host());
        let mut connection = Connection::open(scene.gateway.agent);
        connection.send(&bytes[..bytes.len() - 10]);
        connection.reset();
    }),
    ("the upstream cuts in mid-stream", |scene| {
        let answer = scene.agent().send(&call(&scene.agent(), "cut"), Some(&json!(7)));
        assert_eq!(answer.message["error"]["data"]["code"], "upstream.lost");
    }),
    ("the stream of a session is left", |scene| {
        let mut connection = scene.fresh().stream(None);
        assert_eq!(connection.streaming().message(), Some(progress()));
    }),
    ("a stream is taken up and left with a reset", |scene| {
        let agent = scene.fresh();
        let mut connection = agent.stream(None);
        let mut stream = connection.streaming();
        let place = std::iter::repeat_with(|| stream.event().expect("it goes on")).find_map(|event| event.id);
        agent.stream(place.as_deref()).reset();
        connection.reset();
    }),
    ("a session ends while its streams are open", |scene| {
        let agent = scene.fresh();
        let (stream, call) = (agent.stream(None), agent.open(&call(&agent, "hang")));
        assert_eq!(agent.end_session().status(), 204);
        assert_eq!(agent.end_session().status(), 404);
        drop((stream, call));
    }),
    ("a call that is cancelled", |scene| {
        let agent = scene.fresh();
        let open = begun(&agent, "stream");
        agent.notify("notifications/cancelled", json!({ "requestId": 7 }));
        drop(open);
    }),
    ("a subscription is left", |scene| {
        let agent = scene.gateway.agent_with(&scene.token, "up").modern();
        let wanted = json!({ "notifications": { "toolsListChanged": true } });
        drop(agent.open(&agent.request("subscriptions/listen", wanted).0));
    }),
    ("a stream of HTTP/2 is reset", |scene| {
        let client = Client::open(scene.gateway.agent);
        drop(client.streaming(&call(&scene.agent(), "stream")));
        assert_eq!(client.send(&call(&scene.agent(), "")).status, 200);
    }),
    ("a connection of HTTP/2 goes with its streams", |scene| {
        let client = Client::open(scene.gateway.agent);
        let streams = [(); 3].map(|()| client.streaming(&call(&scene.agent(), "stream")));
        assert!(streams.iter().all(|stream| stream.status == 200));
    }),
    ("the upstream resets a stream of HTTP/2", |scene| {
        let answer = scene.two().send(&call(&scene.two(), "reset"), Some(&json!(7)));
        assert!(answer.message["error"].is_object(), "{answer:?}");
    }),
    ("an upstream of HTTP/2 is silent and its client leaves", |scene| {
        let mut connection = scene.two().open(&call(&scene.two(), "silent"));
        connection.streaming().event().expect("a sign of life");
    }),
];

/// What a gateway has, when nothing is asked of it.
#[derive(Debug)]
struct Footprint {
    /// Descriptors but those of the connections to `up` that wait in the pool.
    descriptors: usize,
    /// Resident memory in bytes.
    memory: usize,
}

impl Scene {
    /// Once everything has ended.
    #[track_caller]
    fn footprint(&self) -> Footprint {
        for gauge in ["portcullis_requests_in_flight", "portcullis_connections{listener=\"agent\"}"] {
            wait_for(&format!("{gauge} at 0"), || self.gateway.metric(gauge) < 0.5);
        }
        wait_for("the upstream's connections to close", || self.recorder.n_open() <= WORKERS);
        let mut descriptors = self.descriptors();
        // Descriptors of connections that were just closed go a moment later; what leaks does not.
        wait_for("descriptors to settle", || {
            let before = std::mem::replace(&mut descriptors, self.descriptors());
            before == descriptors
        });
        let page = std::fs::read_to_string(format!("/proc/{}/statm", self.gateway.id())).expect("it runs");
        let pages: usize = page.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number of pages");
        Footprint { descriptors, memory: pages * 4096 }
    }

    fn descriptors(&self) -> usize {
        let all = std::fs::read_dir(format!("/proc/{}/fd", self.gateway.id())).expect("it runs").count();
        all.saturating_sub(self.recorder.n_open())
    }

    /// So many rounds of every way, by several clients at once.
    fn run(&self, rounds: usize) {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    while let Some((_, way)) = Some(next.fetch_add(1, Ordering::Relaxed))
                        .filter(|n| *n < rounds * WAYS.len())
                        .and_then(|n| WAYS.get(n % WAYS.len()))
                    {
                        way(self);
                    }
                });
            }
        });
    }
}

/// 12 rounds of all ways; with `ROUNDS=50` there are a thousand endings.
#[test]
fn however_something_ends_nothing_of_it_stays() {
    let rounds = std::env::var("ROUNDS").map_or(12, |n| n.parse().expect("ROUNDS is a number"));
    let scene = Scene::set();
    scene.run(2);
    let before = scene.footprint();

    scene.run(rounds);

    let after = scene.footprint();
    eprintln!("{} endings: {before:?} -> {after:?}", rounds * WAYS.len());
    assert!(after.descriptors <= before.descriptors + SLACK, "{before:?} -> {after:?}");
    assert!(after.memory < before.memory + MEMORY_BOUND, "{before:?} -> {after:?}");
    // The id that all calls of the session had is free: it passes as it is.
    let agent = scene.agent();
    let last = call(&agent, "");
    agent.send(&last, Some(&json!(7)));
    assert_eq!(scene.recorder.last().body, last.body_bytes());
}

#[test]
fn a_revocation_and_a_reload_leave_nothing_of_the_streams_they_end() {
    let scene = Scene::set();
    scene.run(1);
    let before = scene.footprint();
    let open = |agent: &Agent| {
        let mut connection = agent.stream(None);
        connection.streaming().event().expect("a sign of life");
        connection
    };
    let bobs = scene.gateway.agent("bob", "up");
    let streams: Vec<Connection> = (0..20)
        .map(|n| {
            open(&if n % 2 == 0 {
                scene.two()
            } else {
                scene.gateway.agent_with(bobs.token.as_deref().expect("a token"), "up")
            })
        })
        .collect();

    let file = scene.gateway.password_file("bob");
    let list = scene.gateway.cli(&["token", "list"]).success().stdout;
    let grants = list.lines().filter(|line| line.contains("bob")).flat_map(str::split_whitespace);
    for grant in grants.filter(|word| word.starts_with("g_")) {
        let file = file.to_str().expect("a path");
        scene.gateway.cli(&["token", "revoke", grant, "--as", "bob", "--password-file", file]).success();
    }
    scene.gateway.rewrite(&configuration(&scene.recorder, "", false));
    scene.gateway.reload().success();

    // By the gateway, while their clients still hold on to them.
    wait_for("the streams to end", || scene.gateway.metric("portcullis_requests_in_flight") < 0.5);
    drop(streams);
    let after = scene.footprint();
    assert!(after.descriptors <= before.descriptors + SLACK, "{before:?} -> {after:?}");
    scene.agent().tool("echo", json!({})).result();
}
