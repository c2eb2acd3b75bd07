//! How a command ended, for programs and in words. What it wrote is data: nothing in it is changed but what is not
//! UTF-8, and that is said.

use crate::confine::{End, Outcome};
use crate::words::{DISK_FULL, grouped, size};
use portcullis_local::output::Text;
use portcullis_local::words::seconds;
use rmcp::model::{CallToolResult, ContentBlock};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// The answer.
#[derive(Serialize, JsonSchema)]
pub(super) struct Answer {
    /// Why it ended.
    ended: Ended,
    /// The exit status, where it ended by itself. 0 means success.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// The number of the signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    /// What it wrote to stdout.
    stdout: String,
    /// What it wrote to stderr.
    stderr: String,
    /// All that it wrote to stdout, in bytes.
    stdout_bytes: u64,
    /// All that it wrote to stderr, in bytes.
    stderr_bytes: u64,
    /// Whether the middle of stdout was left out.
    stdout_truncated: bool,
    /// Whether the middle of stderr was left out.
    stderr_truncated: bool,
    /// Whether something in stdout was not UTF-8, and stands as U+FFFD.
    stdout_replaced: bool,
    /// Whether something in stderr was not UTF-8, and stands as U+FFFD.
    stderr_replaced: bool,
    /// How long it ran, in seconds.
    seconds: f64,
}

/// Why a command ended.
#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Ended {
    Exited,
    Signal,
    TimedOut,
    Cancelled,
    OutOfMemory,
    OverQuota,
    DiskFull,
}

/// What a command's end is answered with. That a program was not content (an exit status that is not 0) is no failure of
/// the tool: it is what was asked for.
pub(super) fn result(outcome: &Outcome, limits: &Limits) -> CallToolResult {
    let (stdout, stderr) = (outcome.stdout.text(), outcome.stderr.text());
    let (ended, exit_code, signal) = match outcome.end {
        End::Exited(code) => (Ended::Exited, Some(code), None),
        End::Signalled(signal) => (Ended::Signal, None, Some(signal)),
        End::TimedOut => (Ended::TimedOut, None, None),
        End::Cancelled => (Ended::Cancelled, None, None),
        End::OutOfMemory => (Ended::OutOfMemory, None, None),
        End::OverQuota => (Ended::OverQuota, None, None),
        End::DiskFull => (Ended::DiskFull, None, None),
    };
    let mut content = vec![ContentBlock::text(summary(outcome, limits, &stdout, &stderr))];
    for (name, text) in [("stdout", &stdout), ("stderr", &stderr)] {
        if !text.text.is_empty() {
            content.push(ContentBlock::text(format!("{name}:\n{}", text.text)));
        }
    }
    let answer = Answer {
        ended,
        exit_code,
        signal,
        stdout: stdout.text,
        stderr: stderr.text,
        stdout_bytes: outcome.stdout.total,
        stderr_bytes: outcome.stderr.total,
        stdout_truncated: stdout.is_cut,
        stderr_truncated: stderr.is_cut,
        stdout_replaced: stdout.is_replaced,
        stderr_replaced: stderr.is_replaced,
        seconds: seconds(outcome.elapsed),
    };
    let mut result = super::answer(&answer, content);
    result.is_error = Some(!matches!(outcome.end, End::Exited(_) | End::Signalled(_)));
    result
}

/// The limits a command may have met.
pub(super) struct Limits {
    /// How long it might run.
    pub timeout: Duration,
    /// Memory, in bytes.
    pub memory: u64,
    /// What the workspace may hold, in bytes.
    pub quota: u64,
}

fn summary(outcome: &Outcome, limits: &Limits, stdout: &Text, stderr: &Text) -> String {
    let after = format!("after {} s", seconds(outcome.elapsed));
    let mut summary = match outcome.end {
        End::Exited(code) => format!("exit code {code} {after}."),
        End::Signalled(signal) => format!("ended by signal {signal}{} {after}.", signal_name(signal)),
        End::TimedOut => format!(
            "ended {after}: its time of {} s was over. It and all that it had started are gone; what it wrote until then \
             follows.",
            seconds(limits.timeout)
        ),
        End::Cancelled => format!("cancelled {after}. It and all that it had started are gone."),
        End::OutOfMemory => format!("ended {after}: it took more than {} of memory.", size(limits.memory)),
        End::OverQuota => {
            format!("ended {after}: the workspace is full. It may hold {}; delete something first.", size(limits.quota))
        }
        End::DiskFull => format!(
            "ended {after}: {DISK_FULL}. Commands that write nothing can be run; if the workspace holds much that is not \
             needed, delete it."
        ),
    };
    for (name, captured, text) in [("stdout", &outcome.stdout, stdout), ("stderr", &outcome.stderr, stderr)] {
        if captured.total == 0 {
            continue;
        }
        summary.push_str(&format!(" {name}: {} bytes", grouped(captured.total)));
        summary.push_str(if text.is_cut { ", the middle left out" } else { "" });
        summary.push_str(if text.is_replaced { ", not all of it UTF-8 (shown as \u{fffd})" } else { "" });
        summary.push('.');
    }
    if outcome.stdout.total == 0 && outcome.stderr.total == 0 {
        summary.push_str(" It wrote nothing.");
    }
    summary
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGINT => " (SIGINT)",
        libc::SIGKILL => " (SIGKILL)",
        libc::SIGPIPE => " (SIGPIPE)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGSYS => " (SIGSYS: a system call that is forbidden here)",
        libc::SIGTERM => " (SIGTERM)",
        libc::SIGXCPU => " (SIGXCPU)",
        libc::SIGXFSZ => " (SIGXFSZ: a file grew beyond the limit)",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
