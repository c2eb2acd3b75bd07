//! The head of an HTTP/1 request, before any parser sees it: in time, within its size, and written in one way only.
//!
//! pingora limits each read but not all of them together, takes a megabyte, and reads leniently what others read
//! differently (a lone LF, `Content-Length` beside `Transfer-Encoding`, the same length twice). Where two readers
//! differ, one request becomes two; so whatever RFC 9112 leaves to the reader's mercy is refused here, and what pingora
//! gets to parse is a head that every reader takes alike.

use bytes::{Buf as _, BytesMut};
use pingora::protocols::Stream;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, timeout_at};

/// Why a connection has no (further) request for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The client closed, or never began.
    Gone,
    /// It is answered and closed.
    Refused(Fault),
}

/// What is wrong with a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It did not come to its end in time.
    Slow,
    /// It is over its limit, in bytes.
    Large(usize),
    /// A version of HTTP that is not spoken here, or not in this way.
    Version,
    /// It could be read in more than one way, or in none.
    Malformed(&'static str),
}

/// A head that is in order.
pub(super) struct Head {
    /// In bytes.
    pub(super) length: usize,
    /// Whether its body comes in chunks.
    pub(super) is_chunked: bool,
}

/// Reads until `bytes` begins with a whole head that is in order; what came after it stays behind it.
///
/// # Errors
/// [`End`]. No byte of a refused head has been acted upon.
pub(super) async fn read(stream: &mut Stream, bytes: &mut BytesMut, until: Instant, limit: usize) -> Result<Head, End> {
    let mut n_scanned = 0;
    let mut is_begun = false;
    loop {
        // RFC 9112 §2.2: an empty line before a request is ignored; older clients send one after a body. But one.
        if !is_begun && bytes.len() >= 2 {
            is_begun = true;
            if bytes.starts_with(b"\r\n") {
                bytes.advance(2);
            }
        }
        if let Some(length) = end(bytes, n_scanned).map_err(End::Refused)? {
            if length > limit {
                return Err(End::Refused(Fault::Large(limit)));
            }
            let is_chunked = check(&bytes[..length]).map_err(End::Refused)?;
            return Ok(Head { length, is_chunked });
        }
        if bytes.len() > limit {
            return Err(End::Refused(Fault::Large(limit)));
        }
        n_scanned = bytes.len();
        bytes.reserve(READ);
        match timeout_at(until, stream.read_buf(bytes)).await {
            Ok(Ok(1..)) => {}
            Ok(Ok(0) | Err(_)) => return Err(End::Gone),
            // Who has sent nothing waits for no answer.
            Err(_) if bytes.is_empty() => return Err(End::Gone),
            Err(_) => return Err(End::Refused(Fault::Slow)),
        }
    }
}

/// What one read may bring; most heads fit.
const READ: usize = 4096;

/// The length of the head that `bytes` begins with, once it is whole. Every line ends in CR LF: a lone LF is a line end
/// to some readers and none to others.
fn end(bytes: &[u8], n_scanned: usize) -> Result<Option<usize>, Fault> {
    let mut at = n_scanned;
    while let Some(found) = memchr::memchr(b'\n', &bytes[at..]) {
        at += found;
        if at == 0 || bytes[at - 1] != b'\r' {
            return Err(Fault::Malformed("a line ends without CR"));
        }
        if at == 1 || (at >= 3 && bytes[at - 2] == b'\n') {
            return Ok(Some(at + 1));
        }
        at += 1;
    }
    Ok(None)
}

/// Judges a whole head, and says whether its body comes in chunks.
fn check(head: &[u8]) -> Result<bool, Fault> {
    // The last two lines are the empty one that ends the head, and nothing.
    let mut from = 0;
    let mut lines = memchr::memchr_iter(b'\n', head).map(|end| {
        let line = &head[std::mem::replace(&mut from, end + 1)..end];
        line.strip_suffix(b"\r").unwrap_or(line)
    });
    let is_1_1 = request_line(lines.next().unwrap_or_default())?;
    let mut framing = Framing::default();
    for line in lines.take_while(|line| !line.is_empty()) {
        framing.field(line)?;
    }
    framing.check(is_1_1)?;
    Ok(framing.is_chunked)
}

/// `method SP request-target SP HTTP-version` (RFC 9112 §3), each of them not empty. Whether it is HTTP/1.1.
fn request_line(line: &[u8]) -> Result<bool, Fault> {
    let bad = Err(Fault::Malformed("the request line is not `method target version`"));
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return bad;
    };
    if !is_token(method) || target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return bad;
    }
    match version {
        b"HTTP/1.1" => Ok(true),
        b"HTTP/1.0" => Ok(false),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
            Err(Fault::Version)
        }
        _ => bad,
    }
}

/// What says where the message ends and whom it is for.
#[derive(Default)]
struct Framing {
    has_host: bool,
    has_length: bool,
    is_chunked: bool,
}

