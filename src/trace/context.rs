//! `traceparent` and `tracestate` (W3C Trace Context Level 1 §3), read strictly: what is not exactly in form begins a new
//! trace, so that nobody's typing error or worse joins two.

use http::HeaderValue;
use http::header::{AsHeaderName, HeaderMap};

/// A place in a trace: what `traceparent` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The trace; never all zero.
    pub trace: [u8; 16],
    /// The span in it, which is the parent of what comes next; never all zero.
    pub span: [u8; 8],
    /// The flags we know: sampled, and random (Level 2).
    pub flags: u8,
}

/// `tracestate`, as it came: 512 characters and 32 members at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceState(HeaderValue);

const SAMPLED: u8 = 0x01;
const RANDOM: u8 = 0x02;
/// `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const LENGTH: usize = 55;
/// §3.3.1.5: at least this much should be passed on; more is not.
const LONGEST_STATE: usize = 512;
/// §3.3.1.1.
const MOST_MEMBERS: usize = 32;

// === impl Context ===

impl Context {
    /// The context that `text` says, or `None`: not in form, an id of zeros, or the version that is forbidden. Of a version
    /// that is not known yet what this one knows is read (§4 "Versioning of traceparent").
    pub fn parse(text: &[u8]) -> Option<Context> {
        let (head, rest) = text.split_at_checked(LENGTH)?;
        let [version, trace, span, flags]: [&[u8]; 4] =
            head.split(|b| *b == b'-').collect::<Vec<_>>().try_into().ok()?;
        let [version]: [u8; 1] = bytes(version)?;
        match (version, rest) {
            (0xff, _) => return None,
            (0 | 1.., []) => {}
            (1.., [b'-', ..]) => {}
            _ => return None,
        }
        let (trace, span, [flags]): ([u8; 16], [u8; 8], [u8; 1]) = (bytes(trace)?, bytes(span)?, bytes(flags)?);
        let is_named = trace != [0; 16] && span != [0; 8];
        is_named.then_some(Context { trace, span, flags: flags & (SAMPLED | RANDOM) })
    }

    /// The one of these headers; where `traceparent` stands twice there is none.
    pub fn of(headers: &HeaderMap) -> Option<Context> {
        let mut values = headers.get_all("traceparent").iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        Context::parse(value.as_bytes())
    }

    /// Whether whoever began the trace, or a hop since, wants it recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// As it is sent, of version 00: 55 characters.
    pub fn to_text(&self) -> String {
        format!("00-{}-{}-{:02x}", hex(&self.trace), hex(&self.span), self.flags)
    }

    /// The flags of a new trace.
    pub(super) fn new_flags(is_sampled: bool) -> u8 {
        if is_sampled { SAMPLED } else { 0 }
    }
}

/// Exactly `2 N` digits of lower-case hexadecimal.
fn bytes<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if digits.len() != 2 * N {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(out)
}

/// In lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// === impl TraceState ===

impl TraceState {
    /// That of these headers, several of them joined; `None` where there is none, or more than may be.
    pub fn of(headers: &HeaderMap, name: impl AsHeaderName) -> Option<TraceState> {
        let lines: Option<Vec<&str>> = headers.get_all(name).iter().map(|line| line.to_str().ok()).collect();
        TraceState::parse(&lines?.join(","))
    }

    /// A text that can be one.
    pub fn parse(text: &str) -> Option<TraceState> {
        let is_fit = !text.is_empty()
            && text.len() <= LONGEST_STATE
            && text.split(',').count() <= MOST_MEMBERS
            && text.bytes().all(|b| matches!(b, b'\t' | b' '..=b'~'));
        if is_fit { HeaderValue::try_from(text).ok().map(TraceState) } else { None }
    }

