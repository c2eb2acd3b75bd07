//! Answers that pages of either plane give: on to another page, or why it does not go on.

use super::Refusal;
use crate::pages::{self, Message};
use crate::web::Caller;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// To another page. 303: what follows is a GET, and a password that was posted is not posted again (RFC 9700 §4.12).
pub fn go_to(location: &str) -> Response {
    let Ok(location) = HeaderValue::try_from(location) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let fixed = |name, value| (name, HeaderValue::from_static(value));
    let headers = [
        (header::LOCATION, location),
        fixed(header::CACHE_CONTROL, "no-store"),
        fixed(header::REFERRER_POLICY, "no-referrer"),
        fixed(HeaderName::from_static("x-content-type-options"), "nosniff"),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// An error page; with the name of the request, for whoever is asked for help. `code` is what is written down.
pub fn problem(
    caller: &Caller,
    status: StatusCode,
    code: &'static str,
    title: &str,
    text: &[&str],
    mut details: Vec<(String, String)>,
) -> Response {
    details.push(("request".to_owned(), caller.request.clone()));
    let text = text.iter().map(|&paragraph| paragraph.to_owned()).collect();
    let page = Message { title: title.to_owned(), text, details, link: None, is_error: true };
    Refusal { code, detail: title.to_owned().into() }.mark(pages::answer(status, &page, None))
}

/// Something of ours does not work.
pub fn unavailable(caller: &Caller, error: &dyn std::error::Error) -> Response {
    tracing::error!(%error, request = caller.request, "the store failed a page");
    let text = "This gateway cannot do that right now. Nothing was allowed. Try again in a moment.";
    problem(caller, StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable", "Not available", &[text], Vec::new())
}

/// A form that is not as ours are.
pub(super) fn malformed(caller: &Caller, why: &'static str) -> Response {
    let details = vec![("reason".to_owned(), why.to_owned())];
    let text = "What was sent is no form of these pages.";
    let page = problem(caller, StatusCode::BAD_REQUEST, "invalid_request", "Bad request", &[text], details);
    Refusal { code: "invalid_request", detail: why.into() }.mark(page)
}
