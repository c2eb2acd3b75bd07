//! A syslog server: RFC 5424 messages over a UNIX datagram socket, UDP (RFC 5426), or TCP with octet counting (RFC 6587 §3.4.1).
//!
//! Over TCP nobody says that a message has arrived, so a break is looked for before each batch, and what was sent in the
//! last seconds before one is sent again.

use super::NotTaken;
use super::source::Batch;
use crate::clock::Clock;
use crate::config::SyslogTo;
use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket, UnixDatagram, lookup_host};
use tokio::time::timeout;

/// See the module.
pub(super) struct Syslog {
    to: SyslogTo,
    host: String,
    clock: Clock,
    open: Option<Open>,
}

enum Open {
    Unix(UnixDatagram),
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl Syslog {
    pub(super) fn new(to: SyslogTo, clock: Clock) -> Syslog {
        Syslog { to, host: host_name(), clock, open: None }
    }

    /// Whether it goes over a connection that may break with something in it.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.to, SyslogTo::Tcp(..))
    }

    pub(super) async fn send(&mut self, batch: &Batch) -> Result<(), NotTaken> {
        let sent = timeout(LIMIT, self.send_all(batch)).await;
        let failed = match sent {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => NotTaken::because(error),
            Err(_) => NotTaken::because(format_args!("it did not take them within {} s", LIMIT.as_secs())),
        };
        self.open = None;
        Err(failed)
    }

    async fn send_all(&mut self, batch: &Batch) -> io::Result<()> {
        let open = match self.open.take() {
            Some(open) => open,
            None => connect(&self.to).await?,
        };
        let open = self.open.insert(open);
        if let Open::Tcp(stream) = open {
            check_open(stream)?;
            let mut text = String::new();
            for line in &batch.lines {
                let message = message(line, &self.host, &self.clock);
                let _ = write!(text, "{} {message}", message.len());
            }
            return stream.write_all(text.as_bytes()).await;
        }
        for line in &batch.lines {
            let message = message(line, &self.host, &self.clock);
            match open {
                Open::Unix(socket) => socket.send(message.as_bytes()).await?,
                Open::Udp(socket) => socket.send(message.as_bytes()).await?,
                Open::Tcp(_) => 0,
            };
        }
        Ok(())
    }

    /// Ends the connection. Whether the other side has read all of it: it ends it as well, then.
    pub(super) async fn finish(&mut self) -> bool {
        let Some(Open::Tcp(mut stream)) = self.open.take() else {
            return true;
        };
        let ended = async {
            stream.shutdown().await?;
            stream.read(&mut [0; 64]).await
        };
        matches!(timeout(FAREWELL, ended).await, Ok(Ok(0)))
    }
}

async fn connect(to: &SyslogTo) -> io::Result<Open> {
    match to {
        SyslogTo::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path).map_err(|error| named(&path.display(), &error))?;
            Ok(Open::Unix(socket))
        }
        SyslogTo::Udp(host, port) => {
            let address = resolve(host, *port).await?;
            let any: SocketAddr = match address {
                SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            let socket = UdpSocket::bind(any).await?;
            socket.connect(address).await?;
            Ok(Open::Udp(socket))
        }
        SyslogTo::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await;
            Ok(Open::Tcp(stream.map_err(|error| named(&format_args!("{host}:{port}"), &error))?))
        }
    }
}

async fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let mut addresses = lookup_host((host, port)).await.map_err(|error| named(&host, &error))?;
    addresses.next().ok_or_else(|| io::Error::other(format!("no address for `{host}`")))
}

fn named(what: &dyn std::fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot connect to {what}: {error}"))
}

/// A syslog server says nothing; one that has gone says so by ending the connection.
fn check_open(stream: &TcpStream) -> io::Result<()> {
    let mut said = [0; 64];
    loop {
        match stream.try_read(&mut said) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "it has closed the connection")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// RFC 5424 §6: `<PRI>1 TIMESTAMP HOSTNAME APP-NAME PROCID MSGID STRUCTURED-DATA MSG`. A line of the log is printable ASCII.
fn message(line: &str, host: &str, clock: &Clock) -> String {
    let written = member(line, "at");
    let at = written.map_or_else(|| clock.rfc3339(), str::to_owned);
    let kind = member(line, "event").unwrap_or(if line.starts_with("{\"checkpoint\":") { "checkpoint" } else { "-" });
    let kind = kind.get(..kind.len().min(MSGID_MAX)).unwrap_or("-");
    let process = std::process::id();
    format!("<{PRI}>1 {at} {host} portcullis {process} {kind} - {line}")
}

/// The text of a member of our own that needs no escaping. A quote inside a value is escaped, so this is no value's text.
pub(super) fn member<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("\"{key}\":\""))?;
    let (value, _) = rest.split_once('"')?;
    let is_plain = !value.is_empty() && value.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    is_plain.then_some(value)
}

/// RFC 5424 §6.2.4; `-` where it is not known.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    let is_name = (1..=255).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
    if is_name { name.to_owned() } else { "-".to_owned() }
}

/// Facility 13 (log audit), severity 6 (informational).
const PRI: u8 = 13 * 8 + 6;
const MSGID_MAX: usize = 32;
const LIMIT: Duration = Duration::from_secs(10);
const FAREWELL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_header_of_rfc_5424_and_the_line_as_it_stands() {
        let line = r#"{"seq":1,"at":"2026-11-30T03:39:42.243Z","mono_ms":4,"segment":"b2","request":"\"event\":\"x\"","event":"login.failed"}"#;

        let text = message(line, "gw", &Clock::manual(0));

        let id = std::process::id();
        assert_eq!(text, format!("<110>1 2026-11-30T03:39:42.243Z gw portcullis {id} login.failed - {line}"));
    }

    #[test]
    fn a_line_that_somebody_made_up_gets_a_header_all_the_same() {
        let text = message("nonsense", "gw", &Clock::manual(0));
        let id = std::process::id();
        assert_eq!(text, format!("<110>1 1970-01-01T00:00:00.000Z gw portcullis {id} - - nonsense"));
    }
}
