//! Webhooks in: who may decide by a signed message, and all the messages that decide nothing.

use super::beside::{Beside, Wish, call};
use super::hooks::{OTHER, SECRET, config, hook, make_private, signature, with_secret};
use crate::support::gateway::Launch;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request};
use portcullis::approval::Verdict;
use portcullis::store::Approval;
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt as _;

/// A gateway's store, and the endpoint for decisions with its configuration.
struct World {
    beside: Beside,
    endpoint: Router,
    launch: Launch,
}

/// A message on its way, each part of which a test can change.
#[derive(Clone, Debug)]
struct Message {
    hook: &'static str,
    id: String,
    /// Seconds from now.
    off_s: i64,
    secret: &'static str,
    body: Value,
}

impl World {
    /// `chat` decides as alice, `bridge` as whom it names of `admins` and `ops`, `pager` is only told.
    fn new() -> World {
        let hooks = [
            hook("chat", "http://127.0.0.1:1/", ", decides_as: { user: alice }"),
            hook("bridge", "http://127.0.0.1:1/", ", decides_as: { groups: [admins, ops] }"),
            hook("pager", "http://127.0.0.1:1/", ""),
        ];
        let launch = with_secret(Launch::new(&config("http://127.0.0.1:1/mcp", &hooks)));
        World::of(launch)
    }

    fn of(launch: Launch) -> World {
        let beside = Beside::of(&launch);
        let (_, snapshot) = portcullis::snapshot::compile_file(&launch.path("gateway.yaml")).expect("it is good");
        let snapshots = Arc::new(arc_swap::ArcSwap::from_pointee(snapshot));
        let endpoint = portcullis::admin::webhooks_router(snapshots, beside.approvals.clone());
        World { beside, endpoint, launch }
    }

    /// A call of bob's, told to everybody.
    fn hold(&self, arguments: &str) -> Approval {
        self.hold_as(call(arguments))
    }

    fn hold_as(&self, wish: Wish) -> Approval {
        let hooks = ["chat", "bridge", "pager"].map(str::to_owned).to_vec();
        self.beside.hold(&Wish { hooks, ..wish })
    }

    #[track_caller]
    fn nonce(&self, held: &Approval, hook: &str) -> String {
        let notices =
            self.beside.runtime.block_on(self.beside.approvals.notices(&held.id)).expect("the store is there");
        notices.iter().find(|notice| &*notice.hook == hook).expect("it was to be told").nonce.clone()
    }

    /// A good message of `hook` that approves.
    fn approval(&self, held: &Approval, hook: &'static str) -> Message {
        Message {
            hook,
            id: format!("msg_of_{}", portcullis::id::short()),
            off_s: 0,
            secret: SECRET,
            body: json!({ "type": "approval.decision", "data": {
                "id": &*held.id,
                "digest": portcullis::approval::hex(&held.digest),
                "nonce": self.nonce(held, hook),
                "decision": "approve",
            }}),
        }
    }

    /// Sends it; gives status and answer.
    fn send(&self, message: &Message) -> (u16, Value) {
        let body = message.body.to_string().into_bytes();
        let at_s = portcullis::clock::Clock::System.unix_seconds() + message.off_s;
        let signed = signature(message.secret, &message.id, at_s, &body);
        self.raw(
            message.hook,
            &[("webhook-id", &message.id), ("webhook-timestamp", &at_s.to_string()), ("webhook-signature", &signed)],
            body,
        )
    }

    fn raw(&self, hook: &str, headers: &[(&str, &str)], body: Vec<u8>) -> (u16, Value) {
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = format!("/webhooks/{hook}").parse().expect("a path");
        for (name, value) in headers {
            let name: axum::http::HeaderName = name.parse().expect("a name");
            request.headers_mut().append(name, value.parse().expect("a value"));
        }
        self.beside.runtime.block_on(async {
            let response = self.endpoint.clone().oneshot(request).await.expect("a router does not fail");
            let status = response.status().as_u16();
            let body = to_bytes(response.into_body(), 64 * 1024).await.expect("a short body");
            (status, serde_json::from_slice(&body).unwrap_or_default())
        })
    }

