//! What people do with a held call: say yes or no, take it back, ask again, and say what became of a lost one.
//!
//! Every word is judged at the moment it is said, under the people and groups of that moment, within the transaction that
//! writes it down; and every word that does not count is written down as well.

use super::terms::must_be_pending;
use super::{Approvals, Error, People, Proof, Refused, Terms, ms, notices};
use crate::audit::{Decision, Durability, Event, Kind, Subject, Who};
use crate::store::{Approval, ApprovalDecision, ApprovalState as State, Move, Step};
use std::sync::Arc;
use std::time::Duration;

/// The longest reason of a denial, in bytes, on every way. What is longer is no reason but an essay.
pub const LONGEST_REASON: usize = 500;

/// How the log names the way of `portcullis approvals`.
pub const AT_TERMINAL: &str = "cli";

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may run, once.
    Approve,
    /// It may not.
    Deny,
}

/// Who decides, and how they are known.
#[derive(Clone)]
pub struct Decider<'a> {
    /// The person.
    pub person: &'a str,
    /// How sure that is.
    pub proof: Proof,
    /// On which way: `page`, `cli`, `webhook <name>`.
    pub via: &'a str,
    /// Where they are, for records.
    pub place: Place<'a>,
    /// What anybody is in at the moment.
    pub people: People,
}

/// Where somebody is, for records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    /// This gateway as an issuer: its `public_url`.
    pub issuer: &'a str,
    /// The request, where there is one.
    pub request: Option<&'a str>,
    /// The address they come from, where they come over the network.
    pub peer: Option<&'a str>,
}

/// What came of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Where the call stands now.
    pub approval: Approval,
    /// Whether further people must approve.
    pub needs_more: bool,
}

// === impl Approvals ===

impl Approvals {
    /// Decides on a held call as `decider`, who has seen it with this digest. `reason` goes to the caller where it is a no.
    ///
    /// # Errors
    /// Outside: it could not be done. Inside: it does not count, and why.
    pub async fn decide(
        &self,
        id: &str,
        verdict: Verdict,
        digest: &[u8; 32],
        reason: Option<&str>,
        decider: &Decider<'_>,
    ) -> Result<Result<Decided, Refused>, Error> {
        let now_ms = self.0.clock.unix_ms();
        let approves = verdict == Verdict::Approve;
        let Some(known) = self.0.store.approval(id).await? else {
            self.refused(id, None, &Refused::Unknown, decider);
            return Ok(Err(Refused::Unknown));
        };
        let mut decision = ApprovalDecision {
            person: decider.person.into(),
            approves,
            via: decider.via.to_owned(),
            at_ms: now_ms,
            mark: [0; 32],
        };
        decision.mark = self.mark(&known, &decision);
        let judge = self.judge(decision.clone(), *digest, decider);
        // Looked at first, so that what is written down as said is, but for a race, what counts.
        if let Err(refusal) = judge(&known, &self.0.store.approval_decisions(id).await?) {
            self.refused(id, Some(&known), &refusal, decider);
            return Ok(Err(refusal));
        }
        // What is not written down does not happen.
        self.0.audit.record(decided(&known, verdict, reason, decider), Durability::Synced).await?;
        let note = reason.filter(|_| !approves).map(str::to_owned);
        crate::fault::point("approval.deciding");
        let outcome = match self.0.store.decide_approval(id, decision, note, Box::new(judge)).await? {
            None => Err(Refused::Unknown),
            Some(outcome) => outcome,
        };
        crate::fault::point("approval.decided");
        match outcome {
            Ok(approval) => {
                self.0.waiters.wake(&approval.id);
                let needs_more = approval.state == State::Pending;
                if !needs_more {
                    self.count_decided(&approval, approves, now_ms);
                }
                Ok(Ok(Decided { approval, needs_more }))
            }
            Err(refusal) => {
                self.refused(id, Some(&known), &refusal, decider);
                Ok(Err(refusal))
            }
        }
    }

    /// Counts that a call was decided on.
    pub(super) fn count_decided(&self, approval: &Approval, approves: bool, at_ms: i64) {
        let state = if approves { State::Approved } else { State::Denied };
        self.0.metrics.approval(&approval.upstream, state.as_str());
        let took_ms = at_ms.saturating_sub(approval.created_at_ms);
        self.0.metrics.approval_decided_after(Duration::from_millis(took_ms.unsigned_abs()).as_secs_f64());
    }

