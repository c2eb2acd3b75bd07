//! Every metric, once: what registers it, the table in `docs/operations.md` and the tests all read this list.

use super::label::{
    CODE, DECISION, HASH, HOOK, ISSUER, LISTENER, Label, METHOD, REASON, REASON_DROPPED, REASON_OF_SPANS,
    RESULT_OF_DELIVERY, RESULT_OF_FETCH, RESULT_OF_RELOAD, REUSED, ROUTE, STATE, STATUS, UPSTREAM, UPSTREAM_CODE,
    USED_BY,
};

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows; from zero again after a restart.
    Counter,
    /// As it is right now.
    Gauge,
    /// Counts by size, with these upper bounds.
    Histogram(&'static [f64]),
}

impl Kind {
    /// The word of the Prometheus text format.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        }
    }
}

/// All there is to know of one metric.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// As it is exported, in full.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// By what it is told apart.
    pub labels: &'static [Label],
    /// What it says, in one sentence.
    pub help: &'static str,
}

macro_rules! list {
    ($($metric:ident: $kind:expr, $name:literal, [$($label:expr),*], $help:literal;)+) => {
        /// A metric of this gateway.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Metric { $(#[doc = $help] $metric,)+ }

        impl Metric {
            /// All of them, in the order of the table in the docs.
            pub const ALL: &'static [Metric] = &[$(Metric::$metric,)+];

            /// Its row.
            pub fn about(self) -> About {
                match self {
                    $(Metric::$metric => About {
                        name: concat!("portcullis_", $name),
                        kind: $kind,
                        labels: const { &[$($label),*] },
                        help: $help,
                    },)+
                }
            }
        }
    };
}

use Kind::{Counter, Gauge, Histogram};

