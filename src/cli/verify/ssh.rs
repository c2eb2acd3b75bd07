//! `portcullis verify ssh`: the host of an SSH upstream is attacked with the upstream's own credential.

use super::{unknown_upstream, write};
use crate::cli::context::usage;
use crate::snapshot;
use crate::upstream::local::ssh_settings;
use clap::Args;
use portcullis_local::verify::{Finding, Report};
use portcullis_ssh::Settings;
use portcullis_ssh::settings::Credential;
use portcullis_ssh::verify::{ATTACKS, Attack, Error, verify};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

/// Which host, and how it is told.
#[derive(Args)]
pub(in crate::cli) struct Ssh {
    /// Only this upstream; without it, every SSH upstream of the configuration.
    #[arg(long)]
    upstream: Option<String>,
    /// Only this attack, by its name in docs/ssh-attacks.md; may be given several times.
    #[arg(long = "attack", value_name = "NAME")]
    attacks: Vec<String>,
    /// A further account of the host that the credential must not open; may be given several times.
    #[arg(long = "account", value_name = "NAME")]
    accounts: Vec<String>,
    /// As JSON, one document for each upstream.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(ssh: &Ssh, file: &Path) -> anyhow::Result<ExitCode> {
    if let Some(unknown) = ssh.attacks.iter().find(|attack| ATTACKS.iter().all(|known| known.id != attack.as_str())) {
        return Err(usage(format!("there is no attack `{unknown}`; docs/ssh-attacks.md has them all")));
    }
    // Nothing is started: the credential is used from this very process.
    let (_, snapshot) = snapshot::compile_file(file)?;
    let is_meant = |name: &str| ssh.upstream.as_deref().is_none_or(|only| only == name);
    let upstreams = snapshot.upstreams.iter().filter(|upstream| is_meant(&upstream.name));
    let hosts: Vec<&Settings> = upstreams.filter_map(|upstream| ssh_settings(upstream)).collect();
    if hosts.is_empty() {
        return Err(unknown_upstream("SSH upstream", ssh.upstream.as_deref()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut code = ExitCode::SUCCESS;
    for settings in hosts {
        match runtime.block_on(ssh.judge(settings)) {
            Ok(report) if report.is_good() => {}
            Ok(_) => code = ExitCode::FAILURE,
            Err(why) => {
                eprintln!("error: the host of `{}`: {why}", settings.name);
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

impl Ssh {
    async fn judge(&self, settings: &Settings) -> Result<Report, Error> {
        let Settings { name, host, credential, .. } = settings;
        let credential = match credential {
            Credential::Key { .. } => "key",
            Credential::Certificates { .. } => "certificates",
        };
        if !self.json {
            println!("{name} ({host}, {credential})");
        }
        let tell = |finding: &Finding| {
            if !self.json {
                write(finding);
            }
        };
        let is_meant = |attack: &Attack| self.attacks.is_empty() || self.attacks.iter().any(|only| only == attack.id);
        let report = verify(settings, &self.accounts, is_meant, tell).await?;
        if self.json {
            let host = host.to_string();
            println!(
                "{}",
                json!({ "upstream": name, "host": host, "credential": credential, "findings": report.findings })
            );
        } else {
            println!("{name}: {}", report.summary());
        }
        Ok(report)
    }
}
