//! What the pages of both planes stand on: logins, sessions, forms, and what is recorded of them.
//!
//! A plane is a listener's set of pages with logins of its own: the agent listener's (`oauth`: login, consent, grants) and the
//! admin listener's (`admin`: approvals). They share this code and nothing else: a [`Kind`] says a plane's cookies and how long
//! its sessions last, and what one plane has signed or handed out means nothing to the other.

mod answer;
mod budget;
mod form;
mod password;
mod record;
mod refusal;
mod session;
mod signing;
mod submitted;

pub use answer::{go_to, problem, unavailable};
pub use budget::{Budget, Rate};
pub use form::{Form, Malformed};
pub use password::{Trouble, trouble};
pub use record::{address, event, person};
pub use refusal::{Refusal, write_down};
pub use session::{Browser, LoggedIn, link};
pub use signing::{Purpose, Signing};
pub use submitted::Submitted;

use crate::audit::Audit;
use crate::clock::Clock;
use crate::snapshot::Snapshot;
use crate::store::Store;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::time::Duration;

/// What tells a plane from the other.
#[derive(Debug)]
pub struct Kind {
    /// Its word in the names of keys.
    pub name: &'static str,
    /// What records add of a login; `None` where the log has always meant this plane.
    pub place: Option<&'static str>,
    /// Under which word wrong passwords of browsers that are not known are counted here; `None`: with those of everybody
    /// else. With one, what strangers do on the other plane delays nobody on this one.
    pub apart: Option<&'static str>,
    /// The cookie of a session.
    pub session: &'static str,
    /// The beginning of the cookie that marks a browser.
    pub browser: &'static str,
    /// The cookie of a browser that a person has logged in with before.
    pub device: &'static str,
    /// Stands before a session's cookie where it is hashed.
    pub session_domain: &'static [u8],
    /// A session that is not used for this long is over.
    pub idle_ms: i64,
    /// A session is over after this long.
    pub longest_ms: i64,
    /// The origin that people type.
    pub url: fn(&Snapshot) -> &str,
}

/// The logins of one plane. Clones share them.
#[derive(Clone)]
pub struct Plane {
    /// What it is.
    pub kind: &'static Kind,
    /// The configuration in force.
    pub snapshots: Arc<ArcSwap<Snapshot>>,
    /// Sessions and failed logins.
    pub store: Store,
    /// Now.
    pub clock: Clock,
    /// The record of who came.
    pub audit: Audit,
    /// What signs the small things that browsers keep.
    pub signing: Arc<Signing>,
    /// How fast one address may try passwords.
    logins: Arc<Budget>,
}

impl Plane {
    /// The plane of this kind; `key` is the gateway's.
    pub fn new(
        kind: &'static Kind,
        key: &[u8; 32],
        snapshots: Arc<ArcSwap<Snapshot>>,
        store: Store,
        clock: Clock,
        audit: Audit,
    ) -> Plane {
        Plane {
            kind,
            snapshots,
            store,
            clock,
            audit,
            signing: Arc::new(Signing::new(key, kind.name)),
            logins: Arc::new(Budget::of_each(Rate { burst: 20, every: Duration::from_secs(3) })),
        }
    }
}
