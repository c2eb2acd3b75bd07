//! What a person says of a held call, on the page or through the API.
//!
//! Whether it counts is judged by `approval`, at the moment and under the people of the moment. Before that: a form is one of
//! this session's, it repeats the digest that was shown, and where that is asked for it brings the password. What does not
//! come so far is written down as well.

use super::approvals::{Asked, may_see, not_found, page, part_of};
use super::{Shared, is_plain, login, people};
use crate::approval::{self, Decider, LONGEST_REASON, Place, Proof, Refused, Verdict, View};
use crate::audit::{Event, Kind, Subject, Who};
use crate::browser::{LoggedIn, Submitted, address, event, go_to, problem, trouble, unavailable};
use crate::identity::Person;
use crate::snapshot::Snapshot;
use crate::web::Caller;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use std::sync::Arc;

/// What a person says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Approve,
    Deny,
    Reopen,
    Withdraw,
    Resolve { has_run: bool },
}

/// One word on one call.
pub(super) struct Act<'a> {
    pub(super) id: &'a str,
    pub(super) word: Word,
    /// The digest of what they were shown.
    pub(super) digest: [u8; 32],
    pub(super) reason: Option<&'a str>,
    pub(super) person: &'a Person,
    pub(super) proof: Proof,
    /// On which way: `page`, `api`.
    pub(super) via: &'static str,
}

/// Why a form was not even judged.
enum Unfit {
    /// The parts were not all shown.
    Unseen,
    /// The password is missing.
    NoPassword,
}

impl Word {
    fn of(text: &str) -> Option<Word> {
        Some(match text {
            "approve" => Word::Approve,
            "deny" => Word::Deny,
            "reopen" => Word::Reopen,
            "withdraw" => Word::Withdraw,
            "ran" => Word::Resolve { has_run: true },
            "did-not-run" => Word::Resolve { has_run: false },
            _ => return None,
        })
    }
}

impl Unfit {
    fn code(&self) -> &'static str {
        match self {
            Unfit::Unseen => "approval.unseen",
            Unfit::NoPassword => "approval.needs_password",
        }
    }

    fn text(&self) -> &'static str {
        match self {
            Unfit::Unseen => "Not all of it was shown to you. Go through every part, then approve.",
            Unfit::NoPassword => "Enter your password with the decision. Nothing was decided.",
        }
    }
}

/// `POST /approvals/<id>`.
pub(super) async fn post(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Submitted { caller, headers, form }: Submitted,
) -> Response {
    let snapshot = shared.snapshot();
    let logged_in = match shared.plane.current(&snapshot, &headers).await {
        Ok(Some(logged_in)) => logged_in,
        Ok(None) => return login::start_again(&caller),
        Err(error) => return unavailable(&caller, &error),
    };
    if !login::is_of_session(&shared, &logged_in, &form) {
        return login::start_again(&caller);
    }
    let (word, digest) = (form.get("decision").and_then(Word::of), form.get("digest").and_then(digest_of));
    let (Some(word), Some(digest)) = (word, digest) else {
        let details = vec![("reason".to_owned(), "the form says no decision, or no digest".to_owned())];
        return problem(&caller, StatusCode::BAD_REQUEST, "invalid_request", "Bad request", &[], details);
    };
    let view = match seen(&shared, &snapshot, &caller, &logged_in.person, &id, "page").await {
        Ok(view) => view,
        Err(page) => return page,
    };
    let asked = |status, text: &str| Asked {
        part: form.get("part").and_then(|part| part.parse().ok()).unwrap_or(1),
        note: form.get("shown").unwrap_or_default(),
        problem: Some((status, text.to_owned())),
        reason: form.get("reason").unwrap_or_default(),
    };
    let again = async |status, text: &str| {
        // Where it stands now: that may be why.
        match shared.approvals.view(&id).await {
            Ok(Some(view)) => page(&shared, &snapshot, &caller, &logged_in, &view, &asked(status, text)).await,
            Ok(None) => not_found(),
            Err(error) => unavailable(&caller, &error),
        }
    };
    let password = form.get("password").unwrap_or_default();
    if let Err(unfit) = is_fit(&shared, &snapshot, &logged_in, &view, word, asked(StatusCode::OK, "").note, password) {
        refused(&shared, &snapshot, &caller, &logged_in.person, &view.approval.id, unfit.code(), "page");
        return again(StatusCode::FORBIDDEN, unfit.text()).await;
    }
    let mut proof = Proof::Session;
    if !password.is_empty() {
        let name = &logged_in.person.name;
        if let Err(why) = shared.plane.verify(&snapshot, &caller, &headers, name, password).await {
            let trouble = trouble(&why, shared.now_ms());
            let text = if trouble.wait_s.is_none() {
                "That is not your password. Nothing was decided."
            } else {
                &*trouble.text
            };
            return login::wait(again(trouble.status, text).await, trouble.wait_s);
        }
        proof = Proof::Password;
    }
    let reason = form.get("reason");
    let act = Act { id: &id, word, digest, reason, person: &logged_in.person, proof, via: "page" };
    match act.take(&shared, &snapshot, &caller).await {
        Ok(Ok(())) => go_to(&format!("/approvals/{id}")),
        Ok(Err(refused)) => again(status_of(&refused), &sentence(&refused)).await,
        Err(error) => unavailable(&caller, &error),
    }
}

