//! `/login` and `/logout`: a person, a password, a session.

use super::client::Client;
use super::request::Request;
use super::{Shared, authorize, consent, error_pages, redirect};
use crate::browser::{Browser, Form, Purpose, Submitted, Trouble, trouble};
use crate::identity::PasswordError;
use crate::pages;
use crate::snapshot::Snapshot;
use crate::web::Caller;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::{Deserialize, Serialize};

/// A login form may be sent back this long after it was made.
const TICKET_MS: i64 = 60 * 60 * 1000;

/// What a login form carries along, signed: for which browser it was made, when, and what was asked for.
#[derive(Debug, Serialize, Deserialize)]
struct Ticket {
    browser: String,
    at_ms: i64,
    request: Option<Request>,
    /// The page of ours that was asked for, where it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// `GET /login`: on nobody's behalf but one's own; with `flow`, to answer a waiting request as somebody else; with
/// `browser`, a link of `portcullis user browser`.
pub(super) async fn get(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let snapshot = shared.snapshots.load_full();
    let query = Form::parse(query.unwrap_or_default().as_bytes()).unwrap_or_default();
    if let Some(token) = query.get("browser") {
        let Some(cookie) = shared.plane.cookie_of_link(&snapshot, token) else {
            return error_pages::start_again(&caller);
        };
        let mut response = redirect::within("/login");
        response.headers_mut().append(header::SET_COOKIE, cookie);
        return response;
    }
    let browser = shared.plane.browser(&snapshot, &headers);
    match shared.plane.current(&snapshot, &headers).await {
        Ok(Some(logged_in)) => match query.get("flow") {
            None => redirect::within("/grants"),
            Some(flow) => match consent::waiting(&shared, &caller, &logged_in, flow).await {
                Ok((flow, ..)) if flow.decision.is_some() => error_pages::answered(&caller),
                Ok((_, request, client)) => page_for(&shared, &snapshot, &browser, Some((request, &client))),
                Err(page) => page,
            },
        },
        Ok(None) => page_for(&shared, &snapshot, &browser, None),
        Err(error) => error_pages::unavailable(&caller, &error),
    }
}

/// The login page that leads to another page of ours.
pub(super) fn page_towards(shared: &Shared, snapshot: &Snapshot, browser: &Browser, path: String) -> Response {
    page(shared, snapshot, browser, None, Some(path))
}

/// The login page, for a request where there is one.
pub(super) fn page_for(
    shared: &Shared,
    snapshot: &Snapshot,
    browser: &Browser,
    request: Option<(Request, &Client)>,
) -> Response {
    page(shared, snapshot, browser, request, None)
}

fn page(
    shared: &Shared,
    snapshot: &Snapshot,
    browser: &Browser,
    request: Option<(Request, &Client)>,
    next: Option<String>,
) -> Response {
    let asking = request.as_ref().map(|(request, client)| consent::asking(request, client));
    let target = request.as_ref().and_then(|(request, _)| consent::form_target(request));
    let ticket = Ticket {
        browser: browser.digest(),
        at_ms: shared.clock.unix_ms(),
        request: request.map(|(request, _)| request),
        next,
    };
    let page = pages::Login { asking, ticket: sign(shared, &ticket), username: String::new(), problem: None };
    let mut response = pages::answer(StatusCode::OK, &page, target.as_deref());
    if let Some(cookie) = shared.plane.to_set(snapshot, browser) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

fn sign(shared: &Shared, ticket: &Ticket) -> String {
    let text = serde_json::to_vec(ticket).expect("texts and numbers can be written as JSON");
    shared.signing.sign(Purpose::Ticket, &text)
}

/// The ticket of a form that was made here, for this browser, not long ago.
fn open(shared: &Shared, snapshot: &Snapshot, headers: &HeaderMap, form: &Form) -> Option<Ticket> {
    let text = shared.signing.open(Purpose::Ticket, form.get("ticket")?)?;
    let ticket: Ticket = serde_json::from_slice(&text).ok()?;
    let age_ms = shared.clock.unix_ms().saturating_sub(ticket.at_ms);
    let is_of_browser = shared.plane.browser(snapshot, headers).is(&ticket.browser);
    (is_of_browser && (0..TICKET_MS).contains(&age_ms)).then_some(ticket)
}

/// `POST /login`.
pub(super) async fn post(State(shared): State<Shared>, Submitted { caller, headers, form }: Submitted) -> Response {
    let snapshot = shared.snapshots.load_full();
    let Some(ticket) = open(&shared, &snapshot, &headers, &form) else {
        return error_pages::start_again(&caller);
    };
    let (name, password) = (form.get("username").unwrap_or_default(), form.get("password").unwrap_or_default());
    let verified = shared.plane.verify(&snapshot, &caller, &headers, name, password).await;
    let person = match verified {
        Ok(person) => person,
        Err(error) => return again(&shared, &ticket, name, &error).await,
    };
    let (logged_in, cookies) = match shared.plane.log_in_again(&snapshot, &headers, &person).await {
        Ok(done) => done,
        Err(error) => return error_pages::unavailable(&caller, &error),
    };
    shared.plane.login_succeeded(&snapshot, &caller, &person.name);
    let mut response = match ticket.request {
        // Signed with the rest: nobody else says where it leads.
        None => redirect::within(ticket.next.as_deref().unwrap_or("/grants")),
        Some(request) => match Client::find(&shared, &request.client).await {
            Ok(client) if client.allows_redirect_to(&request.redirect_uri) => {
                authorize::go_on(&shared, &snapshot, &caller, &logged_in, request.logged_in(), &client).await
            }
            _ => error_pages::start_again(&caller),
        },
    };
    for cookie in cookies {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// The form once more, with what was wrong. Which of name and password it was is not said.
async fn again(shared: &Shared, ticket: &Ticket, name: &str, error: &PasswordError) -> Response {
    let Trouble { status, text, wait_s } = trouble(error, shared.clock.unix_ms());
    let mut asking = None;
    if let Some(request) = &ticket.request
        && let Ok(client) = Client::find(shared, &request.client).await
    {
        asking = Some(consent::asking(request, &client));
    }
    let page = pages::Login { asking, ticket: sign(shared, ticket), username: name.to_owned(), problem: Some(text) };
    let target = ticket.request.as_ref().and_then(consent::form_target);
    let mut response = pages::answer(status, &page, target.as_deref());
    if let Some(wait_s) = wait_s {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait_s));
    }
    response
}

/// `POST /logout`.
pub(super) async fn log_out(State(shared): State<Shared>, Submitted { caller, headers, form }: Submitted) -> Response {
    let snapshot = shared.snapshots.load_full();
    let unavailable = |error| error_pages::unavailable(&caller, &error);
    match shared.plane.current(&snapshot, &headers).await {
        Err(error) => return unavailable(error),
        // Nor is a cookie touched: a form of another site comes without one, and must not log anybody out.
        Ok(None) => return error_pages::logged_out(),
        Ok(Some(logged_in)) => {
            if !shared.plane.is_csrf(&logged_in.session, form.get("csrf")) {
                return error_pages::start_again(&caller);
            }
            if let Err(error) = shared.store.end_browser_session(logged_in.session.digest).await {
                return unavailable(error);
            }
            shared.plane.logged_out(&snapshot, &caller, &logged_in.person.name);
        }
    }
    let mut response = error_pages::logged_out();
    response.headers_mut().append(header::SET_COOKIE, shared.plane.forget(&snapshot));
    response
}
