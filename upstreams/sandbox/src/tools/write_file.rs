//! `write_file`: a whole file, or more of it.

use super::read_file::Encoding;
use super::{Effect, Failed, answer, read, tool};
use crate::confine::WORKSPACE;
use crate::settings::Settings;
use crate::words::{count, grouped, size};
use crate::workspace::write::How;
use crate::workspace::{Folder, WorkspacePath};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub(super) const NAME: &str = "write_file";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace.
    #[schemars(with = "String")]
    path: WorkspacePath,
    /// What to write.
    content: String,
    /// How `content` is to be read.
    #[serde(default = "utf8")]
    encoding: Encoding,
    /// `overwrite` makes a file or replaces it; `create` makes a new one, and fails where something has its name; `append`
    /// adds to one, or makes it.
    #[serde(default = "overwrite")]
    mode: Mode,
    /// Whether to make the folders on the way to it.
    #[serde(default)]
    create_parents: bool,
}

fn utf8() -> Encoding {
    Encoding::Utf8
}

fn overwrite() -> Mode {
    Mode::Overwrite
}

#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Mode {
    Create,
    Overwrite,
    Append,
}

#[derive(Serialize, JsonSchema)]
struct Answer {
    /// The file, relative to the workspace.
    path: String,
    /// Whether there was no such file before.
    created: bool,
    /// Bytes that were written.
    written: u64,
    /// What the file holds now, in bytes.
    size: u64,
}

pub(super) fn definition(settings: &Settings) -> Tool {
    let description = format!(
        "Writes a file in {WORKSPACE}. A new file appears whole or not at all; a replaced one keeps its permission bits. \
         Refused where the workspace would hold more than {}. Symbolic links are not followed; only regular files are \
         written.",
        size(settings.quota)
    );
    tool::<Arguments, Answer>(NAME, "Write a file", Effect::Changes, description)
}

pub(super) fn run(folder: &Folder, arguments: JsonObject, _stop: &CancellationToken) -> Result<CallToolResult, Failed> {
    let arguments: Arguments = read(arguments)?;
    let content = match arguments.encoding {
        Encoding::Utf8 => arguments.content.into_bytes(),
        Encoding::Base64 => STANDARD
            .decode(&arguments.content)
            .map_err(|why| Failed::Asked(format!("`content` is not base64 (RFC 4648 §4, padded): {why}")))?,
    };
    let how = match arguments.mode {
        Mode::Create => How::Create,
        Mode::Overwrite => How::Overwrite,
        Mode::Append => How::Append,
    };
    let written = folder.write(&arguments.path, &content, how, arguments.create_parents)?;
    let path = arguments.path.to_string();
    let bytes = count(content.len() as u64, "byte", "bytes");
    let said = match how {
        _ if written.is_new => format!("made {path} with {bytes}"),
        How::Append => format!("added {bytes} to {path}, which has {} now", grouped(written.size)),
        _ => format!("replaced {path} with {bytes}"),
    };
    let structured = Answer { path, created: written.is_new, written: content.len() as u64, size: written.size };
    Ok(answer(&structured, vec![ContentBlock::text(said)]))
}
