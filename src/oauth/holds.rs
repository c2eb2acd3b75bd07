//! `/holds/<id>`: where a held call stands, for the person it was asked for, and taking it back.
//!
//! A client that can show a page is sent here (`proxy::hold::rounds`). Nothing is approved here: whoever asked is not who
//! decides, and that somebody saw this page means nothing. To everybody else there is no such page.

use super::{Shared, error_pages, login, redirect};
use crate::approval::{self, Decider, Place, Proof, Terms};
use crate::browser::{LoggedIn, Submitted};
use crate::pages::{self, Hold};
use crate::policy::Approvers;
use crate::snapshot::Snapshot;
use crate::store::{Approval, ApprovalState as State};
use crate::web::Caller;
use axum::Extension;
use axum::extract::{Path, State as Of};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use std::sync::Arc;

/// A page whose call may still change is asked for again after this long, in seconds.
const LOOK_AGAIN: HeaderValue = HeaderValue::from_static("10");
/// How people come here, in records.
const VIA: &str = "status page";

/// `GET /holds/<id>`.
pub(super) async fn get(
    Of(shared): Of<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    if !is_id(&id) {
        return not_found(&caller);
    }
    let snapshot = shared.snapshots.load_full();
    let logged_in = match shared.plane.current(&snapshot, &headers).await {
        Ok(Some(logged_in)) => logged_in,
        // Whether there is such a call is nobody's business before that.
        Ok(None) => {
            let browser = shared.plane.browser(&snapshot, &headers);
            return login::page_towards(&shared, &snapshot, &browser, format!("/holds/{id}"));
        }
        Err(error) => return error_pages::unavailable(&caller, &error),
    };
    match theirs(&shared, &logged_in, &id).await {
        Ok(Some(approval)) => page(&shared, &snapshot, &logged_in, &approval),
        Ok(None) => not_found(&caller),
        Err(error) => error_pages::unavailable(&caller, &error),
    }
}

/// `POST /holds/<id>`: takes it back.
pub(super) async fn post(
    Of(shared): Of<Shared>,
    Path(id): Path<String>,
    Submitted { caller, headers, form }: Submitted,
) -> Response {
    let snapshot = shared.snapshots.load_full();
    let logged_in = match shared.plane.current(&snapshot, &headers).await {
        Ok(Some(logged_in)) => logged_in,
        Ok(None) => return error_pages::start_again(&caller),
        Err(error) => return error_pages::unavailable(&caller, &error),
    };
    if !shared.plane.is_csrf(&logged_in.session, form.get("csrf")) || form.get("decision") != Some("withdraw") {
        return error_pages::start_again(&caller);
    }
    let approval = match theirs(&shared, &logged_in, &id).await {
        Ok(Some(approval)) => approval,
        Ok(None) => return not_found(&caller),
        Err(error) => return error_pages::unavailable(&caller, &error),
    };
    let peer = caller.address.map(|address| address.to_string());
    let groups = Arc::clone(&snapshot);
    let decider = Decider {
        person: &logged_in.person.name,
        proof: Proof::Session,
        via: VIA,
        place: Place { issuer: &snapshot.public_url, request: Some(&caller.request), peer: peer.as_deref() },
        people: Arc::new(move |name| groups.users.get(name).map(|person| Arc::clone(&person.groups))),
    };
    match shared.approvals.withdraw(&approval.id, &decider).await {
        // Where it came to another end meanwhile, the page says to which.
        Ok(_) => redirect::within(&format!("/holds/{}", approval.id)),
        Err(error) => error_pages::unavailable(&caller, &error),
    }
}

