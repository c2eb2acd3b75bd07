//! Whatever time a client gives a call and whenever a person decides, the call runs once and its result arrives.

use super::super::decide::{all, approve, config_with, id};
use super::super::hooks::{hook, url, with_secret};
use super::emulator::{EMULATORS, Emulator, Story};
use crate::support::browser::Browser;
use crate::support::gateway::{Launch, password};
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::{PATIENCE, wait_for};
use portcullis::clock::Clock;
use portcullis::server::{self, Started};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

const RULES: &str = "- { name: risky, tools: [up/danger], hold: { approvers: { users: [bob] } } }\n\
                     - { name: rest, tools: [\"up/*\"], allow: {} }";

/// A server of both eras, with sessions in the older one, and a receiver of webhooks.
fn scene(more: &str) -> (Recorder, Recorder, Launch) {
    let (upstream, receiver) = (Recorder::start(), Recorder::start());
    let n_sessions = AtomicUsize::new(0);
    upstream.answer_with(move |request: &Recorded| match request.rpc_method().as_str() {
        "initialize" => {
            let n = n_sessions.fetch_add(1, Ordering::Relaxed);
            Reply::mcp(request).header("Mcp-Session-Id", &format!("session-{n}"))
        }
        _ => Reply::mcp(request),
    });
    receiver.answer_with(|_| Reply::new(204, ""));
    let hook = hook("chat", &url(&receiver), "");
    let approvals = format!("wait: 3s, pending: 100, webhooks: [{hook}]{more}");
    let yaml = format!("admin: {{ listen: 127.0.0.1:0 }}\n{}", config_with(&upstream.url(), RULES, &approvals));
    (upstream, receiver, with_secret(Launch::new(&yaml)))
}

#[track_caller]
fn token(cli: impl Fn(&[&str]) -> String, client: &str, file: &str) -> String {
    let arguments = ["token", "issue", "--user", "alice", "--route", "up", "--ttl", "2h", "--client", client];
    cli(&[&arguments[..], &["--password-file", file]].concat()).trim().to_owned()
}

/// How often each call came to the server, by what stands in its arguments.
fn runs(upstream: &Recorder) -> BTreeMap<String, usize> {
    let mut runs = BTreeMap::new();
    for call in upstream.calls() {
        *runs.entry(call.json()["params"]["arguments"].to_string()).or_default() += 1;
    }
    runs
}

/// How many notices there are of each held call.
fn notices(db: std::path::PathBuf) -> BTreeMap<String, u32> {
    let store = rusqlite::Connection::open(db).expect("it is there");
    let mut rows =
        store.prepare("SELECT approval, count(*) FROM notices GROUP BY approval").expect("the table is there");
    let counted = rows.query_map([], |row| Ok((row.get(0)?, row.get::<_, u32>(1)?))).expect("it can be read");
    counted.map(|row| row.expect("two columns")).collect()
}

