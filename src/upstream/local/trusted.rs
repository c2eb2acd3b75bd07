//! Which files the configuration names, beside itself: those that hold secrets, and those whose word is taken.

use crate::config::{Config, SecretRef, Text, Upstream};
use std::path::{Component, Path, PathBuf};

/// Files whose word is taken, secrets included: whoever could write in one could change what the gateway does.
pub(super) fn files(config: &Config) -> Vec<&Path> {
    let mut files = secret_files(config);
    files.extend(config.tls.iter().map(|tls| tls.cert.as_path()));
    files.extend(config.admin.iter().filter_map(|admin| Some(admin.tls.as_ref()?.cert.as_path())));
    files.extend(config.identity.issuers.iter().filter_map(|issuer| issuer.tls.ca.as_deref()));
    files.extend(config.identity.clients.iter().filter_map(|client| client.jwks.as_deref()));
    files.extend(config.oauth.metadata_documents.ca.as_deref());
    files.extend(config.approvals.webhooks.iter().filter_map(|webhook| webhook.ca.as_deref()));
    for upstream in config.upstreams.values() {
        match upstream {
            Upstream::Http(http) => {
                let named = [&http.socket, &http.tls.ca, &http.tls.cert];
                files.extend(named.into_iter().filter_map(Option::as_deref));
            }
            Upstream::Sandbox(sandbox) => files.extend(sandbox.program.as_deref()),
            Upstream::Ssh(ssh) => files.extend([ssh.known_hosts.as_path(), ssh.actions.as_path()]),
        }
    }
    files
}

/// Files that hold secrets.
pub(super) fn secret_files(config: &Config) -> Vec<&Path> {
    let mut files: Vec<&Path> = config.tls.iter().map(|tls| tls.key.as_path()).collect();
    files.extend(config.admin.iter().filter_map(|admin| Some(admin.tls.as_ref()?.key.as_path())));
    let mut secrets: Vec<&SecretRef> = Vec::new();
    secrets.extend(config.metrics.iter().filter_map(|metrics| metrics.token.as_ref()));
    for webhook in &config.approvals.webhooks {
        secrets.push(&webhook.secret);
        secrets.extend(&webhook.former_secret);
    }
    for upstream in config.upstreams.values() {
        match upstream {
            Upstream::Http(http) => {
                files.extend(http.tls.key.as_deref());
                secrets.extend(http.headers.values().filter_map(|value| match value {
                    Text::From(secret) => Some(secret),
                    Text::Literal(_) => None,
                }));
            }
            Upstream::Sandbox(_) => {}
            Upstream::Ssh(ssh) => {
                secrets.extend(&ssh.key);
                secrets.extend(ssh.certificates.iter().map(|certificates| &certificates.authority));
            }
        }
    }
    files.extend(secrets.into_iter().filter_map(|secret| match secret {
        SecretRef::File(path) => Some(path.as_path()),
        SecretRef::Env(_) => None,
    }));
    files
}

/// Whether `file`, or a link on the way to it, stands in `folder`, whose links have been followed.
pub(super) fn stands_in(file: &Path, folder: &Path) -> bool {
    let stands = |part: &Path| match (part.parent(), part.file_name()) {
        (Some(parent), Some(name)) => real(parent).join(name).starts_with(folder),
        _ => false,
    };
    real(file).starts_with(folder) || file.ancestors().any(stands)
}

/// The path with links followed as far as it is there, and `..` taken out of the rest.
pub(super) fn real(path: &Path) -> PathBuf {
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
