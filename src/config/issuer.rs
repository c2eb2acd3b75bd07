//! `identity.issuers`, as written: whose tokens count beside our own, and what of them counts.

use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// An authorization server that is not ours. Its access tokens must be JWTs; its keys are fetched from it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// Its `iss`, byte for byte. `https://`, or `http://` on this machine.
    pub issuer: String,
    /// What `aud` may be; one of them must be in it. Left out, the URL of the route that is called, exactly. An entry
    /// here opens every route.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub audience: Option<Vec<String>>,
    /// What its tokens may be signed with. The key must be of that kind, too.
    #[serde(default = "default_algorithms")]
    #[schemars(length(min = 1))]
    pub algorithms: Vec<Algorithm>,
    /// Which `typ` its access tokens have in their header. Anything but `at+jwt` makes ID tokens harder to tell apart.
    #[serde(default = "default_token_types")]
    #[schemars(length(min = 1))]
    pub token_types: Vec<TokenType>,
    /// Where its keys are. Left out, they are found by its metadata (RFC 8414, OpenID Connect Discovery).
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// The OAuth clients whose tokens count, by `client_id` (or `azp`, `cid`, `appid`). Left out, all of them.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub clients: Option<Vec<String>>,
    /// The claim that names the subject: a name, or with `/` at its beginning a JSON Pointer (RFC 6901).
    #[serde(default = "default_subject_claim")]
    pub subject_claim: String,
    /// The claim that lists the subject's groups or roles: a name, or with `/` at its beginning a JSON Pointer.
    #[serde(default = "default_groups_claim")]
    pub groups_claim: String,
    /// Groups of the issuer and the group each of them is here. What is not listed counts for nothing.
    #[serde(default)]
    pub groups: BTreeMap<String, String>,
    /// Scopes of the issuer (`scope` or `scp`) and the scope each of them is here. What is not listed counts for nothing.
    #[serde(default)]
    pub scopes: BTreeMap<String, String>,
    /// The scopes that clients are told to ask this issuer for. Left out, the keys of `scopes`.
    #[serde(default)]
    pub scopes_supported: Option<Vec<String>>,
    /// How it is verified.
    #[serde(default)]
    pub tls: IssuerTls,
}

/// TLS towards an issuer. With nothing set: the system's roots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssuerTls {
    /// Trust only these certificates (PEM) instead of the system's roots.
    #[serde(default)]
    pub ca: Option<PathBuf>,
}

/// A signature algorithm (RFC 7518 §3.1, RFC 8037). Shared secrets and `none` are not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Algorithm {
    /// ECDSA with P-256.
    ES256,
    /// ECDSA with P-384.
    ES384,
    /// Ed25519.
    EdDSA,
    /// RSA with PKCS #1 v1.5 and SHA-256.
    RS256,
    /// The same with SHA-384.
    RS384,
    /// The same with SHA-512.
    RS512,
    /// RSA with PSS and SHA-256.
    PS256,
    /// The same with SHA-384.
    PS384,
    /// The same with SHA-512.
    PS512,
}

/// The `typ` of an access token's header, in upper or lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum TokenType {
    /// `at+jwt` or `application/at+jwt`, as RFC 9068 has it.
    #[serde(rename = "at+jwt")]
    AccessToken,
    /// `JWT`, which says nothing: Keycloak and Microsoft Entra ID write it.
    #[serde(rename = "JWT")]
    Jwt,
    /// No `typ` at all: Okta leaves it out.
    #[serde(rename = "none")]
    None,
}

impl Algorithm {
    /// As it stands in `alg`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::ES256 => "ES256",
            Algorithm::ES384 => "ES384",
            Algorithm::EdDSA => "EdDSA",
            Algorithm::RS256 => "RS256",
            Algorithm::RS384 => "RS384",
            Algorithm::RS512 => "RS512",
            Algorithm::PS256 => "PS256",
            Algorithm::PS384 => "PS384",
            Algorithm::PS512 => "PS512",
        }
    }
}

fn default_algorithms() -> Vec<Algorithm> {
    vec![Algorithm::ES256, Algorithm::EdDSA, Algorithm::PS256, Algorithm::RS256]
}

fn default_token_types() -> Vec<TokenType> {
    vec![TokenType::AccessToken]
}

fn default_subject_claim() -> String {
    "sub".to_owned()
}

fn default_groups_claim() -> String {
    "groups".to_owned()
}
