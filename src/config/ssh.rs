//! `upstreams.<name>.ssh`, as written: a few actions on one host, by a credential that can do nothing else there.

use super::{Period, SecretRef};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;

/// A few actions on one host. The boundary is there: the credential runs one script, whatever is sent. See `docs/ssh.md`.
/// Exactly one of `key` and `certificates`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SshUpstream {
    /// The account, the host and, where it is not 22, the port: `deploy@prod.internal:2222`.
    pub host: String,
    /// A private key in OpenSSH's format, unencrypted (Ed25519 or ECDSA), which the host lets run one script only
    /// (`restrict,command="…"` in `authorized_keys`).
    #[serde(default)]
    pub key: Option<SecretRef>,
    /// A certificate for each action, signed here, which the host holds to one script (`ForceCommand`).
    #[serde(default)]
    pub certificates: Option<SshCertificates>,
    /// The host's keys, as `known_hosts` has them. A host that shows another one is not spoken to.
    pub known_hosts: PathBuf,
    /// What can be asked for. See `upstreams/ssh/actions.example.yaml`.
    pub actions: PathBuf,
    /// To connect, from the first packet to the login.
    #[serde(default = "default::connect")]
    pub connect: Period,
    /// After so much silence the host is asked whether it is still there; when it twice says nothing, the connection is over.
    #[serde(default = "default::keep_alive")]
    pub keep_alive: Period,
    /// A connection that is not used for this long is closed. With `certificates`, each action has a connection of its own.
    #[serde(default = "default::idle")]
    pub idle: Period,
    /// Actions at once; further ones wait up to half a minute for their turn.
    #[serde(default = "default::at_once")]
    #[schemars(range(min = 1, max = 256))]
    pub at_once: u32,
    /// The user that the upstream runs as where the gateway is root. Left out, a number of its own that nobody else has.
    #[serde(default)]
    pub user: Option<String>,
}

/// Certificates that are signed for one action each.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SshCertificates {
    /// The authority's private key in OpenSSH's format, unencrypted (Ed25519 or ECDSA).
    pub authority: SecretRef,
    /// The principal that certificates name.
    #[serde(default = "default::principal")]
    pub principal: String,
    /// Where the host sees this gateway come from: addresses or CIDR blocks. Left out, the address that each connection has
    /// here, which is wrong behind address translation.
    #[serde(default)]
    pub source: Vec<String>,
    /// How long a certificate is good for. A sixth of it lies in the past, for clocks that are behind.
    #[serde(default = "default::lifetime")]
    pub lifetime: Period,
}

mod default {
    use super::Period;

    pub(super) fn connect() -> Period {
        Period::seconds(5)
    }

    pub(super) fn keep_alive() -> Period {
        Period::seconds(5)
    }

    pub(super) fn idle() -> Period {
        Period::seconds(300)
    }

    pub(super) fn at_once() -> u32 {
        16
    }

    pub(super) fn principal() -> String {
        "portcullis".to_owned()
    }

    pub(super) fn lifetime() -> Period {
        Period::seconds(60)
    }
}
