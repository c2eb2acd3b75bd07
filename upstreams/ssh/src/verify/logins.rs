//! Logins that must fail. Each is followed by the true one on the same connection: a host that lets nobody in any more refuses
//! that too, and shows nothing. sshd also forgives a connection its failures when it gets in after all (OpenSSH 9.8 and later
//! lock addresses out that only fail).

use super::certificates::{Draft, Unfit, altered};
use super::channels::PATIENCE;
use super::target::Target;
use super::{Error, Seen, knock};
use crate::connection::{Client, Connection, Error as Lost};
use crate::credential::{Authority, Login, ephemeral};
use russh::client::{AuthResult, Handle, KeyboardInteractiveAuthResponse};
use russh::keys::{Certificate, PrivateKey, PrivateKeyWithHashAlg};
use russh::{MethodKind, MethodSet};
use std::sync::Arc;
use tokio::time::timeout;

/// Who has not the credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// Somebody with nothing.
    Nothing,
    /// Somebody with a password that an operator may have left.
    Password,
    /// Somebody who gives empty answers to whatever is asked.
    Answers,
    /// Somebody with a key of nobody's.
    Key,
    /// Somebody with a certificate that the restricted key has signed.
    KeyAsAuthority,
    /// Somebody with the authority's own key.
    AuthorityKey,
    /// Somebody with certificates that others have signed.
    OtherAuthority,
}

/// What is shown at a login.
pub(super) enum Pass {
    Key(Arc<PrivateKey>),
    Certificate(Arc<PrivateKey>, Box<Certificate>),
    Password(String),
    Answers,
    Nothing,
}

/// What became of a login.
#[derive(Debug)]
pub(super) enum Entry {
    Granted,
    /// What could be tried instead.
    Refused(MethodSet),
    /// The connection was over before there was an answer.
    Dropped,
}

// === impl Stranger ===

impl Stranger {
    /// For the table of attacks.
    pub(super) fn words(self) -> &'static str {
        match self {
            Stranger::Nothing => "a login by `none`",
            Stranger::Password => "a login by `password`",
            Stranger::Answers => "a login by `keyboard-interactive`",
            Stranger::Key => "a login by a key that was just made",
            Stranger::KeyAsAuthority => "a login by a certificate that the key has signed",
            Stranger::AuthorityKey => "a login by the authority's key",
            Stranger::OtherAuthority => {
                "logins by a certificate that another key has signed, and by one that its own has"
            }
        }
    }

    fn passes(self, target: &Target, connection: &Connection) -> Result<Vec<Pass>, Error> {
        let signed = |by: &PrivateKey, subject: PrivateKey| -> Result<Pass, Error> {
            let certificate = Draft::good(&target.login, connection.local).signed(&subject, by)?;
            Ok(Pass::Certificate(Arc::new(subject), Box::new(certificate)))
        };
        Ok(match (self, &target.login) {
            (Stranger::Nothing, _) => vec![Pass::Nothing],
            (Stranger::Password, _) => {
                vec![Pass::Password(String::new()), Pass::Password(target.way.host.user.clone())]
            }
            (Stranger::Answers, _) => vec![Pass::Answers],
            (Stranger::KeyAsAuthority, Login::Key(key)) => vec![signed(key, ephemeral())?],
            (Stranger::AuthorityKey, Login::Certificates(authority)) => vec![Pass::Key(Arc::clone(&authority.key))],
            (Stranger::OtherAuthority, _) => {
                let own = ephemeral();
                vec![signed(&ephemeral(), ephemeral())?, signed(&own, own.clone())?]
            }
            (Stranger::Key | Stranger::KeyAsAuthority | Stranger::AuthorityKey, _) => {
                vec![Pass::Key(Arc::new(ephemeral()))]
            }
        })
    }
}

/// Tries to get in without the credential.
pub(super) async fn stranger(target: &Target, stranger: Stranger) -> Result<Seen, Error> {
    let connection = knock(target).await?;
    let passes = stranger.passes(target, &connection)?;
    refused(target, connection, passes).await
}

/// Tries certificates that are good for nothing.
pub(super) async fn unfit(target: &Target, authority: &Authority, unfit: Unfit) -> Result<Seen, Error> {
    let connection = knock(target).await?;
    let mut passes = Vec::new();
    for draft in Draft::good(&target.login, connection.local).unfit(unfit) {
        let subject = ephemeral();
        let certificate = draft.signed(&subject, &authority.key)?;
        passes.push(match unfit {
            Unfit::OtherKey => Pass::Certificate(Arc::new(ephemeral()), Box::new(certificate)),
            Unfit::Altered => Pass::Certificate(Arc::new(subject), Box::new(altered(&certificate)?)),
            _ => Pass::Certificate(Arc::new(subject), Box::new(certificate)),
        });
    }
    refused(target, connection, passes).await
}

/// Tries the true credential, or a certificate that names the account, at another account.
pub(super) async fn account(target: &Target, name: &str, authority: Option<&Authority>) -> Result<Seen, Error> {
    if name == target.way.host.user {
        return Ok(Seen::NotHere("this is the account that the credential is for".to_owned()));
    }
    let with: &[Option<&Authority>] = &[authority];
    one_of(target, name, with).await
}

/// The same with both, one behind the other.
pub(super) async fn any(target: &Target, name: &str, authority: Option<&Authority>) -> Result<Seen, Error> {
    match authority {
        Some(_) => one_of(target, name, &[None, authority]).await,
        None => one_of(target, name, &[None]).await,
    }
}

