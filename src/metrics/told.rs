//! What the rest of the house tells: one function for each thing that is counted, in the words of the one who counts it.

use super::label;
use super::list::Metric;
use super::{Connected, InFlight, Metrics};

/// How it is with the audit log, all since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditState {
    /// Whether the last attempt to write succeeded.
    pub is_available: bool,
    /// Records that are not in the file yet.
    pub queued: usize,
    /// Records whose caller was told no.
    pub refused: u64,
    /// Records that are lost.
    pub dropped: u64,
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

/// How much room the audit log takes, in bytes, and how much there is.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditSpace {
    /// How many files it has.
    pub files: usize,
    /// Their size.
    pub bytes: u64,
    /// What is free on their file system, for this process.
    pub free: u64,
    /// The size of that file system.
    pub size: u64,
}

impl Metrics {
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

    /// So many held calls are undecided, the oldest since then.
    pub fn approvals_pending(&self, n: usize, oldest_unix_seconds: Option<i64>) {
        self.set_n(Metric::ApprovalsPending, &[], n);
        self.set(Metric::ApprovalsOldest, &[], oldest_unix_seconds.unwrap_or(0));
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

    /// An upstream has begun to answer, this long after it was sent a request.
    pub fn upstream_answered_after(&self, upstream: &str, seconds: f64) {
        self.family(Metric::UpstreamResponse).histogram(&[upstream]).observe(seconds);
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
        } else {
            // None yet, or as many as before.
            self.family(Metric::UpstreamTools).touch(&[upstream]);
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

    /// The audit log was told of something. What it has a word for is counted here, wherever it happens.
    pub fn event(&self, event: &'static str, code: Option<&str>) {
        self.count(Metric::AuditEvents, &[event]);
        match event {
            "login.succeeded" => self.count(Metric::Logins, &["succeeded"]),
            "login.failed" => {
                let known = |result: &&str| code.and_then(|code| code.strip_prefix("login.")) == Some(*result);
                let result = ["wrong", "paused", "busy"].into_iter().find(known).unwrap_or("unavailable");
                self.count(Metric::Logins, &[result]);
            }
            "consent.given" => self.count(Metric::Consents, &["given"]),
            "consent.denied" => self.count(Metric::Consents, &["denied"]),
            "client.registered" => self.count(Metric::Clients, &["registered"]),
            "client.removed" => self.count(Metric::Clients, &["removed"]),
            "token.issued" => self.count(Metric::Tokens, &["issued"]),
            "token.refreshed" => self.count(Metric::Tokens, &["refreshed"]),
            "token.revoked" => self.count(Metric::Tokens, &["revoked"]),
            "token.replayed" => self.count(Metric::Tokens, &["replayed"]),
            _ => {}
        }
    }

    /// An endpoint of the authorization server, or another page on its listener, has answered. `path` is the router's
    /// own pattern, `None` where it knows none.
    pub fn oauth_request(&self, path: Option<&str>, status: u16, seconds: f64) {
        let endpoint = path.map_or("other", label::endpoint);
        self.count(Metric::OauthRequests, &[endpoint, label::status_class(status)]);
        self.family(Metric::OauthDuration).histogram(&[endpoint]).observe(seconds);
    }

    /// How it is with the audit log.
    pub fn audit(&self, state: &AuditState) {
        self.set(Metric::AuditAvailable, &[], i64::from(state.is_available));
        self.set_n(Metric::AuditQueue, &[], state.queued);
        self.raise(Metric::AuditRefused, &[], state.refused);
        self.raise(Metric::AuditDropped, &[], state.dropped);
    }

    /// A record of a stranger was left out.
    pub fn audit_left_out(&self) {
        self.count(Metric::AuditLeftOut, &[]);
    }

    /// The audit log can no longer be written.
    pub fn audit_outage(&self) {
        self.count(Metric::AuditOutages, &[]);
    }

    /// So many bytes went into the audit log.
    pub fn audit_written(&self, bytes: usize) {
        self.family(Metric::AuditWritten).counter(&[]).inc_by(bytes as u64);
    }

    /// The audit log was synced to the disk.
    pub fn audit_synced(&self, seconds: f64) {
        self.family(Metric::AuditSync).histogram(&[]).observe(seconds);
    }

    /// How much room the audit log takes, and how much there is.
    pub fn audit_space(&self, space: &AuditSpace) {
        self.set_n(Metric::AuditFiles, &[], space.files);
        for (metric, bytes) in [
            (Metric::AuditBytes, space.bytes),
            (Metric::AuditDiskFree, space.free),
            (Metric::AuditDiskSize, space.size),
        ] {
            self.set(metric, &[], i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// A checkpoint of the audit log was written.
    pub fn checkpoint_written(&self, unix_seconds: i64) {
        self.count(Metric::Checkpoints, &["written"]);
        self.set(Metric::CheckpointAt, &[], unix_seconds);
    }

    /// One could not be.
    pub fn checkpoint_failed(&self) {
        self.count(Metric::Checkpoints, &["failed"]);
    }

    /// So many records are covered by no checkpoint.
    pub fn unchecked_records(&self, n: u64) {
        self.set(Metric::Unchecked, &[], i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// What became of records for a further sink: `sent`, `failed`, `dropped`.
    pub fn sink(&self, sink: &str, result: &'static str, n: u64) {
        self.family(Metric::SinkRecords).counter(&[sink, result]).inc_by(n);
    }

    /// How old the oldest record is that a further sink has not got.
    pub fn sink_lag(&self, sink: &str, seconds: i64) {
        self.set(Metric::SinkLag, &[sink], seconds);
    }

    /// What became of spans since the start, and how many wait.
    pub fn spans(&self, spans: &Spans) {
        self.raise(Metric::SpansExported, &[], spans.exported);
        self.raise(Metric::ExportFailures, &[], spans.failures);
        for (reason, n) in spans.dropped {
            self.raise(Metric::SpansDropped, &[reason], n);
        }
        self.set_n(Metric::SpansWaiting, &[], spans.waiting);
    }

    /// A configuration was refused; the old one stays.
    pub fn config_refused(&self) {
        self.count(Metric::ConfigReloads, &["refused"]);
        self.set(Metric::ConfigFailed, &[], 1);
    }
}
