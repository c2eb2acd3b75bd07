//! The gateway of a test: the real binary, with its configuration, its data and its log in a folder of its own.

use super::agent::Agent;
use super::http::{Connection, Request, Response};
use super::process::{self, Finished, Server};
use super::recorder::Recorder;
use serde_json::Value;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use tempfile::TempDir;

/// What is added to a configuration that does not say it itself. At the end, so that line numbers stay the test's own.
const DEFAULTS: &[(&str, &str)] = &[
    ("listen:", "listen: 127.0.0.1:0\n"),
    ("metrics:", "metrics: { listen: 127.0.0.1:0 }\n"),
    ("data_dir:", "data_dir: data\n"),
    ("identity:", IDENTITY),
];

/// The people of a configuration that names none.
pub(crate) const IDENTITY: &str = concat!(
    "identity:\n  users:\n",
    "    - { name: alice, groups: [admins, ops], password_hash: \"$argon2id$v=19$m=19456,t=2,p=1",
    "$c2FsdC1vZi1hbGljZS0wMQ$RIgSXgcpy6dPFN530lQyNSFbf3OwFt3/2mUG400ua7o\" }\n",
    "    - { name: bob, groups: [ops], password_hash: \"$argon2id$v=19$m=19456,t=2,p=1",
    "$c2FsdC1vZi1ib2ItMDAwMQ$4d/FVgaWBrPIt8VfWkqhns6YugKL+YeeG395NvVRND4\" }\n",
);

/// The password of a user the harness fills in.
pub(crate) fn password(user: &str) -> String {
    format!("{user} opens the gate")
}

/// A gateway that is about to start.
pub(crate) struct Launch {
    dir: TempDir,
    env: Vec<(String, String)>,
    /// A command that starts the gateway, which is what follows these words.
    within: Vec<String>,
}

/// A running gateway; it ends with the test.
pub(crate) struct Gateway {
    /// Its agent listener.
    pub(crate) agent: SocketAddr,
    /// Its metrics listener, unless the configuration has none.
    pub(crate) metrics: Option<SocketAddr>,
    /// Its admin listener, where the configuration has one.
    pub(crate) admin: Option<SocketAddr>,
    server: Server,
    has_stopped: bool,
    launch: Launch,
}

// === impl Launch ===

impl Launch {
    /// A gateway with this configuration.
    pub(crate) fn new(yaml: &str) -> Launch {
        let launch = Launch { dir: TempDir::new().expect("a temporary folder"), env: Vec::new(), within: Vec::new() };
        launch.file("gateway.yaml", completed(yaml))
    }

    /// With a file beside its configuration.
    pub(crate) fn file(self, name: &str, contents: impl AsRef<[u8]>) -> Launch {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it stands in the folder")).expect("the folder is ours");
        std::fs::write(path, contents).expect("the folder is ours");
        self
    }

    /// With an environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Launch {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Started by this command, such as a confinement; commands of the program are not.
    pub(crate) fn within(mut self, words: &[&str]) -> Launch {
        self.within = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Starts it and waits until it is ready.
    #[track_caller]
    pub(crate) fn start(self) -> Gateway {
        self.try_start().unwrap_or_else(|said| panic!("the gateway did not start: {said}"))
    }

    /// Starts it, or gives what it said before it ended.
    pub(crate) fn try_start(self) -> Result<Gateway, String> {
        let mut serve = self.started_within();
        let mut server =
            Server::spawn("the gateway", serve.arg("serve").arg("--config").arg(self.path("gateway.yaml")));
        let ready = server.line("ready ")?;
        let address = |name: &str| {
            let url = ready.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix("=http://"));
            url.map(|address| address.parse().expect("an address and a port"))
        };
        let agent = address("agent").ok_or_else(|| format!("`ready {ready}` does not name the agent listener"))?;
        let (metrics, admin) = (address("metrics"), address("admin"));
        Ok(Gateway { agent, metrics, admin, server, has_stopped: false, launch: self })
    }

    /// A path in the gateway's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command of the program on this configuration.
    #[track_caller]
    pub(crate) fn cli(&self, arguments: &[&str]) -> Finished {
        let mut command = self.portcullis();
        process::run(command.arg("--config").arg(self.path("gateway.yaml")).args(arguments), b"")
    }

    /// Runs a command of the program on this configuration at a terminal, where somebody types `input`. Both its outputs come
    /// as one.
    #[track_caller]
    pub(crate) fn at_terminal(&self, arguments: &[&str], input: &str) -> Finished {
        let quoted = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
        let file = self.path("gateway.yaml");
        let file = file.to_str().expect("temporary paths are UTF-8");
        let words = [&[env!("CARGO_BIN_EXE_portcullis"), "--config", file], arguments].concat();
        let line: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        let mut script = process::command("script");
        script.args(["-q", "-e", "-c", &line.join(" "), "/dev/null"]).current_dir(self.dir.path());
        process::run(&mut script, input.as_bytes())
    }

