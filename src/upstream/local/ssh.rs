//! From `upstreams.<name>.ssh` to what its process is told.

use crate::config::{self, Path, Problem, SshCertificates, SshUpstream};
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
    let host = Host::parse(&from.host).map_err(|why| problems.push(Problem::new(at.key("host"), why))).ok();
    let credential = credential(from, loaded, at, &mut problems);
    let mut read = |path, at| text(path, loaded).map_err(|why| problems.push(Problem::new(at, why))).ok();
    let known_hosts = read(&from.known_hosts, at.key("known_hosts"));
    let actions = read(&from.actions, at.key("actions"));
    if let (Some(host), Some(text)) = (&host, &known_hosts)
        && let Err(why) = Pinned::of(text, host)
    {
        problems.push(Problem::new(at.key("known_hosts"), why));
    }
    if let Some(text) = &actions
        && let Err(fault) = Actions::parse(text)
    {
        let line = fault.line.map(|line| format!(":{line}")).unwrap_or_default();
        problems.push(Problem::new(at.key("actions"), format!("{}{line}: {fault}", from.actions.display())));
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

fn credential(
    from: &SshUpstream,
    loaded: &config::Loaded,
    at: &Path,
    problems: &mut Vec<Problem>,
) -> Option<Credential> {
    let (place, at) = match (&from.key, &from.certificates) {
        (Some(key), None) => (key, at.key("key")),
        (None, Some(certificates)) => (&certificates.authority, at.key("certificates").key("authority")),
        _ => {
            problems.push(Problem::new(at.clone(), "exactly one of `key` and `certificates` opens the host"));
            return None;
        }
    };
    let private = match place.resolve(loaded.directory()) {
        Ok(private) => private.expose().clone(),
        Err(why) => {
            problems.push(why.at(at));
            return None;
        }
    };
    let credential = match &from.certificates {
        None => Credential::Key { private },
        Some(SshCertificates { authority: _, principal, source, lifetime }) => Credential::Certificates {
            authority: private,
            principal: principal.clone(),
            source: source.clone(),
            lifetime: lifetime.duration(),
        },
    };
    // The rest of what it says was looked at with the file (`config::check`).
    credential.check().map(|()| credential).map_err(|why| problems.push(Problem::new(at, why))).ok()
}

fn text(path: &FilePath, loaded: &config::Loaded) -> Result<String, String> {
    let path = loaded.resolve(path);
    let fault = |why: String| format!("cannot read `{}`: {why}", path.display());
    let about = std::fs::metadata(&path).map_err(|why| fault(why.to_string()))?;
    if !about.is_file() || about.len() > FILE_MAX {
        return Err(fault(format!("no file of at most {FILE_MAX} bytes")));
    }
    std::fs::read_to_string(&path).map_err(|why| fault(why.to_string()))
}
