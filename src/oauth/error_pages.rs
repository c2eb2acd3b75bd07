//! Pages that say why it does not go on, and what to do.

use super::error::ErrorCode;
use super::redirect;
use super::request::{Page, RedirectError};
use crate::browser::{self, Refusal};
use crate::pages::{self, Message};
use crate::redact::Redactor;
use crate::snapshot::Snapshot;

use crate::web::Caller;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use std::borrow::Cow;
use std::time::Duration;

/// Recorded where the client is not one that people can be asked about.
const UNFIT: &str = ErrorCode::InvalidClient.as_str();
const GO_BACK: &str = "Go back to the app you came from and connect again.";

/// The page of a request that its client cannot be told about.
pub(super) fn of(caller: &Caller, page: Page) -> Response {
    match page {
        Page::NoClient => malformed(caller, "the request has no client_id, or more than one"),
        Page::UnknownClient(id) => {
            let text = "This gateway does not know the app that sent you here. It may have been removed, or the gateway's \
                        data was lost. Remove the connection in the app and add it again, so that it registers anew.";
            let details = vec![("client_id".to_owned(), shown(&Redactor::of_process().text(&id)))];
            let page = error(caller, StatusCode::BAD_REQUEST, "Unknown app", &[text], details);
            refused(UNFIT, "nobody by this client_id is known", page)
        }
        Page::Document(why) => {
            let text = "The app that sent you here describes itself in a document, and that document cannot be used. \
                        Tell its maker, or use an app that registers itself.";
            let details = vec![("reason".to_owned(), why.clone())];
            refused(UNFIT, why, error(caller, StatusCode::BAD_REQUEST, "Unusable app", &[text], details))
        }
        Page::NotForPeople => {
            let text = "This client is a machine of this gateway's configuration. It has no redirect_uris, so people cannot \
                        log in through it.";
            let page = error(caller, StatusCode::BAD_REQUEST, "Not an app for people", &[text], Vec::new());
            refused(ErrorCode::UnauthorizedClient.as_str(), "people cannot log in through this client", page)
        }
        Page::NoRedirectUri => malformed(caller, "redirect_uri is missing, or there more than once"),
        Page::ForeignRedirectUri => {
            let text = "The app asks to send you to an address it has not registered. That is how access is stolen, so \
                        nobody is sent anywhere.";
            let page = error(caller, StatusCode::BAD_REQUEST, "Wrong address", &[text, GO_BACK], Vec::new());
            refused(ErrorCode::InvalidRedirectUri.as_str(), "redirect_uri is not one the client has registered", page)
        }
        Page::Malformed(why) => malformed(caller, why),
        Page::Unavailable => unavailable_page(caller),
    }
}

/// A request that is not as it should be.
pub(super) fn malformed(caller: &Caller, why: &str) -> Response {
    let text = "The request that brought you here is not as OAuth has it.";
    let details = vec![("reason".to_owned(), why.to_owned())];
    let page = error(caller, StatusCode::BAD_REQUEST, "Bad request", &[text, GO_BACK], details);
    refused(ErrorCode::InvalidRequest.as_str(), why.to_owned(), page)
}

/// The form or link is of another browser, another session, or too old. Which of them is not said.
pub(super) fn start_again(caller: &Caller) -> Response {
    let text = "This page is too old, or was begun in another browser. Nothing was allowed.";
    let page = error(caller, StatusCode::BAD_REQUEST, "Please start again", &[text, GO_BACK], Vec::new());
    refused("page.stale", "the form or link is of another browser or session, or too old", page)
}

/// The question was answered before.
pub(super) fn answered(caller: &Caller) -> Response {
    let text = "You have answered this already. Go back to the app; if it is not connected, connect again from there.";
    let page = error(caller, StatusCode::BAD_REQUEST, "Already answered", &[text], Vec::new());
    refused("page.answered", "the question was answered before", page)
}

/// Too much from one address.
pub(super) fn too_many(caller: &Caller, wait: Duration) -> Response {
    let text = "Too many requests came from your address. Wait a minute, then try again.";
    let mut response = error(caller, StatusCode::TOO_MANY_REQUESTS, "Too many requests", &[text], Vec::new());
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
    response
}

/// Something of ours does not work.
pub(super) fn unavailable(caller: &Caller, error: &dyn std::error::Error) -> Response {
    browser::unavailable(caller, error)
}

fn unavailable_page(caller: &Caller) -> Response {
    let text = "This gateway cannot do that right now. Nothing was allowed. Try again in a moment.";
    error(caller, StatusCode::SERVICE_UNAVAILABLE, "Not available", &[text], Vec::new())
}

/// An error for a client at an address that nobody here knows: the person sees where it leads, and goes there or not
/// (RFC 9700 §4.11.2).
pub(super) fn before_redirect(caller: &Caller, snapshot: &Snapshot, error: &RedirectError) -> Response {
    let host = crate::redirect_uri::sent_to(&error.redirect_uri);
    let page = Message {
        title: "The app made a mistake".to_owned(),
        text: vec![
            "The request that brought you here cannot be answered. Nothing was allowed.".to_owned(),
            format!("You can go back to {host} and tell it so. Do that only if you came from there."),
        ],
        details: vec![
            ("error".to_owned(), error.code.to_owned()),
            ("reason".to_owned(), error.description.clone()),
            ("request".to_owned(), caller.request.clone()),
        ],
        link: Some((redirect::failed(snapshot, error), format!("Go back to {host}"))),
        is_error: true,
    };
    error.refusal().mark(pages::answer(StatusCode::BAD_REQUEST, &page, None))
}

/// Logged out.
pub(super) fn logged_out() -> Response {
    let page = Message {
        title: "Logged out".to_owned(),
        text: vec!["Apps you allowed stay connected. To take that back, log in and revoke them.".to_owned()],
        details: Vec::new(),
        link: Some(("/login".to_owned(), "Log in".to_owned())),
        is_error: false,
    };
    pages::answer(StatusCode::OK, &page, None)
}

/// An error page; with the name of the request, for whoever is asked for help.
pub(super) fn error(
    caller: &Caller,
    status: StatusCode,
    title: &str,
    text: &[&str],
    details: Vec<(String, String)>,
) -> Response {
    // What can be said more exactly is, by whoever asked for this page.
    let code = match status {
        StatusCode::TOO_MANY_REQUESTS => ErrorCode::SlowDown,
        StatusCode::SERVICE_UNAVAILABLE => ErrorCode::TemporarilyUnavailable,
        _ => ErrorCode::InvalidRequest,
    };
    browser::problem(caller, status, code.as_str(), title, text, details)
}

/// The page, with what is recorded of it.
fn refused(code: &'static str, detail: impl Into<Cow<'static, str>>, page: Response) -> Response {
    Refusal { code, detail: detail.into() }.mark(page)
}

fn shown(text: &str) -> String {
    text.chars().take(200).collect()
}
