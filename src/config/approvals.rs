//! `admin` and `approvals`: where people decide on held calls, and how those wait.

use super::{BehindProxy, Period, SecretRef, Tls};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;

/// The listener for people who decide. No agent's token opens anything there.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// Where it listens. Anything but loopback needs `tls` or `behind_proxy`.
    pub listen: String,
    /// What approvers type, and where webhooks send them; another host than the agents' `public_url`. Left out, it is
    /// `http://` and the listening address, which must then be loopback.
    #[serde(default)]
    pub public_url: Option<String>,
    /// Its certificate and key.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// The proxies in front of it that end TLS. Connections from any other address are refused.
    #[serde(default)]
    pub behind_proxy: Option<BehindProxy>,
}

/// How held calls wait for a person. Times of a rule's own stand in its `hold`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Approvals {
    /// A call that nobody has decided on is over after this long. A denial is in force for as long.
    pub expires: Period,
    /// An approval may be used for this long, if its caller is not waiting for it.
    pub valid_for: Period,
    /// A caller is kept waiting for this long, then told to call again with the same arguments. Many clients give up after
    /// 60 s.
    pub wait: Period,
    /// A result that no caller was there for is kept this long for the next identical call.
    pub keep_result: Period,
    /// Calls of one principal that wait for a decision at once; further ones are refused.
    #[schemars(range(min = 1, max = 1000))]
    pub pending: u32,
    /// Who is told of held calls.
    #[schemars(length(max = 16))]
    pub webhooks: Vec<Webhook>,
}

impl Default for Approvals {
    fn default() -> Self {
        Approvals {
            expires: Period::seconds(30 * 60),
            valid_for: Period::seconds(10 * 60),
            wait: Period::seconds(45),
            keep_result: Period::seconds(10 * 60),
            pending: 10,
            webhooks: Vec::new(),
        }
    }
}

impl Approvals {
    /// Who is told of held calls, by name.
    pub fn hook_names(&self) -> Vec<String> {
        self.webhooks.iter().map(|hook| hook.name.clone()).collect()
    }
}

/// A receiver that is told of every held call (Standard Webhooks), and may decide where `decides_as` says so.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Its name (`[a-z0-9-]{1,32}`); shown in records.
    pub name: String,
    /// Where it is sent: `https://`, or `http://` on loopback. No redirect is followed.
    pub url: String,
    /// Trust only these certificates (PEM) there instead of the system's roots.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// What signs both ways: `whsec_` and base64 of 24 to 64 random bytes.
    pub secret: SecretRef,
    /// The secret before the last change: what is signed with it is still taken.
    #[serde(default)]
    pub former_secret: Option<SecretRef>,
    /// Whether the arguments are sent along, those under `mask` left out. Without it, the receiver learns what it is about and
    /// where to look.
    #[serde(default)]
    pub arguments: bool,
    /// As whom it decides; left out, it is only told.
    #[serde(default)]
    pub decides_as: Option<DecidesAs>,
    /// How long one delivery may take.
    #[serde(default = "timeout")]
    pub timeout: Period,
}

/// As whom a webhook decides. It never counts as the requester's own yes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecidesAs {
    /// As this person.
    User(String),
    /// As whomever of these groups it names with each decision.
    Groups(Vec<String>),
}

fn timeout() -> Period {
    Period::seconds(10)
}
