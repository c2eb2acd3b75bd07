//! Held calls: what waits for a person, what they said, and what became of it.
//!
//! Every step of a held call is one conditional change in one transaction, so that of several processes one takes it.
//! What may be decided by whom is judged by `approval`; that it is decided once, and used once, is kept here.
//! The call and its result are bytes that `approval` has sealed; here nobody can read them.

use super::{Backend, Error, Store, Subject};
use std::sync::Arc;

/// Rows of one list.
pub const MAX_LISTED_APPROVALS: usize = 1_000;

/// How far a held call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApprovalState {
    /// Nobody has decided.
    Pending,
    /// It may run, once, until `usable_until_ms`.
    Approved,
    /// It may not, and the same call may not be asked for again before `expires_at_ms`.
    Denied,
    /// Nobody decided, or nobody called, in time.
    Expired,
    /// The requester or an approver took it back.
    Withdrawn,
    /// The approval was given for what is not so any more: the tool, the server, the rules or the people have changed.
    Invalidated,
    /// It is being run, or was when its process ended. What is consumed is never run again.
    Consumed,
    /// The server has answered.
    Completed,
    /// The server could not be reached, or gave no answer that can be used.
    Failed,
    /// Nobody knows whether it ran: the process that ran it ended. Stays so until a person resolves it.
    Indeterminate,
}

/// Who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Who vouches for them.
    pub issuer: Arc<str>,
    /// Who they are there.
    pub subject: Subject,
    /// The OAuth client they use.
    pub client: Arc<str>,
    /// The person of this gateway that this is, or that answers for the machine; `None` where there is none.
    pub person: Option<Arc<str>>,
    /// The grant of the token it was asked with last; `None` for tokens of external issuers.
    pub grant: Option<Arc<str>>,
}

/// One held call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Its name: 128 random bits, and no right of any kind.
    pub id: Arc<str>,
    /// How far it has come.
    pub state: ApprovalState,
    /// What it is: two calls with the same digest are the same call.
    pub digest: [u8; 32],
    /// Who asked.
    pub requester: Requester,
    /// The route, which has the upstream's name.
    pub upstream: Arc<str>,
    /// The tool.
    pub tool: Arc<str>,
    /// The rules that held it.
    pub rules: Vec<Arc<str>>,
    /// SHA-256 over those rules as written.
    pub rules_digest: [u8; 32],
    /// What they ask for, as JSON of `approval`.
    pub terms: String,
    /// The call, sealed; `None` once it was erased.
    pub call: Option<Vec<u8>>,
    /// Its result, sealed; `None` before its end and once it was erased.
    pub result: Option<Vec<u8>>,
    /// When it was asked for the first time. All times: milliseconds since the Unix epoch.
    pub created_at_ms: i64,
    /// Undecided until then, it is over. Of a denial: when it ends to be in force.
    pub expires_at_ms: i64,
    /// How long an approval may be used.
    pub valid_for_ms: i64,
    /// When the deciding word was said.
    pub decided_at_ms: Option<i64>,
    /// Until when an approval may be used.
    pub usable_until_ms: Option<i64>,
    /// When it began to run.
    pub consumed_at_ms: Option<i64>,
    /// Who runs it: a process.
    pub consumer: Option<Arc<str>>,
    /// When it came to its end.
    pub ended_at_ms: Option<i64>,
    /// When a client was given its result; once.
    pub received_at_ms: Option<i64>,
    /// A caller waits for it until then at least, as far as is known.
    pub waited_for_until_ms: i64,
    /// A task waits for it until then, whether or not its client is there.
    pub task_until_ms: Option<i64>,
    /// What people and clients are told of its end: the reason of a denial, who withdrew it, what went wrong.
    pub note: Option<String>,
}

/// What one approver said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalDecision {
    /// Who.
    pub person: Arc<str>,
    /// Yes or no.
    pub approves: bool,
    /// On which way: `page`, `cli`, `webhook <name>`.
    pub via: String,
    /// When.
    pub at_ms: i64,
    /// Proves that this gateway wrote it down: a MAC of `approval` over all of this and the digest.
    pub mark: [u8; 32],
}

