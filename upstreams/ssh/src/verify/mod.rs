//! Whether the boundary on the host holds, tried and not asserted: the host is attacked with the true credential, by whatever
//! a client of SSH can send, and with certificates that nobody should have signed.
//!
//! Refused is what the script refuses in its own words and with its own status, or what sshd refuses explicitly. A bare
//! failure is no refusal, and silence is none. The action that is allowed must work before and after, so that a host on
//! which nothing works passes nothing. PASS and FAIL say that; NOT APPLICABLE is what cannot be tried here, and is no pass.

/// The attacks, and how each is tried.
pub mod attacks;
/// Certificates that nobody should sign, signed.
mod certificates;
/// What is asked for on a channel, and what is heard there.
mod channels;
/// Logins that must fail.
mod logins;
/// What counts as refused.
mod refusal;
/// What else the protocol has beside actions.
mod requests;
/// What is attacked.
mod target;
/// Every action, got wrong.
pub mod wrong;

pub use attacks::{ATTACKS, Attack, table};

use crate::connection::{self, Connection};
use crate::credential::{Authority, Login, ephemeral};
use crate::settings::Settings;
use attacks::{ACCOUNTS, Tried};
use certificates::{Draft, Hostile};
use channels::{Heard, PATIENCE, exec, exec_on, open};
use logins::{Entry, Pass, enter, refused_alone};
use portcullis_local::verify::{Finding, Report, Verdict};
use refusal::{before_script, by_script, plain};
use requests::{Request, variable};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use target::{Canary, Target};
use thiserror::Error;
use tokio::time::{Instant, sleep, sleep_until};

/// Why the host cannot be attacked, or not any more.
#[derive(Debug, Error)]
pub enum Error {
    /// The configuration is such that nobody could begin.
    #[error("{0}")]
    Settings(String),
    /// The host is not there, is another one, or does not take the true credential.
    #[error(transparent)]
    Host(#[from] connection::Error),
    /// A connection ended.
    #[error("the connection ended: {0}")]
    Ended(#[from] russh::Error),
    /// The host does not answer.
    #[error("no answer came within {PATIENCE:?}")]
    Silence,
    /// A certificate cannot be made.
    #[error("a certificate cannot be made: {0}")]
    Certificate(String),
    /// There are no random numbers.
    #[error("the system has no random numbers")]
    Random,
}

/// What became of an attack.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    /// It was refused.
    Refused(String),
    /// It was not.
    Broken(String),
    /// Nothing shows whether it was.
    Untried(String),
    /// What it is about is not there.
    NotHere(String),
}

/// What our certificates name as what they are for.
const KEY_ID: &str = "portcullis verify";
/// Failed logins that OpenSSH 9.8 and later take before they lock an address out (`PerSourcePenalties`: 5 s for each, and
/// nothing happens below 15 s), and how long each of ours counts here.
const FAILED_LOGINS: usize = 2;
const FAILED_LOGIN_COUNTS: Duration = Duration::from_secs(6);
/// All of it. Hosts are slow, networks too, and actions many; something that takes longer does not end.
const LIMIT: Duration = Duration::from_secs(3600);
/// How often it is tried to connect, and the first pause in between.
const KNOCKS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);
/// Attacks one after another of which the host knows nothing, before nothing more is tried.
const LOST_MAX: usize = 3;

