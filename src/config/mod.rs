//! `gateway.yaml`, as written: one struct a section, closed to unknown keys, each field with its meaning and default.
//!
//! Nothing here knows what the values are used for at run time; `snapshot` turns a checked `Config` into what is in force.
//! The doc comments are the source of `gateway.schema.json` and `docs/configuration.md`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod approvals;
mod audit;
mod check;
mod file;
mod form;
mod issuer;
mod load;
mod locate;
mod nearest;
mod oauth;
mod origin;
mod otlp;
mod problem;
mod reference;
mod sandbox;
mod schema;
mod sensitive;
mod ssh;
mod traces;
mod tree;
mod units;
mod value;

pub use approvals::{Admin, Approvals, DecidesAs, Webhook};
pub use audit::{Audit, Checkpoints, RecordedArguments, Sink, StdoutSink, Sync, SyslogSink, SyslogTo};
pub use check::{Known, check, destination};
pub use file::FileError;
pub use issuer::{Algorithm, Issuer, IssuerTls, TokenType};
pub use load::{BUILT_IN, Loaded, bytes, fuzz_load, load, read};
pub use nearest::{did_you_mean, nearest};
pub use oauth::{Client, MetadataDocuments, OAuth, Registration, secret_hash};
pub use origin::{Network, Origin};
pub use otlp::Otlp;
pub use problem::{Location, Malformed, Part, Path, Problem, Problems, Segment, Severity};
pub use reference::reference;
pub use sandbox::{SandboxBackend, SandboxCgroup, SandboxNetwork, SandboxUpstream};
pub use schema::schema;
pub use ssh::{SshCertificates, SshUpstream};
pub use traces::Traces;
pub use units::{ByteSize, Period};
pub use value::{SecretRef, Text, ValueError, read_secret};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The whole file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What clients type: scheme, host and, where it is not the default, port. Issuer and resource URLs come from here,
    /// never from a request's `Host`. Left out, it is `http://` and the listening address, which must then be loopback.
    #[serde(default)]
    pub public_url: Option<String>,
    /// Where agents connect. Anything but loopback needs `tls` or `behind_proxy`.
    #[serde(default = "default::listen")]
    pub listen: String,
    /// Certificate and key of the agent listener.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// The proxies in front that end TLS for us. Connections from any other address are refused.
    #[serde(default)]
    pub behind_proxy: Option<BehindProxy>,
    /// Further names this gateway answers to in `Host`, beside that of `public_url` and, on loopback, the loopback names.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Web origins whose pages may call this gateway (`https://inspector.example.com`), beside that of `public_url`.
    #[serde(default)]
    pub origins: Vec<String>,
    /// Where `/metrics`, `/healthz` and `/readyz` are served. Left out, they are not served.
    #[serde(default)]
    pub metrics: Option<Metrics>,
    /// Where people decide on calls that are held. Left out, they decide on the command line.
    #[serde(default)]
    pub admin: Option<Admin>,
    /// Where the store, the keys and the audit log live; created `0700`.
    #[serde(default = "default::data_dir")]
    pub data_dir: PathBuf,
    /// Who may ask.
    #[serde(default)]
    pub identity: Identity,
    /// How clients get tokens from this gateway.
    #[serde(default)]
    pub oauth: OAuth,
    /// The MCP servers behind this gateway, by name (`[a-z0-9-]{1,32}`); each is served at `/mcp/<name>`.
    #[schemars(extend("minProperties" = 1))]
    pub upstreams: BTreeMap<String, Upstream>,
    /// What they may do. Nothing matched means denied.
    pub policy: Policy,
    /// How held calls wait for a person, and who is told of them.
    #[serde(default)]
    pub approvals: Approvals,
    /// What a request may cost.
    #[serde(default)]
    pub limits: Limits,
    /// How long each part of a request may take.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// How the audit log is written, kept and passed on.
    #[serde(default)]
    pub audit: Audit,
    /// Traces of requests, told to an OpenTelemetry collector.
    #[serde(default)]
    pub traces: Option<Traces>,
}

/// Certificate and key of a listener, both PEM.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The certificate, followed by its intermediates.
    pub cert: PathBuf,
    /// The private key; its file must not be readable by others.
    pub key: PathBuf,
}

