//! Servers and clients built on the official SDKs, as `tests/setup` installs them. The programs are in `tests/sdk`.

use super::PATIENCE;
use super::http::{Request, Response};
use super::process::{self, Server};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;

/// What `tests/setup` printed: where it put things.
struct Installed {
    node: PathBuf,
    python: PathBuf,
    modules: PathBuf,
    /// Empty where there is none.
    chromium: PathBuf,
    /// Empty where there is none.
    runsc: PathBuf,
}

/// A running server built on an official SDK.
pub(crate) struct Peer {
    /// Its MCP endpoint.
    pub(crate) url: String,
    marker: PathBuf,
    _server: Server,
    _dir: TempDir,
}

/// A client built on an official SDK or on FastMCP, unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// FastMCP, trying the newer era first.
    FastMcp,
    /// FastMCP, of the older era.
    FastMcpLegacy,
    /// FastMCP, newer era only.
    FastMcpModern,
    /// Python `mcp`, trying the newer era first.
    Python,
    /// Python `mcp`, of the older era.
    PythonLegacy,
    /// Python `mcp`, newer era only.
    PythonModern,
    /// TypeScript v2 with the official package for the Tasks extension, newer era only. It takes `call` steps alone.
    TypeScriptTasks,
    /// TypeScript v1; knows only the older era.
    TypeScriptV1,
    /// TypeScript v2 as it is by default: the older era.
    TypeScriptV2,
    /// TypeScript v2, trying the newer era first.
    TypeScriptV2Auto,
    /// TypeScript v2, newer era only.
    TypeScriptV2Modern,
}

impl Client {
    /// Connects, takes these steps one after the other, and gives the outcome of each: `{"result": …}` or
    /// `{"error": {"code": …, "message": …}}`, as the SDK gave it. The first outcome is that of connecting.
    #[track_caller]
    pub(crate) fn run(self, url: &str, token: Option<&str>, steps: &Value) -> Vec<Value> {
        self.converse(&json!({ "url": url, "token": token, "steps": steps, "answers": false }))
    }

    /// The same for a client that answers what servers ask: each outcome says what was `asked` meanwhile.
    #[track_caller]
    pub(crate) fn run_answering(self, url: &str, token: Option<&str>, steps: &Value) -> Vec<Value> {
        self.converse(&json!({ "url": url, "token": token, "steps": steps, "answers": true }))
    }

    /// Either of these, for as long as this.
    #[track_caller]
    pub(crate) fn run_for(
        self,
        limit: Duration,
        url: &str,
        token: Option<&str>,
        steps: &Value,
        answers: bool,
    ) -> Vec<Value> {
        self.converse_for(limit, &json!({ "url": url, "token": token, "steps": steps, "answers": answers }))
    }

    #[track_caller]
    fn converse(self, input: &Value) -> Vec<Value> {
        self.converse_for(2 * PATIENCE, input)
    }

    #[track_caller]
    fn converse_for(self, limit: Duration, input: &Value) -> Vec<Value> {
        let (program, mode) = match self {
            Client::FastMcp => ("client_fastmcp.py", "auto"),
            Client::FastMcpLegacy => ("client_fastmcp.py", "legacy"),
            Client::FastMcpModern => ("client_fastmcp.py", "modern"),
            Client::Python => ("client.py", "auto"),
            Client::PythonLegacy => ("client.py", "legacy"),
            Client::PythonModern => ("client.py", "modern"),
            Client::TypeScriptTasks => ("client_tasks.mjs", "modern"),
            Client::TypeScriptV1 => ("client_v1.mjs", "legacy"),
            Client::TypeScriptV2 => ("client_v2.mjs", "legacy"),
            Client::TypeScriptV2Auto => ("client_v2.mjs", "auto"),
            Client::TypeScriptV2Modern => ("client_v2.mjs", "modern"),
        };
        let mut input = input.clone();
        input["mode"] = json!(mode);
        let finished = process::run_within(limit, &mut self::program(program), input.to_string().as_bytes()).success();
        let parse =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?} of {self:?}"));
        finished.stdout.lines().map(parse).collect()
    }
}

/// npm `oidc-provider`: an authorization server as others run it.
pub(crate) struct Idp {
    /// Its issuer.
    pub(crate) issuer: String,
    address: std::net::SocketAddr,
    _server: Server,
}

// === impl Idp ===

