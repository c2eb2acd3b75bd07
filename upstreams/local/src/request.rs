//! The name of a request, in a header: what an upstream of our own writes elsewhere can be found in the audit log by it.

/// The header that names the request. The gateway sets it, on requests to local upstreams only; no client can.
pub const HEADER: &str = "portcullis-request";

/// The longest name, in bytes.
const LONGEST: usize = 128;

/// What the gateway calls a request: `r_…`, and `r_…/h_…` where a person has approved it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request(String);

impl Request {
    /// Out of the header's value; `None` if it holds anything but letters, digits, `_`, `-` and `/`.
    pub fn of_header(value: &[u8]) -> Option<Request> {
        let is_known = |b: u8| b.is_ascii_alphanumeric() || b"_-/".contains(&b);
        let is_name = (1..=LONGEST).contains(&value.len()) && value.iter().copied().all(is_known);
        is_name.then(|| Request(String::from_utf8_lossy(value).into_owned()))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_holds_nothing_that_means_something_elsewhere() {
        assert_eq!(Request::of_header(b"r_0a1b_2/h_Xy-z").as_ref().map(Request::as_str), Some("r_0a1b_2/h_Xy-z"));
        for hostile in [b"" as &[u8], b"r 1", b"r\n1", b"r;1", b"\xff", &[b'r'; 129]] {
            assert_eq!(Request::of_header(hostile), None, "{hostile:?}");
        }
    }
}
