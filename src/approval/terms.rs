//! What the rules that held a call ask for, as it is kept with the call.

use crate::jsonrpc::{Kind, Node};
use crate::policy::{Approvers, Hold};
use crate::store::{Approval, ApprovalDecision, Requester, Step};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Places in the arguments that one hold points out at most.
const MAX_FINDINGS: usize = 50;

/// What the rules ask for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Terms {
    /// Who may approve; each of these sets needs its people.
    pub approvers: Vec<Approvers>,
    /// Whether the requester may be among them.
    pub by_requester: bool,
    /// Arguments whose values approvers do not see, as JSON Pointers.
    pub mask: BTreeSet<String>,
    /// What the rules' signals found in the arguments.
    pub findings: Vec<Finding>,
    /// What people must know of an earlier call that was the same, where something is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The request that asked for it first, as a W3C `traceparent`, where traces are on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// A signal that found something.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Finding {
    /// The signal's name.
    pub signal: String,
    /// Where, as a JSON Pointer into the arguments.
    pub at: String,
}

/// The groups that a person is in at the moment; `None` for nobody.
pub type People = Arc<dyn Fn(&str) -> Option<Arc<[String]>> + Send + Sync>;

/// Why a decision does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such held call, as far as this person may know.
    #[error("there is no such held call")]
    Unknown,
    /// It is not waiting for a decision any more.
    #[error("it is {0} already{how}", how = if *.0 == "approved" { ": `withdraw` takes it back" } else { "" })]
    Decided(
        /// Where it stands.
        &'static str,
    ),
    /// What the person saw is not what is held.
    #[error("this is not the digest of the call that is held: look at it again")]
    Digest,
    /// Nobody of the approvers that the rule names.
    #[error("you are not among its approvers")]
    NotEntitled,
    /// Their own call, where the rule has no `self: true`.
    #[error("it is your own call, and the rule does not let you approve it (`self`)")]
    OwnCall,
    /// Their own call, and the password was not entered with the decision.
    #[error("it is your own call: enter your password with the decision")]
    NeedsPassword,
    /// They have decided before.
    #[error("you have decided on it already; another person is needed, or withdraw it")]
    Twice,
}

impl Refused {
    /// Stable; stands in records and answers.
    pub fn code(&self) -> &'static str {
        match self {
            Refused::Unknown => "approval.unknown",
            Refused::Decided(_) => "approval.decided",
            Refused::Digest => "approval.digest",
            Refused::NotEntitled => "approval.not_entitled",
            Refused::OwnCall => "approval.own_call",
            Refused::NeedsPassword => "approval.needs_password",
            Refused::Twice => "approval.twice",
        }
    }
}

/// How sure it is who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A session of a browser.
    Session,
    /// The password, entered with this very decision.
    Password,
    /// A webhook's signature: it speaks for the person, and never on their own call.
    Signature,
}

impl Terms {
    /// What `hold` asks for on these arguments.
    pub fn of(hold: &Hold, arguments: Option<Node<'_>>) -> Terms {
        let mut findings = Vec::new();
        if let Some(arguments) = arguments {
            search(hold, arguments, &mut String::new(), &mut findings);
        }
        Terms {
            approvers: hold.approvers.clone(),
            by_requester: hold.by_requester,
            mask: hold.mask.clone(),
            findings,
            warning: None,
            trace: None,
        }
    }

    /// Of a held call. One that cannot be read lets nobody approve.
    pub fn read(text: &str) -> Option<Terms> {
        serde_json::from_str(text).ok()
    }

    /// As it is kept.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers can be written as JSON")
    }

    /// Whether a person may decide at all, the way they are known here.
    ///
    /// # Errors
    /// Why not.
    pub fn admit(
        &self,
        requester: &Requester,
        person: &str,
        groups: &[String],
        proof: Proof,
        approves: bool,
    ) -> Result<(), Refused> {
        if !self.approvers.iter().any(|set| set.include(person, groups)) {
            return Err(Refused::NotEntitled);
        }
        let is_own = requester.person.as_deref() == Some(person);
        match (is_own, self.by_requester, proof) {
            (false, ..) | (true, true, Proof::Password) => Ok(()),
            (true, true, Proof::Session) if !approves => Ok(()),
            (true, true, Proof::Session) => Err(Refused::NeedsPassword),
            (true, false, _) | (true, true, Proof::Signature) => Err(Refused::OwnCall),
        }
    }

    /// Whether these people are enough. Everybody is counted as what they are now.
    pub fn are_met_by(&self, approving: &[&str], people: &People) -> bool {
        !self.approvers.is_empty()
            && self.approvers.iter().all(|set| {
                let is_of_set = |name: &&str| people(name).is_some_and(|groups| set.include(name, &groups));
                let names: BTreeSet<&str> = approving.iter().copied().filter(is_of_set).collect();
                names.len() >= usize::try_from(set.quorum.max(1)).unwrap_or(usize::MAX)
            })
    }

    /// What a decision makes of a call, after those that were made before it.
    pub(super) fn step(&self, person: &str, approves: bool, before: &[ApprovalDecision], people: &People) -> Step {
        let yes = before.iter().filter(|said| said.approves).map(|said| &*said.person);
        let approving: Vec<&str> = yes.chain([person]).collect();
        match approves {
            false => Step::Denies,
            true if self.are_met_by(&approving, people) => Step::Approves,
            true => Step::Counts,
        }
    }
}

/// Looks through every text in the arguments, names of members included.
fn search(hold: &Hold, node: Node<'_>, at: &mut String, findings: &mut Vec<Finding>) {
    let length = at.len();
    match node.kind() {
        Kind::String => find(hold, &node.as_str().unwrap_or_default(), at, findings),
        Kind::Array => {
            for (index, element) in node.elements().enumerate() {
                at.push_str(&format!("/{index}"));
                search(hold, element, at, findings);
                at.truncate(length);
            }
        }
        Kind::Object => {
            for (key, value) in node.members() {
                at.push('/');
                at.push_str(&key.replace('~', "~0").replace('/', "~1"));
                find(hold, &key, at, findings);
                search(hold, value, at, findings);
                at.truncate(length);
            }
        }
        Kind::Null | Kind::Bool | Kind::Number => {}
    }
}

fn find(hold: &Hold, text: &str, at: &str, findings: &mut Vec<Finding>) {
    for signal in &hold.signals {
        if findings.len() < MAX_FINDINGS && signal.pattern.is_match(text) {
            findings.push(Finding { signal: signal.name.to_string(), at: at.to_owned() });
        }
    }
}

/// Where a call must stand to be decided on.
pub(super) fn must_be_pending(approval: &Approval, now_ms: i64) -> Result<(), Refused> {
    use crate::store::ApprovalState as State;
    match approval.state {
        State::Pending if now_ms < approval.expires_at_ms => Ok(()),
        State::Pending => Err(Refused::Decided(State::Expired.as_str())),
        other => Err(Refused::Decided(other.as_str())),
    }
}
