//! Sends what is to be sent, until it has arrived or the call is over.
//!
//! Each process has one of these; the store gives a notice to one of them at a time. A receiver that is slow or down has a
//! few deliveries under way and delays neither another receiver nor a call. What a receiver was told once may reach it again
//! (its answer was lost): the `webhook-id` is the same every time.

use super::sign::{ID, SIGNATURE, TIMESTAMP, one};
use super::{Hook, Hooks, body};
use crate::approval::watch::is_due;
use crate::approval::{Approvals, People, View};
use crate::audit::{Event, Kind};
use crate::fetch::{Answer, Fetcher, Post};
use crate::store::{ApprovalState, Notice, NoticeState};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{self, JoinSet};

/// How often it is looked for what is due.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often it is looked for what came too late, and counted what waits.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// How often what webhooks said long ago is forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// Deliveries to one receiver at once.
const AT_ONCE: usize = 4;
/// A larger answer is not read.
const LARGEST_ANSWER: usize = 64 * 1024;
/// From one attempt to the next, in seconds; the last one for all that follow.
const PAUSES_S: [i64; 5] = [5, 30, 120, 300, 600];
/// A receiver that asks for more patience than this gets this much.
const LONGEST_PAUSE_S: i64 = 1_800;
/// A process that sends may be late to say how it went by this much.
const CLAIM_MARGIN_MS: i64 = 5_000;
/// For how long what was given up is counted.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// What of the configuration in force is needed here.
#[derive(Clone)]
pub struct InForce {
    /// The receivers.
    pub hooks: Arc<Hooks>,
    /// Where approvers decide: the origin of the admin listener, without a slash at its end.
    pub admin_url: Arc<str>,
    /// This gateway as an issuer, for records.
    pub issuer: Arc<str>,
    /// What anybody is in at the moment.
    pub people: People,
}

/// Sends notices; one per process.
pub struct Deliverer<F> {
    approvals: Approvals,
    fetcher: Fetcher,
    /// `None` where nobody is to be told.
    in_force: F,
}

/// How one attempt went.
enum Attempt {
    /// The receiver has it.
    Taken,
    /// It does not want to be told of this any more.
    Gone,
    /// Another attempt may go better; not before so many seconds, where the receiver said so.
    Failed(String, Option<i64>),
}

impl<F: Fn() -> Option<InForce> + Send + Sync + 'static> Deliverer<F> {
    /// One that tells the receivers of `in_force`, as they are when it is asked.
    pub fn new(approvals: Approvals, fetcher: Fetcher, in_force: F) -> Deliverer<F> {
        Deliverer { approvals, fetcher, in_force }
    }

    /// Sends what is due, until it is dropped. What is under way then is sent again by whoever comes next.
    pub async fn run(self) {
        let mut under_way = JoinSet::new();
        let mut whose = HashMap::new();
        let mut changes = self.approvals.changes();
        let (mut tidied, mut forgot) = (None, None);
        loop {
            // A new hold is told at once; everything else can wait for the next look.
            let pause = tokio::time::sleep(LOOK_EVERY);
            tokio::select! {
                () = pause => {}
                Ok(()) = changes.changed() => {}
                Some(done) = under_way.join_next_with_id() => leave(&mut whose, done),
            }
            while let Some(done) = under_way.try_join_next_with_id() {
                leave(&mut whose, done);
            }
            if let Some(in_force) = (self.in_force)() {
                self.start(&in_force, &mut whose, &mut under_way).await;
            }
            if is_due(&mut tidied, TIDY_EVERY) {
                self.tidy().await;
            }
            if is_due(&mut forgot, FORGET_EVERY) {
                self.forget().await;
            }
        }
    }

    /// Begins with what is due, as far as each receiver has room.
    async fn start(&self, in_force: &InForce, whose: &mut HashMap<task::Id, String>, under_way: &mut JoinSet<()>) {
        for hook in in_force.hooks.iter() {
            let n_under_way = whose.values().filter(|name| **name == hook.name).count();
            let now_ms = self.approvals.0.clock.unix_ms();
            let until_ms = now_ms.saturating_add(crate::approval::ms(hook.timeout)).saturating_add(CLAIM_MARGIN_MS);
            let room = AT_ONCE.saturating_sub(n_under_way);
            if room == 0 {
                continue;
            }
            match self.approvals.0.store.claim_notices(&hook.name, room, now_ms, until_ms).await {
                Ok(claimed) => {
                    for notice in claimed {
                        let delivery = Delivery {
                            approvals: self.approvals.clone(),
                            fetcher: self.fetcher.clone(),
                            in_force: in_force.clone(),
                            hook: hook.clone(),
                        };
                        let task = under_way.spawn(async move { delivery.deliver(&notice).await });
                        whose.insert(task.id(), hook.name.clone());
                    }
                }
                Err(error) => tracing::warn!(%error, "it cannot be seen which webhooks are to be told"),
            }
        }
    }

    /// Gives up what came too late, and counts.
    async fn tidy(&self) {
        let inner = &self.approvals.0;
        let now_ms = inner.clock.unix_ms();
        match inner.store.end_late_notices(now_ms).await {
            Ok(late) => late.iter().for_each(|notice| self.approvals.given_up(notice)),
            Err(error) => tracing::warn!(%error, "webhooks that came too late cannot be given up"),
        }
        if let Ok(counts) = inner.store.count_notices(now_ms.saturating_sub(DAY_MS)).await {
            inner.metrics.webhooks(counts.waiting, counts.dead);
        }
    }

    /// Long after an old message could still be taken for a new one.
    async fn forget(&self) {
        let inner = &self.approvals.0;
        let now_ms = inner.clock.unix_ms();
        if let Err(error) = inner.store.forget_webhooks(now_ms.saturating_sub(DAY_MS)).await {
            tracing::warn!(%error, "what webhooks said cannot be forgotten");
        }
    }
}

