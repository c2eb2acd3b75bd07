//! Webhooks out: who is told of a held call, what they are told, and what becomes of it when they are not there.

use super::beside::{Beside, Wish, call};
use super::decide;
use super::hooks::{SECRET, config, hook, make_private, signature, url, verified, with_secret};
use crate::support::gateway::{Gateway, Launch};
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use crate::support::wait_for;
use pingora::connectors::http::Connector;
use portcullis::approval::Verdict;
use portcullis::approval::webhook::{Deliverer, Hooks, InForce};
use portcullis::clock::Clock;
use portcullis::fetch::Fetcher;
use portcullis::store::{Approval, Notice, NoticeState};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A gateway whose `up/danger` is held and told to these webhooks.
fn gateway(upstream: &Recorder, hooks: &[String]) -> Gateway {
    with_secret(Launch::new(&config(&upstream.url(), hooks))).start()
}

/// Calls `up/danger` as bob, who is told to come again.
#[track_caller]
fn call_danger(gateway: &Gateway, arguments: &Value) {
    let answer = gateway.agent("bob", "up").tool("danger", arguments.clone()).result();
    assert_eq!(answer["isError"], true, "it is held: {answer}");
}

/// A-25: what a receiver learns without further words.
#[test]
fn a_held_call_is_told_once_signed_and_without_its_arguments() {
    let (upstream, receiver) = (Recorder::start(), Recorder::start());
    receiver.answer_with(|_| Reply::new(204, ""));
    let gateway = gateway(&upstream, &[hook("chat", &url(&receiver), "")]);

    for _ in 0..3 {
        call_danger(&gateway, &json!({ "path": "/tmp/secret-place", "pin": "hunter2" }));
    }

    let held = decide::only(&gateway);
    wait_for("the notice", || !receiver.requests().is_empty());
    gateway.wait_for_metric("portcullis_webhook_deliveries_total{hook=\"chat\",result=\"delivered\"}", 1.0);
    let requests = receiver.requests();
    assert_eq!(requests.len(), 1, "one notice, however often it was asked for");
    let told = verified(&requests[0]);
    assert_eq!(told["type"], "approval.requested");
    let data = &told["data"];
    assert_eq!((&data["id"], &data["digest"]), (&held["id"], &held["digest"]));
    assert_eq!((&data["upstream"], &data["tool"]), (&json!("up"), &json!("danger")));
    assert_eq!((&data["requester"], &data["client"]), (&json!("user:bob"), &json!("cli")));
    assert_eq!(data["rules"], json!(["risky"]));
    assert_eq!(data["summary"], "user:bob asks to call up/danger, which needs an approval (risky)");
    let link = data["link"].as_str().expect("a link");
    assert!(link.starts_with("http://127.0.0.1:") && link.ends_with(&format!("/approvals/{}", decide::id(&held))));
    assert_eq!((&data["expires_at"], &data["valid_for_s"]), (&held["expires_at"], &json!(600)));
    for absent in ["arguments", "masked", "nonce", "decision_url"] {
        assert_eq!(data[absent], Value::Null, "{absent}");
    }
    let text = String::from_utf8_lossy(&requests[0].body).into_owned();
    assert!(!text.contains("secret-place") && !text.contains("hunter2"), "{text}");
    wait_for("the record", || gateway.audit_text().contains("webhook.ended"));
    let records = gateway.audit();
    let ended = records.iter().find(|record| record["event"] == "webhook.ended").expect("recorded");
    assert_eq!((&ended["approval"], &ended["outcome"]), (&held["id"], &json!("delivered")));
    assert!(!gateway.audit_text().contains("secret-place"));
}

