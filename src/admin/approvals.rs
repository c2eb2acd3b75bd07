//! What approvers see: `/`, the list, and `/approvals/<id>`, one call with everything that would run.
//!
//! A person sees what they could decide on, and their own calls; `admins` see all. Everything else is not there: the answer is
//! the same for a call of others and for an id that nobody was given.

use super::shown::Part;
use super::{Shared, is_plain, login, people};
use crate::approval::{self, People, Proof, Refused, Terms, View, hex, is_waited_for, state_at};
use crate::browser::{Form, LoggedIn, unavailable};
use crate::identity::{ADMINS, Person};
use crate::pages::{self, ApprovalGroup, ApprovalRow, NoticeRow, Quorum, Said, period, second};
use crate::policy::Approvers;
use crate::snapshot::Snapshot;
use crate::store::{Approval, ApprovalState as State, MAX_LISTED_APPROVALS, Notice, NoticeState, Requester};
use crate::web::Caller;
use axum::Extension;
use axum::extract::{Path, RawQuery, State as Given};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use std::sync::Arc;

/// Where the list is.
pub(super) const LIST: &str = "/";
/// What has ended is listed as far back as this many.
const MAX_ENDED: usize = 50;
/// For so long it is said that a webhook could not be told.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Those that somebody has to do something about, and those that run.
pub(super) const OPEN: [State; 4] = [State::Pending, State::Approved, State::Consumed, State::Indeterminate];
const ENDED: [State; 6] =
    [State::Completed, State::Failed, State::Denied, State::Expired, State::Withdrawn, State::Invalidated];

// === who may see what ===

/// Whether this person may know of a held call.
pub(super) fn may_see(person: &Person, approval: &Approval) -> bool {
    let is_approver = |terms: Terms| terms.approvers.iter().any(|set| set.include(&person.name, &person.groups));
    is_own(person, approval) || person.is_in(ADMINS) || Terms::read(&approval.terms).is_some_and(is_approver)
}

pub(super) fn is_own(person: &Person, approval: &Approval) -> bool {
    approval.requester.person.as_deref() == Some(&*person.name)
}

// === the list ===

/// `GET /`; with `live`, asked for by the page itself, which does not keep the session alive.
pub(super) async fn list(
    Given(shared): Given<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let logged_in = match login::visitor(&shared, &caller, &headers, query, LIST).await {
        Ok(logged_in) => logged_in,
        Err(answer) => return *answer,
    };
    match listed(&shared, &logged_in).await {
        Ok(page) => pages::answer_approver(StatusCode::OK, &page, true),
        Err(error) => unavailable(&caller, &error),
    }
}

async fn listed(shared: &Shared, logged_in: &LoggedIn) -> Result<pages::Approvals, approval::Error> {
    let (person, now_ms) = (&logged_in.person, shared.now_ms());
    let mut open = shared.approvals.list(&OPEN).await?;
    let is_cut = open.len() >= MAX_LISTED_APPROVALS;
    open.retain(|held| may_see(person, held));
    let mut ended = shared.approvals.list(&ENDED).await?;
    ended.retain(|held| may_see(person, held));
    let (over, open): (Vec<_>, Vec<_>) = open.into_iter().partition(|held| state_at(held, now_ms) == State::Expired);
    ended.splice(0..0, over);
    let of = |wanted: &[State]| open.iter().filter(|held| wanted.contains(&held.state)).collect::<Vec<_>>();
    let mut pending = of(&[State::Pending]);
    // Where somebody waits, first; then what runs out first.
    pending.sort_by_key(|held| (!is_waited_for(held, now_ms), held.expires_at_ms));
    let n_pending = pending.len();
    let n_ended = ended.len();
    ended.truncate(MAX_ENDED);
    let group = |name, title, held: Vec<&Approval>, n_more| ApprovalGroup {
        name,
        title,
        rows: held.into_iter().map(|held| row(held, person, now_ms)).collect(),
        n_more,
    };
    let mut groups = vec![
        group("pending", "Wait for a decision", pending, 0),
        group("lost", "Somebody must say what became of them", of(&[State::Indeterminate]), 0),
        group("approved", "Approved, and not used yet", of(&[State::Approved]), 0),
        group("running", "Run now", of(&[State::Consumed]), 0),
        group("ended", "Lately ended", ended.iter().collect(), n_ended.saturating_sub(MAX_ENDED)),
    ];
    groups.retain(|group| !group.rows.is_empty());
    Ok(pages::Approvals {
        user: person.name.to_string(),
        csrf: shared.plane.csrf(&logged_in.session),
        is_admin: person.is_in(ADMINS),
        n_pending,
        groups,
        n_dead: if person.is_in(ADMINS) {
            shared.store.count_notices(now_ms.saturating_sub(DAY_MS)).await?.dead
        } else {
            0
        },
        is_cut,
        notice: None,
    })
}

