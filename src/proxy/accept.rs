//! What kinds of answer a client takes, and what kind of body it sends (RFC 9110 §8.3, §12.5.1).

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

/// What kinds of answer the client takes. A client that names none takes both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    /// `application/json`.
    pub(super) json: bool,
    /// `text/event-stream`.
    pub(super) stream: bool,
}

impl Accepts {
    /// As far as it matters here: types, `*`, and `q=0`.
    pub(super) fn read(headers: &HeaderMap) -> Accepts {
        let mut accepts = Accepts { json: false, stream: false };
        let mut is_absent = true;
        for value in headers.get_all(ACCEPT) {
            is_absent = false;
            for range in value.to_str().unwrap_or_default().split(',') {
                let mut parts = range.split(';').map(str::trim);
                let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
                let is_refused = parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
                let (json, stream) = match kind.as_str() {
                    "*/*" => (true, true),
                    "application/json" | "application/*" => (true, false),
                    "text/event-stream" | "text/*" => (false, true),
                    _ => (false, false),
                };
                accepts.json |= json && !is_refused;
                accepts.stream |= stream && !is_refused;
            }
        }
        if is_absent { Accepts { json: true, stream: true } } else { accepts }
    }
}

/// Exactly one `application/json`; `charset`, where there, is UTF-8 (RFC 8259 §8.1 knows no other).
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next().and_then(|value| value.to_str().ok()), values.next()) else {
        return false;
    };
    let mut parts = value.split(';').map(str::trim);
    let is_type = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    is_type
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
                value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}
