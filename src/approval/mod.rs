//! Calls that are held for a person.
//!
//! A held call is a row in the store. Its life: asked for (`Approvals::ask`), decided on by people (`decide`), used up
//! (`Approvals::consume`, which commits before anything is forwarded), and ended with a result that waits for its caller
//! (`Approvals::finish`). What exactly is held is `call`'s; what the rules ask for, `terms`'.
//!
//! Never twice is promised, always once is not: what was running when its process ended is `indeterminate` until a person
//! says what became of it.
//!
//! Knows nothing of HTTP and of how callers are answered; that is `proxy::hold`'s, and the pages' `admin`'s.

mod call;
mod decide;
mod facts;
mod render;
mod terms;
#[cfg(test)]
mod tests;
mod vault;
mod watch;
pub mod webhook;

pub use call::{Call, Parts, hex};
pub use decide::{AT_TERMINAL, Decided, Decider, LONGEST_REASON, Place, Verdict};
pub use facts::{facts, is_waited_for, state_at};
pub use render::{Key, Rendered, Row};
pub use terms::{Finding, People, Proof, Refused, Terms};
pub use watch::Waiter;

use crate::audit::{Audit, Durability, Event, Kind, Subject as Named, Unavailable, Who};
use crate::clock::Clock;
use crate::fault;
use crate::metrics::Metrics;
use crate::store::{
    self, Approval, ApprovalDecision, ApprovalState as State, Holding, Move, NewNotice, Notice, NoticeCounts,
    Requester, Store, Subject,
};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use vault::{Content, Vault};
use watch::Waiters;

/// Erased after the end: the call and its result.
const ERASED_AFTER_MS: i64 = 24 * 60 * 60 * 1000;
/// Forgotten after the end: that there was such a call. (The audit log keeps it.)
const FORGOTTEN_AFTER_MS: i64 = 30 * ERASED_AFTER_MS;

/// How the note of a call ends that was sent and had no answer, and may have run or not.
pub const UNKNOWN_END: &str = "Whether it ran is not known.";
/// People are told of such a call for this long, where the same call comes again.
const WARNED_OF_MS: i64 = 60 * 60 * 1000;

/// Between tries to write down how a run ended.
const FINISH_AGAIN: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(15)];

/// Held calls; one per process. Clones share it.
#[derive(Clone)]
pub struct Approvals(Arc<Inner>);

struct Inner {
    store: Store,
    vault: Vault,
    clock: Clock,
    audit: Audit,
    metrics: Arc<Metrics>,
    waiters: Waiters,
}

/// What held calls need from their process.
pub struct Given<'a> {
    /// Where they are kept.
    pub store: Store,
    /// What seals them; shared by all processes of this gateway.
    pub key: &'a [u8; 32],
    /// Now.
    pub clock: Clock,
    /// Where every step is written down.
    pub audit: Audit,
    /// Where they are counted.
    pub metrics: Arc<Metrics>,
}

/// A call that is to be held.
#[derive(Debug)]
pub struct Ask<'a> {
    /// The call.
    pub call: &'a Call,
    /// Who asks.
    pub requester: Requester,
    /// The upstream.
    pub upstream: &'a str,
    /// The rules that hold it.
    pub rules: &'a [Arc<str>],
    /// SHA-256 over those rules.
    pub rules_digest: [u8; 32],
    /// What they ask for.
    pub terms: &'a Terms,
    /// The time for a decision.
    pub expires: Duration,
    /// The time for using an approval.
    pub valid_for: Duration,
    /// How long a result waits.
    pub keep_result: Duration,
    /// Undecided calls that one principal may have.
    pub most_pending: usize,
    /// Which webhooks are told of a new hold.
    pub hooks: &'a [String],
    /// The request it came with, for records.
    pub request: &'a str,
    /// The configuration in force, for records.
    pub snapshot: &'a str,
}