/// One delivery fewer. What became of one that ended abnormally is seen once its claim has run out.
fn leave(whose: &mut HashMap<task::Id, String>, done: Result<(task::Id, ()), task::JoinError>) {
    let id = match done {
        Ok((id, ())) => id,
        Err(error) => {
            tracing::error!(%error, "the delivery of a webhook ended abnormally");
            error.id()
        }
    };
    whose.remove(&id);
}

/// One notice on its way.
struct Delivery {
    approvals: Approvals,
    fetcher: Fetcher,
    in_force: InForce,
    hook: Hook,
}

impl Delivery {
    async fn deliver(&self, notice: &Notice) {
        let attempt = self.attempt(notice).await;
        let inner = &self.approvals.0;
        let now_ms = inner.clock.unix_ms();
        let name = self.hook.name.as_str();
        let written = match attempt {
            Attempt::Taken => {
                let ended = inner.store.end_notice(notice, NoticeState::Delivered, None, now_ms).await;
                if matches!(ended, Ok(true)) {
                    inner.metrics.webhook(name, "delivered");
                    self.approvals.told(notice, "delivered", None);
                }
                ended
            }
            Attempt::Gone => {
                let why = "it answered with status 410: it does not want to be told";
                let ended = inner.store.end_notice(notice, NoticeState::Dead, Some(why), now_ms).await;
                if matches!(ended, Ok(true)) {
                    self.approvals.given_up(&Notice { last_error: Some(why.to_owned()), ..notice.clone() });
                }
                ended
            }
            Attempt::Failed(why, after_s) => {
                inner.metrics.webhook(name, "failed");
                let next_ms = now_ms.saturating_add(pause_ms(notice.attempts, after_s));
                let attempt = notice.attempts.saturating_add(1);
                tracing::warn!(webhook = %name, approval = %notice.approval, attempt, %why, "a webhook could not be delivered");
                inner.store.retry_notice(notice, next_ms, &why).await
            }
        };
        if let Err(error) = written {
            tracing::warn!(%error, webhook = %name, "how a delivery went cannot be written down: it will be sent again");
        }
    }

