//! Every metric, once: what registers it, the table in `docs/operations.md` and the tests all read this list.

use super::label::{
    CLIENT_EVENT, CODE, DECISION, ENDPOINT, EVENT, HASH, HOOK, ISSUER, LISTENER, Label, METHOD, REASON, REASON_DROPPED,
    REASON_OF_SPANS, REFUSING_LISTENER, RESULT_OF_CHECKPOINT, RESULT_OF_CONSENT, RESULT_OF_DELIVERY, RESULT_OF_FETCH,
    RESULT_OF_LOGIN, RESULT_OF_RELOAD, RESULT_OF_SINK, REUSED, ROUTE, SINK, STATE, STATUS, STATUS_CLASS, TOKEN_EVENT,
    UPSTREAM, UPSTREAM_CODE, USED_BY, VERSION,
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
                        name: $name,
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
    Requests: Counter, "portcullis_requests_total", [ROUTE, METHOD, STATUS],
        "Requests answered, by HTTP status.";
    Refusals: Counter, "portcullis_refusals_total", [ROUTE, CODE],
        "Answers given instead of the upstream's, by the code of docs/refusals.md.";
    Decisions: Counter, "portcullis_decisions_total", [UPSTREAM, METHOD, DECISION],
        "Policy decisions.";
    RequestDuration: Histogram(&SECONDS), "portcullis_request_duration_seconds", [ROUTE, METHOD],
        "From the last byte of a request's head to the last byte of its answer.";
    DecisionDuration: Histogram(&OVERHEAD_SECONDS), "portcullis_decision_duration_seconds", [],
        "From the last byte of a request's head to its forwarding: reading, judging and recording it; our own share.";
    InFlight: Gauge, "portcullis_requests_in_flight", [],
        "Requests being served right now.";
    RequestBytes: Counter, "portcullis_request_body_bytes_total", [],
        "Bytes of request bodies read.";
    ResponseBytes: Counter, "portcullis_response_body_bytes_total", [],
        "Bytes of response bodies written.";

    Approvals: Counter, "portcullis_approvals_total", [UPSTREAM, STATE],
        "Held calls by what they came to: requested, approved, denied, expired, consumed, completed and further states.";
    ApprovalsPending: Gauge, "portcullis_approvals_pending", [],
        "Held calls that nobody has decided on.";
    ApprovalsOldest: Gauge, "portcullis_approvals_oldest_pending_timestamp_seconds", [],
        "When the oldest held call that nobody has decided on was held; 0 when there is none.";
    ApprovalsWaiting: Gauge, "portcullis_approvals_waiting", [],
        "Callers that wait for a held call right now.";
    ApprovalDecision: Histogram(&DECISION_SECONDS), "portcullis_approval_decision_seconds", [],
        "From a call being held to the deciding word.";
    WebhookDeliveries: Counter, "portcullis_webhook_deliveries_total", [HOOK, RESULT_OF_DELIVERY],
        "Attempts to tell a webhook of a held call: delivered, failed (and tried again), dead (given up).";
    WebhooksWaiting: Gauge, "portcullis_webhook_waiting", [],
        "Webhooks that are still to be told of a held call.";
    WebhooksDead: Gauge, "portcullis_webhook_dead", [],
        "Webhooks that could not be told of a held call, in the last day.";

    Connections: Gauge, "portcullis_connections", [LISTENER],
        "Client connections that are open.";
    ConnectionsRefused: Counter, "portcullis_connections_refused_total", [REFUSING_LISTENER, REASON],
        "Client connections ended before a request could be read: a code of docs/refusals.md, or tls, http2, address_limit, pushed_out.";
    CertificateExpiry: Gauge, "portcullis_certificate_expiry_timestamp_seconds", [USED_BY],
        "When a certificate in use runs out: listener (the agents'; 0 without TLS), admin, and upstream NAME for those shown to upstreams.";
    CertificateFailed: Gauge, "portcullis_certificate_reload_failed", [USED_BY],
        "1 while a listener's certificate and key on disk are not those in use.";

    UpstreamErrors: Counter, "portcullis_upstream_errors_total", [UPSTREAM, UPSTREAM_CODE],
        "Failures of upstreams, by code.";
    UpstreamResponse: Histogram(&SECONDS), "portcullis_upstream_response_duration_seconds", [UPSTREAM],
        "From sending a request to an upstream to the head of its answer; our own questions for its tools included.";
    UpstreamConnections: Counter, "portcullis_upstream_connections_total", [UPSTREAM, REUSED],
        "Connections used, new or from the pool.";
    UpstreamUp: Gauge, "portcullis_upstream_up", [UPSTREAM],
        "1 while its tools could be listed the last time and its process, where it is ours, runs.";
    UpstreamStarts: Counter, "portcullis_upstream_starts_total", [UPSTREAM],
        "Starts of upstreams that are processes of this gateway; more than one is a restart.";
    UpstreamTools: Gauge, "portcullis_upstream_tools", [UPSTREAM],
        "Tools the upstream listed when it was last asked.";
    DroppedMessages: Counter, "portcullis_upstream_messages_dropped_total", [UPSTREAM, REASON_DROPPED],
        "Messages of upstreams that were not passed on, by reason.";

    TokensCached: Gauge, "portcullis_tokens_cached", [],
        "Verified tokens of our own kept in memory.";
    RevocationsCurrent: Gauge, "portcullis_revocations_current", [],
        "1 while revocations are known to be up to date.";
    IssuerFetches: Counter, "portcullis_issuer_fetches_total", [ISSUER, RESULT_OF_FETCH],
        "Fetches of the keys of external issuers, by result.";
    IssuerKeys: Gauge, "portcullis_issuer_keys", [ISSUER],
        "Keys of the issuer that can verify its tokens.";
    IssuerKeysFetched: Gauge, "portcullis_issuer_keys_fetched_timestamp_seconds", [ISSUER],
        "When the issuer's keys were fetched the last time.";

    Logins: Counter, "portcullis_logins_total", [RESULT_OF_LOGIN],
        "Passwords given on a page, by what came of it; paused and busy were not looked at.";
    Consents: Counter, "portcullis_consents_total", [RESULT_OF_CONSENT],
        "Answers of people to clients that ask to act for them.";
    Clients: Counter, "portcullis_clients_total", [CLIENT_EVENT],
        "Clients that registered themselves, and those removed to make room.";
    Tokens: Counter, "portcullis_tokens_total", [TOKEN_EVENT],
        "Grants issued, refreshed and revoked at this gateway's endpoints; replayed: a used-up code or refresh token came again.";
    OauthRequests: Counter, "portcullis_oauth_requests_total", [ENDPOINT, STATUS_CLASS],
        "Requests answered by the authorization server and the pages on the agent listener.";
    OauthDuration: Histogram(&PAGE_SECONDS), "portcullis_oauth_request_duration_seconds", [ENDPOINT],
        "From a request to one of them to its answer.";

    AuditEvents: Counter, "portcullis_audit_events_total", [EVENT],
        "What the audit log was told of, by its event; what it leaves out of strangers included.";
    AuditAvailable: Gauge, "portcullis_audit_available", [],
        "1 while the audit log can be written.";
    AuditOutages: Counter, "portcullis_audit_outages_total", [],
        "Times that the audit log could no longer be written.";
    AuditRefused: Counter, "portcullis_audit_records_refused_total", [],
        "Records that could not be written, so that what they told of was refused.";
    AuditDropped: Counter, "portcullis_audit_records_dropped_total", [],
        "Records of what had already happened that could not be written, and are lost.";
    AuditLeftOut: Counter, "portcullis_audit_records_left_out_total", [],
        "Records of strangers that were left out, since there were too many.";
    AuditQueue: Gauge, "portcullis_audit_queue_records", [],
        "Records that are not in the file yet.";
    AuditSync: Histogram(&SYNC_SECONDS), "portcullis_audit_sync_duration_seconds", [],
        "What writing to the audit log and syncing it to the disk takes, once for all records that waited.";
    AuditWritten: Counter, "portcullis_audit_written_bytes_total", [],
        "Bytes written to the audit log.";
    AuditFiles: Gauge, "portcullis_audit_files", [],
        "Files of the audit log.";
    AuditBytes: Gauge, "portcullis_audit_files_bytes", [],
        "Their size together.";
    AuditDiskFree: Gauge, "portcullis_audit_disk_free_bytes", [],
        "Free space where the audit log is written.";
    AuditDiskSize: Gauge, "portcullis_audit_disk_size_bytes", [],
        "The size of that file system.";
    Checkpoints: Counter, "portcullis_audit_checkpoints_total", [RESULT_OF_CHECKPOINT],
        "Signed checkpoints of the audit log.";
    CheckpointAt: Gauge, "portcullis_audit_checkpoint_timestamp_seconds", [],
        "When the last checkpoint was written.";
    Unchecked: Gauge, "portcullis_audit_unchecked_records", [],
        "Records that no checkpoint covers yet.";
    SinkRecords: Counter, "portcullis_audit_sink_records_total", [SINK, RESULT_OF_SINK],
        "Records for a further sink: sent, failed (and tried again), dropped.";
    SinkLag: Gauge, "portcullis_audit_sink_lag_seconds", [SINK],
        "The age of the oldest record that a further sink has not got; 0 when it has all.";

    SpansExported: Counter, "portcullis_trace_spans_exported_total", [],
        "Spans that the OpenTelemetry collector has.";
    SpansDropped: Counter, "portcullis_trace_spans_dropped_total", [REASON_OF_SPANS],
        "Spans that no collector has: there was no room (full), it did not want them (refused), the gateway stopped first (stopped).";
    SpansWaiting: Gauge, "portcullis_trace_spans_waiting", [],
        "Spans that wait for the collector.";
    ExportFailures: Counter, "portcullis_trace_export_failures_total", [],
        "Attempts to send spans that failed; they are made again.";

    ConfigReloads: Counter, "portcullis_config_reloads_total", [RESULT_OF_RELOAD],
        "Reloads, by result.";
    ConfigFailed: Gauge, "portcullis_config_reload_failed", [],
        "1 while the file on disk is not the configuration in force.";
    ConfigLoadedAt: Gauge, "portcullis_config_loaded_timestamp_seconds", [],
        "When the configuration in force was loaded.";
    ConfigInfo: Gauge, "portcullis_config_info", [HASH],
        "The configuration in force, by the start of its hash.";
    BuildInfo: Gauge, "portcullis_build_info", [VERSION],
        "1, with the version of this program.";
    ProcessCpu: Counter, "process_cpu_seconds_total", [],
        "CPU time of the gateway, user and system; not of its upstreams' processes.";
    ProcessResident: Gauge, "process_resident_memory_bytes", [],
        "Memory of the gateway that is in RAM.";
    ProcessVirtual: Gauge, "process_virtual_memory_bytes", [],
        "Address space of the gateway.";
    ProcessThreads: Gauge, "process_threads", [],
        "Threads of the gateway.";
    ProcessOpenFds: Gauge, "process_open_fds", [],
        "Files, sockets and pipes that the gateway has open.";
    ProcessMaxFds: Gauge, "process_max_fds", [],
        "How many it may have open.";
    ProcessStarted: Gauge, "process_start_time_seconds", [],
        "When the gateway was started.";
}

