//! One connection to the host: its key looked at, logged in, and nothing accepted that it opens towards us.
//!
//! Everything is held in memory and said by the settings: no `ssh` program, no ssh_config, no agent, no file of the user's
//! is read. A connection that is dropped is closed at once, however far it had come.

use crate::credential::{Issued, Login};
use crate::known_hosts::{Pinned, fingerprint};
use crate::settings::{Host, Settings};
use russh::client::{self, AuthResult, ChannelOpenHandle, DisconnectReason, Handle, Handler, Msg, Session};
use russh::keys::{PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{AlgorithmKind, Channel, Preferred, SshId};
use std::borrow::Cow;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream as Socket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use thiserror::Error;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};

/// How the host is reached, and how it is known.
#[derive(Clone, Debug)]
pub struct Way {
    /// Whose account, and where.
    pub host: Host,
    /// The keys that it may show.
    pub pinned: Pinned,
    /// To connect, from the first packet to a login.
    pub connect: Duration,
    /// After so much silence the host is asked whether it is still there; twice unanswered, it is not.
    pub keep_alive: Duration,
}

/// Why there is no connection. `Display` is for people and models; nothing in it is as the host wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// Nobody answers there, or not as SSH.
    #[error("cannot reach {host}: {why}")]
    Unreachable {
        /// Where.
        host: String,
        /// What happened.
        why: String,
    },
    /// The host does not show, or cannot prove, a key that is pinned.
    #[error("{0}")]
    HostKey(String),
    /// The host does not let us in.
    #[error("{host} does not accept {login}: {why}")]
    Refused {
        /// Where.
        host: String,
        /// What was shown.
        login: String,
        /// What it said, and what to look at.
        why: String,
    },
    /// It let us in, and opens no session.
    #[error("{host} let us in and opens no session ({why}); `MaxSessions` there may be 0")]
    NoSession {
        /// Where.
        host: String,
        /// What it said.
        why: String,
    },
    /// It was there, and is not any more.
    #[error("the connection to {host} ended: {why}")]
    Lost {
        /// Where.
        host: String,
        /// What happened.
        why: String,
    },
}

/// A connection.
pub struct Connection {
    /// The protocol's side of it.
    pub handle: Handle<Client>,
    /// Our address, as this host sees it.
    pub local: IpAddr,
    host: Host,
    seen: Arc<Seen>,
    cut: Cut,
}

/// What the protocol calls when something happens.
pub struct Client {
    pinned: Pinned,
    seen: Arc<Seen>,
}

/// What has happened on a connection.
#[derive(Default)]
struct Seen {
    /// The key that the host showed, where it is none of the pinned ones.
    wrong_key: Mutex<Option<String>>,
    /// Why it ended.
    ended: Mutex<Option<String>>,
}

/// Closes a socket when it is dropped: the protocol runs in a task of its own, which would wait for a silent host.
struct Cut(Socket);

/// How much a host may send that nobody has taken yet, in bytes.
const WINDOW: u32 = 512 * 1024;
/// Packets of a channel that wait for us; then the connection waits.
const PACKETS: usize = 16;
/// Questions without an answer until the host is taken for gone.
const UNANSWERED: usize = 2;
/// The longest text of the host's that is repeated.
const SAID: usize = 200;

// === impl Way ===

impl Way {
    /// As the settings say.
    ///
    /// # Errors
    /// No key of the host is pinned.
    pub fn of(settings: &Settings) -> Result<Way, String> {
        Ok(Way {
            pinned: Pinned::of(&settings.known_hosts, &settings.host)?,
            host: settings.host.clone(),
            connect: settings.connect,
            keep_alive: settings.keep_alive,
        })
    }

    fn config(&self) -> client::Config {
        client::Config {
            client_id: SshId::Standard(Cow::Borrowed(concat!("SSH-2.0-portcullis_", env!("CARGO_PKG_VERSION")))),
            window_size: WINDOW,
            channel_buffer_size: PACKETS,
            // A host with several keys shows the one that we ask for: one that is not pinned would be refused.
            preferred: Preferred { key: Cow::Owned(self.pinned.algorithms()), ..Preferred::DEFAULT },
            keepalive_interval: Some(self.keep_alive),
            keepalive_max: UNANSWERED,
            nodelay: true,
            ..client::Config::default()
        }
    }

