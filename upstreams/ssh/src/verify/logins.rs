//! Logins that must fail. Each is followed by the true one on the same connection: a host that lets nobody in any more refuses
//! that too, and shows nothing. sshd also forgives a connection its failures when it gets in after all (OpenSSH 9.8 and later
//! lock addresses out that only fail).

use super::certificates::{Draft, Unfit, altered, ephemeral};
use super::connection::{Connection, Entry, Pass};
use super::target::{Opener, Target};
use super::{Error, Seen};
use russh::keys::PrivateKey;
use std::sync::Arc;

/// What somebody tries to log in with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// Nothing.
    None,
    /// A password that somebody may have left.
    Password,
    /// Empty answers to whatever is asked.
    Interactive,
    /// A key of nobody's.
    Stranger,
    /// A certificate that the restricted key has signed.
    KeyAsAuthority,
    /// The authority's own key.
    AuthorityKey,
    /// Certificates that others have signed.
    OtherAuthority,
}

impl Login {
    /// For the table of attacks.
    pub(super) fn words(self) -> &'static str {
        match self {
            Login::None => "a login by `none`",
            Login::Password => "a login by `password`",
            Login::Interactive => "a login by `keyboard-interactive`",
            Login::Stranger => "a login by a key that was just made",
            Login::KeyAsAuthority => "a login by a certificate that the key has signed",
            Login::AuthorityKey => "a login by the authority's key",
            Login::OtherAuthority => {
                "a login by a certificate that another key has signed, and by one that its own has"
            }
        }
    }

    fn passes(self, target: &Target<'_>, connection: &Connection) -> Result<Vec<Pass>, Error> {
        let subject = || ephemeral().map(Arc::new);
        let draft = Draft::good(&target.opener, connection.local);
        let signed = |by: &PrivateKey, subject: Arc<PrivateKey>| -> Result<Pass, Error> {
            let certificate = draft.signed(&subject, by)?;
            Ok(Pass::Certificate(subject, Box::new(certificate)))
        };
        Ok(match (self, &target.opener) {
            (Login::None, _) => vec![Pass::None],
            (Login::Password, _) => {
                vec![Pass::Password(String::new()), Pass::Password(target.settings.host.user.clone())]
            }
            (Login::Interactive, _) => vec![Pass::Interactive],
            (Login::KeyAsAuthority, Opener::Key(key)) => vec![signed(key, subject()?)?],
            (Login::AuthorityKey, Opener::Authority { key, .. }) => vec![Pass::Key(Arc::new(key.clone()))],
            (Login::OtherAuthority, _) => {
                let own = subject()?;
                vec![signed(&ephemeral()?, subject()?)?, signed(&*Arc::clone(&own), own)?]
            }
            (Login::Stranger | Login::KeyAsAuthority | Login::AuthorityKey, _) => vec![Pass::Key(subject()?)],
        })
    }
}

/// Tries a login of another kind.
pub(super) async fn login(target: &Target<'_>, login: Login) -> Result<Seen, Error> {
    let connection = Connection::open(target).await?;
    let passes = login.passes(target, &connection)?;
    refused(target, connection, passes).await
}

/// Tries certificates that are good for nothing.
pub(super) async fn unfit(target: &Target<'_>, unfit: Unfit) -> Result<Seen, Error> {
    let connection = Connection::open(target).await?;
    let Opener::Authority { key: authority, .. } = &target.opener else {
        return Ok(Seen::NotHere("the credential is no authority".to_owned()));
    };
    let mut passes = Vec::new();
    for draft in Draft::good(&target.opener, connection.local).unfit(unfit) {
        let subject = ephemeral()?;
        let certificate = draft.signed(&subject, authority)?;
        passes.push(match unfit {
            Unfit::OtherKey => Pass::Certificate(Arc::new(ephemeral()?), Box::new(certificate)),
            Unfit::Altered => Pass::Certificate(Arc::new(subject), Box::new(altered(&certificate)?)),
            _ => Pass::Certificate(Arc::new(subject), Box::new(certificate)),
        });
    }
    refused(target, connection, passes).await
}

/// Tries one credential at an account of another name.
pub(super) async fn account(target: &Target<'_>, name: &str, draft: Option<Draft>) -> Result<Seen, Error> {
    if name == target.settings.host.user {
        return Ok(Seen::NotHere("this is the account that the credential is for".to_owned()));
    }
    let mut connection = Connection::open(target).await?;
    let pass = match (draft, &target.opener) {
        (Some(draft), Opener::Authority { key, .. }) => {
            let subject = ephemeral()?;
            let certificate = draft.signed(&subject, key)?;
            Pass::Certificate(Arc::new(subject), Box::new(certificate))
        }
        _ => connection.true_pass(target)?,
    };
    // sshd lets nobody change the name on a connection, so there is no true login behind this one.
    let entry = connection.enter(name, pass).await?;
    connection.leave().await;
    Ok(match entry {
        Entry::Granted => Seen::Broken(format!("{name} was logged in")),
        Entry::Refused(_) => Seen::Refused("sshd refused the login".to_owned()),
        Entry::Dropped => Seen::Untried("the connection was over before an answer".to_owned()),
    })
}

/// All of these are refused, and the true login is not.
async fn refused(target: &Target<'_>, mut connection: Connection, passes: Vec<Pass>) -> Result<Seen, Error> {
    let user = &target.settings.host.user;
    let mut note = "";
    for (n, pass) in (1..).zip(passes) {
        match connection.enter(user, pass).await? {
            Entry::Granted => {
                connection.leave().await;
                return Ok(Seen::Broken(format!("login {n} was accepted")));
            }
            Entry::Refused(others) if Entry::asks_for_passwords(&others) => note = " (it would take a password, too)",
            Entry::Refused(_) => {}
            Entry::Dropped => return Ok(Seen::Untried(format!("the connection was over at login {n}"))),
        }
    }
    let pass = connection.true_pass(target)?;
    let entry = connection.enter(user, pass).await?;
    connection.leave().await;
    Ok(match entry {
        Entry::Granted => Seen::Refused(format!("sshd refused the login, and took the true one behind it{note}")),
        Entry::Refused(_) | Entry::Dropped => {
            Seen::Untried("sshd refused the login, but the true one behind it, too".to_owned())
        }
    })
}
