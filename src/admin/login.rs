//! `/login` and `/logout` of the pages for approvers: a person of this gateway, their password, a session of this plane.

use super::{Shared, approvals};
use crate::browser::{Form, LoggedIn, Purpose, Submitted, Trouble, go_to, problem, trouble, unavailable};
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

/// What a login form carries along, signed: for which browser it was made, when, and where it leads.
#[derive(Debug, Serialize, Deserialize)]
struct Ticket {
    browser: String,
    at_ms: i64,
    next: String,
}

/// Who looks at the page `at`, which asks for itself anew with `live`: that does not keep the session alive.
///
/// # Errors
/// The answer for whoever is not logged in: the login form, which leads back there.
pub(super) async fn visitor(
    shared: &Shared,
    caller: &Caller,
    headers: &HeaderMap,
    query: Option<String>,
    at: &str,
) -> Result<LoggedIn, Box<Response>> {
    let snapshot = shared.snapshot();
    let query = Form::parse(query.unwrap_or_default().as_bytes()).unwrap_or_default();
    let found = if query.has("live") {
        shared.plane.seen(&snapshot, headers).await
    } else {
        shared.plane.current(&snapshot, headers).await
    };
    match found {
        Ok(Some(logged_in)) => Ok(logged_in),
        Ok(None) => Err(Box::new(page(shared, &snapshot, headers, at))),
        Err(error) => Err(Box::new(unavailable(caller, &error))),
    }
}

/// `GET /login`; with `browser`, a link that makes a browser known.
pub(super) async fn get(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let snapshot = shared.snapshot();
    let query = Form::parse(query.unwrap_or_default().as_bytes()).unwrap_or_default();
    if let Some(token) = query.get("browser") {
        let Some(cookie) = shared.plane.cookie_of_link(&snapshot, token) else {
            return start_again(&caller);
        };
        let mut response = go_to("/login");
        response.headers_mut().append(header::SET_COOKIE, cookie);
        return response;
    }
    match shared.plane.current(&snapshot, &headers).await {
        Ok(Some(_)) => go_to("/"),
        Ok(None) => page(&shared, &snapshot, &headers, "/"),
        Err(error) => unavailable(&caller, &error),
    }
}

/// The login page on the way to `next`, a path of ours. It says nothing of what is there.
pub(super) fn page(shared: &Shared, snapshot: &Snapshot, headers: &HeaderMap, next: &str) -> Response {
    let browser = shared.plane.browser(snapshot, headers);
    let ticket = Ticket { browser: browser.digest(), at_ms: shared.now_ms(), next: next.to_owned() };
    let page = pages::Login { asking: None, ticket: sign(shared, &ticket), username: String::new(), problem: None };
    let mut response = pages::answer_approver(StatusCode::OK, &page, false);
    if let Some(cookie) = shared.plane.to_set(snapshot, &browser) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

fn sign(shared: &Shared, ticket: &Ticket) -> String {
    let text = serde_json::to_vec(ticket).expect("texts and numbers can be written as JSON");
    shared.plane.signing.sign(Purpose::Ticket, &text)
}

/// The ticket of a form that was made here, for this browser, not long ago.
fn open(shared: &Shared, snapshot: &Snapshot, headers: &HeaderMap, form: &Form) -> Option<Ticket> {
    let text = shared.plane.signing.open(Purpose::Ticket, form.get("ticket")?)?;
    let ticket: Ticket = serde_json::from_slice(&text).ok()?;
    let age_ms = shared.now_ms().saturating_sub(ticket.at_ms);
    let is_of_browser = shared.plane.browser(snapshot, headers).is(&ticket.browser);
    (is_of_browser && (0..TICKET_MS).contains(&age_ms)).then_some(ticket)
}

/// `POST /login`.
pub(super) async fn post(State(shared): State<Shared>, Submitted { caller, headers, form }: Submitted) -> Response {
    let snapshot = shared.snapshot();
    let Some(ticket) = open(&shared, &snapshot, &headers, &form) else {
        return start_again(&caller);
    };
    let (name, password) = (form.get("username").unwrap_or_default(), form.get("password").unwrap_or_default());
    let person = match shared.plane.verify(&snapshot, &caller, &headers, name, password).await {
        Ok(person) => person,
        Err(why) => {
            let Trouble { status, text, wait_s } = trouble(&why, shared.now_ms());
            let (ticket, username) = (sign(&shared, &ticket), name.to_owned());
            let page = pages::Login { asking: None, ticket, username, problem: Some(text) };
            return wait(pages::answer_approver(status, &page, false), wait_s);
        }
    };
    let cookies = match shared.plane.log_in_again(&snapshot, &headers, &person).await {
        Ok((_, cookies)) => cookies,
        Err(error) => return unavailable(&caller, &error),
    };
    shared.plane.login_succeeded(&snapshot, &caller, &person.name);
    let mut response = go_to(&ticket.next);
    for cookie in cookies {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// Says when another try makes sense.
pub(super) fn wait(mut response: Response, wait_s: Option<i64>) -> Response {
    if let Some(wait_s) = wait_s {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait_s));
    }
    response
}

/// `POST /logout`.
pub(super) async fn log_out(State(shared): State<Shared>, Submitted { caller, headers, form }: Submitted) -> Response {
    let snapshot = shared.snapshot();
    let logged_in = match shared.plane.current(&snapshot, &headers).await {
        Ok(Some(logged_in)) => logged_in,
        // Nor is a cookie touched: a form of another site comes without one, and must not log anybody out.
        Ok(None) => return logged_out(),
        Err(error) => return unavailable(&caller, &error),
    };
    if !is_of_session(&shared, &logged_in, &form) {
        return start_again(&caller);
    }
    if let Err(error) = shared.plane.store.end_browser_session(logged_in.session.digest).await {
        return unavailable(&caller, &error);
    }
    shared.plane.logged_out(&snapshot, &caller, &logged_in.person.name);
    let mut response = logged_out();
    response.headers_mut().append(header::SET_COOKIE, shared.plane.forget(&snapshot));
    response
}

/// Whether a form is of this session's page.
pub(super) fn is_of_session(shared: &Shared, logged_in: &LoggedIn, form: &Form) -> bool {
    shared.plane.is_csrf(&logged_in.session, form.get("csrf"))
}

/// The form or link is of another browser, another session, or too old. Which of them is not said.
pub(super) fn start_again(caller: &Caller) -> Response {
    let text = "This page is too old, or was opened in another browser or session. Nothing was decided.";
    let more = "Open the list of approvals again and go on from there.";
    let code = "page.stale";
    problem(caller, StatusCode::FORBIDDEN, code, "Please start again", &[text, more], Vec::new())
}

fn logged_out() -> Response {
    let page = pages::Message {
        title: "Logged out".to_owned(),
        text: vec!["What waits for a decision waits on.".to_owned()],
        details: Vec::new(),
        link: Some((approvals::LIST.to_owned(), "Log in".to_owned())),
        is_error: false,
    };
    pages::answer_approver(StatusCode::OK, &page, false)
}
