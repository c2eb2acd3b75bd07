//! One recorded decision, made again: by the policy of another configuration, with the people it knows, and with what the
//! record says of the call. What the record does not say is not guessed.

use super::record::Record;
use crate::config::Loaded;
use crate::identity::{Principal, Subject};
use crate::jsonrpc::{Node, Span};
use crate::mcp::{Method, Verb};
use crate::policy::{Decision, Learned, Object, Outlook, Policy, Ruling, Seen, Sighting, Verdict};
use crate::redact::Redactor;
use crate::snapshot::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What judges.
pub(super) struct Judge<'a> {
    new: &'a Snapshot,
    /// The configuration in force, where it compiles: what was decided under it tells of arguments that are not recorded.
    old: Option<&'a Snapshot>,
    /// The tags of an empty object.
    of_nothing: BTreeSet<String>,
    /// Issuers whose tokens may stand for other groups than they did.
    changed_issuers: BTreeSet<String>,
}

/// How a decision stands to the one that was recorded.
pub(super) enum Judged {
    Same {
        /// Where the rules are known for sure and are others.
        by_other_rules: bool,
    },
    Changed {
        from: &'static str,
        to: &'static str,
        because: By,
        rules: Vec<String>,
        why: String,
    },
    Unknown {
        reason: String,
        rules: Vec<String>,
    },
}

/// What makes the difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    Rules,
    /// Who asked is in other groups, or is nobody any more.
    People,
}

/// What a gateway would answer.
enum Answer {
    Verdict(Verdict),
    /// Refused before the policy is asked.
    Refused(String),
    Unknown(String, Vec<Arc<str>>),
}

/// What the record says of a call.
struct Recorded<'a> {
    record: &'a Record,
    verb: Verb,
    upstream: &'a str,
    object: Option<&'a str>,
    arguments: Seen<'a>,
    principal: Principal,
    ruling: Ruling,
}

impl<'a> Judge<'a> {
    pub(super) fn new(new: &'a Snapshot, current: &Loaded, old: Option<&'a Snapshot>, redactors: &[Redactor]) -> Self {
        let of_nothing = redactors.iter().map(|redactor| redactor.tag(b"{}").as_str().to_owned()).collect();
        let issuers = |config: &crate::config::Config| -> BTreeSet<(String, String)> {
            config.identity.issuers.iter().map(|it| (it.issuer.clone(), format!("{it:?}"))).collect()
        };
        let (before, after) = (issuers(&current.config), issuers(&new.config));
        let changed_issuers = after.difference(&before).map(|(name, _)| name.clone()).collect();
        Judge { new, old, of_nothing, changed_issuers }
    }

    /// Makes the decision again.
    pub(super) fn judge(&self, record: &Record) -> Judged {
        let call = match self.recorded(record) {
            Ok(call) => call,
            Err(reason) => return Judged::Unknown { reason, rules: Vec::new() },
        };
        let learned = self.learned(&call);
        match self.answer(&call, &learned) {
            Answer::Unknown(reason, rules) => Judged::Unknown { reason, rules: owned(&rules) },
            // It is not let through in either case.
            Answer::Refused(_) if call.ruling == Ruling::Denied => Judged::Same { by_other_rules: false },
            Answer::Refused(why) => {
                let (from, to) = (call.ruling.as_str(), "refused");
                Judged::Changed { from, to, because: By::People, rules: Vec::new(), why }
            }
            Answer::Verdict(verdict) if verdict.ruling == call.ruling => {
                let is_sure = matches!(call.arguments, Seen::Whole(_));
                let is_other = verdict.rules.iter().map(|rule| &**rule).ne(record.list("rules"));
                Judged::Same { by_other_rules: is_sure && is_other && !record.is_cut("rules") }
            }
            Answer::Verdict(verdict) => Judged::Changed {
                from: call.ruling.as_str(),
                to: verdict.ruling.as_str(),
                because: self.because(&call, &learned),
                why: why(&verdict),
                rules: owned(&verdict.rules),
            },
        }
    }

