//! What else the protocol has beside actions: terminals, shells, subsystems, forwarding (RFC 4254, PROTOCOL of OpenSSH).

use super::channels::{Heard, PATIENCE, hear, hear_action, hear_until, open};
use super::refusal::{by_script, by_status, plain};
use super::target::{Canary, Target};
use super::{Error, Seen};
use crate::connection::Connection;
use russh::client::Msg;
use russh::{Channel, ChannelOpenFailure, Sig};
use tokio::time::timeout;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Variables for a locale, which stock Debian takes, and an action.
    Locale,
    /// A terminal, and an action.
    Terminal,
    /// A shell.
    Shell,
    /// A subsystem of this name.
    Subsystem(&'static str),
    /// An action, with commands on its stdin.
    Stdin,
    /// Two actions on one channel.
    SecondExec,
    /// A shell and an action on one channel.
    ExecAfterShell,
    /// More channels than a server allows at once.
    ManySessions,
    /// A signal for what runs.
    Signal,
    /// A connection from the host to its own sshd.
    ForwardTcp,
    /// A connection from the host to a name that nobody has (RFC 6761).
    ForwardTcpName,
    /// A connection from the host to its sockets.
    ForwardUnix,
    /// A port of the host's.
    ListenTcp,
    /// A socket of the host's.
    ListenUnix,
    /// An agent for the host.
    Agent,
    /// A display for the host.
    X11,
}

/// Channels at once; OpenSSH allows 10 where nobody says otherwise.
const MANY: usize = 20;
/// What stands on most hosts that run anything.
const SOCKETS: [&str; 8] = [
    "/run/systemd/journal/stdout",
    "/run/dbus/system_bus_socket",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/postgresql/.s.PGSQL.5432",
    "/run/mysqld/mysqld.sock",
    "/run/snapd.socket",
    "/tmp/.X11-unix/X0",
];
/// Where something listens on many hosts.
const PORTS: [u16; 17] = [22, 25, 53, 80, 443, 631, 2375, 3000, 3306, 5000, 5432, 6379, 8000, 8080, 9090, 9200, 27017];
/// Where many have something listen.
const HIGH_PORTS: [u32; 10] = [2222, 3000, 5000, 8000, 8080, 8081, 8443, 8888, 9000, 9090];
const REFUSED: &str = "sshd refused the request";

impl Request {
    /// For the table of attacks.
    pub(super) fn words(self) -> &'static str {
        match self {
            Request::Locale => "`LC_ALL` and `LANG` with a command in them, and `{run}`",
            Request::Terminal => "`pty-req`, and `{run}`",
            Request::Shell => "`shell`, and `{run}` on its stdin",
            Request::Subsystem("sftp") => "`subsystem` `sftp`, and its first packet",
            Request::Subsystem("sh") => "`subsystem` `sh`",
            Request::Subsystem(_) => "`subsystem` `netconf`",
            Request::Stdin => "`{check}`, with `{run}` on its stdin",
            Request::SecondExec => "`exec` of `{check}`, and `exec` of `{run}` on the same channel",
            Request::ExecAfterShell => "`shell`, and `exec` of `{run}` on the same channel",
            Request::ManySessions => "20 channels, and `{run}` on each",
            Request::Signal => "`{check}`, and `signal` `KILL` right behind",
            Request::ForwardTcp => {
                "`direct-tcpip` to the host's own port, and to 17 ports of 127.0.0.1 that are often in use"
            }
            Request::ForwardTcpName => "`direct-tcpip` to `portcullis-verify.invalid`",
            Request::ForwardUnix => "`direct-streamlocal@openssh.com` to sockets that hosts usually have",
            Request::ListenTcp => "`tcpip-forward` of any port on 127.0.0.1, and of 10 that are often asked for",
            Request::ListenUnix => "`streamlocal-forward@openssh.com` of a socket in `/tmp`",
            Request::Agent => "`auth-agent-req@openssh.com`",
            Request::X11 => "`x11-req`",
        }
    }

    /// Whether it is the script that refuses, where sshd does not.
    pub(super) fn is_of_the_scripts(self) -> bool {
        matches!(
            self,
            Request::Shell
                | Request::Subsystem(_)
                | Request::Stdin
                | Request::SecondExec
                | Request::ExecAfterShell
                | Request::ManySessions
                | Request::Signal
        )
    }

    /// Asks for it.
    ///
    /// # Errors
    /// The connection is not what it was.
    pub(super) async fn ask(self, on: &Connection, target: &Target, canary: Canary) -> Result<Seen, Error> {
        match self {
            Request::SecondExec => second_exec(on, target, canary).await,
            Request::ManySessions => many_sessions(on, canary).await,
            Request::ForwardTcp => forward_tcp(on, target.way.host.port).await,
            Request::ForwardTcpName => forward_tcp_name(on).await,
            Request::ForwardUnix => forward_unix(on, canary).await,
            Request::ListenTcp => listen_tcp(on).await,
            Request::ListenUnix => listen_unix(on, canary).await,
            _ => {
                let mut channel = open(on).await?;
                let seen = self.ask_on(&mut channel, target, canary).await;
                drop(channel.close().await);
                seen
            }
        }
    }

    /// The same for what needs one channel.
    async fn ask_on(self, channel: &mut Channel<Msg>, target: &Target, canary: Canary) -> Result<Seen, Error> {
        match self {
            Request::Locale => locale(channel, canary).await,
            Request::Terminal => terminal(channel, canary).await,
            Request::Shell => shell(channel, canary).await,
            Request::Subsystem(name) => subsystem(channel, name, canary).await,
            Request::Stdin => stdin(channel, target, canary).await,
            Request::ExecAfterShell => exec_after_shell(channel, canary).await,
            Request::Signal => signal(channel, target).await,
            Request::Agent => {
                channel.agent_forward(true).await?;
                Ok(refused(channel, "it forwards an agent").await)
            }
            Request::X11 => {
                channel.request_x11(true, false, "MIT-MAGIC-COOKIE-1", "0".repeat(32), 0).await?;
                Ok(refused(channel, "it forwards X11").await)
            }
            Request::SecondExec
            | Request::ManySessions
            | Request::ForwardTcp
            | Request::ForwardTcpName
            | Request::ForwardUnix
            | Request::ListenTcp
            | Request::ListenUnix => Ok(Seen::Untried("it needs more than a channel".to_owned())),
        }
    }
}

