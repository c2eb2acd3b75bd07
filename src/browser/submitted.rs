//! One form of a page, sent by a person.

use super::{Form, answer};
use crate::web::Caller;
use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use axum::response::Response;

/// One form of a page, sent by a person.
#[derive(Debug)]
pub struct Submitted {
    /// Who sends it, for records.
    pub caller: Caller,
    /// Its headers; of these the cookies count.
    pub headers: HeaderMap,
    /// Its fields.
    pub form: Form,
}

/// In bytes; more than any form of ours.
const MAX_BODY: usize = 64 * 1024;

impl<S: Sync> FromRequest<S> for Submitted {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Submitted, Response> {
        let (mut parts, body) = request.into_parts();
        let caller: Caller = parts.extensions.remove().unwrap_or_default();
        let body = to_bytes(body, MAX_BODY).await;
        let body = body.map_err(|_| answer::malformed(&caller, "the form is too large"))?;
        match Form::of_body(&parts.headers, &body) {
            Ok(form) => Ok(Submitted { caller, headers: parts.headers, form }),
            Err(error) => Err(answer::malformed(&caller, error.0)),
        }
    }
}
