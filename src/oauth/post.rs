//! What is sent by POST to an endpoint for machines: a form in the body, and nothing in the URL. (The forms of pages are
//! `crate::browser`'s.)

use super::error::OAuthError;
use crate::browser::Form;
use crate::web::Caller;
use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;

/// One request to `/token`, `/revoke` or `/introspect`.
#[derive(Debug)]
pub(super) struct Post {
    /// Who sends it, for records.
    pub(super) caller: Caller,
    /// Its headers; of these `Authorization` counts.
    pub(super) headers: HeaderMap,
    /// Its parameters.
    pub(super) form: Form,
}

/// In bytes; more than any client sends, assertions and redirect URIs included.
const MAX_BODY: usize = 64 * 1024;

impl<S: Sync> FromRequest<S> for Post {
    type Rejection = OAuthError;

    async fn from_request(request: Request, _: &S) -> Result<Post, OAuthError> {
        let (mut parts, body) = request.into_parts();
        //= RFC 6749 §2.3.1
        //# The parameters can only be transmitted in the request-body and MUST NOT be included in the request URI.
        if parts.uri.query().is_some_and(|query| !query.is_empty()) {
            return Err(OAuthError::invalid_request("parameters belong in the body, not in the URL"));
        }
        let too_large = |_| OAuthError::invalid_request("the body is too large");
        let body = to_bytes(body, MAX_BODY).await.map_err(too_large)?;
        let form = Form::of_body(&parts.headers, &body)?;
        let caller = parts.extensions.remove().unwrap_or_default();
        Ok(Post { caller, headers: parts.headers, form })
    }
}
