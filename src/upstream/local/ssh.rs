//! From `upstreams.<name>.ssh` to what its process is told.

use crate::config::{self, Path, Problem, SecretRef, SshUpstream};
use portcullis_ssh::actions::Actions;
use portcullis_ssh::known_hosts::Pinned;
use portcullis_ssh::settings::{Credential, Host, Settings};
use std::path::Path as FilePath;

/// The largest `known_hosts` or actions file, in bytes: settings are handed over whole.
const FILE_MAX: u64 = 256 * 1024;

/// What the process is told. Its files are read here, so that what is wrong with them is said before anything runs, and so
/// that a reload sees what has changed in them.
///
/// # Errors
/// Everything about it that cannot be used.
pub(super) fn settings(
    name: &str,
    from: &SshUpstream,
    loaded: &config::Loaded,
    at: &Path,
) -> Result<Settings, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut keep = |problem: Problem| problems.push(problem);
    let host = Host::parse(&from.host).map_err(|why| keep(Problem::new(at.key("host"), why))).ok();
    let credential = credential(from, loaded, at).map_err(&mut keep).ok();
    let known_hosts = text(&from.known_hosts, loaded, &at.key("known_hosts")).map_err(&mut keep).ok();
    let actions = text(&from.actions, loaded, &at.key("actions")).map_err(&mut keep).ok();
    if let (Some(host), Some(text)) = (&host, &known_hosts)
        && let Err(why) = Pinned::of(text, host)
    {
        keep(Problem::new(at.key("known_hosts"), why));
    }
    if let Some(text) = &actions
        && let Err(fault) = Actions::parse(text)
    {
        let line = fault.line.map(|line| format!(":{line}")).unwrap_or_default();
        keep(Problem::new(at.key("actions"), format!("{}{line}: {fault}", from.actions.display())));
    }
    let (Some(host), Some(credential), Some(known_hosts), Some(actions), true) =
        (host, credential, known_hosts, actions, problems.is_empty())
    else {
        return Err(problems);
    };
    Ok(Settings {
        name: name.to_owned(),
        host,
        credential,
        known_hosts,
        actions,
        connect: from.connect.duration(),
        keep_alive: from.keep_alive.duration(),
        idle: from.idle.duration(),
        at_once: from.at_once,
    })
}

fn credential(from: &SshUpstream, loaded: &config::Loaded, at: &Path) -> Result<Credential, Problem> {
    let secret = |place: &SecretRef, at: Path| {
        place.resolve(loaded.directory()).map(|secret| secret.expose().clone()).map_err(|why| why.at(at))
    };
    let (credential, at) = match (&from.key, &from.certificates) {
        (Some(key), None) => {
            let at = at.key("key");
            (Credential::Key { private: secret(key, at.clone())? }, at)
        }
        (None, Some(from)) => {
            let at = at.key("certificates").key("authority");
            let credential = Credential::Certificates {
                authority: secret(&from.authority, at.clone())?,
                principal: from.principal.clone(),
                source: from.source.clone(),
                lifetime: from.lifetime.duration(),
            };
            (credential, at)
        }
        _ => return Err(Problem::new(at.clone(), "exactly one of `key` and `certificates` opens the host")),
    };
    // The rest of what it says was looked at with the file (`config::check`).
    credential.check().map(|()| credential).map_err(|why| Problem::new(at, why))
}

fn text(path: &FilePath, loaded: &config::Loaded, at: &Path) -> Result<String, Problem> {
    let path = loaded.resolve(path);
    let fault = |why: String| Problem::new(at.clone(), format!("cannot read `{}`: {why}", path.display()));
    let about = std::fs::metadata(&path).map_err(|why| fault(why.to_string()))?;
    if !about.is_file() || about.len() > FILE_MAX {
        return Err(fault(format!("no file of at most {FILE_MAX} bytes")));
    }
    std::fs::read_to_string(&path).map_err(|why| fault(why.to_string()))
}