/// Why a held call could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store cannot be asked.
    #[error("the store of held calls cannot be used")]
    Store(#[from] store::Error),
    /// What happens cannot be written down, so it does not happen.
    #[error("the audit log cannot be written")]
    Audit(#[from] Unavailable),
    /// What is kept does not open: it was changed, or another key sealed it.
    #[error("what is kept of the held call cannot be read")]
    Sealed,
    /// The requester has as many undecided calls as they may.
    #[error("too many calls wait for a decision already")]
    TooMany,
}

/// The right to forward one approved call, once. Made by [`Approvals::consume`] alone; who holds one has to end it with
/// [`Approvals::finish`].
#[derive(Debug)]
pub struct Consumed {
    id: Arc<str>,
    digest: [u8; 32],
    upstream: Arc<str>,
    call: Call,
    consumer: String,
    requester: Requester,
    tool: Arc<str>,
    is_released: bool,
}

/// What a permit to forward is made of: there is one for each [`Consumed`].
#[derive(Debug)]
pub struct Release(());

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Ending {
    /// Whether the server answered; what it answered may still be an error.
    pub is_completed: bool,
    /// The member that ends the exchange, as JSON: `"result":…` or `"error":…` of the JSON-RPC response.
    pub answer: Bytes,
    /// What people are told where it failed.
    pub note: Option<String>,
}

/// A held call as people see it.
#[derive(Clone, Debug)]
pub struct View {
    /// The row. Its `call` and `result` are sealed.
    pub approval: Approval,
    /// What the rules ask for.
    pub terms: Terms,
    /// The call itself; `None` once it was erased.
    pub call: Option<Call>,
    /// What people said so far.
    pub decisions: Vec<ApprovalDecision>,
}

// === impl Approvals ===

impl Approvals {
    /// Those in `given.store`.
    pub fn new(given: Given<'_>) -> Approvals {
        Approvals(Arc::new(Inner {
            store: given.store,
            vault: Vault::new(given.key),
            clock: given.clock,
            audit: given.audit,
            metrics: given.metrics,
            waiters: Waiters::default(),
        }))
    }

    /// Holds a call, or says where the same call stands. A new one is on the disk and in the audit log when this returns.
    ///
    /// # Errors
    /// It could not be held; nothing is kept that somebody could approve without its being in the log.
    pub async fn ask(&self, ask: Ask<'_>) -> Result<Approval, Error> {
        let now_ms = self.0.clock.unix_ms();
        let id: Arc<str> = crate::id::unguessable("h_").into();
        let digest = *ask.call.digest();
        let terms = Terms { warning: self.warning(&digest, now_ms).await?, ..ask.terms.clone() }.to_text();
        let new = Approval {
            state: State::Pending,
            digest,
            upstream: ask.upstream.into(),
            tool: ask.call.tool().into(),
            rules: ask.rules.to_vec(),
            rules_digest: ask.rules_digest,
            call: Some(self.0.vault.seal(Content::Call, &id, &digest, &terms, ask.call.text())),
            terms,
            result: None,
            created_at_ms: now_ms,
            expires_at_ms: now_ms.saturating_add(ms(ask.expires)),
            valid_for_ms: ms(ask.valid_for),
            decided_at_ms: None,
            usable_until_ms: None,
            consumed_at_ms: None,
            consumer: None,
            ended_at_ms: None,
            received_at_ms: None,
            waited_for_until_ms: now_ms.saturating_add(watch::ATTENDED_MS),
            task_until_ms: None,
            note: None,
            requester: ask.requester,
            id,
        };
        fault::point("approval.asking");
        let held = self.0.store.hold(new, notices(ask.hooks), ask.most_pending, ms(ask.keep_result)).await?;
        match held {
            Holding::TooMany => Err(Error::TooMany),
            Holding::Known(known) => {
                if known.state == State::Pending && known.waited_for_until_ms <= now_ms {
                    let until_ms = now_ms.saturating_add(watch::ATTENDED_MS);
                    self.0.store.attend_approvals(vec![Arc::clone(&known.id)], until_ms).await?;
                }
                Ok(*known)
            }
            Holding::New(new) => {
                fault::point("approval.held");
                let event = Event {
                    request: Some(ask.request),
                    snapshot: Some(ask.snapshot),
                    rules: &new.rules,
                    ..of_requester(Kind::ApprovalRequested, &new)
                };
                if let Err(why) = self.0.audit.record(event, Durability::Synced).await {
                    self.end(&new, &[State::Pending], State::Withdrawn, "it could not be written to the audit log")
                        .await?;
                    return Err(why.into());
                }
                fault::point("approval.requested");
                self.0.metrics.approval(&new.upstream, "requested");
                tracing::info!(approval = %new.id, upstream = %new.upstream, tool = %new.tool, "a call waits for a person");
                self.0.waiters.wake(&new.id);
                Ok(*new)
            }
        }
    }

    /// What people must know before they let the same call run again.
    async fn warning(&self, digest: &[u8; 32], now_ms: i64) -> Result<Option<String>, Error> {
        let latest = self.0.store.latest_approval(digest).await?;
        Ok(latest.and_then(|before| {
            let is_unknown = before.state == State::Failed && before.note.as_deref()?.ends_with(UNKNOWN_END);
            let sent_ms = before.consumed_at_ms.filter(|at_ms| now_ms.saturating_sub(*at_ms) < WARNED_OF_MS)?;
            let at = crate::clock::rfc3339(sent_ms);
            is_unknown
                .then(|| format!("The same call was sent at {at}, and whether it ran is not known ({}).", before.id))
        }))
    }

    /// Where a held call stands.
    ///
    /// # Errors
    /// The store's.
    pub async fn get(&self, id: &str) -> Result<Option<Approval>, Error> {
        Ok(self.0.store.approval(id).await?)
    }

    /// Waits with others for changes of a held call.
    pub fn wait_for(&self, id: &Arc<str>) -> Waiter {
        self.0.waiters.enter(id)
    }

    /// Uses an approval up, if it is still one: then, and only then, the call may be forwarded. `None`: it is not, or
    /// somebody else was faster. The rules and the call must have been compared by the caller; who approved is looked at
    /// here once more, as they are now.
    ///
    /// # Errors
    /// It must not be forwarded.
    pub async fn consume(
        &self,
        approval: &Approval,
        people: &People,
        request: &str,
    ) -> Result<Option<Consumed>, Error> {
        let decisions = self.0.store.approval_decisions(&approval.id).await?;
        let is_met = Terms::read(&approval.terms).is_some_and(|terms| {
            let theirs = decisions.iter().filter(|said| said.approves && self.is_marked(approval, said));
            let approving: Vec<&str> = theirs.map(|said| &*said.person).collect();
            terms.are_met_by(&approving, people)
        });
        if !is_met {
            self.invalidate(approval, "who approved it may not any more").await?;
            return Ok(None);
        }
        // What was taken back or ran out holds nothing any more.
        let Some(call) = self.call_of(approval)? else {
            return Ok(None);
        };
        if !self.0.audit.is_available() {
            return Err(Unavailable::Closed.into());
        }
        let (store, now_ms) = (&self.0.store, self.0.clock.unix_ms());
        fault::point("approval.consuming");
        let Some(taken) = store.consume_approval(&approval.id, store.process(), now_ms).await? else {
            return Ok(None);
        };
        fault::point("approval.consumed");
        let consumed = Consumed {
            id: Arc::clone(&taken.id),
            digest: taken.digest,
            upstream: Arc::clone(&taken.upstream),
            consumer: store.process().to_owned(),
            requester: taken.requester.clone(),
            tool: Arc::clone(&taken.tool),
            is_released: false,
            call,
        };
        self.0.waiters.wake(&taken.id);
        let event = Event { request: Some(request), ..of_requester(Kind::ApprovalConsumed, &taken) };
        if let Err(why) = self.0.audit.record(event, Durability::Synced).await {
            let note = "it did not run: the audit log could not be written";
            self.finish_as(&consumed, State::Failed, None, Some(note.to_owned())).await?;
            return Err(why.into());
        }
        self.0.metrics.approval(&taken.upstream, State::Consumed.as_str());
        Ok(Some(consumed))
    }

    /// Writes down how the run ended, and keeps its answer for who waits.
    ///
    /// # Errors
    /// The store's: then the call counts as running until this process ends, and as indeterminate afterwards.
    pub async fn finish(&self, consumed: Consumed, ending: Ending) -> Result<(), Error> {
        let state = if ending.is_completed { State::Completed } else { State::Failed };
        let mut tries = FINISH_AGAIN.iter();
        loop {
            // What ran once has one answer: it is not lost for a disk that is busy.
            let finished = self.finish_as(&consumed, state, Some(&ending.answer), ending.note.clone()).await;
            match (finished, tries.next()) {
                (Err(Error::Store(error)), Some(pause)) => {
                    tracing::warn!(%error, approval = %consumed.id, "the end of a held call cannot be written down yet");
                    tokio::time::sleep(*pause).await;
                }
                (finished, _) => return finished,
            }
        }
    }

    async fn finish_as(
        &self,
        consumed: &Consumed,
        state: State,
        answer: Option<&Bytes>,
        note: Option<String>,
    ) -> Result<(), Error> {
        let Consumed { id, digest, upstream, .. } = consumed;
        let result = answer.map(|answer| self.0.vault.seal(Content::Result, id, digest, "", answer));
        let now_ms = self.0.clock.unix_ms();
        let (consumer, note_kept) = (consumed.consumer.as_str(), note.clone());
        self.0.store.finish_approval(id, consumer, state, result, note_kept, now_ms).await?;
        self.0.waiters.wake(id);
        self.0.metrics.approval(upstream, state.as_str());
        self.0.audit.record_later(Event {
            approval: Some(id),
            digest: Some(digest),
            upstream: Some(upstream),
            object: Some(&consumed.tool),
            principal: Some(who(&consumed.requester)),
            outcome: Some(state.as_str()),
            detail: note.as_deref(),
            ..Event::new(Kind::ApprovalEnded)
        });
        Ok(())
    }

    /// The answer of a call that has ended; `None` where none is kept.
    ///
    /// # Errors
    /// [`Error::Sealed`].
    pub fn answer_of(&self, approval: &Approval) -> Result<Option<Bytes>, Error> {
        let Some(sealed) = &approval.result else {
            return Ok(None);
        };
        let opened = self.0.vault.open(Content::Result, &approval.id, &approval.digest, "", sealed);
        Ok(Some(opened.ok_or(Error::Sealed)?.into()))
    }

    /// The call that is held; `None` once it was erased.
    ///
    /// # Errors
    /// [`Error::Sealed`]: what is kept is not what was held.
    pub fn call_of(&self, approval: &Approval) -> Result<Option<Call>, Error> {
        let Some(sealed) = &approval.call else {
            return Ok(None);
        };
        let opened = self.0.vault.open(Content::Call, &approval.id, &approval.digest, &approval.terms, sealed);
        let call = Call::read(opened.ok_or(Error::Sealed)?.into());
        if *call.digest() == approval.digest { Ok(Some(call)) } else { Err(Error::Sealed) }
    }

    /// Notes that a client was given the result. `true`: nobody had been before.
    ///
    /// # Errors
    /// The store's.
    pub async fn received(&self, id: &str) -> Result<bool, Error> {
        Ok(self.0.store.receive_approval(id, self.0.clock.unix_ms()).await?)
    }

    /// Ends an approval that was given, or would be, for what is not so any more.
    ///
    /// # Errors
    /// The store's.
    pub async fn invalidate(&self, approval: &Approval, why: &str) -> Result<bool, Error> {
        self.end(approval, &[State::Pending, State::Approved], State::Invalidated, why).await
    }

    /// Takes a held call back in the name of the caller that made it. `false`: it has come to its end, or runs.
    ///
    /// # Errors
    /// The store's.
    pub async fn cancel(&self, approval: &Approval, request: &str) -> Result<bool, Error> {
        tracing::debug!(approval = %approval.id, request, "a caller takes its call back");
        self.end(approval, &[State::Pending, State::Approved], State::Withdrawn, "its caller cancelled it").await
    }

    /// Lets a task wait for a held call until then, whether or not its client is there. `None`: not any more.
    ///
    /// # Errors
    /// The store's.
    pub async fn set_task(&self, id: &str, until_ms: Option<i64>) -> Result<(), Error> {
        self.0.store.set_approval_task(id, until_ms).await?;
        self.0.waiters.wake(id);
        Ok(())
    }

    /// The latest held calls in these states, without what they hold.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self, states: &[State]) -> Result<Vec<Approval>, Error> {
        Ok(self.0.store.approvals(states).await?)
    }

    /// A held call with everything that people see of it.
    ///
    /// # Errors
    /// The store's, and [`Error::Sealed`].
    pub async fn view(&self, id: &str) -> Result<Option<View>, Error> {
        let Some(approval) = self.0.store.approval(id).await? else {
            return Ok(None);
        };
        let mut decisions = self.0.store.approval_decisions(id).await?;
        // What this gateway has not written down was said by nobody.
        decisions.retain(|said| self.is_marked(&approval, said));
        let terms = Terms::read(&approval.terms).ok_or(Error::Sealed)?;
        let call = self.call_of(&approval)?;
        Ok(Some(View { approval, terms, call, decisions }))
    }

    /// The webhooks that are told of a held call, and how far that has come.
    ///
    /// # Errors
    /// The store's.
    pub async fn notices(&self, id: &str) -> Result<Vec<Notice>, Error> {
        Ok(self.0.store.notices(id).await?)
    }

    /// How many webhooks are still to be told, and were given up in the last day.
    ///
    /// # Errors
    /// The store's.
    pub async fn count_notices(&self) -> Result<NoticeCounts, Error> {
        Ok(self.0.store.count_notices(self.0.clock.unix_ms().saturating_sub(ERASED_AFTER_MS)).await?)
    }

    /// A name for a masked value: the same for the same value.
    pub fn mask(&self, value: &str) -> String {
        self.0.vault.mask(value.as_bytes())
    }

    async fn end(&self, approval: &Approval, from: &'static [State], to: State, note: &str) -> Result<bool, Error> {
        let at_ms = self.0.clock.unix_ms();
        let step = Move { from, to, at_ms, note: Some(note.to_owned()), reopened_until_ms: None, notices: Vec::new() };
        let is_moved = self.0.store.move_approval(&approval.id, step).await?;
        if is_moved {
            self.ended(approval, to, Some(note));
        }
        Ok(is_moved)
    }

    /// Tells everybody that a call has come to this state by nobody's word.
    fn ended(&self, approval: &Approval, state: State, note: Option<&str>) {
        self.0.waiters.wake(&approval.id);
        self.0.metrics.approval(&approval.upstream, state.as_str());
        self.0.audit.record_later(Event {
            outcome: Some(state.as_str()),
            detail: note,
            ..of_requester(Kind::ApprovalEnded, approval)
        });
    }
}