    fn recorded(&self, record: &'a Record) -> Result<Recorded<'a>, String> {
        for key in NEEDED {
            if record.is_cut(key) {
                return Err(format!("`{key}` was too long for the record"));
            }
        }
        if is_redacted(record) {
            return Err("who asked, or for what, is recorded with a tag in it".to_owned());
        }
        let method = record.text("method").unwrap_or_default();
        let others = [Method::STREAM, Method::END_SESSION, Method::ANSWER];
        let method = Method::named(method).or_else(|| others.into_iter().find(|other| other.name == method));
        let method = method.ok_or("its method is not known to this version")?;
        let principal = principal(record).ok_or("the record does not say by whom the call was made")?;
        if principal.is_local && principal.scopes.is_empty() && principal.groups.is_empty() {
            return Err("the record says no scopes: an older version wrote it".to_owned());
        }
        let ruling = record.text("decision").and_then(Ruling::named).ok_or("the record says no decision")?;
        let upstream = record.text("upstream").ok_or("the record names no upstream")?;
        let object = record.text("object");
        let arguments = self.arguments(record, method.verb);
        Ok(Recorded { record, verb: method.verb, upstream, object, arguments, principal, ruling })
    }

    fn arguments(&self, record: &'a Record, verb: Verb) -> Seen<'a> {
        let Some(hash) = record.text("arguments_hash").filter(|_| has_arguments(verb)) else {
            return Seen::Whole(None);
        };
        match record.node("arguments") {
            Some(arguments) if may_hide(arguments.text()) => Seen::Except(arguments, is_hidden),
            Some(arguments) => Seen::Whole(Some(arguments)),
            None if self.of_nothing.contains(hash) => Seen::Whole(Some(Node::of(b"{}", Span { start: 0, end: 2 }))),
            None => Seen::Nothing,
        }
    }

    /// What a decision of the configuration in force tells of arguments.
    fn learned(&self, call: &Recorded<'_>) -> Learned {
        let record = call.record;
        let of_it = |old: &&Snapshot| Some(old.hash.as_str()) == record.text("snapshot");
        let (Some(old), Some(object)) = (self.old.filter(of_it), call.about()) else {
            return Learned::default();
        };
        if !has_arguments(call.verb) || record.is_cut("rules") {
            return Learned::default();
        }
        old.policy.learn(&call.sighting(&call.principal, object), call.ruling, &record.list("rules"))
    }

    fn answer(&self, call: &Recorded<'_>, learned: &Learned) -> Answer {
        if !self.new.routes.contains_key(call.upstream) {
            return Answer::Refused(format!("the upstream `{}` is not configured", call.upstream));
        }
        if !call.principal.is_local && self.changed_issuers.contains(&*call.principal.issuer) {
            return Answer::Unknown(
                "what the issuer's tokens stand for is configured otherwise".to_owned(),
                Vec::new(),
            );
        }
        match self.renewed(call) {
            Ok(principal) => self.new.policy.again(call, &principal, learned),
            Err(why) => Answer::Refused(why),
        }
    }

    /// Who asked, as this configuration knows them.
    fn renewed(&self, call: &Recorded<'_>) -> Result<Principal, String> {
        let principal = &call.principal;
        let unknown = || match &principal.subject {
            Subject::User(name) => format!("the user `{name}` is not configured"),
            Subject::Client(id) => format!("the client `{id}` may not act on its own account"),
        };
        if !principal.is_local && self.new.issuers.get(&principal.issuer).is_none() {
            return Err(format!("the issuer `{}` is not configured", principal.issuer));
        }
        if let (true, Subject::Client(id)) = (principal.is_local, &principal.subject) {
            let machine = self.new.clients.machine(id, &self.new.users).ok_or_else(unknown)?;
            if !machine.routes.iter().any(|route| route == call.upstream) {
                return Err(format!("the client `{id}` may not use the route `{}`", call.upstream));
            }
        }
        principal.renewed(&self.new.users, &self.new.clients).ok_or_else(unknown)
    }

    /// Whether the rules alone, asked about who asked as they were then, make the difference.
    fn because(&self, call: &Recorded<'_>, learned: &Learned) -> By {
        match self.new.policy.again(call, &call.principal, learned) {
            Answer::Verdict(verdict) if verdict.ruling == call.ruling => By::People,
            _ => By::Rules,
        }
    }
}

impl Policy {
    /// Judges a recorded call as `proxy::inspect` judges one that comes in.
    fn again(&self, call: &Recorded<'_>, principal: &Principal, learned: &Learned) -> Answer {
        if let Some(allowed) = self.admit(call.verb, call.object.is_none()) {
            return Answer::Verdict(Verdict::of(&Decision::Allowed(allowed)));
        }
        let Some(name) = call.object else {
            return Answer::Verdict(Verdict::of(&Decision::unlisted()));
        };
        let refer = |object| Verdict::of(&self.decide_reference(principal, call.upstream, object));
        if call.verb == Verb::Complete {
            let (prompt, resource) = (refer(Object::Prompt(name)), refer(Object::Resource(name)));
            let reason = "the record does not say whether a prompt or a resource was completed";
            return if prompt.ruling == resource.ruling {
                Answer::Verdict(prompt)
            } else {
                Answer::Unknown(reason.to_owned(), Vec::new())
            };
        }
        let Some(object) = call.about() else {
            return Answer::Verdict(Verdict::of(&Decision::unlisted()));
        };
        match self.outlook(&call.sighting(principal, object), learned) {
            Outlook::Sure(verdict) if call.verb == Verb::Listen && verdict.ruling == Ruling::Allowed => {
                // It was judged by the strictest of those it names, and the record names the first.
                Answer::Unknown("of several resources only the first is recorded".to_owned(), Vec::new())
            }
            Outlook::Sure(verdict) => Answer::Verdict(verdict),
            Outlook::Open { rules, .. } => {
                let reason = match call.arguments {
                    Seen::Except(..) => "some arguments are recorded masked or as tags",
                    _ if call.record.is_cut("arguments") => "the arguments were too long for the record",
                    _ => "the arguments are not recorded",
                };
                Answer::Unknown(reason.to_owned(), rules)
            }
        }
    }
}

impl<'a> Recorded<'a> {
    fn about(&self) -> Option<Object<'a>> {
        let name = self.object?;
        match self.verb {
            Verb::CallTool => Some(Object::Tool(name)),
            Verb::GetPrompt => Some(Object::Prompt(name)),
            Verb::ReadResource | Verb::Listen => Some(Object::Resource(name)),
            _ => None,
        }
    }

    fn sighting<'b>(&'b self, principal: &'b Principal, object: Object<'b>) -> Sighting<'b> {
        Sighting { principal, upstream: self.upstream, object, arguments: self.arguments }
    }
}

