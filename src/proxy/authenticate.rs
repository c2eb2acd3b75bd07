//! From the `Authorization` header to a [`Principal`]: a bearer token for exactly this route, of ours and not revoked, or
//! of an external issuer that is configured.
//!
//! Everything else is 401 with a challenge that says where to get one (RFC 6750 §3, RFC 9728 §5.1). What was wrong with
//! a token is for the log; the client is only told whether to bring one or to bring another.

use super::Gateway;
use super::exchange::Exchange;
use super::refuse::{Code, Refusal};
use crate::identity::{self, Principal, Verifier};
use crate::mcp::{Call, Verb};
use crate::snapshot::{Route, Snapshot};
use crate::trace::Stage;
use http::HeaderMap;
use http::header::AUTHORIZATION;

/// Finds out who asks.
///
/// # Errors
/// No token, or none that is good here.
pub(super) async fn principal(exchange: &mut Exchange, route: &Route, gateway: &Gateway) -> Result<Principal, Refusal> {
    exchange.trace.enter(Stage::Authenticate);
    let token = bearer(&exchange.session.req_header().headers).map_err(|refusal| refusal.challenge(route, None))?;
    let snapshot = &exchange.snapshot;
    let found = match snapshot.issuers.claimed_by(token) {
        Some(issuer) => {
            let asserted = issuer.verify(token, &route.resource, &gateway.fetching).await;
            asserted.map(|asserted| Principal::external(&asserted, &snapshot.users))
        }
        None => {
            let verified = gateway.verifier.verify(token, &route.resource).await;
            verified.and_then(|verified| {
                let found = Principal::of(&verified, &snapshot.users, &snapshot.clients);
                found.ok_or(identity::Error::UnknownUser)
            })
        }
    };
    let principal = found.map_err(|error| invalid(&error, route))?;
    exchange.facts.principal = Some(principal.clone());
    Ok(principal)
}

/// A tool call goes on only while we know of every revocation there is.
///
/// # Errors
/// The store has not answered for too long.
pub(super) fn confirm(verifier: &Verifier, call: &Call) -> Result<(), Refusal> {
    if call.method.verb != Verb::CallTool || verifier.is_current() {
        return Ok(());
    }
    let text = "This call did not run: the gateway cannot confirm at the moment that your access was not revoked. Try again later.";
    Err(Refusal::tool_result(Code::Stale, call.id.as_ref(), call.era, text))
}

/// Who asked a while ago may still ask, and is what they are under `snapshot`: their grant was not revoked, their external
/// token has not run out, and they are still somebody here.
///
/// # Errors
/// They may not; another token may help.
pub(super) fn renew(
    gateway: &Gateway,
    snapshot: &Snapshot,
    route: &Route,
    principal: &Principal,
    call: &Call,
) -> Result<Principal, Refusal> {
    let is_over = principal.until.is_some_and(|until| until <= gateway.fetching.clock.unix_seconds());
    let is_known = principal.is_local || snapshot.issuers.get(&principal.issuer).is_some();
    let renewed = principal.renewed(&snapshot.users, &snapshot.clients);
    match renewed.filter(|_| is_known && !is_over && !gateway.verifier.is_revoked(principal)) {
        Some(renewed) => Ok(renewed),
        None => {
            let text = "this call did not run: the access it was made with is over";
            let refusal = Refusal::error(Code::BadToken, call.id.as_ref(), text);
            Err(refusal.challenge(route, Some(("invalid_token", "the access it was made with is over"))))
        }
    }
}

/// RFC 6750 §2.1, and nothing else: not the query, not the body, not a cookie.
fn bearer(headers: &HeaderMap) -> Result<&str, Refusal> {
    let missing = || Refusal::http(Code::NoToken, "a bearer token is needed");
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or_else(missing)?;
    if values.next().is_some() {
        return Err(Refusal::http(Code::BadToken, "two Authorization headers"));
    }
    let malformed = || Refusal::http(Code::BadToken, "the Authorization header holds no bearer token");
    let text = value.to_str().map_err(|_| malformed())?;
    let (scheme, token) = text.split_once(' ').ok_or_else(malformed)?;
    let token = token.trim_matches(' ');
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
        return Err(malformed());
    }
    Ok(token)
}

fn invalid(error: &identity::Error, route: &Route) -> Refusal {
    if let identity::Error::Unavailable(_) | identity::Error::NoKeys(_) = error {
        return Refusal::http(Code::Unavailable, "tokens cannot be checked right now").because(error);
    }
    let refusal = Refusal::http(Code::BadToken, error.public()).because(error);
    refusal.challenge(route, Some(("invalid_token", error.public())))
}
