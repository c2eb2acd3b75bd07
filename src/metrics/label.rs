//! The labels of metrics and where their values come from: the configuration, the method table and our own stable codes,
//! never a request. What a client invents is counted as `none` or `other`, so that nobody can make the scrape grow.

use std::fmt;

/// One label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// As it is exported.
    pub name: &'static str,
    /// What it can be.
    pub values: Values,
}

/// What a label's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// One of these.
    OneOf(&'static [&'static str]),
    /// The name of an upstream of the configuration.
    Upstreams,
    /// The name of an upstream, by whose route the request came, or `none`.
    Routes,
    /// The name of an external issuer of the configuration.
    Issuers,
    /// The name of a webhook of the configuration.
    Hooks,
    /// `listener`, `admin`, or `upstream <name>`.
    Certificates,
    /// A method of MCP that is in our table, one of our names for what has none, or `none`.
    Methods,
    /// A stable code of ours.
    Codes,
    /// The start of a hash. Only the one in force is there.
    Hash,
}

const fn label(name: &'static str, values: Values) -> Label {
    Label { name, values }
}

pub(super) const UPSTREAM: Label = label("upstream", Values::Upstreams);
pub(super) const ROUTE: Label = label("route", Values::Routes);
pub(super) const METHOD: Label = label("method", Values::Methods);
pub(super) const STATUS: Label = label("status", Values::OneOf(&STATUSES));
pub(super) const CODE: Label = label("code", Values::Codes);
pub(super) const DECISION: Label = label("decision", Values::OneOf(&["allowed", "denied", "held"]));
pub(super) const STATE: Label = label("state", Values::Codes);
pub(super) const HOOK: Label = label("hook", Values::Hooks);
pub(super) const RESULT_OF_DELIVERY: Label = label("result", Values::OneOf(&["delivered", "failed", "dead"]));
pub(super) const LISTENER: Label = label("listener", Values::OneOf(&["agent", "admin", "metrics", "operator"]));
pub(super) const REASON: Label = label("reason", Values::Codes);
pub(super) const USED_BY: Label = label("used_by", Values::Certificates);
pub(super) const UPSTREAM_CODE: Label = label("code", Values::Codes);
pub(super) const REUSED: Label = label("reused", Values::OneOf(&["true", "false"]));
pub(super) const REASON_DROPPED: Label = label("reason", Values::Codes);
pub(super) const ISSUER: Label = label("issuer", Values::Issuers);
pub(super) const RESULT_OF_FETCH: Label = label("result", Values::OneOf(&["ok", "failed"]));
pub(super) const RESULT_OF_RELOAD: Label = label("result", Values::OneOf(&["ok", "refused"]));
pub(super) const REASON_OF_SPANS: Label = label("reason", Values::OneOf(&["full", "refused", "stopped"]));
pub(super) const HASH: Label = label("hash", Values::Hash);

/// The HTTP statuses that are told apart. `none`: the client was gone before there was one.
const STATUSES: [&str; 15] =
    ["200", "202", "204", "400", "401", "403", "404", "405", "406", "408", "413", "415", "503", "none", "other"];
/// The same as numbers, in the same order.
const STATUS_NUMBERS: [u16; 14] = [200, 202, 204, 400, 401, 403, 404, 405, 406, 408, 413, 415, 503, 0];

/// A status as a label.
pub(super) fn status(status: u16) -> &'static str {
    STATUS_NUMBERS.iter().position(|known| *known == status).map_or("other", |at| STATUSES[at])
}

impl fmt::Display for Label {
    /// The name, and the values where they are few and fixed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match self.values {
            Values::OneOf(values) if values.len() <= 8 => write!(f, " (`{}`)", values.join("`, `")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_itself_or_other() {
        for (number, text) in STATUS_NUMBERS.iter().zip(STATUSES) {
            assert_eq!(status(*number), text);
            assert!(text == "none" || text == number.to_string(), "{text}");
        }
        assert_eq!([status(418), status(u16::MAX), status(0)], ["other", "other", "none"]);
    }
}
