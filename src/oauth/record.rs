//! What pages and endpoints put into the audit log. Never a password, a code or a token; a name only where it is somebody's.

use super::Shared;
use super::error::{ErrorCode, OAuthError};
use super::request::Request;
use crate::audit::{Durability, Event, Kind, Subject, Who};
use crate::browser::LoggedIn;
use crate::browser::{address, event, person};
use crate::snapshot::Snapshot;
use crate::store::{self, Choice, Grant};
use crate::web::Caller;

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

/// The answer while nothing can be recorded.
pub(super) fn unavailable() -> OAuthError {
    OAuthError::new(ErrorCode::TemporarilyUnavailable, "this server cannot record that now; try again")
}
