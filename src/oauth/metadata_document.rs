//! Clients whose id is the URL of a document about them (draft-ietf-oauth-client-id-metadata-document): the host of the
//! URL vouches for what the document says. Here is what a document may say and where it may be; `documents` fetches it.

use super::client::{Authentication, Client, KeySet, Origin};
use super::client_metadata::{self, AuthMethod, Metadata, member, text, texts};
use crate::fetch::Reach;
use crate::identity::PublicKeys;
use crate::snapshot::Snapshot;
use serde_json::{Map, Value};
use url::{Host, Url};

/// Whether such clients are known at all; else the metadata do not say so either.
pub(super) fn is_enabled(snapshot: &Snapshot) -> bool {
    snapshot.config.oauth.metadata_documents.enabled
}

/// Whether an id is the URL of a document, be it a good one.
pub(super) fn is_url(id: &str) -> bool {
    id.starts_with("https://")
}

/// The URL that an id is, if it may be one (draft-ietf-oauth-client-id-metadata-document §3).
pub(super) fn check_id(id: &str, snapshot: &Snapshot) -> Result<Url, String> {
    let said = |why: &str| Err(why.to_owned());
    let Ok(url) = Url::parse(id) else {
        return said("it is no URL");
    };
    if url.scheme() != "https" {
        return said("it is not https");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return said("it has a user name or password in it");
    }
    if url.fragment().is_some() || url.query().is_some() {
        return said("it has a query or a fragment");
    }
    if url.path() == "/" {
        return said("it has no path");
    }
    // Dot segments, capital letters in the host, a default port, backslashes: what has two spellings is two ids.
    if url.as_str() != id {
        return said("it is not spelled as browsers do");
    }
    place(&url, snapshot)?;
    Ok(url)
}

/// Where a URL may lead, if anywhere.
pub(super) fn place(url: &Url, snapshot: &Snapshot) -> Result<Reach, String> {
    let settings = &snapshot.config.oauth.metadata_documents;
    let authority = authority(url);
    let is_in =
        |list: &[String]| list.iter().any(|it| it.strip_suffix(":443").unwrap_or(it).eq_ignore_ascii_case(&authority));
    if url.scheme() != "https" {
        return Err("is not https".to_owned());
    }
    if settings.only.as_ref().is_some_and(|only| !is_in(only)) {
        return Err(format!("{authority} is not a host whose documents count here"));
    }
    if snapshot.guard.is_host(&authority) {
        return Err(format!("{authority} is this server itself"));
    }
    if is_in(&settings.private) {
        return Ok(Reach::Anywhere);
    }
    match url.host() {
        Some(Host::Domain(_)) if url.port().is_none() => Ok(Reach::Public),
        Some(Host::Domain(_)) => Err("its port is not that of https".to_owned()),
        // Who owns an address is nothing that people could judge.
        _ => Err("its host is an address, not a name".to_owned()),
    }
}

/// Host and, where it is not the default, port.
fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Reads a document.
pub(super) fn read(id: &str, json: &[u8]) -> Result<Client, String> {
    let described = |error: super::error::OAuthError| error.description.to_owned();
    let object =
        client_metadata::object(json).map_err(|_| "it is not one JSON object, in which no name stands twice")?;
    //= draft-ietf-oauth-client-id-metadata-document §4.1
    //# The client_id property's value MUST match the client identifier URL, using simple string comparison.
    if object.get("client_id").and_then(Value::as_str) != Some(id) {
        return Err("its client_id is not its own URL".to_owned());
    }
    if ["client_secret", "client_secret_expires_at"].iter().any(|name| object.contains_key(*name)) {
        return Err("it has a client secret, which a public document cannot keep".to_owned());
    }
    let (method, authentication) = authentication(&object)?;
    let mut metadata = Metadata::read(&object, method).map_err(described)?;
    if let Authentication::Keys { set: KeySet::At(url), .. } = &authentication {
        metadata.jwks_uri = Some(url.to_string());
    }
    Ok(Client::of_metadata(id, Origin::Document, &metadata, authentication))
}

/// How the client may show who it is: by the method that it prefers or, where that is none of ours, by another one that
/// it lists as well (ChatGPT: `private_key_jwt`, and `none`). Where it lists both, both are good.
fn authentication(object: &Map<String, Value>) -> Result<(AuthMethod, Authentication), String> {
    let described = |error: super::error::OAuthError| error.description.to_owned();
    let preferred = text(object, "token_endpoint_auth_method").map_err(described)?.unwrap_or("none");
    let listed = texts(object, "token_endpoint_auth_methods_supported").map_err(described)?.unwrap_or_default();
    if preferred.starts_with("client_secret") {
        return Err(format!(
            "its token_endpoint_auth_method {} takes a secret that nobody has told us",
            shown(preferred)
        ));
    }
    let can = |method: AuthMethod| preferred == method.as_str() || listed.contains(&method.as_str());
    let keys = if can(AuthMethod::PrivateKeyJwt) { key_set(object)? } else { None };
    match (keys, can(AuthMethod::None)) {
        (Some(set), or_none) => Ok((AuthMethod::PrivateKeyJwt, Authentication::Keys { set, or_none })),
        (None, true) => Ok((AuthMethod::None, Authentication::Public)),
        (None, false) if preferred == AuthMethod::PrivateKeyJwt.as_str() => {
            Err("its token_endpoint_auth_method is private_key_jwt, but it has no jwks and no jwks_uri".to_owned())
        }
        (None, false) => Err(format!(
            "its token_endpoint_auth_method {} is not supported here; none and private_key_jwt are",
            shown(preferred)
        )),
    }
}