impl Framing {
    fn field(&mut self, line: &[u8]) -> Result<(), Fault> {
        let colon = memchr::memchr(b':', line).ok_or(Fault::Malformed("a field without a colon"))?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if !is_token(name) {
            // Space before the colon and folded lines are among these (RFC 9112 §5.1, §5.2).
            return Err(Fault::Malformed("a field's name is no token"));
        }
        // Without a branch for each byte, so that many are looked at at once: a token alone has hundreds.
        let is_control = |byte: u8| ((byte < b' ') & (byte != b'\t')) | (byte == 0x7f);
        if value.iter().fold(false, |found, byte| found | is_control(*byte)) {
            return Err(Fault::Malformed("a field's value holds a control character"));
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => once(&mut self.has_host, is_host(value)),
            14 if name.eq_ignore_ascii_case(b"content-length") => once(&mut self.has_length, is_length(value)),
            // Other codings are refused rather than undone (RFC 9112 §6.1): what hides in them would not be judged.
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                once(&mut self.is_chunked, spaceless(value).eq_ignore_ascii_case(b"chunked"))
            }
            _ => Ok(()),
        }
    }

    fn check(&self, is_1_1: bool) -> Result<(), Fault> {
        if self.has_length && self.is_chunked {
            return Err(Fault::Malformed("Content-Length beside Transfer-Encoding"));
        }
        if self.is_chunked && !is_1_1 {
            return Err(Fault::Malformed("Transfer-Encoding in HTTP/1.0"));
        }
        if is_1_1 && !self.has_host {
            return Err(Fault::Malformed("no Host"));
        }
        Ok(())
    }
}

/// A field that stands once and is well written.
fn once(is_there: &mut bool, is_well_written: bool) -> Result<(), Fault> {
    if std::mem::replace(is_there, true) {
        return Err(Fault::Malformed("Host, Content-Length or Transfer-Encoding stands twice"));
    }
    if is_well_written {
        Ok(())
    } else {
        Err(Fault::Malformed("Host, Content-Length or Transfer-Encoding is not well written"))
    }
}

/// A number and nothing else; one that no body of ours could have is still a number.
fn is_length(value: &[u8]) -> bool {
    let digits = value.trim_ascii();
    let is_number = digits.iter().all(u8::is_ascii_digit);
    is_number && std::str::from_utf8(digits).is_ok_and(|digits| digits.parse::<u64>().is_ok())
}

/// `uri-host [ ":" port ]` (RFC 9110 §7.2): nothing of it could be taken for another part of a URL.
fn is_host(value: &[u8]) -> bool {
    value.trim_ascii().iter().all(|byte| byte.is_ascii_graphic() && !b"/\\@?#,\"<>^`{|}".contains(byte))
}

/// Without the spaces around it. Tabs stay: nobody puts one there in good faith.
fn spaceless(mut value: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = value {
        value = rest;
    }
    value
}

fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| TOKEN[usize::from(*byte)])
}

/// `tchar` (RFC 9110 §5.6.2).
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

// === impl Fault ===

impl Fault {
    /// Its stable code, the HTTP status it is answered with, and its JSON-RPC code, as in `docs/refusals.md`.
    pub(super) fn row(self) -> (&'static str, u16, i64) {
        match self {
            Fault::Slow => ("request.too_slow", 408, -32600),
            Fault::Large(_) => ("request.head_too_large", 431, -32600),
            Fault::Version => ("request.http_version", 505, -32600),
            Fault::Malformed(_) => ("request.malformed", 400, -32600),
        }
    }

