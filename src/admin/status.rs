//! `/status`: how it is with the gateway, for people who have nothing else to look with. The same in JSON at `/api/status`.
//!
//! It is for people of `admins`: who asks for what, and what is wrong with the configuration, is no approver's matter.
//! Decisions come from the audit log, without the secrets that are not in it and without arguments where it has them.
//! Nothing is changed by looking.

use super::credentials::{document, person, refused};
use super::standing::{Standing, UpstreamStanding};
use super::{Shared, login};
use crate::approval;
use crate::audit::{self, Directory};
use crate::browser::{Refusal, unavailable};
use crate::identity::ADMINS;
use crate::pages::{self, DecisionRow, Note, StatusRow, period, second};
use crate::store::ApprovalState as State;
use crate::web::Caller;
use axum::Extension;
use axum::extract::{RawQuery, State as Given};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};

/// Where the page is.
pub(super) const STATUS: &str = "/status";
/// Decisions that are shown.
const MAX_DECISIONS: usize = 50;
/// A certificate that runs out sooner is said first.
const SOON_S: i64 = 14 * 86_400;
const WHY: &str = "the status of the gateway is for people of the group `admins`";

/// Held calls by where they stand.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Holds {
    pending: usize,
    approved: usize,
    running: usize,
    lost: usize,
}

/// `GET /status`; with `live`, asked for by the page itself, which does not keep the session alive.
pub(super) async fn get(
    Given(shared): Given<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let logged_in = match login::visitor(&shared, &caller, &headers, query, STATUS).await {
        Ok(logged_in) => logged_in,
        Err(answer) => return *answer,
    };
    if !logged_in.person.is_in(ADMINS) {
        return not_for_you();
    }
    let holds = match holds(&shared).await {
        Ok(holds) => holds,
        Err(error) => return unavailable(&caller, &error),
    };
    let (user, csrf) = (logged_in.person.name.to_string(), shared.plane.csrf(&logged_in.session));
    let page = page(&(shared.standing)(), holds, &decisions(&shared).await, shared.now_ms(), (user, csrf));
    pages::answer_approver(StatusCode::OK, &page, true)
}

/// `GET /api/status`.
pub(super) async fn api(
    Given(shared): Given<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    let snapshot = shared.snapshot();
    let known = match person(&shared, &snapshot, &caller, &headers).await {
        Ok(known) => known,
        Err(answer) => return answer,
    };
    if !known.person().is_in(ADMINS) {
        return refused(StatusCode::FORBIDDEN, "admin.group", WHY);
    }
    match holds(&shared).await {
        Ok(holds) => {
            let (standing, decisions) = ((shared.standing)(), decisions(&shared).await);
            document(StatusCode::OK, &json!({ "status": standing, "holds": holds, "decisions": decisions }))
        }
        Err(error) => unavailable(&caller, &error),
    }
}

fn not_for_you() -> Response {
    let page = pages::Message {
        title: "Not for you".to_owned(),
        text: vec![
            "The status of the gateway is for people of the group “admins”.".to_owned(),
            "Whoever keeps the configuration can put you into it.".to_owned(),
        ],
        details: Vec::new(),
        link: Some(("/".to_owned(), "To the approvals".to_owned())),
        is_error: true,
    };
    let answer = pages::answer_approver(StatusCode::FORBIDDEN, &page, false);
    Refusal { code: "admin.group", detail: WHY.into() }.mark(answer)
}

async fn holds(shared: &Shared) -> Result<Holds, approval::Error> {
    let open = shared.approvals.list(&super::approvals::OPEN).await?;
    let now_ms = shared.now_ms();
    let n = |wanted: State| open.iter().filter(|held| approval::state_at(held, now_ms) == wanted).count();
    Ok(Holds {
        pending: n(State::Pending),
        approved: n(State::Approved),
        running: n(State::Consumed),
        lost: n(State::Indeterminate),
    })
}