    fn unreachable(&self, why: impl Into<String>) -> Error {
        Error::Unreachable { host: self.host.to_string(), why: why.into() }
    }

    fn late(&self) -> Error {
        self.unreachable(format!("it did not answer within {:?}", self.connect))
    }

    fn host_key(&self, what: &str) -> Error {
        Error::HostKey(format!(
            "the host key of {} is not the pinned one: {what}; known_hosts has {}. Either the host has a new key, or somebody \
             stands in between: nothing is sent to it until known_hosts says otherwise",
            self.host,
            self.pinned.fingerprints().join(", ")
        ))
    }
}

// === impl Connection ===

impl Connection {
    /// Connects and logs in. `key_id` is for a certificate.
    ///
    /// # Errors
    /// [`Error`]; it is not tried again.
    pub async fn to(way: &Way, login: &Login, key_id: &str) -> Result<Connection, Error> {
        let by = Instant::now() + way.connect;
        let connecting = async {
            let mut connection = Connection::open(way).await?;
            connection.log_in(login, key_id).await?;
            Ok(connection)
        };
        timeout_at(by, connecting).await.unwrap_or_else(|_| Err(way.late()))
    }

    /// Connects and looks at the host's key; nobody is logged in.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn open(way: &Way) -> Result<Connection, Error> {
        timeout(way.connect, Connection::connect(way)).await.unwrap_or_else(|_| Err(way.late()))
    }

    async fn connect(way: &Way) -> Result<Connection, Error> {
        let (socket, cut) = socket(way).await.map_err(|why| way.unreachable(why.to_string()))?;
        let local = socket.local_addr().map_err(|why| way.unreachable(why.to_string()))?.ip();
        let seen = Arc::new(Seen::default());
        let client = Client { pinned: way.pinned.clone(), seen: Arc::clone(&seen) };
        let handle = client::connect_stream(Arc::new(way.config()), socket, client).await.map_err(|why| match why {
            russh::Error::UnknownKey => {
                let shown = take(&seen.wrong_key).unwrap_or_else(|| "a certificate".to_owned());
                way.host_key(&format!("it shows {shown}"))
            }
            russh::Error::WrongServerSig => way.host_key("it cannot prove that it has the key that it shows"),
            russh::Error::NoCommonAlgo { kind: AlgorithmKind::Key, theirs, .. } => {
                way.host_key(&format!("it has none of that kind, but {}", said(&theirs.join(", "))))
            }
            why => way.unreachable(reason(&why)),
        })?;
        Ok(Connection { handle, local, host: way.host.clone(), seen, cut })
    }

    /// Logs in. `key_id` is for a certificate.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Lost`].
    pub async fn log_in(&mut self, login: &Login, key_id: &str) -> Result<(), Error> {
        let refused = |why: String| Error::Refused { host: self.host.to_string(), login: login.to_string(), why };
        let answer = match login {
            Login::Key(key) => {
                let key = PrivateKeyWithHashAlg::new(Arc::clone(key), None);
                self.handle.authenticate_publickey(&self.host.user, key).await
            }
            Login::Certificates(authority) => {
                #[expect(clippy::disallowed_methods, reason = "the host compares it with its own time of day")]
                let now = SystemTime::now();
                let terms = authority.terms(key_id, self.local, now);
                let Issued { key, certificate } = authority.issue(&terms).map_err(&refused)?;
                self.handle.authenticate_openssh_cert(&self.host.user, key, certificate).await
            }
        };
        match answer {
            Ok(AuthResult::Success) => Ok(()),
            Ok(AuthResult::Failure { remaining_methods, .. }) if !remaining_methods.is_empty() => {
                let others: Vec<&'static str> = remaining_methods.iter().map(Into::into).collect();
                Err(refused(format!("it wants one of: {}; {}", others.join(", "), login.advice(&self.host))))
            }
            Ok(AuthResult::Failure { .. }) if !self.handle.is_closed() => Err(refused(login.advice(&self.host))),
            Ok(AuthResult::Failure { .. }) | Err(_) => Err(self.lost()),
        }
    }

    /// Whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Closes it, without waiting for anybody.
    pub fn close(&self) {
        self.cut.now();
    }

    /// That it has ended, and why.
    pub fn lost(&self) -> Error {
        let why = self.seen.ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Error::Lost { host: self.host.to_string(), why: why.unwrap_or_else(|| "the host closed it".to_owned()) }
    }
}

