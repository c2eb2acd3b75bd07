//! Whether the confinement holds, tried and not asserted: each claim is attacked from inside, by a command of the upstream
//! as it runs, and the very same is done outside, where it must succeed. Only both together are a PASS.
//!
//! PASS is what was blocked inside and done outside; FAIL what was done inside, or could not be tried there. What cannot be
//! done outside either (no such device, no such kernel feature, no rights) is NOT APPLICABLE, which is no pass. Judging the
//! unconfined control as if it were confined must give FAIL wherever there is a control: so the verifier is verified.

/// The control: the same commands without any confinement.
mod bare;
/// What takes more than one probe.
mod checks;
/// What is claimed, and how it is tried.
pub mod claims;
/// Tricks that are played on the file tools.
mod games;
/// What stands outside, to be read, reached and killed.
mod outside;
/// Who runs commands.
mod runner;

pub use bare::Bare;
pub use claims::{CLAIMS, Claim, table};
pub use outside::{Gateway, Outside};
pub use portcullis_local::verify::{Finding, Report, Verdict};
pub use runner::{Confined, Ran, Runner, Tools};

use crate::settings::Backend;
use claims::{Scope, Tried};

/// What became of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Something stood in the way.
    Blocked(String),
    /// It was done.
    Allowed(String),
    /// It could not be tried.
    Untried(String),
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Seen::Blocked(why) => write!(f, "blocked: {why}"),
            Seen::Allowed(what) => write!(f, "ALLOWED: {what}"),
            Seen::Untried(why) => write!(f, "untried: {why}"),
        }
    }
}

/// Tries every claim that is meant and that `backend` makes, inside and outside, and tells each finding as it comes.
/// `backend` is `None` where there is no confinement, and `inside` is a control itself.
pub async fn verify(
    inside: &impl Runner,
    control: &Bare,
    outside: &Outside,
    backend: Option<&Backend>,
    is_meant: impl Fn(&Claim) -> bool,
    mut tell: impl FnMut(&Finding),
) -> Report {
    let mut report = Report::default();
    let mut add = |finding: Finding| {
        tell(&finding);
        report.findings.push(finding);
    };
    if let Err(why) = checks::works(inside).await {
        add(broken("works", "a command works at all", why));
        return report;
    }
    for claim in CLAIMS.iter().filter(|claim| claim.is_made_for(backend) && is_meant(claim)) {
        add(find(claim, inside, control, outside, backend).await);
    }
    if let Err(why) = checks::works(inside).await {
        add(broken("still-works", "a command works after all this", why));
    }
    report
}

/// What is a condition, and not a claim: said only where it does not hold.
fn broken(id: &'static str, claim: &'static str, why: String) -> Finding {
    Finding { id, claim, verdict: Verdict::Fail, seen: vec![("inside", why), ("outside", "not tried".to_owned())] }
}

async fn find(
    claim: &'static Claim,
    inside: &impl Runner,
    control: &Bare,
    outside: &Outside,
    backend: Option<&Backend>,
) -> Finding {
    let finding = |verdict, inside: String, outside: String| Finding {
        id: claim.id,
        claim: claim.sentence,
        verdict,
        seen: vec![("inside", inside), ("outside", outside)],
    };
    // What is missing outside is missing for both, and would look like an obstacle inside.
    if let Tried::Probe(line) = claim.tried
        && let Err(why) = outside.arguments(line, inside.inner())
    {
        return finding(Verdict::NotApplicable, "not tried".to_owned(), why);
    }
    let there = attempt(claim, control, outside).await;
    // Without a confinement, inside is outside.
    let here = if backend.is_none() { there.clone() } else { attempt(claim, inside, outside).await };
    let is_emulated = claim.scope == Scope::HostKernel && matches!(backend, Some(Backend::Gvisor { .. }));
    let verdict = judge(&here, &there, is_emulated);
    let is_emulated = is_emulated && !matches!(here, Seen::Blocked(_));
    let note = if is_emulated { " (by gVisor, not by the host's kernel)" } else { "" };
    finding(verdict, format!("{here}{note}"), there.to_string())
}

/// Boxed, since it holds every check there is.
async fn attempt(claim: &Claim, runner: &impl Runner, outside: &Outside) -> Seen {
    match claim.tried {
        Tried::Probe(line) => match outside.arguments(line, runner.inner()) {
            Ok(arguments) => runner.attempt(&arguments).await,
            Err(why) => Seen::Untried(why),
        },
        Tried::Check(check) => Box::pin(checks::check(check, runner, outside)).await,
        Tried::Game(game) => Box::pin(games::play(game, runner, outside)).await,
    }
}

fn judge(inside: &Seen, outside: &Seen, is_emulated: bool) -> Verdict {
    match (inside, outside) {
        (Seen::Allowed(_) | Seen::Untried(_), _) if is_emulated => Verdict::NotApplicable,
        (Seen::Allowed(_) | Seen::Untried(_), _) => Verdict::Fail,
        (Seen::Blocked(_), Seen::Allowed(_)) => Verdict::Pass,
        (Seen::Blocked(_), Seen::Blocked(_) | Seen::Untried(_)) => Verdict::NotApplicable,
    }
}

#[cfg(test)]
mod tests;
