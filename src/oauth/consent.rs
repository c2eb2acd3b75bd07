//! `/consent`: whether a client may act for the person who is logged in.
//!
//! Only what was checked and stored is shown and decided on; the form that comes back says which request and what answer,
//! nothing else. It counts in the session it was shown in, once.

use super::client::{Client, Origin};
use super::request::{RedirectError, Request};
use super::{Shared, error_pages, grants, record, redirect};
use crate::audit::sha256;
use crate::browser::Form;
use crate::browser::LoggedIn;
use crate::browser::Purpose;
use crate::browser::Submitted;
use crate::pages::{self, Asking};
use crate::redirect_uri;
use crate::snapshot::Snapshot;
use crate::store::{self, Choice, Code, Consent, Decided, Flow, Subject};
use crate::web::Caller;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A request waits this long for its answer (MCP security best practices: at most ten minutes).
const WAITS_MS: i64 = 10 * 60 * 1000;
/// A form that is sent twice gets the same answer twice, within this time. Later the client has used the code, and a second
/// use would look like theft.
const SENT_TWICE_MS: i64 = 10 * 1000;
/// RFC 6749 §4.1.2 has at most ten minutes; a redirect takes a moment.
const CODE_MS: i64 = 60 * 1000;

/// `GET /consent?flow=…`.
pub(super) async fn get(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let snapshot = shared.snapshots.load_full();
    let logged_in = match logged_in(&shared, &snapshot, &caller, &headers).await {
        Ok(logged_in) => logged_in,
        Err(page) => return page,
    };
    let form = Form::parse(query.unwrap_or_default().as_bytes()).unwrap_or_default();
    let (flow, request, client) =
        match waiting(&shared, &caller, &logged_in, form.get("flow").unwrap_or_default()).await {
            Ok(found) => found,
            Err(page) => return page,
        };
    if flow.decision.is_some() {
        return error_pages::answered(&caller);
    }
    let page = pages::Consent {
        user: logged_in.person.name.to_string(),
        asking: asking(&request, &client),
        flow: flow.id,
        csrf: shared.plane.csrf(&logged_in.session),
    };
    pages::answer(StatusCode::OK, &page, form_target(&request).as_deref())
}

/// `POST /consent`.
pub(super) async fn post(State(shared): State<Shared>, Submitted { caller, headers, form }: Submitted) -> Response {
    let snapshot = shared.snapshots.load_full();
    let logged_in = match logged_in(&shared, &snapshot, &caller, &headers).await {
        Ok(logged_in) => logged_in,
        Err(page) => return page,
    };
    if !shared.plane.is_csrf(&logged_in.session, form.get("csrf")) {
        return error_pages::start_again(&caller);
    }
    let Some(choice) = form.get("decision").and_then(Choice::of) else {
        return error_pages::malformed(&caller, "the form says neither allow nor deny");
    };
    let (flow, request, client) =
        match waiting(&shared, &caller, &logged_in, form.get("flow").unwrap_or_default()).await {
            Ok(found) => found,
            Err(page) => return page,
        };
    match choice {
        Choice::Allow => allow(&shared, &snapshot, &caller, &logged_in, &flow.id, &request, &client).await,
        Choice::Deny => deny(&shared, &snapshot, &caller, &logged_in, &flow.id, &request).await,
    }
}