/// A TCP connection to one of the host's addresses; the time is shared among them.
async fn socket(way: &Way) -> std::io::Result<(TcpStream, Cut)> {
    let by = Instant::now() + way.connect;
    let addresses: Vec<SocketAddr> = lookup_host((way.host.name.as_str(), way.host.port)).await?.collect();
    let mut last = std::io::Error::other("its name has no address");
    for (at, address) in addresses.iter().enumerate() {
        let share =
            by.saturating_duration_since(Instant::now()) / u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => {
                socket.set_nodelay(true)?;
                let socket = socket.into_std()?;
                let cut = Cut(socket.try_clone()?);
                return Ok((TcpStream::from_std(socket)?, cut));
            }
            Ok(Err(why)) => last = why,
            Err(_) => last = std::io::Error::other(format!("it did not answer within {share:?}")),
        }
    }
    Err(last)
}

impl Cut {
    fn now(&self) {
        // What has ended already cannot be closed, which is as well.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.now();
    }
}

// === impl Client ===

impl Handler for Client {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else {
            return Ok(false);
        };
        let is_pinned = self.pinned.has(key);
        if !is_pinned {
            put(&self.seen.wrong_key, fingerprint(key));
        }
        Ok(is_pinned)
    }

    async fn disconnected(&mut self, reason: DisconnectReason<russh::Error>) -> Result<(), russh::Error> {
        let why = match reason {
            DisconnectReason::ReceivedDisconnect(said_by_host) => match said(&said_by_host.message) {
                why if why.is_empty() => "the host closed it".to_owned(),
                why => format!("the host closed it: {why}"),
            },
            DisconnectReason::Error(why) => reason_of_end(&why),
        };
        put(&self.seen.ended, why);
        Ok(())
    }

    // The host opens nothing towards us, whatever we have asked for: a handle that is dropped refuses.

    async fn server_channel_open_session(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }
}

fn put(place: &Mutex<Option<String>>, text: String) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
}

fn take(place: &Mutex<Option<String>>) -> Option<String> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Why there was no connection, in words.
fn reason(error: &russh::Error) -> String {
    match error {
        russh::Error::IO(why) => why.to_string(),
        russh::Error::Version => "what answers there does not speak SSH".to_owned(),
        russh::Error::HUP | russh::Error::Disconnect => {
            "it closed the connection before it had shown its key".to_owned()
        }
        russh::Error::NoCommonAlgo { kind, theirs, .. } => {
            format!("it has no {kind:?} algorithm that is taken here, but {}", said(&theirs.join(", ")))
        }
        other => said(&other.to_string()),
    }
}

fn reason_of_end(error: &russh::Error) -> String {
    match error {
        russh::Error::KeepaliveTimeout => "the host does not answer any more".to_owned(),
        russh::Error::HUP | russh::Error::Disconnect => "the host closed it".to_owned(),
        russh::Error::UnknownKey => "the host showed another key".to_owned(),
        russh::Error::IO(why) => why.to_string(),
        other => said(&other.to_string()),
    }
}

/// What a host said, as it can stand in a log or on a terminal.
pub(crate) fn said(text: &str) -> String {
    let mut said: String = text.trim().escape_debug().to_string().chars().take(SAID).collect();
    if text.len() > SAID {
        said.push('…');
    }
    said
}