    /// Starts a command of the program on this configuration that runs beside the test.
    #[track_caller]
    pub(crate) fn spawn(&self, name: &str, arguments: &[&str]) -> Server {
        let mut command = self.portcullis();
        Server::spawn(name, command.arg("--config").arg(self.path("gateway.yaml")).args(arguments))
    }

    fn portcullis(&self) -> std::process::Command {
        self.of(process::command(env!("CARGO_BIN_EXE_portcullis")))
    }

    fn started_within(&self) -> std::process::Command {
        let Some((program, words)) = self.within.split_first() else {
            return self.portcullis();
        };
        let mut command = process::command(program);
        command.args(words).arg(env!("CARGO_BIN_EXE_portcullis"));
        self.of(command)
    }

    fn of(&self, mut command: std::process::Command) -> std::process::Command {
        command.current_dir(self.dir.path()).envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// What stands in the audit log of the gateway with this `data_dir` where `value` is not to be read.
pub(crate) fn tag(data_dir: &Path, value: &[u8]) -> String {
    let key = std::fs::read(data_dir.join("keys/session.key")).expect("a gateway that ran has a key");
    let redactor = portcullis::redact::Redactor::new(key.as_slice().try_into().expect("32 bytes"));
    redactor.tag(value).as_str().to_owned()
}

/// The configuration with what the harness adds.
fn completed(yaml: &str) -> String {
    let mut text = yaml.to_owned();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    for (key, default) in DEFAULTS {
        if !yaml.lines().any(|line| line.starts_with(key)) {
            text.push_str(default);
        }
    }
    text
}

// === impl Gateway ===

impl Gateway {
    /// A running gateway with this configuration. Where it does not say them: free ports, a data folder, and the users
    /// `alice` (groups `admins`, `ops`) and `bob` (`ops`).
    #[track_caller]
    pub(crate) fn start(yaml: &str) -> Gateway {
        Launch::new(yaml).start()
    }

    /// A running gateway in front of this recorder as upstream `up`, with these rules (the list under `policy.rules`).
    #[track_caller]
    pub(crate) fn in_front_of(recorder: &Recorder, rules: &str) -> Gateway {
        Gateway::start(&in_front_of(&recorder.url(), rules))
    }

    /// The URL of a route.
    pub(crate) fn url(&self, route: &str) -> String {
        format!("http://{}/mcp/{route}", self.agent)
    }

    /// A token for this user and route, made by the real command.
    #[track_caller]
    pub(crate) fn token(&self, user: &str, route: &str) -> String {
        self.issue(user, route, &["--ttl", "1h"]).success().stdout.trim().to_owned()
    }

    /// `token issue` with further arguments.
    #[track_caller]
    pub(crate) fn issue(&self, user: &str, route: &str, more: &[&str]) -> Finished {
        let file = self.password_file(user);
        let file = file.to_str().expect("temporary paths are UTF-8");
        let base = ["token", "issue", "--user", user, "--route", route, "--password-file", file];
        self.cli(&[&base, more].concat())
    }

    /// A file with this user's password, for commands that ask for it.
    pub(crate) fn password_file(&self, user: &str) -> PathBuf {
        let path = self.path(&format!("password-{user}"));
        std::fs::write(&path, password(user)).expect("the folder is ours");
        path
    }

    /// A client of this route, with a token of this user.
    #[track_caller]
    pub(crate) fn agent(&self, user: &str, route: &str) -> Agent {
        Agent::new(self.agent, route, self.token(user, route))
    }

    /// A client of this route, with a token that was made before.
    pub(crate) fn agent_with(&self, token: &str, route: &str) -> Agent {
        Agent::new(self.agent, route, token.to_owned())
    }

    /// Runs a command at a terminal, where somebody types `input`. Both its outputs come as one.
    #[track_caller]
    pub(crate) fn at_terminal(&self, arguments: &[&str], input: &str) -> Finished {
        self.launch.at_terminal(arguments, input)
    }

    /// Runs a command of the program on this configuration.
    #[track_caller]
    pub(crate) fn cli(&self, arguments: &[&str]) -> Finished {
        self.launch.cli(arguments)
    }

    /// Writes another configuration, completed as the first one was. It is not in force before a reload.
    pub(crate) fn rewrite(&self, yaml: &str) {
        self.rewrite_raw(completed(yaml));
    }

    /// Writes these bytes as the configuration.
    pub(crate) fn rewrite_raw(&self, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path("gateway.yaml"), bytes).expect("the folder is ours");
    }

    /// `portcullis reload`.
    #[track_caller]
    pub(crate) fn reload(&self) -> Finished {
        self.cli(&["reload"])
    }

    /// Every record of the audit log so far: of all that happened before its answer went out, at the least. How an exchange
    /// ended is recorded after that.
    #[track_caller]
    pub(crate) fn audit(&self) -> Vec<Value> {
        let parse =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in audit record {line}"));
        // A line that is just being written is not there yet.
        let whole = |text: &str| text.rfind('\n').map_or("", |end| &text[..end]).to_owned();
        let files = self.audit_files();
        files.iter().flat_map(|text| whole(text).lines().map(parse).collect::<Vec<_>>()).collect()
    }

    /// The audit log as it stands on the disk.
    #[track_caller]
    pub(crate) fn audit_text(&self) -> String {
        self.audit_files().concat()
    }

    /// Its files, in the order they were begun: commands have files of their own.
    #[track_caller]
    fn audit_files(&self) -> Vec<String> {
        self.wait_until_written();
        let mut files = Vec::new();
        jsonl_files(&self.path("data/audit"), &mut files);
        files.sort();
        files.iter().map(|file| std::fs::read_to_string(file).expect("the audit log is readable")).collect()
    }

    /// Waits until no record is on its way into the file. A gateway that does not answer has none, and one that cannot
    /// write keeps them.
    #[track_caller]
    fn wait_until_written(&self) {
        let Some(metrics) = self.metrics else { return };
        let is_settled = |text: &str| {
            text.lines().any(|line| matches!(line, "portcullis_audit_queue_records 0" | "portcullis_audit_available 0"))
        };
        super::wait_for("the records on their way", || {
            Request::get("/metrics").answer_of(metrics).map_or(true, |answer| is_settled(&answer.text()))
        });
    }

    /// An answer of the metrics listener.
    #[track_caller]
    pub(crate) fn observe(&self, path: &str) -> Response {
        Request::get(path).send(self.metrics.expect("the metrics listener is configured"))
    }

    /// The value of one sample of `/metrics`, written as there (`name{label="value"}`); 0 when it is not there.
    #[track_caller]
    pub(crate) fn metric(&self, sample: &str) -> f64 {
        let text = self.observe("/metrics").text();
        let value = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.trim().parse().expect("a sample is a number"))
    }

