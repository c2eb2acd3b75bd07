//! Whether a local upstream still answers: one that runs and says nothing is worse than one that has ended.

use super::{Secret, secret_header};
use portcullis_local::HEALTH;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// How often it is asked.
const EVERY: Duration = Duration::from_secs(5);
/// How long an answer may take: far longer than on the busiest machine.
const LIMIT: Duration = Duration::from_secs(15);
/// So many answers may be missing one after another.
const MISSING: usize = 2;

/// Returns when the process does not answer any more.
pub(super) async fn lost(socket: &Path, secret: &Secret) {
    let mut n_missing = 0;
    while n_missing < MISSING {
        tokio::time::sleep(EVERY).await;
        let has_answered = tokio::time::timeout(LIMIT, answers(socket, secret)).await;
        n_missing = if matches!(has_answered, Ok(Ok(true))) { 0 } else { n_missing + 1 };
    }
}

async fn answers(socket: &Path, secret: &Secret) -> std::io::Result<bool> {
    let mut stream = UnixStream::connect(socket).await?;
    let (name, value) = secret_header(secret);
    let value = value.to_str().unwrap_or_default();
    let request = format!("GET {HEALTH} HTTP/1.1\r\nHost: localhost\r\n{name}: {value}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut line = [0; 12];
    stream.read_exact(&mut line).await?;
    Ok(line == *b"HTTP/1.1 200")
}
