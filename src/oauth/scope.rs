//! Which scopes a client gets of those it asks for.
//!
//! What can be granted is what means something here: the base scope, and those that rules of the policy name. Clients
//! ask for more by habit (`openid`, `offline_access`, whatever another server advertised); refusing them for that would
//! lock real clients out, so the rest is left out, and the answer always says what was granted (RFC 6749 §3.3).

use super::error::{ErrorCode, OAuthError};
use crate::identity::is_scope;
use crate::snapshot::{BASE_SCOPE, Snapshot};

/// Of the scopes that were asked for, those that can be granted, in our order. Nothing asked for, or nothing left: the
/// base scope.
///
/// # Errors
/// `invalid_scope`: it is no list of scopes at all.
pub(super) fn granted(snapshot: &Snapshot, asked: Option<&str>) -> Result<Vec<String>, OAuthError> {
    among(snapshot.scopes(), asked)
}

fn among(known: Vec<String>, asked: Option<&str>) -> Result<Vec<String>, OAuthError> {
    let asked = read(asked.unwrap_or_default())?;
    let granted: Vec<String> = known.into_iter().filter(|scope| asked.contains(&scope.as_str())).collect();
    Ok(if granted.is_empty() { vec![BASE_SCOPE.to_owned()] } else { granted })
}

/// The scopes of a refreshed access token: those of the grant, or as many of them as were asked for.
///
/// # Errors
/// `invalid_scope`: one is asked for that the grant has not (RFC 6749 §6), or it is no list of scopes at all.
pub(super) fn narrowed(grant: &[String], asked: Option<&str>) -> Result<Vec<String>, OAuthError> {
    let asked = read(asked.unwrap_or_default())?;
    // What it asked for at first and was not given, it may go on asking for: by habit, not to get more.
    let is_wider = |scope: &&&str| !grant.iter().any(|granted| granted == *scope) && !HABITS.contains(scope);
    if asked.iter().find(is_wider).is_some() {
        let wider = "a scope was not granted; ask the person again";
        return Err(OAuthError::new(ErrorCode::InvalidScope, wider));
    }
    let kept: Vec<String> = grant.iter().filter(|scope| asked.contains(&scope.as_str())).cloned().collect();
    Ok(if kept.is_empty() { grant.to_vec() } else { kept })
}

/// Scopes of OpenID Connect (Core §5.4, §11). They mean nothing here, and clients send them to every server.
const HABITS: &[&str] = &["openid", "offline_access", "profile", "email"];

/// RFC 6749 §3.3, but for the number of spaces.
fn read(text: &str) -> Result<Vec<&str>, OAuthError> {
    let scopes: Vec<&str> = text.split(' ').filter(|scope| !scope.is_empty()).collect();
    if scopes.iter().all(|scope| is_scope(scope)) {
        return Ok(scopes);
    }
    Err(OAuthError::new(ErrorCode::InvalidScope, "scope must be names of visible ASCII, separated by spaces"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(scopes: &[&str]) -> Vec<String> {
        scopes.iter().map(|&scope| scope.to_owned()).collect()
    }

    /// Public case B08: an empty scope is none, and what cannot be granted is left out.
    #[test]
    fn what_means_something_is_granted_and_nothing_is_the_base_scope() {
        let of = |asked: Option<&str>| among(list(&["mcp", "deploy", "read"]), asked).map(|granted| granted.join(" "));

        for (asked, expected) in [
            (None, "mcp"),
            (Some(""), "mcp"),
            (Some(" "), "mcp"),
            (Some("mcp"), "mcp"),
            (Some("offline_access nonsense"), "mcp"),
            (Some("read offline_access"), "read"),
            (Some("read  deploy read"), "deploy read"),
            (Some("MCP deploy"), "deploy"),
        ] {
            assert_eq!(of(asked).as_deref(), Ok(expected), "{asked:?}");
        }
        for malformed in ["mcp\tread", "mcp\n", "\"mcp\"", "m\\cp", "mcp é"] {
            assert_eq!(of(Some(malformed)).unwrap_err().code, ErrorCode::InvalidScope, "{malformed}");
        }
    }

    #[test]
    fn a_refresh_may_ask_for_less_and_not_for_more() {
        let grant = list(&["mcp", "deploy"]);
        let of = |asked: Option<&str>| narrowed(&grant, asked).map(|kept| kept.join(" "));

        for (asked, expected) in [
            (None, "mcp deploy"),
            (Some(""), "mcp deploy"),
            (Some("mcp"), "mcp"),
            (Some("deploy mcp offline_access"), "mcp deploy"),
            (Some("offline_access"), "mcp deploy"),
        ] {
            assert_eq!(of(asked).as_deref(), Ok(expected), "{asked:?}");
        }
        for wider in ["mcp read", "admin", "mcp deploy nonsense", "m\tcp"] {
            assert_eq!(of(Some(wider)).unwrap_err().code, ErrorCode::InvalidScope, "{wider}");
        }
    }
}
