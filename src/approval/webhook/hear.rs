//! Decisions of receivers: the answer to a notice, or a message of their own.
//!
//! Signed as what we send is, and about one notice: it repeats the nonce that only its receiver was told, and the digest of
//! what it was told about. Heard once, under its `webhook-id`. As whom it decides stands in the configuration; a body can
//! name a person only among those that the configuration lets this receiver speak for. What we send is never taken back as
//! a decision, since it is of another type.

use super::{Hook, InForce, Signed};
use crate::approval::{Approvals, Decider, Error, LONGEST_REASON, Place, Proof, Refused, Verdict};
use crate::audit::{Event, Kind};
use crate::config::DecidesAs;
use crate::jsonrpc::{self, Limits};
use crate::store::{Approval, ApprovalState, Notice};
use http::HeaderMap;
use ring::{digest, hmac};
use serde::Deserialize;

/// The `type` of a decision.
const DECISION: &str = "approval.decision";
/// A decision is flat and short.
const LIMITS: Limits = Limits { depth: 4, nodes: 32 };

/// What came for a receiver, as a request of its own.
#[derive(Clone, Copy)]
pub struct Hearing<'a> {
    /// The receiver it claims to be of.
    pub hook: &'a str,
    /// The message.
    pub signed: Signed<'a>,
    /// Where it came from, for records.
    pub place: Place<'a>,
}

/// What became of a decision that was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The held call.
    pub id: String,
    /// Where it stands now.
    pub state: ApprovalState,
    /// Whether the same message had come before; it changed nothing then.
    pub is_repeated: bool,
}

/// Why a message counts for nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotHeard {
    /// No receiver of this name.
    #[error("there is no such webhook")]
    Hook,
    /// Not signed with its secret, or not now.
    #[error("it is not signed with the secret of this webhook, or its time is off by more than five minutes")]
    Signature,
    /// The receiver is told, and not asked.
    #[error("this webhook does not decide (`decides_as`)")]
    DecidesNot,
    /// Not a decision.
    #[error("it is no decision: {0}")]
    Malformed(String),
    /// No notice of that approval with that nonce went to this receiver.
    #[error("there is no such held call")]
    Unknown,
    /// Nobody the receiver may speak for.
    #[error("it must name a `person` for whom this webhook may decide")]
    Person,
    /// The message has come before, about something else.
    #[error("this `webhook-id` has come before; nothing was changed")]
    Repeated,
    /// The decision does not count.
    #[error(transparent)]
    Refused(#[from] Refused),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    r#type: String,
    /// Part of every Standard Webhooks body; the one that counts is signed, in the header.
    #[serde(default, rename = "timestamp")]
    _timestamp: Option<String>,
    data: Data,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    id: String,
    digest: String,
    nonce: String,
    decision: Word,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    person: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Approve,
    Deny,
}

impl NotHeard {
    /// Stable; stands in records and answers.
    pub fn code(&self) -> &'static str {
        match self {
            NotHeard::Hook => "webhook.unknown",
            NotHeard::Signature => "webhook.signature",
            NotHeard::DecidesNot => "webhook.decides_not",
            NotHeard::Malformed(_) => "webhook.malformed",
            NotHeard::Unknown => "approval.unknown",
            NotHeard::Person => "webhook.person",
            NotHeard::Repeated => "webhook.repeated",
            NotHeard::Refused(refused) => refused.code(),
        }
    }
}

impl Approvals {
    /// Takes a decision that a receiver has sent.
    ///
    /// # Errors
    /// Outside: it could not be done, and the same message may come again. Inside: it counts for nothing, and why.
    pub async fn hear(&self, hearing: &Hearing<'_>, in_force: &InForce) -> Result<Result<Heard, NotHeard>, Error> {
        let Some(hook) = in_force.hooks.get(hearing.hook) else {
            return Ok(Err(NotHeard::Hook));
        };
        if !hook.keys.have_signed(&hearing.signed, self.0.clock.unix_seconds()) {
            let via = hook.via();
            self.0.audit.record_stranger(unheard(&via, hearing.place, &NotHeard::Signature));
            return Ok(Err(NotHeard::Signature));
        }
        self.take(hook, &hearing.signed, None, hearing.place, in_force).await
    }

    /// Takes the answer to a notice, where it is a decision; anything else says only that the notice has arrived.
    pub(super) async fn answered(
        &self,
        hook: &Hook,
        notice: &Notice,
        headers: &HeaderMap,
        body: &[u8],
        in_force: &InForce,
    ) {
        let Some(signed) = Signed::of(headers, body) else {
            return;
        };
        let place = Place { issuer: &in_force.issuer, ..Place::default() };
        if !hook.keys.have_signed(&signed, self.0.clock.unix_seconds()) {
            let via = hook.via();
            let event = unheard(&via, place, &NotHeard::Signature);
            self.0.audit.record_later(Event { approval: Some(&notice.approval), ..event });
            tracing::warn!(webhook = %hook.name, approval = %notice.approval, "an answer is not signed with the webhook's secret");
            return;
        }
        match self.take(hook, &signed, Some(&notice.approval), place, in_force).await {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => {
                tracing::warn!(webhook = %hook.name, approval = %notice.approval, code = why.code(), "an answer decides nothing");
            }
            Err(error) => tracing::warn!(%error, webhook = %hook.name, "an answer could not be taken as a decision"),
        }
    }

