//! One small HTTP GET, for documents that other servers publish about themselves: metadata, keys.
//!
//! The URL may come from a document, or from a stranger (a client-id metadata document). So a fetch is bounded in time
//! and size, follows no redirect, carries no credential, shares no pooled connection, and with [`Reach::Public`] goes to
//! public addresses only. A name is resolved once, and the address that was judged is the one that is connected to:
//! a name server that answers differently the second time (DNS rebinding) has no second time.
//!
//! It stands on pingora's connector, as everything that goes out does: one TLS stack, one set of roots.

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{HeaderValue, Method, StatusCode};
use pingora::ErrorType;
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession;
use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::{HttpPeer, Peer as _};
use pingora::utils::tls::{WrappedX509, parse_x509};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use url::{Host, Url};

const AGENT: &str = concat!("portcullis/", env!("CARGO_PKG_VERSION"));
/// One address of several may take this long to accept, so that a dead one leaves time for the others.
const CONNECT: Duration = Duration::from_secs(2);
/// At most this many addresses of a name are tried.
const MAX_ADDRESSES: usize = 4;
/// Keeps our connections out of every pool of upstream connections; ours are never given back to one.
const GROUP: u64 = 0x6665_7463_685f_6f6e;

/// Fetches documents. Clones share the connector.
#[derive(Clone)]
pub struct Fetcher {
    connector: Arc<Connector>,
}

/// What is fetched, and what it may cost.
#[derive(Clone, Copy, Debug)]
pub struct Get<'a> {
    /// `https`, or `http` for what is on this machine; whether that is enough is the caller's to judge.
    pub url: &'a Url,
    /// Trusted instead of the system's roots.
    pub authorities: Option<&'a Authorities>,
    /// Where it may lead.
    pub reach: Reach,
    /// From looking up the name to the last byte of the body.
    pub limit: Duration,
    /// A larger body is refused as soon as it is known to be.
    pub max_bytes: usize,
}

/// Which addresses may be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Any: the URL was written by whoever runs this gateway, or comes from a server they named.
    Anywhere,
    /// Public ones only: the URL comes from a stranger, who must not make us knock on doors of this network.
    Public,
}

/// Certificates to trust, each of them one that can be parsed.
#[derive(Clone)]
pub struct Authorities(Arc<CaType>);

/// Why there is no document.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not a URL that can be fetched: what is wrong with it.
    #[error("the URL {0}")]
    Url(&'static str),
    /// The name has no address.
    #[error("no address for `{host}`: {cause}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        cause: String,
    },
    /// It leads into a private network.
    #[error("{0} is not a public address")]
    NotPublic(IpAddr),
    /// No connection, TLS included.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// It took longer than its limit.
    #[error("it took longer than {0:?}")]
    Timeout(Duration),
    /// The connection broke, or what came was no HTTP.
    #[error("no whole answer came: {0}")]
    Lost(String),
    /// Answered with another status than 200; a redirect is one, too.
    #[error("it answered with status {0}")]
    Status(StatusCode),
    /// More bytes than the limit.
    #[error("it is larger than {0} bytes")]
    TooLarge(usize),
}

// === impl Fetcher ===

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fetcher")
    }
}

impl Fetcher {
    /// One that connects with this connector.
    pub fn new(connector: Arc<Connector>) -> Fetcher {
        Fetcher { connector }
    }

    /// Fetches the body of a 200 answer.
    ///
    /// # Errors
    /// [`Error`]: anything else.
    pub async fn get(&self, get: &Get<'_>) -> Result<Bytes, Error> {
        timeout(get.limit, self.get_unlimited(get)).await.map_err(|_| Error::Timeout(get.limit))?
    }

