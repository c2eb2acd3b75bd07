//! A held call as a task (MCP Tasks extension, SEP-2663), for clients that say that they take one.
//!
//! The task is the held call: its id is the held call's, it belongs to whoever made that call, by the same client, at the
//! same route, and to everybody else it is unknown. It lives in the store, so it is there for whatever process is asked.
//! What the task comes to is what a caller who had waited would have been told: a result where the call ran, and where it
//! did not, a tool result that says why. `failed` is for JSON-RPC errors alone, as the extension has it.

use super::super::Gateway;
use super::super::exchange::{End, Exchange};
use super::super::receive::Received;
use super::super::record::Outcome;
use super::super::refuse::{Code, Refusal};
use super::{Caller, say};
use crate::clock::rfc3339;
use crate::identity::Principal;
use crate::jsonrpc::{Id, Kind, Node, Span};
use crate::mcp::{Declared, TASKS};
use crate::pages::text::exact_line;
use crate::snapshot::Route;
use crate::store::{Approval, ApprovalState as State};
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

/// How often a client should ask.
const POLL_INTERVAL_MS: u64 = 2_000;
const NO_INPUT: &str = "This call was approved and its server asked for more input, which a task of this gateway cannot \
                        pass on. Nothing more comes of it.";

impl Caller<'_> {
    /// Gives its caller a task that waits for `approval`. It is on the disk when this answers.
    pub(super) async fn give_task(&self, exchange: &mut Exchange, approval: &Approval) -> Result<Outcome, End> {
        let settings = &exchange.snapshot.config.approvals;
        let keep_ms = i64::try_from(settings.keep_result.duration().as_millis()).unwrap_or(i64::MAX);
        // Decided on at the last moment and used at the last moment, it is still kept as long as any result.
        let last_ms = approval.expires_at_ms.max(approval.usable_until_ms.unwrap_or_default());
        let until_ms = last_ms.saturating_add(approval.valid_for_ms).saturating_add(keep_ms);
        let until_ms = until_ms.max(approval.task_until_ms.unwrap_or_default());
        if approval.task_until_ms != Some(until_ms) {
            let set = self.approvals().set_task(&approval.id, Some(until_ms)).await;
            set.map_err(|error| self.unavailable(&error))?;
        }
        exchange.facts.code = Some(Code::Held.as_str());
        let task = task(approval, until_ms, &Standing::of(approval, None));
        conclude(exchange, self.received, "task", Some(task)).await?;
        Ok(Outcome::Refused)
    }
}

/// A subscription that names tasks is for clients that declare them (Tasks extension, "Task Status Notifications"). None is
/// told of a held call in this way: what the acknowledgement does not name, clients ask about.
///
/// # Errors
/// It declares none.
pub(in crate::proxy) fn check_subscription(
    exchange: &Exchange,
    route: &Route,
    received: &Received,
) -> Result<(), Refusal> {
    let params = Node::of(&received.body, Span::whole(&received.body)).get("params");
    let names_tasks = params.and_then(|params| params.get("notifications")?.get("taskIds")).is_some();
    let is_offered = exchange.snapshot.policy.may_hold(&route.name);
    if !names_tasks || !is_offered || Declared::of(&received.body).tasks {
        return Ok(());
    }
    Err(undeclared(received))
}

fn undeclared(received: &Received) -> Refusal {
    let needed = json!({ "extensions": { TASKS: {} } });
    let refusal = Refusal::error(Code::Capability, received.call.id.as_ref(), "Missing required client capability");
    refusal.data("requiredCapabilities", needed)
}

