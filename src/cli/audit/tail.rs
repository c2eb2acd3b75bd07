//! `portcullis audit tail`.

use crate::audit::{Directory, Follow};
use std::io::Write;
use std::time::Duration;

/// Prints the newest `n` records, and those to come.
pub(super) fn tail(directory: &Directory, n: usize, is_followed: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let (mut lines, mut follow) = Follow::tail(directory, n)?;
    loop {
        for line in &lines {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        if !is_followed {
            return Ok(());
        }
        std::thread::sleep(FOLLOW_PAUSE);
        lines = follow.new_lines()?;
    }
}

const FOLLOW_PAUSE: Duration = Duration::from_millis(200);