fn row(held: &Approval, person: &Person, now_ms: i64) -> ApprovalRow {
    let mut signals: Vec<String> =
        Terms::read(&held.terms).into_iter().flat_map(|terms| terms.findings).map(|found| found.signal).collect();
    signals.sort();
    signals.dedup();
    let state = state_at(held, now_ms);
    ApprovalRow {
        id: held.id.to_string(),
        upstream: held.upstream.to_string(),
        tool: held.tool.to_string(),
        subject: held.requester.subject.to_string(),
        client: held.requester.client.to_string(),
        state: state.as_str(),
        time: row_time(held, state, now_ms),
        is_waited_for: state == State::Pending && is_waited_for(held, now_ms),
        signals,
        is_own: is_own(person, held),
    }
}

fn row_time(held: &Approval, state: State, now_ms: i64) -> String {
    let ago = |ms: i64| format!("{} ago", period(now_ms.saturating_sub(ms)));
    let left = |ms: i64| period(ms.saturating_sub(now_ms));
    match state {
        State::Pending => format!("asked {}, runs out in {}", ago(held.created_at_ms), left(held.expires_at_ms)),
        State::Approved => format!("may be used for another {}", left(held.usable_until_ms.unwrap_or(now_ms))),
        State::Consumed => format!("began {}", ago(held.consumed_at_ms.unwrap_or(held.created_at_ms))),
        State::Denied if held.expires_at_ms > now_ms => format!("in force for another {}", left(held.expires_at_ms)),
        _ => ago(held.ended_at_ms.unwrap_or(held.expires_at_ms)),
    }
}

// === one call ===

/// `GET /approvals/<id>?part=…&shown=…`.
pub(super) async fn one(
    Given(shared): Given<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let snapshot = shared.snapshot();
    let query = Form::parse(query.unwrap_or_default().as_bytes()).unwrap_or_default();
    let logged_in = match shared.plane.current(&snapshot, &headers).await {
        Ok(Some(logged_in)) => logged_in,
        Ok(None) => return login::page(&shared, &snapshot, &headers, uri.path()),
        Err(error) => return unavailable(&caller, &error),
    };
    let view = match shared.approvals.view(&id).await {
        Ok(view) => view.filter(|view| may_see(&logged_in.person, &view.approval)),
        Err(error) => return unavailable(&caller, &error),
    };
    let Some(view) = view else {
        return not_found();
    };
    let asked = Asked {
        part: query.get("part").and_then(|part| part.parse().ok()).unwrap_or(1),
        note: query.get("shown").unwrap_or_default(),
        ..Asked::default()
    };
    page(&shared, &snapshot, &caller, &logged_in, &view, &asked).await
}

/// Nothing is here that this person may see.
pub(super) fn not_found() -> Response {
    let page = pages::Message {
        title: "Not found".to_owned(),
        text: vec!["There is nothing here for you: no such page, or no such held call.".to_owned()],
        details: Vec::new(),
        link: Some((LIST.to_owned(), "To the approvals".to_owned())),
        is_error: true,
    };
    pages::answer_approver(StatusCode::NOT_FOUND, &page, false)
}

/// What a page is asked to show.
#[derive(Default)]
pub(super) struct Asked<'a> {
    /// Which part, from 1.
    pub(super) part: usize,
    /// The note of which were shown before.
    pub(super) note: &'a str,
    /// Why what was tried was not done, and the status that goes with it.
    pub(super) problem: Option<(StatusCode, String)>,
    /// The reason that was typed.
    pub(super) reason: &'a str,
}

/// The page of one call, as this person sees it.
pub(super) async fn page(
    shared: &Shared,
    snapshot: &Arc<Snapshot>,
    caller: &Caller,
    logged_in: &LoggedIn,
    view: &View,
    asked: &Asked<'_>,
) -> Response {
    let notices = match shared.store.notices(&view.approval.id).await {
        Ok(notices) => notices,
        Err(error) => return unavailable(caller, &error),
    };
    let part = part_of(shared, view, asked.part);
    let n_shown = shared.n_shown(logged_in, &view.approval, part.n_parts, asked.note);
    // Nobody gets further than the part after those they were shown.
    let part = if part.number > n_shown + 1 { part_of(shared, view, n_shown + 1) } else { part };
    let n_shown = n_shown.max(part.number);
    let note = shared.note_of(logged_in, &view.approval, n_shown, part.n_parts);
    let mut page = told(shared, snapshot, logged_in, view, part, &note);
    page.notices = notices.iter().map(notice).collect();
    if let Some(choice) = &mut page.choice {
        asked.reason.clone_into(&mut choice.reason);
    }
    let (status, problem) = asked.problem.clone().unzip();
    page.problem = problem;
    pages::answer_approver(status.unwrap_or(StatusCode::OK), &page, false)
}

