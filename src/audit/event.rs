//! What can be recorded, and its text. The order of the keys is part of the format: it is the order of the fields here.
//!
//! An event borrows all it says, and becomes bytes on the thread of the one who records it.
//! `seq`, times, segment and hashes are put around these bytes by the writer, which alone knows them.

use super::members::{LIST_MAX, LONG_VALUE_MAX, Members};
use crate::redact::Redactor;
use std::sync::Arc;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Policy has judged a call.
    Decision,
    /// A call that was let through has ended.
    Result,
    /// A server asked something of its client in mid-call.
    Asked,
    /// A request was refused before policy saw it: no valid token, malformed, too large, unknown route.
    Refused,
    /// A new configuration came into force, or (with a `code`) was refused.
    Reload,
    /// The gateway stops of its own accord. A segment that ends without one was cut short.
    Stop,
    /// A person proved who they are.
    LoginSucceeded,
    /// Someone failed to.
    LoginFailed,
    /// A person has logged out.
    LoginEnded,
    /// A person let a client act for them.
    ConsentGiven,
    /// A person did not.
    ConsentDenied,
    /// A person was added.
    UserAdded,
    /// An OAuth client was added.
    ClientRegistered,
    /// An OAuth client was removed.
    ClientRemoved,
    /// Tokens were issued for a new grant.
    TokenIssued,
    /// Tokens were renewed.
    TokenRefreshed,
    /// A grant was ended; its tokens with it.
    TokenRevoked,
    /// A used-up refresh token or authorization code came again; its grant was ended.
    TokenReplayed,
    /// Signing keys were changed.
    KeyRotated,
    /// A call was held for a person.
    ApprovalRequested,
    /// An approver said yes or no.
    ApprovalDecided,
    /// Somebody wanted to decide, reopen, resolve or withdraw, and was refused.
    ApprovalRefused,
    /// An approval was used up, right before its call is forwarded.
    ApprovalConsumed,
    /// A held call came to an end, or (reopened) to a new beginning.
    ApprovalEnded,
    /// A webhook has taken a notice, or it was given up.
    WebhookEnded,
    /// An upstream that is a process of ours answers.
    UpstreamUp,
    /// It does not run, or not as it is to.
    UpstreamDown,
}

/// What policy said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Let through.
    Allowed,
    /// Refused.
    Denied,
    /// Waits for a person.
    Held,
}

/// For whom a token stands, as the log names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// A person; written `user:<name>`.
    User(&'a str),
    /// An OAuth client acting for itself; written `client:<id>`.
    Client(&'a str),
}

/// The principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who<'a> {
    /// Who vouches for them.
    pub issuer: &'a str,
    /// Who they are.
    pub subject: Subject<'a>,
    /// The OAuth client they use.
    pub client: &'a str,
    /// The grant behind the token: its name, not the token. Tokens of external issuers have none.
    pub grant: Option<&'a str>,
    /// Whom of this gateway the subject of an external issuer counts as; left out where that is nobody, or themselves.
    pub person: Option<&'a str>,
}

/// Arguments for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arguments<'a> {
    /// Compact JSON in printable ASCII, redacted. `None` where there was too much of it to be looked at.
    pub json: Option<&'a str>,
    /// How long they were as they were sent, in bytes.
    pub bytes: usize,
}

/// One thing that happened. Made with [`Event::new`] and struct update; what is left out is left out of the line.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// What happened.
    pub kind: Kind,
    /// The request it belongs to.
    pub request: Option<&'a str>,
    /// The trace it belongs to (W3C Trace Context: 32 hexadecimal digits).
    pub trace: Option<&'a str>,
    /// Who asked.
    pub principal: Option<Who<'a>>,
    /// The groups they were judged by.
    pub groups: &'a [String],
    /// Those of the groups that the token of an external issuer claimed, where a person's own came beside them.
    pub claimed: &'a [String],
    /// The scopes they were judged by.
    pub scopes: &'a [String],
    /// The address and port the request came from.
    pub peer: Option<&'a str>,
    /// The route it took.
    pub route: Option<&'a str>,
    /// The upstream it was for.
    pub upstream: Option<&'a str>,
    /// The JSON-RPC method, or the HTTP method where there was no message.
    pub method: Option<&'a str>,
    /// The tool, resource or prompt.
    pub object: Option<&'a str>,
    /// What policy said.
    pub decision: Option<Decision>,
    /// The rules that made it say so.
    pub rules: &'a [Arc<str>],
    /// The stable code of a refusal, such as `policy.denied`.
    pub code: Option<&'a str>,
    /// The configuration in force, by the beginning of its hash.
    pub snapshot: Option<&'a str>,
    /// The tag of the arguments' bytes as they were sent: the same arguments have the same one, and it cannot be guessed.
    pub arguments_hash: Option<&'a str>,
    /// The arguments, where the configuration wants them written down. Without what must not be.
    pub arguments: Option<Arguments<'a>>,
    /// Size of the request's body.
    pub body_bytes: Option<u64>,
    /// How it ended: `completed`, `upstream_error`, `client_gone`, …
    pub outcome: Option<&'a str>,
    /// The HTTP status that was answered.
    pub status: Option<u16>,
    /// From the request's head to the end of the answer.
    pub duration_us: Option<u64>,
    /// Bytes read from the client.
    pub bytes_in: Option<u64>,
    /// Bytes sent to the client.
    pub bytes_out: Option<u64>,
    /// The held call it is about.
    pub approval: Option<&'a str>,
    /// The digest of that call.
    pub digest: Option<&'a [u8; 32]>,
    /// How a person said it: `page`, `cli`, `webhook <name>`.
    pub via: Option<&'a str>,
    /// How many like it were left out before it; set by [`super::Audit::record_stranger`].
    pub unrecorded: Option<u64>,
    /// A sentence of ours for people, where the other keys do not say it. Never an argument, never a token.
    pub detail: Option<&'a str>,
}

