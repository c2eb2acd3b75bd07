//! `/grants`: what a person let act for them, and taking it back.

use super::client::Client;
use super::{Shared, error_pages, login, record, redirect};
use crate::browser::Form;
use crate::browser::LoggedIn;
use crate::browser::Submitted;
use crate::pages::{self, GrantRow};
use crate::snapshot::Snapshot;
use crate::store::{self, Grant, Subject};
use crate::web::Caller;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use std::sync::Arc;

/// `GET /grants`.
pub(super) async fn get(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let snapshot = shared.snapshots.load_full();
    let logged_in = match shared.plane.current(&snapshot, &headers).await {
        Ok(Some(logged_in)) => logged_in,
        Ok(None) => return login::page_for(&shared, &snapshot, &shared.plane.browser(&snapshot, &headers), None),
        Err(error) => return error_pages::unavailable(&caller, &error),
    };
    let query = Form::parse(query.unwrap_or_default().as_bytes()).unwrap_or_default();
    match rows(&shared, &snapshot, &logged_in).await {
        Ok(grants) => {
            let page = pages::Grants {
                user: logged_in.person.name.to_string(),
                csrf: shared.plane.csrf(&logged_in.session),
                grants,
                notice: query.has("revoked").then(|| "Revoked. Its tokens no longer open anything.".to_owned()),
            };
            pages::answer(StatusCode::OK, &page, None)
        }
        Err(error) => error_pages::unavailable(&caller, &error),
    }
}

async fn rows(shared: &Shared, snapshot: &Snapshot, logged_in: &LoggedIn) -> Result<Vec<GrantRow>, store::Error> {
    let mut rows = Vec::new();
    // All of them, and not a first page: what does not stand here cannot be taken back.
    for grant in in_force(shared, logged_in).await? {
        rows.push(row(shared, snapshot, grant).await);
    }
    Ok(rows)
}

/// What acts for this person: not over, not revoked, and given under the password they have now.
pub(super) async fn in_force(shared: &Shared, logged_in: &LoggedIn) -> Result<Vec<Grant>, store::Error> {
    let subject = Subject::User(Arc::clone(&logged_in.person.name));
    let mut grants = shared.store.grants_in_force(&subject, shared.clock.unix_ms()).await?;
    grants.retain(|grant| grant.password_mark.as_ref().is_none_or(|mark| *mark == logged_in.person.password_mark));
    Ok(grants)
}

async fn row(shared: &Shared, snapshot: &Snapshot, grant: Grant) -> GrantRow {
    // A document would have to be fetched; its URL says enough.
    let known =
        if grant.client.starts_with("https://") { None } else { Client::find(shared, &grant.client).await.ok() };
    let route = snapshot.routes.values().find(|route| *route.resource == *grant.resource);
    GrantRow {
        id: grant.id.to_string(),
        client: known.and_then(|client| client.name).unwrap_or_else(|| grant.client.to_string()),
        client_id: grant.client.to_string(),
        route: route.map_or_else(|| grant.resource.to_string(), |route| route.name.to_string()),
        scopes: grant.scopes.join(" "),
        made_by: grant.made_by,
        since: pages::moment(grant.created_at_ms),
        until: pages::moment(grant.expires_at_ms),
    }
}

/// `POST /grants`: revokes one.
pub(super) async fn post(State(shared): State<Shared>, Submitted { caller, headers, form }: Submitted) -> Response {
    let snapshot = shared.snapshots.load_full();
    let logged_in = match shared.plane.current(&snapshot, &headers).await {
        Ok(Some(logged_in)) => logged_in,
        Ok(None) => return error_pages::start_again(&caller),
        Err(error) => return error_pages::unavailable(&caller, &error),
    };
    if !shared.plane.is_csrf(&logged_in.session, form.get("csrf")) {
        return error_pages::start_again(&caller);
    }
    match revoke(&shared, &snapshot, &caller, &logged_in, form.get("grant").unwrap_or_default()).await {
        Ok(()) => redirect::within("/grants?revoked"),
        Err(error) => error_pages::unavailable(&caller, &error),
    }
}

/// Ends the grant if it is this person's. Somebody else's is left alone, without saying that it exists.
async fn revoke(
    shared: &Shared,
    snapshot: &Snapshot,
    caller: &Caller,
    logged_in: &LoggedIn,
    id: &str,
) -> Result<(), store::Error> {
    let subject = Subject::User(Arc::clone(&logged_in.person.name));
    let Some(grant) = shared.store.grant(id).await?.filter(|grant| grant.subject == subject) else {
        return Ok(());
    };
    let now_ms = shared.clock.unix_ms();
    shared.store.revoke_grant(&grant.id, &subject.to_string(), now_ms).await?;
    // Taking it back means to be asked again.
    shared.store.forget_consents(&logged_in.person.name, &grant.client).await?;
    record::revoked(shared, snapshot, caller, &grant);
    Ok(())
}
