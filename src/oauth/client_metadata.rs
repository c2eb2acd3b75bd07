//! What a client says of itself (RFC 7591 §2): in its registration, or in the document at its id. Read strictly, filled
//! up with defaults, and kept as it then stands: what is answered is what is stored.
//!
//! Nothing of it is believed beyond that the client said so, and none of its URIs is ever fetched but `jwks_uri` of a
//! document. What is not known is ignored (RFC 7591 §2); what is known and wrong is refused, not bent into shape.

use super::error::{ErrorCode, OAuthError};
use crate::identity::{PublicKeys, is_scope};
use crate::jsonrpc;
use crate::redirect_uri::{self, Unfit};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Of the text. A key set with certificates has the most.
const LIMITS: jsonrpc::Limits = jsonrpc::Limits { depth: 8, nodes: 1_000 };
/// In all, in bytes, as it is kept.
const LARGEST: usize = 8 * 1024;
const MAX_REDIRECT_URIS: usize = 20;
/// In characters, of names and versions.
const LONGEST_NAME: usize = 120;
/// In bytes, of the scopes together.
const LONGEST_SCOPE: usize = 1024;
/// In bytes.
const LONGEST_URI: usize = 512;

/// What is kept of a client. Optional members are left out where they are not there, and are never null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Metadata {
    pub(super) redirect_uris: Vec<String>,
    pub(super) token_endpoint_auth_method: AuthMethod,
    pub(super) grant_types: Vec<String>,
    pub(super) response_types: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_uri: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) logo_uri: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tos_uri: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) policy_uri: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) scope: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) software_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) software_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) jwks: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) jwks_uri: Option<String>,
}

/// `token_endpoint_auth_method`, as far as we know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AuthMethod {
    None,
    ClientSecretBasic,
    ClientSecretPost,
    PrivateKeyJwt,
}

/// Members that must not be given twice, or hidden behind anything that two readers read differently.
///
/// # Errors
/// `invalid_client_metadata`: it is not one JSON object.
pub(super) fn object(json: &[u8]) -> Result<Map<String, Value>, OAuthError> {
    let unfit = || refused("the body must be one JSON object, in which no name stands twice");
    jsonrpc::check_object(json, LIMITS).map_err(|_| unfit())?;
    serde_json::from_slice(json).map_err(|_| unfit())
}

fn refused(description: &'static str) -> OAuthError {
    OAuthError::new(ErrorCode::InvalidClientMetadata, description)
}

// === impl AuthMethod ===

impl AuthMethod {
    /// Every one, as the metadata of this server list them.
    pub(super) const ALL: [AuthMethod; 4] =
        [AuthMethod::None, AuthMethod::ClientSecretBasic, AuthMethod::ClientSecretPost, AuthMethod::PrivateKeyJwt];

    /// The word on the wire.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            AuthMethod::None => "none",
            AuthMethod::ClientSecretBasic => "client_secret_basic",
            AuthMethod::ClientSecretPost => "client_secret_post",
            AuthMethod::PrivateKeyJwt => "private_key_jwt",
        }
    }

    pub(super) fn of(word: &str) -> Option<AuthMethod> {
        AuthMethod::ALL.into_iter().find(|method| method.as_str() == word)
    }

    /// Whether it takes a secret that both sides know.
    pub(super) fn has_secret(self) -> bool {
        matches!(self, AuthMethod::ClientSecretBasic | AuthMethod::ClientSecretPost)
    }
}

// === impl Metadata ===

impl Metadata {
    /// Reads what a registration and a document have in common; how the client proves itself is already judged.
    ///
    /// # Errors
    /// `invalid_redirect_uri`, `invalid_client_metadata`.
    pub(super) fn read(object: &Map<String, Value>, method: AuthMethod) -> Result<Metadata, OAuthError> {
        let metadata = Metadata {
            redirect_uris: redirect_uris(object)?,
            token_endpoint_auth_method: method,
            grant_types: grant_types(object)?,
            response_types: response_types(object)?,
            client_name: name(object, "client_name")?,
            client_uri: uri(object, "client_uri")?,
            logo_uri: uri(object, "logo_uri")?,
            tos_uri: uri(object, "tos_uri")?,
            policy_uri: uri(object, "policy_uri")?,
            scope: scope(object)?,
            software_id: name(object, "software_id")?,
            software_version: name(object, "software_version")?,
            jwks: if method == AuthMethod::PrivateKeyJwt { jwks(object)? } else { None },
            jwks_uri: None,
        };
        if metadata.to_json().len() > LARGEST {
            return Err(refused("the metadata of a client may have 8 KiB"));
        }
        Ok(metadata)
    }

    /// As it is kept.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts and lists are JSON")
    }
}

/// A member that is there; `null`, which some clients write for what they leave out, is not.
pub(super) fn member<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}

/// A text that is there and not empty.
///
/// # Errors
/// `invalid_client_metadata`: it is no text.
pub(super) fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, OAuthError> {
    match member(object, name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(_) => Err(refused("a member that should be a text is none")),
    }
}

