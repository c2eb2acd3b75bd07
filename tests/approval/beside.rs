//! Held calls made beside a gateway, on its own store: for tests of what becomes of them, whichever way they came.

use crate::support::gateway::Launch;
use portcullis::approval::{Approvals, Ask, Call, Given, Parts, Terms, Verdict};
use portcullis::approval::{Decider, People, Place, Proof};
use portcullis::audit::{Audit, Settings};
use portcullis::clock::Clock;
use portcullis::config::Sync;
use portcullis::metrics::Metrics;
use portcullis::policy::Approvers;
use portcullis::store::{Approval, Requester, Store, Subject};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Another process on the store of a gateway, as far as the store can tell.
pub(crate) struct Beside {
    pub(crate) runtime: Runtime,
    pub(crate) approvals: Approvals,
}

/// A call that is to be held; made by [`call`], and changed where a test cares.
pub(crate) struct Wish {
    pub(crate) user: &'static str,
    pub(crate) tool: &'static str,
    pub(crate) arguments: String,
    pub(crate) terms: Terms,
    pub(crate) hooks: Vec<String>,
    pub(crate) expires: Duration,
}

/// A call of bob's that one of `admins` may approve.
pub(crate) fn call(arguments: &str) -> Wish {
    let set = Approvers { users: [].into(), groups: ["admins".to_owned()].into(), quorum: 1 };
    Wish {
        user: "bob",
        tool: "danger",
        arguments: arguments.to_owned(),
        terms: Terms {
            approvers: vec![set],
            by_requester: false,
            mask: [].into(),
            findings: Vec::new(),
            warning: None,
            trace: None,
        },
        hooks: Vec::new(),
        expires: Duration::from_secs(1800),
    }
}

impl Beside {
    /// On the store of the gateway in this folder, with its key.
    #[track_caller]
    pub(crate) fn new(data_dir: &Path) -> Beside {
        Beside::at(data_dir, Clock::System)
    }

    /// The same with a clock of its own.
    #[track_caller]
    pub(crate) fn at(data_dir: &Path, clock: Clock) -> Beside {
        let runtime = Runtime::new().expect("a runtime");
        let key = portcullis::server::session_key(data_dir).expect("the folder is ours");
        let approvals = runtime.block_on(async {
            Approvals::new(Given {
                store: Store::open(data_dir).await.expect("the store opens"),
                key: &key,
                clock: clock.clone(),
                audit: Audit::open(Settings::new(data_dir, [7; 32], Sync::Relaxed, clock)).expect("the log opens"),
                metrics: Arc::new(Metrics::new()),
            })
        });
        Beside { runtime, approvals }
    }

    /// The same, of a gateway that does not run.
    #[track_caller]
    pub(crate) fn of(launch: &Launch) -> Beside {
        std::fs::create_dir_all(launch.path("data")).expect("the folder is ours");
        Beside::new(&launch.path("data"))
    }

    /// Holds it.
    #[track_caller]
    pub(crate) fn hold(&self, wish: &Wish) -> Approval {
        let requester = Requester {
            issuer: "http://127.0.0.1:1".into(),
            subject: Subject::User(wish.user.into()),
            client: "cli".into(),
            person: Some(wish.user.into()),
            grant: None,
        };
        let parsed = parse(&wish.arguments);
        let parts = Parts {
            requester: &requester,
            upstream: "up",
            endpoint: &[1; 32],
            definition: &[2; 32],
            tool: wish.tool,
            arguments: parsed,
            input_responses: None,
            request_state: None,
        };
        let call = Call::of(&parts).expect("its numbers are of I-JSON");
        let ask = Ask {
            call: &call,
            requester: requester.clone(),
            upstream: "up",
            rules: &["risky".into()],
            rules_digest: [5; 32],
            terms: &wish.terms,
            expires: wish.expires,
            valid_for: Duration::from_secs(600),
            keep_result: Duration::from_secs(600),
            most_pending: 100,
            hooks: &wish.hooks,
            request: "r_test",
            snapshot: "test",
        };
        self.runtime.block_on(self.approvals.ask(ask)).expect("it is held")
    }

    /// The state of a held call, as a word.
    #[track_caller]
    pub(crate) fn state(&self, held: &Approval) -> &'static str {
        self.now(held).state.as_str()
    }

    /// A held call as it stands.
    #[track_caller]
    pub(crate) fn now(&self, held: &Approval) -> Approval {
        self.runtime.block_on(self.approvals.get(&held.id)).expect("the store is there").expect("it was held")
    }

    /// Decides as alice, who may.
    #[track_caller]
    pub(crate) fn decide(&self, held: &Approval, verdict: Verdict) {
        let decider = Decider {
            person: "alice",
            proof: Proof::Session,
            via: "page",
            place: Place::default(),
            people: everybody_an_admin(),
        };
        let deciding = self.approvals.decide(&held.id, verdict, &held.digest, None, &decider);
        self.runtime.block_on(deciding).expect("the store is there").expect("alice may");
    }

    /// Asks anew, as alice, and tells these webhooks.
    #[track_caller]
    pub(crate) fn reopen(&self, held: &Approval, hooks: &[String]) {
        let people = everybody_an_admin();
        let decider = Decider { person: "alice", proof: Proof::Password, via: "cli", place: Place::default(), people };
        let reopening = self.approvals.reopen(&held.id, hooks, &decider);
        self.runtime.block_on(reopening).expect("the store is there").expect("alice may");
    }

    /// Uses up an approval, and says nothing of how it ended.
    #[track_caller]
    pub(crate) fn consume(&self, held: &Approval) {
        let (now, people) = (self.now(held), everybody_an_admin());
        let consuming = self.approvals.consume(&now, &people, "r_test");
        // Only `finish` would end it.
        drop(self.runtime.block_on(consuming).expect("the store is there").expect("it is approved"));
    }
}

fn parse(text: &str) -> Option<portcullis::jsonrpc::Node<'_>> {
    let span = portcullis::jsonrpc::Span::whole(text.as_bytes());
    (!text.is_empty()).then(|| portcullis::jsonrpc::Node::of(text.as_bytes(), span))
}

fn everybody_an_admin() -> People {
    Arc::new(|_| Some(["admins".to_owned()].into()))
}
