//! The proxy: `CONNECT host:port` (RFC 9110 §9.3.6), and requests of plain HTTP in absolute form (RFC 9112 §3.2.2), one on
//! a connection. What is not listed is refused with 403 and words. It looks at no content: what a listed place passes on
//! to elsewhere is that place's affair.

use super::places::{Asked, Places};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::info;

/// Connections of one command at once; further ones wait.
const CONNECTIONS: usize = 32;
/// The head of a request, in bytes.
const HEAD: usize = 16 * 1024;
/// For sending it.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// For resolving a name, and for connecting to each address of it.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Addresses of one name that are tried.
const ADDRESSES: usize = 4;
/// After a refusal, for the other side to have read it.
const LINGER: Duration = Duration::from_secs(2);

/// Lines of a head that are for the proxy, or for this one hop (RFC 9110 §7.6.1); and the one that is written anew.
const NOT_PASSED: [&str; 7] =
    ["connection", "proxy-connection", "proxy-authorization", "keep-alive", "te", "upgrade", "host"];

/// A request, as far as the proxy reads it.
#[derive(Debug, PartialEq)]
enum Wanted {
    /// A connection.
    Tunnel(Asked),
    /// The answer to this request, as it is to be sent on.
    Answer(Asked, Vec<u8>),
}

/// An answer that is the proxy's own.
#[derive(Debug, PartialEq)]
struct Refusal {
    status: &'static str,
    words: String,
}

/// Serves what connects, for as long as this is polled; with it, all connections end.
pub(crate) async fn serve(listener: TcpListener, places: Arc<Places>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((inside, _)) => drop(connections.spawn(one(inside, Arc::clone(&places)))),
                // Of one connection, or for want of descriptors: the next one may do better.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn one(mut inside: TcpStream, places: Arc<Places>) {
    if let Err(refusal) = pass(&mut inside, &places).await {
        info!(status = refusal.status, reason = refusal.words, "the proxy of a command refused");
        let Refusal { status, words } = refusal;
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{words}\n",
            words.len() + 1
        );
        let _ = timeout(LINGER, async {
            inside.write_all(answer.as_bytes()).await?;
            inside.shutdown().await?;
            // What was sent and not read would end the connection before the answer is read.
            while inside.read(&mut [0; 4096]).await? > 0 {}
            io::Result::Ok(())
        })
        .await;
    }
}

async fn pass(inside: &mut TcpStream, places: &Places) -> Result<(), Refusal> {
    let (head, rest) = match timeout(HEAD_TIME, read_head(inside)).await {
        Ok(Ok(read)) => read?,
        // It has gone.
        Ok(Err(_)) => return Ok(()),
        Err(_) => return refuse("408 Request Timeout", "the request did not come in time"),
    };
    let wanted = parse(&head)?;
    let (Wanted::Tunnel(asked) | Wanted::Answer(asked, _)) = &wanted;
    if !places.allow(asked) {
        return refuse(
            "403 Forbidden",
            &format!("{asked} is not a place that commands may reach here; these are: {places}"),
        );
    }
    let mut outside = connect(asked).await?;
    // From here on, whatever happens is between the two.
    let _ = async {
        match &wanted {
            Wanted::Tunnel(_) => inside.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
            Wanted::Answer(_, request) => outside.write_all(request).await?,
        }
        outside.write_all(&rest).await?;
        copy_bidirectional(inside, &mut outside).await
    }
    .await;
    Ok(())
}