/// The newest decisions, as they stand in the audit log; the latest first.
async fn decisions(shared: &Shared) -> Vec<Value> {
    let directory = Directory::new(shared.snapshot().data_dir.join("audit"));
    // Files are read: not on a thread that serves calls.
    let read = tokio::task::spawn_blocking(move || audit::newest(&directory, "decision", MAX_DECISIONS)).await;
    match read {
        Ok(Ok(lines)) => {
            let redactor = shared.plane.audit.redactor();
            let clean = |line: &String| {
                let mut record: Value = serde_json::from_str(line).ok()?;
                // They are for who asks the log for them.
                record.as_object_mut()?.remove("arguments");
                // Lines of an older version may hold what is known for a secret only now.
                Some(redactor.json(&record, &[], &[]))
            };
            lines.iter().filter_map(clean).collect()
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "the newest decisions cannot be read");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

fn page(
    standing: &Standing,
    holds: Holds,
    decisions: &[Value],
    now_ms: i64,
    (user, csrf): (String, String),
) -> pages::Status {
    pages::Status {
        user,
        csrf,
        lead: lead(standing, now_ms),
        notes: notes(standing, now_ms),
        refused: standing.configuration.refused.as_ref().map(|refused| refused.problems.clone()),
        upstreams: standing.upstreams.iter().map(upstream).collect(),
        holds: [
            ("wait for a decision", holds.pending),
            ("are approved, and not used yet", holds.approved),
            ("run now", holds.running),
            ("ended, and nobody knows how", holds.lost),
        ]
        .into_iter()
        .filter(|(_, n)| *n > 0)
        .collect(),
        facts: facts(standing, now_ms),
        decisions: decisions.iter().map(decision).collect(),
    }
}

fn lead(standing: &Standing, now_ms: i64) -> String {
    let up = period(seconds(standing.up_s));
    let loaded = period(now_ms.saturating_sub(standing.configuration.loaded_unix_s.saturating_mul(1000)));
    let (version, hash) = (standing.version, &standing.configuration.hash);
    format!("portcullis {version}, up for {up}. Configuration {hash} has been in force for {loaded}.")
}

/// What somebody should do something about.
fn notes(standing: &Standing, now_ms: i64) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut say = |is_bad, text: String| notes.push(Note { is_bad, text });
    if let Some(refused) = &standing.configuration.refused {
        let at = second(refused.unix_ms);
        say(
            true,
            format!("The configuration file on disk is not in force: it was refused on {at}, for what stands below."),
        );
    }
    if !standing.audit.is_available {
        say(true, "The audit log cannot be written. Tool calls are refused until it can.".to_owned());
    }
    if standing.audit.dropped > 0 {
        say(false, format!("{} records of the audit log were lost since the start.", standing.audit.dropped));
    }
    for down in standing.upstreams.iter().filter(|upstream| upstream.is_up == Some(false)) {
        say(false, format!("Upstream {} does not answer.", down.name));
    }
    for certificate in &standing.certificates {
        let left_s = certificate.expires_unix_s.saturating_sub(now_ms / 1000);
        let used_by = &certificate.used_by;
        match left_s {
            ..=0 => say(true, format!("The certificate of {used_by} has run out.")),
            1..SOON_S => say(false, format!("The certificate of {used_by} runs out in {}.", period(left_s * 1000))),
            _ => {}
        }
    }
    notes
}

fn upstream(upstream: &UpstreamStanding) -> StatusRow {
    let (word, class) = match upstream.is_up {
        Some(true) => ("up", "approved"),
        Some(false) => ("down", "denied"),
        None => ("not reached yet", "pending"),
    };
    let n = upstream.tools;
    let tools = if n == 1 { "1 tool".to_owned() } else { format!("{n} tools") };
    StatusRow {
        name: upstream.name.clone(),
        word,
        class,
        about: format!("{tools}, for {}", period(seconds(upstream.since_s))),
        process: upstream.process.as_ref().map(|process| format!("Its process {process}.")),
        last_error: upstream.last_error.clone(),
    }
}

fn facts(standing: &Standing, now_ms: i64) -> Vec<(String, String)> {
    let audit = &standing.audit;
    let mut facts = vec![
        ("Requests in flight".to_owned(), standing.in_flight.to_string()),
        ("Decisions since the start".to_owned(), standing.decisions.to_string()),
        ("Records waiting for the audit log".to_owned(), audit.queued.to_string()),
        ("Metrics".to_owned(), standing.metrics_listener.clone().unwrap_or_else(|| "not served".to_owned())),
    ];
    let mut add = |name: &str, value: String| facts.push((name.to_owned(), value));
    if let Some(at) = audit.checkpoint_unix_s {
        add("Last checkpoint", format!("{} ago", period(now_ms.saturating_sub(at.saturating_mul(1000)))));
    }
    for (name, lag_s) in &audit.sinks {
        let behind =
            if *lag_s == 0 { "has all records".to_owned() } else { format!("{} behind", period(lag_s * 1000)) };
        add(&format!("Sink {name}"), behind);
    }
    for certificate in &standing.certificates {
        let until = second(certificate.expires_unix_s.saturating_mul(1000));
        add(&format!("Certificate of {}", certificate.used_by), format!("until {until}"));
    }
    match &standing.traces {
        Some(traces) => {
            let said = format!("{} sent, {} wait, {} dropped", traces.exported, traces.waiting, traces.dropped);
            add("Spans for traces", said);
        }
        None => add("Traces", "off".to_owned()),
    }
    facts
}

/// A record, as far as it says so.
fn decision(record: &Value) -> DecisionRow {
    let text = |pointer: &str| record.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let word = text("/decision");
    DecisionRow {
        at: text("/at"),
        class: match word.as_str() {
            "allowed" => "approved",
            "held" => "pending",
            _ => "denied",
        },
        word,
        method: text("/method"),
        upstream: text("/upstream"),
        object: text("/object"),
        subject: text("/principal/subject"),
        client: text("/principal/client"),
        rules: record["rules"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
        request: text("/request"),
    }
}

fn seconds(s: u64) -> i64 {
    i64::try_from(s.saturating_mul(1000)).unwrap_or(i64::MAX)
}
