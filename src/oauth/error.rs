//! Errors of the endpoints that machines call: JSON with a code of the RFC and a sentence of ours.
//!
//! A description is a fixed sentence: nothing a client sent is said back to it (RFC 6749 §5.2 allows few characters, and
//! an echo is where secrets leak).

use crate::browser::Refusal;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// An error answer of `/token`, `/revoke`, `/introspect` or `/register`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OAuthError {
    /// What is wrong.
    pub(super) code: ErrorCode,
    /// A sentence for developers.
    pub(super) description: &'static str,
    /// Whether the client tried HTTP Basic: it is then told that this is what failed (RFC 6749 §5.2).
    pub(super) used_basic: bool,
}

/// The codes, as they go over the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorCode {
    /// RFC 6749 §5.2.
    InvalidRequest,
    /// RFC 6749 §5.2: the client is not known, or did not prove who it is.
    InvalidClient,
    /// RFC 6749 §5.2: the code or refresh token does not hold.
    InvalidGrant,
    /// RFC 6749 §5.2: this client may not use this grant type.
    UnauthorizedClient,
    /// RFC 6749 §5.2.
    UnsupportedGrantType,
    /// RFC 6749 §5.2.
    InvalidScope,
    /// RFC 8707 §2.
    InvalidTarget,
    /// RFC 7591 §3.2.2.
    InvalidRedirectUri,
    /// RFC 7591 §3.2.2.
    InvalidClientMetadata,
    /// Too much was asked in too short a time.
    SlowDown,
    /// Something of ours does not work now.
    TemporarilyUnavailable,
}

// === impl OAuthError ===

impl OAuthError {
    pub(super) fn new(code: ErrorCode, description: &'static str) -> Self {
        OAuthError { code, description, used_basic: false }
    }

    pub(super) fn invalid_request(description: &'static str) -> Self {
        OAuthError::new(ErrorCode::InvalidRequest, description)
    }

    pub(super) fn invalid_client(description: &'static str) -> Self {
        OAuthError::new(ErrorCode::InvalidClient, description)
    }

    pub(super) fn invalid_grant(description: &'static str) -> Self {
        OAuthError::new(ErrorCode::InvalidGrant, description)
    }
}

/// A form that cannot be read.
impl From<crate::browser::Malformed> for OAuthError {
    fn from(why: crate::browser::Malformed) -> Self {
        OAuthError::invalid_request(why.0)
    }
}

/// What the store could not do is ours, not the client's; it is logged where it is turned into an answer.
impl From<crate::store::Error> for OAuthError {
    fn from(error: crate::store::Error) -> Self {
        tracing::error!(%error, "the store failed an OAuth endpoint");
        OAuthError::new(ErrorCode::TemporarilyUnavailable, "this server cannot answer that now; try again")
    }
}

impl IntoResponse for OAuthError {
    fn into_response(self) -> Response {
        let body = json!({ "error": self.code.as_str(), "error_description": self.description });
        let mut response = no_store(super::document(self.code.status(), &body));
        if self.used_basic && self.code == ErrorCode::InvalidClient {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"portcullis\""));
        }
        if let Some(wait_s) = self.code.wait_s() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait_s));
        }
        Refusal { code: self.code.as_str(), detail: self.description.into() }.mark(response)
    }
}

/// The answer is for one client, once (RFC 6749 §5.1).
pub(super) fn no_store(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    response
}

// === impl ErrorCode ===

impl ErrorCode {
    /// The word on the wire.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            ErrorCode::InvalidRequest => "invalid_request",
            ErrorCode::InvalidClient => "invalid_client",
            ErrorCode::InvalidGrant => "invalid_grant",
            ErrorCode::UnauthorizedClient => "unauthorized_client",
            ErrorCode::UnsupportedGrantType => "unsupported_grant_type",
            ErrorCode::InvalidScope => "invalid_scope",
            ErrorCode::InvalidTarget => "invalid_target",
            ErrorCode::InvalidRedirectUri => "invalid_redirect_uri",
            ErrorCode::InvalidClientMetadata => "invalid_client_metadata",
            ErrorCode::SlowDown => "slow_down",
            ErrorCode::TemporarilyUnavailable => "temporarily_unavailable",
        }
    }

    /// After how many seconds another try makes sense (`Retry-After`, RFC 9110 §10.2.3). Who knows better says so.
    fn wait_s(self) -> Option<u32> {
        match self {
            // What is asked for too fast or too often comes free by the minute, as tokens end.
            ErrorCode::SlowDown => Some(60),
            // The store and the audit log try again by themselves, twice a second or so.
            ErrorCode::TemporarilyUnavailable => Some(5),
            _ => None,
        }
    }

    fn status(self) -> StatusCode {
        match self {
            ErrorCode::InvalidClient => StatusCode::UNAUTHORIZED,
            ErrorCode::SlowDown => StatusCode::TOO_MANY_REQUESTS,
            ErrorCode::TemporarilyUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}