/// Proxies trusted to sit between clients and us.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BehindProxy {
    /// Their addresses, as CIDR blocks (`10.0.0.0/8`) or single addresses. At least one.
    #[schemars(length(min = 1))]
    pub from: Vec<String>,
}

/// The listener for machines that watch this gateway.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Where it listens. Anything but loopback needs `token`.
    pub listen: String,
    /// A bearer token that `/metrics` asks for.
    #[serde(default)]
    pub token: Option<SecretRef>,
}

/// Who may ask.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// People with a password here. Those in `data_dir/users.yaml` (written by `portcullis user add`) count too.
    #[serde(default)]
    pub users: Vec<User>,
    /// OAuth clients that are written here instead of registering themselves: machines, and connectors that ask for an id.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub clients: Vec<Client>,
    /// Authorization servers that are not ours, whose access tokens count here.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub issuers: Vec<Issuer>,
    /// Where clients are told to get their tokens (RFC 9728): an `issuer` of `issuers`. Left out, from this gateway.
    #[serde(default)]
    pub authorization_server: Option<String>,
}

/// One person.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Their name: `[a-z0-9._@-]{1,64}`.
    pub name: String,
    /// Argon2id, as printed by `portcullis user hash`.
    pub password_hash: String,
    /// Groups they are in. `admins` may administer.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Who they are at external issuers. Their tokens then count as this person's, with the groups given here.
    #[serde(default)]
    pub also: Vec<Also>,
}

/// A subject of an external issuer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Also {
    /// The `issuer`, as it stands in `issuers`.
    pub issuer: String,
    /// The subject there, byte for byte what `subject_claim` holds.
    pub subject: String,
}

/// One MCP server; the one key names its kind.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Upstream {
    /// A server reached over Streamable HTTP.
    Http(HttpUpstream),
    /// A shell and files of our own.
    Sandbox(SandboxUpstream),
    /// A few actions on one host, by SSH.
    Ssh(SshUpstream),
}

/// A server reached over Streamable HTTP.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpUpstream {
    /// Its MCP endpoint, `http://` or `https://`.
    pub url: String,
    /// A UNIX socket to connect to instead of the host in `url`, which then only fills the `Host` header.
    #[serde(default)]
    pub socket: Option<PathBuf>,
    /// Headers sent with every request: a text, `{ env: NAME }` or `{ file: path }`. The client's own credential is never sent.
    #[serde(default)]
    pub headers: BTreeMap<String, Text>,
    /// What the server may ask of its clients in the middle of a call (revisions up to 2025-11-25); everything where
    /// left out. What is not named is refused in the client's place.
    #[serde(default)]
    pub may_ask: Option<Vec<Ask>>,
    /// How an `https://` server is verified and how we show who we are.
    #[serde(default)]
    pub tls: UpstreamTls,
    /// Whether HTTP/2 is spoken to it. Left out: over `https://` if the server offers it, over `http://` not. `true` over
    /// `http://` takes it for granted (prior knowledge).
    #[serde(default)]
    pub http2: Option<bool>,
    /// How long it may take.
    #[serde(default)]
    pub timeouts: UpstreamTimeouts,
}

/// What a server may ask of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ask {
    /// A question to the person (`elicitation/create`).
    Elicitation,
    /// A completion of the client's model (`sampling/createMessage`).
    Sampling,
    /// The folders the client works in (`roots/list`).
    Roots,
}

/// TLS towards one upstream. With nothing set: the system's roots and the name in `url`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpstreamTls {
    /// Trust only these certificates (PEM) instead of the system's roots. Widens nothing for other upstreams.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Our client certificate with its intermediates (PEM); needs `key`.
    #[serde(default)]
    pub cert: Option<PathBuf>,
    /// The client certificate's private key (PEM).
    #[serde(default)]
    pub key: Option<PathBuf>,
    /// The name the certificate must carry and that is sent as SNI, where it is not the host in `url`.
    #[serde(default)]
    pub server_name: Option<String>,
}

