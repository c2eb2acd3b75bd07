//! `run_command`: a line for the shell, in a confinement of its own.

use super::outcome::{self, Answer, Limits};
use super::{Effect, Failed, read, tool};
use crate::confine::{Command, Confinement, Outcome, Progress, WORKSPACE};
use crate::server::Shared;
use crate::settings::{Network, Settings};
use crate::words::{count, size};
use crate::workspace::{Folder, WorkspacePath};
use portcullis_local::progress::report;
use rmcp::model::{CallToolResult, JsonObject, Tool};
use rmcp::service::{RequestContext, RoleServer};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;

pub(super) const NAME: &str = "run_command";

/// The longest line, in bytes: what Linux takes as one argument (MAX_ARG_STRLEN), with its NUL.
const LONGEST_LINE: usize = 128 * 1024 - 1;
/// All variables of a call, names and values, in bytes.
const ENVIRONMENT: usize = 128 * 1024;
/// How long a command waits for one of its principal's turns.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A line for the shell, or a whole script.
    command: String,
    /// The folder it starts in, below the workspace.
    #[serde(default)]
    #[schemars(with = "String", default = "root")]
    cwd: WorkspacePath,
    /// Seconds after which it is ended, with all that it started.
    #[schemars(range(min = 1))]
    timeout: Option<u64>,
    /// What it reads from stdin. Without it, stdin is empty.
    #[serde(default)]
    stdin: String,
    /// Variables beside those that every command has.
    #[serde(default)]
    env: BTreeMap<String, String>,
}

fn root() -> &'static str {
    "."
}

/// What runs commands.
pub(crate) enum Runner {
    /// The confinement that was found to hold.
    Confined(Box<Confinement>),
    /// What a test says, to see what becomes of it.
    #[cfg(test)]
    Scripted(crate::server::tests::Script),
}

impl Runner {
    async fn run(
        &self,
        command: &Command,
        folder: &Folder,
        progress: &watch::Sender<Progress>,
        cancelled: &CancellationToken,
    ) -> Result<Outcome, crate::confine::Error> {
        match self {
            Runner::Confined(confinement) => {
                confinement.run(command, folder.directory.as_fd(), progress, cancelled).await
            }
            #[cfg(test)]
            Runner::Scripted(script) => script.run(command, progress, cancelled).await,
        }
    }
}

pub(super) fn definition(settings: &Settings) -> Tool {
    let network = match &settings.network {
        Network::None => "no network",
        Network::Allow(_) => "network by way of HTTP_PROXY and HTTPS_PROXY, to allowed places only",
    };
    let description = format!(
        "Runs a command line with `bash -c` (`sh -c` where there is no bash) on Linux, in a confinement of its own: {network}, \
         {} of memory, {} processes, {} s unless `timeout` says otherwise (at most {} s). Starts in {WORKSPACE}, or in `cwd` \
         below it. Files in {WORKSPACE} stay (at most {}); everything else, also in /tmp ({}), background processes and \
         variables are gone when the line ends. Nothing can be asked on a terminal. Of stdout and stderr, {} each is \
         answered; the middle of more is left out. An exit code that is not 0 is an answer, not an error.",
        size(settings.memory),
        settings.processes,
        settings.timeout.as_secs(),
        settings.longest.as_secs(),
        size(settings.quota),
        size(settings.tmp),
        size(settings.output),
    );
    let mut tool = tool::<Arguments, Answer>(NAME, "Run a command", Effect::Changes, description);
    tool.annotations = tool.annotations.map(|hints| hints.open_world(settings.network != Network::None));
    tool
}

pub(super) async fn run(
    shared: &Arc<Shared>,
    folder: &Folder,
    arguments: JsonObject,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, Failed> {
    let command = command(read(arguments)?, &shared.settings)?;
    let _turn = turn(folder, &shared.stopping, context).await?;
    // Held until the command has ended: whoever ends this process waits for it.
    let _running = shared.running.clone().read_owned().await;
    let cancelled = shared.stopping.child_token();
    let (progress, newest) = watch::channel(Progress::default());
    let outcome = tokio::select! {
        outcome = shared.runner.run(&command, folder, &progress, &cancelled) => outcome,
        // These two never end. The first one is not waited for, and ends by what it sets off.
        never = pass_on(&context.ct, &cancelled) => never,
        never = report(context, &newest, command.timeout) => never,
    };
    let outcome = outcome.map_err(|why| Failed::Asked(format!("nothing was run: {why}")))?;
    let limits = Limits { timeout: command.timeout, memory: shared.settings.memory, quota: shared.settings.quota };
    Ok(outcome::result(&outcome, &limits))
}

/// One of the principal's turns. It comes before the common ones: who waits here waits for nobody but themselves.
async fn turn(
    folder: &Folder,
    stopping: &CancellationToken,
    context: &RequestContext<RoleServer>,
) -> Result<OwnedSemaphorePermit, Failed> {
    let (most, turns) = folder.commands();
    let turn = tokio::select! {
        turn = tokio::time::timeout(PATIENCE, turns.acquire_owned()) => turn,
        () = context.ct.cancelled() => return Err(Failed::Asked("cancelled; nothing was run".to_owned())),
        () = stopping.cancelled() => return Err(Failed::Asked("nothing was run: the sandbox is ending".to_owned())),
    };
    turn.ok().and_then(Result::ok).ok_or_else(|| {
        Failed::Asked(format!(
            "nothing was run: {} of yours are running, and more are not allowed at once; try again when one has ended",
            count(most.into(), "command", "commands")
        ))
    })
}

/// Cancels one when the other is.
async fn pass_on<T>(from: &CancellationToken, to: &CancellationToken) -> T {
    from.cancelled().await;
    to.cancel();
    std::future::pending().await
}

/// What is to be run, if that can be.
fn command(arguments: Arguments, settings: &Settings) -> Result<Command, Failed> {
    let asked = |why: String| Err(Failed::Asked(why));
    if arguments.command.trim().is_empty() {
        return asked("`command` is empty".to_owned());
    }
    if arguments.command.contains('\0') {
        return asked("`command` has a NUL character in it".to_owned());
    }
    if arguments.command.len() > LONGEST_LINE {
        return asked(format!(
            "`command` has {} bytes, and {LONGEST_LINE} are the most; write it to a file and run that",
            arguments.command.len()
        ));
    }
    let timeout = arguments.timeout.map_or(settings.timeout, Duration::from_secs);
    if timeout.is_zero() || timeout > settings.longest {
        let (seconds, longest) = (timeout.as_secs(), settings.longest.as_secs());
        return asked(format!("`timeout` is {seconds} s; it can be from 1 to {longest} s here"));
    }
    for (name, value) in &arguments.env {
        let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let is_name = name.bytes().next().is_some_and(is_first)
            && name.bytes().all(|byte| is_first(byte) || byte.is_ascii_digit());
        if !is_name {
            return asked(format!("`env` has the name `{}`; letters, digits and `_` make one", name.escape_debug()));
        }
        if value.contains('\0') {
            return asked(format!("`env` has a NUL character in `{name}`"));
        }
    }
    let n_environment: usize = arguments.env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    if n_environment > ENVIRONMENT {
        return asked(format!("`env` has {n_environment} bytes, and {ENVIRONMENT} are the most"));
    }
    let cwd = if arguments.cwd == WorkspacePath::root() { "" } else { arguments.cwd.relative() };
    Ok(Command {
        line: arguments.command,
        cwd: cwd.to_owned(),
        environment: arguments.env.into_iter().collect(),
        stdin: arguments.stdin.into_bytes(),
        timeout,
    })
}