list! {
    Requests: Counter, "requests_total", [ROUTE, METHOD, STATUS],
        "Requests answered, by HTTP status.";
    Refusals: Counter, "refusals_total", [ROUTE, CODE],
        "Answers given instead of the upstream's, by the code of docs/refusals.md.";
    Decisions: Counter, "decisions_total", [UPSTREAM, METHOD, DECISION],
        "Policy decisions.";
    RequestDuration: Histogram(&SECONDS), "request_duration_seconds", [ROUTE, METHOD],
        "From the last byte of a request's head to the last byte of its answer.";
    DecisionDuration: Histogram(&OVERHEAD_SECONDS), "decision_duration_seconds", [],
        "From the last byte of a request's head to its forwarding: reading, judging and recording it; our own share.";
    InFlight: Gauge, "requests_in_flight", [],
        "Requests being served right now.";
    RequestBytes: Counter, "request_body_bytes_total", [],
        "Bytes of request bodies read.";
    ResponseBytes: Counter, "response_body_bytes_total", [],
        "Bytes of response bodies written.";

    Approvals: Counter, "approvals_total", [UPSTREAM, STATE],
        "Held calls by what they came to: requested, approved, denied, expired, consumed, completed and further states.";
    ApprovalsPending: Gauge, "approvals_pending", [],
        "Held calls that nobody has decided on.";
    ApprovalsWaiting: Gauge, "approvals_waiting", [],
        "Callers that wait for a held call right now.";
    ApprovalDecision: Histogram(&DECISION_SECONDS), "approval_decision_seconds", [],
        "From a call being held to the deciding word.";
    WebhookDeliveries: Counter, "webhook_deliveries_total", [HOOK, RESULT_OF_DELIVERY],
        "Attempts to tell a webhook of a held call: delivered, failed (and tried again), dead (given up).";
    WebhooksWaiting: Gauge, "webhook_waiting", [],
        "Webhooks that are still to be told of a held call.";
    WebhooksDead: Gauge, "webhook_dead", [],
        "Webhooks that could not be told of a held call, in the last day.";

    Connections: Gauge, "connections", [LISTENER],
        "Client connections that are open.";
    ConnectionsRefused: Counter, "connections_refused_total", [LISTENER, REASON],
        "Client connections ended before a request could be read: a code of docs/refusals.md, or tls, http2, address_limit, pushed_out.";
    CertificateExpiry: Gauge, "certificate_expiry_timestamp_seconds", [USED_BY],
        "When a certificate in use runs out: listener (the agents'; 0 without TLS), admin, and upstream NAME for those shown to upstreams.";
    CertificateFailed: Gauge, "certificate_reload_failed", [USED_BY],
        "1 while a listener's certificate and key on disk are not those in use.";

    UpstreamErrors: Counter, "upstream_errors_total", [UPSTREAM, UPSTREAM_CODE],
        "Failures of upstreams, by code.";
    UpstreamConnections: Counter, "upstream_connections_total", [UPSTREAM, REUSED],
        "Connections used, new or from the pool.";
    UpstreamUp: Gauge, "upstream_up", [UPSTREAM],
        "1 while its tools could be listed the last time and its process, where it is ours, runs.";
    UpstreamStarts: Counter, "upstream_starts_total", [UPSTREAM],
        "Starts of upstreams that are processes of this gateway; more than one is a restart.";
    UpstreamTools: Gauge, "upstream_tools", [UPSTREAM],
        "Tools the upstream listed when it was last asked.";
    DroppedMessages: Counter, "upstream_messages_dropped_total", [UPSTREAM, REASON_DROPPED],
        "Messages of upstreams that were not passed on, by reason.";

    TokensCached: Gauge, "tokens_cached", [],
        "Verified tokens of our own kept in memory.";
    RevocationsCurrent: Gauge, "revocations_current", [],
        "1 while revocations are known to be up to date.";
    IssuerFetches: Counter, "issuer_fetches_total", [ISSUER, RESULT_OF_FETCH],
        "Fetches of the keys of external issuers, by result.";
    IssuerKeys: Gauge, "issuer_keys", [ISSUER],
        "Keys of the issuer that can verify its tokens.";
    IssuerKeysFetched: Gauge, "issuer_keys_fetched_timestamp_seconds", [ISSUER],
        "When the issuer's keys were fetched the last time.";

    AuditAvailable: Gauge, "audit_available", [],
        "1 while the audit log can be written.";
    AuditDropped: Gauge, "audit_records_dropped", [],
        "Result records that could not be written since the start.";

    SpansExported: Counter, "trace_spans_exported_total", [],
        "Spans that the OpenTelemetry collector has.";
    SpansDropped: Counter, "trace_spans_dropped_total", [REASON_OF_SPANS],
        "Spans that no collector has: there was no room (full), it did not want them (refused), the gateway stopped first (stopped).";
    SpansWaiting: Gauge, "trace_spans_waiting", [],
        "Spans that wait for the collector.";
    ExportFailures: Counter, "trace_export_failures_total", [],
        "Attempts to send spans that failed; they are made again.";

    ConfigReloads: Counter, "config_reloads_total", [RESULT_OF_RELOAD],
        "Reloads, by result.";
    ConfigFailed: Gauge, "config_reload_failed", [],
        "1 while the file on disk is not the configuration in force.";
    ConfigLoadedAt: Gauge, "config_loaded_timestamp_seconds", [],
        "When the configuration in force was loaded.";
    ConfigInfo: Gauge, "config_info", [HASH],
        "The configuration in force, by the start of its hash.";
}

/// From below a millisecond, where a proxied call should be, to the minutes that a held one may take.
const SECONDS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0];
/// Our own share of a call.
const OVERHEAD_SECONDS: [f64; 9] = [0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.1, 1.0];
/// From a glance at a chat to the half hour after which nobody is asked any more.
const DECISION_SECONDS: [f64; 9] = [1.0, 5.0, 15.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 3600.0];

/// The table in `docs/operations.md`, in Markdown.
pub fn table() -> String {
    let row = |metric: &Metric| {
        let about = metric.about();
        let labels: Vec<String> = about.labels.iter().map(Label::to_string).collect();
        format!("| `{}` | {} | {} | {} |\n", about.name, about.kind.as_str(), labels.join(", "), about.help)
    };
    let rows: String = Metric::ALL.iter().map(row).collect();
    format!("| Name | Kind | Labels | Means |\n|---|---|---|---|\n{rows}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_the_conventions_of_prometheus() {
        for metric in Metric::ALL {
            let About { name, kind, labels, help } = metric.about();
            assert_eq!(kind == Counter, name.ends_with("_total"), "{name}");
            assert!(!matches!(kind, Histogram(_)) || name.ends_with("_seconds"), "{name}: base units");
            assert!(help.ends_with('.'), "{name}: a help text is a sentence");
            let names: BTreeSet<_> = labels.iter().map(|label| label.name).collect();
            assert_eq!(names.len(), labels.len(), "{name}: a label stands twice");
            assert!(names.iter().all(|label| !["le", "quantile", "job", "instance"].contains(label)), "{name}");
        }
    }
}