    async fn get_unlimited(&self, get: &Get<'_>) -> Result<Bytes, Error> {
        let is_tls = match get.url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(Error::Url("is neither `https` nor `http`")),
        };
        let mut session = self.connect(get, is_tls).await?;
        let head = head(get.url)?;
        session.write_request_header(Box::new(head)).await.map_err(lost)?;
        session.finish_request_body().await.map_err(lost)?;
        let body = read(&mut session, get.max_bytes).await;
        // Not to be used again, whatever came.
        session.shutdown().await;
        body
    }

    async fn connect(&self, get: &Get<'_>, is_tls: bool) -> Result<HttpSession, Error> {
        let addresses = addresses(get.url).await?;
        if get.reach == Reach::Public
            && let Some(private) = addresses.iter().find(|address| !is_public(address.ip()))
        {
            return Err(Error::NotPublic(private.ip()));
        }
        let sni = get.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let mut failed = Error::Url("has no host");
        for address in addresses.into_iter().take(MAX_ADDRESSES) {
            let mut peer = HttpPeer::new(address, is_tls, sni.to_owned());
            peer.group_key = GROUP;
            if let Some(options) = peer.get_mut_peer_options() {
                options.connection_timeout = Some(CONNECT);
                options.total_connection_timeout = Some(CONNECT);
                options.read_timeout = Some(get.limit);
                options.write_timeout = Some(get.limit);
                options.ca = get.authorities.map(|authorities| Arc::clone(&authorities.0));
            }
            match self.connector.get_http_session(&peer).await {
                Ok((session, _)) => return Ok(session),
                Err(error) => failed = Error::Connect(error.to_string()),
            }
        }
        Err(failed)
    }
}

async fn addresses(url: &Url) -> Result<Vec<SocketAddr>, Error> {
    let port = url.port_or_known_default().ok_or(Error::Url("has no port"))?;
    let name = match url.host().ok_or(Error::Url("has no host"))? {
        Host::Ipv4(ip) => return Ok(vec![SocketAddr::new(ip.into(), port)]),
        Host::Ipv6(ip) => return Ok(vec![SocketAddr::new(ip.into(), port)]),
        Host::Domain(name) => name,
    };
    let fault = |cause: String| Error::Resolve { host: name.to_owned(), cause };
    let found: Vec<SocketAddr> =
        tokio::net::lookup_host((name, port)).await.map_err(|why| fault(why.to_string()))?.collect();
    if found.is_empty() { Err(fault("none".to_owned())) } else { Ok(found) }
}

fn head(url: &Url) -> Result<RequestHeader, Error> {
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let host = match url.port() {
        Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
        None => url.host_str().unwrap_or_default().to_owned(),
    };
    let unfit = |_| Error::Url("cannot be sent in a request");
    let mut head = RequestHeader::build(Method::GET, target.as_bytes(), Some(4)).map_err(unfit)?;
    let host = HeaderValue::try_from(host).map_err(|_| Error::Url("has a host that cannot be sent in a header"))?;
    for (name, value) in [
        (HOST, host),
        (USER_AGENT, HeaderValue::from_static(AGENT)),
        (ACCEPT, HeaderValue::from_static("application/json")),
    ] {
        head.insert_header(name, value).map_err(unfit)?;
    }
    Ok(head)
}