/// What to tell one webhook of a new hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNotice {
    /// The `webhook-id`: the same however often it is sent.
    pub id: String,
    /// Which webhook.
    pub hook: String,
    /// To be repeated with a decision.
    pub nonce: String,
}

/// What came of a wish to hold a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holding {
    /// It is held now.
    New(Box<Approval>),
    /// The same call is held already, or was a moment ago: this is where it stands.
    Known(Box<Approval>),
    /// The requester has as many undecided calls as they may.
    TooMany,
}

/// What a judgement within the transaction makes of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It counts, and more are needed.
    Counts,
    /// With it the call is approved.
    Approves,
    /// With it the call is denied.
    Denies,
}

/// Judges a decision in the light of those before it. Runs within the store's transaction.
pub type Judge<E> = Box<dyn FnOnce(&Approval, &[ApprovalDecision]) -> Result<Step, E> + Send>;

/// A change of state that is made only where the call is still in one of the states `from`.
#[derive(Clone, Debug)]
pub struct Move {
    /// Where it must stand.
    pub from: &'static [ApprovalState],
    /// Where it is to stand.
    pub to: ApprovalState,
    /// When.
    pub at_ms: i64,
    /// What people and clients are told.
    pub note: Option<String>,
    /// A new end of the time for a decision; the decisions so far are then forgotten.
    pub reopened_until_ms: Option<i64>,
    /// Whom to tell of it. A webhook that an earlier notice of this call still waits for is told by that one.
    pub notices: Vec<NewNotice>,
}

impl ApprovalState {
    /// All of them.
    pub const ALL: [ApprovalState; 10] = [
        ApprovalState::Pending,
        ApprovalState::Approved,
        ApprovalState::Denied,
        ApprovalState::Expired,
        ApprovalState::Withdrawn,
        ApprovalState::Invalidated,
        ApprovalState::Consumed,
        ApprovalState::Completed,
        ApprovalState::Failed,
        ApprovalState::Indeterminate,
    ];

