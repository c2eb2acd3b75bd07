//! The clients, each as its people run it, with a home of its own.

use crate::oauth::desk::Desk;
use crate::support::dialogue::Dialogue;
use crate::support::process::{self, Finished};
use crate::support::sdk::{self, Tool};
use serde_json::{Value, json};
use std::process::Command;
use tempfile::TempDir;

/// A client, as far as its person sees it.
pub(super) trait Program {
    /// Logs in, where the client has a step for it; otherwise it does so by itself with the first thing it is asked.
    fn log_in(&mut self) {}
    /// The tools it lists.
    fn list(&mut self) -> Vec<String>;
    /// What a tool answered, or what went wrong.
    fn call(&mut self, tool: &str, arguments: &Value) -> Result<String, String>;
    /// Logs in again, where the client does not do so by itself.
    fn log_in_again(&mut self) {}
}

/// What a tool's result says.
fn said(result: &Value) -> Result<String, String> {
    let text = result["content"][0]["text"].as_str().map(str::to_owned);
    match (&result["isError"], text) {
        (Value::Bool(true), _) | (_, None) => Err(result.to_string()),
        (_, Some(text)) => Ok(text),
    }
}

/// The names in a `tools/list` result.
#[track_caller]
fn names(result: &Value) -> Vec<String> {
    let tools = result["tools"].as_array().unwrap_or_else(|| panic!("no tools in {result}"));
    tools.iter().map(|tool| tool["name"].as_str().expect("a tool has a name").to_owned()).collect()
}

fn at_home(command: &mut Command, home: &TempDir, desk: &Desk) {
    command.env("HOME", home.path()).env("BROWSER", desk.person.browser()).current_dir(home.path());
    // What the machine of the test has is none of the client's.
    for name in ["DISPLAY", "WAYLAND_DISPLAY", "XDG_CONFIG_HOME", "XDG_CURRENT_DESKTOP", "XDG_DATA_HOME"] {
        command.env_remove(name);
    }
}

/// The option that tells a client where its document is, if it has one.
fn by_document(desk: &Desk, option: &str) -> Vec<String> {
    desk.document.iter().flat_map(|document| [option.to_owned(), document.url()]).collect()
}

// === MCP Inspector ===

/// MCP Inspector CLI: a run for each thing, and its tokens in a file in between.
pub(super) struct Inspector<'a> {
    desk: &'a Desk,
    home: TempDir,
}

impl<'a> Inspector<'a> {
    pub(super) fn new(desk: &'a Desk) -> Option<Inspector<'a>> {
        Tool::Inspector.command()?;
        Some(Inspector { desk, home: TempDir::new().expect("a temporary folder") })
    }

    #[track_caller]
    pub(super) fn run(&self, arguments: &[&str]) -> Finished {
        let mut command = Tool::Inspector.command().expect("it was there before");
        at_home(&mut command, &self.home, self.desk);
        command.env("MCP_INSPECTOR_SECRET_STORE", "file").env("MCP_AUTO_OPEN_ENABLED", "true");
        command.args(["--cli", "--transport", "http", "--server-url", &self.desk.url(), "--format", "json"]);
        command.args(["--callback-url", "http://127.0.0.1:0/oauth/callback"]).args(arguments);
        command.args(by_document(self.desk, "--client-metadata-url"));
        process::run(&mut command, b"")
    }

    #[track_caller]
    fn result(finished: &Finished) -> Value {
        let outcome: Value = serde_json::from_str(finished.stdout.trim()).unwrap_or_else(|_| panic!("{finished:?}"));
        outcome["result"].clone()
    }
}

impl Program for Inspector<'_> {
    fn list(&mut self) -> Vec<String> {
        names(&Inspector::result(&self.run(&["--method", "tools/list"]).success()))
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<String, String> {
        let arguments = arguments.to_string();
        let finished = self.run(&["--method", "tools/call", "--tool-name", tool, "--tool-args-json", &arguments]);
        if finished.status.success() { said(&Inspector::result(&finished)) } else { Err(format!("{finished:?}")) }
    }
}

// === mcp-remote ===

/// mcp-remote, as a host that speaks only stdio runs it.
pub(super) struct McpRemote {
    stdio: Dialogue,
    is_connected: bool,
    _home: TempDir,
}

impl McpRemote {
    pub(super) fn new(desk: &Desk) -> Option<McpRemote> {
        let mut command = Tool::McpRemote.command()?;
        let home = TempDir::new().expect("a temporary folder");
        at_home(&mut command, &home, desk);
        command.env("MCP_REMOTE_CONFIG_DIR", home.path()).arg(desk.url());
        let stdio = Dialogue::start("mcp-remote", command.args(by_document(desk, "--client-metadata-url")));
        Some(McpRemote { stdio, is_connected: false, _home: home })
    }

