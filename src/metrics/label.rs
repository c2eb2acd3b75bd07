//! The labels of metrics and where their values come from: the configuration, the method table and our own stable codes,
//! never a request. What a client invents is counted as `none` or `other`, so that nobody can make the scrape grow.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// As it is exported.
    pub name: &'static str,
    /// What it can be.
    pub values: Values,
    /// Which of them have a series from the start, at zero: the first one of a kind is an increase, too. Of what the
    /// configuration names, every one has.
    pub at_start: &'static [&'static str],
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
    /// The name of one of `audit.also`.
    Sinks,
    /// `listener`, `admin`, or `upstream <name>`.
    Certificates,
    /// A method of MCP that is in our table, one of our names for what has none, or `none`.
    Methods,
    /// A stable code of ours.
    Codes,
    /// The start of a hash. Only the one in force is there.
    Hash,
    /// Of this program.
    Version,
}

/// What the configuration in force names: of everything else that it might name there is no series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Upstreams, which are routes.
    pub upstreams: BTreeSet<String>,
    /// External issuers.
    pub issuers: BTreeSet<String>,
    /// Webhooks.
    pub hooks: BTreeSet<String>,
    /// Where audit records go beside the files.
    pub sinks: BTreeSet<String>,
    /// Upstreams that are shown a certificate, and when it runs out, in seconds since the Unix epoch.
    pub certificates: BTreeMap<String, i64>,
}

impl Names {
    /// Whether a series with this value may stay.
    pub(super) fn allow(&self, values: Values, value: &str) -> bool {
        match values {
            Values::Upstreams => self.upstreams.contains(value),
            Values::Routes => value == "none" || self.upstreams.contains(value),
            Values::Issuers => self.issuers.contains(value),
            Values::Hooks => self.hooks.contains(value),
            Values::Sinks => self.sinks.contains(value),
            Values::Certificates => match value.strip_prefix(OF_UPSTREAM) {
                Some(upstream) => self.certificates.contains_key(upstream),
                None => true,
            },
            Values::OneOf(_) | Values::Methods | Values::Codes | Values::Hash | Values::Version => true,
        }
    }

    /// The values of a label that have a series from the start.
    fn at_start(&self, label: &Label) -> Vec<&str> {
        match label.values {
            Values::Upstreams | Values::Routes => self.upstreams.iter().map(String::as_str).collect(),
            Values::Issuers => self.issuers.iter().map(String::as_str).collect(),
            Values::Hooks => self.hooks.iter().map(String::as_str).collect(),
            Values::Sinks => self.sinks.iter().map(String::as_str).collect(),
            _ => label.at_start.to_vec(),
        }
    }

    /// The label values of every series that is there from the start.
    pub(super) fn first_series(&self, labels: &[Label]) -> Vec<Vec<&str>> {
        labels.iter().fold(vec![Vec::new()], |series, label| {
            let values = self.at_start(label);
            let with = |known: &Vec<_>| values.iter().map(|value| [known.as_slice(), &[*value]].concat()).collect();
            series.iter().flat_map(|known: &Vec<_>| -> Vec<Vec<&str>> { with(known) }).collect()
        })
    }
}

/// Before the name of an upstream that is shown a certificate.
pub(super) const OF_UPSTREAM: &str = "upstream ";

