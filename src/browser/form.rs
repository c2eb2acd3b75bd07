//! Parameters of a query or of a form (`application/x-www-form-urlencoded`), read strictly.
//!
//! RFC 6749 §3.1 and §3.2: a parameter must not be there twice, one without a value counts as left out, and those that
//! are not known are ignored.

use axum::http::{HeaderMap, header};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// What is wrong with a form: a sentence of ours, with nothing of the form in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(
    /// The sentence.
    pub &'static str,
);

/// More parameters than any flow has.
const MAX_PARAMETERS: usize = 64;

/// The parameters of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    values: BTreeMap<String, String>,
    /// Those that came more than once.
    repeated: Vec<String>,
}

// === impl Form ===

impl Form {
    /// Reads `a=b&c=d`.
    ///
    /// # Errors
    /// What is not UTF-8 after decoding, or too many parameters.
    pub fn parse(encoded: &[u8]) -> Result<Form, Malformed> {
        let mut form = Form::default();
        for (n, pair) in encoded.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).enumerate() {
            if n >= MAX_PARAMETERS {
                return Err(Malformed("there are too many parameters"));
            }
            let mut halves = pair.splitn(2, |byte| *byte == b'=');
            let mut next = || decoded(halves.next().unwrap_or_default());
            let (Some(name), Some(value)) = (next(), next()) else {
                return Err(Malformed("a parameter is not UTF-8"));
            };
            match form.values.entry(name) {
                Entry::Occupied(first) => form.repeated.push(first.key().clone()),
                Entry::Vacant(place) => _ = place.insert(value),
            }
        }
        Ok(form)
    }

    /// Reads the body of a POST, each parameter of which may be there once.
    ///
    /// # Errors
    /// Another content type, or a parameter that came twice.
    pub fn of_body(headers: &HeaderMap, body: &[u8]) -> Result<Form, Malformed> {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(Malformed("the body must be application/x-www-form-urlencoded"));
        }
        let form = Form::parse(body)?;
        if form.repeated.is_empty() { Ok(form) } else { Err(Malformed("a parameter came twice")) }
    }

    /// The value of `name`; one that is empty counts as left out.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether `name` is there, be it empty.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Whether `name` came more than once.
    pub fn is_repeated(&self, name: &str) -> bool {
        self.repeated.iter().any(|it| it == name)
    }

    /// Whether any parameter came more than once.
    pub fn has_repeated(&self) -> bool {
        !self.repeated.is_empty()
    }
}

/// As the URL standard decodes a form, but for bytes that are no UTF-8: it replaces them, and what was sent is lost.
fn decoded(encoded: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    while let [first, after @ ..] = rest {
        let escaped = after.first_chunk().and_then(|digits| hex(*digits)).filter(|_| *first == b'%');
        bytes.push(match (first, escaped) {
            (_, Some(byte)) => byte,
            (b'+', _) => b' ',
            _ => *first,
        });
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).ok()
}

fn hex(digits: [u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? * 16 + low?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_without_a_value_counts_as_left_out_and_one_that_came_twice_is_named() {
        let form = Form::parse(b"a=1&b=&c=x+y%26&a=2").unwrap();

        assert_eq!((form.get("a"), form.get("b"), form.get("c")), (Some("1"), None, Some("x y&")));
        assert!(form.has("b") && !form.has("d"));
        assert!(form.is_repeated("a") && form.has_repeated() && !form.is_repeated("c"));
    }

    #[test]
    fn every_byte_is_decoded_as_the_url_standard_has_it() {
        let text: String = (0..=0x2fff_u32).chain([0xfffd, 0x1f600]).filter_map(char::from_u32).collect();
        let encoded: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        assert_eq!(Form::parse(format!("a={encoded}").as_bytes()).unwrap().get("a"), Some(&*text));
        for odd in ["%", "%4", "%4g", "%%41", "a%2", "+%2B+", "=%3D=", "%c3%a9"] {
            let standard = url::form_urlencoded::parse(format!("a={odd}").as_bytes()).next().unwrap().1.into_owned();
            assert_eq!(Form::parse(format!("a={odd}").as_bytes()).unwrap().get("a"), Some(&*standard), "{odd}");
        }
        assert!(Form::parse(b"a=%ff").is_err());
    }

    #[test]
    fn a_body_is_a_form_without_repetitions() {
        let of = |kind: &'static str, body: &[u8]| {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]);
            Form::of_body(&headers, body)
        };
        assert!(of("application/x-www-form-urlencoded", b"a=1").is_ok());
        assert!(of("Application/X-WWW-Form-Urlencoded; charset=utf-8", b"a=1").is_ok());
        assert!(of("application/x-www-form-urlencoded", b"a=1&a=1").is_err());
        assert!(of("application/json", b"{}").is_err());
        assert!(of("application/x-www-form-urlencoded", b"a=%ff").is_err());
        assert!(Form::of_body(&HeaderMap::new(), b"a=1").is_err());
        let many = "a".repeat(3) + &"&b=1".repeat(80);
        assert!(of("application/x-www-form-urlencoded", many.as_bytes()).is_err());
    }
}