/// The head, and what came with it. The outer error is the connection's.
async fn read_head(inside: &mut TcpStream) -> io::Result<Result<(Vec<u8>, Vec<u8>), Refusal>> {
    let mut read = Vec::with_capacity(1024);
    loop {
        if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = read.split_off(at + 4);
            return Ok(Ok((read, rest)));
        }
        if read.len() >= HEAD {
            let words = format!("the head of a request has more than {HEAD} bytes");
            return Ok(refuse("431 Request Header Fields Too Large", &words));
        }
        let room = HEAD - read.len();
        if (&mut *inside).take(room as u64).read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn parse(head: &[u8]) -> Result<Wanted, Refusal> {
    let bad = |words: &str| Refusal { status: "400 Bad Request", words: words.to_owned() };
    let head = std::str::from_utf8(head).map_err(|_| bad("the head of the request is not text"))?;
    let mut lines = head.trim_end_matches("\r\n").split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad("the first line is not one of HTTP/1.1"));
    };
    if method == "CONNECT" {
        let asked = Asked::parse(target, None).ok_or_else(|| bad("CONNECT asks for host:port"))?;
        return Ok(Wanted::Tunnel(asked));
    }
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-') {
        return Err(bad("there is no such method"));
    }
    let Some(target) = target.strip_prefix("http://") else {
        return Err(bad("this is a proxy: it takes CONNECT, and requests whose target begins with http://"));
    };
    let (authority, path) = target.split_at(target.find(['/', '?']).unwrap_or(target.len()));
    let asked = Asked::parse(authority, Some(80)).ok_or_else(|| bad("the target names no host"))?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut request = format!("{method} {slash}{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n");
    for line in lines {
        let (name, _) = line.split_once(':').ok_or_else(|| bad("a line of the head has no colon"))?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) || line.bytes().any(|byte| matches!(byte, b'\n' | b'\r' | 0))
        {
            return Err(bad("a line of the head is none of HTTP"));
        }
        if !NOT_PASSED.contains(&name.to_ascii_lowercase().as_str()) {
            request.push_str(line);
            request.push_str("\r\n");
        }
    }
    request.push_str("\r\n");
    Ok(Wanted::Answer(asked, request.into_bytes()))
}

async fn connect(asked: &Asked) -> Result<TcpStream, Refusal> {
    const STATUS: &str = "502 Bad Gateway";
    let found: Vec<SocketAddr> = match asked.name() {
        Ok(address) => vec![SocketAddr::new(address, asked.port)],
        Err(name) => match timeout(CONNECT_TIME, lookup_host((name, asked.port))).await {
            Ok(Ok(found)) => found.collect(),
            Ok(Err(why)) => return refuse(STATUS, &format!("{name} cannot be resolved: {why}")),
            Err(_) => return refuse(STATUS, &format!("{name} was not resolved in time")),
        },
    };
    let mut last =
        format!("{asked} leads to the gateway's own host, or to nowhere; an address there must be listed itself");
    for address in found.into_iter().filter(|address| asked.may_be(address.ip())).take(ADDRESSES) {
        match timeout(CONNECT_TIME, TcpStream::connect(address)).await {
            Ok(Ok(outside)) => return Ok(outside),
            Ok(Err(why)) => last = format!("{asked} cannot be reached: {why}"),
            Err(_) => last = format!("{asked} did not answer in time"),
        }
    }
    refuse(STATUS, &last)
}

fn refuse<T>(status: &'static str, words: &str) -> Result<T, Refusal> {
    Err(Refusal { status, words: words.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_on_without_what_was_for_the_proxy() {
        let head = b"POST http://A.example:8080?q=1 HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: x\r\n\
            Proxy-Connection: keep-alive\r\nConnection: keep-alive\r\nContent-Length: 3\r\nX-Own: a: b\r\n\r\n";

        let wanted = parse(head).expect("a request");

        let sent = b"POST /?q=1 HTTP/1.1\r\nHost: A.example:8080\r\nConnection: close\r\nContent-Length: 3\r\nX-Own: a: b\r\n\r\n";
        let asked = Asked::parse("a.example:8080", None).expect("a place");
        assert_eq!(wanted, Wanted::Answer(asked, sent.to_vec()));
    }

    #[test]
    fn what_is_no_request_to_a_proxy_is_refused() {
        for head in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\n\r\n",
            "GET http:///x HTTP/1.1\r\n\r\n",
            "GET http://u:p@a.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example/ HTTP/2.0\r\n\r\n",
            "GET  http://a.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example/ x HTTP/1.1\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\n folded: x\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nno colon\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nA: x\nHost: evil\r\n\r\n",
            "CONNECT a.example HTTP/1.1\r\n\r\n",
            "CONNECT http://a.example:80 HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
        ] {
            let refused = parse(head.as_bytes()).map_err(|refusal| refusal.status);
            assert_eq!(refused.err(), Some("400 Bad Request"), "{head}");
        }
        let tunnel = parse(b"CONNECT a.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n");
        assert_eq!(tunnel, Ok(Wanted::Tunnel(Asked::parse("a.example:443", None).expect("a place"))));
    }
}