const fn one_of(name: &'static str, values: &'static [&'static str]) -> Label {
    Label { name, values: Values::OneOf(values), at_start: values }
}

const fn named(name: &'static str, values: Values) -> Label {
    Label { name, values, at_start: &[] }
}

const fn codes(name: &'static str, at_start: &'static [&'static str]) -> Label {
    Label { name, values: Values::Codes, at_start }
}

pub(super) const UPSTREAM: Label = named("upstream", Values::Upstreams);
pub(super) const ROUTE: Label = named("route", Values::Routes);
pub(super) const METHOD: Label = Label { name: "method", values: Values::Methods, at_start: &["tools/call"] };
pub(super) const STATUS: Label = Label { name: "status", values: Values::OneOf(&STATUSES), at_start: &["200"] };
pub(super) const DECISION: Label = one_of("decision", &["allowed", "denied", "held"]);
pub(super) const HOOK: Label = named("hook", Values::Hooks);
pub(super) const RESULT_OF_DELIVERY: Label = one_of("result", &["delivered", "failed", "dead"]);
pub(super) const LISTENER: Label = one_of("listener", &["agent", "admin", "metrics", "operator"]);
pub(super) const REFUSING_LISTENER: Label = Label { at_start: &["agent"], ..LISTENER };
pub(super) const USED_BY: Label = named("used_by", Values::Certificates);
pub(super) const REUSED: Label = one_of("reused", &["true", "false"]);
pub(super) const ISSUER: Label = named("issuer", Values::Issuers);
pub(super) const RESULT_OF_FETCH: Label = one_of("result", &["ok", "failed"]);
pub(super) const RESULT_OF_RELOAD: Label = one_of("result", &["ok", "refused"]);
pub(super) const REASON_OF_SPANS: Label = one_of("reason", &["full", "refused", "stopped"]);
pub(super) const HASH: Label = named("hash", Values::Hash);
pub(super) const VERSION: Label = named("version", Values::Version);
pub(super) const SINK: Label = named("sink", Values::Sinks);
pub(super) const RESULT_OF_LOGIN: Label = one_of("result", &["succeeded", "wrong", "paused", "busy", "unavailable"]);
pub(super) const RESULT_OF_CONSENT: Label = one_of("result", &["given", "denied"]);
pub(super) const CLIENT_EVENT: Label = one_of("event", &["registered", "removed"]);
pub(super) const TOKEN_EVENT: Label = one_of("event", &["issued", "refreshed", "revoked", "replayed"]);
pub(super) const ENDPOINT: Label = one_of("endpoint", &ENDPOINTS);
pub(super) const STATUS_CLASS: Label = one_of("status", &["2xx", "3xx", "4xx", "5xx"]);
pub(super) const EVENT: Label = codes("event", &["decision", "result", "refused", "login.failed", "token.replayed"]);
pub(super) const RESULT_OF_CHECKPOINT: Label = one_of("result", &["written", "failed"]);
pub(super) const RESULT_OF_SINK: Label = one_of("result", &["sent", "failed", "dropped"]);
/// Those that a person may want to hear of when they happen for the first time.
pub(super) const CODE: Label = codes(
    "code",
    &["policy.denied", "policy.unlisted", "approval.denied", "audit.unavailable", "token.missing", "token.invalid"],
);
pub(super) const UPSTREAM_CODE: Label = codes(
    "code",
    &[
        "upstream.unreachable",
        "upstream.tls",
        "upstream.lost",
        "upstream.timeout",
        "upstream.too_large",
        "upstream.malformed",
        "upstream.redirect",
        "upstream.down",
        "upstream.status",
    ],
);
pub(super) const STATE: Label = codes(
    "state",
    &["requested", "approved", "denied", "expired", "withdrawn", "consumed", "completed", "failed", "indeterminate"],
);
pub(super) const REASON: Label = codes(
    "reason",
    &["tls", "http2", "address_limit", "pushed_out", "request.malformed", "request.too_slow", "request.head_too_large"],
);
pub(super) const REASON_DROPPED: Label = codes("reason", &["foreign_response", "server_request"]);

/// The HTTP statuses that are told apart. `none`: the client was gone before there was one.
const STATUSES: [&str; 20] = [
    "200", "202", "204", "302", "303", "400", "401", "403", "404", "405", "406", "408", "413", "415", "429", "500",
    "502", "503", "none", "other",
];
/// The same as numbers, in the same order.
const STATUS_NUMBERS: [u16; 19] =
    [200, 202, 204, 302, 303, 400, 401, 403, 404, 405, 406, 408, 413, 415, 429, 500, 502, 503, 0];

/// A status as a label.
pub(super) fn status(status: u16) -> &'static str {
    STATUS_NUMBERS.iter().position(|known| *known == status).map_or("other", |at| STATUSES[at])
}

/// A status as a label, where its first digit is enough.
pub(super) fn status_class(status: u16) -> &'static str {
    match status {
        0..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    }
}

/// Those of the authorization server that are told apart; every other page and document is `other`.
const ENDPOINTS: [&str; 11] = [
    "authorize",
    "consent",
    "grants",
    "introspect",
    "jwks",
    "login",
    "metadata",
    "register",
    "revoke",
    "token",
    "other",
];

/// The endpoint of a path as the router knows it.
pub(super) fn endpoint(path: &str) -> &'static str {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    let first = if first == ".well-known" { "metadata" } else { first };
    ENDPOINTS.iter().find(|known| **known == first).copied().unwrap_or("other")
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
        assert_eq!([200, 302, 429, 503].map(status_class), ["2xx", "3xx", "4xx", "5xx"]);
    }

    #[test]
    fn a_path_is_an_endpoint_that_is_known_or_other() {
        let paths = ["/token", "/.well-known/oauth-protected-resource/mcp/{name}", "/holds/{id}", "", "/tokens"];
        assert_eq!(paths.map(endpoint), ["token", "metadata", "other", "other", "other"]);
    }

    #[test]
    fn what_is_there_from_the_start_is_every_name_with_every_first_value() {
        let two = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let names = Names { upstreams: two, ..Names::default() };

        let series = names.first_series(&[UPSTREAM, DECISION]);

        assert_eq!((series.len(), &series[0]), (6, &vec!["a", "allowed"]));
        assert_eq!(names.first_series(&[]), [Vec::<&str>::new()]);
        assert!(names.first_series(&[ISSUER]).is_empty() && names.first_series(&[HASH]).is_empty());
        assert!(names.allow(Values::Routes, "none") && !names.allow(Values::Upstreams, "c"));
        assert!(names.allow(Values::Certificates, "listener") && !names.allow(Values::Certificates, "upstream a"));
    }
}