/// From a millisecond, where a proxied call should be, to the minutes that a held one may take.
const SECONDS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0];
/// Our own share of a call.
const OVERHEAD_SECONDS: [f64; 10] = [0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.025, 0.1, 1.0];
/// From a glance at a chat to the half hour after which nobody is asked any more.
const DECISION_SECONDS: [f64; 9] = [1.0, 5.0, 15.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 3600.0];
/// Passwords are hashed slowly on purpose.
const PAGE_SECONDS: [f64; 8] = [0.0025, 0.01, 0.025, 0.1, 0.25, 0.5, 1.0, 5.0];
/// From a disk with a battery to one that is ill.
const SYNC_SECONDS: [f64; 10] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0];

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
            let is_process = name.starts_with("process_") && labels.is_empty();
            assert!(is_process || name.starts_with("portcullis_"), "{name}");
            assert!(!matches!(kind, Histogram(_)) || name.ends_with("_seconds"), "{name}: base units");
            assert!(help.ends_with('.'), "{name}: a help text is a sentence");
            let names: BTreeSet<_> = labels.iter().map(|label| label.name).collect();
            assert_eq!(names.len(), labels.len(), "{name}: a label stands twice");
            assert!(names.iter().all(|label| !["le", "quantile", "job", "instance"].contains(label)), "{name}");
        }
    }
}