    /// What the client is told.
    pub(super) fn text(self) -> String {
        match self {
            Fault::Slow => "the request's head did not come in time (`timeouts.head`)".to_owned(),
            Fault::Large(limit) => {
                format!("the request's head is over the limit of {limit} bytes (`limits.head`)")
            }
            Fault::Version => "HTTP/1.1 and HTTP/2 are spoken here".to_owned(),
            Fault::Malformed(why) => format!("the request is not well-formed HTTP: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn judged(head: &str) -> Result<(), Fault> {
        let length = end(head.as_bytes(), 0)?.expect("it is whole");
        check(&head.as_bytes()[..length]).map(drop)
    }

    #[test]
    fn what_every_reader_takes_alike_is_taken() {
        for head in [
            "POST /mcp/up HTTP/1.1\r\nHost: gw.test\r\n\r\n",
            "GET / HTTP/1.0\r\n\r\n",
            "GET http://gw.test/ HTTP/1.1\r\nhost:gw.test:80\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: [::1]:8080\r\ncontent-length: \t 5 \r\n\r\nhello",
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked \r\nX-Empty:\r\nX-High: \u{e9}\r\n\r\n",
        ] {
            assert_eq!(judged(head), Ok(()), "{head:?}");
        }
    }

    #[test]
    fn what_readers_take_differently_is_refused() {
        let with = |fields: &str| format!("POST / HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n");
        for head in [
            with("Content-Length: 5\r\nTransfer-Encoding: chunked"),
            with("Transfer-Encoding: chunked\r\nContent-Length: 5"),
            with("Content-Length: 5\r\nContent-Length: 5"),
            with("Content-Length: 5, 5"),
            with("Content-Length: +5"),
            with("Content-Length:"),
            with("Content-Length: 18446744073709551621"),
            with("Transfer-Encoding: gzip, chunked"),
            with("Transfer-Encoding: \tchunked"),
            with("Transfer-Encoding: chunked\u{b}"),
            with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
            with("Host: x"),
            with("X : 1"),
            with("X: 1\r\n folded"),
            with(": 1"),
            with("X\u{0}: 1"),
            with("X: \u{0}"),
            with("X: a\rb"),
            with("X"),
            "POST / HTTP/1.1\r\n\r\n".to_owned(),
            "POST / HTTP/1.1\r\nHost: a/b\r\n\r\n".to_owned(),
            "POST / HTTP/1.1\r\nHost: good@evil\r\n\r\n".to_owned(),
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
            "POST /\r\n\r\n".to_owned(),
            "POST  / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
            "POST / HTTP/1.1 \r\nHost: x\r\n\r\n".to_owned(),
            "POST /\u{e9} HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
            "\r\n".to_owned(),
        ] {
            assert!(matches!(judged(&head), Err(Fault::Malformed(_))), "{head:?}");
        }
        assert_eq!(judged("GET / HTTP/1.2\r\nHost: x\r\n\r\n"), Err(Fault::Version));
        assert_eq!(judged("GET / HTTP/2.0\r\nHost: x\r\n\r\n"), Err(Fault::Version));
    }

    #[test]
    fn the_end_is_found_wherever_the_reads_were_cut() {
        let whole = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nrest\n";
        let length = whole.len() - 5;
        for cut in 0..length {
            let early = end(&whole[..cut], 0).expect("no line is bad");
            assert_eq!(early, None, "{cut}");
            assert_eq!(end(whole, cut), Ok(Some(length)), "{cut}");
        }
        for bad in ["GET / HTTP/1.1\nHost: x\n\n", "GET / HTTP/1.1\r\nHost: x\n", "\n"] {
            assert!(end(bad.as_bytes(), 0).is_err(), "{bad:?}");
        }
    }

    /// A good head with a few bytes changed, put in or taken out, most of them ones that mean something to a parser.
    fn spoilt() -> impl Strategy<Value = Vec<u8>> {
        const GOOD: &[u8] =
            b"POST /mcp/up?a=b HTTP/1.1\r\nHost: gw.test:80\r\nContent-Length: 5\r\nX-A: b\r\nX-B:\r\n\r\n";
        let byte = prop_oneof![
            4 => proptest::sample::select(b"\r\n \t:;,/\\0Hx\x00\x0b\x7f\xe9".to_vec()),
            1 => any::<u8>(),
        ];
        let change = (0..GOOD.len(), byte, 0..3_u8);
        proptest::collection::vec(change, 0..4).prop_map(|changes| {
            let mut head = GOOD.to_vec();
            for (at, byte, how) in changes {
                match how {
                    0 => head[at.min(GOOD.len() - 4)] = byte,
                    1 => head.insert(at, byte),
                    _ => drop(head.remove(at.min(head.len() - 1))),
                }
            }
            head
        })
    }

    proptest! {
        /// Two readers that share no code: what is taken here, httparse, which pingora parses with, reads as the same
        /// lines and to the same end.
        #[test]
        fn what_is_taken_is_read_by_pingoras_parser_alike(head in spoilt()) {
            let Ok(Some(length)) = end(&head, 0) else { return Ok(()) };
            if check(&head[..length]).is_err() {
                return Ok(());
            }
            let mut fields = [httparse::EMPTY_HEADER; 64];
            let mut parsed = httparse::Request::new(&mut fields);
            let end = parsed.parse(&head).expect("it is well-formed");
            prop_assert_eq!(end, httparse::Status::Complete(length));
            let text = String::from_utf8_lossy(&head[..length]).into_owned();
            let mut lines = text.split("\r\n");
            let first = format!("{} {}", parsed.method.expect("complete"), parsed.path.expect("complete"));
            prop_assert_eq!(lines.next().and_then(|line| line.rsplit_once(' ')).map(|(start, _)| start), Some(first.as_str()));
            let ours: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
            prop_assert_eq!(ours.len(), parsed.headers.len());
            for ((name, value), theirs) in ours.iter().zip(parsed.headers.iter()) {
                prop_assert_eq!(*name, theirs.name);
                let value = value.trim_matches([' ', '\t']);
                let theirs = String::from_utf8_lossy(theirs.value).into_owned();
                prop_assert_eq!(value, theirs.trim_matches([' ', '\t']));
            }
        }
    }
}
