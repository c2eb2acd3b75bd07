//! Limits and times that would let nothing through, or everything.

use crate::config::problem::{Path, Problem};
use crate::config::{ByteSize, Config, Period, Upstream};

/// No MCP message fits into less.
const BYTES_MIN: usize = 1024;
/// Each call may hold a few buffers of this size at once.
const BYTES_MAX: usize = 256 * 1024 * 1024;

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let path = Path::root().key("limits");
    let limits = &config.limits;
    size(limits.body, path.key("body"), problems);
    size(limits.answer, path.key("answer"), problems);
    count(limits.depth, 8, 512, path.key("depth"), problems);
    count(limits.nodes, 100, 10_000_000, path.key("nodes"), problems);
    count(limits.tokens, 1, 10_000_000, path.key("tokens"), problems);
    size(limits.head, path.key("head"), problems);
    count(limits.connections, 1, 1_000_000, path.key("connections"), problems);
    if let Some(n) = limits.connections_per_address {
        count(n, 1, 1_000_000, path.key("connections_per_address"), problems);
    }
    count(limits.streams, 1, 10_000, path.key("streams"), problems);

    let path = Path::root().key("timeouts");
    let times = &config.timeouts;
    let gateway =
        [("head", times.head), ("body", times.body), ("write", times.write), ("keep_alive", times.keep_alive)];
    // `drain` may be nothing: stop at once.
    periods(&gateway, &path, problems);

    for (name, upstream) in &config.upstreams {
        let Upstream::Http(http) = upstream else {
            continue;
        };
        let path = Path::root().key("upstreams").key(name).key("http").key("timeouts");
        let times = &http.timeouts;
        let upstream =
            [("connect", times.connect), ("answer", times.answer), ("idle", times.idle), ("total", times.total)];
        periods(&upstream, &path, problems);
    }
}

fn size(size: ByteSize, path: Path, problems: &mut Vec<Problem>) {
    if !(BYTES_MIN..=BYTES_MAX).contains(&size.bytes()) {
        let (min, max) = (ByteSize::of(BYTES_MIN), ByteSize::of(BYTES_MAX));
        let message = format!("`{size}` is not between `{min}` and `{max}`");
        problems.push(Problem::new(path, message));
    }
}

fn count(n: u32, min: u32, max: u32, path: Path, problems: &mut Vec<Problem>) {
    if !(min..=max).contains(&n) {
        let message = format!("`{n}` is not between `{min}` and `{max}`");
        problems.push(Problem::new(path, message));
    }
}

fn periods(periods: &[(&str, Period)], path: &Path, problems: &mut Vec<Problem>) {
    for (key, period) in periods {
        if period.is_zero() {
            let message = format!("zero leaves no time at all for `{key}`");
            problems.push(Problem::new(path.key(*key), message));
        }
    }
}