    /// Waits until this sample is at least so high. An exchange is counted after its answer has gone out: who has the answer
    /// may be there sooner than the count.
    #[track_caller]
    pub(crate) fn wait_for_metric(&self, sample: &str, at_least: f64) {
        super::wait_for(&format!("{sample} at {at_least}"), || self.metric(sample) >= at_least);
    }

    /// Waits until the gateway has asked this upstream for its tools, well or in vain: from then on nothing goes there
    /// but what a test sends.
    #[track_caller]
    pub(crate) fn wait_until_asked(&self, upstream: &str) {
        let sample = format!("portcullis_upstream_up{{upstream=\"{upstream}\"}} ");
        super::wait_for(&sample, || self.observe("/metrics").text().contains(&sample));
    }

    /// What the gateway answers over the operator's socket.
    #[track_caller]
    pub(crate) fn operate(&self, method: &str, path: &str) -> Value {
        let stream = UnixStream::connect(self.path("data/operator.sock")).expect("the operator's socket is there");
        let mut connection = Connection::on(stream);
        connection.send(&Request::new(method, path).to_bytes("operator"));
        connection.response().json()
    }

    /// The configuration in force, by the start of its hash.
    #[track_caller]
    pub(crate) fn snapshot(&self) -> String {
        self.operate("GET", "/status")["snapshot"].as_str().expect("a hash").to_owned()
    }

    /// A path in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.launch.path(name)
    }

    /// Everything it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.server.log()
    }

    /// Waits until it has logged this.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str) {
        self.server.wait_for_log(text);
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.server.id()
    }

    /// Sends it a signal, by name.
    #[track_caller]
    pub(crate) fn signal(&self, signal: &str) {
        self.server.signal(signal);
    }

    /// Asks it to stop, and waits.
    #[track_caller]
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.has_stopped = true;
        self.signal("TERM");
        self.server.wait()
    }

    /// Waits until it has died of itself, and starts it again on the same folder, without the environment it had.
    #[track_caller]
    pub(crate) fn restart_after_death(mut self) -> Gateway {
        self.has_stopped = true;
        self.server.wait();
        let empty = Launch { dir: TempDir::new().expect("a temporary folder"), env: Vec::new(), within: Vec::new() };
        let mut launch = std::mem::replace(&mut self.launch, empty);
        launch.env.clear();
        launch.start()
    }

    /// Kills it without a warning and starts it again on the same folder (and, with `listen: 127.0.0.1:0`, another port).
    #[track_caller]
    pub(crate) fn crash_and_restart(mut self) -> Gateway {
        self.has_stopped = true;
        self.signal("KILL");
        self.server.wait();
        let empty = Launch { dir: TempDir::new().expect("a temporary folder"), env: Vec::new(), within: Vec::new() };
        std::mem::replace(&mut self.launch, empty).start()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if self.has_stopped || std::thread::panicking() {
            return;
        }
        if let Some(status) = self.server.ended() {
            panic!("the gateway died during the test ({status}):\n{}", self.server.log());
        }
    }
}

/// The configuration of a gateway in front of this URL as upstream `up`, with these rules (the list under `policy.rules`).
pub(crate) fn in_front_of(url: &str, rules: &str) -> String {
    let rules: String = rules.trim_matches('\n').lines().map(|line| format!("    {line}\n")).collect();
    format!("upstreams:\n  up: {{ http: {{ url: \"{url}\" }} }}\npolicy:\n  rules:\n{rules}")
}

fn jsonl_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            jsonl_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "jsonl") {
            into.push(path);
        }
    }
}