impl Idp {
    #[track_caller]
    pub(crate) fn start() -> Idp {
        let mut server = Server::spawn("idp.mjs", &mut program("idp.mjs"));
        let port = server.line("listening ").unwrap_or_else(|said| panic!("the issuer did not start: {said}"));
        let address = format!("127.0.0.1:{port}").parse().expect("a port");
        Idp { issuer: format!("http://{address}"), address, _server: server }
    }

    /// A token of the client `machine` for this resource, by its own grant.
    #[track_caller]
    pub(crate) fn machine_token(&self, resource: &str) -> String {
        let form = format!("grant_type=client_credentials&scope=mcp.use&resource={resource}");
        let request = Request::post("/token")
            .header("Authorization", "Basic bWFjaGluZTpvZi10aGUtbWFjaGluZQ==")
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(form);
        access_token(&request.send(self.address))
    }

    /// Everything that a login of this person with the client `app` brings: `access_token`, `id_token`.
    #[track_caller]
    pub(crate) fn login(&self, account: &str, resource: &str) -> Value {
        let response = Request::get(&format!("/test/login?account={account}&resource={resource}")).send(self.address);
        access_token(&response);
        response.json()
    }
}

#[track_caller]
fn access_token(response: &Response) -> String {
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()["access_token"].as_str().expect("a token").to_owned()
}

// === impl Peer ===

impl Peer {
    /// `@modelcontextprotocol/server-everything`: the older era, with sessions.
    #[track_caller]
    pub(crate) fn everything() -> Peer {
        Peer::start("everything.mjs", &[])
    }

    /// Our server on the TypeScript SDK v2: both eras, the older one without sessions.
    #[track_caller]
    pub(crate) fn typescript() -> Peer {
        Peer::start("server.mjs", &[])
    }

    /// The same, with sessions in the older era.
    #[track_caller]
    pub(crate) fn typescript_with_sessions() -> Peer {
        Peer::start("server.mjs", &["--sessions"])
    }

    /// A server on the TypeScript SDK v2 with everything to it: both eras, sessions, streams of its own, resumption, and
    /// all that the conformance suite asks for.
    #[track_caller]
    pub(crate) fn fixture() -> Peer {
        Peer::start("fixture.mjs", &[])
    }

    /// The same, believing any `Host` and `Origin`.
    #[track_caller]
    pub(crate) fn trusting_fixture() -> Peer {
        Peer::start("fixture.mjs", &["--trusting"])
    }

    /// Our server on the Python SDK: both eras, with sessions in the older one.
    #[track_caller]
    pub(crate) fn python() -> Peer {
        Peer::start("server.py", &[])
    }

    #[track_caller]
    fn start(program: &str, arguments: &[&str]) -> Peer {
        let dir = TempDir::new().expect("a temporary folder");
        let marker = dir.path().join("danger-ran");
        let mut command = self::program(program);
        command.args(arguments).env("DANGER_MARKER", &marker);
        let mut server = Server::spawn(program, &mut command);
        let address = server.line("listening ").unwrap_or_else(|said| panic!("{program} did not start: {said}"));
        Peer { url: format!("http://127.0.0.1:{address}/mcp"), marker, _server: server, _dir: dir }
    }

    /// How often the tool `danger` ran.
    pub(crate) fn n_dangers(&self) -> usize {
        std::fs::read_to_string(&self.marker).map_or(0, |text| text.lines().count())
    }
}

/// The conformance suite, about to run. Given a token, every request to `origin` carries it.
pub(crate) fn conformance_suite(origin: &str, token: Option<&str>) -> Command {
    let installed = installed();
    let mut command = process::command(&installed.node);
    command.env("SDK_PACKAGES", &installed.modules);
    if let Some(token) = token {
        command.arg("--import").arg(path_of("inject.mjs")).env("ORIGIN", origin).env("TOKEN", token);
    }
    command.arg(installed.modules.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"));
    command
}

/// One of the programs in `tests/sdk`, about to run.
pub(crate) fn program(name: &str) -> Command {
    let installed = installed();
    let program = path_of(name);
    if name.ends_with(".py") {
        let mut command = process::command(&installed.python);
        // Alone, and leaving nothing behind in the clone.
        command.arg("-IB").arg(program);
        return command;
    }
    let mut command = process::command(&installed.node);
    // Node looks for packages beside the program, where they are not; this hook makes it look where they are.
    command.arg("--import").arg(path_of("packages.mjs")).arg(program).env("SDK_PACKAGES", &installed.modules);
    command
}

/// The program of `rotel`, an OpenTelemetry collector.
#[track_caller]
pub(crate) fn rotel() -> PathBuf {
    let mut command = process::command(&installed().python);
    let asked = "import os, rotel; print(os.path.join(os.path.dirname(rotel.__file__), 'rotel-agent'))";
    PathBuf::from(process::run(command.args(["-IBc", asked]), b"").success().stdout.trim())
}

/// A program that people use with their agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Codex CLI.
    Codex,
    /// MCP Inspector, to be given `--cli`.
    Inspector,
    /// mcp-remote: a stdio server that is a client of ours.
    McpRemote,
    /// What mcp-remote brings to try a server with.
    McpRemoteClient,
}

