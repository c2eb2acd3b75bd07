//! A held call in rounds (MCP 2026-07-28, "Multi Round-Trip Requests"), for clients that can show their person a page.
//!
//! The first answer asks the client to show the page of this held call, and to come back. Each time it does, it waits as
//! any caller waits, for less than the 60 s after which clients give up; then it is asked to come back once more, without
//! a question. What it sends back is a name and no right: that somebody saw the page decides nothing, and neither does
//! that they did not want to.

use super::super::exchange::{End, Exchange};
use super::super::peel::{QUESTION, Retry};
use super::super::record::Outcome;
use super::super::refuse::Code;
use super::Caller;
use crate::approval;
use crate::jsonrpc::{Id, Node, Span};
use crate::mcp::Declared;
use crate::store::{Approval, ApprovalState as State};
use crate::upstream::{HoldState, Scope};
use http::StatusCode;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How a caller is answered while its call waits for a person longer than the caller is kept waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In words: every client understands that.
    Words,
    /// With a task.
    Task,
    /// It is asked to come back, and was so often before.
    Round(u8),
}

/// Who can be told to come back is kept waiting only this long at first: a webhook may decide at once.
pub(super) const AT_ONCE: Duration = Duration::from_secs(1);
/// No round lasts longer. Clients give a request 60 s.
pub(super) const LONGEST_ROUND: Duration = Duration::from_secs(50);
/// So often a client is asked to come back with one call; the SDKs give up after ten times.
const MAX_ROUNDS: u8 = 9;
/// What a call carries for its server is kept by its client as well, up to so many bytes.
const MAX_CARRIED: usize = 64 * 1024;

const NOT_SHOWN: &str = "The page of this held call was not shown, or was declined. That takes nothing back: who asked for \
                         it can withdraw it on that page.";

impl Way {
    /// For how long a caller waits before it is answered in this way.
    pub(super) fn wait(self, wait: Duration) -> Duration {
        match self {
            Way::Words => wait,
            Way::Task | Way::Round(0) => wait.min(AT_ONCE),
            Way::Round(_) => wait.min(LONGEST_ROUND),
        }
    }
}

impl Caller<'_> {
    /// The best of what the request in hand declares; nothing is taken from an earlier one.
    pub(super) fn way(&self) -> Way {
        if self.received.call.era == crate::mcp::Era::Legacy {
            return Way::Words;
        }
        let declared = Declared::of(&self.received.body);
        match &self.received.retry {
            Some(retry) => Way::Round(retry.state.n_rounds),
            None if declared.tasks => Way::Task,
            None if declared.url_elicitation && self.carried().is_some() => Way::Round(0),
            None => Way::Words,
        }
    }

    /// Whether a client that comes back does so with the call it was asked to come back with. Gives the held call where it
    /// runs already or has its answer: that is what it came back for, and nothing is asked for anew.
    ///
    /// # Errors
    /// It does not; or there is nothing left to come back for, and this is what became of it.
    pub(super) async fn come_back(&self, exchange: &mut Exchange, retry: &Retry) -> Result<Option<Approval>, End> {
        let known = self.approvals().get(&retry.state.approval).await.map_err(|error| self.unavailable(&error))?;
        let foreign = || self.state_refusal("params.requestState belongs to no such call; call again without it");
        let approval = known.ok_or_else(foreign)?;
        let kept = self.approvals().call_of(&approval).map_err(|error| self.unavailable(&error))?;
        // What was withdrawn or ran out holds nothing any more; it is only told what became of it.
        let is_erased = kept.is_none() && matches!(approval.state, State::Withdrawn | State::Expired);
        if !is_erased && !kept.is_some_and(|kept| self.has_same_arguments(&kept)) {
            return Err(self.state_refusal("params.requestState belongs to a call with other arguments"));
        }
        match approval.state {
            State::Completed | State::Failed if approval.received_at_ms.is_some() => {
                let why = "the call that params.requestState belongs to has run, and its result was given; call again \
                           without it to ask for another run";
                Err(self.state_refusal(why))
            }
            State::Pending if retry.is_declined => Err(self.told(&approval).say_first(NOT_SHOWN).into()),
            State::Denied | State::Expired | State::Withdrawn | State::Invalidated | State::Indeterminate => {
                Err(self.told(&approval).into())
            }
            State::Pending | State::Approved => Ok(None),
            State::Consumed | State::Completed | State::Failed => {
                exchange.facts.digest = Some(approval.digest);
                exchange.facts.approval = Some(Arc::clone(&approval.id));
                Ok(Some(approval))
            }
        }
    }

    fn state_refusal(&self, why: &str) -> End {
        let call = &self.received.call;
        super::super::refuse::Refusal::error(Code::State, call.id.as_ref(), why).into()
    }

    fn has_same_arguments(&self, kept: &approval::Call) -> bool {
        let mut sent = Vec::new();
        let arguments = self.received.call.arguments.map(|span| Node::of(&self.received.body, span));
        let is_canonical = arguments.is_none_or(|arguments| arguments.canonical(&mut sent).is_ok());
        let kept = kept.arguments().map(Node::text).unwrap_or_default();
        is_canonical && kept.as_bytes() == sent
    }

    /// Asks its client to come back. `None`: it was asked too often, or cannot be.
    pub(super) async fn ask_to_come_back(
        &self,
        exchange: &mut Exchange,
        approval: &Approval,
        n_rounds: u8,
    ) -> Result<Option<Outcome>, End> {
        let Some((input_responses, request_state)) = self.carried().filter(|_| n_rounds < MAX_ROUNDS) else {
            return Ok(None);
        };
        let state = HoldState {
            approval: approval.id.to_string(),
            n_rounds: n_rounds.saturating_add(1),
            input_responses,
            request_state,
        };
        let scope = Scope { upstream: &self.route.name, principal: self.principal };
        let tool = self.received.call.object.name().unwrap_or_default();
        let mut result = json!({
            "resultType": "input_required",
            "requestState": self.gateway.seal.hold_state(&state, tool, scope),
        });
        if n_rounds == 0 {
            let url = format!("{}/holds/{}", exchange.snapshot.public_url, approval.id);
            let params = json!({ "mode": "url", "url": url, "message": super::say::to_the_person(approval) });
            result["inputRequests"] = json!({ QUESTION: { "method": "elicitation/create", "params": params } });
        }
        let id = self.received.call.id.as_ref().map_or("null", Id::as_json);
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        exchange.facts.code = Some(Code::Held.as_str());
        exchange.conclude(StatusCode::OK, Vec::new(), message.into()).await?;
        Ok(Some(Outcome::Refused))
    }

    /// What the call itself carries for its server: what the client answered, as JSON, and the server's state as the
    /// client has it. `None`: more than a client could be asked to keep.
    fn carried(&self) -> Option<(Option<String>, Option<String>)> {
        let body = &self.received.body;
        let params = Node::of(body, Span::whole(body)).get("params");
        let responses = params.and_then(|params| params.get("inputResponses")).map(|node| node.text().to_owned());
        let state = self.received.call.state.and_then(|span| Node::of(body, span).as_str());
        let state = state.map(std::borrow::Cow::into_owned);
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        (length(&responses).saturating_add(length(&state)) <= MAX_CARRIED).then_some((responses, state))
    }
}
