//! From a call that policy holds to the held call in the store: the same one for everybody who makes the same call.

use super::super::exchange::{End, Exchange};
use super::super::forward::failed;
use super::super::refuse::Code;
use super::changed::{OTHER_PERSON, OTHER_RULES};
use super::{Caller, say};
use crate::approval::{self, Approvals, Ask, Parts, Terms};
use crate::identity::{Principal, Subject};
use crate::jsonrpc::{Node, Span};
use crate::mcp::Object;
use crate::policy::Held;
use crate::snapshot::Snapshot;
use crate::store::{Approval, ApprovalState as State, Requester};
use std::sync::Arc;

impl Caller<'_> {
    /// Holds the call, or joins it where the same one is held.
    ///
    /// # Errors
    /// It cannot be held; nothing is then kept.
    pub(super) async fn ask(&self, exchange: &mut Exchange, held: &Held) -> Result<Approval, End> {
        // Nothing else can be held; were a rule to say so, it would not run as something else.
        let Object::Tool(tool) = &self.received.call.object else {
            return Err(self.refusal(Code::Held, say::NOT_RUN).into());
        };
        let definition = self.definition(exchange, tool).await?;
        let call = self.call(exchange, tool, &definition)?;
        exchange.facts.digest = Some(*call.digest());
        let terms = Terms { trace: exchange.trace.to_text(), ..Terms::of(&held.hold, call.arguments()) };
        let mut approval = self.ask_for(exchange, held, &call, &terms).await?;
        if let Some(why) = self.why_void(exchange, held, &approval) {
            // Who approved it now would approve it for nothing.
            let ended = self.approvals().invalidate(&approval, why).await;
            ended.map_err(|error| self.unavailable(&error))?;
            approval = self.ask_for(exchange, held, &call, &terms).await?;
        }
        exchange.facts.approval = Some(Arc::clone(&approval.id));
        Ok(approval)
    }

    async fn ask_for(
        &self,
        exchange: &Exchange,
        held: &Held,
        call: &approval::Call,
        terms: &Terms,
    ) -> Result<Approval, End> {
        let settings = &exchange.snapshot.config.approvals;
        let hooks = settings.hook_names();
        let ask = Ask {
            call,
            requester: requester(self.principal, &exchange.snapshot),
            upstream: &self.route.name,
            rules: &held.rules,
            rules_digest: held.rules_digest,
            terms,
            expires: held.hold.expires.unwrap_or(settings.expires.duration()),
            valid_for: held.hold.valid_for.unwrap_or(settings.valid_for.duration()),
            keep_result: settings.keep_result.duration(),
            most_pending: settings.pending as usize,
            hooks: &hooks,
            request: exchange.id.as_str(),
            snapshot: &exchange.snapshot.hash,
        };
        self.approvals().ask(ask).await.map_err(|error| self.unavailable(&error))
    }

    /// The digest of the tool's definition, which approvers are shown and the approval is bound to.
    async fn definition(&self, exchange: &mut Exchange, tool: &str) -> Result<[u8; 32], End> {
        let upstream = &self.route.upstream;
        if let Some(known) = upstream.definitions().tools.get(tool) {
            return Ok(known.digest);
        }
        let fetched = exchange.while_there(Box::pin(upstream.fetch(&self.gateway.shared))).await?;
        let fetched =
            fetched.map_err(|error| failed(self.gateway, self.route, self.received.call.id.as_ref(), &error))?;
        let known = fetched.tools.get(tool).map(|known| known.digest);
        known.ok_or_else(|| self.refusal(Code::ApprovalDefinition, say::UNDEFINED).into())
    }

    fn call(&self, exchange: &Exchange, tool: &str, definition: &[u8; 32]) -> Result<approval::Call, End> {
        let received = self.received;
        let params = Node::of(&received.body, Span::whole(&received.body)).get("params");
        let parts = Parts {
            requester: &requester(self.principal, &exchange.snapshot),
            upstream: &self.route.name,
            endpoint: &self.route.upstream.endpoint,
            definition,
            tool,
            arguments: received.call.arguments.map(|span| Node::of(&received.body, span)),
            input_responses: params.and_then(|params| params.get("inputResponses")),
            request_state: received.state.as_deref(),
        };
        let not_exact =
            |why: crate::jsonrpc::NotIJson| self.refusal(Code::ApprovalArguments, say::not_exact(&why)).because(why);
        Ok(approval::Call::of(&parts).map_err(not_exact)?)
    }

    /// Whether people are asked under rules that are not those in force, or as if another one asked. While a reload is
    /// under way, who came before it has nothing to say about that.
    fn why_void(&self, exchange: &Exchange, held: &Held, approval: &Approval) -> Option<&'static str> {
        let is_open = matches!(approval.state, State::Pending | State::Approved);
        if !is_open || !Arc::ptr_eq(&exchange.snapshot, &self.gateway.snapshots.load()) {
            return None;
        }
        let is_other = requester(self.principal, &exchange.snapshot).person != approval.requester.person;
        let has_other_rules = approval.rules_digest != held.rules_digest;
        is_other.then_some(OTHER_PERSON).or_else(|| has_other_rules.then_some(OTHER_RULES))
    }

    pub(super) fn approvals(&self) -> &Approvals {
        &self.gateway.approvals
    }

    /// Why it cannot be held, or not be gone on with.
    pub(super) fn unavailable(&self, error: &approval::Error) -> End {
        let (code, text) = match error {
            approval::Error::TooMany => (Code::ApprovalTooMany, say::TOO_MANY),
            approval::Error::Audit(_) => (Code::AuditUnavailable, say::NO_AUDIT),
            approval::Error::Store(_) | approval::Error::Sealed => (Code::ApprovalUnavailable, say::NO_STORE),
        };
        if code != Code::ApprovalTooMany {
            tracing::error!(%error, upstream = %self.route.name, "a held call cannot be served");
        }
        self.refusal(code, text).because(error).into()
    }
}

/// Who asks, as the held call keeps it: for a machine of ours, its owner answers.
pub(super) fn requester(principal: &Principal, snapshot: &Snapshot) -> Requester {
    let owner = match &principal.subject {
        Subject::Client(id) if principal.is_local => {
            snapshot.clients.machine(id, &snapshot.users).map(|machine| Arc::clone(&machine.owner))
        }
        _ => None,
    };
    Requester {
        issuer: Arc::clone(&principal.issuer),
        subject: principal.subject.clone(),
        client: Arc::clone(&principal.client),
        person: principal.person.clone().or(owner),
        grant: principal.grant.clone(),
    }
}
