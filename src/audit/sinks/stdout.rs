//! Standard output, one record a line, as it stands in the file.

use super::NotTaken;
use super::source::Batch;
use std::io::{self, Write as _};
use tokio::task::spawn_blocking;

/// Writes all lines. Whoever reads them may take their time: only this sink waits.
pub(super) async fn send(batch: &Batch) -> Result<(), NotTaken> {
    let mut text = batch.lines.join("\n");
    text.push('\n');
    let written = spawn_blocking(move || {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    });
    match written.await {
        Ok(written) => {
            written.map_err(|error| NotTaken::because(format_args!("cannot write to standard output: {error}")))
        }
        Err(_) => Err(NotTaken::because("writing to standard output was broken off")),
    }
}