/// Asks for a variable in the environment.
pub(super) async fn variable(on: &Connection, name: &str, value: &str) -> Result<Seen, Error> {
    let mut channel = open(on).await?;
    channel.set_env(true, name, value).await?;
    Ok(refused(&mut channel, "it takes the variable").await)
}

/// What was asked for last is answered with no.
async fn refused(channel: &mut Channel<Msg>, otherwise: &str) -> Seen {
    match reply(channel).await {
        Some(false) => Seen::Refused(REFUSED.to_owned()),
        Some(true) => Seen::Broken(format!("sshd says yes: {otherwise}")),
        None => Seen::Untried("no answer".to_owned()),
    }
}

/// The answer to what was asked for last.
async fn reply(channel: &mut Channel<Msg>) -> Option<bool> {
    hear_until(channel, |heard| !heard.replies.is_empty()).await.replies.first().copied()
}

async fn locale(channel: &mut Channel<Msg>, canary: Canary) -> Result<Seen, Error> {
    let mut note = "";
    for name in ["LC_ALL", "LANG"] {
        channel.set_env(true, name, format!("portcullis-verify $({})", canary.command())).await?;
        if reply(channel).await == Some(true) {
            note = " (sshd takes it; that is AcceptEnv, and no harm where the account's shell is quiet about it)";
        }
    }
    channel.exec(true, canary.command()).await?;
    drop(channel.eof().await);
    let seen = by_script(&hear_action(channel).await, canary);
    Ok(seen.with(note))
}

async fn terminal(channel: &mut Channel<Msg>, canary: Canary) -> Result<Seen, Error> {
    channel.request_pty(true, "xterm", 80, 24, 0, 0, &[]).await?;
    match refused(channel, "it gives a terminal").await {
        Seen::Refused(_) => {}
        seen => return Ok(seen),
    }
    channel.exec(true, canary.command()).await?;
    drop(channel.eof().await);
    Ok(by_script(&hear_action(channel).await, canary).with(", and sshd the terminal before"))
}

async fn shell(channel: &mut Channel<Msg>, canary: Canary) -> Result<Seen, Error> {
    channel.request_shell(true).await?;
    say(channel, format!("{}\nexit\n", canary.command()).into_bytes()).await;
    Ok(by_script(&hear_action(channel).await, canary))
}

async fn subsystem(channel: &mut Channel<Msg>, name: &str, canary: Canary) -> Result<Seen, Error> {
    channel.request_subsystem(true, name).await?;
    if reply(channel).await == Some(false) {
        return Ok(Seen::Refused(REFUSED.to_owned()));
    }
    // SSH_FXP_INIT, version 3 (draft-ietf-secsh-filexfer-02, 4): whoever speaks SFTP answers it.
    say(channel, vec![0, 0, 0, 5, 1, 0, 0, 0, 3]).await;
    Ok(by_status(&hear_action(channel).await, canary))
}

