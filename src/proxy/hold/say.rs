//! What a caller is told of a held call: for a model to read and to act on, and for the person who reads along.
//!
//! Who may approve is said, and how is not: that is no business of the one who asks. What people wrote (the reason of a
//! denial, the name of a rule) is for a terminal and a model to read: what cannot be seen in it is written out.

use super::super::refuse::{Code, Refusal};
use super::Caller;
use crate::approval::Terms;
use crate::clock::rfc3339;
use crate::jsonrpc::NotIJson;
use crate::pages::text::exact_line;
use crate::policy::Approvers;
use crate::store::{Approval, ApprovalState as State};
use serde_json::json;
use std::fmt::Write as _;

pub(super) const NOT_RUN: &str = "This call did not run: it needs a person's approval.";
pub(super) const UNDEFINED: &str = "This call did not run: it needs a person's approval, and its server does not list the \
                                    tool, so that nobody could see what they approve.";
pub(super) const TOO_MANY: &str = "This call did not run and is not held: you have as many calls waiting for a person's \
                                   decision as you may. Wait until some of them are decided, then call again.";
pub(super) const NO_AUDIT: &str = "This call did not run: it needs a person's approval, and the gateway's audit log cannot \
                                   be written at the moment. Try again later.";
pub(super) const NO_STORE: &str = "This call did not run: it needs a person's approval, and what is held cannot be read or \
                                   written at the moment. Try again later.";
pub(super) const NOT_RELEASED: &str = "This call is approved and did not run: what it is approved for must be compared with \
                                       what its server offers now. Its approval stays; call again with exactly the same \
                                       arguments. What went wrong:";
pub(super) const BUSY: &str = "This call did not run: others make the same call at the same time. Call again.";
const UNKNOWN: &str = "Nobody knows whether this call ran: the gateway ended while it was running. It is not run again, and the \
                       same call is refused, until one of its approvers has said what became of it. Find out before you do \
                       anything like it.";
pub(super) const AGAIN: &str = "call again with exactly the same arguments";

/// A number that nobody could be sure of.
pub(super) fn not_exact(why: &NotIJson) -> String {
    format!(
        "This call did not run and cannot be held for approval: {why}, so that what is approved might not be what runs. \
         Send it as a string, or with fewer digits."
    )
}

impl Caller<'_> {
    /// What its caller is told of a call that stands like this, and has no answer to give.
    pub(super) fn told(&self, approval: &Approval) -> Refusal {
        let (code, text) = told(approval);
        self.refusal(code, text).meta("portcullis/approval", about(approval))
    }
}

/// For programs; the text says the same.
fn about(approval: &Approval) -> serde_json::Value {
    json!({
        "id": approval.id,
        "state": approval.state.as_str(),
        "expires_at": rfc3339(until(approval)),
    })
}

/// When what is so now ends by itself.
fn until(approval: &Approval) -> i64 {
    match approval.state {
        State::Approved => approval.usable_until_ms.unwrap_or(approval.expires_at_ms),
        _ => approval.expires_at_ms,
    }
}

pub(super) fn told(approval: &Approval) -> (Code, String) {
    let (id, until) = (&approval.id, rfc3339(until(approval)));
    let note = approval.note.as_deref().map_or_else(|| "no reason was given".to_owned(), exact_line);
    let note = note.as_str();
    match approval.state {
        State::Pending => (Code::Held, pending(approval, &until)),
        State::Approved => (
            Code::Held,
            format!("This call is approved and has not run yet (held call {id}). To run it, {AGAIN} before {until}."),
        ),
        State::Consumed => (
            Code::ApprovalRunning,
            format!(
                "This call was approved and runs; it has not answered yet (held call {id}). Do not change it: {AGAIN} to \
                 get its result, which does not run it a second time."
            ),
        ),
        State::Denied => (
            Code::ApprovalDenied,
            format!(
                "This call was denied by a person and did not run (held call {id}). Reason: {note}. The same call stays \
                 refused until {until}."
            ),
        ),
        State::Expired => (Code::ApprovalExpired, ended(id, note)),
        State::Withdrawn => (Code::ApprovalWithdrawn, ended(id, note)),
        State::Invalidated => (Code::ApprovalInvalidated, ended(id, &format!("its approval is void, because {note}"))),
        State::Indeterminate => (Code::ApprovalIndeterminate, format!("{UNKNOWN} (Held call {id}.)")),
        State::Completed | State::Failed => {
            (Code::ApprovalFailed, format!("This call came to its end without an answer (held call {id}): {note}."))
        }
    }
}

fn ended(id: &str, note: &str) -> String {
    format!("This call did not run (held call {id}): {note}. To ask anew, {AGAIN}.")
}

fn pending(approval: &Approval, until: &str) -> String {
    let rules: Vec<String> = approval.rules.iter().map(|rule| format!("`{}`", exact_line(rule))).collect();
    let rules = format!("rule{} {}", if rules.len() == 1 { "" } else { "s" }, rules.join(", "));
    let who = Terms::read(&approval.terms).map(|terms| approvers(&terms.approvers)).unwrap_or_default();
    format!(
        "This call is held: it needs a person's approval and has not run. Held call {id}, by {rules}. Approval can be given \
         by {who}, until {until}. To wait for it, {AGAIN}: once it is approved, that runs it, once.",
        id = approval.id
    )
}

/// What the task of a call that nobody has decided on says.
pub(super) fn awaiting(approval: &Approval) -> String {
    let who = Terms::read(&approval.terms).map(|terms| approvers(&terms.approvers)).unwrap_or_default();
    format!("Awaiting approval by {who}, until {}.", rfc3339(approval.expires_at_ms))
}

/// What a client tells its person, whom it asks to look at the page of a held call.
pub(super) fn to_the_person(approval: &Approval) -> String {
    format!(
        "The call of `{}` waits for somebody's approval. This page shows how it stands, and lets you withdraw it. Opening it \
         approves nothing.",
        exact_line(&approval.tool)
    )
}

/// `user \`bob\` or group \`admins\` (2 people), and by …`
fn approvers(sets: &[Approvers]) -> String {
    let set = |set: &Approvers| {
        let users = set.users.iter().map(|name| format!("user `{}`", exact_line(name)));
        let names: Vec<String> =
            users.chain(set.groups.iter().map(|name| format!("group `{}`", exact_line(name)))).collect();
        let mut text = names.join(" or ");
        if set.quorum > 1 {
            // A text takes whatever is written to it.
            let _ = write!(text, " ({} people)", set.quorum);
        }
        text
    };
    let mut sets: Vec<String> = sets.iter().map(set).collect();
    sets.dedup();
    if sets.is_empty() { "nobody".to_owned() } else { sets.join(", and by ") }
}