// === impl Kind ===

impl Kind {
    /// The word in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Decision => "decision",
            Kind::Result => "result",
            Kind::Asked => "asked",
            Kind::Refused => "refused",
            Kind::Reload => "reload",
            Kind::Stop => "stop",
            Kind::LoginSucceeded => "login.succeeded",
            Kind::LoginFailed => "login.failed",
            Kind::LoginEnded => "login.ended",
            Kind::ConsentGiven => "consent.given",
            Kind::ConsentDenied => "consent.denied",
            Kind::UserAdded => "user.added",
            Kind::ClientRegistered => "client.registered",
            Kind::ClientRemoved => "client.removed",
            Kind::TokenIssued => "token.issued",
            Kind::TokenRefreshed => "token.refreshed",
            Kind::TokenRevoked => "token.revoked",
            Kind::TokenReplayed => "token.replayed",
            Kind::KeyRotated => "key.rotated",
            Kind::ApprovalRequested => "approval.requested",
            Kind::ApprovalDecided => "approval.decided",
            Kind::ApprovalRefused => "approval.refused",
            Kind::ApprovalConsumed => "approval.consumed",
            Kind::ApprovalEnded => "approval.ended",
            Kind::WebhookEnded => "webhook.ended",
            Kind::UpstreamUp => "upstream.up",
            Kind::UpstreamDown => "upstream.down",
        }
    }
}

// === impl Decision ===

impl Decision {
    /// The word in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Allowed => "allowed",
            Decision::Denied => "denied",
            Decision::Held => "held",
        }
    }
}

// === impl Event ===

