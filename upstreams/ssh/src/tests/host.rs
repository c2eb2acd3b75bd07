//! A host that is as odd as a test wants it: a real SSH server, in this process.

use crate::credential::ephemeral;
use crate::known_hosts::Pinned;
use crate::settings::Host;
use russh::keys::{Certificate, PrivateKey};
use russh::server::{self, Auth, Config, Handle, Msg, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, MethodKind, MethodSet, Sig};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Mutex as AsyncMutex, mpsc};

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How it is odd.
#[derive(Clone)]
pub(crate) struct Oddity {
    /// Its key.
    pub key: PrivateKey,
    /// What it says before a login.
    pub banner: Option<&'static str>,
    /// It asks for a password, and for nothing else.
    pub wants_password: bool,
    /// Sessions on a connection.
    pub most: usize,
    /// It does not answer when a session is opened.
    pub opens_nothing: bool,
}

pub(crate) struct OddHost {
    pub address: SocketAddr,
    pub key: PrivateKey,
    happened: AsyncMutex<mpsc::UnboundedReceiver<String>>,
    sockets: Arc<Mutex<Vec<std::net::TcpStream>>>,
    shown: Arc<Mutex<PrivateKey>>,
    accepting: tokio::task::JoinHandle<()>,
}

struct Door {
    oddity: Oddity,
    tell: mpsc::UnboundedSender<String>,
    n_open: usize,
    commands: std::collections::HashMap<ChannelId, String>,
}

impl Oddity {
    pub(crate) fn none() -> Oddity {
        Oddity { key: ephemeral(), banner: None, wants_password: false, most: 100, opens_nothing: false }
    }
}

impl OddHost {
    pub(crate) async fn open(oddity: Oddity) -> OddHost {
        OddHost::at("127.0.0.1:0".parse().expect("an address"), oddity).await
    }

    /// At an address that another one may have had.
    pub(crate) async fn at(address: SocketAddr, oddity: Oddity) -> OddHost {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("an option");
        socket.bind(address).expect("an address of its own");
        let listener: TcpListener = socket.listen(64).expect("listens");
        let address = listener.local_addr().expect("an address");
        let (tell, happened) = mpsc::unbounded_channel();
        let sockets: Arc<Mutex<Vec<std::net::TcpStream>>> = Arc::default();
        let (key, kept) = (oddity.key.clone(), Arc::clone(&sockets));
        let shown = Arc::new(Mutex::new(oddity.key.clone()));
        let newest = Arc::clone(&shown);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stream = stream.into_std().expect("a socket");
                kept.lock().expect("unharmed").push(stream.try_clone().expect("a clone"));
                let stream = tokio::net::TcpStream::from_std(stream).expect("a socket");
                tell.send("connected".to_owned()).ok();
                let key = newest.lock().expect("unharmed").clone();
                tokio::spawn(Oddity { key, ..oddity.clone() }.serve(stream, tell.clone()));
            }
        });
        OddHost { address, key, happened: AsyncMutex::new(happened), sockets, shown, accepting }
    }

    /// The next thing that happened there.
    #[track_caller]
    pub(crate) fn next(&self) -> impl Future<Output = String> {
        let at = std::panic::Location::caller();
        async move {
            let mut happened = self.happened.lock().await;
            let next = tokio::time::timeout(PATIENCE, happened.recv()).await;
            next.unwrap_or_else(|_| panic!("{at}: nothing happens")).unwrap_or_else(|| panic!("{at}: it is gone"))
        }
    }

    /// What has happened there and nobody has looked at.
    pub(crate) async fn rest(&self) -> Vec<String> {
        let mut happened = self.happened.lock().await;
        std::iter::from_fn(|| happened.try_recv().ok()).collect()
    }

    /// Ends all connections, at once.
    pub(crate) fn hang_up(&self) {
        for socket in self.sockets.lock().expect("unharmed").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Whoever is connected stays so; whoever comes is shown another key.
    pub(crate) fn has_another_key(&self) {
        *self.shown.lock().expect("unharmed") = ephemeral();
    }

    /// Nobody is there any more.
    pub(crate) async fn end(self) -> SocketAddr {
        self.accepting.abort();
        let _ = self.accepting.await;
        for socket in self.sockets.lock().expect("unharmed").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.address
    }

    pub(crate) fn host(&self) -> Host {
        Host { user: "deploy".to_owned(), name: self.address.ip().to_string(), port: self.address.port() }
    }

    /// The line of `known_hosts` that pins `key` for it.
    pub(crate) fn line(&self, key: &PrivateKey) -> String {
        let key = key.public_key().to_openssh().expect("text");
        format!("[{}]:{} {key}\n", self.address.ip(), self.address.port())
    }

    pub(crate) fn pinned(&self) -> Pinned {
        Pinned::of(&self.line(&self.key), &self.host()).expect("pinned")
    }
}

