//! Reads the parts of a JWT that somebody else made: one JSON object, no name twice, exact types.

use super::Error;
use crate::jsonrpc;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

pub(super) type Object = Map<String, Value>;

/// Of a header, and of the claims.
const LIMITS: jsonrpc::Limits = jsonrpc::Limits { depth: 16, nodes: 2_000 };

/// One JSON object in base64url.
pub(super) fn object(part: &str) -> Result<Object, Error> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| Error::Malformed("not base64url"))?;
    jsonrpc::check_object(&json, LIMITS).map_err(|_| Error::Malformed("not a JSON object, or a name stands twice"))?;
    serde_json::from_slice(&json).map_err(|_| Error::Malformed("a number that cannot be read"))
}

pub(super) fn text<'a>(object: &'a Object, name: &'static str) -> Result<&'a str, Error> {
    optional_text(object, name)?.filter(|text| !text.is_empty()).ok_or(Error::Malformed(name))
}

pub(super) fn optional_text<'a>(object: &'a Object, name: &'static str) -> Result<Option<&'a str>, Error> {
    match object.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Error::Malformed(name)),
    }
}

/// RFC 7519 §2, NumericDate: seconds, of which fractions are cut off. A time in quotes is none.
pub(super) fn time(object: &Object, name: &'static str) -> Result<Option<i64>, Error> {
    let Some(value) = object.get(name) else {
        return Ok(None);
    };
    let whole = value.as_i64();
    #[expect(clippy::cast_possible_truncation, reason = "bounded on the line before")]
    let cut = value.as_f64().filter(|at| at.abs() < 1e15).map(|at| at.floor() as i64);
    whole.or(cut).map(Some).ok_or(Error::Malformed(name))
}