    fn audited(&self) -> Vec<Value> {
        let segments = std::fs::read_dir(self.launch.path("data/audit")).expect("there is a log");
        let texts = segments.filter_map(|entry| std::fs::read_to_string(entry.expect("an entry").path()).ok());
        let all = texts.collect::<String>();
        all.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The codes of what was refused, once there are `n` of them.
    #[track_caller]
    fn wait_for_refusals(&self, n: usize) -> Vec<String> {
        let codes = || {
            let records = self.audited().into_iter().filter(|record| record["event"] == "approval.refused");
            records.filter_map(|record| record["code"].as_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        crate::support::wait_for("the refusals to be recorded", || codes().len() >= n);
        codes()
    }
}

#[test]
fn a_webhook_decides_as_whom_the_configuration_says() {
    let world = World::new();
    let (one, two, three) = (world.hold(r#"{"n":1}"#), world.hold(r#"{"n":2}"#), world.hold(r#"{"n":3}"#));
    let mut denied = world.approval(&two, "bridge");
    denied.body["data"]["decision"] = "deny".into();
    denied.body["data"]["reason"] = "not today".into();
    denied.body["data"]["person"] = "alice".into();
    let mut dated = world.approval(&three, "chat");
    dated.body["timestamp"] = "2026-11-30T15:00:00Z".into();
    dated.body["data"]["person"] = "alice".into();

    assert_eq!(
        world.send(&world.approval(&one, "chat")),
        (200, json!({ "id": &*one.id, "state": "approved", "repeated": false }))
    );
    assert_eq!(world.send(&denied).0, 200);
    assert_eq!(world.send(&dated).0, 200);

    assert_eq!(["approved", "denied", "approved"], [&one, &two, &three].map(|held| world.beside.state(held)));
    assert_eq!(world.beside.now(&two).note.as_deref(), Some("not today"));
    let decided: Vec<Value> =
        world.audited().into_iter().filter(|record| record["event"] == "approval.decided").collect();
    assert_eq!(
        decided.iter().map(|it| &it["via"]).collect::<Vec<_>>(),
        ["webhook chat", "webhook bridge", "webhook chat"]
    );
    assert!(decided.iter().all(|it| it["principal"]["subject"] == "user:alice"), "{decided:#?}");
}

/// A-23: forged, old, altered, of another secret, unsigned, and signed with a scheme that is not ours.
#[test]
fn a_23_what_is_not_signed_now_with_the_secret_changes_nothing() {
    let world = World::new();
    let held = world.hold("{}");
    let good = world.approval(&held, "chat");
    let body = good.body.to_string().into_bytes();
    let at = portcullis::clock::Clock::System.unix_seconds();
    let signed = signature(SECRET, "msg_1", at, &body);
    let (time, other) = (at.to_string(), signed.replace("v1,", "v1a,"));
    let bare = signed.replace("v1,", "");

    for off_s in [-360, 360] {
        assert_eq!(world.send(&Message { off_s, ..good.clone() }).0, 401, "{off_s}");
    }
    assert_eq!(world.send(&Message { secret: OTHER, ..good.clone() }).0, 401);
    for id in ["msg.1", "", "msg 1"] {
        assert_eq!(world.send(&Message { id: id.to_owned(), ..good.clone() }).0, 401, "{id:?}");
    }
    let altered = String::from_utf8(body.clone()).expect("JSON").replace("approve\"", "approve \"").into_bytes();
    for (headers, body) in [
        (&[][..], &body),
        (&[("webhook-id", "msg_1"), ("webhook-timestamp", &time)][..], &body),
        (&[("webhook-id", "msg_1"), ("webhook-timestamp", &time), ("webhook-signature", "v1,AAAA")], &body),
        (&[("webhook-id", "msg_1"), ("webhook-timestamp", &time), ("webhook-signature", "v1,%%% v1 , v1,")], &body),
        (&[("webhook-id", "msg_1"), ("webhook-timestamp", &time), ("webhook-signature", &other)], &body),
        (&[("webhook-id", "msg_1"), ("webhook-timestamp", &time), ("webhook-signature", &bare)], &body),
        (&[("webhook-id", "msg_2"), ("webhook-timestamp", &time), ("webhook-signature", &signed)], &body),
        (
            &[
                ("webhook-id", "msg_1"),
                ("webhook-id", "msg_1"),
                ("webhook-timestamp", &time),
                ("webhook-signature", &signed),
            ],
            &body,
        ),
        (&[("webhook-id", "msg_1"), ("webhook-timestamp", &time), ("webhook-signature", &signed)], &altered),
    ] {
        let (status, answer) = world.raw("chat", headers, body.clone());
        assert_eq!((status, &answer["error"]), (401, &json!("webhook.signature")), "{headers:?}");
    }
    assert_eq!(world.beside.state(&held), "pending");
    assert!(world.wait_for_refusals(5).iter().all(|code| code == "webhook.signature"));

    // Its allowed twin, with a second signature that is somebody else's.
    let two = format!("{} {signed}", signature(OTHER, "msg_1", at, &body));
    let headers = [("webhook-id", "msg_1"), ("webhook-timestamp", &*time), ("webhook-signature", &*two)];
    assert_eq!(world.raw("chat", &headers, body).0, 200);
    assert_eq!(world.beside.state(&held), "approved");
}

/// A-23: a message counts once, also after the call was reopened.
#[test]
fn a_23_a_replayed_message_changes_nothing() {
    let world = World::new();
    let (held, other) = (world.hold(r#"{"n":1}"#), world.hold(r#"{"n":2}"#));
    let mut deny = world.approval(&held, "chat");
    deny.body["data"]["decision"] = "deny".into();
    assert_eq!(world.send(&deny).0, 200);

    assert_eq!(world.send(&deny), (200, json!({ "id": &*held.id, "state": "denied", "repeated": true })));
    let reused = Message { id: deny.id.clone(), ..world.approval(&other, "chat") };
    assert_eq!(world.send(&reused).0, 409);
    world.beside.reopen(&held, &[]);
    let (status, answer) = world.send(&deny);
    assert_eq!((status, &answer["error"]), (409, &json!("webhook.repeated")));

    assert_eq!((world.beside.state(&held), world.beside.state(&other)), ("pending", "pending"));
    assert_eq!(world.send(&world.approval(&held, "chat")).0, 200);
    assert_eq!(world.beside.state(&held), "approved");
}

/// A-24: about which call a message may be, and about which digest.
#[test]
fn a_24_a_message_is_about_the_call_that_its_receiver_was_told_of() {
    let world = World::new();
    let (held, other) = (world.hold(r#"{"n":1}"#), world.hold(r#"{"n":2}"#));
    let untold = world.beside.hold(&call(r#"{"n":3}"#));
    let good = world.approval(&held, "chat");
    let with = |key: &str, value: Value| {
        let mut message = Message { id: format!("msg_{}", portcullis::id::short()), ..good.clone() };
        message.body["data"][key] = value;
        message
    };

    let unknown = [
        with("id", "h_AAAAAAAAAAAAAAAAAAAAAA".into()),
        with("id", (&*untold.id).into()),
        with("id", (&*other.id).into()),
        with("id", "".into()),
        with("nonce", world.nonce(&held, "bridge").into()),
        with("nonce", "".into()),
    ];
    let answers: Vec<_> = unknown.iter().map(|message| world.send(message)).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0] && answer.0 == 404), "{answers:#?}");
    let digest = portcullis::approval::hex(&other.digest);
    for wrong in [digest.as_str(), "", "zz", &digest[..12]] {
        let (status, answer) = world.send(&with("digest", wrong.into()));
        assert_eq!((status, &answer["error"]), (409, &json!("approval.digest")), "{wrong}");
    }
    assert_eq!(
        world.raw("nobody", &[("webhook-id", "m"), ("webhook-timestamp", "1"), ("webhook-signature", "v1,")], vec![]).0,
        404
    );
    assert_eq!([&held, &other, &untold].map(|it| world.beside.state(it)), ["pending"; 3]);

    assert_eq!(world.send(&good).0, 200);
}

/// A-24: whom a message may speak for.
#[test]
fn a_24_a_message_speaks_for_nobody_but_whom_the_configuration_names() {
    let world = World::new();
    let held = world.hold("{}");
    let named = |hook, person: Option<&str>| {
        let mut message = world.approval(&held, hook);
        if let Some(person) = person {
            message.body["data"]["person"] = person.into();
        }
        message
    };
    for (message, status, code) in [
        (named("pager", None), 403, "webhook.decides_not"),
        (named("chat", Some("bob")), 403, "webhook.person"),
        (named("bridge", None), 403, "webhook.person"),
        (named("bridge", Some("mallory")), 403, "webhook.person"),
        (named("bridge", Some("")), 403, "webhook.person"),
        // In a group of the webhook's, and not among those whom the rule names; it is also his own call.
        (named("bridge", Some("bob")), 403, "approval.not_entitled"),
    ] {
        let (answered, answer) = world.send(&message);
        assert_eq!((answered, &answer["error"]), (status, &json!(code)), "{message:?}");
    }
    assert_eq!(world.beside.state(&held), "pending");
    assert_eq!(world.wait_for_refusals(6).len(), 6);
    assert_eq!(world.send(&named("bridge", Some("alice"))).0, 200);

    // Her own call: neither as herself nor through a bridge, with `self` or without.
    for by_requester in [false, true] {
        let mut wish = call(&format!("{{\"own\":{by_requester}}}"));
        wish.user = "alice";
        wish.terms.by_requester = by_requester;
        let own = world.hold_as(wish);
        assert_eq!(world.send(&world.approval(&own, "chat")).0, 403);
        let mut message = world.approval(&own, "bridge");
        message.body["data"]["person"] = "alice".into();
        assert_eq!(world.send(&message).1["error"], "approval.own_call");
        assert_eq!(world.beside.state(&own), "pending");
    }
}

/// A webhook is one decider, whomever it names, and a person is one, however often they say it.
#[test]
fn a_webhook_alone_is_no_quorum() {
    let world = World::new();
    let mut wish = call("{}");
    wish.user = "carol";
    wish.terms.approvers[0].groups = ["ops".to_owned()].into();
    wish.terms.approvers[0].quorum = 2;
    let held = world.hold_as(wish);
    let named = |person: &str| {
        let mut message = world.approval(&held, "bridge");
        message.body["data"]["person"] = person.into();
        message
    };

    assert_eq!(world.send(&named("bob")), (200, json!({ "id": &*held.id, "state": "pending", "repeated": false })));
    let (status, answer) = world.send(&named("alice"));
    assert_eq!((status, &answer["error"]), (409, &json!("approval.twice")));
    assert_eq!(world.send(&named("bob")).0, 409);
    assert_eq!(world.beside.state(&held), "pending");

    // Another way, another person.
    assert_eq!(world.send(&world.approval(&held, "chat")).0, 200);
    assert_eq!(world.beside.state(&held), "approved");
}

/// Only a decision is one, and nothing beside it is looked past.
#[test]
fn a_message_that_is_no_decision_is_refused() {
    let world = World::new();
    let held = world.hold("{}");
    let good = world.approval(&held, "chat");
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut message = Message { id: format!("msg_{}", portcullis::id::short()), ..good.clone() };
        change(&mut message.body);
        message
    };
    let cases: [&dyn Fn(&mut Value); 9] = [
        &|body| body["type"] = "approval.requested".into(),
        &|body| body["type"] = "approval.decision ".into(),
        &|body| body["more"] = 1.into(),
        &|body| body["data"]["approved"] = true.into(),
        &|body| body["data"]["decision"] = "APPROVE".into(),
        &|body| body["data"]["decision"] = true.into(),
        &|body| drop(body["data"].as_object_mut().expect("an object").remove("nonce")),
        &|body| body["data"]["reason"] = "x".repeat(501).into(),
        &|body| *body = json!([body]),
    ];
    for change in cases {
        let message = changed(change);
        let (status, answer) = world.send(&message);
        assert_eq!((status, &answer["error"]), (400, &json!("webhook.malformed")), "{:?}", message.body);
    }
    // The same name twice, which two readers would read differently.
    let twice = good.body.to_string().replace("\"decision\":", "\"decision\":\"deny\",\"decision\":").into_bytes();
    let at = portcullis::clock::Clock::System.unix_seconds();
    let signed = signature(SECRET, "msg_twice", at, &twice);
    let headers =
        [("webhook-id", "msg_twice"), ("webhook-timestamp", &*at.to_string()), ("webhook-signature", &*signed)]
            .map(|(n, v)| (n, v.to_owned()));
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(world.raw("chat", &headers, twice).0, 400);
    assert_eq!(world.raw("chat", &headers, vec![b' '; 20_000]).0, 400);
    assert_eq!(world.beside.state(&held), "pending");

    assert_eq!(world.send(&good).0, 200);
}

/// A-24: what is over stays so.
#[test]
fn a_24_a_late_decision_is_a_conflict() {
    let world = World::new();
    let held = world.hold("{}");
    let late = world.approval(&held, "chat");
    world.beside.decide(&held, Verdict::Deny);

    let (status, answer) = world.send(&late);

    assert_eq!((status, &answer["error"]), (409, &json!("approval.decided")));
    assert_eq!(world.beside.state(&held), "denied");
}

/// The secret before the last change still counts, in this direction too.
#[test]
fn what_is_signed_with_the_former_secret_is_taken_while_it_is_written() {
    let former = ", former_secret: { file: former-secret }, decides_as: { user: alice }";
    let text = config("http://127.0.0.1:1/mcp", &[hook("chat", "http://127.0.0.1:1/", former)]);
    let launch = with_secret(Launch::new(&text)).file("former-secret", OTHER);
    make_private(&launch.path("former-secret"));
    let world = World::of(launch);
    let held = world.beside.hold(&Wish { hooks: vec!["chat".to_owned()], ..call("{}") });

    let message = Message { secret: OTHER, ..world.approval(&held, "chat") };

    assert_eq!(world.send(&message).0, 200);
    assert_eq!(world.beside.state(&held), "approved");
}