/// Writes this to its stdin, and ends that. Whoever has ended before does not listen, which is no matter.
async fn say(channel: &Channel<Msg>, bytes: Vec<u8>) {
    drop(timeout(PATIENCE, channel.data_bytes(bytes)).await);
    drop(channel.eof().await);
}

async fn stdin(channel: &mut Channel<Msg>, target: &Target, canary: Canary) -> Result<Seen, Error> {
    channel.exec(true, target.check.as_str()).await?;
    say(channel, format!("{0}\n{0}\n", canary.command()).into_bytes()).await;
    let heard = hear_action(channel).await;
    Ok(match heard {
        _ if canary.is_in(&heard.stdout) || canary.is_in(&heard.stderr) => Seen::Broken(heard.ran()),
        Heard { status: Some(0), .. } => Seen::Refused("the action ended as ever, and nothing else ran".to_owned()),
        _ => Seen::Untried(format!("the action that is allowed did not work: {}", heard.words())),
    })
}

async fn second_exec(on: &Connection, target: &Target, canary: Canary) -> Result<Seen, Error> {
    let mut heard = Heard::default();
    // The first may have ended before the second is looked at; then that is not answered.
    for _ in 0..5 {
        let mut channel = open(on).await?;
        channel.exec(true, target.check.as_str()).await?;
        channel.exec(true, canary.command()).await?;
        drop(channel.eof().await);
        heard = hear(&mut channel).await;
        drop(channel.close().await);
        if heard.replies.len() == 2 {
            break;
        }
    }
    Ok(match heard.replies[..] {
        _ if canary.is_in(&heard.stdout) || canary.is_in(&heard.stderr) => Seen::Broken(heard.ran()),
        [true, false] => Seen::Refused(REFUSED.to_owned()),
        [_, true] => Seen::Broken("sshd took the second action".to_owned()),
        _ => Seen::Untried(format!("no answer to the second action: {}", heard.words())),
    })
}

async fn exec_after_shell(channel: &mut Channel<Msg>, canary: Canary) -> Result<Seen, Error> {
    channel.request_shell(true).await?;
    channel.exec(true, canary.command()).await?;
    drop(channel.eof().await);
    let heard = hear_until(channel, |heard| heard.replies == [false, false]).await;
    Ok(match heard.replies[..] {
        [true, true] => Seen::Broken("sshd took the action, too".to_owned()),
        [false, false] => Seen::Refused(REFUSED.to_owned()),
        _ => by_script(&heard, canary),
    })
}

async fn many_sessions(on: &Connection, canary: Canary) -> Result<Seen, Error> {
    let mut channels = Vec::new();
    let mut closed = 0;
    for _ in 0..MANY {
        match timeout(PATIENCE, on.handle.channel_open_session()).await {
            Ok(Ok(channel)) => {
                channel.exec(true, canary.command()).await?;
                drop(channel.eof().await);
                channels.push(channel);
            }
            Ok(Err(russh::Error::ChannelOpenFailure(_))) => closed += 1,
            Ok(Err(why)) => return Err(why.into()),
            Err(_) => return Ok(Seen::Untried("no answer to a new channel".to_owned())),
        }
    }
    let n = channels.len();
    for mut channel in channels {
        match by_script(&hear_action(&mut channel).await, canary) {
            Seen::Refused(_) => {}
            seen => return Ok(seen),
        }
    }
    Ok(match n {
        0 => Seen::Untried("sshd opened none of them".to_owned()),
        n => Seen::Refused(format!("the script refused {n}, and sshd {closed} more")),
    })
}

async fn signal(channel: &mut Channel<Msg>, target: &Target) -> Result<Seen, Error> {
    channel.exec(true, target.check.as_str()).await?;
    channel.signal(Sig::KILL).await?;
    drop(channel.eof().await);
    let heard = hear_action(channel).await;
    Ok(match (&heard.signal, heard.status) {
        (Some(signal), _) => Seen::Broken(format!("it was ended by {signal}")),
        (None, Some(0)) => Seen::Refused("it ran to its end".to_owned()),
        (None, _) => Seen::Untried(format!("the action that is allowed did not work: {}", heard.words())),
    })
}

/// To where something listens on many hosts: `permitopen` may let one port through and refuse the next.
async fn forward_tcp(on: &Connection, port: u16) -> Result<Seen, Error> {
    let others = PORTS.into_iter().filter(|other| *other != port).map(|port| ("127.0.0.1", port));
    for (host, port) in [("127.0.0.1", port), ("::1", port), ("localhost", port)].into_iter().chain(others) {
        match forward_to(on, host, port).await? {
            Seen::Refused(_) => {}
            seen => return Ok(seen),
        }
    }
    Ok(Seen::Refused("sshd: administratively prohibited, each of them".to_owned()))
}

