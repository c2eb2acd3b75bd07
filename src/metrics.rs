//! Every metric, listed once (DESIGN §9). All names begin with `portcullis_`.
//!
//! A label's values come from the configuration, the method table and our own stable codes, never from a request:
//! what a client invents is counted as `other`, so that nobody can make the scrape grow.

use prometheus::{
    Encoder as _, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

/// What this process counts.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    refusals: IntCounterVec,
    decisions: IntCounterVec,
    duration: HistogramVec,
    overhead: Histogram,
    in_flight: IntGauge,
    wire: Wire,
    request_bytes: IntCounter,
    response_bytes: IntCounter,
    upstreams: OfUpstreams,
    tokens_cached: IntGauge,
    revocations_current: IntGauge,
    issuers: OfIssuers,
    approvals: OfApprovals,
    audit_available: IntGauge,
    audit_dropped: IntGauge,
    config_reloads: IntCounterVec,
    config_failed: IntGauge,
    config_loaded_at: IntGauge,
    config_info: IntGaugeVec,
}

/// Of the keys of external issuers.
struct OfIssuers {
    fetches: IntCounterVec,
    keys: IntGaugeVec,
    keys_at: IntGaugeVec,
}

impl OfIssuers {
    fn new(made: &Maker) -> Self {
        OfIssuers {
            fetches: made.counters(
                "issuer_fetches_total",
                "Fetches of the keys of external issuers, by result.",
                &["issuer", "result"],
            ),
            keys: made.gauges("issuer_keys", "Keys of the issuer that can verify its tokens.", &["issuer"]),
            keys_at: made.gauges(
                "issuer_keys_fetched_timestamp_seconds",
                "When the issuer's keys were fetched the last time.",
                &["issuer"],
            ),
        }
    }
}

/// Of calls that are held for a person.
struct OfApprovals {
    ended: IntCounterVec,
    pending: IntGauge,
    waiting: IntGauge,
    decision: Histogram,
    deliveries: IntCounterVec,
    webhooks_waiting: IntGauge,
    webhooks_dead: IntGauge,
}

/// From a glance at a chat to the half hour after which nobody is asked any more.
const DECISION_SECONDS: [f64; 9] = [1.0, 5.0, 15.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 3600.0];

impl OfApprovals {
    fn new(made: &Maker) -> Self {
        OfApprovals {
            ended: made.counters(
                "approvals_total",
                "Held calls by what they came to: requested, approved, denied, expired, completed, …",
                &["upstream", "state"],
            ),
            pending: made.gauge("approvals_pending", "Held calls that nobody has decided on."),
            waiting: made.gauge("approvals_waiting", "Callers that wait for a held call right now."),
            decision: made.histogram(
                "approval_decision_seconds",
                "From a call being held to the deciding word.",
                &DECISION_SECONDS,
            ),
            deliveries: made.counters(
                "webhook_deliveries_total",
                "Attempts to tell a webhook of a held call: delivered, failed (and tried again), dead (given up).",
                &["hook", "result"],
            ),
            webhooks_waiting: made.gauge("webhook_waiting", "Webhooks that are still to be told of a held call."),
            webhooks_dead: made
                .gauge("webhook_dead", "Webhooks that could not be told of a held call, in the last day."),
        }
    }
}

/// Of the servers behind us.
struct OfUpstreams {
    errors: IntCounterVec,
    connections: IntCounterVec,
    up: IntGaugeVec,
    starts: IntCounterVec,
    tools: IntGaugeVec,
    dropped: IntCounterVec,
}

impl OfUpstreams {
    fn new(made: &Maker) -> Self {
        OfUpstreams {
            errors: made.counters("upstream_errors_total", "Failures of upstreams, by code.", &["upstream", "code"]),
            connections: made.counters(
                "upstream_connections_total",
                "Connections used, new or from the pool.",
                &["upstream", "reused"],
            ),
            up: made.gauges(
                "upstream_up",
                "1 while its tools could be listed the last time and its process, where it is ours, runs.",
                &["upstream"],
            ),
            starts: made.counters(
                "upstream_starts_total",
                "Starts of upstreams that are processes of this gateway.",
                &["upstream"],
            ),
            tools: made.gauges("upstream_tools", "Tools the upstream listed when it was last asked.", &["upstream"]),
            dropped: made.counters(
                "upstream_messages_dropped_total",
                "Messages of upstreams that were not passed on, by reason.",
                &["upstream", "reason"],
            ),
        }
    }
}

