//! What the loader saw, summed up.

use crate::connection::Done;
use bench::report::Report;
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Sums {
    pub(crate) ok: u64,
    pub(crate) unanswered: u64,
    not_200: u64,
    wrong: u64,
    broken: u64,
    pub(crate) first_fault: Option<String>,
    latencies: Vec<Duration>,
    services: Vec<Duration>,
    first_events: Vec<Duration>,
}

impl Sums {
    pub(crate) fn add(&mut self, done: &Done) {
        match &done.fault {
            None => self.ok += 1,
            Some(fault) => {
                if done.status == 200 {
                    self.wrong += 1
                } else {
                    self.not_200 += 1
                }
                self.first_fault.get_or_insert_with(|| fault.clone());
            }
        }
        self.latencies.push(done.latency);
        self.services.push(done.service);
        self.first_events.extend(done.first_event);
    }

    pub(crate) fn broken(&mut self, fault: String) {
        self.broken += 1;
        self.first_fault.get_or_insert(fault);
    }

    pub(crate) fn report(mut self, took: Duration) -> Report {
        for times in [&mut self.latencies, &mut self.services, &mut self.first_events] {
            times.sort_unstable();
        }
        let of = |times: &[Duration], share| percentile(times, share).unwrap_or_default();
        Report {
            ok: self.ok,
            not_200: self.not_200,
            wrong: self.wrong,
            broken: self.broken,
            unanswered: self.unanswered,
            first_fault: self.first_fault,
            seconds: took.as_secs_f64(),
            per_second: self.ok as f64 / took.as_secs_f64(),
            p50: of(&self.latencies, 0.5),
            p99: of(&self.latencies, 0.99),
            p999: of(&self.latencies, 0.999),
            max: of(&self.latencies, 1.0),
            service_p50: of(&self.services, 0.5),
            first_event_p50: percentile(&self.first_events, 0.5),
            first_event_p99: percentile(&self.first_events, 0.99),
        }
    }
}

/// Of sorted times, in microseconds.
fn percentile(sorted: &[Duration], share: f64) -> Option<f64> {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    let time = sorted.get(at.max(1) - 1)?;
    Some(time.as_secs_f64() * 1e6)
}