impl Oddity {
    async fn serve(self, stream: tokio::net::TcpStream, tell: mpsc::UnboundedSender<String>) {
        let methods = if self.wants_password { vec![MethodKind::Password] } else { vec![MethodKind::PublicKey] };
        let config = Config {
            keys: vec![self.key.clone()],
            methods: MethodSet::from(methods.as_slice()),
            auth_rejection_time: Duration::ZERO,
            nodelay: true,
            ..Config::default()
        };
        let door = Door { oddity: self, tell: tell.clone(), n_open: 0, commands: Default::default() };
        if let Ok(session) = server::run_stream(Arc::new(config), stream, door).await {
            let _ = session.await;
        }
        tell.send("disconnected".to_owned()).ok();
    }
}

impl Door {
    fn tell(&self, what: impl Into<String>) {
        self.tell.send(what.into()).ok();
    }

    fn let_in(&self, user: &str) -> Auth {
        if self.oddity.wants_password { Auth::reject() } else { self.accept(user) }
    }

    fn accept(&self, user: &str) -> Auth {
        self.tell(format!("login {user}"));
        Auth::Accept
    }
}

impl server::Handler for Door {
    type Error = russh::Error;

    async fn authentication_banner(&mut self) -> Result<Option<String>, russh::Error> {
        Ok(self.oddity.banner.map(str::to_owned))
    }

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, russh::Error> {
        self.tell(format!("password {password}"));
        Ok(self.accept(user))
    }

    async fn auth_publickey(&mut self, user: &str, _: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        Ok(self.let_in(user))
    }

    async fn auth_openssh_certificate(&mut self, user: &str, shown: &Certificate) -> Result<Auth, russh::Error> {
        self.tell(format!("certificate {}", shown.key_id()));
        Ok(self.let_in(user))
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: server::ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        if self.oddity.opens_nothing {
            std::future::pending::<()>().await;
        }
        if self.n_open >= self.oddity.most {
            reply.reject(russh::ChannelOpenFailure::ConnectFailed).await;
        } else {
            self.n_open += 1;
            reply.accept().await;
        }
        Ok(())
    }

    async fn exec_request(&mut self, id: ChannelId, data: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        let command = String::from_utf8_lossy(data).into_owned();
        self.tell(format!("exec {command}"));
        match command.as_str() {
            "do refuse" => return session.channel_failure(id),
            "do end and refuse" => {
                session.exit_status_request(id, 0)?;
                return session.channel_failure(id);
            }
            "do dead" => std::future::pending::<()>().await,
            "do mute" => return Ok(()),
            _ => session.channel_success(id)?,
        }
        self.commands.insert(id, command.clone());
        tokio::spawn(act(session.handle(), id, command, self.tell.clone()));
        Ok(())
    }

    async fn env_request(&mut self, _: ChannelId, name: &str, _: &str, _: &mut Session) -> Result<(), russh::Error> {
        self.tell(format!("env {name}"));
        Ok(())
    }

