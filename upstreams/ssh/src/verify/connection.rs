//! A connection of an attacker: russh's client without anything that would keep it from asking for what it should not.

use super::certificates::{Draft, ephemeral};
use super::target::{Opener, Target};
use super::{Error, Lost};
use crate::known_hosts::Pinned;
use russh::client::{AuthResult, Config, Handle, Handler, KeyboardInteractiveAuthResponse, Msg, connect_stream};
use russh::keys::{Certificate, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{Channel, ChannelMsg, Disconnect, MethodKind, MethodSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an answer may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// What is kept of what a channel says, in bytes.
const KEPT: usize = 64 * 1024;

/// A connection, before or after a login.
pub(super) struct Connection {
    pub(super) handle: Handle<Pins>,
    /// Where it comes from.
    pub(super) local: IpAddr,
}

/// What somebody logs in with.
pub(super) enum Pass {
    Key(Arc<PrivateKey>),
    Certificate(Arc<PrivateKey>, Box<Certificate>),
    Password(String),
    Interactive,
    None,
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

/// What a channel has said, to its end or until nobody waited any longer.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Answers to requests, in their order.
    pub(super) replies: Vec<bool>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) status: Option<u32>,
    pub(super) signal: Option<String>,
    pub(super) end: End,
}

/// How the listening ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// The channel was closed.
    Closed,
    /// The connection went.
    #[default]
    Dropped,
    /// Nothing came any more.
    Late,
}

/// Knows the host by its pinned keys, and takes nothing from it that it would open by itself.
pub(super) struct Pins(Pinned);

impl Handler for Pins {
    type Error = russh::Error;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        Ok(key.certificate().is_none() && self.0.has(&key.public_key()))
    }
}

// === impl Connection ===

impl Connection {
    /// Connects, as far as the host's key.
    ///
    /// # Errors
    /// The host is not there, or is another one.
    pub(super) async fn open(target: &Target<'_>) -> Result<Connection, Lost> {
        let within = target.settings.connect;
        let lost = |why: String| Lost(format!("{}: {why}", target.settings.host));
        let config = Arc::new(Config {
            nodelay: true,
            keepalive_interval: Some(target.settings.keep_alive),
            keepalive_max: 2,
            ..Config::default()
        });
        let place = (target.settings.host.name.as_str(), target.settings.host.port);
        let opening = async {
            let stream = TcpStream::connect(place).await.map_err(|why| lost(why.to_string()))?;
            let local = stream.local_addr().map_err(|why| lost(why.to_string()))?.ip();
            drop(stream.set_nodelay(true));
            let handle =
                connect_stream(config, stream, Pins(target.pinned.clone())).await.map_err(|why| match why {
                    russh::Error::UnknownKey => lost("it shows a key that is not in `known_hosts`".to_owned()),
                    why => lost(why.to_string()),
                })?;
            Ok(Connection { handle, local: local.to_canonical() })
        };
        timeout(within, opening).await.map_err(|_| lost(format!("nothing within {within:?}")))?
    }

    /// Connects, and logs in with the true credential.
    ///
    /// # Errors
    /// The host is not there, or lets nobody in.
    pub(super) async fn login(target: &Target<'_>) -> Result<Connection, Error> {
        let mut connection = Connection::open(target).await?;
        let pass = connection.true_pass(target)?;
        match connection.enter(&target.settings.host.user, pass).await? {
            Entry::Granted => Ok(connection),
            Entry::Refused(_) => Err(Error::Refused(target.settings.host.to_string())),
            Entry::Dropped => Err(Lost(format!("{}: it went away during the login", target.settings.host)).into()),
        }
    }

    /// The true credential, as it is used from this connection.
    pub(super) fn true_pass(&self, target: &Target<'_>) -> Result<Pass, Error> {
        match &target.opener {
            Opener::Key(key) => Ok(Pass::Key(Arc::clone(key))),
            Opener::Authority { key, .. } => {
                let subject = ephemeral()?;
                let certificate = Draft::good(&target.opener, self.local).signed(&subject, key)?;
                Ok(Pass::Certificate(Arc::new(subject), Box::new(certificate)))
            }
        }
    }

