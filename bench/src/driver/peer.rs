//! Who is compared, and how each is started.

use crate::process::{Running, free_address, output};
use anyhow::Context as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// One of those who are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Nothing in between.
    Direct,
    /// nginx as a plain proxy.
    Nginx,
    /// pingora's own proxy.
    Bare,
    /// The gateway as it comes.
    Gateway,
    /// The gateway with `audit: { sync: relaxed }`.
    Relaxed,
    /// The gateway, reaching the server over HTTP/2.
    Http2,
    /// A build of the gateway that records nothing.
    Unrecorded,
    /// The same, with calls gathered as they are to be recorded.
    Gathered,
}

impl Kind {
    /// Those of the tables. `Http2` has a server of its own and is asked for.
    pub(crate) const ALL: [Kind; 5] = [Kind::Direct, Kind::Nginx, Kind::Bare, Kind::Gateway, Kind::Relaxed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Direct => "direct",
            Kind::Nginx => "nginx",
            Kind::Bare => "bare pingora",
            Kind::Gateway => "portcullis",
            Kind::Relaxed => "portcullis, relaxed",
            Kind::Http2 => "portcullis, HTTP/2 upstream",
            Kind::Unrecorded => "without the log",
            Kind::Gathered => "without the log, gathered",
        }
    }
}

/// Where things are.
pub(crate) struct Places {
    /// The gateway's program.
    pub(crate) gateway: PathBuf,
    /// The folder of the programs of this workspace.
    pub(crate) programs: PathBuf,
    /// Everything that is written goes here.
    pub(crate) work: PathBuf,
}

/// A peer that runs.
pub(crate) struct Peer {
    pub(crate) kind: Kind,
    /// `None`: there is nothing in between.
    pub(crate) process: Option<Running>,
    pub(crate) address: SocketAddr,
    pub(crate) path: &'static str,
    pub(crate) token: Option<String>,
}

impl Peer {
    /// Starts one, with `prefix` before its command, and waits until it accepts connections.
    pub(crate) fn start(
        kind: Kind,
        upstream: SocketAddr,
        places: &Places,
        prefix: &[String],
        cpu: Option<usize>,
    ) -> anyhow::Result<Peer> {
        if kind == Kind::Direct {
            return Ok(Peer { kind, process: None, address: upstream, path: "/mcp", token: None });
        }
        let address = free_address()?;
        let dir = places.work.join(format!("{}-{}", kind.name().replace([' ', ',', '/'], ""), address.port()));
        std::fs::create_dir_all(&dir)?;
        let (command, path, token) = match kind {
            Kind::Gateway | Kind::Relaxed | Kind::Http2 | Kind::Unrecorded | Kind::Gathered => {
                let config = gateway_config(kind, address, upstream, &dir)?;
                let token = token(&places.gateway, &config, &dir)?;
                (vec![text(&places.gateway), "--config".into(), config, "serve".into()], "/mcp/up", Some(token))
            }
            Kind::Nginx => (nginx(address, upstream, &dir)?, "/mcp", None),
            _ => {
                let program = text(&places.programs.join("bench-bare"));
                (vec![program, address.to_string(), upstream.to_string()], "/mcp", None)
            }
        };
        let with_env = |variable: &str| [&["env".to_owned(), variable.to_owned()], prefix, &command].concat();
        let command = match kind {
            Kind::Unrecorded => with_env("PORTCULLIS_MEASURE=no-audit"),
            Kind::Gathered => with_env("PORTCULLIS_MEASURE=no-audit-gathered"),
            // The gateway does without huge pages (`src/cli/serve.rs`); so shall what it is compared with.
            Kind::Bare => with_env("MIMALLOC_ALLOW_THP=0"),
            _ => [prefix, &command].concat(),
        };
        let mut process = Running::start(kind.name(), command, cpu, &dir.join("log"))?;
        let said = || format!("its log is {}", dir.join("log").display());
        process.wait_for(address).with_context(said)?;
        Ok(Peer { kind, process: Some(process), address, path, token })
    }
}

/// The stub, which says where it listens.
pub(crate) fn start_stub(places: &Places, is_h2: bool, cpu: Option<usize>) -> anyhow::Result<(Running, SocketAddr)> {
    let mut command = vec![text(&places.programs.join("bench-stub"))];
    if is_h2 {
        command.extend(["--h2", "yes"].map(str::to_owned));
    }
    let mut stub = Running::start("the stub", command, cpu, &places.work.join("stub.log"))?;
    let line = stub.line()?;
    let address = line.strip_prefix("ready ").context("the stub says where it listens")?.parse()?;
    Ok((stub, address))
}

fn gateway_config(kind: Kind, address: SocketAddr, upstream: SocketAddr, dir: &Path) -> anyhow::Result<String> {
    let template = include_str!("../../peers/portcullis.yaml");
    let mut config = placed(template, address, upstream);
    config = config.replace("127.0.0.1:18082", &free_address()?.to_string());
    match kind {
        Kind::Relaxed => config.push_str("audit: { sync: relaxed }\n"),
        Kind::Http2 => config = config.replace("/mcp } }", "/mcp, http2: true } }"),
        _ => {}
    }
    let file = dir.join("gateway.yaml");
    std::fs::write(&file, config)?;
    Ok(text(&file))
}

/// A person, and a token of theirs, made by the commands that a person would use.
fn token(gateway: &Path, config: &str, dir: &Path) -> anyhow::Result<String> {
    let password = dir.join("password");
    std::fs::write(&password, "the keeper of the bench\n")?;
    let (gateway, password) = (text(gateway), text(&password));
    let with_password = |arguments: &[&str]| {
        let all = [&["--config", config], arguments, &["--password-file", &password]].concat();
        output(&gateway, &all)
    };
    with_password(&["user", "add", "bench"])?;
    with_password(&["token", "issue", "--user", "bench", "--route", "up", "--ttl", "12h"])
}

fn nginx(address: SocketAddr, upstream: SocketAddr, dir: &Path) -> anyhow::Result<Vec<String>> {
    let file = dir.join("nginx.conf");
    std::fs::write(&file, placed(include_str!("../../peers/nginx.conf"), address, upstream))?;
    Ok(["nginx", "-p", &text(dir), "-e", "stderr", "-c", &text(&file)].map(str::to_owned).to_vec())
}

fn placed(template: &str, address: SocketAddr, upstream: SocketAddr) -> String {
    template.replace("127.0.0.1:18080", &address.to_string()).replace("127.0.0.1:18081", &upstream.to_string())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
