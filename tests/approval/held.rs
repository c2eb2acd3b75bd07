//! Held calls without an agent: put into the store of a running gateway, the way the data path puts them there.

use crate::support::browser::{Browser, Page};
use crate::support::gateway::{Gateway, Launch, password};
use crate::support::wait_for;
use portcullis::approval::{Approvals, Ask, Call, Finding, Given, Parts, Terms};
use portcullis::audit::{Audit, Settings};
use portcullis::clock::Clock;
use portcullis::config::Sync;
use portcullis::jsonrpc::{Node, Span};
use portcullis::metrics::Metrics;
use portcullis::policy::Approvers;
use portcullis::store::{Approval, ApprovalState, Requester, Store, Subject};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A gateway with a page for approvers, on loopback. Beside `alice` (`admins`, `ops`) and `bob` (`ops`) there is `carol`
/// (`admins`), with bob's password.
pub(crate) fn gateway(top: &str) -> Gateway {
    launch(top).start()
}

/// The same before it is started.
pub(crate) fn launch(top: &str) -> Launch {
    Launch::new(&yaml(top, PEOPLE))
}

/// The configuration of that gateway with these people.
pub(crate) fn yaml(top: &str, people: &str) -> String {
    let admin = if top.contains("admin:") { "" } else { "admin: { listen: 127.0.0.1:0 }\n" };
    format!(
        "{admin}{top}\n{people}upstreams:\n  up: {{ http: {{ url: \"http://127.0.0.1:9/mcp\" }} }}\npolicy:\n  rules:\n    \
         - {{ name: risky, tools: [\"up/*\"], hold: {{ approvers: {{ groups: [admins] }} }} }}\n"
    )
}

/// People of these tests.
pub(crate) const PEOPLE: &str = concat!(
    "identity:\n  users:\n",
    "    - { name: alice, groups: [admins, ops], password_hash: \"$argon2id$v=19$m=19456,t=2,p=1",
    "$c2FsdC1vZi1hbGljZS0wMQ$RIgSXgcpy6dPFN530lQyNSFbf3OwFt3/2mUG400ua7o\" }\n",
    "    - { name: bob, groups: [ops], password_hash: \"$argon2id$v=19$m=19456,t=2,p=1",
    "$c2FsdC1vZi1ib2ItMDAwMQ$4d/FVgaWBrPIt8VfWkqhns6YugKL+YeeG395NvVRND4\" }\n",
    "    - { name: carol, groups: [admins], password_hash: \"$argon2id$v=19$m=19456,t=2,p=1",
    "$c2FsdC1vZi1ib2ItMDAwMQ$4d/FVgaWBrPIt8VfWkqhns6YugKL+YeeG395NvVRND4\" }\n",
);

/// What they type.
pub(crate) fn password_of(name: &str) -> String {
    password(if name == "carol" { "bob" } else { name })
}

/// Puts calls into a gateway's store.
pub(crate) struct Holder {
    runtime: Runtime,
    approvals: Approvals,
    issuer: String,
}

/// A call to be held.
pub(crate) struct Wish {
    pub(crate) upstream: &'static str,
    pub(crate) tool: String,
    pub(crate) arguments: String,
    pub(crate) by: &'static str,
    pub(crate) client: String,
    pub(crate) terms: Terms,
    pub(crate) expires: Duration,
}

/// What the rules ask for: so many of these groups.
pub(crate) fn terms(groups: &[&str], quorum: u32) -> Terms {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    Terms {
        approvers: vec![Approvers { users: BTreeSet::new(), groups, quorum }],
        by_requester: false,
        mask: BTreeSet::new(),
        findings: Vec::new(),
        warning: None,
        trace: None,
    }
}

impl Wish {
    /// Bob's call with these arguments, for one of `admins` to decide on.
    pub(crate) fn of(arguments: &str) -> Wish {
        Wish {
            upstream: "up",
            tool: "run_command".to_owned(),
            arguments: arguments.to_owned(),
            by: "bob",
            client: "https://claude.ai/oauth/claude-code-client-metadata".to_owned(),
            terms: terms(&["admins"], 1),
            expires: Duration::from_secs(1800),
        }
    }

