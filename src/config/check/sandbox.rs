//! What a sandbox is given, and where it may stand.

use crate::config::problem::{Path, Problem};
use crate::config::sensitive::{holds_secret, names_secret};
use crate::config::{ByteSize, SandboxBackend, SandboxCgroup, SandboxNetwork, SandboxUpstream};
use std::path::{Component, Path as FilePath};

/// A shell and what it starts need about this much.
const MEMORY_MIN: usize = 16 * 1024 * 1024;
/// An answer holds two outputs, each twice, and a byte may take six characters: below the default of `limits.answer`.
const OUTPUT: std::ops::RangeInclusive<usize> = 1024..=512 * 1024;
/// What a confinement puts there itself.
const TAKEN: [&str; 8] = ["/", "/dev", "/etc", "/proc", "/run", "/sys", "/tmp", "/workspace"];

pub(super) fn check(sandbox: &SandboxUpstream, path: &Path, problems: &mut Vec<Problem>) {
    amounts(sandbox, path, problems);
    times(sandbox, path, problems);
    network(sandbox, &path.key("network"), problems);
    for (index, folder) in sandbox.read_only.iter().enumerate() {
        problems.extend(read_only(folder).map(|message| Problem::new(path.key("read_only").index(index), message)));
    }
    for (name, value) in &sandbox.environment {
        problems.extend(variable(name, value, &path.key("environment").key(name)));
    }
    if let SandboxCgroup::At(folder) = &sandbox.cgroup
        && !folder.is_absolute()
    {
        let message = format!("`{}` does not begin with `/`", folder.display());
        problems.push(Problem::new(path.key("cgroup").key("at"), message));
    }
}

fn amounts(sandbox: &SandboxUpstream, path: &Path, problems: &mut Vec<Problem>) {
    let mut at_least = |key: &str, size: ByteSize, min: usize| {
        if size.bytes() < min {
            let message = format!("`{size}` is less than `{}`", ByteSize::of(min));
            problems.push(Problem::new(path.key(key), message));
        }
    };
    at_least("memory", sandbox.memory, MEMORY_MIN);
    at_least("quota", sandbox.quota, 1024 * 1024);
    at_least("tmp", sandbox.tmp, 1024 * 1024);
    if let Some(total) = sandbox.memory_total.filter(|total| *total < sandbox.memory) {
        let message = format!("`{total}` is less than `memory` (`{}`) of one command", sandbox.memory);
        problems.push(Problem::new(path.key("memory_total"), message));
    }
    if sandbox.tmp > sandbox.memory {
        let message = format!("`{}` is more than `memory` (`{}`), which it is a part of", sandbox.tmp, sandbox.memory);
        problems.push(Problem::new(path.key("tmp"), message));
    }
    if !OUTPUT.contains(&sandbox.output.bytes()) {
        let (min, max) = (ByteSize::of(*OUTPUT.start()), ByteSize::of(*OUTPUT.end()));
        let message = format!("`{}` is not between `{min}` and `{max}`", sandbox.output);
        problems.push(Problem::new(path.key("output"), message));
    }
}

fn times(sandbox: &SandboxUpstream, path: &Path, problems: &mut Vec<Problem>) {
    for (key, period) in [("timeout", sandbox.timeout), ("longest", sandbox.longest)] {
        if period.duration().as_secs() == 0 {
            problems.push(Problem::new(path.key(key), format!("`{period}` is not at least `1s`")));
        }
    }
    if sandbox.timeout > sandbox.longest {
        let message = format!("`{}` is more than `longest` (`{}`)", sandbox.timeout, sandbox.longest);
        problems.push(Problem::new(path.key("timeout"), message));
    }
}

fn network(sandbox: &SandboxUpstream, path: &Path, problems: &mut Vec<Problem>) {
    let SandboxNetwork::Allow(places) = &sandbox.network else {
        return;
    };
    if sandbox.backend == SandboxBackend::Gvisor {
        let hint = "use `backend: bubblewrap`, or `network: none`";
        problems.push(Problem::new(path, "gVisor has no network here but `none`").hint(hint));
    }
    for (index, place) in places.iter().enumerate() {
        if destination(place).is_none() {
            problems.push(
                Problem::new(path.key("allow").index(index), format!("`{place}` is no place in the network"))
                    .hint("write host and port, like `pypi.org:443` or `*.example.com:443`"),
            );
        }
    }
}

/// Host and port of a place that commands may reach.
pub fn destination(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_address = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|ip| host == name && ip.parse::<std::net::Ipv6Addr>().is_ok());
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    (is_address || name.split('.').all(is_label)).then_some((host, port))
}

fn read_only(folder: &FilePath) -> Option<String> {
    let shown = folder.display();
    if !folder.is_absolute() || folder.components().any(|part| part == Component::ParentDir) {
        return Some(format!("`{shown}` is no absolute path"));
    }
    let is_taken = |taken: &&str| folder == FilePath::new(taken) || (**taken != *"/" && folder.starts_with(taken));
    TAKEN.iter().find(|taken| is_taken(taken)).map(|taken| format!("`{shown}`: commands have a `{taken}` of their own"))
}

fn variable(name: &str, value: &str, path: &Path) -> Option<Problem> {
    let is_first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let is_name = name.bytes().next().is_some_and(is_first) && name.bytes().all(|b| is_first(b) || b.is_ascii_digit());
    if !is_name {
        return Some(Problem::new(path, format!("`{name}` is no name for a variable")).at_key());
    }
    if value.contains('\0') {
        return Some(Problem::new(path, "a variable cannot hold a NUL"));
    }
    if names_secret(name) || holds_secret(value) {
        let hint = "agents can print it; give credentials to an upstream that uses them itself";
        return Some(Problem::new(path, format!("the value of `{name}` looks like a credential")).hint(hint));
    }
    None
}
