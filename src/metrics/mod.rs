//! What this process counts. Every metric stands once, in [`list`]; all names begin with `portcullis_`.
//!
//! A label's values come from the configuration, the method table and our own stable codes ([`label`]), never from a
//! request: what a client invents is counted as `other`, so that nobody can make the scrape grow.

mod family;
mod label;
mod list;
mod process;
mod told;

pub use label::{Label, Names, Values};
pub use list::{About, Kind, Metric, table};
pub use told::{AuditSpace, AuditState, Spans};

use family::Family;
use label::OF_UPSTREAM;
use process::Process;
use prometheus::proto::MetricFamily;
use prometheus::{Encoder as _, IntCounter, IntGauge, Registry, TextEncoder};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What this process counts.
pub struct Metrics {
    registry: Registry,
    /// One for each of [`Metric::ALL`], in its order.
    families: Vec<Family>,
    /// What the configuration in force names; `None` before there is one. Held by whoever brings totals up to date.
    known: Mutex<Option<Names>>,
    /// Of every request: not looked up each time.
    in_flight: IntGauge,
    request_bytes: IntCounter,
    response_bytes: IntCounter,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// All at zero; without a configuration, only those that need no name of it.
    pub fn new() -> Self {
        let registry = Registry::new();
        let families: Vec<_> = Metric::ALL.iter().map(|metric| Family::register(&metric.about(), &registry)).collect();
        let counter = |metric: Metric| families[metric as usize].counter(&[]);
        let metrics = Metrics {
            in_flight: families[Metric::InFlight as usize].gauge(&[]),
            request_bytes: counter(Metric::RequestBytes),
            response_bytes: counter(Metric::ResponseBytes),
            known: Mutex::new(None),
            registry,
            families,
        };
        metrics.begin_series(&Names::default(), |_| true);
        metrics.set(Metric::BuildInfo, &[env!("CARGO_PKG_VERSION")], 1);
        metrics.set(Metric::CertificateExpiry, &["listener"], 0);
        metrics.set(Metric::CertificateFailed, &["listener"], 0);
        metrics
    }

    /// A configuration has taken effect: whoever reads this may count on it.
    pub fn config_loaded(&self, hash: &str, unix_seconds: i64) {
        self.count(Metric::ConfigReloads, &["ok"]);
        self.set(Metric::ConfigFailed, &[], 0);
        self.set(Metric::ConfigLoadedAt, &[], unix_seconds);
        self.family(Metric::ConfigInfo).clear();
        self.set(Metric::ConfigInfo, &[hash], 1);
    }

    /// A configuration is about to take effect, which names these. What it does not name any more has no series from now on.
    pub fn config_named(&self, names: Names) {
        // A gauge of what is named has a series once its value is known.
        self.begin_series(&names, |about| about.kind != Kind::Gauge);
        for (upstream, expires) in &names.certificates {
            self.set(Metric::CertificateExpiry, &[&format!("{OF_UPSTREAM}{upstream}")], *expires);
        }
        *self.known() = Some(names);
        // Also where nobody ever scrapes, old names go.
        drop(self.gather());
    }

    fn begin_series(&self, names: &Names, is_wanted: impl Fn(&About) -> bool) {
        for (metric, family) in Metric::ALL.iter().zip(&self.families) {
            let about = metric.about();
            if is_wanted(&about) {
                names.first_series(about.labels).iter().for_each(|values| family.touch(values));
            }
        }
    }

    /// All of them in the Prometheus text format, version 0.0.4. One that has no series says what it is all the same.
    pub fn render(&self) -> Vec<u8> {
        let process = Process::read();
        let mut gathered = self.gather();
        let mut text = Vec::new();
        for metric in Metric::ALL {
            let About { name, kind, help, .. } = metric.about();
            if let Some(family) = gathered.remove(name).filter(|family| !family.get_metric().is_empty()) {
                TextEncoder::new().encode(&[family], &mut text).expect("writing to memory does not fail");
                continue;
            }
            text.extend(format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.as_str()).into_bytes());
            if let Some(value) = process.as_ref().and_then(|process| process.value(*metric)) {
                text.extend(format!("{name} {value}\n").into_bytes());
            }
        }
        text
    }

    /// The series of a counter or gauge: the values of its labels, in their order, and its own.
    pub fn samples(&self, metric: Metric) -> Vec<(Vec<String>, i64)> {
        let About { name, kind, labels, .. } = metric.about();
        let series = self.gather().remove(name);
        let of = |one: &prometheus::proto::Metric| {
            let value = |label: &Label| one.get_label().iter().find(|pair| pair.name() == label.name);
            let labels = labels.iter().filter_map(value).map(|pair| pair.value().to_owned()).collect();
            let number = if kind == Kind::Gauge { one.get_gauge().get_value() } else { one.get_counter().get_value() };
            (labels, whole(number))
        };
        series.iter().flat_map(prometheus::proto::MetricFamily::get_metric).map(of).collect()
    }

    /// Every series there is, by the name of its metric. Those of names that are not known any more are taken away here,
    /// not when the name goes: a call that was under way then may count after that.
    fn gather(&self) -> HashMap<String, MetricFamily> {
        let known = self.known();
        let mut gathered: HashMap<_, _> =
            self.registry.gather().into_iter().map(|family| (family.name().to_owned(), family)).collect();
        let Some(names) = &*known else {
            return gathered;
        };
        for (metric, family) in Metric::ALL.iter().zip(&self.families) {
            let About { name, labels, .. } = metric.about();
            let Some(series) = gathered.get_mut(name) else {
                continue;
            };
            series.mut_metric().retain(|one| {
                let value = |label: &Label| one.get_label().iter().find(|pair| pair.name() == label.name);
                let values: Vec<&str> =
                    labels.iter().filter_map(value).map(prometheus::proto::LabelPair::value).collect();
                let is_known = labels.iter().zip(&values).all(|(label, value)| names.allow(label.values, value));
                if !is_known {
                    family.remove(&values);
                }
                is_known
            });
        }
        gathered
    }

    fn known(&self) -> MutexGuard<'_, Option<Names>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn family(&self, metric: Metric) -> &Family {
        &self.families[metric as usize]
    }

    fn count(&self, metric: Metric, labels: &[&str]) {
        self.family(metric).counter(labels).inc();
    }

    /// Brings a counter up to what was counted elsewhere.
    fn raise(&self, metric: Metric, labels: &[&str], total: u64) {
        let counter = self.family(metric).counter(labels);
        // Two scrapes at once must not both add the difference.
        let _one_at_a_time = self.known();
        counter.inc_by(total.saturating_sub(counter.get()));
    }

    fn set(&self, metric: Metric, labels: &[&str], value: i64) {
        self.family(metric).gauge(labels).set(value);
    }

    fn set_n(&self, metric: Metric, labels: &[&str], n: usize) {
        self.set(metric, labels, i64::try_from(n).unwrap_or(i64::MAX));
    }
}

