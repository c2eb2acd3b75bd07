//! From an issuer's name to its keys: its metadata (RFC 8414, OpenID Connect Discovery 1.0), and the key set they name.
//!
//! Only what the issuer's own host says of the issuer counts: the document must name the issuer it was asked for, and the
//! keys must come from the same origin. An issuer that keeps them elsewhere is named with `jwks_url`.

use super::jwk::{self, Key};
use crate::fetch::{self, Authorities, Fetcher, Get, Reach};
use crate::jsonrpc;
use serde_json::{Map, Value};
use std::time::Duration;
use url::Url;

/// One document may take this long.
const LIMIT: Duration = Duration::from_secs(5);
/// Metadata of real issuers have a few KiB, key sets with certificates up to about 20.
const MAX_BYTES: usize = 256 * 1024;
const JSON: jsonrpc::Limits = jsonrpc::Limits { depth: 16, nodes: 20_000 };

/// Where the keys of one issuer come from.
#[derive(Debug)]
pub(super) struct Place {
    /// Its name, as configured.
    pub(super) issuer: String,
    /// Where its keys are; `None`: its metadata say.
    pub(super) jwks_url: Option<Url>,
    /// Trusted instead of the system's roots.
    pub(super) authorities: Option<Authorities>,
}

/// Why the keys could not be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{url}: {source}")]
    Fetch { url: String, source: fetch::Error },
    #[error("{url} is not JSON as it should be: {fault}")]
    Json { url: String, fault: String },
    #[error("{url} is of another issuer: `{found}`")]
    OtherIssuer { url: String, found: String },
    #[error("{url} has no usable `jwks_uri`")]
    NoKeys { url: String },
    #[error("`jwks_uri` {found} is not on the host of the issuer; if that is right, write it as `jwks_url`")]
    ElsewhereKeys { found: String },
    #[error("{url}: {source}")]
    KeySet { url: String, source: jwk::Error },
    #[error("no metadata: {first}; and {second}")]
    NoMetadata { first: Box<Error>, second: Box<Error> },
    #[error("its name is not a URL")]
    Name,
}

/// The keys there are now.
pub(super) async fn keys(place: &Place, fetcher: &Fetcher) -> Result<Vec<Key>, Error> {
    let url = match &place.jwks_url {
        Some(url) => url.clone(),
        None => find(place, fetcher).await?,
    };
    let set = get(place, fetcher, &url).await?;
    jwk::parse_set(&set).map_err(|source| Error::KeySet { url: url.to_string(), source })
}

/// Both well-known forms are asked, since some servers have one and some the other; the first that is right counts.
async fn find(place: &Place, fetcher: &Fetcher) -> Result<Url, Error> {
    let [oauth, openid] = well_known(&place.issuer).ok_or(Error::Name)?;
    match metadata(place, fetcher, &oauth).await {
        Ok(found) => Ok(found),
        Err(first) => metadata(place, fetcher, &openid)
            .await
            .map_err(|second| Error::NoMetadata { first: Box::new(first), second: Box::new(second) }),
    }
}

/// RFC 8414 §3.1 puts the well-known part before the issuer's path, OpenID Connect Discovery §4 behind it.
fn well_known(issuer: &str) -> Option<[Url; 2]> {
    let url = Url::parse(issuer).ok()?;
    let path = url.path().trim_end_matches('/').to_owned();
    let with_path = |path: String| {
        let mut url = url.clone();
        url.set_path(&path);
        url
    };
    Some([
        with_path(format!("/.well-known/oauth-authorization-server{path}")),
        with_path(format!("{path}/.well-known/openid-configuration")),
    ])
}

async fn metadata(place: &Place, fetcher: &Fetcher, url: &Url) -> Result<Url, Error> {
    let json = get(place, fetcher, url).await?;
    let said = |fault: String| Error::Json { url: url.to_string(), fault };
    jsonrpc::check_object(&json, JSON).map_err(|fault| said(fault.to_string()))?;
    let document: Map<String, Value> = serde_json::from_slice(&json).map_err(|error| said(error.to_string()))?;
    //= RFC 8414 §3.3
    //# The "issuer" value returned MUST be identical to the authorization server's issuer identifier value into which
    //# the well-known URI string was inserted to create the URL used to retrieve the metadata.
    let found = document.get("issuer").and_then(Value::as_str).unwrap_or_default();
    if !is_same(found, &place.issuer) {
        let found = found.escape_default().take(200).collect();
        return Err(Error::OtherIssuer { url: url.to_string(), found });
    }
    let keys = document.get("jwks_uri").and_then(Value::as_str).and_then(|text| Url::parse(text).ok());
    let keys = keys.ok_or_else(|| Error::NoKeys { url: url.to_string() })?;
    if keys.origin() != url.origin() {
        let found = keys.origin().ascii_serialization();
        return Err(Error::ElsewhereKeys { found });
    }
    Ok(keys)
}

/// Identical, but for the slash of an empty path, which URL libraries add and drop on their own. No more than that: a
/// path is another issuer. Only here; `iss` of a token is compared byte for byte.
fn is_same(found: &str, issuer: &str) -> bool {
    let has_no_path = |text: &str| text.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'));
    let trimmed = |text: &'_ str| -> String { text.strip_suffix('/').unwrap_or(text).to_owned() };
    found == issuer || (trimmed(found) == trimmed(issuer) && has_no_path(&trimmed(issuer)))
}

async fn get(place: &Place, fetcher: &Fetcher, url: &Url) -> Result<bytes::Bytes, Error> {
    let get = Get {
        url,
        authorities: place.authorities.as_ref(),
        // Named by whoever runs this gateway, and often in the same private network.
        reach: Reach::Anywhere,
        limit: LIMIT,
        max_bytes: MAX_BYTES,
    };
    fetcher.get(&get).await.map_err(|source| Error::Fetch { url: url.to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_stand_where_their_specifications_put_them() {
        for (issuer, oauth, openid) in [
            (
                "https://idp.test",
                "https://idp.test/.well-known/oauth-authorization-server",
                "https://idp.test/.well-known/openid-configuration",
            ),
            (
                "https://idp.test/",
                "https://idp.test/.well-known/oauth-authorization-server",
                "https://idp.test/.well-known/openid-configuration",
            ),
            (
                "https://idp.test:8443/realms/one",
                "https://idp.test:8443/.well-known/oauth-authorization-server/realms/one",
                "https://idp.test:8443/realms/one/.well-known/openid-configuration",
            ),
        ] {
            let found = well_known(issuer).unwrap().map(String::from);
            assert_eq!(found, [oauth, openid], "{issuer}");
        }
    }

    #[test]
    fn only_the_slash_of_an_empty_path_makes_no_difference() {
        for (found, issuer) in [
            ("https://idp.test", "https://idp.test"),
            ("https://idp.test/", "https://idp.test"),
            ("https://idp.test", "https://idp.test/"),
            ("https://idp.test/a", "https://idp.test/a"),
        ] {
            assert!(is_same(found, issuer), "{found} {issuer}");
        }
        for (found, issuer) in [
            ("https://idp.test/a/", "https://idp.test/a"),
            ("https://idp.test/a", "https://idp.test"),
            ("https://IDP.test", "https://idp.test"),
            ("http://idp.test", "https://idp.test"),
            ("https://idp.test//", "https://idp.test"),
            ("https://idp.test.evil.test", "https://idp.test"),
            ("", "https://idp.test"),
        ] {
            assert!(!is_same(found, issuer), "{found} {issuer}");
        }
    }
}
