//! The headers that mirror the body (MCP 2026-07-28, Streamable HTTP, "Standard MCP Request Headers").
//!
//! A server routes by them and executes the body, so whoever reads the body must see that both say the same.
//! They are checked wherever they are sent, also by a client of an older revision, and never taken at their word.

use super::{Era, Error, Object};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue};

/// What a client's headers claim about its body.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MirroredHeaders {
    /// `MCP-Protocol-Version`.
    pub version: Option<String>,
    /// `Mcp-Method`.
    pub method: Option<String>,
    /// `Mcp-Name`, decoded.
    pub name: Option<String>,
}

impl MirroredHeaders {
    /// Reads them.
    ///
    /// # Errors
    /// A header that stands there twice, is not text, or is not decodable is a mismatch: it cannot equal anything.
    pub fn read(headers: &HeaderMap) -> Result<Self, Error> {
        let name = match single(headers, "mcp-name")? {
            Some(value) => Some(decode_value(value).ok_or_else(|| mismatch("Mcp-Name is not decodable"))?),
            None => None,
        };
        Ok(MirroredHeaders {
            version: single(headers, "mcp-protocol-version")?.map(str::to_owned),
            method: single(headers, "mcp-method")?.map(str::to_owned),
            name,
        })
    }

    /// Whether they say what the body says. Required where the era requires them.
    pub(super) fn agree(&self, method: &str, object: &Object, era: Era) -> Result<(), Error> {
        let is_required = era == Era::Modern;
        equal("Mcp-Method", self.method.as_deref(), Some(method), is_required)?;
        let name = match object {
            Object::Tool(name) | Object::Prompt(name) | Object::Task(name) => Some(name.as_str()),
            Object::Resources(uris) => uris.first().map(String::as_str),
            Object::None => None,
        };
        // `Mcp-Name` mirrors `params.name`, `params.uri` or, of the Tasks extension, `params.taskId`; completions and
        // subscriptions have none of them.
        let is_mirrored =
            matches!(method, "tools/call" | "prompts/get" | "resources/read") || matches!(object, Object::Task(_));
        if is_mirrored {
            return equal("Mcp-Name", self.name.as_deref(), name, is_required);
        }
        Ok(())
    }
}

fn equal(header: &str, said: Option<&str>, body: Option<&str>, is_required: bool) -> Result<(), Error> {
    match said {
        None if is_required => Err(mismatch(&format!("{header} is missing"))),
        None => Ok(()),
        Some(said) if Some(said) == body => Ok(()),
        Some(_) => Err(mismatch(&format!("{header} differs from the body"))),
    }
}

fn mismatch(what: &str) -> Error {
    Error::HeaderMismatch(what.to_owned())
}

fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Error> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(mismatch(&format!("{name} stands there twice")));
    }
    let text = value.to_str().map_err(|_| mismatch(&format!("{name} is not visible ASCII")))?;
    // RFC 9110 §5.5: white space around a field value is not part of it.
    Ok(Some(text.trim_matches([' ', '\t'])))
}

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// Undoes [`encode_value`]; `None` for Base64 that is broken or does not hold UTF-8. Without the exact sentinel a value is literal.
pub fn decode_value(value: &str) -> Option<String> {
    let Some(coded) = value.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)) else {
        return Some(value.to_owned());
    };
    String::from_utf8(STANDARD.decode(coded).ok()?).ok()
}

/// A value as a header may carry it: as it is where it is plain visible ASCII, otherwise `=?base64?…?=` of its UTF-8.
pub fn encode_value(value: &str) -> HeaderValue {
    let is_plain = value.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
        && value.trim() == value
        && !(value.starts_with(PREFIX) && value.ends_with(SUFFIX));
    let text = if is_plain { value.to_owned() } else { format!("{PREFIX}{}{SUFFIX}", STANDARD.encode(value)) };
    HeaderValue::try_from(text).expect("visible ASCII is a header value")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_exact_sentinel_is_decoded() {
        let check = |value: &str, decoded: Option<&str>| assert_eq!(decode_value(value).as_deref(), decoded, "{value}");
        check("echo", Some("echo"));
        check("=?base64?ZcOpY2hv?=", Some("eécho"));
        check("=?BASE64?ZWNobw==?=", Some("=?BASE64?ZWNobw==?="));
        check("=?base64?ZWNobw==", Some("=?base64?ZWNobw=="));
        check("=?base64?%%%?=", None);
        check("=?base64?/w==?=", None);
    }

    #[test]
    fn a_header_sent_twice_matches_nothing() {
        let mut headers = HeaderMap::new();
        headers.append("mcp-name", HeaderValue::from_static("safe"));
        assert!(MirroredHeaders::read(&headers).is_ok());

        headers.append("mcp-name", HeaderValue::from_static("safe"));

        assert!(matches!(MirroredHeaders::read(&headers), Err(Error::HeaderMismatch(_))));
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(value in any::<String>()) {
            let header = encode_value(&value);
            let text = header.to_str().expect("visible ASCII");
            prop_assert_eq!(decode_value(text), Some(value));
        }
    }
}