#[expect(clippy::cast_possible_truncation, reason = "counters and gauges are whole numbers below 2^53")]
fn whole(number: f64) -> i64 {
    number as i64
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

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.render()).expect("the text format is UTF-8")
    }

    fn named(upstreams: &[&str]) -> Names {
        Names { upstreams: upstreams.iter().map(|name| (*name).to_owned()).collect(), ..Names::default() }
    }

    #[test]
    fn every_metric_says_what_it_is_before_anything_has_happened() {
        let text = text(&Metrics::new());

        for About { name, kind, .. } in Metric::ALL.iter().map(|metric| metric.about()) {
            assert!(text.contains(&format!("# TYPE {name} {}\n", kind.as_str())), "{name}:\n{text}");
        }
        assert!(text.contains("portcullis_tokens_total{event=\"replayed\"} 0"), "{text}");
        assert!(text.contains("\nprocess_open_fds "), "{text}");
    }

    #[test]
    fn what_the_configuration_names_no_longer_has_no_series_whoever_counts_it_late() {
        let metrics = Metrics::new();
        let certificates = [("old".to_owned(), 7)].into();
        metrics.config_named(Names { certificates, ..named(&["old", "kept"]) });
        metrics.config_loaded("a", 1);
        metrics.upstream_up("old", 3, true);
        metrics.upstream_up("kept", 3, true);
        let before = text(&metrics);
        assert!(
            before.contains("upstream_up{upstream=\"old\"} 1") && before.contains("\"upstream old\"} 7"),
            "{before}"
        );
        assert!(before.contains("upstream_errors_total{code=\"upstream.down\",upstream=\"old\"} 0"), "{before}");

        metrics.config_named(named(&["kept"]));
        metrics.config_loaded("b", 2);
        metrics.request("old", "tools/call", 200, 0.1, (1, 1));
        metrics.upstream_up("old", 0, false);

        let after = text(&metrics);
        assert!(!after.contains("\"old\"") && !after.contains("upstream old"), "{after}");
        assert!(after.contains("upstream_up{upstream=\"kept\"} 1"), "{after}");
        assert!(after.contains("config_info{hash=\"b\"} 1") && !after.contains("hash=\"a\""), "{after}");
        let back = metrics.family(Metric::UpstreamUp).gauge(&["old"]).get();
        assert_eq!(back, 0, "the series itself is gone, not only its line");
    }

    #[test]
    fn a_total_from_elsewhere_is_never_counted_twice() {
        let metrics = Metrics::new();
        for dropped in [2, 2, 5] {
            metrics.audit(&AuditState { dropped, ..AuditState::default() });
        }

        assert!(text(&metrics).contains("audit_records_dropped_total 5\n"));
    }

    #[test]
    fn what_the_audit_log_is_told_counts_by_what_it_is() {
        let metrics = Metrics::new();
        metrics.event("login.failed", Some("login.paused"));
        metrics.event("login.failed", Some("login.unheard_of"));
        metrics.event("token.replayed", None);
        metrics.event("decision", None);

        let text = text(&metrics);
        for sample in [
            "logins_total{result=\"paused\"} 1",
            "logins_total{result=\"unavailable\"} 1",
            "logins_total{result=\"succeeded\"} 0",
            "tokens_total{event=\"replayed\"} 1",
            "audit_events_total{event=\"login.failed\"} 2",
            "audit_events_total{event=\"decision\"} 1",
        ] {
            assert!(text.contains(sample), "{sample}:\n{text}");
        }
    }
}
