//! What pages put into the audit log of logins and refusals. Never a password; a name only where it is somebody's.

use super::{Plane, Refusal};
use crate::audit::{Event, Kind, Subject, Who};
use crate::identity::PasswordError;
use crate::snapshot::Snapshot;
use crate::web::Caller;

/// What people use when no OAuth client is involved.
const BROWSER: &str = "browser";

/// An event of this request. `peer` is its [`address`].
pub fn event<'a>(kind: Kind, snapshot: &'a Snapshot, caller: &'a Caller, peer: Option<&'a str>) -> Event<'a> {
    Event { request: Some(&caller.request), peer, snapshot: Some(&snapshot.hash), ..Event::new(kind) }
}

/// A person of this gateway, using `client`.
pub fn person<'a>(snapshot: &'a Snapshot, name: &'a str, client: &'a str, grant: Option<&'a str>) -> Who<'a> {
    Who { issuer: &snapshot.public_url, subject: Subject::User(name), client, grant, person: None }
}

/// Where a request came from, as it is written down.
pub fn address(caller: &Caller) -> Option<String> {
    caller.address.map(|address| address.to_string())
}

impl Plane {
    /// A person has logged in.
    pub fn login_succeeded(&self, snapshot: &Snapshot, caller: &Caller, name: &str) {
        self.of_person(Kind::LoginSucceeded, snapshot, caller, name);
    }

    /// The first person was made, by whoever had the link.
    pub fn user_added(&self, snapshot: &Snapshot, caller: &Caller, name: &str, detail: &str) {
        let peer = address(caller);
        self.audit.record_later(Event {
            object: Some(name),
            detail: Some(detail),
            ..event(Kind::UserAdded, snapshot, caller, peer.as_deref())
        });
    }

    /// A person has logged out.
    pub fn logged_out(&self, snapshot: &Snapshot, caller: &Caller, name: &str) {
        self.of_person(Kind::LoginEnded, snapshot, caller, name);
    }

    fn of_person(&self, kind: Kind, snapshot: &Snapshot, caller: &Caller, name: &str) {
        let peer = address(caller);
        self.audit.record_later(Event {
            principal: Some(person(snapshot, name, BROWSER, None)),
            detail: self.kind.place,
            ..event(kind, snapshot, caller, peer.as_deref())
        });
    }

    /// Somebody has failed to log in. What they typed as a name is recorded only if it is one: people type passwords there.
    pub fn login_failed(&self, snapshot: &Snapshot, caller: &Caller, name: &str, error: &PasswordError) {
        let peer = address(caller);
        let code = match error {
            PasswordError::Wrong | PasswordError::Length => "login.wrong",
            PasswordError::Paused { .. } => "login.paused",
            PasswordError::Busy => "login.busy",
            _ => "login.unavailable",
        };
        let known = snapshot.users.get(name);
        self.audit.record_stranger(Event {
            object: known.map(|person| &*person.name),
            code: Some(code),
            detail: self.kind.place,
            ..event(Kind::LoginFailed, snapshot, caller, peer.as_deref())
        });
    }

    /// Writes down that a page or endpoint has refused a request. Strangers cannot fill the log with it.
    pub fn refused(&self, caller: &Caller, refusal: &Refusal) {
        let (peer, snapshot) = (address(caller), self.snapshots.load_full());
        self.audit.record_stranger(Event {
            code: Some(refusal.code),
            detail: Some(&refusal.detail),
            ..event(Kind::Refused, &snapshot, caller, peer.as_deref())
        });
    }
}
