//! Tokens for a machine on its own account (RFC 6749 §4.4): only for clients that the configuration says are machines.
//!
//! No refresh token: the machine has what it needs to ask again. Each token is a grant of its own, so that ending one
//! does not take the others from the machine's other processes.

use super::client::Client;
use super::error::{ErrorCode, OAuthError};
use super::post::Post;
use super::token::{self, Tokens};
use super::{Shared, record, resource, scope};
use crate::audit::Kind;
use crate::id;
use crate::snapshot::{Route, Snapshot};
use crate::store::{self, Grant, Subject};
use std::sync::Arc;

/// A token for the machine that asks.
///
/// # Errors
/// `unauthorized_client` where it is none, `invalid_target` where the resource is none of its routes.
pub(super) async fn issue(shared: &Shared, post: &Post, client: &Client) -> Result<Tokens, OAuthError> {
    let Some(machine) = &client.machine else {
        let why = "this client may not act on its own account; `identity.clients` says which may";
        return Err(OAuthError::new(ErrorCode::UnauthorizedClient, why));
    };
    let snapshot = shared.snapshots.load_full();
    let route = route(&snapshot, &machine.routes, post.form.get("resource"))?;
    let scopes: Arc<[String]> = scope::granted(&snapshot, post.form.get("scope"))?.into();
    let now_ms = shared.clock.unix_ms();
    let grant = Grant {
        id: id::unguessable("g_").into(),
        issuer: snapshot.public_url.clone(),
        subject: Subject::Client(client.id.clone()),
        client: client.id.clone(),
        resource: route.resource.as_str().into(),
        scopes: scopes.clone(),
        created_at_ms: now_ms,
        expires_at_ms: now_ms.saturating_add(token::access_token_s(&snapshot).saturating_mul(1000)),
        made_by: "client credentials".to_owned(),
        password_mark: None,
        longest_until_ms: None,
        revoked: None,
    };
    shared.store.insert_grant(grant.clone()).await.map_err(|error| match error {
        store::Error::TooMany { .. } => {
            OAuthError::new(ErrorCode::SlowDown, "too many tokens of this client are in force; use one until it ends")
        }
        error => error.into(),
    })?;
    record::of_grant(shared, Kind::TokenIssued, &post.caller, &grant).await?;
    token::issue(shared, &snapshot, &grant, scopes, None)
}

/// The route the machine means: the one it names, or the only one it has.
fn route(snapshot: &Snapshot, its_routes: &[String], asked: Option<&str>) -> Result<Arc<Route>, OAuthError> {
    let not_its_own = OAuthError::new(ErrorCode::InvalidTarget, "this client may have no token for that resource");
    let route = match (asked, its_routes) {
        (None, [only]) => Arc::clone(snapshot.routes.get(only).ok_or(not_its_own)?),
        _ => resource::route_for(snapshot, asked)?,
    };
    if its_routes.iter().any(|name| **name == *route.name) { Ok(route) } else { Err(not_its_own) }
}
