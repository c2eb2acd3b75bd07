//! From `upstreams.<name>.sandbox` to what its process is told.

use super::start::{Folder, Kind, Plan};
use super::trusted::{self, real, secret_files, stands_in};
use crate::config::{self, Path, Problem, SandboxBackend, SandboxNetwork, SandboxUpstream, destination};
use portcullis_sandbox::settings::{Backend, Cgroup, Destination, Network, Settings};
use std::path::{Path as FilePath, PathBuf};

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
    let shown = shown(settings, &workspace, loaded);
    if !shown.is_empty() {
        return Err(shown.into_iter().map(|(key, why)| Problem::new(at.key(key), why)).collect());
    }
    Ok(Plan {
        name: name.to_owned(),
        kind: Kind::Sandbox(Box::new(described(name, settings, loaded))),
        user: settings.user.clone(),
        cgroup: Some(settings.cgroup.clone()),
        memory_total: settings.memory_total.map(|size| size.bytes() as u64),
        folder: Some(Folder { path: workspace }),
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
    let trusted = trusted::files(&loaded.config).into_iter().map(|file| loaded.resolve(file));
    if let Some(file) = trusted.into_iter().find(|file| stands_in(file, &workspace)) {
        return Some(format!("`{}` stands in the workspace: agents could read and rewrite it", file.display()));
    }
    loaded.config.upstreams.iter().find_map(|(other, upstream)| match upstream {
        config::Upstream::Sandbox(settings) if other != name && overlaps(&loaded.resolve(&settings.workspace)) => {
            Some(format!("it is, or stands in, the workspace of `{other}`, or that stands in it"))
        }
        _ => None,
    })
}

/// What every command could read, and no agent may: read-only is not hidden. With the key that it is about.
fn shown(settings: &SandboxUpstream, workspace: &FilePath, loaded: &config::Loaded) -> Vec<(&'static str, String)> {
    let ours = [
        ("`data_dir`, where the gateway's keys are,", loaded.resolve(&loaded.config.data_dir)),
        ("the workspace, with everybody's files,", workspace.to_owned()),
        ("the folder of the configuration", loaded.directory().to_owned()),
    ];
    let secrets =
        secret_files(&loaded.config).into_iter().map(|file| ("a secret of the configuration", loaded.resolve(file)));
    let ours: Vec<_> = ours.into_iter().chain(secrets).map(|(what, path)| (what, real(&path))).collect();
    let usr = [("workspace", PathBuf::from("/usr"))];
    let bound = usr.into_iter().chain(settings.read_only.iter().map(|folder| ("read_only", real(folder))));
    let mut shown = Vec::new();
    for (key, bound) in bound {
        let seen =
            ours.iter().filter(|(_, path)| path.starts_with(&bound) || (key == "read_only" && bound.starts_with(path)));
        shown.extend(seen.map(|(what, path)| {
            let (bound, path) = (bound.display(), path.display());
            (key, format!("every command sees {bound}, and {what} would be seen with it ({path})"))
        }));
    }
    shown
}
