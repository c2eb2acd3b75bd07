//! Who may decide, and what becomes of it: the whole module on a real store, with a clock that is moved by hand.

use super::*;
use crate::audit::Settings;
use crate::config::Sync;
use crate::jsonrpc::{Node, Span};
use crate::policy::Approvers;
use crate::store::Step;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

type Groups = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

struct World {
    dir: tempfile::TempDir,
    clock: Clock,
    groups: Groups,
    approvals: Approvals,
}

impl World {
    async fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::manual(1_800_000_000_000);
        let people = [("alice", &["admins"][..]), ("bob", &["ops"]), ("carol", &["admins", "ops"]), ("dave", &[])];
        let groups = people.iter().map(|(name, groups)| {
            ((*name).to_owned(), groups.iter().map(|group| (*group).to_owned()).collect::<Vec<_>>())
        });
        let groups = Arc::new(Mutex::new(groups.collect()));
        let approvals = approvals(dir.path(), &clock, &[7; 32]).await;
        World { dir, clock, groups, approvals }
    }

    fn people(&self) -> People {
        let groups = Arc::clone(&self.groups);
        Arc::new(move |name| groups.lock().unwrap().get(name).map(|groups| groups.clone().into()))
    }

    /// A call of bob's.
    async fn ask(&self, terms: &Terms) -> Approval {
        self.ask_for(terms, r#"{"path":"/tmp/a"}"#).await.unwrap()
    }

    async fn ask_for(&self, terms: &Terms, arguments: &str) -> Result<Approval, Error> {
        let requester = requester();
        let call = Call::of(&Parts {
            requester: &requester,
            upstream: "up",
            endpoint: &[1; 32],
            definition: &[2; 32],
            tool: "delete",
            arguments: Some(Node::of(arguments.as_bytes(), Span::whole(arguments.as_bytes()))),
            input_responses: None,
            request_state: None,
        });
        let ask = Ask {
            call: &call.unwrap(),
            requester,
            upstream: "up",
            rules: &["risky".into()],
            rules_digest: [5; 32],
            terms,
            expires: Duration::from_secs(1800),
            valid_for: Duration::from_secs(600),
            keep_result: Duration::from_secs(600),
            most_pending: 3,
            hooks: &[],
            request: "r_1",
            snapshot: "abc",
        };
        self.approvals.ask(ask).await
    }

    async fn decide(&self, held: &Approval, person: &str, verdict: Verdict, proof: Proof) -> Result<Decided, Refused> {
        let decider = self.decider(person, proof);
        self.approvals.decide(&held.id, verdict, &held.digest, Some("because"), &decider).await.unwrap()
    }

    async fn approve(&self, held: &Approval, person: &str) -> Result<Decided, Refused> {
        self.decide(held, person, Verdict::Approve, Proof::Session).await
    }

    fn decider<'a>(&self, person: &'a str, proof: Proof) -> Decider<'a> {
        Decider { person, proof, via: "page", place: Place::default(), people: self.people() }
    }

    async fn state(&self, held: &Approval) -> State {
        self.approvals.get(&held.id).await.unwrap().unwrap().state
    }

    async fn consume(&self, held: &Approval) -> Option<Consumed> {
        let held = self.approvals.get(&held.id).await.unwrap().unwrap();
        self.approvals.consume(&held, &self.people(), "r_2").await.unwrap()
    }

    /// The words of the audit log, in order.
    fn audit(&self) -> Vec<(String, String)> {
        let mut files: Vec<_> =
            std::fs::read_dir(self.dir.path().join("audit")).unwrap().map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|end| end == "jsonl"));
        files.sort();
        let text: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        lines
            .filter(|line| line["approval"].is_string())
            .map(|line| (word(&line["event"]), word(&line["code"]) + &word(&line["outcome"])))
            .collect()
    }
}

