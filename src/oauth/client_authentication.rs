//! How a client shows who it is: for now only public clients, by their `client_id`.

use super::Shared;
use super::client::{Authentication, Client, NotFound};
use super::error::{ErrorCode, OAuthError};
use super::form::Form;
use axum::http::HeaderMap;

/// The client that sends this request.
///
/// # Errors
/// `invalid_client`.
pub(super) async fn authenticate(shared: &Shared, _headers: &HeaderMap, form: &Form) -> Result<Client, OAuthError> {
    let id = form.get("client_id").ok_or(OAuthError::invalid_client("client_id is missing"))?;
    let client = Client::find(shared, id).await.map_err(|why| match why {
        NotFound::Unavailable => {
            OAuthError::new(ErrorCode::TemporarilyUnavailable, "the client cannot be looked up now; try again")
        }
        NotFound::Unknown | NotFound::Document(_) => OAuthError::invalid_client("there is no such client"),
    })?;
    match client.authentication {
        Authentication::Public => Ok(client),
        Authentication::Secret(_) | Authentication::Keys(_) => {
            Err(OAuthError::invalid_client("this client must show who it is"))
        }
    }
}