    /// As a header's value.
    pub fn value(&self) -> &HeaderValue {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_is_read_is_written_the_same() {
        for text in [GOOD, "00-00000000000000000000000000000001-0000000000000001-00"] {
            assert_eq!(Context::parse(text.as_bytes()).unwrap().to_text(), text);
        }
    }

    #[test]
    fn flags_that_are_not_known_are_not_passed_on_and_later_versions_are_read_as_this_one() {
        let parsed = |text: &str| Context::parse(text.as_bytes()).unwrap().to_text();
        assert_eq!(parsed(&GOOD.replace("-01", "-ff")), GOOD.replace("-01", "-03"));
        assert_eq!(parsed(&GOOD.replace("00-4b", "cc-4b")), GOOD);
        assert_eq!(parsed(&format!("{}-what-the-future-brings", GOOD.replace("00-4b", "01-4b"))), GOOD);
    }

    #[test]
    fn what_is_not_in_form_is_no_context() {
        let zero_trace = GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        let zero_span = GOOD.replace("00f067aa0ba902b7", &"0".repeat(16));
        for text in [
            "",
            "00",
            &zero_trace,
            &zero_span,
            &GOOD.to_ascii_uppercase(),
            &GOOD.replace("4bf9", "4BF9"),
            &GOOD.replace("00-4b", "ff-4b"),
            &GOOD.replace("00-4b", "0-4b"),
            &GOOD.replace("00-4b", "000-4b"),
            &GOOD.replace("00-4b", "zz-4b"),
            &GOOD.replace("00-4b", "0A-4b"),
            &GOOD.replace('-', "_"),
            &GOOD.replace('-', ""),
            &GOOD.replace("4bf9", "4bg9"),
            &GOOD.replace("4bf9", "4bf"),
            &GOOD.replace("4bf9", "4bf99"),
            &GOOD.replace("-01", "-1"),
            &GOOD.replace("-01", "-0g"),
            &GOOD.replace("-01", ""),
            &GOOD.replace("-01", "-01-"),
            &GOOD.replace("-01", "-01-extra"),
            &GOOD.replace("-01", "-010"),
            &format!("{GOOD}{GOOD}"),
            &format!("{GOOD},{GOOD}"),
            &format!(" {GOOD}"),
            &format!("{GOOD} "),
            &format!("{}x", GOOD.replace("00-4b", "01-4b")),
            &GOOD.replace("00-4b", "01-4b").replace("-01", ""),
            &GOOD.replace("00f067aa0ba902b7", "00f067aa0ba902b"),
            &GOOD.replace("00f067aa0ba902b7", "00f067aa0ba902b77"),
            &GOOD.replace("00f067aa", "00f067\u{e9}"),
            &GOOD.replace("4736-", "4736--"),
            &GOOD.replace("4736-00", "47-3600"),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "--------------------------------------------------------",
        ] {
            assert_eq!(Context::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_header_that_stands_twice_is_none() {
        let mut headers = HeaderMap::new();
        assert_eq!(Context::of(&headers), None);
        headers.append("traceparent", HeaderValue::from_static(GOOD));
        assert!(Context::of(&headers).is_some());
        headers.append("traceparent", HeaderValue::from_static(GOOD));
        assert_eq!(Context::of(&headers), None);
    }

    #[test]
    fn a_state_of_several_lines_is_one_and_too_much_of_it_is_none() {
        let mut headers = HeaderMap::new();
        headers.append("tracestate", HeaderValue::from_static("a=1"));
        headers.append("tracestate", HeaderValue::from_static("b=2"));
        assert_eq!(TraceState::of(&headers, "tracestate").unwrap().value(), "a=1,b=2");
        assert_eq!(TraceState::of(&HeaderMap::new(), "tracestate"), None);
        assert!(TraceState::parse(&format!("a={}", "x".repeat(510))).is_some());
        assert_eq!(TraceState::parse(&format!("a={}", "x".repeat(511))), None);
        assert!(TraceState::parse(&["a=1"; 32].join(",")).is_some());
        assert_eq!(TraceState::parse(&["a=1"; 33].join(",")), None);
        assert_eq!(TraceState::parse("a=\u{e9}"), None);
        assert_eq!(TraceState::parse("a=1\r\nx: y"), None);
    }
}