async fn one_of(target: &Target, name: &str, with: &[Option<&Authority>]) -> Result<Seen, Error> {
    let mut connection = knock(target).await?;
    let draft = Draft::good(&target.login, connection.local);
    for authority in with {
        let signed = |draft: Draft, by: &Authority| -> Result<Pass, Error> {
            let subject = ephemeral();
            let certificate = draft.signed(&subject, &by.key)?;
            Ok(Pass::Certificate(Arc::new(subject), Box::new(certificate)))
        };
        let pass = match (authority, &target.login) {
            (Some(authority), _) => signed(draft.clone().naming(name), authority)?,
            (None, Login::Key(key)) => Pass::Key(Arc::clone(key)),
            (None, Login::Certificates(authority)) => signed(draft.clone(), authority)?,
        };
        // sshd lets nobody change the name on a connection, so there is no true login behind this one.
        match enter(&mut connection, name, pass).await? {
            Entry::Granted => return Ok(Seen::Broken(format!("{name} was logged in"))),
            Entry::Refused(_) => {}
            Entry::Dropped => return Ok(Seen::Untried(connection.lost().to_string())),
        }
    }
    Ok(Seen::Refused("sshd refused the login".to_owned()))
}

/// All of these are refused, and the true login behind each is not. Each has a connection of its own: sshd takes few failures on
/// one (`MaxAuthTries`).
async fn refused(target: &Target, first: Connection, passes: Vec<Pass>) -> Result<Seen, Error> {
    let mut first = Some(first);
    let mut seen = Seen::Untried("there was nothing to try".to_owned());
    for pass in passes {
        let mut connection = match first.take() {
            Some(connection) => connection,
            None => knock(target).await?,
        };
        let note = match enter(&mut connection, &target.way.host.user, pass).await? {
            Entry::Granted => return Ok(Seen::Broken("the login was accepted".to_owned())),
            Entry::Refused(others) if asks_for_passwords(&others) => " (it would take a password, too)",
            Entry::Refused(_) => "",
            Entry::Dropped => return Ok(Seen::Untried(connection.lost().to_string())),
        };
        seen = refused_alone(target, &mut connection).await?.with(note);
        if !matches!(seen, Seen::Refused(_)) {
            break;
        }
    }
    Ok(seen)
}

/// A login was refused on this connection. It was if the true one is not.
pub(super) async fn refused_alone(target: &Target, connection: &mut Connection) -> Result<Seen, Error> {
    let entering =
        timeout(PATIENCE, connection.log_in(&target.login, super::KEY_ID)).await.map_err(|_| Error::Silence)?;
    Ok(match entering {
        Ok(()) => Seen::Refused("sshd refused the login, and took the true one behind it".to_owned()),
        Err(Lost::Refused { .. }) => {
            Seen::Untried("sshd refused the login, but the true one behind it, too".to_owned())
        }
        Err(why) => Seen::Untried(why.to_string()),
    })
}

/// Logs in, or tries to.
///
/// # Errors
/// No answer came.
pub(super) async fn enter(connection: &mut Connection, user: &str, pass: Pass) -> Result<Entry, Error> {
    let handle = &mut connection.handle;
    let entering = async {
        match pass {
            Pass::Key(key) => {
                handle.authenticate_publickey(user, PrivateKeyWithHashAlg::new(key, None)).await.map(Into::into)
            }
            Pass::Certificate(key, certificate) => {
                handle.authenticate_openssh_cert(user, key, *certificate).await.map(Into::into)
            }
            Pass::Password(password) => handle.authenticate_password(user, password).await.map(Into::into),
            Pass::Nothing => handle.authenticate_none(user).await.map(Into::into),
            Pass::Answers => answer_nothing(handle, user).await,
        }
    };
    let entry = timeout(PATIENCE, entering).await.map_err(|_| Error::Silence)?;
    Ok(match entry {
        // A server that refuses names what it would take; russh makes an answer up where the connection is gone.
        Ok(Entry::Refused(others)) if others.is_empty() => Entry::Dropped,
        Ok(entry) => entry,
        Err(_) => Entry::Dropped,
    })
}

/// Gives empty answers to a few rounds of questions.
async fn answer_nothing(handle: &mut Handle<Client>, user: &str) -> Result<Entry, russh::Error> {
    let mut answer = handle.authenticate_keyboard_interactive_start(user, None).await?;
    for _ in 0..4 {
        match answer {
            KeyboardInteractiveAuthResponse::Success => return Ok(Entry::Granted),
            KeyboardInteractiveAuthResponse::Failure { remaining_methods, .. } => {
                return Ok(Entry::Refused(remaining_methods));
            }
            KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. } => {
                let empty = prompts.iter().map(|_| String::new()).collect();
                answer = handle.authenticate_keyboard_interactive_respond(empty).await?;
            }
        }
    }
    Ok(Entry::Dropped)
}

fn asks_for_passwords(others: &MethodSet) -> bool {
    others.contains(&MethodKind::Password) || others.contains(&MethodKind::KeyboardInteractive)
}

impl From<AuthResult> for Entry {
    fn from(result: AuthResult) -> Entry {
        match result {
            AuthResult::Success => Entry::Granted,
            AuthResult::Failure { remaining_methods, .. } => Entry::Refused(remaining_methods),
        }
    }
}
