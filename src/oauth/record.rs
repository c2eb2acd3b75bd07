//! What the endpoints for machines write into the audit log: names of grants, never a token, code or secret.

use super::Shared;
use super::error::{ErrorCode, OAuthError};
use crate::audit::{self, Durability, Event, Kind, Who};
use crate::store::{Grant, Subject};
use crate::web::Caller;

/// Writes down what was done with a grant, and waits until it is written.
///
/// # Errors
/// When it could not be written. The client then gets no token.
pub(super) async fn of_grant(shared: &Shared, kind: Kind, caller: &Caller, grant: &Grant) -> Result<(), OAuthError> {
    let peer = caller.address.map(|address| address.to_string());
    let snapshot = shared.snapshots.load();
    let route = snapshot.routes.values().find(|route| *route.resource == *grant.resource);
    let event = Event {
        request: Some(&caller.request),
        peer: peer.as_deref(),
        principal: Some(who(grant)),
        route: route.map(|route| &*route.name),
        ..Event::new(kind)
    };
    let written = shared.audit.record(event, Durability::Written).await;
    written.map(|_| ()).map_err(|error| {
        tracing::error!(%error, "a token was not issued, because that could not be recorded");
        unavailable()
    })
}

/// Writes down that a client was refused. Strangers cannot fill the log with it.
pub(super) fn refused(shared: &Shared, caller: &Caller, error: &OAuthError) {
    let peer = caller.address.map(|address| address.to_string());
    shared.audit.record_stranger(Event {
        request: Some(&caller.request),
        peer: peer.as_deref(),
        code: Some(error.code.as_str()),
        detail: Some(error.description),
        ..Event::new(Kind::Refused)
    });
}

/// The answer while nothing can be recorded.
pub(super) fn unavailable() -> OAuthError {
    OAuthError::new(ErrorCode::TemporarilyUnavailable, "this server cannot record that now; try again")
}

fn who(grant: &Grant) -> Who<'_> {
    Who {
        issuer: &grant.issuer,
        subject: match &grant.subject {
            Subject::User(name) => audit::Subject::User(name),
            Subject::Client(id) => audit::Subject::Client(id),
        },
        client: &grant.client,
        grant: Some(&grant.id),
        person: None,
    }
}
