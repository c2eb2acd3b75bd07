//! What pages and endpoints put into the audit log. Never a password, a code or a token; a name only where it is somebody's.

use super::Shared;
use super::browser::LoggedIn;
use super::error::{ErrorCode, OAuthError};
use super::refusal::Refusal;
use super::request::Request;
use crate::audit::{Durability, Event, Kind, Subject, Who};
use crate::identity::PasswordError;
use crate::snapshot::Snapshot;
use crate::store::{self, Choice, Grant};
use crate::web::Caller;

/// What people use when no OAuth client is involved.
const BROWSER: &str = "browser";

fn event<'a>(kind: Kind, snapshot: &'a Snapshot, caller: &'a Caller, peer: Option<&'a str>) -> Event<'a> {
    Event { request: Some(&caller.request), peer, snapshot: Some(&snapshot.hash), ..Event::new(kind) }
}

fn person<'a>(snapshot: &'a Snapshot, name: &'a str, client: &'a str, grant: Option<&'a str>) -> Who<'a> {
    Who { issuer: &snapshot.public_url, subject: Subject::User(name), client, grant, person: None }
}

fn address(caller: &Caller) -> Option<String> {
    caller.address.map(|address| address.to_string())
}

/// A person has logged in.
pub(super) fn login_succeeded(shared: &Shared, snapshot: &Snapshot, caller: &Caller, name: &str) {
    let peer = address(caller);
    shared.audit.record_later(Event {
        principal: Some(person(snapshot, name, BROWSER, None)),
        ..event(Kind::LoginSucceeded, snapshot, caller, peer.as_deref())
    });
}

/// A person has logged out.
pub(super) fn logged_out(shared: &Shared, snapshot: &Snapshot, caller: &Caller, name: &str) {
    let peer = address(caller);
    shared.audit.record_later(Event {
        principal: Some(person(snapshot, name, BROWSER, None)),
        ..event(Kind::LoginEnded, snapshot, caller, peer.as_deref())
    });
}

/// Somebody has failed to log in. What they typed as a name is recorded only if it is one: people type passwords there.
pub(super) fn login_failed(shared: &Shared, snapshot: &Snapshot, caller: &Caller, name: &str, error: &PasswordError) {
    let peer = address(caller);
    let code = match error {
        PasswordError::Wrong | PasswordError::Length => "login.wrong",
        PasswordError::Paused { .. } => "login.paused",
        PasswordError::Busy => "login.busy",
        _ => "login.unavailable",
    };
    let known = snapshot.users.get(name);
    shared.audit.record_stranger(Event {
        object: known.map(|person| &*person.name),
        code: Some(code),
        ..event(Kind::LoginFailed, snapshot, caller, peer.as_deref())
    });
}

/// A person has said yes or no to a client.
pub(super) fn consent(
    shared: &Shared,
    snapshot: &Snapshot,
    caller: &Caller,
    logged_in: &LoggedIn,
    request: &Request,
    choice: Choice,
) {
    let peer = address(caller);
    let kind = match choice {
        Choice::Allow => Kind::ConsentGiven,
        Choice::Deny => Kind::ConsentDenied,
    };
    shared.audit.record_later(Event {
        principal: Some(person(snapshot, &logged_in.person.name, &request.client, None)),
        route: Some(&request.route),
        ..event(kind, snapshot, caller, peer.as_deref())
    });
}

/// A person has taken a grant back.
pub(super) fn revoked(shared: &Shared, snapshot: &Snapshot, caller: &Caller, grant: &Grant) {
    let peer = address(caller);
    shared.audit.record_later(Event {
        principal: Some(person(snapshot, grant.subject.name(), &grant.client, Some(&grant.id))),
        detail: Some("revoked on the page of grants"),
        ..event(Kind::TokenRevoked, snapshot, caller, peer.as_deref())
    });
}

/// A login has taken the place of an idle one. It is done already, so nobody waits for the record.
pub(super) fn displaced(shared: &Shared, snapshot: &Snapshot, caller: &Caller, grant: &Grant) {
    let peer = address(caller);
    shared.audit.record_later(Event {
        principal: Some(person(snapshot, grant.subject.name(), &grant.client, Some(&grant.id))),
        detail: Some("a newer login took its place"),
        ..event(Kind::TokenRevoked, snapshot, caller, peer.as_deref())
    });
}

/// Writes down what is done with a grant at an endpoint for machines, and waits until it is written.
///
/// # Errors
/// When it could not be written. The client then gets no token.
pub(super) async fn of_grant(shared: &Shared, kind: Kind, caller: &Caller, grant: &Grant) -> Result<(), OAuthError> {
    let peer = address(caller);
    let snapshot = shared.snapshots.load_full();
    let route = snapshot.routes.values().find(|route| *route.resource == *grant.resource);
    let subject = match &grant.subject {
        store::Subject::User(name) => Subject::User(name),
        store::Subject::Client(id) => Subject::Client(id),
    };
    let who = Who { issuer: &grant.issuer, subject, client: &grant.client, grant: Some(&grant.id), person: None };
    let event = Event {
        principal: Some(who),
        route: route.map(|route| &*route.name),
        ..event(kind, &snapshot, caller, peer.as_deref())
    };
    let written = shared.audit.record(event, Durability::Written).await;
    written.map(|_| ()).map_err(|error| {
        tracing::error!(%error, "a token was not issued, because that could not be recorded");
        unavailable()
    })
}

/// Writes down that a page or endpoint has refused a request. Strangers cannot fill the log with it.
pub(super) fn refused(shared: &Shared, caller: &Caller, refusal: &Refusal) {
    let (peer, snapshot) = (address(caller), shared.snapshots.load_full());
    shared.audit.record_stranger(Event {
        code: Some(refusal.code),
        detail: Some(&refusal.detail),
        ..event(Kind::Refused, &snapshot, caller, peer.as_deref())
    });
}

/// The answer while nothing can be recorded.
pub(super) fn unavailable() -> OAuthError {
    OAuthError::new(ErrorCode::TemporarilyUnavailable, "this server cannot record that now; try again")
}