/// Times are a twelfth: a minute is 5 s, `wait` 3 s instead of 45, the decisions come after 5 s, 50 s and 5 min.
#[test]
fn b53_every_client_gets_its_one_result_however_long_the_decision_takes() {
    const DELAYS: [Duration; 3] = [Duration::from_millis(417), Duration::from_millis(4_167), Duration::from_secs(25)];
    let (upstream, _receiver, launch) = scene("");
    let gateway = launch.start();
    gateway.wait_until_asked("up");
    let file = gateway.password_file("alice");
    let file = file.to_str().expect("temporary paths are UTF-8").to_owned();
    let is_over = AtomicBool::new(false);

    let stories = thread::scope(|scope| {
        let deciding = scope.spawn(|| decide_in_time(&gateway, &DELAYS, &is_over));
        let clients = EMULATORS.map(|emulator| {
            let token = token(|arguments| gateway.cli(arguments).success().stdout, emulator.name, &file);
            let gateway = &gateway;
            scope.spawn(move || {
                let agent = emulator.connect(gateway.agent, &token);
                let call = |n: usize| {
                    let arguments = json!({ "client": emulator.name, "n": n });
                    let story = emulator.call(&agent, &arguments, || true);
                    assert_eq!(story.result["structuredContent"], arguments, "{} {n}: {story:?}", emulator.name);
                    story
                };
                (emulator.name, [call(0), call(1), call(2)])
            })
        });
        let stories = clients.map(|client| client.join().expect("it has its results"));
        is_over.store(true, Ordering::Relaxed);
        deciding.join().expect("everything was decided");
        stories
    });

    assert_eq!(runs(&upstream).into_values().collect::<Vec<_>>(), [1; 21], "each runs once");
    let held = all(&gateway);
    assert_eq!(held.len(), 21, "each is held once: {held:#?}");
    let notices = notices(gateway.path("data/portcullis.db"));
    assert_eq!((notices.len(), notices.values().max()), (21, Some(&1)), "each is told once");
    as_expected(&BTreeMap::from(stories));
}

/// Approves each call when its time has come: of each client, one after the other.
#[track_caller]
fn decide_in_time(gateway: &crate::support::gateway::Gateway, delays: &[Duration], is_over: &AtomicBool) {
    let (mut seen, mut n_decided): (BTreeMap<String, Instant>, BTreeMap<String, usize>) = Default::default();
    while !is_over.load(Ordering::Relaxed) {
        let now = Instant::now();
        for held in all(gateway).iter().filter(|held| held["state"] == "pending") {
            let since = *seen.entry(id(held).to_owned()).or_insert(now);
            let client = held["requester"]["client"].as_str().expect("a client");
            let n = n_decided.entry(client.to_owned()).or_default();
            if delays.get(*n).is_some_and(|delay| now.saturating_duration_since(since) >= *delay) {
                approve(gateway, held);
                *n += 1;
            }
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// That they have gone different ways, or the clients are not those of the field.
#[track_caller]
fn as_expected(stories: &BTreeMap<&str, [Story; 3]>) {
    let longest = |name: &str| &stories[name][2];
    assert!(longest("hard-60").n_told >= 2 && longest("hard-60").n_given_up == 0, "{stories:#?}");
    assert!(longest("hard-30-cancels").n_given_up >= 2, "{stories:#?}");
    assert!(longest("progress-60").n_told >= 2, "{stories:#?}");
    assert!(longest("idle-300").n_told >= 2 && longest("idle-300").n_given_up == 0, "{stories:#?}");
    assert!(longest("rounds").n_rounds >= 5 && longest("rounds").n_given_up == 0, "{stories:#?}");
    assert!(longest("tasks").n_polls >= 5 && longest("tasks").n_told == 0, "{stories:#?}");
    assert!(longest("none").n_told >= 2 && longest("none").n_given_up == 0, "{stories:#?}");
    assert!(stories.values().all(|[first, ..]| first.n_told + first.n_rounds <= 2), "{stories:#?}");
}

// === Half an hour, by a clock that is set by hand ===

/// A gateway within this test, whose clock is ours. It ends with this.
struct Clocked {
    clock: Clock,
    started: Started,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Clocked {
    #[track_caller]
    fn start(launch: &Launch) -> Clocked {
        // The tokens are made by the real command, now.
        let clock = Clock::manual(Clock::System.unix_ms());
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (tell, told) = mpsc::channel();
        let (file, its_clock) = (launch.path("gateway.yaml"), clock.clone());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
            let stopped = async { drop(stopped.await) };
            let ready = move |started| tell.send(started).expect("the test waits");
            runtime.block_on(server::run(&file, its_clock, stopped, ready)).expect("it runs");
        });
        let started = told.recv_timeout(PATIENCE).expect("it starts");
        Clocked { clock, started, stop: Some(stop), thread: Some(thread) }
    }

    fn admin(&self) -> SocketAddr {
        self.started.addresses.admin.expect("the configuration has one")
    }
}

impl Drop for Clocked {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(thread::JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()), "the gateway ends");
    }
}

