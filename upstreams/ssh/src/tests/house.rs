//! One house: the process as the gateway starts it, but for the process, and those who ask.

use super::host::{OddHost, PATIENCE};
use crate::credential::ephemeral;
use crate::settings::{Credential, Settings};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_local::handover::SECRET_HEADER;
use portcullis_local::{Handover, Principal, principal, request};
use russh::keys::ssh_key::LineEnding;
use serde_json::{Value, json};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

/// The revision without sessions.
pub(crate) const MODERN: &str = "2026-07-28";
/// The last one with them.
pub(crate) const LEGACY: &str = "2025-11-25";

pub(crate) const ACTIONS: &str = "
check: do out
actions:
  - name: do
    title: Do something
    description: Does it.
    annotations: { readOnlyHint: true, openWorldHint: false }
    arguments: { what: { matches: '[a-z]+', description: What. } }
    run: do {what}
  - name: finish
    description: Does it to the end.
    annotations: { destructiveHint: true }
    arguments: { what: { one_of: [stay, out] } }
    run: do {what}
    finishes: true
  - name: brief
    description: Does it for a moment.
    run: do wait
    timeout: 300ms
";

pub(crate) struct House {
    socket: PathBuf,
    /// The gateway's end; the server ends when it is dropped.
    pub gateway: Option<OwnedFd>,
    pub server: JoinHandle<Result<(), crate::server::Error>>,
    _folder: TempDir,
}

pub(crate) fn settings(host: &OddHost) -> Settings {
    Settings {
        name: "prod".to_owned(),
        host: host.host(),
        credential: Credential::Key { private: private() },
        known_hosts: host.line(&host.key),
        actions: ACTIONS.to_owned(),
        connect: Duration::from_secs(10),
        keep_alive: Duration::from_secs(10),
        idle: Duration::from_secs(300),
        at_once: 16,
    }
}

/// A key as it stands in a file.
pub(crate) fn private() -> String {
    ephemeral().to_openssh(LineEnding::LF).expect("text").to_string()
}

impl House {
    pub(crate) async fn open(host: &OddHost) -> House {
        House::with(&settings(host))
    }

    pub(crate) fn with(settings: &Settings) -> House {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).expect("listens");
        let (gateway, ready) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        let settings = serde_json::to_vec(settings).expect("JSON");
        let handover = Handover { listener, secret: [7; 32], settings, ready, folder: None };
        let server = tokio::spawn(crate::run(handover));
        House { socket, gateway: Some(gateway), server, _folder: folder }
    }

    /// Whether it has said that it is ready; waits until it has, or has ended.
    pub(crate) async fn is_ready(&self) -> bool {
        let pipe = self.gateway.as_ref().expect("the gateway lives").try_clone().expect("a clone");
        let read = move || {
            let mut said = [0; 6];
            std::fs::File::from(pipe).read_exact(&mut said).map(|()| said)
        };
        let said = tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(read)).await;
        said.expect("says something").expect("no panic").is_ok_and(|said| &said == b"ready\n")
    }

    /// Why it has ended.
    pub(crate) async fn ended(&mut self) -> Result<(), String> {
        let ended = tokio::time::timeout(PATIENCE, &mut self.server).await.expect("ends").expect("no panic");
        ended.map_err(|why| why.to_string())
    }

    /// Somebody in the modern era.
    pub(crate) fn user(&self) -> Agent<'_> {
        Agent { house: self, is_known: true, request: Some("r_1/h_2"), session: None }
    }

    /// The same with a session of the legacy era.
    pub(crate) async fn session(&self) -> Agent<'_> {
        let mut agent = self.user();
        let client = json!({"name": "agent", "version": "1"});
        let params = json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client});
        agent.session = Some(String::new());
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let reply = read(agent.open(&message).await).await;
        agent.session = Some(reply.header("mcp-session-id").expect("a session").to_owned());
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(read(agent.open(&initialized).await).await.status, 202);
        agent
    }
}