/// Whether a held call could have this id.
fn is_id(id: &str) -> bool {
    id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// The held call of this id, if it was asked for by this person, or by a machine that they answer for.
async fn theirs(shared: &Shared, logged_in: &LoggedIn, id: &str) -> Result<Option<Approval>, approval::Error> {
    let approval = shared.approvals.get(id).await?;
    Ok(approval.filter(|approval| approval.requester.person.as_deref() == Some(&*logged_in.person.name)))
}

/// The same, whether there is none or it is somebody else's.
fn not_found(caller: &Caller) -> Response {
    let text = "There is no such held call of yours. It may have been too long ago.";
    error_pages::error(caller, StatusCode::NOT_FOUND, "No such page", &[text], Vec::new())
}

fn page(shared: &Shared, snapshot: &Snapshot, logged_in: &LoggedIn, approval: &Approval) -> Response {
    let (heading, explanation) = said(approval.state);
    let is_open = matches!(approval.state, State::Pending | State::Approved);
    let note = match approval.state {
        State::Pending => self_approval(snapshot, logged_in, approval),
        _ => approval.note.clone(),
    };
    let page = Hold {
        user: logged_in.person.name.to_string(),
        csrf: shared.plane.csrf(&logged_in.session),
        id: approval.id.to_string(),
        heading,
        explanation,
        note,
        is_good: matches!(approval.state, State::Pending | State::Completed),
        tool: approval.tool.to_string(),
        route: approval.upstream.to_string(),
        client: approval.requester.client.to_string(),
        since: pages::moment(approval.created_at_ms),
        facts: facts(approval),
        may_withdraw: is_open,
    };
    let mut response = pages::answer(StatusCode::OK, &page, None);
    if is_open || approval.state == State::Consumed {
        response.headers_mut().insert("refresh", LOOK_AGAIN);
    }
    response
}

fn said(state: State) -> (&'static str, &'static str) {
    match state {
        State::Pending => {
            ("Waits for approval", "An app asked for this in your name. It runs once somebody has approved it.")
        }
        State::Approved => {
            ("Approved", "It runs at once if the app waits for it, and otherwise when the app asks again.")
        }
        State::Consumed => ("Running", "It was approved and runs."),
        State::Completed => ("Done", "It was approved and ran. The app has the result, or gets it when it asks again."),
        State::Failed => ("Failed", "It was approved, and its server gave no answer that can be used."),
        State::Denied => ("Denied", "Somebody looked at it and said no. It did not run."),
        State::Expired => ("Expired", "It did not run."),
        State::Withdrawn => ("Withdrawn", "It was taken back. It did not run."),
        State::Invalidated => ("Approval void", "What was approved is not so any more. It did not run."),
        State::Indeterminate => (
            "Nobody knows",
            "The gateway ended while it ran. Whether it did is not known until somebody has found out and said so.",
        ),
    }
}

/// Where the requester may decide as well: not here, and not with this login.
fn self_approval(snapshot: &Snapshot, logged_in: &LoggedIn, approval: &Approval) -> Option<String> {
    let terms = Terms::read(&approval.terms).filter(|terms| terms.by_requester)?;
    let person = &logged_in.person;
    terms.approvers.iter().find(|set| set.include(&person.name, &person.groups))?;
    let page = snapshot.admin.as_ref().map(|admin| format!("{}/approvals/{}", admin.url, approval.id));
    let at = page.map(|url| format!(" at {url}")).unwrap_or_default();
    Some(format!("You may approve it yourself, with your password, on the page for approvers{at}"))
}

fn facts(approval: &Approval) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let terms = Terms::read(&approval.terms);
    facts.extend(terms.map(|terms| ("Can be approved by", people_of(&terms.approvers))));
    let until = |at_ms: Option<i64>| at_ms.map(pages::moment);
    match approval.state {
        State::Pending => {
            facts.push(("Over if nobody decides by", pages::moment(approval.expires_at_ms)));
            let minutes = approval.valid_for_ms.max(0) / 60_000;
            let long =
                if minutes > 0 { format!("{minutes} min") } else { format!("{} s", approval.valid_for_ms / 1000) };
            facts.push(("Once approved, runs within", long));
        }
        State::Approved => {
            facts.extend(until(approval.usable_until_ms).map(|until| ("Over if the app does not ask by", until)));
        }
        State::Denied => facts.push(("The same call stays denied until", pages::moment(approval.expires_at_ms))),
        _ => facts.extend(until(approval.ended_at_ms).map(|ended| ("Ended", ended))),
    }
    facts
}

/// `bob, or somebody of admins (2 people); and somebody of ops`
fn people_of(sets: &[Approvers]) -> String {
    let of_set = |set: &Approvers| {
        let groups = set.groups.iter().map(|group| format!("somebody of {group}"));
        let names: Vec<String> = set.users.iter().cloned().chain(groups).collect();
        let how_many = if set.quorum > 1 { format!(" ({} people)", set.quorum) } else { String::new() };
        format!("{}{how_many}", names.join(", or "))
    };
    let mut sets: Vec<String> = sets.iter().map(of_set).collect();
    sets.dedup();
    sets.join("; and ")
}