    /// Whether `decision` counts, and what it makes of the call: asked within the store's transaction.
    fn judge(
        &self,
        decision: ApprovalDecision,
        digest: [u8; 32],
        decider: &Decider<'_>,
    ) -> impl Fn(&Approval, &[ApprovalDecision]) -> Result<Step, Refused> + Send + use<> {
        let (this, people, proof) = (self.clone(), Arc::clone(&decider.people), decider.proof);
        move |approval, before| {
            let ApprovalDecision { person, approves, at_ms, .. } = &decision;
            must_be_pending(approval, *at_ms)?;
            if approval.digest != digest {
                return Err(Refused::Digest);
            }
            let terms = Terms::read(&approval.terms).ok_or(Refused::Unknown)?;
            let groups = people(person).ok_or(Refused::NotEntitled)?;
            terms.admit(&approval.requester, person, &groups, proof, *approves)?;
            // A webhook is one decider, whomever it names.
            let is_same = |said: &ApprovalDecision| proof == Proof::Signature && said.via == decision.via;
            if before.iter().any(|said| said.person == *person || is_same(said)) {
                return Err(Refused::Twice);
            }
            let theirs: Vec<_> = before.iter().filter(|said| this.is_marked(approval, said)).cloned().collect();
            Ok(terms.step(person, *approves, &theirs, &people))
        }
    }

    /// Asks for a decision anew on a call that was denied, and tells these webhooks. Only who could decide on it may.
    ///
    /// # Errors
    /// As [`Approvals::decide`].
    pub async fn reopen(
        &self,
        id: &str,
        hooks: &[String],
        decider: &Decider<'_>,
    ) -> Result<Result<Approval, Refused>, Error> {
        let now_ms = self.0.clock.unix_ms();
        let step = |known: &Approval| Move {
            from: &[State::Denied],
            to: State::Pending,
            at_ms: now_ms,
            note: None,
            // It had this long the first time; a denial is in force for as long.
            reopened_until_ms: known
                .decided_at_ms
                .map(|decided_ms| now_ms.saturating_add(known.expires_at_ms.saturating_sub(decided_ms).max(0))),
            notices: notices(hooks),
        };
        // Once it is over, the same call can be asked for anew, and may have been.
        let may = |known: &Approval, decider: &Decider<'_>| match known.state {
            State::Denied if known.expires_at_ms <= now_ms => Err(Refused::Decided(State::Expired.as_str())),
            _ => self.entitled(known, decider),
        };
        self.step(id, decider, "reopened", may, step).await
    }

    /// Says what became of a call whose process ended while it ran.
    ///
    /// # Errors
    /// As [`Approvals::decide`].
    pub async fn resolve(
        &self,
        id: &str,
        has_run: bool,
        decider: &Decider<'_>,
    ) -> Result<Result<Approval, Refused>, Error> {
        let now_ms = self.0.clock.unix_ms();
        let (to, what) = if has_run { (State::Completed, "did run") } else { (State::Failed, "did not run") };
        let note = format!("{} says that it {what}", decider.person);
        let step = |_: &Approval| Move {
            from: &[State::Indeterminate],
            to,
            at_ms: now_ms,
            note: Some(note.clone()),
            reopened_until_ms: None,
            notices: Vec::new(),
        };
        self.step(id, decider, "resolved", |known, decider| self.entitled(known, decider), step).await
    }

    /// Takes a held call back: its requester may, and its approvers.
    ///
    /// # Errors
    /// As [`Approvals::decide`].
    pub async fn withdraw(&self, id: &str, decider: &Decider<'_>) -> Result<Result<Approval, Refused>, Error> {
        let now_ms = self.0.clock.unix_ms();
        let note = format!("withdrawn by {}", decider.person);
        let step = |_: &Approval| Move {
            from: &[State::Pending, State::Approved],
            to: State::Withdrawn,
            at_ms: now_ms,
            note: Some(note.clone()),
            reopened_until_ms: None,
            notices: Vec::new(),
        };
        let may = |known: &Approval, decider: &Decider<'_>| {
            let is_own = known.requester.person.as_deref() == Some(decider.person);
            if is_own { Ok(()) } else { self.entitled(known, decider) }
        };
        self.step(id, decider, "withdrawn", may, step).await
    }

    async fn step(
        &self,
        id: &str,
        decider: &Decider<'_>,
        word: &'static str,
        may: impl Fn(&Approval, &Decider<'_>) -> Result<(), Refused>,
        step: impl Fn(&Approval) -> Move,
    ) -> Result<Result<Approval, Refused>, Error> {
        let Some(known) = self.0.store.approval(id).await? else {
            self.refused(id, None, &Refused::Unknown, decider);
            return Ok(Err(Refused::Unknown));
        };
        if let Err(refusal) = may(&known, decider) {
            self.refused(id, Some(&known), &refusal, decider);
            return Ok(Err(refusal));
        }
        let event = Event { outcome: Some(word), ..by(Kind::ApprovalEnded, &known, decider) };
        self.0.audit.record(event, Durability::Synced).await?;
        if !self.0.store.move_approval(id, step(&known)).await? {
            let refusal = Refused::Decided(known.state.as_str());
            self.refused(id, Some(&known), &refusal, decider);
            return Ok(Err(refusal));
        }
        self.0.waiters.wake(&known.id);
        self.0.metrics.approval(&known.upstream, word);
        Ok(Ok(self.0.store.approval(id).await?.unwrap_or(known)))
    }

    /// Whether this person could decide on the call.
    fn entitled(&self, known: &Approval, decider: &Decider<'_>) -> Result<(), Refused> {
        let terms = Terms::read(&known.terms).ok_or(Refused::Unknown)?;
        let groups = (decider.people)(decider.person).ok_or(Refused::NotEntitled)?;
        terms.admit(&known.requester, decider.person, &groups, decider.proof, true)
    }

    /// Writes down that somebody wanted what they may not.
    fn refused(&self, id: &str, known: Option<&Approval>, why: &Refused, decider: &Decider<'_>) {
        let event = match known {
            Some(known) => by(Kind::ApprovalRefused, known, decider),
            None => Event { approval: Some(id), ..said(Kind::ApprovalRefused, decider) },
        };
        self.0.audit.record_later(Event { code: Some(why.code()), ..event });
    }

    fn mark(&self, approval: &Approval, said: &ApprovalDecision) -> [u8; 32] {
        let at = said.at_ms.to_be_bytes();
        self.0.vault.mark(&parts(approval, said, &at))
    }

    /// Whether this gateway wrote it down.
    pub(super) fn is_marked(&self, approval: &Approval, said: &ApprovalDecision) -> bool {
        let at = said.at_ms.to_be_bytes();
        self.0.vault.is_mark(&parts(approval, said, &at), &said.mark)
    }

    /// How long the same call stays denied, from now.
    pub fn denied_for(&self, approval: &Approval) -> Duration {
        let left = approval.expires_at_ms.saturating_sub(self.0.clock.unix_ms()).max(0);
        Duration::from_millis(left.unsigned_abs()).min(Duration::from_millis(ms(Duration::MAX).unsigned_abs()))
    }
}

