//! `oauth` and `identity.clients`, as written: how clients get tokens from this gateway, and those written here.

use super::Period;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;

/// How clients get tokens from this gateway.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OAuth {
    /// Whether clients may register themselves (RFC 7591). Most MCP clients do, unless they have a metadata document.
    pub registration: Registration,
    /// Clients whose id is the URL of a document about them (OAuth Client ID Metadata Document).
    pub metadata_documents: MetadataDocuments,
    /// How long an access token lives.
    pub access_token: Period,
    /// A login that is not used for this long is over: the client asks its person again.
    pub idle: Period,
    /// A login is over after this long, however much it is used.
    pub lifetime: Period,
}

/// Whether clients may register themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Registration {
    /// Anybody may, at a limited pace. A registered client can do nothing until a person consents.
    #[default]
    Open,
    /// Nobody may. (`off` is a truth value in YAML.)
    Closed,
}

/// Which metadata documents are fetched, and how. A URL that a stranger names is fetched over HTTPS from a public address,
/// port 443, without redirects.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetadataDocuments {
    /// Whether such clients are known at all.
    pub enabled: bool,
    /// Only documents of these hosts (`host` or `host:port`). Left out, of any.
    #[schemars(length(min = 1))]
    pub only: Option<Vec<String>>,
    /// Hosts (`host` or `host:port`) whose documents may be at a private address, too.
    pub private: Vec<String>,
    /// Trust only these certificates (PEM) instead of the system's roots.
    pub ca: Option<PathBuf>,
}

/// An OAuth client that is written here. With `owner` it may act on its own account (client credentials), with
/// `redirect_uris` a person may log in through it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// Its `client_id`: `[A-Za-z0-9._~-]{1,64}`.
    pub id: String,
    /// What people see on the consent page. Left out, the id.
    #[serde(default)]
    pub name: Option<String>,
    /// The hash of its secret, as printed by `portcullis clients secret`. Left out, it has `jwks`, or is public.
    #[serde(default)]
    pub secret_hash: Option<String>,
    /// A file with its public keys (JWK Set), for `private_key_jwt` (RFC 7523).
    #[serde(default)]
    pub jwks: Option<PathBuf>,
    /// Where people are sent back to, byte for byte. Only the port of a loopback address may differ.
    #[serde(default)]
    pub redirect_uris: Vec<String>,
    /// The user who answers for what it does on its own account.
    #[serde(default)]
    pub owner: Option<String>,
    /// Groups it is in when it acts on its own account. Its owner's are not among them.
    #[serde(default)]
    pub groups: Vec<String>,
    /// The upstreams it may have tokens for on its own account.
    #[serde(default)]
    pub routes: Vec<String>,
}

impl Default for OAuth {
    fn default() -> Self {
        OAuth {
            registration: Registration::Open,
            metadata_documents: MetadataDocuments::default(),
            access_token: Period::seconds(10 * 60),
            idle: Period::seconds(30 * 24 * 60 * 60),
            lifetime: Period::seconds(90 * 24 * 60 * 60),
        }
    }
}

impl Default for MetadataDocuments {
    fn default() -> Self {
        MetadataDocuments { enabled: true, only: None, private: Vec::new(), ca: None }
    }
}

/// The SHA-256 in `secret_hash`: `sha256:` and 64 hexadecimal digits.
pub fn secret_hash(text: &str) -> Option<[u8; 32]> {
    let hex = text.strip_prefix("sha256:").filter(|hex| hex.len() == 64)?;
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).ok().filter(|it| it.bytes().all(|b| b.is_ascii_hexdigit()))?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(bytes)
}