/// The half hour of these tests: everybody calls, the clock goes on by `minutes`, and then `bob` approves what is there.
#[track_caller]
fn after(minutes: i64) -> (Recorder, Vec<(Emulator, Story)>) {
    let (upstream, _receiver, launch) = scene("");
    // A token issued makes `data_dir`, and the keys that the gateway then finds there.
    let file = launch.path("password-alice");
    std::fs::write(&file, password("alice")).expect("the folder is ours");
    let file = file.to_str().expect("temporary paths are UTF-8").to_owned();
    let tokens =
        EMULATORS.map(|emulator| token(|arguments| launch.cli(arguments).success().stdout, emulator.name, &file));
    let gateway = Clocked::start(&launch);
    let db = launch.path("data/portcullis.db");
    let (is_over, begun) = (AtomicBool::new(false), Instant::now());

    let stories = thread::scope(|scope| {
        let clients: Vec<_> = EMULATORS
            .iter()
            .zip(&tokens)
            .map(|(emulator, token)| {
                let (gateway, is_over) = (&gateway, &is_over);
                scope.spawn(move || {
                    let agent = emulator.connect(gateway.started.addresses.agent, token);
                    let arguments = json!({ "client": emulator.name });
                    let goes_on = || !is_over.load(Ordering::Relaxed) && begun.elapsed() < PATIENCE;
                    (*emulator, emulator.call(&agent, &arguments, goes_on))
                })
            })
            .collect();
        wait_for("everybody to be held", || notices(db.clone()).len() == EMULATORS.len());
        let held: Vec<String> = notices(db.clone()).into_keys().collect();
        gateway.clock.advance_ms(minutes * 60_000);
        approve_all(&gateway, &held, minutes < 30);
        if minutes >= 30 {
            is_over.store(true, Ordering::Relaxed);
        }
        clients.into_iter().map(|client| client.join().expect("it comes to an end")).collect()
    });
    assert_eq!(notices(db).values().max(), Some(&1));
    (upstream, stories)
}

/// On the page for approvers, by the clock of this gateway.
#[track_caller]
fn approve_all(gateway: &Clocked, held: &[String], is_in_time: bool) {
    let mut browser = Browser::new(gateway.admin());
    let page = browser.get("/");
    browser.submit(&page, &[("username", "bob"), ("password", &password("bob"))]);
    for id in held {
        let page = browser.get(&format!("/approvals/{id}"));
        assert_eq!(page.has_field("password"), is_in_time, "{}", page.text());
        if is_in_time {
            let page = browser.submit(&page, &[("decision", "approve"), ("password", &password("bob"))]);
            assert_eq!(page.status(), 200, "{}", page.text());
        }
    }
}

#[test]
fn a_decision_after_29_minutes_still_brings_every_client_its_one_result() {
    let (upstream, stories) = after(29);

    for (emulator, story) in &stories {
        assert_eq!(story.result["structuredContent"], json!({ "client": emulator.name }), "{story:?}");
    }
    assert_eq!(runs(&upstream).into_values().collect::<Vec<_>>(), [1; 7]);
}

#[test]
fn after_half_an_hour_nobody_can_approve_and_nothing_has_run() {
    let (upstream, stories) = after(31);

    assert_eq!(runs(&upstream), BTreeMap::new());
    for (emulator, story) in &stories {
        assert!(story.result.is_null() || story.result["isError"] == true, "{}: {story:?}", emulator.name);
    }
    let task = stories.iter().find(|(emulator, _)| emulator.name == "tasks").expect("one of them");
    let said: &Value = &task.1.result["content"][0]["text"];
    assert!(said.is_null() || said.as_str().is_some_and(|text| text.contains("nobody decided in time")), "{said}");
}
