//! `portcullis audit verify`.

use crate::audit::{self, Directory};
use anyhow::bail;
use std::io::Write;

/// Checks the log and prints what it found.
pub(super) fn verify(directory: &Directory, from: Option<&str>, out: &mut dyn Write) -> anyhow::Result<()> {
    let report = audit::verify(directory, from)?;
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    if let Some(fault) = report.fault {
        bail!("{fault}");
    }
    let (records, segments) = (report.records, report.segments);
    writeln!(out, "verified {records} records in {segments} segments")?;
    if let Some(end) = report.end {
        writeln!(out, "end: {end}")?;
    }
    Ok(())
}