impl Tool {
    /// Itself, about to run, or nothing where it is not installed. Then `tests/setup` has said so, and on CI it is a
    /// failure.
    #[track_caller]
    pub(crate) fn command(self) -> Option<Command> {
        let installed = installed();
        let packages = installed.modules.join("node_modules");
        let script = match self {
            Tool::Codex => return self.or_nothing(codex(&packages).map(process::command)),
            Tool::Inspector => "@modelcontextprotocol/inspector/clients/launcher/build/index.js",
            Tool::McpRemote => "mcp-remote/dist/proxy.js",
            Tool::McpRemoteClient => "mcp-remote/dist/client.js",
        };
        let script = Some(packages.join(script)).filter(|script| script.exists());
        self.or_nothing(script.map(|script| {
            let mut command = process::command(&installed.node);
            command.arg(script);
            command
        }))
    }

    #[track_caller]
    fn or_nothing(self, command: Option<Command>) -> Option<Command> {
        if command.is_none() {
            assert!(std::env::var_os("CI").is_none(), "{self:?} is not installed, and on CI no client may be missing");
            eprintln!("NOT RUN: {self:?} is not installed");
        }
        command
    }
}

/// Codex's own binary, in the package for this platform: the script before it would outlive a test that kills it.
fn codex(packages: &Path) -> Option<PathBuf> {
    let platforms = std::fs::read_dir(packages.join("@openai")).ok()?.flatten();
    let vendors = platforms.flat_map(|platform| std::fs::read_dir(platform.path().join("vendor")));
    vendors.flatten().flatten().map(|target| target.path().join("bin/codex")).find(|binary| binary.exists())
}

/// Where Chromium is, or nothing where there is none. Then `tests/setup` has said so, and on CI it is a failure.
#[track_caller]
pub(crate) fn chromium() -> Option<&'static Path> {
    let chromium = installed().chromium.as_path();
    if chromium.as_os_str().is_empty() {
        assert!(std::env::var_os("CI").is_none(), "Chromium is not installed, and on CI it may not be missing");
        eprintln!("NOT RUN: Chromium is not installed");
        return None;
    }
    Some(chromium)
}

/// Where `runsc` is, or nothing where there is none. Then `tests/setup` has said so, and on CI it is a failure.
#[track_caller]
pub(crate) fn runsc() -> Option<&'static Path> {
    let runsc = installed().runsc.as_path();
    if runsc.as_os_str().is_empty() {
        assert!(std::env::var_os("CI").is_none(), "gVisor is not installed, and on CI it may not be missing");
        eprintln!("NOT RUN: gVisor is not installed");
        return None;
    }
    Some(runsc)
}

fn path_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk").join(name)
}

/// On a bare machine with a slow line, minutes.
const INSTALLING: Duration = Duration::from_secs(900);

/// Installs what the tests need and this machine does not have.
#[track_caller]
pub(crate) fn install_what_is_missing() {
    installed();
}

/// Installs what is missing, once a run. Where nothing is, this takes some 20 ms.
fn installed() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/setup");
        let said = process::run_within(INSTALLING, process::command("sh").arg(setup), b"").success().stdout;
        let path = |name: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            PathBuf::from(line.unwrap_or_else(|| panic!("tests/setup does not say {name}: {said}")))
        };
        Installed {
            node: path("node"),
            python: path("python"),
            modules: path("packages"),
            chromium: path("chromium"),
            runsc: path("runsc"),
        }
    })
}