#[test]
fn arguments_are_told_where_that_was_asked_for_and_masked_ones_are_not() {
    let (upstream, receiver) = (Recorder::start(), Recorder::start());
    receiver.answer_with(|_| Reply::new(204, ""));
    let more = ", arguments: true, decides_as: { groups: [admins] }";
    let gateway = gateway(&upstream, &[hook("chat", &url(&receiver), more)]);

    call_danger(&gateway, &json!({ "path": "/tmp/\u{202e}a", "pin": "hunter2" }));

    wait_for("the notice", || !receiver.requests().is_empty());
    let data = &verified(&receiver.requests()[0])["data"];
    assert_eq!(data["arguments"]["path"], "/tmp/\u{202e}a", "as they are: programs decide on them");
    let pin = data["arguments"]["pin"].as_str().expect("a note");
    assert!(pin.starts_with("[masked, 7 bytes, tag ") && !pin.contains("hunter2"), "{pin}");
    assert_eq!(data["masked"], json!(["/pin"]));
    assert!(data["nonce"].as_str().is_some_and(|nonce| nonce.len() >= 22), "{data}");
    assert!(data["decision_url"].as_str().is_some_and(|url| url.ends_with("/webhooks/chat")), "{data}");
}

/// A-25: nobody is led elsewhere, and what does not want to be told is not told again. All of it can be seen.
#[test]
fn a_receiver_that_is_gone_is_told_once_and_given_up_visibly() {
    let (upstream, receiver) = (Recorder::start(), Recorder::start());
    receiver.answer_with(|_| Reply::new(410, ""));
    let gateway = gateway(&upstream, &[hook("chat", &url(&receiver), "")]);

    call_danger(&gateway, &json!({ "path": "/tmp/a" }));

    gateway.wait_for_metric("portcullis_webhook_deliveries_total{hook=\"chat\",result=\"dead\"}", 1.0);
    gateway.wait_for_metric("portcullis_webhook_dead", 1.0);
    assert_eq!(receiver.requests().len(), 1);
    let held = decide::only(&gateway);
    let shown = gateway.cli(&["approvals", "show", decide::id(&held)]).success().stdout;
    assert!(shown.contains("  webhook   chat: dead after 1 attempt"), "{shown}");
    gateway.wait_for_log("a webhook was given up");
    assert!(!gateway.log().contains("whsec_") && !gateway.log().contains("from=gateway"), "{}", gateway.log());
    wait_for("the record", || gateway.audit_text().contains("\"outcome\":\"dead\""));
}

// === With a clock that is moved by hand ===

/// A store with a clock, and who delivers from it.
struct World {
    clock: Clock,
    beside: Beside,
    launch: Launch,
}

impl World {
    fn new(hooks: &[String]) -> World {
        let launch = with_secret(Launch::new(&config("http://127.0.0.1:1/mcp", hooks)));
        std::fs::create_dir_all(launch.path("data")).expect("the folder is ours");
        // Now, since receivers look at the time.
        let clock = Clock::manual(Clock::System.unix_ms());
        let beside = Beside::at(&launch.path("data"), clock.clone());
        let world = World { clock, beside, launch };
        world.deliver();
        world
    }

    /// Begins to deliver, as one process does.
    fn deliver(&self) {
        let file = self.launch.path("gateway.yaml");
        let text = std::fs::read_to_string(&file).expect("the file is there");
        let loaded = portcullis::config::load(&text, file).expect("a good configuration");
        let in_force = InForce {
            hooks: Arc::new(Hooks::build(&loaded).expect("good webhooks")),
            admin_url: "https://approve.example.com".into(),
            issuer: "http://127.0.0.1:1".into(),
            people: Arc::new(|name| (name == "alice").then(|| ["admins".to_owned()].into())),
        };
        let fetcher = Fetcher::new(Arc::new(Connector::new(None)));
        let deliverer = Deliverer::new(self.beside.approvals.clone(), fetcher, move || Some(in_force.clone()));
        self.beside.runtime.spawn(deliverer.run());
        self.beside.runtime.spawn(self.beside.approvals.clone().watch());
    }