// === impl By ===

impl By {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            By::Rules => "rules",
            By::People => "people",
        }
    }
}

/// As they were judged.
fn principal(record: &Record) -> Option<Principal> {
    let all = |key| -> Arc<[String]> { record.list(key).into_iter().map(str::to_owned).collect() };
    let subject = record.of_principal("subject")?;
    let subject = match (subject.strip_prefix("user:"), subject.strip_prefix("client:")) {
        (Some(name), _) => Subject::User(name.into()),
        (None, Some(id)) => Subject::Client(id.into()),
        (None, None) => return None,
    };
    let grant: Option<Arc<str>> = record.of_principal("grant").map(Into::into);
    // Only tokens of this gateway have one.
    let is_local = grant.is_some();
    let other: Option<Arc<str>> = record.of_principal("person").map(Into::into);
    let (groups, claimed) = (all("groups"), all("claimed"));
    let person = match &subject {
        Subject::User(name) if is_local => Some(Arc::clone(name)),
        _ => other.clone(),
    };
    Some(Principal {
        issuer: record.of_principal("issuer")?.into(),
        subject,
        client: record.of_principal("client")?.into(),
        scopes: all("scopes"),
        claimed: if is_local || other.is_some() { claimed } else { Arc::clone(&groups) },
        groups,
        grant,
        until: None,
        is_local,
        person,
    })
}

/// Whether redaction has left less of a name than there was. The names of a gateway's own people and tools hold no secrets.
fn is_redacted(record: &Record) -> bool {
    let texts = ["upstream", "object"].into_iter().filter_map(|key| record.text(key));
    let whose =
        ["issuer", "subject", "client", "grant", "person"].into_iter().filter_map(|key| record.of_principal(key));
    let lists = ["groups", "claimed", "scopes"].into_iter().flat_map(|key| record.list(key));
    texts.chain(whose).chain(lists).any(is_hidden)
}

fn has_arguments(verb: Verb) -> bool {
    matches!(verb, Verb::CallTool | Verb::GetPrompt)
}

fn why(verdict: &Verdict) -> String {
    match verdict.ruling {
        Ruling::Denied if !verdict.wanted_scopes.is_empty() => {
            format!("for want of a scope; the token should carry {}", verdict.wanted_scopes.join(" "))
        }
        Ruling::Denied if verdict.rules.is_empty() => "no rule allows it".to_owned(),
        _ => String::new(),
    }
}

fn owned(rules: &[Arc<str>]) -> Vec<String> {
    rules.iter().map(ToString::to_string).collect()
}

/// Whether anything in recorded arguments may stand for something else.
fn may_hide(arguments: &str) -> bool {
    arguments.contains(MASKED) || arguments.contains(TAG)
}

fn is_hidden(text: &str) -> bool {
    text == MASKED || text.contains(TAG)
}

const MASKED: &str = "[masked]";
const TAG: &str = "hmac:";
/// What must be whole for a decision to be made again.
const NEEDED: [&str; 11] = [
    "upstream",
    "method",
    "object",
    "groups",
    "claimed",
    "scopes",
    "principal.issuer",
    "principal.subject",
    "principal.client",
    "principal.grant",
    "principal.person",
];