    /// The word in the store, in records and for people.
    pub fn as_str(self) -> &'static str {
        match self {
            ApprovalState::Pending => "pending",
            ApprovalState::Approved => "approved",
            ApprovalState::Denied => "denied",
            ApprovalState::Expired => "expired",
            ApprovalState::Withdrawn => "withdrawn",
            ApprovalState::Invalidated => "invalidated",
            ApprovalState::Consumed => "consumed",
            ApprovalState::Completed => "completed",
            ApprovalState::Failed => "failed",
            ApprovalState::Indeterminate => "indeterminate",
        }
    }

    /// The state of this word.
    pub fn of(word: &str) -> Option<ApprovalState> {
        ApprovalState::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

impl Store {
    /// Holds a call, or says where the same call stands. A new one is told to `notices`, in the same transaction.
    ///
    /// The newest call of that digest counts while it is pending, approved, denied, consumed or indeterminate in time, and
    /// after its end while its result waits: ended no longer ago than `keep_ms`, and received by nobody.
    ///
    /// A principal has `most_pending` undecided calls at most; one that was withdrawn counts until a minute after it was
    /// asked for, so that asking and withdrawing in turn comes to an end.
    ///
    /// # Errors
    /// The store's own: nothing is held then.
    pub async fn hold(
        &self,
        new: Approval,
        notices: Vec<NewNotice>,
        most_pending: usize,
        keep_ms: i64,
    ) -> Result<Holding, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.hold(new, notices, most_pending, keep_ms).await,
        }
    }

    /// The held call of this id.
    ///
    /// # Errors
    /// The store's own.
    pub async fn approval(&self, id: &str) -> Result<Option<Approval>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.approval(id).await,
        }
    }

    /// The newest held call of this digest, wherever it stands.
    ///
    /// # Errors
    /// The store's own.
    pub async fn latest_approval(&self, digest: &[u8; 32]) -> Result<Option<Approval>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.latest_approval(digest).await,
        }
    }

    /// The latest of these states, without calls and results, at most [`MAX_LISTED_APPROVALS`].
    ///
    /// # Errors
    /// The store's own.
    pub async fn approvals(&self, states: &[ApprovalState]) -> Result<Vec<Approval>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.approvals(states).await,
        }
    }

    /// What was said about a held call so far.
    ///
    /// # Errors
    /// The store's own.
    pub async fn approval_decisions(&self, id: &str) -> Result<Vec<ApprovalDecision>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.approval_decisions(id).await,
        }
    }

    /// Writes down what an approver said of a pending call, if `judge` lets it count. `note` is kept where it ends there.
    /// Gives the call as it stands afterwards; what `judge` refuses changes nothing.
    ///
    /// # Errors
    /// The store's own, outside; the judge's, inside.
    pub async fn decide_approval<E: Send + 'static>(
        &self,
        id: &str,
        decision: ApprovalDecision,
        note: Option<String>,
        judge: Judge<E>,
    ) -> Result<Option<Result<Approval, E>>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.decide_approval(id, decision, note, judge).await,
        }
    }

    /// Takes an approval to run the call, if nobody else has and it is in time. Durable when this returns.
    ///
    /// # Errors
    /// The store's own: then it is not known to be taken, and must not be used.
    pub async fn consume_approval(&self, id: &str, consumer: &str, at_ms: i64) -> Result<Option<Approval>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.consume_approval(id, consumer, at_ms).await,
        }
    }

    /// Writes down how the run of `consumer` ended. A call that was taken for lost meanwhile, and was not resolved, is found again.
    ///
    /// # Errors
    /// The store's own.
    pub async fn finish_approval(
        &self,
        id: &str,
        consumer: &str,
        state: ApprovalState,
        result: Option<Vec<u8>>,
        note: Option<String>,
        at_ms: i64,
    ) -> Result<bool, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.finish_approval(id, consumer, state, result, note, at_ms).await,
        }
    }

    /// Moves a held call on, if it is where it must be. Durable when this returns.
    ///
    /// # Errors
    /// The store's own.
    pub async fn move_approval(&self, id: &str, step: Move) -> Result<bool, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.move_approval(id, step).await,
        }
    }

    /// Notes that a client was given the result. `true`: it was the first one.
    ///
    /// # Errors
    /// The store's own.
    pub async fn receive_approval(&self, id: &str, at_ms: i64) -> Result<bool, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.receive_approval(id, at_ms).await,
        }
    }

    /// Notes that callers wait for these, until then at least.
    ///
    /// # Errors
    /// The store's own.
    pub async fn attend_approvals(&self, ids: Vec<Arc<str>>, until_ms: i64) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.attend_approvals(ids, until_ms).await,
        }
    }

    /// Makes a held call one that a task waits for until then; earlier or later than before.
    ///
    /// # Errors
    /// The store's own.
    pub async fn set_approval_task(&self, id: &str, until_ms: Option<i64>) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.set_approval_task(id, until_ms).await,
        }
    }

    /// The held calls changed after `change`, by any process, and the number to ask with next; `0` is before the first.
    /// Cheap when nothing changed.
    ///
    /// # Errors
    /// The store's own.
    pub async fn approvals_after(&self, change: i64) -> Result<(i64, Vec<Arc<str>>), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.approvals_after(change).await,
        }
    }

    /// Ends what was not decided on, or not used, in time. Gives those calls.
    ///
    /// # Errors
    /// The store's own.
    pub async fn expire_approvals(&self, at_ms: i64) -> Result<Vec<Approval>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.expire_approvals(at_ms).await,
        }
    }

    /// Marks what processes were running that are not there any more. Gives those calls.
    ///
    /// # Errors
    /// The store's own.
    pub async fn find_lost_approvals(&self, at_ms: i64) -> Result<Vec<Approval>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.find_lost_approvals(at_ms).await,
        }
    }

    /// The name of this process, by which others can tell whether it is still there.
    pub fn process(&self) -> &str {
        match &self.0 {
            Backend::Sqlite(backend) => backend.process(),
        }
    }

    /// Erases calls and results that ended before `erase_before_ms`, and forgets those that ended before `forget_before_ms`.
    ///
    /// # Errors
    /// The store's own.
    pub async fn purge_approvals(&self, erase_before_ms: i64, forget_before_ms: i64) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.purge_approvals(erase_before_ms, forget_before_ms).await,
        }
    }
}
