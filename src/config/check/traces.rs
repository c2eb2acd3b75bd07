//! Traces: a collector that can be told safely, and a share that is one.

use super::otlp;
use crate::config::Config;
use crate::config::problem::{Path, Problem};

const COLLECTOR: &str = "write it as `https://collector.example.com:4318/v1/traces`";

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let Some(traces) = &config.traces else {
        return;
    };
    let path = Path::root().key("traces");
    otlp::check(&traces.otlp, COLLECTOR, &path.key("otlp"), problems);
    if !(0.0..=1.0).contains(&traces.sample) {
        let message = format!("`{}` is not between 0 and 1", traces.sample);
        problems.push(Problem::new(path.key("sample"), message).hint("`0.1` is one request in ten"));
    }
}
