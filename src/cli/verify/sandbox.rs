//! `portcullis verify sandbox`: commands of a sandbox attack it from inside.

use super::{unknown_upstream, write};
use crate::cli::context::usage;
use crate::metrics::Metrics;
use crate::server::OPERATOR_SOCKET;
use crate::snapshot;
use crate::upstream::local::{Visitor, supervised};
use crate::upstream::{Shared, Upstream};
use crate::{config, id};
use anyhow::{Context as _, anyhow};
use clap::Args;
use portcullis_sandbox::settings::Backend;
use portcullis_sandbox::verify::{Bare, CLAIMS, Claim, Confined, Gateway, Outside, Report, Tools, verify};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;

/// Which sandbox, and how it is told.
#[derive(Args)]
pub(in crate::cli) struct Sandbox {
    /// Only this upstream; without it, every sandbox of the configuration.
    #[arg(long)]
    upstream: Option<String>,
    /// Only this claim, by its name in docs/sandbox-claims.md; may be given several times.
    #[arg(long = "claim", value_name = "NAME")]
    claims: Vec<String>,
    /// As JSON, one document for each upstream.
    #[arg(long)]
    json: bool,
    /// Judge the control as if it were confined. Whatever can be done outside must FAIL: this verifies the verifier.
    #[arg(long)]
    without_confinement: bool,
}

/// What stands in our environment and must stand in no command's.
const CANARY: &str = "PORTCULLIS_VERIFY_CANARY";

pub(super) fn run(sandbox: &Sandbox, file: &Path) -> anyhow::Result<ExitCode> {
    if let Some(unknown) = sandbox.claims.iter().find(|claim| CLAIMS.iter().all(|known| known.id != claim.as_str())) {
        return Err(usage(format!("there is no claim `{unknown}`; docs/sandbox-claims.md has them all")));
    }
    let secret = with_canary()?;
    let (loaded, snapshot) = snapshot::compile_file(file)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shared = Shared::new(Arc::new(Metrics::new()))?;
    let is_meant = |upstream: &&Arc<Upstream>| sandbox.upstream.as_deref().is_none_or(|only| *only == *upstream.name);
    let mut visits = Vec::new();
    for upstream in snapshot.upstreams.iter().filter(is_meant) {
        let visitor = Visitor::new(upstream, &shared, "verify");
        if let Some(visitor) = visitor.filter(|visitor| visitor.settings().is_some()) {
            // What is put up is there before any upstream is started: it might inherit some of it.
            let outside = Outside::new().context("nothing can be put up to be attacked")?;
            visits.push((&upstream.name, visitor, outside));
        }
    }
    if visits.is_empty() {
        return Err(unknown_upstream("sandbox", sandbox.upstream.as_deref()));
    }
    let judging = async {
        let mut code = ExitCode::SUCCESS;
        for (name, visitor, outside) in visits {
            match sandbox.judge(name, &visitor, outside, &loaded, &secret).await {
                Ok(report) if report.is_good() => {}
                Ok(_) => code = ExitCode::FAILURE,
                Err(why) => {
                    eprintln!("error: the sandbox `{name}`: {why:#}");
                    code = ExitCode::FAILURE;
                }
            }
        }
        code
    };
    Ok(runtime.block_on(supervised(&snapshot.upstreams, &shared, judging)))
}

/// What stands in our environment. A process cannot change how it was started, so it starts again.
fn with_canary() -> anyhow::Result<String> {
    if let Ok(canary) = std::env::var(CANARY) {
        return Ok(canary);
    }
    #[expect(clippy::disallowed_methods, reason = "this very program again")]
    let mut again = Command::new("/proc/self/exe");
    again.arg0("portcullis").args(std::env::args_os().skip(1)).env(CANARY, id::unguessable("canary-"));
    if std::env::var_os("RUST_LOG").is_none() {
        // Each refusal is in the report; the upstream's log would say it again.
        again.env("RUST_LOG", "error");
    }
    let error = again.exec();
    Err(error).context("this program cannot be started again")
}

/// The upstream's tools, without a gateway between.
struct Called<'a>(&'a Visitor<'a>);

impl Tools for Called<'_> {
    async fn call_tool(&self, tool: &str, arguments: Value) -> Result<Value, String> {
        self.0.call(tool, arguments).await.map_err(|error| error.to_string())
    }
}

impl Sandbox {
    async fn judge(
        &self,
        name: &str,
        visitor: &Visitor<'_>,
        mut outside: Outside,
        loaded: &config::Loaded,
        secret: &str,
    ) -> anyhow::Result<Report> {
        visitor.up().await?;
        let settings = visitor.settings().ok_or_else(|| anyhow!("it is no sandbox"))?;
        let user = visitor.account().map_err(anyhow::Error::msg)?;
        outside.aim(&Gateway {
            settings,
            user,
            operator_socket: &loaded.resolve(&loaded.config.data_dir).join(OPERATOR_SOCKET),
            upstream_socket: &visitor.socket(),
            cgroups: &visitor.cgroups(),
            secret,
        })?;
        let control = Bare::new(user, &outside.bare())?;
        let backend = match settings.backend {
            Backend::Bubblewrap { .. } => "bubblewrap",
            Backend::Gvisor { .. } => "gvisor",
        };
        if !self.json {
            let how = if self.without_confinement { "WITHOUT ITS CONFINEMENT" } else { backend };
            println!("{name} ({how})");
        }
        let tell = |finding: &_| {
            if !self.json {
                write(finding);
            }
        };
        let is_meant = |claim: &Claim| self.claims.is_empty() || self.claims.iter().any(|only| only == claim.id);
        let report = if self.without_confinement {
            verify(&control, &control, &outside, None, &is_meant, tell).await
        } else {
            let confined = Confined::new(Called(visitor));
            verify(&confined, &control, &outside, Some(&settings.backend), &is_meant, tell).await
        };
        if self.json {
            let confined = !self.without_confinement;
            println!(
                "{}",
                json!({ "upstream": name, "backend": backend, "confined": confined, "findings": report.findings })
            );
        } else {
            println!("{name}: {}", report.summary());
        }
        Ok(report)
    }
}