/// Answers `tasks/get`, `tasks/update` and `tasks/cancel`.
///
/// # Errors
/// There is no such task, as far as this principal may know; or the client's leaving.
pub(in crate::proxy) async fn answer(
    gateway: &Arc<Gateway>,
    exchange: &mut Exchange,
    route: &Route,
    principal: &Principal,
    received: &Received,
) -> Result<Outcome, End> {
    let caller = Caller { gateway, route, principal, received };
    let found = caller.own_task(exchange).await?;
    let id = received.call.id.as_ref();
    if found.is_none() && !exchange.snapshot.policy.may_hold(&route.name) {
        // Where nothing is held, tasks are not offered.
        return Err(Refusal::error(Code::Method, id, "Method not found").status(StatusCode::NOT_FOUND).into());
    }
    if !Declared::of(&received.body).tasks {
        return Err(undeclared(received).into());
    }
    if received.call.object.name().is_none() {
        return Err(Refusal::error(Code::Params, id, "params.taskId is missing, or not a string").into());
    }
    // The same for a task that never was, is another's or is over.
    let (approval, until_ms) = found.ok_or_else(|| Refusal::error(Code::Task, id, "Unknown task"))?;
    exchange.facts.approval = Some(Arc::clone(&approval.id));
    match received.call.method.name {
        "tasks/get" => return caller.get_task(exchange, &approval, until_ms).await,
        "tasks/cancel" => {
            // What runs already is not cut: whether it had done its work would not be known.
            let cancelled = gateway.approvals.cancel(&approval, exchange.id.as_str()).await;
            cancelled.map_err(|error| caller.unavailable_task(&error))?;
        }
        // Nothing is asked of clients here, and answers to what was not asked are ignored, as the extension has it.
        _ => {
            let params = Node::of(&received.body, Span::whole(&received.body)).get("params");
            let responses = params.and_then(|params| params.get("inputResponses"));
            if responses.is_none_or(|responses| responses.kind() != Kind::Object) {
                return Err(Refusal::error(Code::Params, id, "params.inputResponses is not an object").into());
            }
        }
    }
    conclude(exchange, received, "complete", None).await?;
    Ok(Outcome::Completed)
}

impl Caller<'_> {
    /// The task that is asked about, if it is this principal's here, and until when.
    async fn own_task(&self, exchange: &Exchange) -> Result<Option<(Approval, i64)>, End> {
        let id = self.received.call.object.name().unwrap_or_default();
        let known = self.approvals().get(id).await.map_err(|error| self.unavailable_task(&error))?;
        let now_ms = self.gateway.fetching.clock.unix_ms();
        let owner = super::asked::requester(self.principal, &exchange.snapshot);
        let is_own = |approval: &Approval| {
            let theirs = &approval.requester;
            let is_same = theirs.issuer == owner.issuer && theirs.subject == owner.subject;
            is_same && theirs.client == owner.client && *approval.upstream == *self.route.name
        };
        let found = known.filter(is_own).and_then(|approval| Some((approval.task_until_ms?, approval)));
        Ok(found.filter(|(until_ms, _)| now_ms < *until_ms).map(|(until_ms, approval)| (approval, until_ms)))
    }

    fn unavailable_task(&self, error: &crate::approval::Error) -> End {
        tracing::error!(%error, upstream = %self.route.name, "a task cannot be looked at");
        let id = self.received.call.id.as_ref();
        Refusal::error(Code::ApprovalUnavailable, id, "tasks cannot be looked at right now; try again").into()
    }

    async fn get_task(&self, exchange: &mut Exchange, approval: &Approval, until_ms: i64) -> Result<Outcome, End> {
        if approval.state == State::Approved {
            // Who asks shows a good token: what only they can let run, runs now.
            super::stand_in::attempt(Arc::clone(self.gateway), approval.id.clone(), Some(self.principal.clone()));
        }
        let answer = match approval.state {
            State::Completed | State::Failed => {
                self.approvals().answer_of(approval).map_err(|error| self.unavailable_task(&error))?
            }
            _ => None,
        };
        let standing = Standing::of(approval, answer.as_ref());
        conclude(exchange, self.received, "complete", Some(task(approval, until_ms, &standing))).await?;
        if answer.is_some() {
            // The next identical call is a new one. This one can be looked at again for as long as the task is there.
            self.approvals().received(&approval.id).await.map_err(|error| self.unavailable_task(&error))?;
        }
        Ok(Outcome::Completed)
    }
}

