//! `audit`, as written: how the log is kept, how it is signed, and where else it goes.

use super::{ByteSize, Otlp, Period};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;

/// How the audit log is written, kept and passed on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// When a record counts as written.
    pub sync: Sync,
    /// A file that would grow beyond this is followed by a new one.
    pub file_size: ByteSize,
    /// A file whose newest record is older than this is removed. Left out, files are kept until somebody moves them away.
    pub keep: Option<Period>,
    /// All files together take no more than this: the oldest are removed first. Left out, there is no such limit.
    pub keep_at_most: Option<ByteSize>,
    /// Signed statements of how far the log had come, by which it shows later that its end was cut off or rewritten.
    pub checkpoints: Checkpoints,
    /// Whose arguments are recorded. Of all other calls only a keyed hash of the arguments is.
    #[schemars(length(max = 64))]
    pub arguments: Vec<RecordedArguments>,
    /// Where each record goes beside the files. Nothing waits for these.
    #[schemars(length(max = 8))]
    pub also: Vec<Sink>,
}

impl Default for Audit {
    fn default() -> Self {
        Audit {
            sync: Sync::default(),
            file_size: ByteSize::mebibytes(64),
            keep: None,
            keep_at_most: None,
            checkpoints: Checkpoints::default(),
            arguments: Vec::new(),
            also: Vec::new(),
        }
    }
}

/// Tools whose arguments are recorded with the decision on each call. What has the shape or the name of a secret is
/// always replaced by a tag. Of a tool that several entries name, what any of them hides is hidden.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordedArguments {
    /// Patterns `upstream/tool`, as in rules; at least one.
    #[schemars(length(min = 1, max = 64))]
    pub tools: Vec<String>,
    /// JSON Pointers (RFC 6901) to values that are left out; `*` stands for any name or index.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub mask: Vec<String>,
    /// JSON Pointers to values that are replaced by a tag: the same value has the same one, and `portcullis audit hash` tells it.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub tag: Vec<String>,
}

/// When a record counts as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sync {
    /// A `tools/call` is forwarded only after its record is on the disk.
    #[default]
    Strict,
    /// When the operating system has taken it; a power cut may lose the last records.
    Relaxed,
}

/// Signed statements of how far the log had come.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Checkpoints {
    /// The file they are added to; best on another disk or host than `data_dir`. Left out,
    /// `audit-checkpoints.jsonl` in `data_dir`.
    pub file: Option<PathBuf>,
    /// One is written when the newest is older than this and there is something new.
    pub every: Period,
    /// One is written after so many records.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub records: u32,
}

impl Default for Checkpoints {
    fn default() -> Self {
        Checkpoints { file: None, every: Period::seconds(10), records: 1000 }
    }
}

/// A place that records go to beside the files: exactly one of `stdout`, `syslog`, `otlp`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sink {
    /// Its name (`[a-z0-9-]{1,32}`); shown in metrics. How far it has come is kept under this name.
    pub name: String,
    /// The gateway's standard output, one record a line.
    #[serde(default)]
    pub stdout: Option<StdoutSink>,
    /// A syslog server (RFC 5424).
    #[serde(default)]
    pub syslog: Option<SyslogSink>,
    /// An OpenTelemetry collector, as logs (OTLP over HTTP with protobuf).
    #[serde(default)]
    pub otlp: Option<Otlp>,
}

/// The gateway's standard output, one record a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StdoutSink {}

/// A syslog server (RFC 5424).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SyslogSink {
    /// `unix:/dev/log`, `udp:host:port` (RFC 5426) or `tcp:host:port` (RFC 6587, octet counting). Over `udp` a message
    /// may be lost unnoticed.
    pub to: String,
}

/// Where syslog messages are sent, read from `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogTo {
    /// A UNIX datagram socket.
    Unix(PathBuf),
    /// A host (name or address, without brackets) and port.
    Udp(String, u16),
    /// The same, over a connection.
    Tcp(String, u16),
}

impl FromStr for SyslogTo {
    type Err = super::Malformed;

    fn from_str(text: &str) -> Result<Self, super::Malformed> {
        let malformed = || {
            let hint = "write `unix:/dev/log`, `udp:logs.example.com:514` or `tcp:logs.example.com:601`";
            super::Malformed::new(format!("`{text}` is no syslog server"), hint.to_owned())
        };
        let (kind, rest) = text.split_once(':').ok_or_else(malformed)?;
        if kind == "unix" {
            let is_usable = rest.starts_with('/') && rest.len() <= SOCKET_PATH_MAX && !rest.contains('\0');
            return if is_usable { Ok(SyslogTo::Unix(rest.into())) } else { Err(malformed()) };
        }
        let (host, port) = rest.rsplit_once(':').ok_or_else(malformed)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(malformed)?;
        let host = match host.strip_prefix('[').map(|host| host.strip_suffix(']')) {
            Some(inner) => inner.filter(|host| host.parse::<std::net::Ipv6Addr>().is_ok()).ok_or_else(malformed)?,
            None if url::Host::parse(host).is_ok() => host,
            None => return Err(malformed()),
        };
        match kind {
            "udp" => Ok(SyslogTo::Udp(host.to_owned(), port)),
            "tcp" => Ok(SyslogTo::Tcp(host.to_owned(), port)),
            _ => Err(malformed()),
        }
    }
}

/// The longest path a UNIX socket can have on Linux, without its final NUL.
const SOCKET_PATH_MAX: usize = 107;