async fn approvals(dir: &std::path::Path, clock: &Clock, key: &[u8; 32]) -> Approvals {
    Approvals::new(Given {
        store: Store::open(dir).await.unwrap(),
        key,
        clock: clock.clone(),
        audit: Audit::open(Settings::new(dir, [7; 32], Sync::Strict, clock.clone())).unwrap(),
        metrics: Arc::new(Metrics::new()),
    })
}

fn requester() -> Requester {
    Requester {
        issuer: "https://mcp.example.com".into(),
        subject: Subject::User("bob".into()),
        client: "cli".into(),
        person: Some("bob".into()),
        grant: Some("g_1".into()),
    }
}

fn set(groups: &[&str], quorum: u32) -> Approvers {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    Approvers { users: BTreeSet::new(), groups, quorum }
}

fn terms(approvers: &[Approvers], by_requester: bool) -> Terms {
    Terms {
        approvers: approvers.to_vec(),
        by_requester,
        mask: BTreeSet::new(),
        findings: Vec::new(),
        warning: None,
        trace: None,
    }
}

#[tokio::test]
async fn who_is_named_decides_and_nobody_else() {
    let world = World::new().await;
    let held = world.ask(&terms(&[set(&["admins"], 1)], false)).await;

    for stranger in ["dave", "bob", "nobody", ""] {
        assert_eq!(world.approve(&held, stranger).await, Err(Refused::NotEntitled), "{stranger}");
        assert_eq!(world.decide(&held, stranger, Verdict::Deny, Proof::Password).await, Err(Refused::NotEntitled));
    }
    assert_eq!(world.state(&held).await, State::Pending);
    let decided = world.approve(&held, "alice").await.unwrap();
    assert_eq!((decided.approval.state, decided.needs_more), (State::Approved, false));
    assert_eq!(world.approve(&held, "carol").await, Err(Refused::Decided("approved")));
    assert_eq!(world.decide(&held, "carol", Verdict::Deny, Proof::Session).await, Err(Refused::Decided("approved")));
}