    /// Logs in, or tries to.
    ///
    /// # Errors
    /// No answer came.
    pub(super) async fn enter(&mut self, user: &str, pass: Pass) -> Result<Entry, Lost> {
        let handle = &mut self.handle;
        let entering = async {
            match pass {
                Pass::Key(key) => {
                    handle.authenticate_publickey(user, PrivateKeyWithHashAlg::new(key, None)).await.map(Into::into)
                }
                Pass::Certificate(key, certificate) => {
                    handle.authenticate_openssh_cert(user, key, *certificate).await.map(Into::into)
                }
                Pass::Password(password) => handle.authenticate_password(user, password).await.map(Into::into),
                Pass::None => handle.authenticate_none(user).await.map(Into::into),
                Pass::Interactive => answer_nothing(handle, user).await,
            }
        };
        let entry = timeout(PATIENCE, entering).await.map_err(|_| Lost("no answer to a login".to_owned()))?;
        Ok(match entry {
            // A server that refuses names what it would take; russh makes one up where the connection is gone.
            Ok(Entry::Refused(others)) if others.is_empty() && self.handle.is_closed() => Entry::Dropped,
            Ok(entry) => entry,
            Err(_) => Entry::Dropped,
        })
    }

    /// Opens a channel for an action.
    ///
    /// # Errors
    /// It could not be.
    pub(super) async fn channel(&self) -> Result<Channel<Msg>, Lost> {
        let opened = timeout(PATIENCE, self.handle.channel_open_session()).await;
        let opened = opened.map_err(|_| Lost("no answer to a new channel".to_owned()))?;
        opened.map_err(|why| Lost(format!("no new channel: {why}")))
    }

    /// Asks for an action, with nothing on its stdin, and hears it out.
    ///
    /// # Errors
    /// It could not even be asked for.
    pub(super) async fn exec(&self, action: &[u8]) -> Result<Heard, Lost> {
        let mut channel = self.channel().await?;
        channel.exec(true, action).await?;
        // A host that has closed it already is not told.
        drop(channel.eof().await);
        Ok(hear_action(&mut channel).await)
    }

    /// Ends it, where it has not ended.
    pub(super) async fn leave(self) {
        drop(self.handle.disconnect(Disconnect::ByApplication, "", "").await);
    }
}

/// Gives empty answers to a few rounds of questions.
async fn answer_nothing(handle: &mut Handle<Pins>, user: &str) -> Result<Entry, russh::Error> {
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

impl From<AuthResult> for Entry {
    fn from(result: AuthResult) -> Entry {
        match result {
            AuthResult::Success => Entry::Granted,
            AuthResult::Failure { remaining_methods, .. } => Entry::Refused(remaining_methods),
        }
    }
}

impl Entry {
    /// Whether the host asks for something that can be guessed.
    pub(super) fn asks_for_passwords(others: &MethodSet) -> bool {
        others.contains(&MethodKind::Password) || others.contains(&MethodKind::KeyboardInteractive)
    }
}

/// Hears a channel out.
pub(super) async fn hear(channel: &mut Channel<Msg>) -> Heard {
    hear_until(channel, |_| false).await
}

/// Hears an action out, the only one on its channel. One that sshd has refused leaves the channel as it is.
pub(super) async fn hear_action(channel: &mut Channel<Msg>) -> Heard {
    hear_until(channel, |heard| heard.replies.first() == Some(&false)).await
}

/// Hears a channel out, or until this is so.
pub(super) async fn hear_until(channel: &mut Channel<Msg>, is_enough: impl Fn(&Heard) -> bool) -> Heard {
    let mut heard = Heard::default();
    let listening = async {
        while let Some(said) = channel.wait().await {
            match said {
                ChannelMsg::Success => heard.replies.push(true),
                ChannelMsg::Failure => heard.replies.push(false),
                ChannelMsg::Data { data } => keep(&mut heard.stdout, &data),
                ChannelMsg::ExtendedData { data, .. } => keep(&mut heard.stderr, &data),
                ChannelMsg::ExitStatus { exit_status } => heard.status = Some(exit_status),
                ChannelMsg::ExitSignal { signal_name, .. } => heard.signal = Some(format!("{signal_name:?}")),
                ChannelMsg::Close => {
                    heard.end = End::Closed;
                    return;
                }
                _ => {}
            }
            if is_enough(&heard) {
                heard.end = End::Late;
                return;
            }
        }
    };
    if timeout(PATIENCE, listening).await.is_err() {
        heard.end = End::Late;
    }
    heard
}

/// What is beyond that is not looked at: nothing that was refused says so much.
fn keep(kept: &mut Vec<u8>, data: &[u8]) {
    let room = KEPT.saturating_sub(kept.len()).min(data.len());
    kept.extend_from_slice(&data[..room]);
}
