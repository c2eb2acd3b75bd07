//! A caller waits for a held call, with all others who wait for the same one: for a person first, then for its answer.
//!
//! Nothing here decides anything. Whoever sees that it is approved tries to release it, one does, and all of them are
//! given the answer. What ends the waiting (the client's leaving, `wait`, the gateway's stop) ends this request, not the
//! held call.

use super::super::exchange::{End, Exchange};
use super::super::record::Outcome;
use super::super::stream::at;
use super::super::welcome::stopped;
use super::Caller;
use super::progress::{News, Progress};
use super::rounds::Way;
use crate::approval::Waiter;
use crate::store::{Approval, ApprovalState as State};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// An approved call that another caller is about to release is looked at again after this long.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// And this often at least.
const MAX_LOOKS: usize = 5;
/// Beyond the time of a call: until its end is written down and seen.
const SLACK: Duration = Duration::from_secs(5);

/// One who waits.
struct Waiting {
    /// Until when for a person.
    until: Instant,
    /// Until when for its answer, once it runs.
    until_answered: Option<Instant>,
    /// How it is answered where that takes too long.
    way: Way,
    /// Whether it asked before the end came.
    is_attached: bool,
    /// How often it has found somebody else at it.
    n_looks: usize,
    progress: Progress,
    /// What the server says meanwhile, where this caller's request is the one that runs it.
    news: Option<mpsc::Receiver<News>>,
}

impl Caller<'_> {
    /// Waits for the end of `approval`, and gives its caller what came of it. `None`: it came to its end, and another
    /// caller has its answer; this one asks anew.
    ///
    /// # Errors
    /// What the caller is told instead of a result, or the client's leaving.
    pub(super) async fn wait_out(
        &self,
        exchange: &mut Exchange,
        approval: Approval,
        wait: Option<Duration>,
        way: Way,
    ) -> Result<Option<Outcome>, End> {
        let id = Arc::clone(&approval.id);
        // As it was when it was asked for: by now it may have run, for this caller as well.
        let is_attached = matches!(approval.state, State::Pending | State::Approved | State::Consumed);
        drop(approval);
        let wait = wait.unwrap_or(exchange.snapshot.config.approvals.wait.duration());
        let mut waiting = Waiting {
            until: Instant::now() + way.wait(wait),
            until_answered: None,
            way,
            // Who was asked to come back for it was here all the time.
            is_attached: is_attached || self.received.retry.is_some(),
            n_looks: 0,
            progress: Progress::of(self.received),
            news: None,
        };
        let mut waiter = self.approvals().wait_for(&id);
        let ended = self.attend(exchange, &id, &mut waiter, &mut waiting).await;
        drop(waiter);
        if ended.is_err() {
            self.approvals().left(&id).await;
        }
        ended
    }

    async fn attend(
        &self,
        exchange: &mut Exchange,
        id: &Arc<str>,
        waiter: &mut Waiter,
        waiting: &mut Waiting,
    ) -> Result<Option<Outcome>, End> {
        loop {
            let known = self.approvals().get(id).await.map_err(|error| self.unavailable(&error))?;
            let Some(approval) = known else {
                return Ok(None);
            };
            let again_at = match approval.state {
                State::Pending if self.may_wait(exchange, waiting) => waiting.until,
                State::Approved if !*exchange.stopping.borrow() => {
                    waiting.n_looks += 1;
                    let may_look_again = waiting.n_looks <= MAX_LOOKS || self.may_wait(exchange, waiting);
                    waiting.news = self.release(exchange, &approval).await?;
                    if waiting.news.is_none() && !may_look_again {
                        return Err(self.told(&approval).into());
                    }
                    Instant::now() + LOOK_AGAIN
                }
                State::Consumed => {
                    let until = self.until_answered(waiting);
                    if until <= Instant::now() {
                        return self.not_yet(exchange, &approval, waiting.way).await.map(Some);
                    }
                    until
                }
                State::Completed | State::Failed => {
                    return self.deliver(exchange, &approval, waiting.is_attached).await;
                }
                State::Pending => return self.not_yet(exchange, &approval, waiting.way).await.map(Some),
                _ => return Err(self.told(&approval).into()),
            };
            self.pause(exchange, waiter, waiting, &approval, again_at).await?;
        }
    }

    /// Until when a caller waits for the answer of a call that runs: as long as the server may take; but who can come back
    /// no longer than for a person.
    fn until_answered(&self, waiting: &mut Waiting) -> Instant {
        match waiting.way {
            Way::Words => {
                let limit = self.route.upstream.timeouts.total + SLACK;
                *waiting.until_answered.get_or_insert_with(|| Instant::now() + limit)
            }
            Way::Task | Way::Round(_) => waiting.until,
        }
    }

    /// The answer to a caller that has waited as long as it is kept waiting, in the way its client can take.
    async fn not_yet(&self, exchange: &mut Exchange, approval: &Approval, way: Way) -> Result<Outcome, End> {
        let answered = match way {
            Way::Words => None,
            Way::Task => Some(self.give_task(exchange, approval).await?),
            // Who is told to come back while the gateway stops would find another, or none, in no time.
            Way::Round(_) if *exchange.stopping.borrow() => None,
            Way::Round(n) => self.ask_to_come_back(exchange, approval, n).await?,
        };
        answered.ok_or_else(|| self.told(approval).into())
    }

    /// Whether its caller is kept waiting for a person: not for ever, not while the gateway stops, and not where other
    /// messages of the same batch would wait as well.
    fn may_wait(&self, exchange: &Exchange, waiting: &Waiting) -> bool {
        Instant::now() < waiting.until && !*exchange.stopping.borrow() && !exchange.is_gathering()
    }

    /// Until something has changed, or it is time to look again. The client hears of us meanwhile.
    async fn pause(
        &self,
        exchange: &mut Exchange,
        waiter: &mut Waiter,
        waiting: &mut Waiting,
        approval: &Approval,
        again_at: Instant,
    ) -> Result<(), End> {
        let is_pending = approval.state == State::Pending;
        if exchange.may_stream && !exchange.is_streaming() && !exchange.is_gathering() {
            exchange.begin_stream(None).await?;
            exchange.write(Bytes::from_static(crate::mcp::sse::COMMENT)).await?;
        }
        let mut stopping = exchange.stopping.clone();
        loop {
            let about = if is_pending { "held for approval" } else { "approved, running" };
            if exchange.is_streaming()
                && let Some(event) = waiting.progress.ours(&format!("{about} ({})", approval.id))
            {
                exchange.write(event).await?;
            }
            let due = waiting.progress.due().filter(|_| exchange.is_streaming());
            let news = &mut waiting.news;
            let next = async {
                tokio::select! {
                    biased;
                    () = waiter.changed() => None,
                    () = stopped(&mut stopping), if is_pending => None,
                    news = heard(news) => Some(Some(news)),
                    () = at(due) => Some(None),
                    () = tokio::time::sleep_until(again_at) => None,
                }
            };
            let Some(news) = exchange.while_there(next).await? else {
                return Ok(());
            };
            if let Some(event) = news.and_then(|news| waiting.progress.theirs(&news))
                && exchange.is_streaming()
            {
                exchange.write(event).await?;
            }
        }
    }
}

/// What the server says next; never, where it says nothing here.
async fn heard(news: &mut Option<mpsc::Receiver<News>>) -> News {
    if let Some(receiver) = news
        && let Some(heard) = receiver.recv().await
    {
        return heard;
    }
    *news = None;
    std::future::pending().await
}