    fn connect(&mut self) {
        if !self.is_connected {
            let host = json!({ "name": "a host", "version": "1" });
            let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": host });
            let answer = self.stdio.request("initialize", &params);
            assert!(answer["result"].is_object(), "{answer}\n{}", self.stdio.log());
            self.stdio.notify("notifications/initialized");
            self.is_connected = true;
        }
    }
}

impl Program for McpRemote {
    fn list(&mut self) -> Vec<String> {
        self.connect();
        names(&self.stdio.request("tools/list", &json!({}))["result"])
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<String, String> {
        let answer = self.stdio.request("tools/call", &json!({ "name": tool, "arguments": arguments }));
        if answer["error"].is_null() { said(&answer["result"]) } else { Err(answer["error"].to_string()) }
    }
}

/// The one-shot client that mcp-remote brings; it ends with its stdin.
pub(super) fn mcp_remote_client(desk: &Desk) -> Option<RemoteClient> {
    let mut command = Tool::McpRemoteClient.command()?;
    let home = TempDir::new().expect("a temporary folder");
    at_home(&mut command, &home, desk);
    command.env("MCP_REMOTE_CONFIG_DIR", home.path()).arg(desk.url());
    Some(RemoteClient { process: process::Server::spawn_listening("mcp-remote-client", &mut command), _home: home })
}

/// It while it runs.
pub(super) struct RemoteClient {
    process: process::Server,
    _home: TempDir,
}

impl RemoteClient {
    #[track_caller]
    pub(super) fn wait_for_log(&mut self, text: &str) {
        self.process.wait_for_log(text);
    }
}

// === Codex ===

/// Codex CLI: `codex mcp` to log in, its app server to list and call.
pub(super) struct Codex<'a> {
    desk: &'a Desk,
    home: TempDir,
    registers: bool,
    app: Option<(Dialogue, String)>,
}

impl<'a> Codex<'a> {
    /// Told to register: its document is at an address that no test can serve.
    pub(super) fn new(desk: &'a Desk) -> Option<Codex<'a>> {
        Tool::Codex.command()?;
        let home = TempDir::new().expect("a temporary folder");
        Some(Codex { desk, home, registers: true, app: None })
    }

    /// Left to make itself known as it likes.
    pub(super) fn left_alone(desk: &'a Desk) -> Option<Codex<'a>> {
        Codex::new(desk).map(|codex| Codex { registers: false, ..codex })
    }

    fn command(&self) -> Command {
        let mut command = Tool::Codex.command().expect("it was there before");
        at_home(&mut command, &self.home, self.desk);
        command.env("CODEX_HOME", self.home.path());
        command
    }

    #[track_caller]
    pub(super) fn run(&self, arguments: &[&str]) -> Finished {
        let mut command = self.command();
        command.args(arguments);
        if self.registers {
            command.args(["--oauth-client-registration", "dcr"]);
        }
        process::run(&mut command, b"")
    }

    /// The app server, with a thread in which tools can be called.
    fn app(&mut self) -> (&mut Dialogue, String) {
        if self.app.is_none() {
            let mut app = Dialogue::start("codex app-server", self.command().arg("app-server"));
            let host = json!({ "name": "a host", "title": null, "version": "1" });
            app.request("initialize", &json!({ "clientInfo": host, "capabilities": null }));
            app.notify("initialized");
            let thread = app.request("thread/start", &json!({}));
            let id = thread["result"]["thread"]["id"].as_str().unwrap_or_else(|| panic!("no thread: {thread}"));
            self.app = Some((app, id.to_owned()));
        }
        let (app, thread) = self.app.as_mut().expect("it was just started");
        (app, thread.clone())
    }
}

impl Program for Codex<'_> {
    fn log_in(&mut self) {
        let finished = self.run(&["mcp", "add", "gate", "--url", &self.desk.url()]).success();
        assert!(finished.stdout.contains("Successfully logged in"), "{finished:?}");
    }

    fn list(&mut self) -> Vec<String> {
        let (app, _) = self.app();
        let listed = app.request("mcpServerStatus/list", &json!({}));
        let tools = listed["result"]["data"][0]["tools"].as_object();
        tools.unwrap_or_else(|| panic!("{listed}")).keys().cloned().collect()
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<String, String> {
        let (app, thread) = self.app();
        let params = json!({ "threadId": thread, "server": "gate", "tool": tool, "arguments": arguments });
        let answer = app.request("mcpServer/tool/call", &params);
        if answer["error"].is_null() { said(&answer["result"]) } else { Err(answer["error"].to_string()) }
    }

    fn log_in_again(&mut self) {
        self.app = None;
        let finished = self.run(&["mcp", "login", "gate"]).success();
        assert!(finished.stdout.contains("Successfully logged in"), "{finished:?}");
    }
}

// === Providers of the SDKs ===

/// A small program on an SDK, with the SDK's own OAuth provider.
pub(super) struct Provider {
    dialogue: Dialogue,
    is_connected: bool,
    _home: TempDir,
}

impl Provider {
    pub(super) fn python(desk: &Desk) -> Provider {
        Provider::start(desk, "login.py", &["python"])
    }

    pub(super) fn fastmcp(desk: &Desk) -> Provider {
        Provider::start(desk, "login.py", &["fastmcp"])
    }

    pub(super) fn typescript_v1(desk: &Desk) -> Provider {
        Provider::start(desk, "login_v1.mjs", &[])
    }

    pub(super) fn typescript_v2(desk: &Desk) -> Provider {
        Provider::start(desk, "login_v2.mjs", &[])
    }

    #[track_caller]
    fn start(desk: &Desk, program: &str, arguments: &[&str]) -> Provider {
        let home = TempDir::new().expect("a temporary folder");
        let mut command = sdk::program(program);
        at_home(&mut command, &home, desk);
        command.args(arguments).env("URL", desk.url()).env("CLIENT_NAME", "a client on an SDK");
        if let Some(document) = &desk.document {
            command.env("CLIENT_METADATA_URL", document.url());
        }
        Provider { dialogue: Dialogue::start(program, &mut command), is_connected: false, _home: home }
    }

    /// `{"connect": true}`, `{"list": true}`, `{"call": tool, "arguments": {}}`; gives `{"result"}` or `{"error"}`.
    #[track_caller]
    pub(super) fn step(&mut self, step: &Value) -> Value {
        self.dialogue.step(step)
    }
}

impl Program for Provider {
    fn list(&mut self) -> Vec<String> {
        if !self.is_connected {
            let outcome = self.step(&json!({ "connect": true }));
            assert!(outcome["error"].is_null(), "{outcome}\n{}", self.dialogue.log());
            self.is_connected = true;
        }
        names(&self.step(&json!({ "list": true }))["result"])
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<String, String> {
        let outcome = self.step(&json!({ "call": tool, "arguments": arguments }));
        if outcome["error"].is_null() { said(&outcome["result"]) } else { Err(outcome["error"].to_string()) }
    }
}
