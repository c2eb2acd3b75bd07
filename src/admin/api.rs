//! `/api/approvals`: held calls in JSON, for programs of approvers.
//!
//! Whoever asks is a person: by a session of the pages, whose changes bring its mark in `X-CSRF-Token`, or by name and
//! password with each request (HTTP Basic), at the pace of a login. Bodies are `application/json`, which no form of another
//! site can send.

use super::approvals::{OPEN, is_own, may_see};
use super::credentials::{Known, document, error, person, refused};
use super::decision::{self, Act, Word, digest_of, status_of};
use super::{Shared, is_plain};
use crate::approval::{self, LONGEST_REASON, Proof, View};
use crate::browser::{Form, trouble, unavailable};
use crate::clock::rfc3339;
use crate::identity::Person;
use crate::snapshot::Snapshot;
use crate::store::{Approval, ApprovalState as State};
use crate::web::Caller;
use axum::Extension;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Path, RawQuery, Request, State as Given};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

/// Where a session's mark is sent by scripts.
const CSRF: HeaderName = HeaderName::from_static("x-csrf-token");
/// In bytes.
const MAX_BODY: usize = 16 * 1024;

/// What a change says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    digest: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    password: Option<String>,
    /// Of `resolve`.
    #[serde(default)]
    ran: Option<bool>,
}

/// `GET /api/approvals`; with `all`, those that have ended as well.
pub(super) async fn list(
    Given(shared): Given<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let snapshot = shared.snapshot();
    let known = match person(&shared, &snapshot, &caller, &headers).await {
        Ok(known) => known,
        Err(answer) => return answer,
    };
    let query = Form::parse(query.unwrap_or_default().as_bytes()).unwrap_or_default();
    let states: &[State] = if query.has("all") { &State::ALL } else { &OPEN };
    let now_ms = shared.now_ms();
    match shared.approvals.list(states).await {
        Ok(held) => {
            let held: Vec<Value> = held
                .iter()
                .filter(|held| may_see(known.person(), held))
                .map(|held| facts(held, known.person(), now_ms))
                .collect();
            document(StatusCode::OK, &json!({ "approvals": held, "csrf": mark(&shared, &known) }))
        }
        Err(error) => unavailable(&caller, &error),
    }
}

/// `GET /api/approvals/<id>`.
pub(super) async fn one(
    Given(shared): Given<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let snapshot = shared.snapshot();
    let known = match person(&shared, &snapshot, &caller, &headers).await {
        Ok(known) => known,
        Err(answer) => return answer,
    };
    match shared.approvals.view(&id).await {
        Ok(Some(view)) if may_see(known.person(), &view.approval) => {
            document(StatusCode::OK, &whole(&shared, &view, &known))
        }
        Ok(_) => unknown(),
        Err(error) => unavailable(&caller, &error),
    }
}

/// `POST /api/approvals/<id>/{approve,deny,reopen,withdraw,resolve}`.
pub(super) async fn decide(
    Given(shared): Given<Shared>,
    Extension(caller): Extension<Caller>,
    Path((id, verb)): Path<(String, String)>,
    request: Request,
) -> Response {
    let snapshot = shared.snapshot();
    let (parts, body) = request.into_parts();
    let known = match person(&shared, &snapshot, &caller, &parts.headers).await {
        Ok(known) => known,
        Err(answer) => return answer,
    };
    if let Known::Session(logged_in) = &known {
        let sent = parts.headers.get(CSRF).and_then(|sent| sent.to_str().ok());
        if !shared.plane.is_csrf(&logged_in.session, sent) {
            let why = "`X-CSRF-Token` is not the mark of this session (`csrf` of GET /api/approvals)";
            return refused(StatusCode::FORBIDDEN, "page.stale", why);
        }
    }
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return refused(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request", "the body is too large");
    };
    let (change, word) = match read(&parts.headers, &body, &verb) {
        Ok(read) => read,
        Err(Some(why)) => return refused(StatusCode::BAD_REQUEST, "invalid_request", why),
        Err(None) => return unknown(),
    };
    if decision::seen(&shared, &snapshot, &caller, known.person(), &id, "api").await.is_err() {
        return unknown();
    }
    let proof = match proof(&shared, &snapshot, &caller, &parts.headers, &known, &change).await {
        Ok(proof) => proof,
        Err(answer) => {
            decision::refused(&shared, &snapshot, &caller, known.person(), &id, "approval.needs_password", "api");
            return answer;
        }
    };
    let Some(digest) = digest_of(&change.digest) else {
        return refused(StatusCode::BAD_REQUEST, "invalid_request", "`digest` is not 64 hexadecimal digits");
    };
    let reason = change.reason.as_deref();
    let act = Act { id: &id, word, digest, reason, person: known.person(), proof, via: "api" };
    match act.take(&shared, &snapshot, &caller).await {
        Ok(Ok(())) => match shared.approvals.view(&id).await {
            Ok(Some(view)) => document(StatusCode::OK, &whole(&shared, &view, &known)),
            Ok(None) => unknown(),
            Err(error) => unavailable(&caller, &error),
        },
        Ok(Err(why)) => error(status_of(&why), why.code(), &why.to_string()),
        Err(error) => unavailable(&caller, &error),
    }
}

