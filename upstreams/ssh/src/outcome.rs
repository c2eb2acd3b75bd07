//! How an action ended, for programs and in words. What it wrote is data: nothing in it is changed but what is not UTF-8,
//! and that is said.

use crate::run::{End, Order, Ran, Then};
use portcullis_local::output::{Captured, Text};
use portcullis_local::schema::plain;
use portcullis_local::words::{grouped, seconds, size};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// The exit status with which the script on the host refuses (`EX_NOPERM` of sysexits.h) …
const DENIED: u32 = 77;
/// … and what it says then, alone.
const DENIED_MARK: &str = "portcullis-gate: denied: ";
/// The exit status of timeout(1) …
const OUT_OF_TIME: u32 = 124;
/// … and what the script says then, last.
const OUT_OF_TIME_MARK: &str = "portcullis-gate: ended after ";
/// Characters of the script's reason that are repeated.
const REASON: usize = 300;

/// The answer.
#[derive(Serialize, JsonSchema)]
struct Answer {
    /// What the host was asked for.
    action: String,
    /// Why it ended.
    ended: Ended,
    /// The exit status, where there is one. 0 means success.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u32>,
    /// The signal that ended it, as in `KILL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
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
    /// How long it took, in seconds.
    seconds: f64,
}

/// Why an action ended.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Ended {
    Exited,
    Signal,
    TimedOut,
    Cancelled,
    Refused,
    NotRun,
    Lost,
}

/// The JSON Schema of all answers.
pub(crate) fn schema() -> Arc<JsonObject> {
    let schema = schemars::schema_for!(Answer).to_value();
    plain(&Arc::new(schema.as_object().cloned().expect("structs are objects")))
}

/// What an action's end is answered with. An exit status that is not 0 is a failure: the action was asked for, and was not
/// done.
pub(crate) fn result(ran: &Ran, order: &Order) -> CallToolResult {
    let (stdout, stderr) = (ran.stdout.text(), ran.stderr.text());
    let denied = denied(ran, &stderr);
    let (ended, exit_code, signal) = match &ran.end {
        End::Exited(code) if denied.is_some() => (Ended::Refused, Some(*code), None),
        End::Exited(code) if is_out_of_time(*code, &stderr) => (Ended::TimedOut, Some(*code), None),
        End::Exited(code) => (Ended::Exited, Some(*code), None),
        End::Signalled(signal) => (Ended::Signal, None, Some(signal.clone())),
        End::TimedOut(_) => (Ended::TimedOut, None, None),
        End::Cancelled(_) => (Ended::Cancelled, None, None),
        End::NotRun => (Ended::NotRun, None, None),
        End::Lost(_) => (Ended::Lost, None, None),
    };
    let words = match denied {
        Some(why) => format!(
            "the host refused `{}`: {why}. Nothing was run. If it is to be possible, the script on the host and the actions \
             file of the gateway do not say the same.",
            order.command
        ),
        None => format!("`{}`: {}{}", order.command, summary(ran, order, ended), streams(ran, &stdout, &stderr)),
    };
    let mut content = vec![ContentBlock::text(words)];
    for (name, text) in [("stdout", &stdout), ("stderr", &stderr)] {
        if !text.text.is_empty() {
            content.push(ContentBlock::text(format!("{name}:\n{}", text.text)));
        }
    }
    let is_error = ran.end != End::Exited(0);
    let answer = Answer {
        action: order.command.clone(),
        ended,
        exit_code,
        signal,
        stdout: stdout.text,
        stderr: stderr.text,
        stdout_bytes: ran.stdout.total,
        stderr_bytes: ran.stderr.total,
        stdout_truncated: stdout.is_cut,
        stderr_truncated: stderr.is_cut,
        stdout_replaced: stdout.is_replaced,
        stderr_replaced: stderr.is_replaced,
        seconds: seconds(ran.elapsed),
    };
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(serde_json::to_value(answer).expect("answers are plain data"));
    result.is_error = Some(is_error);
    result
}

/// An answer where there was no action: what is wrong, and what to do.
pub(crate) fn failed(why: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(why.into())])
}

/// Why the script on the host has refused, where it has: its status, its line, and nothing else.
fn denied(ran: &Ran, stderr: &Text) -> Option<String> {
    if ran.end != End::Exited(DENIED) || ran.stdout.total > 0 {
        return None;
    }
    let why = stderr.text.strip_prefix(DENIED_MARK)?.strip_suffix('\n')?;
    (!why.contains('\n')).then(|| why.escape_debug().to_string().chars().take(REASON).collect())
}

fn is_out_of_time(code: u32, stderr: &Text) -> bool {
    code == OUT_OF_TIME && stderr.text.lines().next_back().is_some_and(|line| line.starts_with(OUT_OF_TIME_MARK))
}

fn summary(ran: &Ran, order: &Order, ended: Ended) -> String {
    let after = format!("after {} s", seconds(ran.elapsed));
    match &ran.end {
        End::Exited(_) if ended == Ended::TimedOut => format!("ended by the host {after}: its time there was over."),
        End::Exited(0) => format!("exit code 0 {after}."),
        End::Exited(code) => format!("failed with exit code {code} {after}."),
        End::Signalled(signal) => format!("ended by signal {signal} {after}."),
        End::TimedOut(then) => {
            format!("its time of {} s was over. {}", seconds(order.timeout), what_then(*then))
        }
        End::Cancelled(then) => format!("cancelled {after}. {}", what_then(*then)),
        End::NotRun => "the host refused to run anything. Nothing has happened.".to_owned(),
        End::Lost(why) => format!(
            "it is not known how it ended, nor whether it was done: {why}. Look at what it should have changed before you ask \
             for it again."
        ),
    }
}

fn what_then(then: Then) -> &'static str {
    match then {
        Then::Ended => "It was told to end, and has ended.",
        Then::Unknown => "It was told to end; whether it has is not known.",
        Then::RunsOn => {
            "It is not ended halfway: it runs on on the host, to its end or to the host's own limit. How it ends \
                         is not told here; look at what it should have changed before you ask for it again."
        }
    }
}

fn streams(ran: &Ran, stdout: &Text, stderr: &Text) -> String {
    let mut said = String::new();
    let streams: [(&str, &Captured, &Text); 2] = [("stdout", &ran.stdout, stdout), ("stderr", &ran.stderr, stderr)];
    for (name, captured, text) in streams {
        if captured.total == 0 {
            continue;
        }
        let kept = captured.head.len() as u64 + captured.tail.len() as u64;
        said.push_str(&format!(" {name}: {} bytes", grouped(captured.total)));
        if text.is_cut {
            said.push_str(&format!(", the middle left out ({} kept)", size(kept)));
        }
        said.push_str(if text.is_replaced { ", not all of it UTF-8 (shown as \u{fffd})" } else { "" });
        said.push('.');
    }
    if said.is_empty() && matches!(ran.end, End::Exited(_) | End::Signalled(_)) {
        said.push_str(" It wrote nothing.");
    }
    said
}

#[cfg(test)]
mod tests;
