//! One house: a socket, a workspace, and those who ask.

use crate::confine::{Captured, Command, End, Error, Outcome, Progress};
use crate::server::{Shared, router};
use crate::settings::{Backend, Cgroup, Network, Settings};
use crate::tools::Runner;
use crate::workspace::{Limits, Workspace};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_local::Principal;
use portcullis_local::handover::SECRET_HEADER;
use portcullis_local::principal::HEADER;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The revision without sessions.
pub(crate) const MODERN: &str = "2026-07-28";
/// The last one with them.
pub(crate) const LEGACY: &str = "2025-11-25";
/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What commands do in a test: those that say `wait` come to no end of their own.
pub(crate) struct Script(pub mpsc::UnboundedSender<String>);

impl Script {
    pub(crate) async fn run(
        &self,
        command: &Command,
        progress: &watch::Sender<Progress>,
        cancelled: &CancellationToken,
    ) -> Result<Outcome, Error> {
        let _ = self.0.send(format!("began {} in `{}`", command.line, command.cwd));
        let stdout = Captured { head: command.stdin.clone(), tail: Vec::new(), total: command.stdin.len() as u64 };
        let mut end = End::Exited(command.environment.len() as i32);
        if command.line == "wait" {
            progress.send_replace(Progress { n_written: 7, last_line: "[3/9] cc main.c".to_owned() });
            cancelled.cancelled().await;
            let _ = self.0.send("cancelled".to_owned());
            end = End::Cancelled;
        }
        Ok(Outcome { end, stdout, stderr: Captured::default(), elapsed: Duration::from_millis(1500) })
    }
}

pub(crate) struct House {
    socket: PathBuf,
    secret: [u8; 32],
    /// What commands did.
    pub commands: tokio::sync::Mutex<mpsc::UnboundedReceiver<String>>,
    /// The gateway's end; the server ends when it is dropped.
    pub gateway: Option<OwnedFd>,
    /// The server.
    pub server: JoinHandle<std::io::Result<()>>,
    folder: TempDir,
}

pub(crate) fn settings() -> Settings {
    Settings {
        name: "sandbox".to_owned(),
        backend: Backend::Bubblewrap { program: None },
        network: Network::None,
        memory: 1 << 30,
        processes: 64,
        cpu_millis: 1000,
        tmp: 64 << 20,
        quota: 16 << 20,
        reserve: 1 << 20,
        timeout: Duration::from_secs(60),
        longest: Duration::from_secs(600),
        output: 1 << 20,
        at_once: 64,
        read_only: Vec::new(),
        environment: BTreeMap::new(),
        cgroup: Cgroup::Off,
    }
}

impl House {
    pub(crate) async fn open() -> House {
        House::with(settings()).await
    }

    pub(crate) async fn with(settings: Settings) -> House {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("workspaces")).unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(folder.path().join("workspaces"), flags, Mode::empty()).unwrap();
        let limits = Limits { quota: settings.quota, reserve: settings.reserve, commands: settings.at_once };
        let workspace = Workspace::new(root, limits).unwrap();
        let (tell, commands) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(settings, workspace, Runner::Scripted(Script(tell))));
        let (gateway, ready) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let secret = [7; 32];
        let server = tokio::spawn(async move {
            let router = router(&shared);
            portcullis_local::serve(listener, secret, ready, router, shared.stop()).await
        });
        let commands = tokio::sync::Mutex::new(commands);
        House { socket, secret, commands, gateway: Some(gateway), server, folder }
    }

    /// A principal's folder, from outside.
    pub(crate) fn folder_of(&self, name: &str) -> PathBuf {
        self.folder.path().join("workspaces").join(name)
    }

    /// The next thing that a command did.
    pub(crate) async fn next(&self) -> String {
        let mut commands = self.commands.lock().await;
        tokio::time::timeout(PATIENCE, commands.recv()).await.expect("nothing happens").expect("the script is gone")
    }

    /// A user of this gateway, in the modern era.
    pub(crate) fn user(&self, name: &str) -> Agent<'_> {
        let principal = Some(Principal { issuer: String::new(), subject: format!("user:{name}") });
        Agent { house: self, principal, revision: MODERN, session: None }
    }

    /// A user of this gateway, with a session of the legacy era.
    pub(crate) async fn session(&self, name: &str) -> Agent<'_> {
        let mut agent = Agent { revision: LEGACY, ..self.user(name) };
        let reply = agent.begin().await;
        agent.session = Some(reply.header("mcp-session-id").expect("no session").to_owned());
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(agent.post(&initialized, &[]).await.status, 202);
        agent
    }

    pub(crate) async fn send(&self, request: &str, body: &[u8]) -> BufReader<UnixStream> {
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        BufReader::new(stream)
    }
}

/// Who asks, and how.
#[derive(Clone)]
pub(crate) struct Agent<'a> {
    pub house: &'a House,
    pub principal: Option<Principal>,
    pub revision: &'static str,
    pub session: Option<String>,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: u16,
    pub headers: String,
    pub body: Vec<u8>,
}