// === impl Consumed ===

impl Consumed {
    /// The held call's id.
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// The right to forward it; the first time only.
    pub fn release(&mut self) -> Option<Release> {
        (!std::mem::replace(&mut self.is_released, true)).then_some(Release(()))
    }

    /// What is to be forwarded: the very bytes that were approved.
    pub fn call(&self) -> &Call {
        &self.call
    }
}

/// An event about a held call, with who asked for it.
fn of_requester(kind: Kind, approval: &Approval) -> Event<'_> {
    Event {
        approval: Some(&approval.id),
        digest: Some(&approval.digest),
        route: Some(&approval.upstream),
        upstream: Some(&approval.upstream),
        object: Some(&approval.tool),
        principal: Some(who(&approval.requester)),
        ..Event::new(kind)
    }
}

fn who(requester: &Requester) -> Who<'_> {
    let subject = match &requester.subject {
        Subject::User(name) => Named::User(name),
        Subject::Client(id) => Named::Client(id),
    };
    let person = requester.person.as_deref().filter(|person| subject != Named::User(person));
    Who { issuer: &requester.issuer, subject, client: &requester.client, grant: requester.grant.as_deref(), person }
}

/// News for each of these webhooks.
fn notices(hooks: &[String]) -> Vec<NewNotice> {
    let new = |hook: &String| NewNotice {
        id: crate::id::unguessable("msg_"),
        hook: hook.clone(),
        nonce: crate::id::unguessable(""),
    };
    hooks.iter().map(new).collect()
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl std::fmt::Debug for Approvals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Approvals")
    }
}
