//! The audit log: files that hold enough, that are not removed before they have done their work, checkpoints that stand
//! apart from what they speak of, and sinks that are each somewhere else.

use super::{approvals, names, otlp};
use crate::config::audit::{Audit, Sink, SyslogTo};
use crate::config::problem::{Path, Problem};
use crate::config::{ByteSize, Config, Period};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Component, Path as FilePath, PathBuf};
use std::time::Duration;

/// A few records, which may have 16 KiB each.
const FILE_MIN: usize = 64 * 1024;
/// A file is read whole by whoever verifies it.
const FILE_MAX: usize = 4 * 1024 * 1024 * 1024;
/// One that is written to, and some to look at.
const FILES_MIN: usize = 4;
const ENTRIES_MAX: usize = 64;
const COLLECTOR: &str = "write it as `https://collector.example.com:4318/v1/logs`";
const SINKS_MAX: usize = 8;
const RECORDS_MAX: u32 = 1_000_000;
const EVERY_MIN: Duration = Duration::from_millis(100);
const EVERY_MAX: Duration = Duration::from_secs(60 * 60);

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let (path, audit) = (Path::root().key("audit"), &config.audit);
    let (min, max) = (ByteSize::of(FILE_MIN), ByteSize::of(FILE_MAX));
    if !(FILE_MIN..=FILE_MAX).contains(&audit.file_size.bytes()) {
        let message = format!("`{}` is not between `{min}` and `{max}`", audit.file_size);
        problems.push(Problem::new(path.key("file_size"), message));
    }
    kept(config, audit, &path, problems);
    checkpoints(config, audit, &path.key("checkpoints"), problems);
    arguments(config, audit, &path.key("arguments"), problems);
    let path = path.key("also");
    if audit.also.len() > SINKS_MAX {
        problems.push(Problem::new(&path, format!("{} sinks are more than {SINKS_MAX}", audit.also.len())));
    }
    let mut seen = Seen::default();
    for (at, sink) in audit.also.iter().enumerate() {
        self::sink(sink, &path.index(at), &mut seen, problems);
    }
}

// === Whose arguments are recorded ===

fn arguments(config: &Config, audit: &Audit, path: &Path, problems: &mut Vec<Problem>) {
    if audit.arguments.len() > ENTRIES_MAX {
        problems.push(Problem::new(path, format!("{} entries are more than {ENTRIES_MAX}", audit.arguments.len())));
    }
    for (at, entry) in audit.arguments.iter().enumerate() {
        let path = path.index(at);
        for (key, texts) in [("tools", &entry.tools), ("mask", &entry.mask), ("tag", &entry.tag)] {
            if texts.len() > ENTRIES_MAX {
                let message = format!("{} entries are more than {ENTRIES_MAX}", texts.len());
                problems.push(Problem::new(path.key(key), message));
            }
        }
        for (at, tool) in entry.tools.iter().enumerate() {
            problems.extend(names::unknown_upstream(config, tool, path.key("tools").index(at)));
        }
        for (key, pointers) in [("mask", &entry.mask), ("tag", &entry.tag)] {
            for (at, pointer) in pointers.iter().enumerate().filter(|(_, pointer)| !approvals::is_pointer(pointer)) {
                let message = format!("`{pointer}` is no JSON Pointer");
                problems.push(Problem::new(path.key(key).index(at), message).hint(
                    "write `/password`, or `/users/*/name` with `*` for any name or index; a slash within a name is `~1`, a tilde `~0`",
                ));
            }
        }
    }
}

// === What is kept ===

fn kept(config: &Config, audit: &Audit, path: &Path, problems: &mut Vec<Problem>) {
    let needed = longest_story(config);
    if let Some(keep) = audit.keep
        && keep.duration() < needed
    {
        let needed = Period::millis(u64::try_from(needed.as_millis()).unwrap_or(u64::MAX));
        let message = format!("`{keep}` is shorter than a held call may live, which is `{needed}`");
        problems.push(
            Problem::new(path.key("keep"), message)
                .hint("its first records would be gone before it ends: keep more, or shorten `approvals`"),
        );
    }
    if let Some(most) = audit.keep_at_most
        && most.bytes() < audit.file_size.bytes().saturating_mul(FILES_MIN)
    {
        let message = format!("`{most}` has no room for {FILES_MIN} files of `{}`", audit.file_size);
        problems.push(Problem::new(path.key("keep_at_most"), message).hint("keep more, or make `file_size` smaller"));
    }
}

