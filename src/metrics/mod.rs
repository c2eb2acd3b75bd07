//! What this process counts. Every metric stands once, in [`list`]; all names begin with `portcullis_`.
//!
//! A label's values come from the configuration, the method table and our own stable codes ([`label`]), never from a
//! request: what a client invents is counted as `other`, so that nobody can make the scrape grow.

mod family;
mod label;
mod list;

pub use label::{Label, Values};
pub use list::{About, Kind, Metric, table};

use family::Family;
use prometheus::{Encoder as _, IntCounter, IntGauge, Registry, TextEncoder};

/// What this process counts.
pub struct Metrics {
    registry: Registry,
    /// One for each of [`Metric::ALL`], in its order.
    families: Vec<Family>,
    /// Of every request: not looked up each time.
    in_flight: IntGauge,
    request_bytes: IntCounter,
    response_bytes: IntCounter,
    catching_up: parking_lot::Mutex<()>,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let registry = Registry::new();
        let families: Vec<_> = Metric::ALL.iter().map(|metric| Family::register(&metric.about(), &registry)).collect();
        let counter = |metric: Metric| families[metric as usize].counter(&[]);
        let metrics = Metrics {
            in_flight: families[Metric::InFlight as usize].gauge(&[]),
            request_bytes: counter(Metric::RequestBytes),
            response_bytes: counter(Metric::ResponseBytes),
            registry,
            families,
            catching_up: parking_lot::Mutex::default(),
        };
        metrics.set(Metric::CertificateExpiry, &["listener"], 0);
        metrics.set(Metric::CertificateFailed, &["listener"], 0);
        metrics
    }

    fn family(&self, metric: Metric) -> &Family {
        &self.families[metric as usize]
    }

    fn count(&self, metric: Metric, labels: &[&str]) {
        self.family(metric).counter(labels).inc();
    }

    fn set(&self, metric: Metric, labels: &[&str], value: i64) {
        self.family(metric).gauge(labels).set(value);
    }

    fn set_n(&self, metric: Metric, labels: &[&str], n: usize) {
        self.set(metric, labels, i64::try_from(n).unwrap_or(i64::MAX));
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
        let gauge = self.family(Metric::Connections).gauge(&[listener]);
        gauge.inc();
        Connected(gauge)
    }

    /// A client connection was ended before a request could be read.
    pub fn connection_refused(&self, listener: &'static str, reason: &'static str) {
        self.count(Metric::ConnectionsRefused, &[listener, reason]);
    }

    /// A held call has come to this state.
    pub fn approval(&self, upstream: &str, state: &'static str) {
        self.count(Metric::Approvals, &[upstream, state]);
    }

    /// So many held calls are undecided.
    pub fn approvals_pending(&self, n: usize) {
        self.set_n(Metric::ApprovalsPending, &[], n);
    }

    /// Counts an attempt to tell a webhook.
    pub fn webhook(&self, hook: &str, result: &'static str) {
        self.count(Metric::WebhookDeliveries, &[hook, result]);
    }

    /// Says how many webhooks are to be told, and could not be.
    pub fn webhooks(&self, waiting: usize, dead: usize) {
        self.set_n(Metric::WebhooksWaiting, &[], waiting);
        self.set_n(Metric::WebhooksDead, &[], dead);
    }

    /// So many callers wait for a held call in this process.
    pub fn approvals_waiting(&self, n: usize) {
        self.set_n(Metric::ApprovalsWaiting, &[], n);
    }

    /// A held call was decided on after this time.
    pub fn approval_decided_after(&self, seconds: f64) {
        self.family(Metric::ApprovalDecision).histogram(&[]).observe(seconds);
    }

    /// A listener's certificate (`listener`: the agents', `admin`) was read and is in use, until this time.
    pub fn certificate_in_use(&self, listener: &str, expires_unix_seconds: i64) {
        self.set(Metric::CertificateFailed, &[listener], 0);
        self.set(Metric::CertificateExpiry, &[listener], expires_unix_seconds);
    }

    /// A listener's certificate on disk cannot be used; the old one stays.
    pub fn certificate_refused(&self, listener: &str) {
        self.set(Metric::CertificateFailed, &[listener], 1);
    }

    /// An upstream is shown a certificate, until this time.
    pub fn upstream_certificate(&self, upstream: &str, expires_unix_seconds: i64) {
        let used_by = format!("upstream {upstream}");
        self.set(Metric::CertificateExpiry, &[used_by.as_str()], expires_unix_seconds);
    }

    /// A request has ended.
    pub fn request(&self, route: &str, method: &str, status: u16, seconds: f64, bytes: (usize, usize)) {
        self.count(Metric::Requests, &[route, method, label::status(status)]);
        self.family(Metric::RequestDuration).histogram(&[route, method]).observe(seconds);
        self.request_bytes.inc_by(bytes.0 as u64);
        self.response_bytes.inc_by(bytes.1 as u64);
    }

    /// A call was answered by us.
    pub fn refusal(&self, route: &str, code: &'static str) {
        self.count(Metric::Refusals, &[route, code]);
    }

    /// Policy decided.
    pub fn decision(&self, upstream: &str, method: &'static str, decision: &'static str) {
        self.count(Metric::Decisions, &[upstream, method, decision]);
    }

    /// A call is about to be forwarded, this long after it began.
    pub fn decided_after(&self, seconds: f64) {
        self.family(Metric::DecisionDuration).histogram(&[]).observe(seconds);
    }

    /// An upstream failed.
    pub fn upstream_error(&self, upstream: &str, code: &'static str) {
        self.count(Metric::UpstreamErrors, &[upstream, code]);
    }

    /// A connection is used.
    pub fn upstream_connection(&self, upstream: &str, is_reused: bool) {
        self.count(Metric::UpstreamConnections, &[upstream, if is_reused { "true" } else { "false" }]);
    }

    /// An upstream was asked for its tools.
    pub fn upstream_up(&self, upstream: &str, n_tools: usize, is_up: bool) {
        self.set(Metric::UpstreamUp, &[upstream], i64::from(is_up));
        if is_up {
            self.set_n(Metric::UpstreamTools, &[upstream], n_tools);
        }
    }

    /// An upstream's process was started.
    pub fn upstream_started(&self, upstream: &str) {
        self.count(Metric::UpstreamStarts, &[upstream]);
    }

    /// An upstream's process does not run.
    pub fn upstream_down(&self, upstream: &str) {
        self.set(Metric::UpstreamUp, &[upstream], 0);
    }

    /// A message of an upstream was not passed on.
    pub fn dropped_message(&self, upstream: &str, reason: &'static str) {
        self.count(Metric::DroppedMessages, &[upstream, reason]);
    }

    /// How many verified tokens are kept, and whether revocations are up to date.
    pub fn tokens(&self, n_cached: usize, is_current: bool) {
        self.set_n(Metric::TokensCached, &[], n_cached);
        self.set(Metric::RevocationsCurrent, &[], i64::from(is_current));
    }

    /// The keys of an external issuer were fetched.
    pub fn issuer_fetched(&self, issuer: &str, n_keys: usize, unix_seconds: i64) {
        self.count(Metric::IssuerFetches, &[issuer, "ok"]);
        self.set_n(Metric::IssuerKeys, &[issuer], n_keys);
        self.set(Metric::IssuerKeysFetched, &[issuer], unix_seconds);
    }

    /// They could not be.
    pub fn issuer_fetch_failed(&self, issuer: &str) {
        self.count(Metric::IssuerFetches, &[issuer, "failed"]);
    }

    /// Whether the audit log can be written, and how many result records were lost.
    pub fn audit(&self, is_available: bool, n_dropped: u64) {
        self.set(Metric::AuditAvailable, &[], i64::from(is_available));
        self.set(Metric::AuditDropped, &[], i64::try_from(n_dropped).unwrap_or(i64::MAX));
    }

    /// What became of spans since the start, and how many wait. The queue counts them itself: here its counts are caught up
    /// with.
    pub fn spans(&self, spans: &Spans) {
        let catch_up = |metric: Metric, labels: &[&str], now: u64| {
            let counter = self.family(metric).counter(labels);
            counter.inc_by(now.saturating_sub(counter.get()));
        };
        let _one_at_a_time = self.catching_up.lock();
        catch_up(Metric::SpansExported, &[], spans.exported);
        catch_up(Metric::ExportFailures, &[], spans.failures);
        for (reason, n) in spans.dropped {
            catch_up(Metric::SpansDropped, &[reason], n);
        }
        self.set_n(Metric::SpansWaiting, &[], spans.waiting);
    }

    /// A configuration took effect.
    pub fn config_loaded(&self, hash: &str, unix_seconds: i64) {
        self.count(Metric::ConfigReloads, &["ok"]);
        self.set(Metric::ConfigFailed, &[], 0);
        self.set(Metric::ConfigLoadedAt, &[], unix_seconds);
        self.family(Metric::ConfigInfo).clear();
        self.set(Metric::ConfigInfo, &[hash], 1);
    }

    /// A configuration was refused; the old one stays.
    pub fn config_refused(&self) {
        self.count(Metric::ConfigReloads, &["refused"]);
        self.set(Metric::ConfigFailed, &[], 1);
    }
}

/// What became of spans since the start.
#[derive(Clone, Copy, Debug)]
pub struct Spans {
    /// A collector has so many.
    pub exported: u64,
    /// None has so many, by why.
    pub dropped: [(&'static str, u64); 3],
    /// Attempts to send some that failed.
    pub failures: u64,
    /// So many wait.
    pub waiting: usize,
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
