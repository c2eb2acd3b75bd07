//! `portcullis audit tail`.

use super::line::line;
use super::record::Record;
use crate::audit::{Directory, Follow};
use std::io::Write;
use std::time::Duration;

/// What to print.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Tail {
    /// How many.
    #[arg(short = 'n', long = "lines", default_value_t = 20)]
    pub(super) lines: usize,
    /// Go on printing what is recorded, until interrupted.
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Print the records as they stand, one JSON object a line.
    #[arg(long)]
    pub(super) json: bool,
}

impl Tail {
    /// Prints the newest records, and those to come.
    pub(super) fn run(&self, directory: &Directory, out: &mut dyn Write) -> anyhow::Result<()> {
        let (mut lines, mut follow) = Follow::tail(directory, self.lines)?;
        loop {
            for text in lines {
                match if self.json { None } else { Record::read(text.clone()) } {
                    Some(record) => writeln!(out, "{}", line(&record))?,
                    // What is no record is shown all the same: it is what stands there.
                    None => writeln!(out, "{text}")?,
                }
            }
            out.flush()?;
            if !self.follow {
                return Ok(());
            }
            std::thread::sleep(FOLLOW_PAUSE);
            lines = follow.new_lines()?;
        }
    }
}

const FOLLOW_PAUSE: Duration = Duration::from_millis(200);