/// Who asks, and how.
#[derive(Clone)]
pub(crate) struct Agent<'a> {
    pub house: &'a House,
    pub is_known: bool,
    pub request: Option<&'static str>,
    pub session: Option<String>,
}

pub(crate) struct Reply {
    pub status: u16,
    headers: String,
    pub body: String,
}

impl Agent<'_> {
    /// What a tool answers: what is for programs, its text, and whether it is an error.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> (Value, String, bool) {
        let answer =
            read(self.open(&call_of(tool, &arguments, &json!({}))).await).await.messages().pop().expect("an answer");
        told(&answer["result"])
    }

    pub(crate) async fn ask(&self, method: &str, params: Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        read(self.open(&message).await).await.messages().pop().expect("an answer")
    }

    /// Sends a message; the answer is left to be read.
    pub(crate) async fn open(&self, message: &Value) -> BufReader<UnixStream> {
        let mut message = message.clone();
        let secret = URL_SAFE_NO_PAD.encode([7; 32]);
        let revision = if self.session.is_some() { LEGACY } else { MODERN };
        let mut head = format!(
            "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{SECRET_HEADER}: {secret}\r\naccept: \
             application/json, text/event-stream\r\nmcp-protocol-version: {revision}\r\n"
        );
        if self.is_known {
            let who = Principal { issuer: String::new(), subject: "user:alice".to_owned() };
            head.push_str(&format!("{}: {}\r\n", principal::HEADER, who.to_header()));
        }
        if let Some(name) = self.request {
            head.push_str(&format!("{}: {name}\r\n", request::HEADER));
        }
        match &self.session {
            Some(session) if !session.is_empty() => head.push_str(&format!("mcp-session-id: {session}\r\n")),
            Some(_) => {}
            None => {
                head.push_str(&format!("mcp-method: {}\r\n", message["method"].as_str().expect("a method")));
                if let Some(name) = message["params"]["name"].as_str() {
                    head.push_str(&format!("mcp-name: {name}\r\n"));
                }
                message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
                message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
            }
        }
        let body = serde_json::to_vec(&message).expect("JSON");
        head.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len()));
        let mut stream = UnixStream::connect(&self.house.socket).await.expect("answers");
        stream.write_all(&[head.as_bytes(), &body].concat()).await.expect("sent");
        BufReader::new(stream)
    }
}

pub(crate) fn call_of(tool: &str, arguments: &Value, meta: &Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
}

/// What is for programs, the text, and whether it is an error.
pub(crate) fn told(result: &Value) -> (Value, String, bool) {
    let blocks = result["content"].as_array().unwrap_or_else(|| panic!("{result}")).iter();
    let text = blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n");
    (result["structuredContent"].clone(), text, result["isError"].as_bool().expect("a bool"))
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.headers.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    /// The JSON-RPC messages of a plain answer or of a stream.
    pub(crate) fn messages(&self) -> Vec<Value> {
        if self.header("content-type") == Some("application/json") {
            return vec![serde_json::from_str(&self.body).expect("JSON")];
        }
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
        data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).expect("JSON")).collect()
    }
}

pub(crate) async fn read(mut stream: BufReader<UnixStream>) -> Reply {
    let reading = async {
        let mut headers = String::new();
        while stream.read_line(&mut headers).await.expect("headers") > 2 {}
        let status = headers.split(' ').nth(1).expect("an answer").parse().expect("a number");
        let mut reply = Reply { status, headers, body: String::new() };
        if reply.header("transfer-encoding") != Some("chunked") {
            stream.read_to_string(&mut reply.body).await.expect("a body");
            return reply;
        }
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.expect("a chunk");
            let n = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
            if n == 0 {
                return reply;
            }
            let mut chunk = vec![0; n + 2];
            stream.read_exact(&mut chunk).await.expect("a chunk");
            reply.body.push_str(std::str::from_utf8(&chunk[..n]).expect("UTF-8"));
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("no answer in time")
}