/// Tries every attack that is meant and that the credential can make, and tells each finding as it comes. `accounts` are further
/// ones of the host that the credential must not open.
///
/// # Errors
/// Nothing could be tried at all: the host is not there, or does not take the credential.
pub async fn verify(
    settings: &Settings,
    accounts: &[String],
    is_meant: impl Fn(&Attack) -> bool,
    mut tell: impl FnMut(&Finding),
) -> Result<Report, Error> {
    let target = Target::new(settings, accounts)?;
    let mut attacker = Attacker { target: &target, connection: None, failed: VecDeque::new() };
    let mut report = Report::default();
    let mut add = |finding: Finding| {
        tell(&finding);
        report.findings.push(finding);
    };
    if let Err(heard) = attacker.works().await? {
        add(broken("works", "what is allowed works", format!("`{}`", target.check), heard.words()));
    }
    let began = Instant::now();
    let mut n_lost = 0;
    let mut end = None;
    for attack in ATTACKS.iter().filter(|attack| attack.is_for(&settings.credential) && is_meant(attack)) {
        let canary = Canary::new()?;
        let (seen, is_lost) = match attacker.attempt(attack, canary).await {
            Ok(seen) => (seen, false),
            Err(why) => (Seen::Untried(why.to_string()), true),
        };
        n_lost = if is_lost { n_lost + 1 } else { 0 };
        add(finding(attack, target.sent(attack.tried, canary), &seen));
        if n_lost == LOST_MAX {
            end = Some(
                "it no longer lets us in; servers lock out who fails to log in too often (PerSourcePenalties, MaxStartups, fail2ban)",
            );
        } else if began.elapsed() > LIMIT {
            end = Some("it took too long");
        }
        if end.is_some() {
            break;
        }
    }
    if let Some(why) = end {
        add(broken("all", "every attack is tried", "the rest of them".to_owned(), format!("not tried: {why}")));
    }
    let after = match attacker.works_anew().await {
        Ok(Ok(())) => None,
        Ok(Err(heard)) => Some(heard.words()),
        Err(why) => Some(why.to_string()),
    };
    if let Some(why) = after {
        add(broken("still-works", "what is allowed works after all this", format!("`{}`", target.check), why));
    }
    Ok(report)
}

/// What is a condition, and not a claim: said only where it does not hold.
fn broken(id: &'static str, claim: &'static str, sent: String, heard: String) -> Finding {
    Finding { id, claim, verdict: Verdict::Fail, seen: vec![("sent", sent), ("answer", heard)] }
}

fn finding(attack: &'static Attack, sent: String, seen: &Seen) -> Finding {
    let verdict = match seen {
        Seen::Refused(_) => Verdict::Pass,
        Seen::Broken(_) | Seen::Untried(_) => Verdict::Fail,
        Seen::NotHere(_) => Verdict::NotApplicable,
    };
    let mut told = vec![("sent", sent), ("answer", seen.to_string())];
    if matches!(seen, Seen::Broken(_)) {
        told.push(("remedy", attack.remedy().to_owned()));
    }
    Finding { id: attack.id, claim: attack.sentence, verdict, seen: told }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Seen::Refused(how) => write!(f, "refused: {how}"),
            Seen::Broken(what) => write!(f, "NOT REFUSED: {what}"),
            Seen::Untried(why) => write!(f, "nothing shows it: {why}"),
            Seen::NotHere(why) => write!(f, "not to be tried: {why}"),
        }
    }
}

impl Seen {
    /// The same, with more to say of a refusal.
    fn with(self, note: &str) -> Seen {
        match self {
            Seen::Refused(how) => Seen::Refused(how + note),
            seen => seen,
        }
    }

    /// The same, with what was sent to see it.
    fn about(self, sent: &str) -> Seen {
        let sent = plain(sent.as_bytes());
        match self {
            Seen::Refused(how) => Seen::Refused(format!("{sent}: {how}")),
            Seen::Broken(what) => Seen::Broken(format!("{sent}: {what}")),
            Seen::Untried(why) => Seen::Untried(format!("{sent}: {why}")),
            Seen::NotHere(why) => Seen::NotHere(format!("{sent}: {why}")),
        }
    }
}

/// Who attacks.
struct Attacker<'a> {
    target: &'a Target,
    /// With the true credential, for actions, which leave it as it is.
    connection: Option<Connection>,
    /// When connections ended on which nobody got in.
    failed: VecDeque<Instant>,
}

// === impl Attacker ===

