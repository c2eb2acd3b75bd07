//! Where and how an upstream is reached, as one digest: what a person approved is not sent anywhere else.
//!
//! Made of configuration alone, so that it is the same in every process and after every start; and without secrets, so
//! that a rotated credential changes nothing.

use super::Fingerprint;
use crate::config::{self, HttpUpstream, SandboxUpstream};
use portcullis_ssh::settings::Credential;

/// A server that is reached over HTTP: its URL, the socket instead of its host, and who it must prove to be.
pub(super) fn of_http(settings: &HttpUpstream, loaded: &config::Loaded) -> [u8; 32] {
    let mut digest = Fingerprint::new("http");
    digest.add(settings.url.as_bytes());
    let path = |path: Option<&std::path::PathBuf>| path.map(|path| loaded.resolve(path).into_os_string());
    digest.add(path(settings.socket.as_ref()).unwrap_or_default().as_encoded_bytes());
    digest.add(settings.tls.server_name.as_deref().unwrap_or_default().as_bytes());
    // A file that cannot be read is a problem of its own, and the upstream is not built.
    let trusted = settings.tls.ca.as_ref().map(|ca| std::fs::read(loaded.resolve(ca)).unwrap_or_default());
    digest.add(&trusted.unwrap_or_default());
    digest.finish()
}

/// A sandbox: all its settings, since each says what a command may do.
pub(super) fn of_sandbox(settings: &SandboxUpstream, loaded: &config::Loaded) -> [u8; 32] {
    let mut digest = Fingerprint::new("sandbox");
    digest.add(loaded.resolve(&settings.workspace).as_os_str().as_encoded_bytes());
    digest.add(format!("{settings:?}").as_bytes());
    digest.finish()
}

/// A host behind SSH: whose account where, which host keys prove it, and what can be asked for, as they were read. With
/// certificates, as which principal; the keys are secrets.
pub(super) fn of_ssh(settings: &portcullis_ssh::Settings) -> [u8; 32] {
    let mut digest = Fingerprint::new("ssh");
    digest.add(settings.host.to_string().as_bytes());
    digest.add(settings.known_hosts.as_bytes());
    digest.add(settings.actions.as_bytes());
    let principal = match &settings.credential {
        Credential::Key { .. } => "",
        Credential::Certificates { principal, .. } => principal,
    };
    digest.add(principal.as_bytes());
    digest.finish()
}