/// How long one upstream may take.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTimeouts {
    /// To connect, TLS included.
    pub connect: Period,
    /// From the request to the head of its answer.
    pub answer: Period,
    /// Between two reads of a streamed answer.
    pub idle: Period,
    /// For the whole call.
    pub total: Period,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        UpstreamTimeouts {
            connect: Period::seconds(5),
            answer: Period::seconds(120),
            idle: Period::seconds(300),
            total: Period::seconds(3600),
        }
    }
}

/// What may be done, by whom. `deny` beats `hold` beats `allow`, in whatever order they stand; nothing matched means denied.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The rules. At least one.
    #[schemars(length(min = 1))]
    pub rules: Vec<Rule>,
    /// Calls with the decision they must get; run by `portcullis check` and at every reload.
    #[serde(default)]
    pub tests: Vec<PolicyTest>,
}

/// One rule: which objects, for whom, with which arguments, and exactly one of `allow`, `deny`, `hold`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name, unique; shown in audit records and to approvers.
    pub name: String,
    /// Tools, as `upstream/tool` with `*` for any characters. The first `/` ends the upstream's name.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Resources, as `upstream/uri` with `*` for any characters.
    #[serde(default)]
    pub resources: Vec<String>,
    /// Prompts, as `upstream/prompt` with `*` for any characters.
    #[serde(default)]
    pub prompts: Vec<String>,
    /// For whom; left out, for every principal of this gateway.
    #[serde(default)]
    pub who: Option<Who>,
    /// Conditions on the arguments, by JSON Pointer (RFC 6901). All must hold.
    #[serde(default)]
    pub when: BTreeMap<String, Condition>,
    /// Let it through.
    #[serde(default)]
    pub allow: Option<Allow>,
    /// Refuse it.
    #[serde(default)]
    pub deny: Option<Deny>,
    /// Let a person decide: tool calls only.
    #[serde(default)]
    pub hold: Option<Hold>,
}

/// For whom a rule is. Every key that is written must match; a list matches when one of its entries does.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Who {
    /// Users by name.
    #[serde(default)]
    pub users: Option<Vec<String>>,
    /// Groups.
    #[serde(default)]
    pub groups: Option<Vec<String>>,
    /// OAuth clients by id.
    #[serde(default)]
    pub clients: Option<Vec<String>>,
    /// Scopes the token must carry, all of them.
    #[serde(default)]
    pub scopes: Option<Vec<String>>,
}

/// A condition on one argument. Every key that is written must hold.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Equal to this value; numbers by value, objects in any order.
    #[serde(default, deserialize_with = "value::present")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub equals: Option<serde_json::Value>,
    /// Equal to one of these.
    #[serde(default)]
    #[schemars(with = "Option<Vec<serde_json::Value>>")]
    pub r#in: Option<Vec<serde_json::Value>>,
    /// A string that this regular expression matches from start to end.
    #[serde(default)]
    pub matches: Option<String>,
    /// A string that this regular expression does not match from start to end.
    #[serde(default)]
    pub not_matches: Option<String>,
    /// A number not below this.
    #[serde(default)]
    #[schemars(with = "Option<f64>")]
    pub min: Option<serde_json::Number>,
    /// A number not above this.
    #[serde(default)]
    #[schemars(with = "Option<f64>")]
    pub max: Option<serde_json::Number>,
    /// Whether the argument is there at all (`null` counts as there).
    #[serde(default)]
    pub present: Option<bool>,
    /// A string of at most this many characters, or an array of at most this many elements.
    #[serde(default)]
    pub max_length: Option<u64>,
    /// In a `deny` or `hold`: also match when the argument is absent.
    #[serde(default)]
    pub or_absent: bool,
}

/// Let it through.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    /// The call changes nothing: it may go on when the audit log cannot be written.
    #[serde(default)]
    pub reads: bool,
}

