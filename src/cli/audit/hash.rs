//! `portcullis audit hash`: what stands in the log where a value is not to be read.

use super::super::context::usage;
use super::line::line;
use super::record::{During, json};
use crate::audit::Directory;
use crate::redact::{Redactor, Tag};
use crate::secret::Secret;
use anyhow::{Context as _, bail};
use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Read as _, Write};
use std::path::Path;

/// Which value.
#[derive(Clone, clap::Args)]
pub(in crate::cli) struct Hash {
    /// The value; `-` reads it from standard input, and left out it is asked for and not shown: a secret does not belong
    /// on a command line.
    value: Option<String>,
    /// Print the records that bear the tag as well.
    #[arg(long)]
    find: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// In bytes. Nothing longer is ever tagged.
const LONGEST: u64 = 8 * 1024 * 1024;

impl Hash {
    /// Prints the tag under the gateway's key, and under those it had before.
    pub(super) fn run(&self, data_dir: &Path, directory: &Directory, out: &mut dyn Write) -> anyhow::Result<()> {
        let redactors = redactors(&data_dir.join("keys"))?;
        let value = self.value()?;
        let tags: Vec<Tag> = redactors.iter().map(|redactor| redactor.tag(value.expose())).collect();
        let mut found = Vec::new();
        if self.find {
            let met = During::default().each(directory, |record| {
                if tags.iter().any(|tag| record.line.contains(tag.as_str())) {
                    found.push(record);
                    // Whoever has more to look at searches with other filters as well.
                    if found.len() > MOST {
                        bail!(
                            "more than {MOST} records bear it: use `portcullis audit search --text TAG --since TIME`"
                        );
                    }
                }
                Ok(())
            })?;
            met.say();
        }
        if self.json {
            let tags: Vec<&str> = tags.iter().map(Tag::as_str).collect();
            let records: Vec<serde_json::Value> =
                found.iter().filter_map(|record| serde_json::from_str(&record.line).ok()).collect();
            let mut document = serde_json::json!({ "tags": tags });
            if self.find {
                document["records"] = records.into();
            }
            writeln!(out, "{}", json(&document)?)?;
            return Ok(());
        }
        tags.iter().try_for_each(|tag| writeln!(out, "{}", tag.as_str()))?;
        found.iter().try_for_each(|record| writeln!(out, "{}", line(record)))?;
        if self.find && found.is_empty() {
            eprintln!("note: no record bears it");
        }
        Ok(())
    }

    fn value(&self) -> anyhow::Result<Secret<Vec<u8>>> {
        let value = match self.value.as_deref() {
            Some("-") => read(io::stdin().lock())?,
            Some(value) => value.as_bytes().to_vec(),
            None if io::stdin().is_terminal() => {
                rpassword::prompt_password("Value: ").context("cannot read from the terminal")?.into_bytes()
            }
            None => {
                return Err(usage(
                    "a value is needed and there is no terminal to ask at; write `-` to read it from standard input",
                ));
            }
        };
        if value.is_empty() {
            return Err(usage("an empty value has no tag"));
        }
        Ok(Secret::new(value))
    }
}

/// All of it, but for one line break at its end: `echo` and text files have one that is not meant.
fn read(input: impl io::Read) -> anyhow::Result<Vec<u8>> {
    let mut value = Vec::new();
    input.take(LONGEST + 1).read_to_end(&mut value).context("cannot read standard input")?;
    if value.len() as u64 > LONGEST {
        return Err(usage("the value is longer than 8 MiB; nothing as long is ever tagged"));
    }
    if value.ends_with(b"\n") {
        value.pop();
        value.pop_if(|last| *last == b'\r');
    }
    Ok(value)
}

/// Of the key in use first, then of those it was before, in the order of their names.
pub(super) fn redactors(keys: &Path) -> anyhow::Result<Vec<Redactor>> {
    let cannot = || format!("cannot read the gateway's keys in {}", keys.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(keys).with_context(cannot)? {
        let name = entry.with_context(cannot)?.file_name();
        let is_one = name.to_str().is_some_and(|name| name == CURRENT || name.starts_with(FORMER));
        if is_one {
            names.push(name);
        }
    }
    names.sort_by_key(|name| (name != CURRENT, name.clone()));
    if names.is_empty() {
        bail!("{} holds no `{CURRENT}`: the gateway makes one when it first starts", keys.display());
    }
    let redactor = |name: &std::ffi::OsString| {
        let path = keys.join(name);
        let mut key = Vec::new();
        let cannot = || format!("cannot read {}", path.display());
        File::open(&path).and_then(|file| file.take(64).read_to_end(&mut key)).with_context(cannot)?;
        let key = key.as_slice().try_into().ok().with_context(|| format!("{} is not 32 bytes long", path.display()))?;
        anyhow::Ok(Redactor::new(key))
    };
    names.iter().map(redactor).collect()
}

const CURRENT: &str = "session.key";
/// A key that was replaced, under a name of its own.
const FORMER: &str = "session.key.";
const MOST: usize = 1_000;
