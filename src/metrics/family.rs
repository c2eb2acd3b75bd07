//! One metric with all of its series, as its row in the list says.

use super::list::{About, Kind};
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

pub(super) enum Family {
    Counters(IntCounterVec),
    Gauges(IntGaugeVec),
    Histograms(HistogramVec),
    /// What the kernel says when it is asked.
    OfProcess,
}

impl Family {
    pub(super) fn register(about: &About, registry: &Registry) -> Family {
        let labels: Vec<&str> = about.labels.iter().map(|label| label.name).collect();
        let opts = Opts::new(about.name, about.help);

        match about.kind {
            _ if about.name.starts_with("process_") => Family::OfProcess,
            Kind::Counter => Family::Counters(keep(IntCounterVec::new(opts, &labels), registry)),
            Kind::Gauge => Family::Gauges(keep(IntGaugeVec::new(opts, &labels), registry)),
            Kind::Histogram(buckets) => {
                let opts = HistogramOpts::from(opts).buckets(buckets.to_vec());
                Family::Histograms(keep(HistogramVec::new(opts, &labels), registry))
            }
        }
    }

    /// Makes a series, at zero, if it is not there.
    pub(super) fn touch(&self, labels: &[&str]) {
        match self {
            Family::Counters(vec) => drop(vec.with_label_values(labels)),
            Family::Gauges(vec) => drop(vec.with_label_values(labels)),
            Family::Histograms(vec) => drop(vec.with_label_values(labels)),
            Family::OfProcess => {}
        }
    }

    /// Takes a series away.
    pub(super) fn remove(&self, labels: &[&str]) {
        // One that is not there has been taken away already.
        let _ = match self {
            Family::Counters(vec) => vec.remove_label_values(labels),
            Family::Gauges(vec) => vec.remove_label_values(labels),
            Family::Histograms(vec) => vec.remove_label_values(labels),
            Family::OfProcess => Ok(()),
        };
    }

    /// Takes every series away.
    pub(super) fn clear(&self) {
        match self {
            Family::Counters(vec) => vec.reset(),
            Family::Gauges(vec) => vec.reset(),
            Family::Histograms(vec) => vec.reset(),
            Family::OfProcess => {}
        }
    }

    pub(super) fn counter(&self, labels: &[&str]) -> IntCounter {
        match self {
            Family::Counters(vec) => vec.with_label_values(labels),
            _ => unreachable!("the list says that it is a counter"),
        }
    }

    pub(super) fn gauge(&self, labels: &[&str]) -> IntGauge {
        match self {
            Family::Gauges(vec) => vec.with_label_values(labels),
            _ => unreachable!("the list says that it is a gauge"),
        }
    }

    pub(super) fn histogram(&self, labels: &[&str]) -> Histogram {
        match self {
            Family::Histograms(vec) => vec.with_label_values(labels),
            _ => unreachable!("the list says that it is a histogram"),
        }
    }
}

fn keep<M: Collector + Clone + 'static>(made: prometheus::Result<M>, registry: &Registry) -> M {
    let made = made.expect("names and labels are written correctly in the list");
    registry.register(Box::new(made.clone())).expect("every metric is listed once");
    made
}