/// From a call being held to the end of all that may come of it.
fn longest_story(config: &Config) -> Duration {
    let approvals = &config.approvals;
    let own = config.policy.rules.iter().filter_map(|rule| rule.hold.as_ref()).map(|hold| {
        let expires = hold.expires.unwrap_or(approvals.expires).duration();
        expires.saturating_add(hold.valid_for.unwrap_or(approvals.valid_for).duration())
    });
    let usual = approvals.expires.duration().saturating_add(approvals.valid_for.duration());
    own.fold(usual, Duration::max).saturating_add(approvals.keep_result.duration())
}

// === Checkpoints ===

fn checkpoints(config: &Config, audit: &Audit, path: &Path, problems: &mut Vec<Problem>) {
    let written = &audit.checkpoints;
    if !(1..=RECORDS_MAX).contains(&written.records) {
        let message = format!("`{}` is not between 1 and {RECORDS_MAX}", written.records);
        problems.push(Problem::new(path.key("records"), message));
    }
    if !(EVERY_MIN..=EVERY_MAX).contains(&written.every.duration()) {
        let message = format!("`{}` is not between `100ms` and `1h`", written.every);
        problems.push(Problem::new(path.key("every"), message));
    }
    let Some(file) = &written.file else {
        return;
    };
    let at = path.key("file");
    let (data_dir, plain) = (plain(&config.data_dir), plain(file));
    if file.as_os_str().is_empty() || plain.file_name().is_none() {
        problems.push(Problem::new(at, format!("`{}` is no file", file.display())));
    } else if plain.starts_with(data_dir.join("audit")) {
        problems.push(
            Problem::new(at, format!("`{}` lies among the files it is to speak for", file.display()))
                .hint("whoever changes those would change it too: put it on another disk or host"),
        );
    } else if plain.starts_with(data_dir.join("keys")) {
        problems.push(Problem::new(at, format!("`{}` lies among the keys", file.display())));
    }
}

/// Without `.` and with `..` taken back, as far as the text alone tells. Links are followed when the log is opened.
fn plain(path: &FilePath) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

// === Sinks ===

/// Names and places, with the name of the sink that has each.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, ()>,
    places: BTreeMap<String, String>,
}

fn sink(sink: &Sink, path: &Path, seen: &mut Seen, problems: &mut Vec<Problem>) {
    let is_allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if !(1..=32).contains(&sink.name.len()) || !sink.name.bytes().all(is_allowed) {
        problems.push(
            Problem::new(path.key("name"), format!("`{}` is no name of a sink", sink.name))
                .hint("1 to 32 of `a-z`, `0-9` and `-`"),
        );
    } else if seen.names.insert(sink.name.clone(), ()).is_some() {
        problems.push(
            Problem::new(path.key("name"), format!("sink `{}` stands twice", sink.name))
                .hint("how far each has come is kept under its name"),
        );
    }
    let (key, place) = match (&sink.stdout, &sink.syslog, &sink.otlp) {
        (Some(_), None, None) => ("stdout", "stdout".to_owned()),
        (None, Some(syslog), None) => {
            self::syslog(&syslog.to, &path.key("syslog").key("to"), problems);
            ("syslog", syslog.to.to_ascii_lowercase())
        }
        (None, None, Some(otlp)) => {
            otlp::check(otlp, COLLECTOR, &path.key("otlp"), problems);
            ("otlp", otlp.url.clone())
        }
        _ => {
            let message = format!("sink `{}` needs exactly one of `stdout`, `syslog`, `otlp`", sink.name);
            problems.push(Problem::new(path, message).at_key());
            return;
        }
    };
    if let Some(other) = seen.places.insert(place, sink.name.clone()) {
        let message = format!("sink `{other}` goes there already");
        problems.push(Problem::new(path.key(key), message).at_key().hint("each record would arrive twice"));
    }
}

fn syslog(to: &str, path: &Path, problems: &mut Vec<Problem>) {
    match to.parse::<SyslogTo>() {
        Err(malformed) => problems.push(malformed.at(path)),
        Ok(SyslogTo::Udp(host, _) | SyslogTo::Tcp(host, _)) if !is_here(&host) => problems.push(
            Problem::warning(path, format!("records are sent to `{host}` unencrypted"))
                .hint("use a relay on this machine that speaks TLS (RFC 5425), or `otlp` with `https://`"),
        ),
        Ok(_) => {}
    }
}

fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}