    fn hold(&self, hooks: &[&str]) -> Approval {
        let hooks = hooks.iter().map(ToString::to_string).collect();
        self.beside.hold(&Wish { hooks, ..call(r#"{"path":"/tmp/a"}"#) })
    }

    #[track_caller]
    fn notice(&self, held: &Approval, hook: &str) -> Notice {
        let notices =
            self.beside.runtime.block_on(self.beside.approvals.notices(&held.id)).expect("the store is there");
        notices.into_iter().find(|notice| &*notice.hook == hook).expect("it was to be told")
    }

    /// Waits until a notice was tried so often.
    #[track_caller]
    fn wait_for_attempts(&self, held: &Approval, hook: &str, n: u32) -> Notice {
        wait_for(&format!("attempt {n} at {hook}"), || self.notice(held, hook).attempts >= n);
        self.notice(held, hook)
    }

    /// Goes to the time of the next attempt.
    fn go_to(&self, notice: &Notice) {
        self.clock.advance_ms(notice.next_at_ms.saturating_sub(self.clock.unix_ms()).max(0));
    }
}

/// B53, and "no silence": down twice, then too slow, then 500, then led elsewhere, then asked to wait, then there.
#[test]
fn b53_a_receiver_that_comes_back_is_told_under_the_same_id() {
    let receiver = Recorder::start();
    let elsewhere = Recorder::start();
    let led = format!("http://{}/", elsewhere.address());
    let n = Arc::new(AtomicUsize::new(0));
    receiver.answer_with(move |_| match n.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Reply::close(),
        2 => Reply::hang(),
        3 => Reply::new(500, "later"),
        4 => Reply::redirect(302, &led),
        5 => Reply::new(429, "").header("Retry-After", "900"),
        _ => Reply::new(204, ""),
    });
    let world = World::new(&[hook("chat", &url(&receiver), ", timeout: 500ms")]);
    let held = world.beside.hold(&Wish {
        hooks: vec!["chat".to_owned()],
        expires: Duration::from_secs(3600),
        ..call(r#"{"path":"/tmp/a"}"#)
    });

    let mut pauses_s = Vec::new();
    let mut errors = Vec::new();
    for attempt in 1..=6 {
        let notice = world.wait_for_attempts(&held, "chat", attempt);
        assert_eq!(notice.state, NoticeState::Waiting);
        pauses_s.push((notice.next_at_ms - world.clock.unix_ms()) / 1000);
        errors.push(notice.last_error.clone().unwrap_or_default());
        world.go_to(&notice);
    }
    let told = world.wait_for_attempts(&held, "chat", 7);

    assert_eq!((told.state, told.last_error), (NoticeState::Delivered, None));
    for (pause_s, about_s) in pauses_s.iter().zip([5, 30, 120, 300, 600, 900]) {
        assert!((about_s * 8 / 10 - 1..=about_s * 12 / 10).contains(pause_s), "{pauses_s:?}");
    }
    assert!(errors[2].contains("longer than") && errors[3].contains("status 500"), "{errors:?}");
    assert!(errors[4].contains("redirects are not followed") && errors[5].contains("429"), "{errors:?}");
    let requests = receiver.requests();
    assert!(requests.len() >= 5, "{}", requests.len());
    let ids: std::collections::BTreeSet<_> = requests.iter().map(|one| one.header("webhook-id")).collect();
    assert_eq!(ids.len(), 1, "one message, however often it is sent");
    assert_eq!(
        requests.iter().map(|one| verified(one)["data"]["id"].clone()).collect::<Vec<_>>(),
        vec![json!(&*held.id); requests.len()]
    );
    assert_eq!(elsewhere.requests().len(), 0);
    assert_eq!(world.beside.state(&held), "pending", "nobody has decided");
}

#[test]
fn a_slow_receiver_delays_no_other_one() {
    let (slow, quick) = (Recorder::start(), Recorder::start());
    slow.answer_with(|_| Reply::hang());
    quick.answer_with(|_| Reply::new(200, "thanks"));
    let world = World::new(&[hook("slow", &url(&slow), ", timeout: 60s"), hook("quick", &url(&quick), "")]);

    let held: Vec<Approval> = (0..20)
        .map(|n| {
            let hooks = vec!["slow".to_owned(), "quick".to_owned()];
            world.beside.hold(&Wish { hooks, ..call(&format!("{{\"n\":{n}}}")) })
        })
        .collect();

    for one in &held {
        assert_eq!(world.wait_for_attempts(one, "quick", 1).state, NoticeState::Delivered);
    }
    assert_eq!(quick.requests().len(), 20);
    assert!(slow.requests().len() <= 4, "a few at once: {}", slow.requests().len());
}

/// Whatever is still to be told when a call is over is given up, and seen.
#[test]
fn nobody_is_told_of_a_call_that_is_over() {
    let (decided, expired) = (Recorder::start(), Recorder::start());
    for receiver in [&decided, &expired] {
        receiver.answer_with(|_| Reply::new(503, ""));
    }
    let world = World::new(&[hook("chat", &url(&decided), ""), hook("pager", &url(&expired), "")]);
    let (one, other) = (world.hold(&["chat"]), {
        let hooks = vec!["pager".to_owned()];
        world.beside.hold(&Wish { hooks, ..call(r#"{"n":2}"#) })
    });
    world.wait_for_attempts(&one, "chat", 1);
    world.wait_for_attempts(&other, "pager", 1);

    world.beside.decide(&one, Verdict::Deny);
    wait_for("it to be given up", || world.notice(&one, "chat").state == NoticeState::Dead);
    let (n_chat, n_pager) = (decided.requests().len(), expired.requests().len());
    world.clock.advance_ms(1_800_000);
    wait_for("it to be given up", || world.notice(&other, "pager").state == NoticeState::Dead);

    let why = world.notice(&other, "pager").last_error.unwrap_or_default();
    assert!(why.starts_with("the call was over before it could be delivered") && why.contains("503"), "{why}");
    assert_eq!((decided.requests().len(), expired.requests().len()), (n_chat, n_pager));
    let counts = world.beside.runtime.block_on(world.beside.approvals.count_notices()).expect("the store is there");
    assert_eq!((counts.waiting, counts.dead), (0, 2));
}

#[test]
fn of_many_processes_one_tells_a_receiver() {
    let receiver = Recorder::start();
    receiver.answer_with(|_| Reply::new(204, ""));
    let world = World::new(&[hook("chat", &url(&receiver), "")]);
    for _ in 0..3 {
        world.deliver();
    }

    let held: Vec<Approval> = (0..30)
        .map(|n| world.beside.hold(&Wish { hooks: vec!["chat".to_owned()], ..call(&format!("{{\"n\":{n}}}")) }))
        .collect();

    for one in &held {
        world.wait_for_attempts(one, "chat", 1);
    }
    assert_eq!(receiver.requests().len(), 30);
}

/// Both secrets sign while one is exchanged for the other.
#[test]
fn a_secret_can_be_exchanged_without_a_gap() {
    let receiver = Recorder::start();
    receiver.answer_with(|_| Reply::new(204, ""));
    let former = ", former_secret: { file: former-secret }";
    let text = config("http://127.0.0.1:1/mcp", &[hook("chat", &url(&receiver), former)]);
    let launch = with_secret(Launch::new(&text)).file("former-secret", super::hooks::OTHER);
    make_private(&launch.path("former-secret"));
    std::fs::create_dir_all(launch.path("data")).expect("the folder is ours");
    let clock = Clock::manual(Clock::System.unix_ms());
    let world = World { beside: Beside::at(&launch.path("data"), clock.clone()), clock, launch };
    world.deliver();

    let held = world.hold(&["chat"]);

    world.wait_for_attempts(&held, "chat", 1);
    let request = &receiver.requests()[0];
    let (id, at) = (request.header("webhook-id").expect("an id"), request.header("webhook-timestamp").expect("a time"));
    let of = |secret| signature(secret, id, at.parse().expect("seconds"), &request.body);
    assert_eq!(
        request.header("webhook-signature"),
        Some(format!("{} {}", of(SECRET), of(super::hooks::OTHER)).as_str())
    );
}