/// Refuse it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Deny {
    /// What the caller is told, in plain words.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Let a person decide.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// Who may approve.
    pub approvers: Approvers,
    /// Whether the requester may approve their own call, with the password entered afresh.
    #[serde(default, rename = "self")]
    pub by_requester: bool,
    /// How many different people must approve.
    #[serde(default = "default::quorum")]
    #[schemars(range(min = 1, max = 16))]
    pub quorum: u32,
    /// Patterns pointed out to approvers, by name; an aid to people, not a boundary.
    #[serde(default)]
    pub signals: BTreeMap<String, String>,
    /// Arguments whose values are not shown to approvers, by JSON Pointer (RFC 6901): what they hold stays bound all the
    /// same, and is shown as its length and a part of its SHA-256 under a key of this gateway.
    #[serde(default)]
    pub mask: Vec<String>,
    /// How long it waits for a decision; left out, `approvals.expires`.
    #[serde(default)]
    pub expires: Option<Period>,
    /// How long an approval may be used; left out, `approvals.valid_for`.
    #[serde(default)]
    pub valid_for: Option<Period>,
    /// How long a caller is kept waiting before it is told to call again; left out, `approvals.wait`.
    #[serde(default)]
    pub wait: Option<Period>,
}

/// Who may approve: at least one of the two.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Approvers {
    /// Users by name.
    #[serde(default)]
    pub users: Vec<String>,
    /// Groups.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// A call and the decision it must get. Exactly one of `tool`, `resource`, `prompt`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyTest {
    /// `upstream/tool`.
    #[serde(default)]
    pub tool: Option<String>,
    /// `upstream/uri`.
    #[serde(default)]
    pub resource: Option<String>,
    /// `upstream/prompt`.
    #[serde(default)]
    pub prompt: Option<String>,
    /// The user who asks; their groups are those of `identity.users` and `groups`.
    pub user: String,
    /// Further groups the user is taken to be in.
    #[serde(default)]
    pub groups: Vec<String>,
    /// The OAuth client.
    #[serde(default)]
    pub client: Option<String>,
    /// The token's scopes; left out, `mcp`.
    #[serde(default)]
    pub scopes: Option<Vec<String>>,
    /// The arguments.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub arguments: serde_json::Map<String, serde_json::Value>,
    /// The decision it must get.
    pub expect: Expect,
}

/// A decision, as a policy test expects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// Let through.
    Allow,
    /// Refused.
    Deny,
    /// Held for a person.
    Hold,
}

/// What a request may cost.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// A request's body.
    pub body: ByteSize,
    /// Nesting of JSON, in bodies and answers.
    pub depth: u32,
    /// JSON values in a request's body.
    pub nodes: u32,
    /// A JSON answer of an upstream, and one event of a streamed one.
    pub answer: ByteSize,
    /// Verified tokens kept in memory: our own, and of each external issuer as many.
    pub tokens: u32,
    /// A request's head: request line and header fields.
    pub head: ByteSize,
    /// Client connections of the agent listener at once; further ones wait. Fewer, where the process may not open so many files.
    pub connections: u32,
    /// Client connections from one address at once (IPv6: from one /64); further ones are closed. Left out, there is no such
    /// limit, nor with `behind_proxy`.
    pub connections_per_address: Option<u32>,
    /// Requests at once on one HTTP/2 connection of a client.
    pub streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body: ByteSize::mebibytes(4),
            depth: 64,
            nodes: 100_000,
            answer: ByteSize::mebibytes(16),
            tokens: 100_000,
            head: ByteSize::kibibytes(64),
            connections: 20_000,
            connections_per_address: None,
            streams: 100,
        }
    }
}

/// How long each part of a request may take; an upstream's own times stand with the upstream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// To send the request's head, first byte to last.
    pub head: Period,
    /// To send the request's body, first byte to last.
    pub body: Period,
    /// To take one write of ours.
    pub write: Period,
    /// An idle client connection is kept this long.
    pub keep_alive: Period,
    /// Requests in flight get this long to finish when the gateway stops.
    pub drain: Period,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            head: Period::seconds(10),
            body: Period::seconds(30),
            write: Period::seconds(30),
            keep_alive: Period::seconds(60),
            drain: Period::seconds(30),
        }
    }
}

#[cfg(test)]
mod tests;

mod default {
    use std::path::PathBuf;

    pub(super) fn listen() -> String {
        "127.0.0.1:8080".to_owned()
    }

    pub(super) fn quorum() -> u32 {
        1
    }

    pub(super) fn data_dir() -> PathBuf {
        PathBuf::from("data")
    }
}