#[tokio::test]
async fn what_somebody_may_is_asked_when_they_decide_and_again_when_it_is_used() {
    let world = World::new().await;
    let held = world.ask(&terms(&[set(&["admins"], 1)], false)).await;
    world.groups.lock().unwrap().insert("alice".to_owned(), vec![]);
    assert_eq!(world.approve(&held, "alice").await, Err(Refused::NotEntitled), "demoted while she looked");
    world.approve(&held, "carol").await.unwrap();

    world.groups.lock().unwrap().remove("carol");
    assert!(world.consume(&held).await.is_none());
    assert_eq!(world.state(&held).await, State::Invalidated);

    // The twin, whose approver stays.
    world.groups.lock().unwrap().insert("carol".to_owned(), vec!["admins".to_owned()]);
    let held = world.ask(&terms(&[set(&["admins"], 1)], false)).await;
    world.approve(&held, "carol").await.unwrap();
    assert_eq!(world.consume(&held).await.unwrap().call().arguments().unwrap().text(), r#"{"path":"/tmp/a"}"#);
}

#[tokio::test]
async fn ones_own_call_needs_a_rule_that_says_so_and_the_password() {
    let world = World::new().await;
    let closed = world.ask(&terms(&[set(&["ops"], 1)], false)).await;
    for proof in [Proof::Session, Proof::Password, Proof::Signature] {
        assert_eq!(world.decide(&closed, "bob", Verdict::Approve, proof).await, Err(Refused::OwnCall), "{proof:?}");
    }
    world.approve(&closed, "carol").await.expect("somebody else may");

    let open = world.ask_for(&terms(&[set(&["ops"], 1)], true), "{}").await.unwrap();
    assert_eq!(world.approve(&open, "bob").await, Err(Refused::NeedsPassword));
    assert_eq!(world.decide(&open, "bob", Verdict::Approve, Proof::Signature).await, Err(Refused::OwnCall));
    let approved = world.decide(&open, "bob", Verdict::Approve, Proof::Password).await.unwrap();
    assert_eq!(approved.approval.state, State::Approved);
}

#[tokio::test]
async fn a_quorum_is_of_different_people_and_every_rule_needs_its_own() {
    let world = World::new().await;
    let two = world.ask(&terms(&[set(&["admins"], 2)], false)).await;
    assert!(world.approve(&two, "alice").await.unwrap().needs_more);
    assert_eq!(world.approve(&two, "alice").await, Err(Refused::Twice));
    assert_eq!(world.decide(&two, "alice", Verdict::Deny, Proof::Password).await, Err(Refused::Twice));
    assert!(!world.approve(&two, "carol").await.unwrap().needs_more);

    // One of the two left before the second came.
    let left = world.ask_for(&terms(&[set(&["admins"], 2)], false), "[1]").await.unwrap();
    world.approve(&left, "alice").await.unwrap();
    world.groups.lock().unwrap().insert("alice".to_owned(), vec![]);
    assert!(world.approve(&left, "carol").await.unwrap().needs_more);

    // Two rules; carol is of both.
    world.groups.lock().unwrap().insert("alice".to_owned(), vec!["admins".to_owned()]);
    let both = world.ask_for(&terms(&[set(&["admins"], 1), set(&["ops"], 1)], false), "[2]").await.unwrap();
    assert!(world.approve(&both, "alice").await.unwrap().needs_more);
    assert!(!world.approve(&both, "carol").await.unwrap().needs_more);
}

#[tokio::test]
async fn nobody_decides_on_what_they_have_not_seen_or_too_late() {
    let world = World::new().await;
    let held = world.ask(&terms(&[set(&["admins"], 1)], false)).await;
    let seen = Approval { digest: [0; 32], ..held.clone() };
    assert_eq!(world.approve(&seen, "alice").await, Err(Refused::Digest));
    let unknown = Approval { id: "h_unknown".into(), ..held.clone() };
    assert_eq!(world.approve(&unknown, "alice").await, Err(Refused::Unknown));

    world.clock.advance_ms(1_800_000);
    assert_eq!(world.approve(&held, "alice").await, Err(Refused::Decided("expired")));

    let held = world.ask(&terms(&[set(&["admins"], 1)], false)).await;
    world.clock.advance_ms(1_799_999);
    world.approve(&held, "alice").await.expect("in time");
    world.clock.advance_ms(600_000);
    assert!(world.consume(&held).await.is_none(), "approved, and not used in time");
    world.clock.advance_ms(-1_000_000);
    world.approvals.0.store.expire_approvals(world.clock.unix_ms() + 1_000_000).await.unwrap();
    assert!(world.consume(&held).await.is_none(), "a clock that goes back revives nothing");
}

#[tokio::test]
async fn a_no_is_final_until_an_approver_asks_again() {
    let world = World::new().await;
    let terms = terms(&[set(&["admins"], 1)], false);
    let held = world.ask(&terms).await;
    let denied = world.decide(&held, "alice", Verdict::Deny, Proof::Session).await.unwrap().approval;
    assert_eq!((denied.state, denied.note.as_deref()), (State::Denied, Some("because")));
    assert_eq!(world.approve(&held, "carol").await, Err(Refused::Decided("denied")));
    assert_eq!(world.ask(&terms).await.id, held.id, "the same call is told the same");

    let stranger = world.approvals.reopen(&held.id, &[], &world.decider("dave", Proof::Session)).await.unwrap();
    assert_eq!(stranger, Err(Refused::NotEntitled));
    let reopened =
        world.approvals.reopen(&held.id, &[], &world.decider("carol", Proof::Session)).await.unwrap().unwrap();
    assert_eq!(reopened.state, State::Pending);
    assert_eq!(reopened.expires_at_ms, world.clock.unix_ms() + 1_800_000);
    world.approve(&held, "alice").await.expect("who said no may say yes now");
}

#[tokio::test]
async fn a_call_is_taken_back_by_its_requester_or_an_approver() {
    let world = World::new().await;
    let terms = terms(&[set(&["admins"], 1)], false);
    let mut held = world.ask(&terms).await;
    let withdraw = async |held: &Approval, person: &str| {
        world.approvals.withdraw(&held.id, &world.decider(person, Proof::Session)).await.unwrap()
    };
    assert_eq!(withdraw(&held, "dave").await, Err(Refused::NotEntitled));
    for person in ["bob", "alice"] {
        assert_eq!(withdraw(&held, person).await.unwrap().state, State::Withdrawn);
        assert_eq!(withdraw(&held, person).await, Err(Refused::Decided("withdrawn")));
        assert_eq!(world.approve(&held, "carol").await, Err(Refused::Decided("withdrawn")));
        let again = world.ask(&terms).await;
        assert_ne!(again.id, held.id);
        held = again;
    }
    world.approve(&held, "alice").await.unwrap();
    assert_eq!(withdraw(&held, "bob").await.unwrap().state, State::Withdrawn);
    assert!(world.consume(&held).await.is_none());
}

#[tokio::test]
async fn a_lost_call_waits_for_a_person_to_say_what_became_of_it() {
    let world = World::new().await;
    let terms = terms(&[set(&["admins"], 1)], false);
    let held = world.ask(&terms).await;
    world.approve(&held, "alice").await.unwrap();
    world.approvals.0.store.consume_approval(&held.id, "p_killed", world.clock.unix_ms()).await.unwrap().unwrap();
    world.approvals.0.store.find_lost_approvals(world.clock.unix_ms()).await.unwrap();
    assert_eq!(world.ask(&terms).await.state, State::Indeterminate);

    let resolve =
        async |person| world.approvals.resolve(&held.id, true, &world.decider(person, Proof::Password)).await.unwrap();
    assert_eq!(resolve("bob").await, Err(Refused::NotEntitled));
    assert_eq!(resolve("alice").await.unwrap().state, State::Completed);
    assert_eq!(resolve("alice").await, Err(Refused::Decided("completed")));
    assert_eq!(world.ask(&terms).await.state, State::Pending);
}

#[tokio::test]
async fn an_answer_is_kept_for_who_waits() {
    let world = World::new().await;
    let held = world.ask(&terms(&[set(&["admins"], 1)], false)).await;
    let mut waiter = world.approvals.wait_for(&held.id);
    world.approve(&held, "alice").await.unwrap();
    waiter.changed().await;
    let consumed = world.consume(&held).await.unwrap();
    assert!(world.consume(&held).await.is_none(), "once");
    waiter.changed().await;
    let ending = Ending { is_completed: true, answer: r#""result":{"a":1}"#.into(), note: None };
    world.approvals.finish(consumed, ending).await.unwrap();
    waiter.changed().await;

    let ended = world.approvals.get(&held.id).await.unwrap().unwrap();
    assert_eq!(ended.state, State::Completed);
    assert_eq!(world.approvals.answer_of(&ended).unwrap().unwrap(), r#""result":{"a":1}"#);
    assert!(world.approvals.received(&held.id).await.unwrap());
    assert!(!world.approvals.received(&held.id).await.unwrap());
    let events: Vec<_> = world.audit().into_iter().map(|(event, said)| format!("{event} {said}")).collect();
    let expected = ["approval.requested ", "approval.decided ", "approval.consumed "];
    assert_eq!(events[..3], expected, "{events:?}");
}

#[tokio::test]
async fn whoever_writes_the_store_without_our_key_approves_nothing_and_exchanges_nothing() {
    let world = World::new().await;
    let held = world.ask(&terms(&[set(&["admins"], 1)], false)).await;
    // The row as another hand would leave it.
    let forged = ApprovalDecision {
        person: "alice".into(),
        approves: true,
        via: "page".to_owned(),
        at_ms: world.clock.unix_ms(),
        mark: [0; 32],
    };
    let judge: crate::store::Judge<()> = Box::new(|_, _| Ok(Step::Approves));
    world.approvals.0.store.decide_approval(&held.id, forged, None, judge).await.unwrap();
    assert_eq!(world.state(&held).await, State::Approved);
    assert!(world.consume(&held).await.is_none());
    assert_eq!(world.state(&held).await, State::Invalidated);

    let held = world.ask(&terms(&[set(&["admins"], 1)], false)).await;
    world.approve(&held, "alice").await.unwrap();
    let other = world.ask_for(&terms(&[set(&["admins"], 1)], false), r#"{"path":"/"}"#).await.unwrap();
    let exchanged = Approval { call: other.call, ..world.approvals.get(&held.id).await.unwrap().unwrap() };
    assert!(matches!(world.approvals.consume(&exchanged, &world.people(), "r").await, Err(Error::Sealed)));
    // Nor are the terms exchanged for easier ones.
    let held = world.approvals.get(&held.id).await.unwrap().unwrap();
    let easier = Approval { terms: terms(&[set(&["ops"], 1)], true).to_text(), ..held.clone() };
    assert!(matches!(world.approvals.consume(&easier, &world.people(), "r").await, Err(Error::Sealed) | Ok(None)));
    assert!(matches!(world.approvals.call_of(&easier), Err(Error::Sealed)));
    assert!(world.approvals.call_of(&held).unwrap().is_some());
    let stranger = approvals(&world.dir.path().join("other"), &world.clock, &[8; 32]).await;
    assert!(matches!(stranger.call_of(&held), Err(Error::Sealed)));
}

#[tokio::test]
async fn everything_that_is_refused_is_written_down() {
    let world = World::new().await;
    let held = world.ask(&terms(&[set(&["ops"], 1)], false)).await;
    world.approve(&held, "bob").await.unwrap_err();
    world.approve(&held, "dave").await.unwrap_err();
    world.approve(&Approval { digest: [0; 32], ..held.clone() }, "carol").await.unwrap_err();
    world.approve(&held, "carol").await.unwrap();
    world.approve(&held, "carol").await.unwrap_err();
    world.approvals.0.audit.close();

    let expected = [
        ("approval.requested", ""),
        ("approval.refused", "approval.own_call"),
        ("approval.refused", "approval.not_entitled"),
        ("approval.refused", "approval.digest"),
        ("approval.decided", ""),
        ("approval.refused", "approval.decided"),
    ];
    let expected: Vec<_> = expected.iter().map(|(event, said)| ((*event).to_owned(), (*said).to_owned())).collect();
    assert_eq!(world.audit(), expected);
}

#[tokio::test]
async fn without_an_audit_log_nothing_is_held_decided_or_used() {
    let world = World::new().await;
    let asked = terms(&[set(&["admins"], 1)], false);
    let held = world.ask(&asked).await;
    let approved = world.ask_for(&asked, "[]").await.unwrap();
    world.approve(&approved, "alice").await.unwrap();
    world.approvals.0.audit.close();

    assert!(matches!(world.ask_for(&asked, "{}").await, Err(Error::Audit(_))));
    let decider = world.decider("alice", Proof::Password);
    let decided = world.approvals.decide(&held.id, Verdict::Approve, &held.digest, None, &decider).await;
    assert!(matches!(decided, Err(Error::Audit(_))));
    assert_eq!(world.state(&held).await, State::Pending);
    let approved = world.approvals.get(&approved.id).await.unwrap().unwrap();
    assert!(world.approvals.consume(&approved, &world.people(), "r").await.is_err());
    // What could not be written down is not left for somebody to approve.
    assert_eq!(world.approvals.list(&[State::Pending]).await.unwrap().len(), 1);
}