impl<'a> Event<'a> {
    /// An event of this kind that says nothing else yet.
    pub fn new(kind: Kind) -> Event<'a> {
        Event {
            kind,
            request: None,
            trace: None,
            principal: None,
            groups: &[],
            claimed: &[],
            scopes: &[],
            peer: None,
            route: None,
            upstream: None,
            method: None,
            object: None,
            decision: None,
            rules: &[],
            code: None,
            snapshot: None,
            arguments_hash: None,
            arguments: None,
            body_bytes: None,
            outcome: None,
            status: None,
            duration_us: None,
            bytes_in: None,
            bytes_out: None,
            approval: None,
            digest: None,
            via: None,
            unrecorded: None,
            detail: None,
        }
    }

    /// Its members as they stand in the line, each with a comma before it.
    pub(super) fn encode(&self, redactor: &Redactor) -> Vec<u8> {
        let mut line = Members::redacted(redactor);
        line.short("request", self.request);
        line.word("event", Some(self.kind.as_str()));
        line.short("trace", self.trace);
        line.principal(self.principal);
        line.list("groups", self.groups, 2 * LIST_MAX);
        line.list("claimed", self.claimed, LIST_MAX);
        line.list("scopes", self.scopes, LIST_MAX);
        line.short("peer", self.peer);
        // Of a call that policy has judged, both are ours; of one it never saw, they may be anything.
        let named = if self.decision.is_some() || self.kind == Kind::Result { Members::known } else { Members::text };
        named(&mut line, "route", self.route);
        line.known("upstream", self.upstream);
        named(&mut line, "method", self.method);
        line.long_text("object", self.object);
        line.word("decision", self.decision.map(Decision::as_str));
        line.list("rules", self.rules, LONG_VALUE_MAX);
        line.short("code", self.code);
        line.short("snapshot", self.snapshot);
        line.short("arguments_hash", self.arguments_hash);
        line.number("body_bytes", self.body_bytes);
        line.short("outcome", self.outcome);
        line.number("status", self.status.map(u64::from));
        line.number("duration_us", self.duration_us);
        line.number("bytes_in", self.bytes_in);
        line.number("bytes_out", self.bytes_out);
        line.short("approval", self.approval);
        line.hash("digest", self.digest);
        line.text("via", self.via);
        line.number("unrecorded", self.unrecorded);
        line.text("detail", self.detail);
        // Last, for what room there is.
        line.arguments(self.arguments);
        line.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain;
    use super::*;
    use serde_json::Value;

    fn parsed(event: &Event<'_>) -> Value {
        let mut line = b"{\"seq\":1".to_vec();
        line.extend(event.encode(&Redactor::new(&[7; 32])));
        line.push(b'}');
        assert!(line.iter().all(|b| (0x20..0x7f).contains(b)), "{line:?}");
        assert!(line.len() < 16 * 1024 - 400, "{} bytes", line.len());
        serde_json::from_slice(&line).expect("a line is JSON")
    }

    #[test]
    fn keys_stand_in_their_order_and_absent_ones_are_left_out() {
        let rules = [Arc::from("r1"), Arc::from("r2")];
        let event = Event {
            request: Some("r_1"),
            principal: Some(Who {
                issuer: "http://gw",
                subject: Subject::User("alice"),
                client: "c1",
                grant: Some("g1"),
                person: None,
            }),
            object: Some("delete_repo"),
            decision: Some(Decision::Denied),
            rules: &rules,
            code: Some("policy.denied"),
            body_bytes: Some(120),
            ..Event::new(Kind::Decision)
        };

        assert_eq!(
            String::from_utf8(event.encode(&Redactor::new(&[7; 32]))).expect("ASCII"),
            r#","request":"r_1","event":"decision","principal":{"issuer":"http://gw","subject":"user:alice","client":"c1","grant":"g1"},"object":"delete_repo","decision":"denied","rules":["r1","r2"],"code":"policy.denied","body_bytes":120"#
        );
    }

    #[test]
    fn hostile_values_stay_one_object_and_come_back_as_they_were() {
        let hostile = "a\n{\"seq\":9}\r\u{2028}\u{202e}\"\\\u{0}\u{1b}[2J\u{7f}é😀";
        let event = Event { object: Some(hostile), route: Some(hostile), ..Event::new(Kind::Refused) };

        let line = parsed(&event);

        assert_eq!(line["object"], hostile);
        assert_eq!(line["route"], hostile);
    }

    #[test]
    fn a_megabyte_is_cut_with_its_length_and_hash() {
        let name = "x".repeat(1 << 20);
        let event = Event { object: Some(&name), ..Event::new(Kind::Decision) };

        let line = parsed(&event);

        let kept = line["object"].as_str().expect("still a string");
        assert!(name.starts_with(kept) && kept.len() > 1000);
        let cut = &line["cut"][0];
        assert_eq!(cut["key"], "object");
        assert_eq!(cut["bytes"], 1 << 20);
        assert_eq!(cut["sha256"], chain::Hash(chain::sha256(name.as_bytes())).to_string());
    }

    #[test]
    fn a_line_with_everything_too_long_stays_within_its_limit() {
        let long = "\u{1F600}".repeat(100_000);
        let names: Vec<String> = (0..500).map(|n| format!("group {n} \u{1F600}")).collect();
        let rules: Vec<Arc<str>> = (0..500).map(|n| format!("rule {n} \n").into()).collect();
        let event = Event {
            kind: Kind::Decision,
            request: Some(&long),
            trace: Some(&long),
            groups: &names,
            claimed: &names,
            scopes: &names,
            principal: Some(Who {
                issuer: &long,
                subject: Subject::Client(&long),
                client: &long,
                grant: Some(&long),
                person: Some(&long),
            }),
            peer: Some(&long),
            route: Some(&long),
            upstream: Some(&long),
            method: Some(&long),
            object: Some(&long),
            decision: Some(Decision::Allowed),
            rules: &rules,
            code: Some(&long),
            snapshot: Some(&long),
            arguments_hash: Some(&long),
            arguments: Some(Arguments { json: Some(&long), bytes: long.len() }),
            body_bytes: Some(u64::MAX),
            outcome: Some(&long),
            status: Some(u16::MAX),
            duration_us: Some(u64::MAX),
            bytes_in: Some(u64::MAX),
            bytes_out: Some(u64::MAX),
            approval: Some(&long),
            digest: Some(&[7; 32]),
            via: Some(&long),
            unrecorded: Some(u64::MAX),
            detail: Some(&long),
        };

        let line = parsed(&event);

        assert_eq!(line["cut"].as_array().expect("a list").len(), 24);
        assert_eq!(line["rules"][0], "rule 0 \n");
    }

    #[test]
    fn arguments_stand_whole_or_are_named_as_left_out() {
        let check = |json: Option<&str>, expected: Value, n_cut: usize| {
            let long = "x".repeat(600);
            let arguments = Some(Arguments { json, bytes: 77 });
            let event = Event { detail: Some(&long), arguments, ..Event::new(Kind::Decision) };
            let line = parsed(&event);
            assert_eq!(line["arguments"], expected);
            let cuts = line["cut"].as_array().expect("the detail was cut");
            assert_eq!(cuts.len(), 1 + n_cut, "{cuts:?}");
            if n_cut > 0 {
                assert_eq!(cuts[1], serde_json::json!({ "key": "arguments", "bytes": 77 }), "and no hash to guess by");
            }
        };
        check(Some(r#"{"a":[1,"\u00e9"]}"#), serde_json::json!({ "a": [1, "é"] }), 0);
        let (fits, too_long) = ("y".repeat(14_800), "y".repeat(16_000));
        check(Some(&format!("\"{fits}\"")), fits.as_str().into(), 0);
        check(Some(&format!("\"{too_long}\"")), Value::Null, 1);
        check(None, Value::Null, 1);
    }
}
