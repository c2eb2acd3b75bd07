//! `portcullis reload` and `portcullis status`: asked of the running gateway over its local socket.

use crate::admin::Answer;
use crate::config;
use crate::server::OPERATOR_SOCKET;
use anyhow::Context as _;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

pub(super) fn reload(file: &Path) -> anyhow::Result<ExitCode> {
    ask(file, "POST", "/reload", false)
}

pub(super) fn status(file: &Path, json: bool) -> anyhow::Result<ExitCode> {
    ask(file, "GET", "/status", json)
}

/// The origin that the gateway which runs on `data_dir` answers to.
pub(super) fn public_url(data_dir: &Path) -> anyhow::Result<String> {
    Ok(exchange(&data_dir.join(OPERATOR_SOCKET), "GET", "/status")?.public_url)
}

fn ask(file: &Path, method: &str, path: &str, json: bool) -> anyhow::Result<ExitCode> {
    let socket = data_dir(file).join(OPERATOR_SOCKET);
    let answer = exchange(&socket, method, path).with_context(|| {
        format!("no gateway answers at {}; is it running with this configuration?", socket.display())
    })?;
    match answer.standing {
        Some(standing) if json => println!("{standing:#}"),
        _ => println!("{}", answer.text),
    }
    Ok(if answer.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where the socket is, also when the file is broken: that is when its problems are asked for.
fn data_dir(file: &Path) -> PathBuf {
    match config::read(file) {
        Ok(loaded) => loaded.resolve(&loaded.config.data_dir),
        Err(_) => usual_data_dir(file),
    }
}

/// Where `data_dir` is when the file says nothing else.
pub(super) fn usual_data_dir(file: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new(".")).join("data")
}

/// One HTTP/1.1 exchange. The other side is our own listener, and the answer ends with the connection.
fn exchange(socket: &Path, method: &str, path: &str) -> anyhow::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: operator\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(1024 * 1024).read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    serde_json::from_str(body).context("an answer that is not ours")
}
