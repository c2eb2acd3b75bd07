//! Upstreams that are processes of our own: what they are started with, how they are kept running, and how requests show
//! them that they come from us.
//!
//! An upstream is described here when the configuration is compiled; nothing runs before [`supervise`] sees it in force.

mod cgroup;
mod health;
mod keeper;
mod sandbox;
mod ssh;
mod start;
mod supervise;
mod told;
mod trusted;
mod user;
mod visitor;

pub use keeper::keep;
pub use supervise::{supervise, supervised};
pub use visitor::{Visitor, ssh_settings};

/// The header that names a request to a local upstream.
pub(super) const REQUEST: &str = request::HEADER;

use super::Error;
use crate::config::{self, Path, Problem, SandboxUpstream, SshUpstream};
use crate::identity::{Principal, Subject};
use http::{HeaderName, HeaderValue};
use portcullis_local::handover::{SECRET_HEADER, SECRET_LEN};
use portcullis_local::{Principal as Asker, principal, request};
use start::{Kind, Plan};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::watch;

/// Where sockets of local upstreams are, in `data_dir`.
const SOCKETS: &str = "run";
/// How long a request waits for a process that is to be started.
const START_LIMIT: Duration = Duration::from_secs(10);

/// The process behind an upstream.
pub(super) struct Process {
    /// Where it answers.
    pub(super) socket: PathBuf,
    plan: Plan,
    state: watch::Sender<State>,
    /// The cgroups that were made for it, as it runs now.
    cgroups: Mutex<Vec<PathBuf>>,
}

/// How it is with a process.
#[derive(Clone, Debug)]
enum State {
    /// Nothing was started yet.
    New,
    /// It was started, and does not answer yet.
    Starting,
    /// It answers.
    Up(Secret),
    /// It does not run, for this reason.
    Down(String),
}

/// What opens a process, for as long as it is the same.
pub(super) struct Pass {
    /// The header that its requests carry.
    pub(super) header: (HeaderName, HeaderValue),
    secret: Secret,
    state: watch::Receiver<State>,
}

type Secret = crate::secret::Secret<[u8; SECRET_LEN]>;

// === impl Process ===

impl Process {
    /// Describes a sandbox; starts nothing.
    ///
    /// # Errors
    /// What it was given makes no sense on this host.
    pub(super) fn sandbox(
        name: &str,
        settings: &SandboxUpstream,
        loaded: &config::Loaded,
        at: &Path,
    ) -> Result<Process, Vec<Problem>> {
        Ok(Process::of(sandbox::plan(name, settings, loaded, at)?, loaded))
    }

    /// Describes an SSH upstream; starts nothing. With the digest of where it leads (`upstream::endpoint`), out of the same
    /// read of its files.
    ///
    /// # Errors
    /// Everything about it that cannot be used, its files included.
    pub(super) fn ssh(
        name: &str,
        from: &SshUpstream,
        loaded: &config::Loaded,
        at: &Path,
    ) -> Result<(Process, [u8; 32]), Vec<Problem>> {
        let settings = ssh::settings(name, from, loaded, at)?;
        let endpoint = super::endpoint::of_ssh(&settings);
        let plan = Plan { user: from.user.clone(), ..Plan::of(name, Kind::Ssh(Box::new(settings))) };
        Ok((Process::of(plan, loaded), endpoint))
    }

    fn of(plan: Plan, loaded: &config::Loaded) -> Process {
        // One name for each configuration: calls may still use the process of the one before.
        let name = format!("{}.{}.sock", plan.name, crate::id::short());
        let socket = loaded.resolve(&loaded.config.data_dir).join(SOCKETS).join(name);
        Process { socket, plan, state: watch::Sender::new(State::New), cgroups: Mutex::default() }
    }

    /// The longest time that one of its calls may take.
    pub(super) fn longest(&self) -> Duration {
        self.plan.kind.longest()
    }

    /// SHA-256 over everything that it is started with, secrets included.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        self.plan.kind.fingerprint()
    }

    /// What opens the process as it runs now. While it is started, this waits.
    ///
    /// # Errors
    /// [`Error::Down`]: it does not run.
    pub(super) async fn pass(&self) -> Result<Pass, Error> {
        let mut state = self.state.subscribe();
        let is_known = |state: &State| matches!(state, State::Up(_) | State::Down(_));
        let known = tokio::time::timeout(START_LIMIT, state.wait_for(is_known)).await;
        let late = || Error::Down("it was not started in time".to_owned());
        let secret = match &*known.map_err(|_| late())?.map_err(|_| late())? {
            State::Up(secret) => secret.clone(),
            State::Down(why) => return Err(Error::Down(why.clone())),
            State::New | State::Starting => return Err(late()),
        };
        Ok(Pass { header: secret_header(&secret), secret, state })
    }

    /// How it is right now, for the person who runs the gateway.
    pub(super) fn described(&self) -> String {
        match &*self.state.borrow() {
            State::New | State::Starting => "is starting".to_owned(),
            State::Up(_) => "runs".to_owned(),
            State::Down(why) => format!("does not run: {why}"),
        }
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// [`Error::Down`]: it cannot be started, for this reason.
    pub(super) async fn up(&self) -> Result<(), Error> {
        let mut state = self.state.subscribe();
        let is_known = |state: &State| matches!(state, State::Up(_) | State::Down(_));
        match state.wait_for(is_known).await.as_deref() {
            Ok(State::Down(why)) => Err(Error::Down(why.clone())),
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Down("nobody keeps it running".to_owned())),
        }
    }
}

// === impl Pass ===

impl Pass {
    /// Returns when the process that this opens has ended, or is to. What was sent to its socket and not answered will not
    /// be: the socket outlives it.
    pub(super) async fn over(&self) {
        let is_another = |state: &State| !matches!(state, State::Up(secret) if *secret == self.secret);
        // An error means that nobody keeps it running any more.
        let _ = self.state.clone().wait_for(is_another).await;
    }
}

fn secret_header(secret: &Secret) -> (HeaderName, HeaderValue) {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(secret.expose());
    let mut value = HeaderValue::try_from(text).expect("base64url is visible ASCII");
    value.set_sensitive(true);
    (HeaderName::from_static(SECRET_HEADER), value)
}

/// Who asks, as a local upstream is told: a person of this gateway is the same whoever vouched for them.
pub(super) fn principal_header(who: &Principal) -> (HeaderName, HeaderValue) {
    let subject = match (&who.person, &who.subject) {
        (Some(person), _) => (String::new(), format!("user:{person}")),
        (None, Subject::Client(id)) if who.is_local => (String::new(), format!("client:{id}")),
        (None, Subject::User(name)) => (who.issuer.to_string(), name.to_string()),
        (None, Subject::Client(id)) => (who.issuer.to_string(), id.to_string()),
    };
    asker_header(&Asker { issuer: subject.0, subject: subject.1 })
}

/// Which request it is, as a local upstream is told: the name that the audit log has for it.
pub(super) fn request_header(name: &str) -> (HeaderName, HeaderValue) {
    let value = HeaderValue::try_from(name).expect("names of requests are visible ASCII");
    (HeaderName::from_static(request::HEADER), value)
}

fn asker_header(asker: &Asker) -> (HeaderName, HeaderValue) {
    let value = HeaderValue::try_from(asker.to_header()).expect("base64url is visible ASCII");
    (HeaderName::from_static(principal::HEADER), value)
}