async fn logged_in(
    shared: &Shared,
    snapshot: &Snapshot,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<LoggedIn, Response> {
    match shared.plane.current(snapshot, headers).await {
        Ok(Some(logged_in)) => Ok(logged_in),
        Ok(None) => Err(error_pages::start_again(caller)),
        Err(error) => Err(error_pages::unavailable(caller, &error)),
    }
}

/// The request of this id, if it waits in this session, with its client as it is now.
pub(super) async fn waiting(
    shared: &Shared,
    caller: &Caller,
    logged_in: &LoggedIn,
    id: &str,
) -> Result<(Flow, Request, Client), Response> {
    let flow = shared.store.flow(id).await.map_err(|error| error_pages::unavailable(caller, &error))?;
    let is_here = |flow: &Flow| flow.session == logged_in.session.digest;
    let flow = flow.filter(is_here).ok_or_else(|| error_pages::start_again(caller))?;
    let age_ms = shared.clock.unix_ms().saturating_sub(flow.created_at_ms);
    let request = Request::of_json(flow.request.as_bytes()).filter(|_| (0..WAITS_MS).contains(&age_ms));
    let request = request.ok_or_else(|| error_pages::start_again(caller))?;
    // Asked anew: a client that was removed, or has changed its document, is not what was checked.
    let client = Client::find(shared, &request.client).await.ok();
    let client = client.filter(|client| client.allows_redirect_to(&request.redirect_uri));
    let client = client.ok_or_else(|| error_pages::start_again(caller))?;
    Ok((flow, request, client))
}

/// The person says yes: the client gets a code.
pub(super) async fn allow(
    shared: &Shared,
    snapshot: &Snapshot,
    caller: &Caller,
    logged_in: &LoggedIn,
    flow: &str,
    request: &Request,
    client: &Client,
) -> Response {
    // A route that is gone by now has nothing to consent to.
    if !snapshot.routes.values().any(|route| route.resource == request.resource) {
        return error_pages::start_again(caller);
    }
    let decided = match decide(shared, caller, logged_in, flow, Choice::Allow).await {
        Ok(decided) => decided,
        Err(page) => return page,
    };
    // The same flow gives the same code: a form that was sent twice does not leave a second one lying around.
    let code = shared.signing.mark(Purpose::Code, flow.as_bytes());
    if let Err(error) = write(shared, snapshot, logged_in, request, client, &code, decided.at_ms).await {
        return error_pages::unavailable(caller, &error);
    }
    if decided.is_repeated {
        // Where the client was faster, a second use of the code would end what it has just got.
        match shared.store.is_code_open(sha256(code.as_bytes()), shared.clock.unix_ms()).await {
            Ok(true) => {}
            Ok(false) => return error_pages::answered(caller),
            Err(error) => return error_pages::unavailable(caller, &error),
        }
    } else {
        record::consent(shared, snapshot, caller, logged_in, request, Choice::Allow);
    }
    redirect::to_client(&redirect::succeeded(snapshot, request, &code))
}

async fn deny(
    shared: &Shared,
    snapshot: &Snapshot,
    caller: &Caller,
    logged_in: &LoggedIn,
    flow: &str,
    request: &Request,
) -> Response {
    match decide(shared, caller, logged_in, flow, Choice::Deny).await {
        Ok(decided) if decided.is_repeated => {}
        Ok(_) => record::consent(shared, snapshot, caller, logged_in, request, Choice::Deny),
        Err(page) => return page,
    }
    // A no takes back an earlier yes.
    if let Err(error) = shared.store.forget_consents(&logged_in.person.name, &request.client).await {
        return error_pages::unavailable(caller, &error);
    }
    // They have just seen where they are sent.
    let error = request.error("access_denied", "the person said no");
    redirect::to_client(&redirect::failed(snapshot, &error))
}

/// Writes the choice. Another choice than before, or the same one long after, is no answer any more.
async fn decide(
    shared: &Shared,
    caller: &Caller,
    logged_in: &LoggedIn,
    flow: &str,
    choice: Choice,
) -> Result<Decided, Response> {
    let now_ms = shared.clock.unix_ms();
    let decided = shared.store.decide_flow(flow, logged_in.session.digest, choice, now_ms).await;
    match decided.map_err(|error| error_pages::unavailable(caller, &error))? {
        Some(it) if it.choice == choice && now_ms.saturating_sub(it.at_ms) < SENT_TWICE_MS => Ok(it),
        Some(_) => Err(error_pages::answered(caller)),
        None => Err(error_pages::start_again(caller)),
    }
}

async fn write(
    shared: &Shared,
    snapshot: &Snapshot,
    logged_in: &LoggedIn,
    request: &Request,
    client: &Client,
    code: &str,
    decided_at_ms: i64,
) -> Result<(), store::Error> {
    let user = &logged_in.person.name;
    let consent = Consent {
        user: Arc::clone(user),
        client: Arc::clone(&client.id),
        redirect_host: redirect_uri::sent_to(&request.redirect_uri),
        resource: request.resource.clone(),
        metadata_sha256: client.metadata_sha256,
        scopes: request.scopes.clone(),
        given_at_ms: decided_at_ms,
    };
    shared.store.insert_consent(consent).await?;
    shared.documents.remember(shared, client).await;
    let code = Code {
        digest: sha256(code.as_bytes()),
        issuer: Arc::clone(&snapshot.public_url),
        subject: Subject::User(Arc::clone(user)),
        client: Arc::clone(&client.id),
        resource: request.resource.as_str().into(),
        scopes: request.scopes.as_slice().into(),
        password_mark: Some(Arc::clone(&logged_in.person.password_mark)),
        redirect_uri: request.redirect_uri.clone(),
        challenge: request.challenge.clone(),
        expires_at_ms: decided_at_ms.saturating_add(CODE_MS),
    };
    shared.store.insert_code(code).await
}

// === what was consented to ===

/// Whether the person has said yes to just this before: the same client that says the same of itself, the same host, the
/// same resource, no further scope. A program on a computer is asked about each time: any program can be it.
pub(super) async fn was_given(
    shared: &Shared,
    logged_in: &LoggedIn,
    request: &Request,
    client: &Client,
) -> Result<bool, store::Error> {
    if redirect_uri::is_loopback(&request.redirect_uri) {
        return Ok(false);
    }
    let host = redirect_uri::sent_to(&request.redirect_uri);
    let given = remembered(shared, logged_in, &client.id, &host).await?;
    Ok(given.iter().any(|given| {
        given.resource == request.resource
            && given.metadata_sha256 == client.metadata_sha256
            && request.scopes.iter().all(|scope| given.scopes.contains(scope))
    }))
}

/// Whether the person has let this client send them there before, for any resource.
pub(super) async fn is_known_address(shared: &Shared, logged_in: &LoggedIn, error: &RedirectError) -> bool {
    let host = redirect_uri::sent_to(&error.redirect_uri);
    remembered(shared, logged_in, &error.client, &host).await.is_ok_and(|given| !given.is_empty())
}

/// What the person said yes to for this client and host, as far as it still acts for them. A yes is remembered as long as
/// its grant is in force: whatever ends that (revoked, expired, a new password, somebody else of the same name) is no longer
/// a yes.
async fn remembered(
    shared: &Shared,
    logged_in: &LoggedIn,
    client: &str,
    host: &str,
) -> Result<Vec<Consent>, store::Error> {
    let grants = grants::in_force(shared, logged_in).await?;
    let resources: BTreeSet<_> =
        grants.iter().filter(|grant| *grant.client == *client).map(|grant| &*grant.resource).collect();
    let mut given = Vec::new();
    for resource in resources {
        given.extend(shared.store.consent(&logged_in.person.name, client, host, resource).await?);
    }
    Ok(given)
}

// === what is shown ===

/// Who asks for what, as the pages show it.
pub(super) fn asking(request: &Request, client: &Client) -> Asking {
    Asking {
        client: client.name.clone().unwrap_or_else(|| client.id.to_string()),
        client_id: client.id.to_string(),
        vouched_by: (client.origin == Origin::Document).then(|| redirect_uri::sent_to(&client.id)),
        is_configured: client.origin == Origin::Configured,
        sent_to: redirect_uri::sent_to(&request.redirect_uri),
        is_loopback: redirect_uri::is_loopback(&request.redirect_uri),
        route: request.route.clone(),
        resource: request.resource.clone(),
        scopes: request.scopes.clone(),
    }
}

/// Where a form of the pages may lead in the end: browsers hold the redirect to the client to `form-action`, too.
pub(super) fn form_target(request: &Request) -> Option<String> {
    Some(request.redirect_uri.clone())
}