    async fn data(&mut self, _: ChannelId, data: &[u8], _: &mut Session) -> Result<(), russh::Error> {
        self.tell(format!("stdin {:?}", String::from_utf8_lossy(data)));
        Ok(())
    }

    async fn channel_eof(&mut self, id: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        self.tell("eof");
        // What the script does on the host: an action that stays no longer than we do ends.
        if self.commands.get(&id).is_some_and(|command| command == "do wait") {
            let handle = session.handle();
            tokio::spawn(async move {
                let _ = handle.exit_status_request(id, 143).await;
                let _ = handle.close(id).await;
            });
        }
        Ok(())
    }

    async fn channel_close(&mut self, _: ChannelId, _: &mut Session) -> Result<(), russh::Error> {
        self.n_open -= 1;
        self.tell("close");
        Ok(())
    }
}

/// What a command does there.
async fn act(handle: Handle, id: ChannelId, command: String, tell: mpsc::UnboundedSender<String>) {
    let exit = async |status| {
        let _ = handle.exit_status_request(id, status).await;
        let _ = handle.eof(id).await;
        let _ = handle.close(id).await;
    };
    match command.strip_prefix("do ").unwrap_or(&command) {
        "out" => {
            let _ = handle.data(id, &b"out\n"[..]).await;
            let _ = handle.extended_data(id, 1, &b"warning\n"[..]).await;
            exit(0).await;
        }
        "three" => exit(3).await,
        "killed" => {
            let _ = handle.exit_signal_request(id, Sig::KILL, false, "\x1b[2J".to_owned(), String::new()).await;
            let _ = handle.close(id).await;
        }
        "nothing" => drop(handle.close(id).await),
        "colours" => {
            let _ = handle.data(id, &b"\x1b]0;title\x07\x1b[31mred\r\n\0\xff\n"[..]).await;
            exit(0).await;
        }
        "flood" => {
            let block = vec![b'x'; 32 * 1024];
            while handle.data(id, block.clone()).await.is_ok() {}
        }
        "much" => {
            let _ = handle.data(id, &b"begin\n"[..]).await;
            for _ in 0..160 {
                let _ = handle.data(id, vec![b'x'; 32 * 1024]).await;
            }
            let _ = handle.data(id, &b"end\n"[..]).await;
            exit(0).await;
        }
        "break" => {
            for _ in 0..32 {
                let _ = handle.data(id, vec![b'x'; 32 * 1024]).await;
            }
            tell.send("broken".to_owned()).ok();
            let why = "\x1b[31mgoing down\nnow".to_owned();
            let _ = handle.disconnect(russh::Disconnect::ByApplication, why, String::new()).await;
        }
        // It has ended, and what it has left behind holds its streams.
        "daemon" => {
            let _ = handle.data(id, &b"started\n"[..]).await;
            let _ = handle.exit_status_request(id, 0).await;
        }
        "intrude" => intrude(&handle, id).await,
        // `wait`, `stay` and what a test ends itself.
        _ => drop(handle.data(id, &b"begun\n"[..]).await),
    }
}

/// Opens everything that a server can open towards its client, and says how often it was let.
async fn intrude(handle: &Handle, id: ChannelId) {
    let opened = [
        handle.channel_open_agent().await.is_ok(),
        handle.channel_open_session().await.is_ok(),
        handle.channel_open_x11("127.0.0.1", 1).await.is_ok(),
        handle.channel_open_direct_tcpip("127.0.0.1", 22, "127.0.0.1", 1).await.is_ok(),
        handle.channel_open_direct_streamlocal("/tmp/x").await.is_ok(),
        handle.channel_open_forwarded_tcpip("127.0.0.1", 22, "127.0.0.1", 1).await.is_ok(),
        handle.channel_open_forwarded_streamlocal("/tmp/x").await.is_ok(),
    ];
    let _ = handle.data(id, format!("{opened:?}")).await;
    let _ = handle.exit_status_request(id, 0).await;
    let _ = handle.close(id).await;
}