    /// Takes a message that is of this receiver; `about`: of this held call or none.
    async fn take(
        &self,
        hook: &Hook,
        signed: &Signed<'_>,
        about: Option<&str>,
        place: Place<'_>,
        in_force: &InForce,
    ) -> Result<Result<Heard, NotHeard>, Error> {
        let via = hook.via();
        let data = match read(hook, signed.body) {
            Ok(data) if about.is_some_and(|about| data.id != about) => {
                return Ok(self.not_heard(&via, None, place, NotHeard::Unknown));
            }
            Ok(data) => data,
            Err(why) => return Ok(self.not_heard(&via, about, place, why)),
        };
        let Some(held) = self.told_of(hook, &data).await? else {
            return Ok(self.not_heard(&via, None, place, NotHeard::Unknown));
        };
        let Some(person) = person(hook, &data, in_force) else {
            return Ok(self.not_heard(&via, Some(&held.id), place, NotHeard::Person));
        };
        let Some(digest) = bytes(&data.digest) else {
            return Ok(self.not_heard(&via, Some(&held.id), place, Refused::Digest.into()));
        };
        if !self.0.store.hear_webhook(&hook.name, signed.id, self.0.clock.unix_ms()).await? {
            return self.repeated(&via, &held, place).await;
        }
        let verdict = match data.decision {
            Word::Approve => Verdict::Approve,
            Word::Deny => Verdict::Deny,
        };
        let decider = Decider { person, proof: Proof::Signature, via: &via, place, people: in_force.people.clone() };
        match self.decide(&held.id, verdict, &digest, data.reason.as_deref(), &decider).await {
            Ok(Ok(decided)) => Ok(Ok(Heard { id: data.id, state: decided.approval.state, is_repeated: false })),
            // Written down where it was refused.
            Ok(Err(refused)) => Ok(Err(refused.into())),
            Err(error) => {
                // It was not heard after all.
                self.0.store.unhear_webhook(&hook.name, signed.id).await?;
                Err(error)
            }
        }
    }

    /// The held call that this receiver was told of under that nonce.
    async fn told_of(&self, hook: &Hook, data: &Data) -> Result<Option<Approval>, Error> {
        let notices = self.0.store.notices(&data.id).await?;
        let is_told = notices.iter().any(|notice| *notice.hook == *hook.name && is_same(&notice.nonce, &data.nonce));
        if is_told { self.get(&data.id).await } else { Ok(None) }
    }

    /// What to say to a message that has come before: where the call stands, if the message has had its effect or can have
    /// none any more.
    async fn repeated(&self, via: &str, held: &Approval, place: Place<'_>) -> Result<Result<Heard, NotHeard>, Error> {
        let decisions = self.0.store.approval_decisions(&held.id).await?;
        let has_said = decisions.iter().any(|said| said.via == via);
        if has_said || held.state != ApprovalState::Pending {
            return Ok(Ok(Heard { id: held.id.to_string(), state: held.state, is_repeated: true }));
        }
        Ok(self.not_heard(via, Some(&held.id), place, NotHeard::Repeated))
    }

    fn not_heard<T>(&self, via: &str, id: Option<&str>, place: Place<'_>, why: NotHeard) -> Result<T, NotHeard> {
        self.0.audit.record_later(Event { approval: id, ..unheard(via, place, &why) });
        Err(why)
    }
}

fn unheard<'a>(via: &'a str, place: Place<'a>, why: &NotHeard) -> Event<'a> {
    Event {
        via: Some(via),
        code: Some(why.code()),
        request: place.request,
        peer: place.peer,
        ..Event::new(Kind::ApprovalRefused)
    }
}

/// What a message says, if this receiver may say anything.
fn read(hook: &Hook, body: &[u8]) -> Result<Data, NotHeard> {
    if hook.decides_as.is_none() {
        return Err(NotHeard::DecidesNot);
    }
    let malformed = |why: String| NotHeard::Malformed(why);
    jsonrpc::check_object(body, LIMITS).map_err(|fault| malformed(fault.to_string()))?;
    let message: Message = serde_json::from_slice(body).map_err(|why| malformed(shape(&why)))?;
    let Message { r#type, data, .. } = message;
    if r#type != DECISION {
        return Err(malformed(format!("its `type` is not `{DECISION}`")));
    }
    if data.reason.as_ref().is_some_and(|reason| reason.len() > LONGEST_REASON) {
        return Err(malformed(format!("its `reason` is longer than {LONGEST_REASON} bytes")));
    }
    Ok(data)
}

/// Where the reader stopped; never what it read there.
fn shape(why: &serde_json::Error) -> String {
    format!(
        "its members are not `type` and `data` with `id`, `digest`, `nonce`, `decision` and perhaps `reason` and `person` (column {})",
        why.column()
    )
}

/// As whom a message decides; `None` where that is nobody.
fn person<'a>(hook: &'a Hook, data: &'a Data, in_force: &InForce) -> Option<&'a str> {
    let named = data.person.as_deref();
    match hook.decides_as.as_ref()? {
        DecidesAs::User(name) => named.is_none_or(|named| named == name).then_some(name),
        DecidesAs::Groups(groups) => {
            let theirs = (in_force.people)(named?)?;
            theirs.iter().any(|group| groups.contains(group)).then_some(named?)
        }
    }
}

/// A digest as people and programs write it.
fn bytes(hex: &str) -> Option<[u8; 32]> {
    let digit = |c: u8| char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs: Option<Vec<u8>> =
        hex.as_bytes().chunks(2).map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect();
    pairs?.try_into().ok()
}

/// In the same time wherever they differ.
fn is_same(ours: &str, theirs: &str) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, digest::digest(&digest::SHA256, ours.as_bytes()).as_ref());
    hmac::verify(&key, theirs.as_bytes(), hmac::sign(&key, ours.as_bytes()).as_ref()).is_ok()
}
