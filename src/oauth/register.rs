//! Dynamic client registration (RFC 7591): a client introduces itself, and gets an id.
//!
//! Anybody may, at a limited pace, since an id opens nothing: whoever uses it still needs a person who logs in and
//! consents. What is answered is what is stored, defaults filled in. A client stays known across restarts, and for ever:
//! some never register twice. Only at the cap does one go that nobody can be using (`Store::insert_client`).

use super::client_metadata::{self, AuthMethod, Metadata};
use super::error::{ErrorCode, OAuthError, no_store};
use super::{Shared, document, not_found};
use crate::audit::{Event, Kind, sha256};
use crate::browser::{Budget, Rate};
use crate::config::Registration;
use crate::id;
use crate::redirect_uri;
use crate::snapshot::Snapshot;
use crate::store::{Insertion, MAX_CLIENTS, RegisteredClient};
use crate::web::Caller;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// One address: people behind one router, or the servers of one vendor, each of whose users registers a client.
const EACH: Rate = Rate { burst: 30, every: Duration::from_secs(10) };
/// Everybody. At this pace it takes hours to push out a client that was never used, and minutes to log in.
const ALL: Rate = Rate { burst: 200, every: Duration::from_secs(1) };

/// How fast clients may register.
#[derive(Debug)]
pub(super) struct Registrations(Budget);

impl Default for Registrations {
    fn default() -> Self {
        Registrations(Budget::new(EACH, ALL))
    }
}

/// Whether clients may register; else neither the endpoint nor its mention in the metadata is there.
pub(super) fn is_open(snapshot: &Snapshot) -> bool {
    snapshot.config.oauth.registration == Registration::Open
}

/// `POST /register`.
pub(super) async fn post(
    State(shared): State<Shared>,
    caller: Option<Extension<Caller>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let caller = caller.map(|Extension(caller)| caller).unwrap_or_default();
    if !is_open(&shared.snapshots.load()) {
        return not_found();
    }
    let metadata = match read(&headers, &body) {
        Ok(metadata) => metadata,
        Err(error) => return error.into_response(),
    };
    // What is refused anyway costs nothing.
    if let Err(wait) = shared.registrations.0.take(caller.address) {
        return slow_down(wait);
    }
    match insert(&shared, &caller, &metadata).await {
        Ok(answer) => no_store(document(StatusCode::CREATED, &Value::Object(answer))),
        Err(error) => error.into_response(),
    }
}

fn read(headers: &HeaderMap, body: &[u8]) -> Result<Metadata, OAuthError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(unfit("the body must be application/json"));
    }
    let object = client_metadata::object(body)?;
    let method = method(&object)?;
    let metadata = Metadata::read(&object, method)?;
    let has_uri = client_metadata::member(&object, "jwks_uri").is_some();
    match (method, metadata.jwks.is_some(), has_uri) {
        //= RFC 7591 §2
        //# The "jwks_uri" and "jwks" parameters MUST NOT both be present in the same request or response.
        (_, _, true) if client_metadata::member(&object, "jwks").is_some() => {
            Err(unfit("jwks and jwks_uri must not both be there"))
        }
        // A stranger names no URL for us to fetch.
        (AuthMethod::PrivateKeyJwt, false, true) => {
            Err(unfit("jwks_uri is not supported here: send the keys themselves as jwks"))
        }
        (AuthMethod::PrivateKeyJwt, false, false) => Err(unfit("private_key_jwt needs jwks")),
        _ => Ok(metadata),
    }
}

/// RFC 7591 §2: left out, it is `client_secret_basic`.
fn method(object: &Map<String, Value>) -> Result<AuthMethod, OAuthError> {
    match client_metadata::text(object, "token_endpoint_auth_method")? {
        None => Ok(AuthMethod::ClientSecretBasic),
        Some(word) => AuthMethod::of(word).ok_or_else(|| unfit("this token_endpoint_auth_method is not supported")),
    }
}

/// Stores it, and gives what is answered: RFC 7591 §3.2.1.
async fn insert(shared: &Shared, caller: &Caller, metadata: &Metadata) -> Result<Map<String, Value>, OAuthError> {
    let secret = metadata.token_endpoint_auth_method.has_secret().then(|| id::secret("cs_"));
    let now_ms = shared.clock.unix_ms();
    let client = RegisteredClient {
        id: id::unguessable("c_"),
        metadata: metadata.to_json(),
        secret: secret.as_ref().map(|secret| sha256(secret.as_bytes())),
        created_at_ms: now_ms,
        used_at_ms: None,
    };
    let client_id = client.id.clone();
    let Insertion::Done { removed } = shared.store.insert_client(client, MAX_CLIENTS).await? else {
        tracing::warn!("no more clients can register: remove some with `portcullis clients remove`");
        return Err(OAuthError::new(ErrorCode::TemporarilyUnavailable, "there are too many clients here already"));
    };
    if let Some(removed) = removed {
        record(
            shared,
            caller,
            Kind::ClientRemoved,
            &removed,
            "it was never used, or longest ago, and another took its place",
        );
    }
    record(shared, caller, Kind::ClientRegistered, &client_id, &said(metadata));
    let mut answer = match serde_json::to_value(metadata) {
        Ok(Value::Object(answer)) => answer,
        _ => Map::new(),
    };
    answer.insert("client_id".to_owned(), json!(client_id));
    answer.insert("client_id_issued_at".to_owned(), json!(now_ms.div_euclid(1000)));
    if let Some(secret) = secret {
        answer.insert("client_secret".to_owned(), json!(secret));
        answer.insert("client_secret_expires_at".to_owned(), json!(0));
    }
    Ok(answer)
}

/// For the audit log: where it sends people. Its name is for those who look it up.
fn said(metadata: &Metadata) -> String {
    let places: BTreeSet<String> = metadata.redirect_uris.iter().map(|uri| redirect_uri::sent_to(uri)).collect();
    let places: Vec<String> = places.into_iter().collect();
    format!("it sends people back to {}", places.join(", "))
}

fn record(shared: &Shared, caller: &Caller, kind: Kind, client: &str, detail: &str) {
    let peer = caller.address.map(|address| address.to_string());
    shared.audit.record_stranger(Event {
        request: Some(&caller.request),
        peer: peer.as_deref(),
        object: Some(client),
        detail: Some(detail),
        ..Event::new(kind)
    });
}

fn unfit(description: &'static str) -> OAuthError {
    OAuthError::new(ErrorCode::InvalidClientMetadata, description)
}

fn slow_down(wait: Duration) -> Response {
    let error = OAuthError::new(ErrorCode::SlowDown, "too many clients register at the moment; try again later");
    let mut response = error.into_response();
    response.headers_mut().insert(header::RETRY_AFTER, (wait.as_secs() + 1).into());
    response
}
