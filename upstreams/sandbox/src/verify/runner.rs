//! Who runs commands: the upstream, or nobody in particular. Every claim is tried on both in the same words.

use super::Seen;
use crate::confine;
use crate::probe;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// How long a probe may take that has nothing to wait for.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a command ended, and what it said.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// `exited`, `signal`, `timed_out`, `out_of_memory`, `over_quota`, `disk_full`, as `run_command` says.
    pub ended: String,
    /// Its exit status.
    pub exit_code: Option<i64>,
    /// The signal that ended it.
    pub signal: Option<i64>,
    /// What was kept of its stdout.
    pub stdout: String,
    /// What was kept of its stderr.
    pub stderr: String,
    /// All that it wrote to stdout, in bytes.
    pub n_stdout: u64,
    /// How long the caller waited.
    pub waited: Duration,
}

/// Runs commands and file tools.
pub trait Runner {
    /// Where commands find the program of the probes.
    fn inner(&self) -> &str;

    /// Runs a line for the shell.
    ///
    /// # Errors
    /// It was not run.
    fn run(&self, line: &str, timeout: Duration) -> impl Future<Output = Result<Ran, String>>;

    /// Calls a file tool, and gives all of its answer as text.
    ///
    /// # Errors
    /// The tool refused, or did not answer in time.
    fn call(&self, tool: &str, arguments: Value) -> impl Future<Output = Result<String, String>>;

    /// Runs a probe.
    fn attempt(&self, arguments: &[String]) -> impl Future<Output = Seen> {
        async move {
            match self.run(&line(self.inner(), arguments), PATIENCE).await {
                Ok(ran) => seen(&ran),
                Err(why) => Seen::Untried(why),
            }
        }
    }
}

/// The command line of a probe.
pub(super) fn line(inner: &str, arguments: &[String]) -> String {
    let quoted = arguments.iter().map(|argument| format!("'{}'", argument.replace('\'', r"'\''")));
    format!("{inner} {} {}", probe::ARGUMENT, quoted.collect::<Vec<_>>().join(" "))
}

/// What a probe said, or how it was kept from saying anything.
pub(super) fn seen(ran: &Ran) -> Seen {
    let said = ran.stdout.lines().rev().find_map(|line| {
        let seen = |prefix: &str, seen: fn(String) -> Seen| line.strip_prefix(prefix).map(|text| seen(text.to_owned()));
        seen("blocked: ", Seen::Blocked)
            .or_else(|| seen("ALLOWED: ", Seen::Allowed))
            .or_else(|| seen("untried: ", Seen::Untried))
    });
    said.unwrap_or_else(|| match ran.ended.as_str() {
        "out_of_memory" => Seen::Blocked("ended by the kernel, out of memory".to_owned()),
        "over_quota" => Seen::Blocked("ended, over its quota".to_owned()),
        "disk_full" => Seen::Blocked("ended, the disk is nearly full".to_owned()),
        // A filter that kills is seen by the probe itself. Whatever else kills would make everything look blocked.
        ended => Seen::Untried(format!("it said nothing ({ended}): {}", first_line(&ran.stderr))),
    })
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("nothing on stderr either").chars().take(200).collect()
}

/// The tools of an upstream that runs.
pub trait Tools {
    /// The `result` of `tools/call`.
    ///
    /// # Errors
    /// There was none: an error of the protocol, or of the connection.
    fn call_tool(&self, tool: &str, arguments: Value) -> impl Future<Output = Result<Value, String>>;
}

/// An upstream's commands, in their confinement.
pub struct Confined<T> {
    tools: T,
}

// === impl Confined ===

impl<T: Tools> Confined<T> {
    /// By these tools.
    pub fn new(tools: T) -> Confined<T> {
        Confined { tools }
    }
}

impl<T: Tools> Runner for Confined<T> {
    fn inner(&self) -> &str {
        confine::INNER
    }

    async fn run(&self, command: &str, timeout: Duration) -> Result<Ran, String> {
        let begun = Instant::now();
        // In whole seconds, as the tool takes it.
        let seconds = timeout.as_secs().max(1);
        let result = self.tools.call_tool("run_command", json!({ "command": command, "timeout": seconds })).await?;
        let answer = &result["structuredContent"];
        let Some(ended) = answer["ended"].as_str() else {
            return Err(format!("run_command did not run it: {}", words(&result)));
        };
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        Ok(Ran {
            ended: ended.to_owned(),
            exit_code: answer["exit_code"].as_i64(),
            signal: answer["signal"].as_i64(),
            stdout: text("stdout"),
            stderr: text("stderr"),
            n_stdout: answer["stdout_bytes"].as_u64().unwrap_or_default(),
            waited: begun.elapsed(),
        })
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<String, String> {
        let call = self.tools.call_tool(tool, arguments);
        let result = tokio::time::timeout(Duration::from_secs(5), call).await;
        let result = result.map_err(|_| super::games::HANGS.to_owned())??;
        if result["isError"] == true { Err(words(&result)) } else { Ok(result.to_string()) }
    }
}

/// What an answer says to people.
fn words(result: &Value) -> String {
    let texts = result["content"].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
    texts.collect::<Vec<_>>().join(" ").chars().take(300).collect()
}
