//! `portcullis audit search`.

use super::line::line;
use super::record::{By, During, one_of};
use crate::audit::{Directory, escaped};
use std::collections::VecDeque;
use std::io::Write;

/// Which records.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Search {
    #[command(flatten)]
    during: During,
    #[command(flatten)]
    by: By,
    /// Decided so: allowed, held or denied.
    #[arg(long, value_name = "WORD")]
    decision: Option<String>,
    /// Of this kind: decision, result, refused, reload, login.failed, … A dot at the end takes all that begin so.
    #[arg(long, value_name = "KIND")]
    event: Option<String>,
    /// Refused with this code, such as policy.denied. A dot at the end takes all that begin so.
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// Decided by this rule.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Of this request, held call or trace. (`show` prints all that belongs to it.)
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    /// With this text anywhere, in upper or lower case.
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// No more than the newest so many; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Print the records as they stand, one JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Search {
    /// Prints what is found, the newest last.
    pub(super) fn run(&self, directory: &Directory, out: &mut dyn Write) -> anyhow::Result<()> {
        one_of("--decision", self.decision.as_deref(), &["allowed", "held", "denied"])?;
        let by = self.by.compile();
        // As it stands in a line: escaped.
        let text = self.text.as_deref().map(|text| escaped(text).to_ascii_lowercase());
        let (mut kept, mut n_left_out) = (VecDeque::new(), 0_u64);
        let met = self.during.each(directory, |record| {
            let is_wanted = by.admits(&record)
                && is(self.decision.as_deref(), record.text("decision"))
                && begins(self.event.as_deref(), record.text("event"))
                && begins(self.code.as_deref(), record.text("code"))
                && self.rule.as_deref().is_none_or(|rule| record.list("rules").contains(&rule))
                && self
                    .request
                    .as_deref()
                    .is_none_or(|id| ["request", "approval", "trace"].iter().any(|key| record.text(key) == Some(id)))
                && text.as_deref().is_none_or(|text| record.line.to_ascii_lowercase().contains(text));
            if !is_wanted {
                return Ok(());
            }
            let shown = if self.json { record.line } else { line(&record) };
            if self.limit == 0 {
                writeln!(out, "{shown}")?;
                return Ok(());
            }
            kept.push_back(shown);
            if kept.len() > self.limit {
                kept.pop_front();
                n_left_out += 1;
            }
            Ok(())
        })?;
        kept.iter().try_for_each(|shown| writeln!(out, "{shown}"))?;
        met.say();
        if n_left_out > 0 {
            eprintln!("note: {n_left_out} older records match as well; `--limit 0` prints them all");
        }
        Ok(())
    }
}

fn is(wanted: Option<&str>, found: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| found == Some(wanted))
}

fn begins(wanted: Option<&str>, found: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| {
        found.is_some_and(|found| found == wanted || (wanted.ends_with('.') && found.starts_with(wanted)))
    })
}
