//! The tools. One file each: its arguments, its answer, what a model is told of it, and what it does.
//!
//! What a caller can do something about (a misspelt argument, a missing file) is an answer with `isError`, which models
//! read; a JSON-RPC error is for what no model can mend (MCP 2025-11-25, Tools, "Error Handling").

/// Exact replacement in a text.
mod edit_file;
/// What is in a folder.
mod list_directory;
/// A part of a file.
mod read_file;
/// A line for the shell.
mod run_command;
/// Lines that match, in many files.
mod search_files;
/// A whole file, or more of it.
mod write_file;

/// What changed, line by line.
mod diff;
/// Which names are meant by `*.rs`.
mod glob;
/// How a command ended, in words.
mod outcome;

pub(crate) use run_command::Runner;

use crate::confine::WORKSPACE;
use crate::server::Shared;
use crate::settings::{Network, Settings};
use crate::words::size;
use crate::workspace::{self, Folder};
use portcullis_local::schema::plain;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use rmcp::service::{RequestContext, RoleServer};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

/// Why a tool did not do what was asked. `Display` is for the model.
#[derive(Debug, Error)]
enum Failed {
    /// Nothing that can be asked.
    #[error("{0}")]
    Asked(String),
    /// A file or folder is not as it would have to be.
    #[error(transparent)]
    Workspace(#[from] workspace::Error),
}

/// A file tool: it needs nothing but the folder, and may block.
type FileTool = fn(&Folder, JsonObject, &CancellationToken) -> Result<CallToolResult, Failed>;

/// How long a file tool waits for its turn.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a file tool goes through folders.
const SEARCHING: Duration = Duration::from_secs(10);

/// All tools, as clients see them.
pub(crate) fn definitions(settings: &Settings) -> Vec<Tool> {
    vec![
        run_command::definition(settings),
        read_file::definition(),
        write_file::definition(settings),
        edit_file::definition(),
        list_directory::definition(),
        search_files::definition(),
    ]
}

/// What a model is told before it knows any tool.
pub(crate) fn instructions(settings: &Settings) -> String {
    let network = match &settings.network {
        Network::None => "There is no network.".to_owned(),
        Network::Allow(places) => {
            let places: Vec<String> = places.iter().map(|place| format!("{}:{}", place.host, place.port)).collect();
            format!("The network is limited to {}.", places.join(", "))
        }
    };
    format!(
        "A confined Linux shell and a folder, {WORKSPACE}, that is yours and keeps its files (at most {}). Each command \
         runs alone and leaves nothing but files in {WORKSPACE}: no processes, no variables, no other files. {network} \
         Paths are relative to {WORKSPACE} (`src/main.c`) or begin with it (`{WORKSPACE}/src/main.c`), without `..`, and \
         the file tools do not follow symbolic links.",
        size(settings.quota)
    )
}

/// Does what is asked; `None` where there is no such tool.
pub(crate) async fn call(
    shared: &Arc<Shared>,
    name: &str,
    folder: Folder,
    arguments: JsonObject,
    context: &RequestContext<RoleServer>,
) -> Option<CallToolResult> {
    let Some(_call) = folder.call() else {
        return Some(failed(&Failed::Asked("too many calls at once; try again when one of them has ended".to_owned())));
    };
    let tool: FileTool = match name {
        run_command::NAME => {
            let answer = run_command::run(shared, &folder, arguments, context).await;
            return Some(answer.unwrap_or_else(|why| failed(&why)));
        }
        read_file::NAME => read_file::run,
        write_file::NAME => write_file::run,
        edit_file::NAME => edit_file::run,
        list_directory::NAME => list_directory::run,
        search_files::NAME => search_files::run,
        _ => return None,
    };
    Some(in_turn(shared, tool, folder, arguments, context.ct.clone()).await.unwrap_or_else(|why| failed(&why)))
}

/// Runs a file tool where it may block, with as many beside it as there are turns.
async fn in_turn(
    shared: &Shared,
    tool: FileTool,
    folder: Folder,
    arguments: JsonObject,
    stop: CancellationToken,
) -> Result<CallToolResult, Failed> {
    let turns = async {
        Ok::<_, tokio::sync::AcquireError>((
            folder.turns().acquire_owned().await?,
            shared.turns.clone().acquire_owned().await?,
        ))
    };
    let turn = tokio::select! {
        turn = tokio::time::timeout(PATIENCE, turns) => turn,
        () = stop.cancelled() => return Err(Failed::Asked("cancelled".to_owned())),
    };
    let Ok(Ok(turn)) = turn else {
        return Err(Failed::Asked("too many file tools are running; try again in a moment".to_owned()));
    };
    let done = tokio::task::spawn_blocking(move || {
        let answer = tool(&folder, arguments, &stop);
        drop(turn);
        answer
    });
    done.await.unwrap_or_else(|_| Err(Failed::Asked("the tool failed inside; this is a bug of the sandbox".to_owned())))
}

/// Reads the arguments of a tool. What it does not know is an error: a misspelt argument must not be left out quietly.
fn read<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, Failed> {
    serde_json::from_value(Value::Object(arguments)).map_err(|why| Failed::Asked(format!("wrong arguments: {why}")))
}

fn failed(why: &Failed) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(why.to_string())])
}

/// An answer for programs, and the same for readers.
fn answer(structured: &impl Serialize, content: Vec<ContentBlock>) -> CallToolResult {
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(serde_json::to_value(structured).expect("answers are plain data"));
    result
}

/// What a tool does to the world, as far as that is fixed.
#[derive(Clone, Copy)]
enum Effect {
    Reads,
    Changes,
}

/// A tool that stays within the workspace.
fn tool<A: JsonSchema + 'static, T: JsonSchema + 'static>(
    name: &'static str,
    title: &str,
    effect: Effect,
    description: String,
) -> Tool {
    let reads = matches!(effect, Effect::Reads);
    let annotations =
        ToolAnnotations::with_title(title).read_only(reads).destructive(!reads).idempotent(reads).open_world(false);
    let mut tool = Tool::new(name, description, Map::new())
        .with_title(title)
        .with_input_schema::<A>()
        .with_output_schema::<T>()
        .with_annotations(annotations);
    tool.input_schema = plain(&tool.input_schema);
    tool.output_schema = tool.output_schema.as_ref().map(plain);
    tool
}
