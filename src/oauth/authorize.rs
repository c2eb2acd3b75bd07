//! `/authorize` (RFC 6749 §4.1.1, OAuth 2.1 §4.1.1): from a client's request to a person who can answer it.
//!
//! Nothing is stored for a stranger: until somebody has logged in, the request travels signed in the login form.

use super::client::Client;
use super::request::{Fault, Request};
use super::{Shared, consent, error_pages, login, redirect};
use crate::browser::LoggedIn;
use crate::id;
use crate::snapshot::Snapshot;
use crate::store::Flow;
use crate::web::Caller;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;

/// `GET /authorize`.
pub(super) async fn get(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let snapshot = shared.snapshots.load_full();
    if let Err(wait) = shared.beginnings.take(caller.address) {
        return error_pages::too_many(&caller, wait);
    }
    let logged_in = match shared.plane.current(&snapshot, &headers).await {
        Ok(logged_in) => logged_in,
        Err(error) => return error_pages::unavailable(&caller, &error),
    };
    match Request::read(&shared, &snapshot, query.as_deref().unwrap_or_default()).await {
        Ok((request, client)) => ask(&shared, &snapshot, &caller, &headers, logged_in, request, &client).await,
        Err(Fault::Page(page)) => error_pages::of(&caller, page),
        Err(Fault::Redirect(error)) => {
            if may_be_sent_at_once(&shared, &error, logged_in.as_ref()).await {
                return redirect::refused(&snapshot, &error);
            }
            error_pages::before_redirect(&caller, &snapshot, &error)
        }
    }
}

async fn ask(
    shared: &Shared,
    snapshot: &Snapshot,
    caller: &Caller,
    headers: &HeaderMap,
    logged_in: Option<LoggedIn>,
    request: Request,
    client: &Client,
) -> Response {
    match logged_in {
        Some(logged_in) if !request.wants_login => go_on(shared, snapshot, caller, &logged_in, request, client).await,
        _ if request.may_not_ask => {
            let error = request.error("login_required", "nobody is logged in, and the request forbids to ask");
            if error.is_trusted {
                return redirect::refused(snapshot, &error);
            }
            error_pages::before_redirect(caller, snapshot, &error)
        }
        _ => login::page_for(shared, snapshot, &shared.plane.browser(snapshot, headers), Some((request, client))),
    }
}

/// From a request and a person who is logged in to the question, or to the answer they gave before.
pub(super) async fn go_on(
    shared: &Shared,
    snapshot: &Snapshot,
    caller: &Caller,
    logged_in: &LoggedIn,
    request: Request,
    client: &Client,
) -> Response {
    let given = match consent::was_given(shared, logged_in, &request, client).await {
        Ok(given) => given,
        Err(error) => return error_pages::unavailable(caller, &error),
    };
    if !given && request.may_not_ask {
        let error = request.error("consent_required", "the person has not consented to this, and must not be asked");
        if error.is_trusted {
            return redirect::refused(snapshot, &error);
        }
        return error_pages::before_redirect(caller, snapshot, &error);
    }
    let id = id::unguessable("f_");
    let flow = Flow {
        id: id.clone(),
        session: logged_in.session.digest,
        request: request.to_json(),
        created_at_ms: shared.clock.unix_ms(),
        decision: None,
    };
    if let Err(error) = shared.store.insert_flow(flow).await {
        return error_pages::unavailable(caller, &error);
    }
    if given && !request.wants_consent {
        return consent::allow(shared, snapshot, caller, logged_in, &id, &request, client).await;
    }
    redirect::within(&format!("/consent?flow={id}"))
}

/// Whether a browser may be sent to the client with an error without anybody seeing where to. An address that a stranger
/// registered gets nobody sent to it who has not been asked (RFC 9700 §4.11.2: the server is no open redirector).
async fn may_be_sent_at_once(
    shared: &Shared,
    error: &super::request::RedirectError,
    logged_in: Option<&LoggedIn>,
) -> bool {
    if error.is_trusted {
        return true;
    }
    let Some(logged_in) = logged_in else {
        return false;
    };
    consent::is_known_address(shared, logged_in, error).await
}
