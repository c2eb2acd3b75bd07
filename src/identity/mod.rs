//! Who asks: the people of this gateway, their passwords, the keys that sign, the access tokens and what they stand for.
//!
//! An access token is a signed statement and the name of a grant; both must hold. The signature is checked once and
//! remembered, the grant's revocation reaches every process within a second, and groups are never in the token:
//! they are read from the people in force at each request.
//!
//! `issuer` does the same for tokens of authorization servers that are not ours. There is no grant behind those; their
//! keys are fetched, and what they claim counts only as far as the configuration says so.

mod assertion;
mod cache;
mod clients;
mod error;
mod issuer;
mod json;
mod keys;
mod password;
mod principal;
mod public_keys;
mod token;
mod users;
mod verifier;

pub use assertion::{Assertion, Claimed, client_named_in_assertion, verify_assertion};
pub use clients::{Clients, ConfiguredClient, Machine, ownerless};
pub use error::Error;
pub use issuer::{Asserted, Fetching, Issuer, Issuers, keep_fresh};
pub use keys::{Change, Error as KeysError, Keys, LONGEST_LIFE_S, Listed, State, watch as watch_keys};
pub use password::{Error as PasswordError, LONGEST_PASSWORD, PasswordHash, UnfitHash, verify_person};
pub use principal::{Principal, Subject};
pub use public_keys::{PublicKeys, UnfitKeys};
pub use token::{Claims, LONGEST_TOKEN, grant_named_in, is_scope, issue, signed_claims};
pub use users::{ADMINS, Error as UsersError, Person, Users, UsersFile};
pub use verifier::{FEED_LIMIT, Verified, Verifier};

pub(crate) use crate::store::{is_client_id, is_user_name};

#[cfg(test)]
pub(crate) use users::tests;