impl Attacker<'_> {
    /// A connection that is logged in with the true credential.
    async fn connection(&mut self) -> Result<&Connection, Error> {
        let usable = self.connection.take().filter(|connection| !connection.is_closed());
        let connection = match usable {
            Some(connection) => connection,
            None => self.fresh().await?,
        };
        Ok(self.connection.insert(connection))
    }

    /// The same, and nobody else has it.
    async fn fresh(&self) -> Result<Connection, Error> {
        let mut n_tried = 1;
        loop {
            match Connection::to(&self.target.way, &self.target.login, KEY_ID).await {
                Err(connection::Error::Unreachable { .. } | connection::Error::Lost { .. }) if n_tried < KNOCKS => {}
                done => return Ok(done?),
            }
            sleep(PAUSE * n_tried).await;
            n_tried += 1;
        }
    }

    /// Whether what is allowed works. The inner error is what was heard instead.
    async fn works(&mut self) -> Result<Result<(), Heard>, Error> {
        let check = self.target.check.as_bytes();
        let heard = exec(self.connection().await?, check).await?;
        Ok(if heard.status == Some(0) { Ok(()) } else { Err(heard) })
    }

    /// The same on a connection that is new.
    async fn works_anew(&mut self) -> Result<Result<(), Heard>, Error> {
        self.connection = None;
        self.works().await
    }

    async fn attempt(&mut self, attack: &Attack, canary: Canary) -> Result<Seen, Error> {
        let target = self.target;
        match attack.tried {
            Tried::Exec(template) => self.exec(attack, template, canary).await,
            Tried::Wrong(wrong) => self.wrong(wrong, canary).await,
            Tried::Sleep(wrong) => self.sleep(wrong, canary).await,
            Tried::Long(n) => {
                let action = long(n, canary);
                Ok(by_script(&exec(self.connection().await?, &action).await?, canary))
            }
            Tried::Oversize(n) => self.before(&long(n, canary), canary).await,
            Tried::Unreadable(template) => match target.fill(template, canary) {
                Some(action) => self.before(&action, canary).await,
                None => Ok(no_logs()),
            },
            // What these leave open goes with their connection.
            Tried::Environment(name, value) => variable(&self.fresh().await?, name, value).await,
            Tried::Request(request) => request.ask(&self.fresh().await?, target, canary).await,
            Tried::Stranger(stranger) => logins::stranger(target, stranger).await,
            Tried::Unfit(unfit) => match self.authority() {
                Some(authority) => logins::unfit(target, authority, unfit).await,
                None => Ok(no_authority()),
            },
            Tried::Account(account) => {
                self.wait_for_forgiveness().await;
                logins::account(target, account.name(), None).await
            }
            Tried::HostileAccount(account) => {
                self.wait_for_forgiveness().await;
                logins::account(target, account.name(), self.authority()).await
            }
            Tried::Accounts => self.accounts().await,
            Tried::Hostile(hostile) => match self.authority() {
                Some(authority) => self.hostile(hostile, authority, canary).await,
                None => Ok(no_authority()),
            },
        }
    }

    /// Who signs certificates.
    fn authority(&self) -> Option<&Authority> {
        match &self.target.login {
            Login::Certificates(authority) => Some(authority),
            Login::Key(_) => None,
        }
    }

    async fn exec(&mut self, attack: &Attack, template: &[u8], canary: Canary) -> Result<Seen, Error> {
        let Some(action) = self.target.fill(template, canary) else {
            return Ok(no_logs());
        };
        let seen = by_script(&exec(self.connection().await?, &action).await?, canary);
        Ok(match seen {
            // The script says which it is: a link that it does not follow, or nothing.
            Seen::Refused(how) if attack.id == "logs-link" && !how.contains("link") => {
                Seen::NotHere(format!("there is no such link ({how})"))
            }
            seen => seen,
        })
    }

    /// What may not come as far as the script. The script must still be there behind it.
    async fn before(&mut self, action: &[u8], canary: Canary) -> Result<Seen, Error> {
        let connection = self.fresh().await?;
        let channel = open(&connection).await?;
        let seen = match exec_on(channel, action).await {
            Ok(heard) => before_script(&heard, canary),
            // The answer to the request was the end.
            Err(_) if connection.is_closed() => Seen::Refused("sshd ended the connection".to_owned()),
            Err(why) => return Err(why),
        };
        drop(connection);
        let Seen::Refused(how) = seen else {
            return Ok(seen);
        };
        self.connection = None;
        let canary = Canary::new()?;
        Ok(match by_script(&exec(self.connection().await?, canary.command().as_bytes()).await?, canary) {
            Seen::Refused(_) => Seen::Refused(format!("{how}; the script refuses what comes next")),
            Seen::Broken(what) | Seen::Untried(what) | Seen::NotHere(what) => {
                Seen::Untried(format!("{how}; and what comes next is {what}"))
            }
        })
    }

    /// All that could be done with a certificate that claims more.
    async fn hostile(&self, hostile: Hostile, authority: &Authority, canary: Canary) -> Result<Seen, Error> {
        let target = self.target;
        let mut connection = knock(target).await?;
        let draft = Draft::good(&target.login, connection.local).hostile(hostile, &canary.command());
        let subject = ephemeral();
        let certificate = draft.signed(&subject, &authority.key)?;
        let pass = Pass::Certificate(Arc::new(subject), Box::new(certificate));
        match enter(&mut connection, &target.way.host.user, pass).await? {
            Entry::Granted => all_refused(&connection, target, canary).await,
            Entry::Refused(_) => refused_alone(target, &mut connection).await,
            Entry::Dropped => Ok(Seen::Untried(connection.lost().to_string())),
        }
    }

    /// Every account that is known by name is closed to the credential.
    async fn accounts(&mut self) -> Result<Seen, Error> {
        let target = self.target;
        let known = ACCOUNTS.iter().copied().chain(target.accounts.iter().map(String::as_str));
        let mut n = 0;
        for name in known.filter(|name| *name != target.way.host.user) {
            self.wait_for_forgiveness().await;
            match logins::any(target, name, self.authority()).await? {
                Seen::Refused(_) => n += 1,
                seen => return Ok(seen),
            }
        }
        Ok(Seen::Refused(format!("sshd refused the login, at each of {n} accounts")))
    }

    /// Waits until one more connection on which nobody gets in would not lock us out.
    async fn wait_for_forgiveness(&mut self) {
        if self.failed.len() == FAILED_LOGINS
            && let Some(oldest) = self.failed.pop_front()
        {
            sleep_until(oldest + FAILED_LOGIN_COUNTS * 2).await;
        }
        self.failed.push_back(Instant::now());
    }
}