impl Agent<'_> {
    /// The result of a tool that did what was asked: what is for programs, and its text.
    #[track_caller]
    pub(crate) fn call(&self, tool: &'static str, arguments: Value) -> impl Future<Output = (Value, String)> {
        let at = std::panic::Location::caller();
        async move {
            let result = self.tool(tool, arguments, &json!({})).await;
            assert_eq!(result["isError"], json!(false), "{at}: {result}");
            (result["structuredContent"].clone(), text(&result))
        }
    }

    /// What a tool says that did not do what was asked.
    #[track_caller]
    pub(crate) fn refused(&self, tool: &'static str, arguments: Value) -> impl Future<Output = String> {
        let at = std::panic::Location::caller();
        async move {
            let result = self.tool(tool, arguments, &json!({})).await;
            assert_eq!(result["isError"], json!(true), "{at}: {result}");
            text(&result)
        }
    }

    /// Whatever a tool answers that takes no arguments.
    pub(crate) async fn answer(&self, tool: &str) -> Value {
        self.tool(tool, json!({}), &json!({})).await
    }

    async fn tool(&self, tool: &str, arguments: Value, meta: &Value) -> Value {
        let message = self.last(&self.call_of(tool, &arguments, meta, 1), tool).await;
        assert!(message["result"].is_object(), "{message}");
        message["result"].clone()
    }

    /// A call as a message.
    pub(crate) fn call_of(&self, tool: &str, arguments: &Value, meta: &Value, id: u64) -> Value {
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    }

    pub(crate) async fn request(&self, method: &str, params: Value) -> Value {
        self.last(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}), "").await
    }

    /// The last message of the answer to a request.
    async fn last(&self, message: &Value, name: &str) -> Value {
        let reply = self.post(message, &[("mcp-name", name)]).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.messages().pop().expect("no message")
    }

    pub(crate) async fn begin(&self) -> Reply {
        let client = json!({"name": "agent", "version": "1"});
        let params = json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client});
        self.post(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}), &[]).await
    }

    pub(crate) async fn post(&self, message: &Value, headers: &[(&str, &str)]) -> Reply {
        read(self.open(message, headers).await).await
    }

    /// Sends a message; the answer is left to be read.
    pub(crate) async fn open(&self, message: &Value, headers: &[(&str, &str)]) -> BufReader<UnixStream> {
        let mut message = message.clone();
        let mut head = self.head("POST", "application/json, text/event-stream");
        if self.revision == MODERN && message["method"].is_string() {
            head.push_str(&format!("mcp-method: {}\r\n", message["method"].as_str().unwrap()));
            if !message["params"].is_object() {
                message["params"] = json!({});
            }
            message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
            message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
            for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        let body = serde_json::to_vec(&message).unwrap();
        head.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len()));
        self.house.send(&head, &body).await
    }

    /// GET or DELETE.
    pub(crate) async fn bare(&self, method: &str) -> Reply {
        read(self.house.send(&format!("{}\r\n", self.head(method, "text/event-stream")), b"").await).await
    }

    pub(crate) fn head(&self, method: &str, accept: &str) -> String {
        let secret = URL_SAFE_NO_PAD.encode(self.house.secret);
        let mut head = format!(
            "{method} / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{SECRET_HEADER}: {secret}\r\naccept: \
             {accept}\r\nmcp-protocol-version: {}\r\n",
            self.revision
        );
        if let Some(principal) = &self.principal {
            head.push_str(&format!("{HEADER}: {}\r\n", principal.to_header()));
        }
        if let Some(session) = &self.session {
            head.push_str(&format!("mcp-session-id: {session}\r\n"));
        }
        head
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.headers.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    /// The JSON-RPC messages of a plain answer or of a stream.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let body = String::from_utf8(self.body.clone()).unwrap();
        if self.header("content-type") == Some("application/json") {
            return vec![serde_json::from_str(&body).unwrap()];
        }
        let data = body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
        data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

/// All text of a result.
pub(crate) fn text(result: &Value) -> String {
    let blocks = result["content"].as_array().unwrap().iter();
    blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

pub(crate) async fn read(mut stream: BufReader<UnixStream>) -> Reply {
    let reading = async {
        let mut headers = String::new();
        while stream.read_line(&mut headers).await.unwrap() > 2 {}
        let status = headers.split(' ').nth(1).expect("no answer").parse().unwrap();
        let mut reply = Reply { status, headers, body: Vec::new() };
        if reply.header("transfer-encoding") == Some("chunked") {
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).await.unwrap();
                let n = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
                if n == 0 {
                    break;
                }
                let mut chunk = vec![0; n + 2];
                stream.read_exact(&mut chunk).await.unwrap();
                reply.body.extend(&chunk[..n]);
            }
        } else {
            stream.read_to_end(&mut reply.body).await.unwrap();
        }
        reply
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("no answer in time")
}
