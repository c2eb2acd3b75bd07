//! Other machines, other processes' sockets.

use super::{Attempt, Stop, at, blocked, number, text, untried};
use crate::syscall::raw;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(2);

/// `tcp <address>`: connects, and hears from who is there.
pub(super) fn tcp(arguments: &[String]) -> Attempt {
    let address = address(arguments)?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut byte = [0; 1];
    match stream.read(&mut byte) {
        Ok(1..) => Ok(format!("talked with {address}")),
        _ => Ok(format!("connected to {address}")),
    }
}

/// `udp <address>`: sends a datagram, and gets one back. Sending alone proves nothing: it succeeds into the void.
pub(super) fn udp(arguments: &[String]) -> Attempt {
    let address = address(arguments)?;
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(address)?;
    socket.send(b"?")?;
    socket.recv(&mut [0; 1])?;
    Ok(format!("{address} answered a datagram"))
}

/// `proxy <address>`: has the proxy of the environment connect to it; where there is none, connects by itself.
pub(super) fn proxy(arguments: &[String]) -> Attempt {
    let address = address(arguments)?;
    let names = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];
    let Some(proxy) = names.iter().find_map(|name| std::env::var(name).ok()) else {
        return tcp(arguments);
    };
    let place = proxy.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(place)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut head = [0; 64];
    let n = stream.read(&mut head)?;
    let head = String::from_utf8_lossy(&head[..n]).into_owned();
    let line = head.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some(status) if status.starts_with('2') => Ok(format!("the proxy {proxy} connected to {address}")),
        _ => Err(blocked(format!("the proxy answered `{line}`"))),
    }
}

fn address(arguments: &[String]) -> Result<SocketAddr, Stop> {
    let text = text(arguments, 0, "address")?;
    text.parse().map_err(|_| untried(format!("`{text}` is no address with a port")))
}

/// `unix <path>`: connects to a socket in the file system.
pub(super) fn unix(arguments: &[String]) -> Attempt {
    let path = text(arguments, 0, "path")?;
    UnixStream::connect(path)?;
    Ok(format!("connected to {path}"))
}

/// `abstract <name>`: connects to a socket that has no place in the file system, and so no permissions either.
pub(super) fn abstract_name(arguments: &[String]) -> Attempt {
    let name = text(arguments, 0, "name")?;
    UnixStream::connect_addr(&UnixAddr::from_abstract_name(name)?)?;
    Ok(format!("connected to @{name}"))
}

/// `socket <family> <type> <protocol>`: makes one, of a family by its number or its usual name.
pub(super) fn socket(arguments: &[String]) -> Attempt {
    let named = text(arguments, 0, "family")?;
    let family = match named {
        "inet" => libc::AF_INET,
        "netlink" => libc::AF_NETLINK,
        "packet" => libc::AF_PACKET,
        "alg" => libc::AF_ALG,
        "vsock" => libc::AF_VSOCK,
        other => other.parse().map_err(|_| untried(format!("`{other}` is no family")))?,
    };
    let kind = match text(arguments, 1, "type")? {
        "stream" => libc::SOCK_STREAM,
        "dgram" => libc::SOCK_DGRAM,
        "raw" => libc::SOCK_RAW,
        "seqpacket" => libc::SOCK_SEQPACKET,
        other => return Err(untried(format!("`{other}` is no type of socket"))),
    };
    let protocol = i64::try_from(number(arguments, 2, "protocol")?).map_err(|_| blocked("no such protocol"))?;
    at("socket", raw(libc::SYS_socket, [family.into(), (kind | libc::SOCK_CLOEXEC).into(), protocol.into()]))?;
    Ok(format!("made a socket of family {named}"))
}