fn key_set(object: &Map<String, Value>) -> Result<Option<KeySet>, String> {
    let uri = text(object, "jwks_uri").map_err(|_| "its jwks_uri is no text")?;
    match (member(object, "jwks"), uri) {
        (Some(_), Some(_)) => Err("it has both jwks and jwks_uri".to_owned()),
        (Some(set), None) => {
            let keys = PublicKeys::of(set).map_err(|why| format!("its jwks cannot be used: {why}"))?;
            Ok(Some(KeySet::Given(keys.into())))
        }
        (None, Some(uri)) => {
            let url = Url::parse(uri).ok().filter(|url| url.scheme() == "https" && url.fragment().is_none());
            let url = url.filter(|url| url.username().is_empty() && url.password().is_none());
            Ok(Some(KeySet::At(url.ok_or("its jwks_uri is no https URL")?.into())))
        }
        (None, None) => Ok(None),
    }
}

/// A word of a stranger in a sentence of ours.
fn shown(word: &str) -> &str {
    let is_word = word.len() <= 40 && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if is_word { word } else { "(unreadable)" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::snapshot::Surroundings;
    use serde_json::json;

    fn snapshot(documents: &str) -> Snapshot {
        let yaml = format!(
            "public_url: https://mcp.example.com\nbehind_proxy: {{ from: [127.0.0.1] }}\n\
             oauth: {{ metadata_documents: {documents} }}\n\
             upstreams: {{ up: {{ http: {{ url: http://127.0.0.1:1/mcp }} }} }}\n\
             policy: {{ rules: [{{ name: r, tools: [\"up/*\"], allow: {{}} }}] }}\n"
        );
        let loaded = config::load(&yaml, "gateway.yaml").unwrap_or_else(|why| panic!("{why}"));
        let around = Surroundings { listening: ([127, 0, 0, 1], 8443).into(), admin: None, previous: None };
        Snapshot::compile(&loaded, &around).unwrap_or_else(|why| panic!("{why}"))
    }

    /// S-07, S-08, S-11.
    #[test]
    fn an_id_is_one_spelling_of_an_https_url_with_a_path_that_leads_elsewhere() {
        let usual = snapshot("{}");
        for id in ["https://client.example/meta.json", "https://a.b-c.example/x/y/", "https://xn--bcher-kva.example/c"]
        {
            assert!(check_id(id, &usual).is_ok(), "{id}");
        }
        for id in [
            "http://client.example/meta.json",
            "https://client.example",
            "https://client.example/",
            "https://client.example/a?b=c",
            "https://client.example/a?",
            "https://client.example/a#b",
            "https://client.example/a#",
            "https://u:p@client.example/a",
            "https://u@client.example/a",
            "https://client.example/a/../b",
            "https://client.example/./b",
            "https://client.example/%2e%2e/b",
            "https://client.example/a\\b",
            "https://CLIENT.example/a",
            "https://client.example:443/a",
            "https://client.example:8443/a",
            "https://client.example:22/a",
            "https://127.0.0.1/a",
            "https://127.1/a",
            "https://1.1.1.1/a",
            "https://[::1]/a",
            "https://[2606:4700::1111]/a",
            "https://mcp.example.com/a",
            "https://b\u{fc}cher.example/a",
            "https:client.example/a",
            "https:///a",
            "https://",
        ] {
            assert!(check_id(id, &usual).is_err(), "{id}");
        }
        assert!(check_id("https://localhost:9443/a", &snapshot("{ private: [\"localhost:9443\"] }")).is_ok());
        assert!(check_id("https://127.0.0.1:9443/a", &snapshot("{ private: [\"localhost:9443\"] }")).is_err());
        // Not even then: it is this gateway's own listener.
        let own = snapshot("{ private: [\"mcp.example.com\", \"127.0.0.1:8443\"] }");
        assert!(check_id("https://mcp.example.com/a", &own).is_err());
        assert!(check_id("https://127.0.0.1:8443/a", &own).is_err());
        let only = snapshot("{ only: [good.example, \"other.example:443\"] }");
        assert!(
            check_id("https://good.example/a", &only).is_ok() && check_id("https://other.example/a", &only).is_ok()
        );
        assert!(check_id("https://client.example/a", &only).is_err());
        assert!(check_id("https://x.good.example/a", &only).is_err());
    }

    const ID: &str = "https://client.example/meta.json";

    fn document(more: &Value) -> Result<Client, String> {
        let mut document =
            json!({ "client_id": ID, "client_name": "App", "redirect_uris": ["http://localhost/callback"] });
        for (name, value) in more.as_object().unwrap() {
            document[name] = value.clone();
        }
        read(ID, document.to_string().as_bytes())
    }

    fn keys() -> Value {
        // RFC 7517 §A.1.
        json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "1",
            "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
            "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM" }] })
    }

    /// B16.
    #[test]
    fn the_method_is_one_that_both_sides_know_or_the_document_says_which_is_not() {
        let method = |more: Value| {
            document(&more).map(|client| match client.authentication {
                Authentication::Public => "none",
                Authentication::Secret(_) => "secret",
                Authentication::Keys { or_none: true, .. } => "keys or none",
                Authentication::Keys { or_none: false, .. } => "keys",
            })
        };
        let uri = "https://client.example/jwks.json";
        for (more, expected) in [
            (json!({}), "none"),
            (json!({ "token_endpoint_auth_method": "none" }), "none"),
            (json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks": keys() }), "keys"),
            (json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": uri }), "keys"),
            (
                json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": uri,
                        "token_endpoint_auth_methods_supported": ["private_key_jwt", "none"] }),
                "keys or none",
            ),
            (
                json!({ "token_endpoint_auth_method": "tls_client_auth",
                        "token_endpoint_auth_methods_supported": ["tls_client_auth", "none"] }),
                "none",
            ),
            (
                json!({ "token_endpoint_auth_method": "private_key_jwt",
                        "token_endpoint_auth_methods_supported": ["private_key_jwt", "none"] }),
                "none",
            ),
        ] {
            assert_eq!(method(more.clone()), Ok(expected), "{more}");
        }
        for (more, named) in [
            (json!({ "token_endpoint_auth_method": "client_secret_post" }), "client_secret_post"),
            (json!({ "token_endpoint_auth_method": "client_secret_basic" }), "client_secret_basic"),
            (
                json!({ "token_endpoint_auth_method": "client_secret_jwt",
                        "token_endpoint_auth_methods_supported": ["none"] }),
                "client_secret_jwt",
            ),
            (json!({ "token_endpoint_auth_method": "tls_client_auth" }), "tls_client_auth"),
            (json!({ "token_endpoint_auth_method": "private_key_jwt" }), "private_key_jwt"),
            (json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks": { "keys": [] } }), "jwks"),
            (
                json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "http://client.example/k" }),
                "jwks_uri",
            ),
            (json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": uri, "jwks": keys() }), "both"),
            (json!({ "token_endpoint_auth_method": "<script>" }), "(unreadable)"),
            (json!({ "token_endpoint_auth_method": 1 }), "text"),
        ] {
            let said = method(more.clone()).expect_err("it is refused");
            assert!(said.contains(named), "{more}: {said}");
        }
    }

    /// S-11, AS-74, O-15.
    #[test]
    fn a_document_that_is_another_ones_or_has_a_secret_is_refused() {
        let good = document(&json!({ "unknown": 1 })).unwrap();
        assert_eq!((&*good.id, good.name.as_deref(), good.origin), (ID, Some("App"), Origin::Document));
        assert!(good.may_use_codes && good.may_refresh && good.machine.is_none());
        assert!(good.allows_redirect_to("http://localhost:52002/callback"));
        for more in [
            json!({ "client_id": "https://client.example/meta.json/" }),
            json!({ "client_id": "https://CLIENT.example/meta.json" }),
            json!({ "client_id": null }),
            json!({ "client_id": [ID] }),
            json!({ "client_secret": "x" }),
            json!({ "client_secret_expires_at": 0 }),
            json!({ "redirect_uris": [] }),
            json!({ "redirect_uris": null }),
            json!({ "redirect_uris": ["http://client.example/"] }),
            json!({ "redirect_uris": ["https://client.example/cb", "javascript:alert(1)"] }),
            json!({ "client_name": "Claude\u{202e}" }),
            json!({ "grant_types": ["client_credentials"] }),
            json!({ "logo_uri": "http://client.example/logo.png" }),
        ] {
            assert!(document(&more).is_err(), "{more}");
        }
        for text in ["", "[]", "<html>", r#"{"client_id":"https://client.example/meta.json","client_id":"x"}"#] {
            assert!(read(ID, text.as_bytes()).is_err(), "{text}");
        }
        // What people agreed to is exactly this; anything else is asked for again.
        let renamed = document(&json!({ "client_name": "App 2" })).unwrap();
        let elsewhere = document(&json!({ "redirect_uris": ["https://client.example/cb"] })).unwrap();
        let rekeyed = document(&json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks": keys() })).unwrap();
        let all = [&good, &renamed, &elsewhere, &rekeyed].map(|client| client.metadata_sha256);
        assert_eq!(std::collections::BTreeSet::from(all).len(), 4);
        assert_eq!(document(&json!({ "unknown": 2 })).unwrap().metadata_sha256, good.metadata_sha256);
    }
}