/// Where a task stands.
struct Standing {
    status: &'static str,
    message: String,
    /// The member with the result or the error, where it has come to one.
    outcome: Option<Bytes>,
}

impl Standing {
    fn of(approval: &Approval, answer: Option<&Bytes>) -> Standing {
        let note = approval.note.as_deref().map(exact_line);
        let (status, message) = match approval.state {
            State::Pending => ("working", say::awaiting(approval)),
            State::Approved => ("working", "Approved; it is about to run.".to_owned()),
            State::Consumed => ("working", "Approved and running.".to_owned()),
            State::Withdrawn => ("cancelled", note.clone().unwrap_or_default()),
            State::Completed | State::Failed if answer.is_some_and(|answer| answer.starts_with(b"\"error\"")) => {
                ("failed", note.clone().unwrap_or_else(|| "The server answered with an error.".to_owned()))
            }
            _ => ("completed", approval.state.as_str().to_owned()),
        };
        let outcome = match status {
            "failed" => answer.cloned(),
            "completed" => Some(answer.and_then(final_result).unwrap_or_else(|| in_words(approval, answer))),
            _ => None,
        };
        Standing { status, message, outcome }
    }
}

/// The answer, if it is the result of a call, and not a question or another server's task.
fn final_result(answer: &Bytes) -> Option<Bytes> {
    let text = [&b"{"[..], answer, b"}"].concat();
    let kind = Node::of(&text, Span::whole(&text)).get("result")?.get("resultType").and_then(Node::as_str);
    kind.is_none_or(|kind| kind == "complete").then(|| answer.clone())
}

/// What a caller who had waited would have been told.
fn in_words(approval: &Approval, answer: Option<&Bytes>) -> Bytes {
    let text = if answer.is_some() { NO_INPUT.to_owned() } else { say::told(approval).1 };
    let content = json!([{ "type": "text", "text": text }]);
    let result = json!({ "resultType": "complete", "content": content, "isError": true });
    format!(r#""result":{result}"#).into()
}

/// The members of a task, as JSON without the braces.
fn task(approval: &Approval, until_ms: i64, standing: &Standing) -> Vec<u8> {
    let times = [approval.ended_at_ms, approval.consumed_at_ms, approval.decided_at_ms];
    let updated_ms = times.into_iter().flatten().max().unwrap_or(approval.created_at_ms);
    let mut members = vec![
        ("taskId", Value::from(&*approval.id)),
        ("status", standing.status.into()),
        ("createdAt", rfc3339(approval.created_at_ms).into()),
        ("lastUpdatedAt", rfc3339(updated_ms).into()),
        ("ttlMs", until_ms.saturating_sub(approval.created_at_ms).max(0).into()),
        ("pollIntervalMs", POLL_INTERVAL_MS.into()),
    ];
    if !standing.message.is_empty() {
        members.push(("statusMessage", standing.message.as_str().into()));
    }
    let members: Vec<String> = members.iter().map(|(name, value)| format!(r#""{name}":{value}"#)).collect();
    let mut text = members.join(",").into_bytes();
    if let Some(outcome) = &standing.outcome {
        text.push(b',');
        text.extend_from_slice(outcome);
    }
    text
}

async fn conclude(
    exchange: &mut Exchange,
    received: &Received,
    kind: &str,
    members: Option<Vec<u8>>,
) -> Result<(), End> {
    let id = received.call.id.as_ref().map_or("null", Id::as_json);
    let mut text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"{kind}""#).into_bytes();
    if let Some(members) = members {
        text.push(b',');
        text.extend_from_slice(&members);
    }
    text.extend_from_slice(b"}}");
    Ok(exchange.conclude(StatusCode::OK, Vec::new(), text.into()).await?)
}
