//! From `upstreams.<name>.sandbox` to what its process is told.

use super::start::{Folder, Kind, Plan};
use crate::config::{self, Path, Problem, SandboxBackend, SandboxNetwork, SandboxUpstream, destination};
use portcullis_sandbox::settings::{Backend, Cgroup, Destination, Network, Settings};
use std::path::{Component, Path as FilePath, PathBuf};

/// What a sandbox is started with.
///
/// # Errors
/// Its workspace stands where secrets of the gateway are, or another sandbox's files.
pub(super) fn plan(
    name: &str,
    settings: &SandboxUpstream,
    loaded: &config::Loaded,
    at: &Path,
) -> Result<Plan, Vec<Problem>> {
    let workspace = loaded.resolve(&settings.workspace);
    if let Some(why) = misplaced(name, &workspace, loaded) {
        return Err(vec![Problem::new(at.key("workspace"), why).hint("give it a folder of its own")]);
    }
    Ok(Plan {
        name: name.to_owned(),
        kind: Kind::Sandbox(Box::new(described(name, settings, loaded))),
        user: settings.user.clone(),
        cgroup: settings.cgroup.clone(),
        folder: Folder { path: workspace },
        needs_scratch: settings.backend == SandboxBackend::Gvisor,
    })
}

/// As the process is told; where its cgroups are is not known before it is started.
fn described(name: &str, from: &SandboxUpstream, loaded: &config::Loaded) -> Settings {
    let program = from.program.as_ref().map(|program| loaded.resolve(program));
    let bytes = |size: config::ByteSize| size.bytes() as u64;
    Settings {
        name: name.to_owned(),
        backend: match from.backend {
            SandboxBackend::Bubblewrap => Backend::Bubblewrap { program },
            SandboxBackend::Gvisor => Backend::Gvisor { program },
        },
        network: network(&from.network),
        memory: bytes(from.memory),
        processes: from.processes,
        cpu_millis: from.cpu_percent.saturating_mul(10),
        tmp: bytes(from.tmp),
        quota: bytes(from.quota),
        reserve: bytes(from.reserve),
        timeout: from.timeout.duration(),
        longest: from.longest.duration(),
        output: bytes(from.output),
        at_once: from.at_once,
        read_only: from.read_only.clone(),
        environment: from.environment.clone(),
        cgroup: Cgroup::Off,
        scratch: None,
    }
}

fn network(from: &SandboxNetwork) -> Network {
    match from {
        SandboxNetwork::None => Network::None,
        SandboxNetwork::Allow(places) => {
            let places = places.iter().filter_map(|place| destination(place));
            Network::Allow(places.map(|(host, port)| Destination { host: host.to_owned(), port }).collect())
        }
    }
}

/// Why the workspace may not stand where it does. Whoever writes in it must not reach what the gateway trusts.
fn misplaced(name: &str, workspace: &FilePath, loaded: &config::Loaded) -> Option<String> {
    let workspace = real(workspace);
    let overlaps = |other: &FilePath| {
        let other = real(other);
        workspace.starts_with(&other) || other.starts_with(&workspace)
    };
    if overlaps(&loaded.resolve(&loaded.config.data_dir)) {
        return Some(
            "the workspace and `data_dir` may not stand in each other: the gateway's keys are there".to_owned(),
        );
    }
    if real(loaded.directory()).starts_with(&workspace) {
        return Some("the configuration stands in the workspace: agents could rewrite it".to_owned());
    }
    loaded.config.upstreams.iter().find_map(|(other, upstream)| match upstream {
        config::Upstream::Sandbox(settings) if other != name && overlaps(&loaded.resolve(&settings.workspace)) => {
            Some(format!("it is, or stands in, the workspace of `{other}`, or that stands in it"))
        }
        _ => None,
    })
}

/// The path with links followed as far as it is there, and `..` taken out of the rest.
fn real(path: &FilePath) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut known = absolute.as_path();
    let mut rest = Vec::new();
    loop {
        if let Ok(found) = known.canonicalize() {
            let mut found = found;
            for part in rest.into_iter().rev() {
                match part {
                    Component::ParentDir => _ = found.pop(),
                    part => found.push(part),
                }
            }
            return found;
        }
        match (known.components().next_back(), known.parent()) {
            (Some(last), Some(parent)) => {
                rest.push(last);
                known = parent;
            }
            _ => return absolute.clone(),
        }
    }
}