/// The call, if this person may see it. That somebody wanted to decide on another one is written down.
///
/// # Errors
/// The answer, the same as for a call that there is not.
pub(super) async fn seen(
    shared: &Shared,
    snapshot: &Snapshot,
    caller: &Caller,
    person: &Person,
    id: &str,
    via: &'static str,
) -> Result<View, Response> {
    let why = match shared.approvals.view(id).await {
        Ok(Some(view)) if may_see(person, &view.approval) => return Ok(view),
        Ok(Some(_)) => Refused::NotEntitled,
        Ok(None) => Refused::Unknown,
        Err(error) => return Err(unavailable(caller, &error)),
    };
    refused(shared, snapshot, caller, person, id, why.code(), via);
    Err(not_found())
}

fn is_fit(
    shared: &Shared,
    snapshot: &Snapshot,
    logged_in: &LoggedIn,
    view: &View,
    word: Word,
    note: &str,
    password: &str,
) -> Result<(), Unfit> {
    if is_plain(snapshot) && password.is_empty() {
        return Err(Unfit::NoPassword);
    }
    if word != Word::Approve {
        return Ok(());
    }
    let n_parts = part_of(shared, view, 1).n_parts;
    if shared.n_shown(logged_in, &view.approval, n_parts, note) >= n_parts { Ok(()) } else { Err(Unfit::Unseen) }
}

impl Act<'_> {
    /// Does it, if it counts.
    ///
    /// # Errors
    /// Outside: it could not be done. Inside: it does not count.
    pub(super) async fn take(
        &self,
        shared: &Shared,
        snapshot: &Arc<Snapshot>,
        caller: &Caller,
    ) -> Result<Result<(), Refused>, approval::Error> {
        let peer = address(caller);
        let decider = Decider {
            person: &self.person.name,
            proof: self.proof,
            via: self.via,
            place: Place { issuer: &snapshot.public_url, request: Some(&caller.request), peer: peer.as_deref() },
            people: people(snapshot),
        };
        let approvals = &shared.approvals;
        if let Word::Approve | Word::Deny = self.word {
            let verdict = if self.word == Word::Approve { Verdict::Approve } else { Verdict::Deny };
            let reason = self.reason.map(|reason| &reason[..reason.floor_char_boundary(LONGEST_REASON)]);
            let decided = approvals.decide(self.id, verdict, &self.digest, reason, &decider).await?;
            return Ok(decided.map(|_| ()));
        }
        // What is not decided on by digest is still said of what was shown.
        if approvals.get(self.id).await?.is_none_or(|held| held.digest != self.digest) {
            refused(shared, snapshot, caller, self.person, self.id, Refused::Digest.code(), self.via);
            return Ok(Err(Refused::Digest));
        }
        let moved = match self.word {
            Word::Reopen => approvals.reopen(self.id, &snapshot.config.approvals.hook_names(), &decider).await?,
            Word::Resolve { has_run } => approvals.resolve(self.id, has_run, &decider).await?,
            Word::Withdraw | Word::Approve | Word::Deny => approvals.withdraw(self.id, &decider).await?,
        };
        Ok(moved.map(|_| ()))
    }
}

/// Writes down what was refused before it was judged.
pub(super) fn refused(
    shared: &Shared,
    snapshot: &Snapshot,
    caller: &Caller,
    person: &Person,
    id: &str,
    code: &'static str,
    via: &'static str,
) {
    let peer = address(caller);
    let who = Who {
        issuer: &snapshot.public_url,
        subject: Subject::User(&person.name),
        client: "approver",
        grant: None,
        person: None,
    };
    shared.plane.audit.record_later(Event {
        principal: Some(who),
        // An id is a name that we gave; anything else could be anything.
        approval: Some(id).filter(|id| is_id(id)),
        code: Some(code),
        via: Some(via),
        ..event(Kind::ApprovalRefused, snapshot, caller, peer.as_deref())
    });
}

fn is_id(id: &str) -> bool {
    id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// A digest in hex.
pub(super) fn digest_of(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

/// The HTTP status of a word that does not count.
pub(super) fn status_of(refused: &Refused) -> StatusCode {
    match refused {
        Refused::Unknown => StatusCode::NOT_FOUND,
        Refused::Decided(_) | Refused::Digest | Refused::Twice => StatusCode::CONFLICT,
        Refused::NotEntitled | Refused::OwnCall | Refused::NeedsPassword => StatusCode::FORBIDDEN,
    }
}

/// For people.
pub(super) fn sentence(refused: &Refused) -> String {
    let text = refused.to_string();
    let mut rest = text.chars();
    let first = rest.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}. Nothing was changed.", rest.as_str())
}
