//! The bytes of a request, of which only the id changes.

use bench::http;
use bench::payload::{Era, ID_DIGITS, Payload};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A request with a place for its id.
pub(crate) struct Template {
    /// Head and body.
    pub(crate) bytes: Vec<u8>,
    /// Where the id stands.
    id_at: usize,
    /// Events that must come before the answer.
    pub(crate) events: usize,
}

impl Template {
    /// Makes it; in the legacy era this opens a session first.
    pub(crate) fn new(
        target: SocketAddr,
        path: &str,
        token: Option<&str>,
        era: Era,
        payload: &Payload,
    ) -> anyhow::Result<Template> {
        let mut common = format!(
            "POST {path} HTTP/1.1\r\nHost: {target}\r\nUser-Agent: bench-load/1\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n"
        );
        if let Some(token) = token {
            common.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        match era {
            Era::Modern => common.push_str(&format!(
                "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {}\r\n",
                payload.tool
            )),
            Era::Legacy => {
                let session = open_session(target, &common)?;
                common.push_str(&format!("MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: {session}\r\n"));
            }
        }
        let (body, id_in_body) = payload.body(era);
        let mut bytes = format!("{common}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
        let id_at = bytes.len() + id_in_body;
        bytes.extend_from_slice(&body);
        Ok(Template { bytes, id_at, events: payload.events })
    }

    /// Writes the request with this id into `out`, which held one before or is empty.
    pub(crate) fn fill(&self, id: u64, out: &mut Vec<u8>) {
        if out.len() != self.bytes.len() {
            out.clear();
            out.extend_from_slice(&self.bytes);
        }
        let digits = id.to_string();
        debug_assert_eq!(digits.len(), ID_DIGITS);
        out[self.id_at..self.id_at + ID_DIGITS].copy_from_slice(digits.as_bytes());
    }
}

fn open_session(target: SocketAddr, common: &str) -> anyhow::Result<String> {
    let body = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"#,
        r#""clientInfo":{"name":"bench-load","version":"1"}}}"#
    );
    let mut socket = TcpStream::connect(target)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(socket, "{common}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while http::head_end(&answer).is_none() {
        let n = socket.read(&mut piece)?;
        anyhow::ensure!(n > 0, "no answer to `initialize`: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..n]);
    }
    let head = &answer[..http::head_end(&answer).unwrap_or_default()];
    let session = http::header(head, "mcp-session-id");
    let said = || anyhow::anyhow!("`initialize` opened no session: {}", String::from_utf8_lossy(&answer));
    session.map(str::to_owned).ok_or_else(said)
}