/// From below a millisecond, where a proxied call should be, to the minutes that a held one may take.
const SECONDS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0];
/// Our own share of a call.
const OVERHEAD_SECONDS: [f64; 9] = [0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.1, 1.0];

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

/// Client connections and what secures them.
struct Wire {
    connections: IntGaugeVec,
    refused: IntCounterVec,
    certificate_expires: IntGaugeVec,
    certificate_failed: IntGaugeVec,
}

impl Wire {
    fn new(made: &Maker) -> Self {
        let wire = Wire {
            connections: made.gauges("connections", "Client connections that are open.", &["listener"]),
            refused: made.counters(
                "connections_refused_total",
                "Client connections ended before a request could be read, by reason.",
                &["listener", "reason"],
            ),
            certificate_expires: made.gauges(
                "certificate_expiry_timestamp_seconds",
                "When a certificate of ours that is in use runs out: the agent listener's, the admin listener's, and those shown to upstreams.",
                &["used_by"],
            ),
            certificate_failed: made.gauges(
                "certificate_reload_failed",
                "1 while a listener's certificate and key on disk are not those in use.",
                &["used_by"],
            ),
        };
        wire.certificate_expires.with_label_values(&["listener"]).set(0);
        wire.certificate_failed.with_label_values(&["listener"]).set(0);
        wire
    }
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let made = Maker { registry: Registry::new() };
        Metrics {
            requests: made.counters(
                "requests_total",
                "Requests answered, by route, method and HTTP status.",
                &["route", "method", "status"],
            ),
            refusals: made.counters(
                "refusals_total",
                "Answers given instead of the upstream's, by code.",
                &["route", "code"],
            ),
            decisions: made.counters(
                "decisions_total",
                "Policy decisions, by upstream, method and decision.",
                &["upstream", "method", "decision"],
            ),
            duration: made.histograms(
                "request_duration_seconds",
                "From the last byte of a request's head to the last byte of its answer.",
                &["route", "method"],
                &SECONDS,
            ),
            overhead: made.histogram(
                "decision_duration_seconds",
                "From the last byte of a request's head to its forwarding: reading, judging and recording it.",
                &OVERHEAD_SECONDS,
            ),
            in_flight: made.gauge("requests_in_flight", "Requests being served right now."),
            wire: Wire::new(&made),
            request_bytes: made.counter("request_body_bytes_total", "Bytes of request bodies read."),
            response_bytes: made.counter("response_body_bytes_total", "Bytes of response bodies written."),
            upstreams: OfUpstreams::new(&made),
            tokens_cached: made.gauge("tokens_cached", "Verified tokens of our own kept in memory."),
            revocations_current: made.gauge("revocations_current", "1 while revocations are known to be up to date."),
            issuers: OfIssuers::new(&made),
            approvals: OfApprovals::new(&made),
            audit_available: made.gauge("audit_available", "1 while the audit log can be written."),
            audit_dropped: made
                .gauge("audit_records_dropped", "Result records that could not be written since the start."),
            config_reloads: made.counters("config_reloads_total", "Reloads, by result.", &["result"]),
            config_failed: made
                .gauge("config_reload_failed", "1 while the file on disk is not the configuration in force."),
            config_loaded_at: made
                .gauge("config_loaded_timestamp_seconds", "When the configuration in force was loaded."),
            config_info: made.gauges("config_info", "The configuration in force, by the start of its hash.", &["hash"]),
            registry: made.registry,
        }
    }

    /// All of them in the Prometheus text format, version 0.0.4.
    pub fn render(&self) -> Vec<u8> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("writing to memory does not fail");
        text
    }

    /// A request begins; the guard ends it, also when its task panics.
    pub fn begin(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    /// Requests being served right now.
    pub fn in_flight(&self) -> i64 {
        self.in_flight.get()
    }

    /// A client connection begins; the guard ends it.
    pub fn connected(&self, listener: &'static str) -> Connected {
        let gauge = self.wire.connections.with_label_values(&[listener]);
        gauge.inc();
        Connected(gauge)
    }

    /// A client connection was ended before a request could be read.
    pub fn connection_refused(&self, listener: &'static str, reason: &'static str) {
        self.wire.refused.with_label_values(&[listener, reason]).inc();
    }

    /// A held call has come to this state.
    pub fn approval(&self, upstream: &str, state: &'static str) {
        self.approvals.ended.with_label_values(&[upstream, state]).inc();
    }

    /// So many held calls are undecided.
    pub fn approvals_pending(&self, n: usize) {
        self.approvals.pending.set(i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// Counts an attempt to tell a webhook.
    pub fn webhook(&self, hook: &str, result: &'static str) {
        self.approvals.deliveries.with_label_values(&[hook, result]).inc();
    }

    /// Says how many webhooks are to be told, and could not be.
    pub fn webhooks(&self, waiting: usize, dead: usize) {
        self.approvals.webhooks_waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.approvals.webhooks_dead.set(i64::try_from(dead).unwrap_or(i64::MAX));
    }

    /// So many callers wait for a held call in this process.
    pub fn approvals_waiting(&self, n: usize) {
        self.approvals.waiting.set(i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// A held call was decided on after this time.
    pub fn approval_decided_after(&self, seconds: f64) {
        self.approvals.decision.observe(seconds);
    }

    /// A listener's certificate (`listener`: the agents', `admin`) was read and is in use, until this time.
    pub fn certificate_in_use(&self, listener: &str, expires_unix_seconds: i64) {
        self.wire.certificate_failed.with_label_values(&[listener]).set(0);
        self.wire.certificate_expires.with_label_values(&[listener]).set(expires_unix_seconds);
    }

    /// A listener's certificate on disk cannot be used; the old one stays.
    pub fn certificate_refused(&self, listener: &str) {
        self.wire.certificate_failed.with_label_values(&[listener]).set(1);
    }

    /// An upstream is shown a certificate, until this time.
    pub fn upstream_certificate(&self, upstream: &str, expires_unix_seconds: i64) {
        let used_by = format!("upstream {upstream}");
        self.wire.certificate_expires.with_label_values(&[used_by.as_str()]).set(expires_unix_seconds);
    }

    /// A request has ended.
    pub fn request(&self, route: &str, method: &str, status: u16, seconds: f64, bytes: (usize, usize)) {
        self.requests.with_label_values(&[route, method, status_label(status)]).inc();
        self.duration.with_label_values(&[route, method]).observe(seconds);
        self.request_bytes.inc_by(bytes.0 as u64);
        self.response_bytes.inc_by(bytes.1 as u64);
    }

    /// A call was answered by us.
    pub fn refusal(&self, route: &str, code: &'static str) {
        self.refusals.with_label_values(&[route, code]).inc();
    }

    /// Policy decided.
    pub fn decision(&self, upstream: &str, method: &'static str, decision: &'static str) {
        self.decisions.with_label_values(&[upstream, method, decision]).inc();
    }

    /// A call is about to be forwarded, this long after it began.
    pub fn decided_after(&self, seconds: f64) {
        self.overhead.observe(seconds);
    }

    /// An upstream failed.
    pub fn upstream_error(&self, upstream: &str, code: &'static str) {
        self.upstreams.errors.with_label_values(&[upstream, code]).inc();
    }

    /// A connection is used.
    pub fn upstream_connection(&self, upstream: &str, is_reused: bool) {
        self.upstreams.connections.with_label_values(&[upstream, if is_reused { "true" } else { "false" }]).inc();
    }

    /// An upstream was asked for its tools.
    pub fn upstream_up(&self, upstream: &str, n_tools: usize, is_up: bool) {
        self.upstreams.up.with_label_values(&[upstream]).set(i64::from(is_up));
        if is_up {
            let n_tools = i64::try_from(n_tools).unwrap_or(i64::MAX);
            self.upstreams.tools.with_label_values(&[upstream]).set(n_tools);
        }
    }

    /// An upstream's process was started.
    pub fn upstream_started(&self, upstream: &str) {
        self.upstreams.starts.with_label_values(&[upstream]).inc();
    }

    /// An upstream's process does not run.
    pub fn upstream_down(&self, upstream: &str) {
        self.upstreams.up.with_label_values(&[upstream]).set(0);
    }

    /// A message of an upstream was not passed on.
    pub fn dropped_message(&self, upstream: &str, reason: &'static str) {
        self.upstreams.dropped.with_label_values(&[upstream, reason]).inc();
    }

    /// How many verified tokens are kept, and whether revocations are up to date.
    pub fn tokens(&self, n_cached: usize, is_current: bool) {
        self.tokens_cached.set(i64::try_from(n_cached).unwrap_or(i64::MAX));
        self.revocations_current.set(i64::from(is_current));
    }

    /// The keys of an external issuer were fetched.
    pub fn issuer_fetched(&self, issuer: &str, n_keys: usize, unix_seconds: i64) {
        self.issuers.fetches.with_label_values(&[issuer, "ok"]).inc();
        self.issuers.keys.with_label_values(&[issuer]).set(i64::try_from(n_keys).unwrap_or(i64::MAX));
        self.issuers.keys_at.with_label_values(&[issuer]).set(unix_seconds);
    }

    /// They could not be.
    pub fn issuer_fetch_failed(&self, issuer: &str) {
        self.issuers.fetches.with_label_values(&[issuer, "failed"]).inc();
    }

    /// Whether the audit log can be written, and how many result records were lost.
    pub fn audit(&self, is_available: bool, n_dropped: u64) {
        self.audit_available.set(i64::from(is_available));
        self.audit_dropped.set(i64::try_from(n_dropped).unwrap_or(i64::MAX));
    }

    /// A configuration took effect.
    pub fn config_loaded(&self, hash: &str, unix_seconds: i64) {
        self.config_reloads.with_label_values(&["ok"]).inc();
        self.config_failed.set(0);
        self.config_loaded_at.set(unix_seconds);
        self.config_info.reset();
        self.config_info.with_label_values(&[hash]).set(1);
    }

    /// A configuration was refused; the old one stays.
    pub fn config_refused(&self) {
        self.config_reloads.with_label_values(&["refused"]).inc();
        self.config_failed.set(1);
    }
}

/// One request being served.
pub struct InFlight(IntGauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// One client connection that is open.
pub struct Connected(IntGauge);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn status_label(status: u16) -> &'static str {
    match status {
        200 => "200",
        202 => "202",
        204 => "204",
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        405 => "405",
        406 => "406",
        408 => "408",
        413 => "413",
        415 => "415",
        503 => "503",
        0 => "none",
        _ => "other",
    }
}

/// Makes a metric and registers it.
struct Maker {
    registry: Registry,
}

impl Maker {
    fn keep<M: prometheus::core::Collector + Clone + 'static>(&self, metric: prometheus::Result<M>) -> M {
        let metric = metric.expect("names and labels of metrics are written correctly here");
        self.registry.register(Box::new(metric.clone())).expect("every metric is listed once");
        metric
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.keep(IntCounter::with_opts(opts(name, help)))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.keep(IntCounterVec::new(opts(name, help), labels))
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.keep(IntGauge::with_opts(opts(name, help)))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.keep(IntGaugeVec::new(opts(name, help), labels))
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let opts = HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec());
        self.keep(Histogram::with_opts(opts))
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
        let opts = HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec());
        self.keep(HistogramVec::new(opts, labels))
    }
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("portcullis_{name}"), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_rendered_and_a_guard_ends_its_request() {
        let metrics = Metrics::new();
        let guard = metrics.begin();
        metrics.refusal("github", "policy.denied");
        drop(guard);

        let text = String::from_utf8(metrics.render()).expect("the text format is UTF-8");

        assert!(text.contains(r#"portcullis_refusals_total{code="policy.denied",route="github"} 1"#), "{text}");
        assert!(text.contains("portcullis_requests_in_flight 0"), "{text}");
    }
}