/// The part of what would run that is asked for.
pub(super) fn part_of(shared: &Shared, view: &View, wanted: usize) -> Part {
    match shared.approvals.rendered(view) {
        Some(rendered) => Part::of(&view.approval.tool, &rendered, wanted),
        None => Part { sections: Vec::new(), number: 1, n_parts: 1 },
    }
}

fn told(
    shared: &Shared,
    snapshot: &Arc<Snapshot>,
    logged_in: &LoggedIn,
    view: &View,
    part: Part,
    note: &str,
) -> pages::Approval {
    let (held, now_ms) = (&view.approval, shared.now_ms());
    let (state, people) = (state_at(held, now_ms), people(snapshot));
    let Requester { issuer, subject, client, person, .. } = &held.requester;
    let subject = subject.to_string();
    let (choice, refusal) = choice(snapshot, &logged_in.person, view, state, now_ms);
    let is_waited_for = is_waited_for(held, now_ms);
    pages::Approval {
        user: logged_in.person.name.to_string(),
        csrf: shared.plane.csrf(&logged_in.session),
        id: held.id.to_string(),
        upstream: held.upstream.to_string(),
        tool: held.tool.to_string(),
        person: person.as_deref().filter(|person| subject != format!("user:{person}")).map(str::to_owned),
        issuer: (**issuer != *snapshot.public_url).then(|| issuer.to_string()),
        subject,
        client: client.to_string(),
        state: state.as_str(),
        status: status(state).to_owned(),
        is_pending: state == State::Pending,
        rules: held.rules.iter().map(ToString::to_string).collect(),
        findings: view.terms.findings.iter().map(|found| (found.signal.clone(), found.at.clone())).collect(),
        warning: view.terms.warning.clone(),
        facts: facts(held, state),
        caller: caller_text(held, is_waited_for),
        is_waited_for,
        clocks: (state == State::Pending).then(|| clocks(held, now_ms)),
        digest: hex(&held.digest)
            .as_bytes()
            .chunks(8)
            .map(|digits| String::from_utf8_lossy(digits).into_owned())
            .collect(),
        quorums: view.terms.approvers.iter().map(|set| quorum(set, view, &people)).collect(),
        said: view.decisions.iter().map(said).collect(),
        sections: part.sections,
        is_erased: view.call.is_none(),
        part: part.number,
        n_parts: part.n_parts,
        size: size(view),
        shown: note.to_owned(),
        choice,
        refusal,
        notices: Vec::new(),
        notice: None,
        problem: None,
    }
}

fn status(state: State) -> &'static str {
    match state {
        State::Pending => "Waits for a decision:",
        State::Approved => "Approved, and not used yet:",
        State::Denied => "Denied:",
        State::Expired => "Nobody decided, or called, in time:",
        State::Withdrawn => "Withdrawn:",
        State::Invalidated => "Its approval does not hold any more:",
        State::Consumed => "Runs now:",
        State::Completed => "It has run:",
        State::Failed => "It failed:",
        State::Indeterminate => "Nobody knows whether it ran:",
    }
}

fn caller_text(held: &Approval, is_waited_for: bool) -> String {
    if is_waited_for {
        return "Its caller is waiting: approved, it runs at once.".to_owned();
    }
    let valid_for = period(held.valid_for_ms);
    format!("Its caller is not waiting: an approval only lets the same call run if it comes again within {valid_for}.")
}

/// Both clocks, where they are needed.
fn clocks(held: &Approval, now_ms: i64) -> String {
    let left = period(held.expires_at_ms.saturating_sub(now_ms));
    let valid_for = period(held.valid_for_ms);
    format!("Undecided, it is over in {left}. An approval may be used for {valid_for}, and for one run.")
}