fn parts<'a>(approval: &'a Approval, said: &'a ApprovalDecision, at: &'a [u8; 8]) -> [&'a [u8]; 6] {
    let verdict: &[u8] = if said.approves { b"approve" } else { b"deny" };
    [approval.id.as_bytes(), &approval.digest, said.person.as_bytes(), verdict, said.via.as_bytes(), at]
}

fn decided<'a>(known: &'a Approval, verdict: Verdict, reason: Option<&'a str>, decider: &'a Decider<'a>) -> Event<'a> {
    let decision = match verdict {
        Verdict::Approve => Decision::Allowed,
        Verdict::Deny => Decision::Denied,
    };
    Event { decision: Some(decision), detail: reason, ..by(Kind::ApprovalDecided, known, decider) }
}

fn by<'a>(kind: Kind, known: &'a Approval, decider: &'a Decider<'a>) -> Event<'a> {
    Event {
        approval: Some(&known.id),
        digest: Some(&known.digest),
        upstream: Some(&known.upstream),
        object: Some(&known.tool),
        ..said(kind, decider)
    }
}

fn said<'a>(kind: Kind, decider: &'a Decider<'a>) -> Event<'a> {
    let subject = Subject::User(decider.person);
    let who = Who { issuer: decider.place.issuer, subject, client: "approver", grant: None, person: None };
    Event {
        principal: Some(who),
        request: decider.place.request,
        peer: decider.place.peer,
        via: Some(decider.via),
        ..Event::new(kind)
    }
}
