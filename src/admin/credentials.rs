//! Who asks: a person with a session of these pages, or with name and password. Nobody else, whatever they carry.

use super::Shared;
use crate::browser::{LoggedIn, Refusal, trouble, unavailable};
use crate::identity::Person;
use crate::snapshot::Snapshot;
use crate::web::Caller;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

/// A person at the API, and how they are known.
pub(super) enum Known {
    /// A session: changes need its mark, and where a cookie proves little the password.
    Session(LoggedIn),
    /// Name and password with this very request (RFC 7617).
    Password(Person),
}

/// Lets no token near a page or endpoint: a token is an agent's. (`Basic` is for the API, and a proxy's own elsewhere.)
pub(super) async fn only_people(request: Request, next: Next) -> Response {
    let mut sent = request.headers().get_all(header::AUTHORIZATION).iter();
    let is_basic = |value: &HeaderValue| scheme(value).is_some_and(|scheme| scheme.eq_ignore_ascii_case("basic"));
    if sent.all(is_basic) && request.headers().get_all(header::AUTHORIZATION).iter().count() <= 1 {
        return next.run(request).await;
    }
    let why = "tokens of agents open nothing here; people log in with their password";
    Refusal { code: "admin.token", detail: why.into() }.mark(error(StatusCode::UNAUTHORIZED, "admin.token", why))
}

fn scheme(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()?.split(' ').next()
}

/// The person at the API.
///
/// # Errors
/// The answer to whoever is none.
pub(super) async fn person(
    shared: &Shared,
    snapshot: &Snapshot,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<Known, Response> {
    if let Some(sent) = headers.get(header::AUTHORIZATION) {
        let (name, password) = basic(sent).ok_or_else(|| {
            let why = "`Authorization` is not `Basic` with name and password (RFC 7617)";
            refused(StatusCode::UNAUTHORIZED, "admin.credentials", why)
        })?;
        let verified = shared.plane.verify(snapshot, caller, headers, &name, &password).await;
        return verified.map(Known::Password).map_err(|why| {
            let trouble = trouble(&why, shared.now_ms());
            let status = if trouble.wait_s.is_some() { trouble.status } else { StatusCode::UNAUTHORIZED };
            let mut response = error(status, "admin.credentials", &trouble.text);
            if let Some(wait_s) = trouble.wait_s {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait_s));
            }
            response
        });
    }
    match shared.plane.current(snapshot, headers).await {
        Ok(Some(logged_in)) => Ok(Known::Session(logged_in)),
        Ok(None) => {
            let why = "log in at this address with a browser, or send name and password (HTTP Basic)";
            Err(error(StatusCode::UNAUTHORIZED, "admin.credentials", why))
        }
        Err(error) => Err(unavailable(caller, &error)),
    }
}

fn basic(sent: &HeaderValue) -> Option<(String, String)> {
    let (scheme, encoded) = sent.to_str().ok()?.split_once(' ')?;
    let is_basic = scheme.eq_ignore_ascii_case("basic");
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok().filter(|_| is_basic)?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

/// An error of the API that is written down.
pub(super) fn refused(status: StatusCode, code: &'static str, why: &'static str) -> Response {
    Refusal { code, detail: why.into() }.mark(error(status, code, why))
}

/// An error of the API.
pub(super) fn error(status: StatusCode, code: &str, why: &str) -> Response {
    let mut response = document(status, &json!({ "error": code, "error_description": why }));
    if status == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Basic realm=\"portcullis approvals\", charset=\"UTF-8\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

/// JSON for whoever asked, and nobody else.
pub(super) fn document(status: StatusCode, value: &serde_json::Value) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, value.to_string()).into_response()
}

impl Known {
    /// Who it is.
    pub(super) fn person(&self) -> &Person {
        match self {
            Known::Session(logged_in) => &logged_in.person,
            Known::Password(person) => person,
        }
    }
}