    /// With this signal found here.
    pub(crate) fn found(mut self, signal: &str, at: &str) -> Wish {
        self.terms.findings.push(Finding { signal: signal.to_owned(), at: at.to_owned() });
        self
    }
}

impl Holder {
    /// For this gateway.
    pub(crate) fn of(gateway: &Gateway) -> Holder {
        let data_dir = gateway.path("data");
        let runtime = Runtime::new().expect("a runtime");
        let clock = Clock::System;
        let approvals = runtime.block_on(async {
            Approvals::new(Given {
                store: Store::open(&data_dir).await.expect("the store opens"),
                key: &portcullis::server::session_key(&data_dir).expect("the gateway has made it"),
                clock: clock.clone(),
                audit: Audit::open(Settings::new(&data_dir, [7; 32], Sync::Relaxed, clock.clone()))
                    .expect("the log opens"),
                metrics: Arc::new(Metrics::new()),
            })
        });
        Holder { runtime, approvals, issuer: format!("http://{}", gateway.agent) }
    }

    /// Holds a call.
    #[track_caller]
    pub(crate) fn hold(&self, wish: &Wish) -> Approval {
        let requester = Requester {
            issuer: self.issuer.as_str().into(),
            subject: Subject::User(wish.by.into()),
            client: wish.client.as_str().into(),
            person: Some(wish.by.into()),
            grant: None,
        };
        let arguments = wish.arguments.as_bytes();
        let call = Call::of(&Parts {
            requester: &requester,
            upstream: wish.upstream,
            endpoint: &[1; 32],
            definition: &[2; 32],
            tool: &wish.tool,
            arguments: Some(Node::of(arguments, Span::whole(arguments))),
            input_responses: None,
            request_state: None,
        });
        let ask = Ask {
            call: &call.expect("its numbers are safe"),
            requester,
            upstream: wish.upstream,
            rules: &["deletes are looked at".into()],
            rules_digest: [5; 32],
            terms: &wish.terms,
            expires: wish.expires,
            valid_for: Duration::from_secs(600),
            keep_result: Duration::from_secs(600),
            most_pending: 10_000,
            hooks: &[],
            request: "r_1",
            snapshot: "abc",
        };
        self.runtime.block_on(self.approvals.ask(ask)).expect("it is held")
    }

    /// Where it stands.
    #[track_caller]
    pub(crate) fn state(&self, held: &Approval) -> ApprovalState {
        let found = self.runtime.block_on(self.approvals.get(&held.id)).expect("the store answers");
        found.expect("it is there").state
    }
}

/// A browser at the approvals page, where this person has logged in.
#[track_caller]
pub(crate) fn logged_in(gateway: &Gateway, name: &str) -> Browser {
    logged_in_at(gateway.admin.expect("there is an admin listener"), name)
}

/// The same at this address.
#[track_caller]
pub(crate) fn logged_in_at(admin: SocketAddr, name: &str) -> Browser {
    let mut browser = Browser::new(admin);
    let page = browser.get("/");
    let page = browser.submit(&page, &[("username", name), ("password", &password_of(name))]);
    assert!(page.text().contains("<h1>Approvals</h1>"), "{}", page.text());
    browser
}

/// The page of one call.
pub(crate) fn path(held: &Approval) -> String {
    format!("/approvals/{}", held.id)
}

/// Opens a call and presses a button there, with this person's password.
#[track_caller]
pub(crate) fn decide(browser: &mut Browser, held: &Approval, name: &str, decision: &str) -> Page {
    let page = browser.get(&path(held));
    browser.submit(&page, &[("decision", decision), ("password", &password_of(name))])
}

/// Waits until the audit log has an event of this kind with this code about the call, and gives it.
#[track_caller]
pub(crate) fn recorded(gateway: &Gateway, kind: &str, code: &str) -> Value {
    let find = || gateway.audit().into_iter().rfind(|record| record["event"] == kind && record["code"] == code);
    wait_for(&format!("{kind} {code} in the audit log"), || find().is_some());
    find().expect("it was there")
}
