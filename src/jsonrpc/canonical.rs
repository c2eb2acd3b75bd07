//! The canonical form of a value (RFC 8785, JSON Canonicalization Scheme): one text for all ways to write the same.
//!
//! What is held for a person is bound to a digest of this form, so it must neither join two calls that a server could
//! tell apart nor lose anything on the way. A number that a double cannot carry is therefore refused, not rounded
//! (RFC 7493 §2.2): the server would be sent another one than the agent wrote.

use super::{Kind, Node};

/// Why a value has no canonical form: this number of it would not survive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the number `{0}` cannot be carried by a double without loss (RFC 7493)")]
pub struct NotIJson(
    /// As it was written, its beginning if it is long.
    pub String,
);

/// Above this integers are not told apart (RFC 7493 §2.2).
const LARGEST_INTEGER: f64 = 9_007_199_254_740_991.0;

impl Node<'_> {
    /// Adds the canonical form of this value to `out`.
    ///
    /// # Errors
    /// [`NotIJson`]; what was added until then makes no sense.
    pub fn canonical(self, out: &mut Vec<u8>) -> Result<(), NotIJson> {
        match self.kind() {
            Kind::Null | Kind::Bool => out.extend_from_slice(self.text().as_bytes()),
            Kind::Number => out.extend_from_slice(canonical_number(self.text())?.as_bytes()),
            Kind::String => string(&self.as_str().unwrap_or_default(), out),
            Kind::Array => {
                out.push(b'[');
                for (at, element) in self.elements().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    element.canonical(out)?;
                }
                out.push(b']');
            }
            Kind::Object => {
                let mut members: Vec<_> = self.members().collect();
                //= RFC 8785 §3.2.3
                //# property name strings to be sorted are compared as arrays of UTF-16 code units
                members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
                out.push(b'{');
                for (at, (key, value)) in members.into_iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    string(&key, out);
                    out.push(b':');
                    value.canonical(out)?;
                }
                out.push(b'}');
            }
        }
        Ok(())
    }
}

/// RFC 8785 §3.2.2.2: as little is escaped as may be.
fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            '\r' => out.extend_from_slice(b"\\r"),
            c if c < ' ' => out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes()),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// RFC 8785 §3.2.2.3: as ECMAScript writes a double.
fn canonical_number(lexeme: &str) -> Result<String, NotIJson> {
    let refused = || NotIJson(lexeme.chars().take(40).collect());
    let value: f64 = lexeme.parse().map_err(|_| refused())?;
    let is_integer = value.fract() == 0.0;
    if !value.is_finite() || (is_integer && value.abs() > LARGEST_INTEGER) {
        return Err(refused());
    }
    let text = ecmascript(value);
    if Decimal::of(lexeme) == Decimal::of(&text) { Ok(text) } else { Err(refused()) }
}

/// ECMA-262, Number::toString: the shortest digits that give the same double, laid out by its magnitude.
fn ecmascript(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let Decimal { is_negative, digits, exponent } = Decimal::of(&format!("{value:e}"));
    // The value is 0.digits × 10^point.
    let n = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    let point = exponent.saturating_add(n);
    let zeros = |n: i64| "0".repeat(usize::try_from(n).unwrap_or(0));
    let split = |at: i64| digits.split_at(usize::try_from(at).unwrap_or(0).min(digits.len()));
    let text = if (n..=21).contains(&point) {
        format!("{digits}{}", zeros(point.saturating_sub(n)))
    } else if (1..=21).contains(&point) {
        let (whole, rest) = split(point);
        format!("{whole}.{rest}")
    } else if (-5..=0).contains(&point) {
        format!("0.{}{digits}", zeros(point.saturating_neg()))
    } else {
        let (first, rest) = split(1);
        let (dot, e) = (if rest.is_empty() { "" } else { "." }, point.saturating_sub(1));
        let sign = if e < 0 { "" } else { "+" };
        format!("{first}{dot}{rest}e{sign}{e}")
    };
    if is_negative { format!("-{text}") } else { text }
}

/// A decimal number, in one way only: no zeros at either end of its digits.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: String,
    /// Of ten, for the last digit.
    exponent: i64,
}

impl Decimal {
    /// Of a JSON number, or of one that Rust writes.
    fn of(text: &str) -> Decimal {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (sign, mantissa) = mantissa.strip_prefix('-').map_or((false, mantissa), |rest| (true, rest));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0').trim_end_matches('0');
        if digits.is_empty() {
            return Decimal { is_negative: false, digits: String::new(), exponent: 0 };
        }
        let n_zeros = all.len().saturating_sub(all.trim_end_matches('0').len());
        let fraction = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
        let written: i64 = exponent.trim_start_matches('+').parse().unwrap_or(i64::MAX);
        let exponent = written.saturating_sub(fraction).saturating_add(i64::try_from(n_zeros).unwrap_or(i64::MAX));
        Decimal { is_negative: sign, digits: digits.to_owned(), exponent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Result<String, NotIJson> {
        let mut out = Vec::new();
        Node::of_text(text).canonical(&mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn numbers_are_written_as_ecmascript_writes_them() {
        let cases = [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("1.0", "1"),
            ("1e0", "1"),
            ("100e-2", "1"),
            ("-12.50", "-12.5"),
            ("9007199254740991", "9007199254740991"),
            ("-9007199254740991", "-9007199254740991"),
            ("1E3", "1000"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("123456789.25", "123456789.25"),
            ("4.5", "4.5"),
            ("2e-3", "0.002"),
            ("0.1", "0.1"),
            ("5e-324", "5e-324"),
            ("1.7976931348623157e-300", "1.7976931348623157e-300"),
            ("333333333.3333333", "333333333.3333333"),
        ];
        for (text, expected) in cases {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(ecmascript(1e21), "1e+21");
        assert_eq!(ecmascript(1e20), "100000000000000000000");
        assert_eq!(ecmascript(1.5e300), "1.5e+300");
    }

    #[test]
    fn a_number_that_would_become_another_is_refused() {
        for text in [
            "9007199254740992",
            "-9007199254740993",
            "1e400",
            "1e21",
            "0.1000000000000000055",
            "333333333.33333329",
            "1e-400",
        ] {
            assert_eq!(canonical(text), Err(NotIJson(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn order_and_space_do_not_matter_and_everything_else_does() {
        assert_eq!(canonical(r#"{ "b" : [ 1.0, true ], "a" : { } }"#).unwrap(), r#"{"a":{},"b":[1,true]}"#);
        // RFC 8785 §3.2.3, its own example.
        let keys = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
        let order: Vec<String> = Node::of_text(&canonical(keys).unwrap())
            .members()
            .map(|(_, value)| value.as_str().unwrap().into_owned())
            .collect();
        assert_eq!(
            order.join("|"),
            "Carriage Return|One|Control|Latin Small Letter O With Diaeresis|Euro Sign|Emoji: Grinning Face|Hebrew Letter Dalet With Dagesh"
        );
        assert_eq!(canonical(r#""\u000f\u000a\u0041\/\"\\ \u20ac""#).unwrap(), "\"\\u000f\\nA/\\\"\\\\ €\"");
        // Not normalised: composed and decomposed are two texts.
        assert_ne!(canonical("\"\u{e9}\"").unwrap(), canonical("\"e\u{301}\"").unwrap());
        assert_ne!(canonical("1").unwrap(), canonical("\"1\"").unwrap());
    }
}