async fn forward_tcp_name(on: &Connection) -> Result<Seen, Error> {
    forward_to(on, "portcullis-verify.invalid", 22).await
}

async fn forward_to(on: &Connection, host: &str, port: u16) -> Result<Seen, Error> {
    let opened = timeout(PATIENCE, on.handle.channel_open_direct_tcpip(host, port.into(), "127.0.0.1", 1)).await;
    match opened {
        Ok(Ok(mut channel)) => {
            let heard = hear_until(&mut channel, |heard| !heard.stdout.is_empty()).await;
            Ok(Seen::Broken(format!("it is connected to {host}:{port}, where it says {}", plain(&heard.stdout))))
        }
        Ok(Err(russh::Error::ChannelOpenFailure(ChannelOpenFailure::AdministrativelyProhibited))) => {
            Ok(Seen::Refused("sshd: administratively prohibited".to_owned()))
        }
        Ok(Err(russh::Error::ChannelOpenFailure(why))) => {
            Ok(Seen::Broken(format!("sshd did not refuse; it tried to connect to {host}:{port} ({why:?})")))
        }
        Ok(Err(why)) => Err(why.into()),
        Err(_) => Ok(Seen::Broken(format!("sshd did not refuse to connect to {host}:{port}, but did not get there"))),
    }
}

async fn forward_unix(on: &Connection, canary: Canary) -> Result<Seen, Error> {
    // Where the host would listen for us, there is one for sure.
    let own = socket(canary);
    let own =
        timeout(PATIENCE, on.handle.streamlocal_forward(&own)).await.is_ok_and(|done| done.is_ok()).then_some(own);
    let mut seen = Seen::NotHere("sshd has one answer for what is not allowed and for what is not there".to_owned());
    for path in SOCKETS.into_iter().chain(own.as_deref()) {
        match timeout(PATIENCE, on.handle.channel_open_direct_streamlocal(path)).await {
            Ok(Ok(_)) => {
                seen = Seen::Broken(format!("it is connected to {path}"));
                break;
            }
            Ok(Err(russh::Error::ChannelOpenFailure(ChannelOpenFailure::AdministrativelyProhibited))) => {
                seen = Seen::Refused("sshd: administratively prohibited".to_owned());
            }
            Ok(Err(russh::Error::ChannelOpenFailure(_))) => {}
            Ok(Err(why)) => return Err(why.into()),
            Err(_) => seen = Seen::Untried(format!("no answer about {path}")),
        }
    }
    if let Some(own) = own {
        drop(timeout(PATIENCE, on.handle.cancel_streamlocal_forward(own)).await);
    }
    Ok(seen)
}

/// On any port, and on those that many ask for: `permitlisten` may let one through and refuse the next.
async fn listen_tcp(on: &Connection) -> Result<Seen, Error> {
    for (host, asked) in [("127.0.0.1", 0), ("localhost", 0), ("", 0)]
        .into_iter()
        .chain(HIGH_PORTS.into_iter().map(|port| ("localhost", port)))
    {
        match timeout(PATIENCE, on.handle.tcpip_forward(host, asked)).await {
            Ok(Ok(port)) => {
                let port = if asked == 0 { port } else { asked };
                drop(timeout(PATIENCE, on.handle.cancel_tcpip_forward(host, port)).await);
                return Ok(Seen::Broken(format!("it listened on port {port}")));
            }
            Ok(Err(russh::Error::RequestDenied)) => {}
            Ok(Err(why)) => return Err(why.into()),
            Err(_) => return Ok(Seen::Untried("no answer".to_owned())),
        }
    }
    Ok(Seen::Refused(format!("{REFUSED}, each of them")))
}

async fn listen_unix(on: &Connection, canary: Canary) -> Result<Seen, Error> {
    let path = socket(canary);
    match timeout(PATIENCE, on.handle.streamlocal_forward(&path)).await {
        Ok(Ok(())) => {
            drop(timeout(PATIENCE, on.handle.cancel_streamlocal_forward(&path)).await);
            Ok(Seen::Broken(format!("it listened on {path}")))
        }
        Ok(Err(russh::Error::RequestDenied)) => Ok(Seen::Refused(REFUSED.to_owned())),
        Ok(Err(why)) => Err(why.into()),
        Err(_) => Ok(Seen::Untried("no answer".to_owned())),
    }
}

/// A path that nothing has yet.
fn socket(canary: Canary) -> String {
    format!("/tmp/portcullis-verify-{}.sock", canary.command().replace(|c: char| !c.is_ascii_digit(), ""))
}
