//! `portcullis audit verify` and `audit key`: whether the log is as it was written, here or at an auditor's.

use crate::audit::{self, Against, CheckpointFile, Directory, PublicKey, Report, Signer};
use crate::cli::context::usage;
use crate::config;
use anyhow::Context as _;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `audit verify`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::cli) struct Verify {
    /// The first file that is there, when older ones were archived on purpose. Those that retention removed need no such word.
    #[arg(long, value_name = "FILE")]
    pub(super) from: Option<String>,
    /// The checkpoints [default: those of the configuration].
    #[arg(long, value_name = "FILE", conflicts_with = "no_checkpoints")]
    pub(super) checkpoints: Option<PathBuf>,
    /// A public key of the gateway, as `portcullis audit key` prints it; also one that it had before. May be given several
    /// times [default: the key of this gateway].
    #[arg(long = "key", value_name = "FILE")]
    pub(super) keys: Vec<PathBuf>,
    /// Check the records alone. An end that was cut off is then not found.
    #[arg(long)]
    pub(super) no_checkpoints: bool,
    /// The folder of the log, where it is a copy and there is no configuration.
    #[arg(long, value_name = "DIR")]
    pub(super) log: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

impl Verify {
    /// Checks the log and prints what it found. 1 where something is wrong.
    pub(in crate::cli) fn run(&self, file: &Path) -> anyhow::Result<ExitCode> {
        let (directory, checkpoints) = self.place(file)?;
        if let Some(from) = self.from.as_deref().filter(|from| !directory.has(from)) {
            return Err(usage(format!(
                "there is no file {from} in the log: `--from` names the first one that is left"
            )));
        }
        let is_held_against = checkpoints.is_some();
        let mut report = audit::verify(&directory, &Against { from: self.from.as_deref(), checkpoints })?;
        if report.is_signed && !is_held_against {
            let note =
                "the log is signed, and its checkpoints were not looked at: an end that was cut off is not found";
            report.notes.push(note.to_owned());
        }
        if report.segments == 0 && report.fault.is_none() {
            return Err(usage("there is no file of a log here"));
        }
        let out = &mut io::stdout().lock();
        if self.json {
            writeln!(out, "{}", as_json(&report))?;
        } else {
            print(&report, out)?;
        }
        Ok(ExitCode::from(u8::from(report.fault.is_some())))
    }

    fn place(&self, file: &Path) -> anyhow::Result<(Directory, Option<CheckpointFile>)> {
        let mut keys = self.keys.iter().map(|path| public_key(path)).collect::<anyhow::Result<Vec<_>>>()?;
        let (directory, usual) = match &self.log {
            Some(folder) => (Directory::new(folder), None),
            None => {
                let loaded = config::read(file)?;
                let data_dir = loaded.resolve(&loaded.config.data_dir);
                keys.extend(own_key(&data_dir, !keys.is_empty())?);
                (Directory::new(data_dir.join("audit")), Some(audit::checkpoints_file(&loaded.audit(), &data_dir)))
            }
        };
        if let Some(path) = self.checkpoints.as_ref().filter(|path| !path.exists()) {
            return Err(usage(format!("{} is not there", path.display())));
        }
        let path = self.checkpoints.clone().or(usual).filter(|_| !self.no_checkpoints);
        let is_needed = path.as_ref().is_some_and(|path| path.exists());
        if is_needed && keys.is_empty() {
            return Err(usage(
                "there is no key to check signatures with: name one with `--key` (`portcullis audit key` prints it on \
                 the gateway's machine), or check the records alone with `--no-checkpoints`",
            ));
        }
        Ok((directory, path.map(|path| CheckpointFile { path, keys })))
    }
}

/// Prints the public key of this gateway, in PEM.
pub(in crate::cli) fn print_key(file: &Path) -> anyhow::Result<ExitCode> {
    let loaded = config::read(file)?;
    let data_dir = loaded.resolve(&loaded.config.data_dir);
    let Some(key) = own_key(&data_dir, false)? else {
        anyhow::bail!("there is no key yet: the gateway makes it when it starts for the first time");
    };
    writeln!(io::stdout(), "{}", key.pem().trim_end())?;
    eprintln!("key {}; checkpoints name it", key.kid());
    Ok(ExitCode::SUCCESS)
}

/// That of the gateway whose data is here; none where it has none yet, which this does not change.
fn own_key(data_dir: &Path, is_optional: bool) -> anyhow::Result<Option<PublicKey>> {
    if !data_dir.join("keys").join("session.key").exists() {
        return Ok(None);
    }
    match crate::server::session_key(data_dir) {
        Ok(key) => Ok(Some(Signer::new(&key).public().clone())),
        // An auditor's own account need not be able to read it.
        Err(_) if is_optional => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn public_key(path: &Path) -> anyhow::Result<PublicKey> {
    let pem = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    PublicKey::from_pem(&pem)
        .ok_or_else(|| usage(format!("{} holds no public key as `portcullis audit key` prints it", path.display())))
}

pub(super) fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    if let Some(fault) = &report.fault {
        out.flush()?;
        eprintln!("error: {fault}");
        return Ok(());
    }
    writeln!(out, "verified {} records in {} segments", report.records, report.segments)?;
    if let Some(end) = &report.end {
        writeln!(out, "end: {end}")?;
    }
    let Some((number, at)) = &report.last_checkpoint else {
        return Ok(());
    };
    let n = report.checkpoints;
    writeln!(out, "signed: {n} checkpoints hold; the last is number {number}, of {at}")?;
    for audit::Unsigned { file, from, to } in &report.unsigned {
        writeln!(out, "unsigned: records {from} to {to} of {file}")?;
    }
    writeln!(out, "not known: whether records that came after the last checkpoint were cut off or written anew")
}

fn as_json(report: &Report) -> Value {
    let mut value = serde_json::to_value(report).unwrap_or_default();
    value["sound"] = json!(report.fault.is_none());
    value["last_checkpoint"] = match &report.last_checkpoint {
        Some((number, at)) => json!({ "checkpoint": number, "at": at }),
        None => Value::Null,
    };
    value
}
