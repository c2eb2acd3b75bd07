//! How it is with the whole gateway, as one value: what the status page shows, what `/api/status` says in JSON, and what
//! `portcullis status` prints. `server`, which knows all parts, puts it together.

use serde::Serialize;
use std::fmt;

/// How it is with the gateway right now.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// The version of this program.
    pub version: &'static str,
    /// For how many seconds it has been running.
    pub up_s: u64,
    /// What is in force.
    pub configuration: Configuration,
    /// Requests being served.
    pub in_flight: i64,
    /// Policy decisions since the start.
    pub decisions: u64,
    /// The servers behind it.
    pub upstreams: Vec<UpstreamStanding>,
    /// The audit log.
    pub audit: AuditStanding,
    /// Where metrics are served; `None`: nowhere.
    pub metrics_listener: Option<String>,
    /// Certificates in use.
    pub certificates: Vec<CertificateStanding>,
    /// Spans on their way; `None`: traces are off.
    pub traces: Option<TracesStanding>,
}

/// The configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Configuration {
    /// The one in force, by the start of its hash.
    pub hash: String,
    /// When it came into force, in seconds since the Unix epoch.
    pub loaded_unix_s: i64,
    /// Why the file on disk is not in force, where it is not.
    pub refused: Option<Refused>,
}

/// A file that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// When, in milliseconds since the Unix epoch.
    pub unix_ms: i64,
    /// Every problem of it, in lines.
    pub problems: String,
}

/// One server behind the gateway.
#[derive(Clone, Debug, Serialize)]
pub struct UpstreamStanding {
    /// Its name.
    pub name: String,
    /// Whether it answered the last time it was asked for its tools; `None` before the first time.
    pub is_up: Option<bool>,
    /// For how many seconds it has been so.
    pub since_s: u64,
    /// Tools it has, as far as is known.
    pub tools: usize,
    /// What went wrong the last time that something did.
    pub last_error: Option<String>,
    /// How its process is, where it is one of ours.
    pub process: Option<String>,
}

/// The audit log.
#[derive(Clone, Debug, Serialize)]
pub struct AuditStanding {
    /// Whether it can be written; while it cannot, tool calls are refused.
    pub is_available: bool,
    /// Records that are not in the file yet.
    pub queued: usize,
    /// Records that were lost since the start.
    pub dropped: u64,
    /// When the last checkpoint was written, in seconds since the Unix epoch.
    pub checkpoint_unix_s: Option<i64>,
    /// How far the further sinks are behind, in seconds, by name.
    pub sinks: Vec<(String, i64)>,
}

/// A certificate in use.
#[derive(Clone, Debug, Serialize)]
pub struct CertificateStanding {
    /// What uses it.
    pub used_by: String,
    /// When it runs out, in seconds since the Unix epoch.
    pub expires_unix_s: i64,
}

/// Spans on their way.
#[derive(Clone, Debug, Serialize)]
pub struct TracesStanding {
    /// Where they go.
    pub collector: String,
    /// Spans that wait.
    pub waiting: usize,
    /// Spans that are there.
    pub exported: u64,
    /// Spans that were dropped.
    pub dropped: u64,
}

impl Standing {
    /// What somebody who looks wants to hear of at once: all but what merely grows older, and numbers that never rest.
    pub fn pulse(&self) -> String {
        let upstreams: Vec<_> =
            self.upstreams.iter().map(|one| (&one.name, one.is_up, one.tools, &one.last_error, &one.process)).collect();
        format!("{:?} {} {upstreams:?} {}", self.configuration, self.decisions, self.audit.is_available)
    }
}

/// For people at a terminal, a line for each thing.
impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Configuration { hash, refused, .. } = &self.configuration;
        write!(f, "configuration {hash} in force, {} requests in flight", self.in_flight)?;
        write!(f, "\nportcullis {}, up for {}", self.version, crate::pages::period(ms(self.up_s)))?;
        if let Some(refused) = refused {
            write!(f, "\nthe file on disk is NOT in force:\n{}", refused.problems)?;
        }
        for upstream in &self.upstreams {
            write!(f, "\nupstream `{}` ", upstream.name)?;
            match (&upstream.process, upstream.is_up) {
                (Some(process), _) => write!(f, "{process}")?,
                (None, Some(true)) => write!(f, "is up")?,
                (None, Some(false)) => write!(f, "is down")?,
                (None, None) => write!(f, "was not reached yet")?,
            }
            write!(f, ", {} tools", upstream.tools)?;
            if let (Some(false), Some(why)) = (upstream.is_up, &upstream.last_error) {
                write!(f, " ({why})")?;
            }
        }
        let audit = &self.audit;
        let word = if audit.is_available { "can be written" } else { "CANNOT BE WRITTEN: tool calls are refused" };
        write!(f, "\naudit log {word}, {} records wait, {} lost", audit.queued, audit.dropped)?;
        for (name, lag_s) in &audit.sinks {
            write!(f, "\nsink `{name}` is {lag_s} s behind")?;
        }
        if let Some(traces) = &self.traces {
            write!(f, "\ntraces: {} spans sent, {} wait, {} dropped", traces.exported, traces.waiting, traces.dropped)?;
        }
        Ok(())
    }
}

fn ms(s: u64) -> i64 {
    i64::try_from(s.saturating_mul(1000)).unwrap_or(i64::MAX)
}