async fn read(session: &mut HttpSession, max_bytes: usize) -> Result<Bytes, Error> {
    let status = loop {
        session.read_response_header().await.map_err(lost)?;
        match session.response_header().map(|head| head.status) {
            Some(status) if status.is_informational() => {}
            Some(status) => break status,
            None => return Err(Error::Lost("an answer without a head".to_owned())),
        }
    };
    if status != StatusCode::OK {
        return Err(Error::Status(status));
    }
    let mut body = BytesMut::new();
    while let Some(piece) = session.read_response_body().await.map_err(lost)? {
        if body.len().saturating_add(piece.len()) > max_bytes {
            return Err(Error::TooLarge(max_bytes));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` takes")]
fn lost(error: pingora::BError) -> Error {
    match error.etype() {
        // Not pingora's own words: they hold all that was read.
        ErrorType::InvalidHTTPHeader => Error::Lost("not HTTP".to_owned()),
        _ => Error::Lost(error.to_string()),
    }
}

// === impl Authorities ===

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authorities({})", self.0.len())
    }
}

impl Authorities {
    /// The certificates of a PEM file.
    ///
    /// # Errors
    /// What is wrong with it; a file without any is wrong, too.
    pub fn of_pem(pem: &[u8]) -> Result<Authorities, String> {
        let list = parse_certificates(pem)?;
        Ok(Authorities(list.into_iter().map(|der| WrappedX509::new(der, parse_x509)).collect()))
    }
}

/// Every certificate of a PEM file as DER; each is parsed once here, since pingora panics on one that is broken.
///
/// # Errors
/// What is wrong with the first that cannot be used, or that there is none.
pub fn parse_certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut list = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|why| format!("no usable certificate: {why}"))?;
        x509_parser::parse_x509_certificate(&certificate).map_err(|why| format!("no usable certificate: {why}"))?;
        list.push(certificate.to_vec());
    }
    if list.is_empty() { Err("no certificate in the file".to_owned()) } else { Ok(list) }
}

// === public addresses ===

/// Whether an address belongs to the public internet (IANA special-purpose address registries). An IPv4 address that is
/// hidden in an IPv6 one (mapped, translated, tunnelled) is judged as what it is, or refused.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match (a, b, c) {
        (0 | 10 | 127 | 224.., _, _)
        | (169, 254, _)
        | (192, 168, _)
        | (192, 0, 0 | 2)
        | (192, 88, 99)
        | (198, 18 | 19, _)
        | (198, 51, 100)
        | (203, 0, 113) => true,
        (100, b, _) => b & 0xc0 == 64,
        (172, b, _) => b & 0xf0 == 16,
        _ => false,
    };
    !is_special
}

/// Only global unicast, 2000::/3, without what stands in there for something else: protocol assignments and Teredo
/// (2001::/23), documentation (2001:db8::/32, 3fff::/20) and 6to4 (2002::/16). The rest (loopback, unique local, link
/// local, NAT64, IPv4-compatible, multicast) lies outside.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let is_special = (a == 0x2001 && (b < 0x200 || b == 0xdb8)) || a == 0x2002 || (a == 0x3fff && b < 0x1000);
    a & 0xe000 == 0x2000 && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        for public in ["1.1.1.1", "100.63.0.1", "172.32.0.1", "192.1.0.1", "2606:4700::1111", "::ffff:8.8.8.8"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.19.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::10.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "ff02::1",
            "3fff::1",
            "4000::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }

    /// Answers every connection with these bytes, in a thread of its own.
    fn server(answer: &'static [u8]) -> Url {
        use std::io::{Read as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://localhost:{}/a?b=c", listener.local_addr().unwrap().port());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut seen = Vec::new();
                let mut byte = [0];
                while !seen.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
                    seen.extend(byte);
                }
                drop(stream.write_all(answer));
            }
        });
        url.parse().unwrap()
    }

    async fn get(url: &Url, reach: Reach) -> Result<Bytes, Error> {
        let fetcher = Fetcher::new(Arc::new(Connector::new(None)));
        fetcher.get(&Get { url, authorities: None, reach, limit: Duration::from_secs(20), max_bytes: 5 }).await
    }

    #[tokio::test]
    async fn the_body_of_a_200_is_fetched_and_nothing_else_is() {
        let good = server(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345");
        assert_eq!(get(&good, Reach::Anywhere).await.unwrap(), "12345");
        assert!(matches!(get(&good, Reach::Public).await, Err(Error::NotPublic(_))));

        let large = server(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n123456");
        assert!(matches!(get(&large, Reach::Anywhere).await, Err(Error::TooLarge(5))));
        let moved = server(b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n");
        assert!(matches!(get(&moved, Reach::Anywhere).await, Err(Error::Status(StatusCode::FOUND))));
        let short = server(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n123");
        assert!(matches!(get(&short, Reach::Anywhere).await, Err(Error::Lost(_))));
        let noise = server(b"SSH-2.0-x\r\n\r\n");
        assert!(matches!(get(&noise, Reach::Anywhere).await, Err(Error::Lost(_))));
        let file = "file:///etc/passwd".parse().unwrap();
        assert!(matches!(get(&file, Reach::Anywhere).await, Err(Error::Url(_))));
    }

    #[test]
    fn a_file_without_a_usable_certificate_is_no_authority() {
        assert!(Authorities::of_pem(b"").is_err());
        assert!(Authorities::of_pem(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_err());
    }
}