    async fn attempt(&self, notice: &Notice) -> Attempt {
        let now_ms = self.approvals.0.clock.unix_ms();
        let is_undecided =
            |view: &View| view.approval.state == ApprovalState::Pending && now_ms < view.approval.expires_at_ms;
        let view = match self.approvals.view(&notice.approval).await {
            Ok(Some(view)) if is_undecided(&view) => view,
            Ok(_) => return Attempt::Failed("the call does not wait any more".to_owned(), None),
            Err(error) => return Attempt::Failed(error.to_string(), None),
        };
        let body = Bytes::from(body::of(notice, &view, &self.hook, &self.approvals, &self.in_force));
        let answer = match self.send(notice, body).await {
            Ok(answer) => answer,
            Err(why) => return Attempt::Failed(why, None),
        };
        match answer.status {
            StatusCode::GONE => Attempt::Gone,
            status if status.is_success() => {
                if let (StatusCode::OK, Some(body)) = (status, &answer.body) {
                    self.approvals.answered(&self.hook, notice, &answer.headers, body, &self.in_force).await;
                }
                Attempt::Taken
            }
            status => {
                let what = if status.is_redirection() { " (redirects are not followed)" } else { "" };
                Attempt::Failed(format!("it answered with status {}{what}", status.as_u16()), retry_after(&answer))
            }
        }
    }

    async fn send(&self, notice: &Notice, body: Bytes) -> Result<Answer, String> {
        let now_s = self.approvals.0.clock.unix_seconds();
        let signature = self.hook.keys.sign(&notice.id, now_s, &body);
        let value = |text: &str| HeaderValue::from_str(text).map_err(|_| "it cannot be written in a header".to_owned());
        let headers = vec![(ID, value(&notice.id)?), (TIMESTAMP, now_s.into()), (SIGNATURE, value(&signature)?)];
        let post = Post {
            url: &self.hook.url,
            authorities: self.hook.authorities.as_ref(),
            headers,
            body,
            limit: self.hook.timeout,
            max_bytes: LARGEST_ANSWER,
        };
        self.fetcher.post(post).await.map_err(|why| why.to_string())
    }
}

/// How long to wait after the attempt that came after `n_before` others: about as scheduled, not before `asked_s`.
fn pause_ms(n_before: u32, asked_s: Option<i64>) -> i64 {
    let at = usize::try_from(n_before).unwrap_or(usize::MAX).min(PAUSES_S.len().saturating_sub(1));
    let scheduled_s = PAUSES_S.get(at).copied().unwrap_or(LONGEST_PAUSE_S);
    // A fifth more or less, so that those who failed together do not come back together.
    let draw = i64::from(u16::from_be_bytes(crate::id::random_bytes()));
    let jittered_ms = scheduled_s.saturating_mul(800 + draw.saturating_mul(400) / i64::from(u16::MAX));
    jittered_ms.max(asked_s.unwrap_or(0).clamp(0, LONGEST_PAUSE_S).saturating_mul(1000))
}

/// `Retry-After` in seconds (RFC 9110 §10.2.3); a date is not looked at.
fn retry_after(answer: &Answer) -> Option<i64> {
    one(&answer.headers, &RETRY_AFTER)?.trim().parse().ok()
}

impl Approvals {
    /// Writes down that a notice was given up.
    fn given_up(&self, notice: &Notice) {
        let why = notice.last_error.as_deref();
        tracing::warn!(webhook = %notice.hook, approval = %notice.approval, why = why.unwrap_or_default(), "a webhook was given up");
        self.0.metrics.webhook(&notice.hook, "dead");
        self.told(notice, "dead", why);
    }

    fn told(&self, notice: &Notice, outcome: &'static str, why: Option<&str>) {
        let via = format!("webhook {}", notice.hook);
        self.0.audit.record_later(Event {
            approval: Some(&notice.approval),
            via: Some(&via),
            outcome: Some(outcome),
            detail: why,
            ..Event::new(Kind::WebhookEnded)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_come_less_and_less_often_and_never_sooner_than_asked() {
        for (n_before, about_s) in [(0, 5), (1, 30), (2, 120), (3, 300), (4, 600), (5, 600), (1_000, 600)] {
            let all: Vec<i64> = (0..200).map(|_| pause_ms(n_before, None)).collect();
            let (least, most) = (*all.iter().min().unwrap(), *all.iter().max().unwrap());
            assert!(least >= about_s * 800 && most <= about_s * 1200, "{n_before}: {least} to {most}");
            assert!(most - least > about_s * 100, "{n_before}: all at {least}");
        }
        assert_eq!(pause_ms(0, Some(60)), 60_000);
        assert!(pause_ms(0, Some(1)) >= 4_000);
        assert_eq!(pause_ms(0, Some(i64::MAX)), 1_800_000);
        assert!(pause_ms(0, Some(-1)) >= 4_000);
    }
}