/// What is said, and of what; or what is wrong with it, where there is such a verb.
fn read(headers: &HeaderMap, body: &Bytes, verb: &str) -> Result<(Change, Word), Option<&'static str>> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        return Err(Some("the body must be application/json"));
    }
    let change: Change = serde_json::from_slice(body)
        .map_err(|_| Some("the body is not an object with `digest`, and perhaps `reason`, `password`, `ran`"))?;
    if change.reason.as_ref().is_some_and(|reason| reason.len() > LONGEST_REASON) {
        return Err(Some("`reason` is too long"));
    }
    let word = match (verb, change.ran) {
        ("approve", None) => Word::Approve,
        ("deny", None) => Word::Deny,
        ("reopen", None) => Word::Reopen,
        ("withdraw", None) => Word::Withdraw,
        ("resolve", Some(has_run)) => Word::Resolve { has_run },
        ("resolve", None) => return Err(Some("`ran` must say whether it did run")),
        ("approve" | "deny" | "reopen" | "withdraw", Some(_)) => return Err(Some("`ran` is for `resolve`")),
        _ => return Err(None),
    };
    Ok((change, word))
}

/// How sure it is that the person says so. Over plain HTTP a session alone does not do.
async fn proof(
    shared: &Shared,
    snapshot: &Snapshot,
    caller: &Caller,
    headers: &HeaderMap,
    known: &Known,
    change: &Change,
) -> Result<Proof, Response> {
    if matches!(known, Known::Password(_)) {
        return Ok(Proof::Password);
    }
    let Some(password) = change.password.as_deref() else {
        let why = "over plain http each decision needs `password`";
        let needs = || error(StatusCode::FORBIDDEN, "approval.needs_password", why);
        return if is_plain(snapshot) { Err(needs()) } else { Ok(Proof::Session) };
    };
    let verified = shared.plane.verify(snapshot, caller, headers, &known.person().name, password).await;
    verified.map(|_| Proof::Password).map_err(|why| {
        let trouble = trouble(&why, shared.now_ms());
        error(trouble.status, "admin.credentials", &trouble.text)
    })
}

fn unknown() -> Response {
    error(StatusCode::NOT_FOUND, "approval.unknown", "there is no such held call")
}

fn mark(shared: &Shared, known: &Known) -> Option<String> {
    match known {
        Known::Session(logged_in) => Some(shared.plane.csrf(&logged_in.session)),
        Known::Password(_) => None,
    }
}

/// A held call without what it holds.
fn facts(held: &Approval, person: &Person, now_ms: i64) -> Value {
    let mut facts = approval::facts(held, now_ms);
    if let Some(facts) = facts.as_object_mut() {
        facts.insert("is_own".to_owned(), is_own(person, held).into());
    }
    facts
}

/// A held call with everything that would run, as text of the canonical form: numbers and order stay as they are.
fn whole(shared: &Shared, view: &View, known: &Known) -> Value {
    let mut facts = facts(&view.approval, known.person(), shared.now_ms());
    let call = view.call.as_ref();
    let said = |said: &crate::store::ApprovalDecision| json!({ "person": &*said.person, "approves": said.approves, "via": said.via, "at": rfc3339(said.at_ms) });
    let more = json!({
        "arguments": shared.approvals.masked_arguments(view),
        "input_responses": call.and_then(|call| Some(call.input_responses()?.text().to_owned())),
        "request_state": call.and_then(crate::approval::Call::request_state),
        "is_erased": call.is_none(),
        "masked": view.terms.mask,
        "signals": view.terms.findings.iter().map(|found| json!({ "signal": found.signal, "at": found.at })).collect::<Vec<_>>(),
        "warning": view.terms.warning,
        "approvers": view.terms.approvers,
        "self": view.terms.by_requester,
        "decisions": view.decisions.iter().map(said).collect::<Vec<_>>(),
        "csrf": mark(shared, known),
    });
    if let (Some(facts), Value::Object(more)) = (facts.as_object_mut(), more) {
        facts.extend(more);
    }
    facts
}