/// A list of texts.
///
/// # Errors
/// `invalid_client_metadata`: it is none.
pub(super) fn texts<'a>(object: &'a Map<String, Value>, name: &str) -> Result<Option<Vec<&'a str>>, OAuthError> {
    let Some(value) = member(object, name) else {
        return Ok(None);
    };
    let list = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    list.map(Some).ok_or_else(|| refused("a member that should be a list of texts is none"))
}

fn redirect_uris(object: &Map<String, Value>) -> Result<Vec<String>, OAuthError> {
    let unfit = |why| OAuthError::new(ErrorCode::InvalidRedirectUri, why);
    let list = texts(object, "redirect_uris").map_err(|_| unfit("redirect_uris must be a list of texts"))?;
    let list = list.filter(|list| !list.is_empty()).ok_or_else(|| unfit("redirect_uris is missing or empty"))?;
    if list.len() > MAX_REDIRECT_URIS {
        return Err(unfit("a client may have 20 redirect_uris"));
    }
    for uri in &list {
        redirect_uri::check(uri).map_err(|why| unfit(said_of_redirect_uri(why)))?;
    }
    Ok(list.into_iter().map(str::to_owned).collect())
}

fn said_of_redirect_uri(why: Unfit) -> &'static str {
    match why {
        Unfit::TooLong => "a redirect URI is longer than 512 bytes",
        Unfit::Malformed => "a redirect URI is no absolute URI",
        Unfit::Fragment => "a redirect URI has a fragment",
        Unfit::Wildcard => "a redirect URI has a wildcard",
        Unfit::Userinfo => "a redirect URI has a user name or password before its host",
        Unfit::Http => "a redirect URI is plain http to another machine: use https, or http to localhost or 127.0.0.1",
        Unfit::Host => "a redirect URI has no plain host name or address",
        Unfit::Answer => "a redirect URI has code, state, iss or error in its query, which the answer brings",
        Unfit::Scheme => "a redirect URI has a scheme that is not allowed: use https, or a reversed domain name",
    }
}

/// Left out, it is both that we have: RFC 7591 §2 would give codes only, and the person a login every ten minutes. What
/// else a client asks for (VS Code: device codes) is left out, and the answer says so (RFC 7591 §3.2.1).
fn grant_types(object: &Map<String, Value>) -> Result<Vec<String>, OAuthError> {
    const OURS: [&str; 2] = ["authorization_code", "refresh_token"];
    let asked = texts(object, "grant_types")?.filter(|asked| !asked.is_empty()).unwrap_or_else(|| OURS.to_vec());
    if !asked.contains(&"authorization_code") {
        return Err(refused("grant_types must have authorization_code; client credentials are for configured clients"));
    }
    Ok(OURS.into_iter().filter(|grant| asked.contains(grant)).map(str::to_owned).collect())
}

fn response_types(object: &Map<String, Value>) -> Result<Vec<String>, OAuthError> {
    let asked = texts(object, "response_types")?.filter(|asked| !asked.is_empty()).unwrap_or_else(|| vec!["code"]);
    if asked.contains(&"code") { Ok(vec!["code".to_owned()]) } else { Err(refused("response_types must have code")) }
}

/// A name that people read: of limited length, and nothing in it that could make it look like something else.
fn name(object: &Map<String, Value>, member: &str) -> Result<Option<String>, OAuthError> {
    let Some(name) = text(object, member)?.map(str::trim).filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    if name.chars().count() > LONGEST_NAME {
        return Err(refused("a name is longer than 120 characters"));
    }
    if name.chars().any(is_deceptive) {
        return Err(refused("a name has a control, formatting or line-breaking character"));
    }
    Ok(Some(name.to_owned()))
}

/// Controls, and what is invisible, turns the direction of writing or breaks the line (UAX #9, UTR #36).
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}' | '\u{3164}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// For people to follow; never fetched.
fn uri(object: &Map<String, Value>, name: &str) -> Result<Option<String>, OAuthError> {
    let Some(uri) = text(object, name)? else {
        return Ok(None);
    };
    let url = url::Url::parse(uri).ok().filter(|url| url.scheme() == "https" && url.has_host());
    let is_plain = uri.len() <= LONGEST_URI && uri.bytes().all(|b| b.is_ascii_graphic() && b != b'\\' && b != b'"');
    let is_bare = url.is_some_and(|url| url.username().is_empty() && url.password().is_none());
    if uri.starts_with("https://") && is_plain && is_bare {
        return Ok(Some(uri.to_owned()));
    }
    Err(refused("client_uri, logo_uri, tos_uri and policy_uri must be https URLs"))
}

fn scope(object: &Map<String, Value>) -> Result<Option<String>, OAuthError> {
    let Some(scope) = text(object, "scope")? else {
        return Ok(None);
    };
    if scope.len() > LONGEST_SCOPE || !scope.split(' ').all(is_scope) {
        return Err(refused("scope must be scopes with one space between them"));
    }
    Ok(Some(scope.to_owned()))
}

fn jwks(object: &Map<String, Value>) -> Result<Option<Value>, OAuthError> {
    let Some(set) = member(object, "jwks") else {
        return Ok(None);
    };
    PublicKeys::of(set).map_err(|_| refused("jwks is no set of public keys of which one can verify a signature"))?;
    Ok(Some(set.clone()))
}
