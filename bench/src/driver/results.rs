//! Everything that was measured, and the medians of it.

use crate::callgrind::Instructions;
use crate::memory::Idle;
use crate::peer::Kind;
use bench::report::Report;
use std::collections::BTreeMap;

/// One peer in one scenario in one round.
pub(crate) struct Sample {
    pub(crate) report: Report,
    /// Of the peer's process, for each call; microseconds. 0 where there is no process.
    pub(crate) cpu_us: f64,
    /// Of the stub's: where there is nothing in between, all that a call costs.
    pub(crate) stub_us: f64,
}

#[derive(Default)]
pub(crate) struct Results {
    /// By the scenario's title.
    pub(crate) samples: BTreeMap<(&'static str, Kind), Vec<Sample>>,
    /// The same, under callgrind.
    pub(crate) instructions: BTreeMap<(&'static str, Kind), Instructions>,
    pub(crate) idle: Vec<Idle>,
    /// Most memory that was resident in all scenarios; bytes.
    pub(crate) peaks: BTreeMap<Kind, u64>,
    /// Lines on what was left out, and why.
    pub(crate) missing: Vec<String>,
}

impl Results {
    /// The median of one figure over all rounds.
    pub(crate) fn median(&self, title: &'static str, kind: Kind, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        let samples = self.samples.get(&(title, kind))?;
        let mut values: Vec<f64> = samples.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        let at = values.len() / 2;
        Some(if values.len() % 2 == 1 { *values.get(at)? } else { (values.get(at - 1)? + values.get(at)?) / 2.0 })
    }

    pub(crate) fn cpu(&self, title: &'static str, kind: Kind) -> Option<f64> {
        self.median(title, kind, |sample| sample.cpu_us)
    }

    pub(crate) fn counted(&self, title: &'static str, kind: Kind) -> Option<f64> {
        self.instructions.get(&(title, kind)).map(|counted| counted.real)
    }

    pub(crate) fn idle(&self, kind: Kind) -> Option<f64> {
        self.idle.iter().find(|idle| idle.kind == kind).map(|idle| idle.per_stream)
    }
}