fn facts(held: &Approval, state: State) -> Vec<(&'static str, String)> {
    let mut facts = vec![("Asked for", second(held.created_at_ms))];
    if state == State::Pending {
        facts.push(("Undecided, it is over", second(held.expires_at_ms)));
        facts.push(("An approval may be used for", period(held.valid_for_ms)));
        return facts;
    }
    let mut add = |name, at_ms: Option<i64>| facts.extend(at_ms.map(|at_ms| (name, second(at_ms))));
    add("Decided", held.decided_at_ms);
    add("Could be used until", held.usable_until_ms);
    add("Began to run", held.consumed_at_ms);
    add("Ended", held.ended_at_ms);
    add("Its result was received", held.received_at_ms);
    add("The denial is in force until", (state == State::Denied).then_some(held.expires_at_ms));
    facts.extend(held.note.clone().map(|note| ("What is said of it", note)));
    facts
}

fn quorum(set: &Approvers, view: &View, people: &People) -> Quorum {
    let users = set.users.iter().map(|user| format!("user {user}"));
    let groups = set.groups.iter().map(|group| format!("group {group}"));
    let is_of_set = |name: &str| people(name).is_some_and(|groups| set.include(name, &groups));
    Quorum {
        of: format!("of {}", users.chain(groups).collect::<Vec<_>>().join(" or ")),
        needed: usize::try_from(set.quorum.max(1)).unwrap_or(usize::MAX),
        given: view.decisions.iter().filter(|said| said.approves && is_of_set(&said.person)).count(),
    }
}

fn said(said: &crate::store::ApprovalDecision) -> Said {
    Said {
        person: said.person.to_string(),
        word: if said.approves { "approved" } else { "denied" },
        via: said.via.clone(),
        at: second(said.at_ms),
    }
}

fn notice(notice: &Notice) -> NoticeRow {
    let n = notice.attempts;
    let attempts = format!("{n} {}", if n == 1 { "attempt" } else { "attempts" });
    let why = notice.last_error.as_ref().map(|why| format!("; last: {why}")).unwrap_or_default();
    NoticeRow {
        hook: notice.hook.to_string(),
        state: notice.state.as_str(),
        detail: format!("{attempts}{why}"),
        is_dead: notice.state == NoticeState::Dead,
    }
}

/// How large all that would run is.
fn size(view: &View) -> String {
    let Some(call) = &view.call else {
        return String::new();
    };
    let parts = [call.arguments(), call.input_responses()];
    let bytes: usize = parts.iter().flatten().map(|node| node.text().len()).sum();
    let bytes = bytes + call.request_state().map_or(0, |state| state.len());
    match bytes {
        0..=9_999 => format!("{bytes} bytes"),
        10_000..=999_999 => format!("{},{:03} bytes", bytes / 1000, bytes % 1000),
        _ => format!("{},{:03},{:03} bytes", bytes / 1_000_000, bytes / 1000 % 1000, bytes % 1000),
    }
}

// === what a person may do ===

fn choice(
    snapshot: &Snapshot,
    person: &Person,
    view: &View,
    state: State,
    now_ms: i64,
) -> (Option<pages::Choice>, Option<String>) {
    let (held, terms) = (&view.approval, &view.terms);
    let admit = |proof, approves| terms.admit(&held.requester, &person.name, &person.groups, proof, approves);
    let (is_own, is_pending) = (is_own(person, held), state == State::Pending);
    let has_said = view.decisions.iter().any(|said| *said.person == *person.name);
    let may_approve = admit(Proof::Password, true);
    let may_deny = admit(Proof::Password, false).is_ok();
    let refusal = match &may_approve {
        _ if !is_pending => None,
        _ if has_said => Some("You have decided on it. Another person is needed.".to_owned()),
        Err(Refused::OwnCall) => Some("It is your own call, and the rule does not let you decide on it.".to_owned()),
        Err(_) => Some("You may look at it, and are not among its approvers.".to_owned()),
        Ok(()) => None,
    };
    let choice = pages::Choice {
        digest: hex(&held.digest),
        can_deny: is_pending && may_deny && !has_said,
        can_approve: is_pending && may_approve.is_ok() && !has_said,
        can_withdraw: matches!(state, State::Pending | State::Approved) && (is_own || may_approve.is_ok()),
        can_reopen: state == State::Denied && held.expires_at_ms > now_ms && may_approve.is_ok(),
        can_resolve: state == State::Indeterminate && may_approve.is_ok(),
        password: None,
        reason: String::new(),
    };
    let asks_own = is_own && (choice.can_approve || choice.can_reopen || choice.can_resolve);
    let password = match () {
        () if is_plain(snapshot) => Some("This page is not encrypted, so each decision asks for it."),
        () if asks_own => Some("It is your own call, so it is asked for."),
        () => None,
    };
    let can_anything =
        choice.can_deny || choice.can_approve || choice.can_withdraw || choice.can_reopen || choice.can_resolve;
    (can_anything.then_some(pages::Choice { password, ..choice }), refusal)
}
