//! Authorization server metadata (RFC 8414), and the same at the path where OpenID clients look.
//!
//! Everything in it is derived from `public_url`, never from a request.

use super::{Shared, document};
use crate::config::Registration;
use crate::snapshot::Snapshot;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

/// How clients may prove who they are at the token, revocation and introspection endpoints.
const AUTHENTICATION: [&str; 4] = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"];
/// What they may sign assertions with.
const ASSERTION_ALGORITHMS: [&str; 3] = ["ES256", "EdDSA", "RS256"];

/// `/.well-known/oauth-authorization-server`.
pub(super) async fn get(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshots.load_full();
    document(StatusCode::OK, &metadata(&snapshot))
}

/// `/.well-known/openid-configuration`. No ID token is ever issued; these two members are what readers of such documents
/// insist on (OpenID Connect Discovery §3).
pub(super) async fn get_openid(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshots.load_full();
    let mut metadata = metadata(&snapshot);
    metadata["subject_types_supported"] = json!(["public"]);
    metadata["id_token_signing_alg_values_supported"] = json!(["ES256"]);
    document(StatusCode::OK, &metadata)
}

fn metadata(snapshot: &Snapshot) -> Value {
    let at = |path: &str| format!("{}{path}", snapshot.public_url);
    let oauth = &snapshot.config.oauth;
    let mut metadata = json!({
        "issuer": &*snapshot.public_url,
        "authorization_endpoint": at("/authorize"),
        "token_endpoint": at("/token"),
        "token_endpoint_auth_methods_supported": AUTHENTICATION,
        "token_endpoint_auth_signing_alg_values_supported": ASSERTION_ALGORITHMS,
        "revocation_endpoint": at("/revoke"),
        "revocation_endpoint_auth_methods_supported": AUTHENTICATION,
        "revocation_endpoint_auth_signing_alg_values_supported": ASSERTION_ALGORITHMS,
        "introspection_endpoint": at("/introspect"),
        "introspection_endpoint_auth_methods_supported": &AUTHENTICATION[1..],
        "introspection_endpoint_auth_signing_alg_values_supported": ASSERTION_ALGORITHMS,
        "jwks_uri": at("/jwks"),
        "scopes_supported": snapshot.scopes(),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
        "client_id_metadata_document_supported": oauth.metadata_documents.enabled,
        "request_parameter_supported": false,
        "request_uri_parameter_supported": false,
    });
    if oauth.registration == Registration::Open {
        metadata["registration_endpoint"] = json!(at("/register"));
    }
    metadata
}