/// A connection on which nobody is logged in yet. A server with which others are still about to log in sends some away before it
/// has shown its key (`MaxStartups`); that is neither a refusal nor the end.
async fn knock(target: &Target) -> Result<Connection, Error> {
    let mut n_tried = 1;
    loop {
        match Connection::open(&target.way).await {
            Err(connection::Error::Unreachable { .. }) if n_tried < KNOCKS => {}
            done => return Ok(done?),
        }
        sleep(PAUSE * n_tried).await;
        n_tried += 1;
    }
}

/// A program, a terminal, a shell, files, and every way to forward something.
async fn all_refused(connection: &Connection, target: &Target, canary: Canary) -> Result<Seen, Error> {
    let program = by_script(&exec(connection, canary.command().as_bytes()).await?, canary);
    // What is allowed is allowed with any certificate; one that chooses the program would show here.
    let allowed = exec(connection, target.check.as_bytes()).await?;
    let allowed = match allowed.status {
        _ if canary.is_in(&allowed.stdout) => Seen::Broken(allowed.ran()),
        Some(0) => Seen::Refused(String::new()),
        _ => Seen::Untried(format!("the action that is allowed did not work: {}", allowed.words())),
    };
    let mut parts = vec![("a program", program), ("what is allowed", allowed)];
    for (what, request) in [
        ("a terminal", Request::Terminal),
        ("a shell", Request::Shell),
        ("files", Request::Subsystem("sftp")),
        ("a connection from the host", Request::ForwardTcp),
        ("a port of the host", Request::ListenTcp),
        ("an agent", Request::Agent),
        ("X11", Request::X11),
    ] {
        parts.push((what, request.ask(connection, target, canary).await?));
    }
    let n = parts.len() - 1;
    let open = parts.into_iter().find(|(_, seen)| !matches!(seen, Seen::Refused(_)));
    Ok(match open {
        None => Seen::Refused(format!("sshd took it, and all of {n} attempts were refused")),
        Some((what, Seen::Broken(why))) => Seen::Broken(format!("{what}: {why}")),
        Some((what, Seen::Untried(why) | Seen::NotHere(why) | Seen::Refused(why))) => {
            Seen::Untried(format!("{what}: {why}"))
        }
    })
}

fn no_authority() -> Seen {
    Seen::NotHere("the credential is no authority".to_owned())
}

fn no_logs() -> Seen {
    Seen::NotHere("no action of the actions file is `logs <project> <lines>`".to_owned())
}

/// An action of `n` bytes that begins with a program.
fn long(n: usize, canary: Canary) -> Vec<u8> {
    let mut action = canary.command().into_bytes();
    let word = [b" ".as_slice(), &[b'a'; 99]].concat();
    while action.len() < n {
        action.extend_from_slice(&word);
    }
    action.truncate(n);
    action
}

#[cfg(test)]
mod tests;
