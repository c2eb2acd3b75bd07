//! One small HTTP GET, for documents that other servers publish about themselves: metadata, keys. (And in `post` one small
//! POST, to servers that whoever runs this gateway has named.)
//!
//! The URL may come from a document, or from a stranger (a client-id metadata document). So a fetch is bounded in time
//! and size, follows no redirect, carries no credential, shares no pooled connection, and with [`Reach::Public`] goes to
//! public addresses and the port of `https` only. A name is resolved once, and the address that was judged is the one that is connected to:
//! a name server that answers differently the second time (DNS rebinding) has no second time.
//!
//! It stands on pingora's connector, as everything that goes out does: one TLS stack, one set of roots.

mod address;
mod post;

pub use address::is_public;
pub use post::{Answer, Post};

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, USER_AGENT};
use http::{HeaderValue, Method, StatusCode};
use pingora::ErrorType;
use pingora::connectors::http::Connector;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::client::HttpSession;
use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::{HttpPeer, Peer as _};
use pingora::utils::tls::{WrappedX509, parse_x509};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
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
    lookup: Lookup,
    /// The one port of [`Reach::Public`].
    public_port: u16,
}

/// Who says which addresses a name has.
#[derive(Clone)]
enum Lookup {
    System,
    /// These, whatever the name; and how often they were asked for.
    #[cfg(test)]
    Fixed(Arc<Vec<IpAddr>>, Arc<std::sync::atomic::AtomicUsize>),
}

/// A document, with what its server says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// What it says.
    pub body: Bytes,
    /// `Content-Type`, without parameters, in lower case; empty where there is none.
    pub content_type: String,
    /// `Cache-Control`, several of them joined; empty where there is none.
    pub cache_control: String,
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
    /// Public ones only, over `https` and at its own port: the URL comes from a stranger, who must not make us knock on
    /// doors of this network.
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
    /// A stranger's URL with another port than that of `https`.
    #[error("port {0} is not that of https")]
    Port(u16),
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
    /// Compressed, although that was not asked for: a small body could become a large one.
    #[error("it came compressed, which was not asked for")]
    Encoded,
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
        Fetcher { connector, lookup: Lookup::System, public_port: 443 }
    }

    /// Fetches the body of a 200 answer.
    ///
    /// # Errors
    /// [`Error`]: anything else.
    pub async fn get(&self, get: &Get<'_>) -> Result<Bytes, Error> {
        Ok(self.document(get).await?.body)
    }

    /// The same with what the answer's head says of it.
    ///
    /// # Errors
    /// [`Error`]: anything but a 200 answer.
    pub async fn document(&self, get: &Get<'_>) -> Result<Document, Error> {
        timeout(get.limit, self.get_unlimited(get)).await.map_err(|_| Error::Timeout(get.limit))?
    }

    async fn get_unlimited(&self, get: &Get<'_>) -> Result<Document, Error> {
        let is_tls = match (get.url.scheme(), get.reach) {
            ("https", _) => true,
            ("http", Reach::Anywhere) => false,
            ("http", Reach::Public) => return Err(Error::Url("is not `https`")),
            _ => return Err(Error::Url("is neither `https` nor `http`")),
        };
        let mut session = self.connect(get, is_tls).await?;
        let head = head(get.url)?;
        session.write_request_header(Box::new(head)).await.map_err(lost)?;
        session.finish_request_body().await.map_err(lost)?;
        let document = read(&mut session, get.max_bytes).await;
        // Not to be used again, whatever came.
        session.shutdown().await;
        document
    }

    async fn connect(&self, get: &Get<'_>, is_tls: bool) -> Result<HttpSession, Error> {
        let addresses = self.addresses(get.url).await?;
        if get.reach == Reach::Public {
            judge(&addresses, self.public_port)?;
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

    async fn addresses(&self, url: &Url) -> Result<Vec<SocketAddr>, Error> {
        let port = url.port_or_known_default().ok_or(Error::Url("has no port"))?;
        match (url.host().ok_or(Error::Url("has no host"))?, &self.lookup) {
            (Host::Ipv4(ip), _) => Ok(vec![SocketAddr::new(ip.into(), port)]),
            (Host::Ipv6(ip), _) => Ok(vec![SocketAddr::new(ip.into(), port)]),
            (Host::Domain(name), Lookup::System) => look_up(name, port).await,
            #[cfg(test)]
            (Host::Domain(_), Lookup::Fixed(addresses, n_asked)) => {
                n_asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                Ok(addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect())
            }
        }
    }
}

/// What a stranger's URL may lead to. One address that is not public spoils them all: which one is tried first would be
/// for their name server to say.
fn judge(addresses: &[SocketAddr], public_port: u16) -> Result<(), Error> {
    for address in addresses {
        if !is_public(address.ip()) {
            return Err(Error::NotPublic(address.ip()));
        }
        if address.port() != public_port {
            return Err(Error::Port(address.port()));
        }
    }
    Ok(())
}

async fn look_up(name: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    let fault = |cause: String| Error::Resolve { host: name.to_owned(), cause };
    let found: Vec<SocketAddr> =
        tokio::net::lookup_host((name, port)).await.map_err(|why| fault(why.to_string()))?.collect();
    if found.is_empty() { Err(fault("none".to_owned())) } else { Ok(found) }
}

fn target_of(url: &Url) -> String {
    match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
}

fn host_of(url: &Url) -> Result<HeaderValue, Error> {
    let host = match url.port() {
        Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
        None => url.host_str().unwrap_or_default().to_owned(),
    };
    HeaderValue::try_from(host).map_err(|_| Error::Url("has a host that cannot be sent in a header"))
}

fn head(url: &Url) -> Result<RequestHeader, Error> {
    let unfit = |_| Error::Url("cannot be sent in a request");
    let mut head = RequestHeader::build(Method::GET, target_of(url).as_bytes(), Some(4)).map_err(unfit)?;
    for (name, value) in [
        (HOST, host_of(url)?),
        (USER_AGENT, HeaderValue::from_static(AGENT)),
        (ACCEPT, HeaderValue::from_static("application/json")),
    ] {
        head.insert_header(name, value).map_err(unfit)?;
    }
    Ok(head)
}

/// The head of the final answer.
async fn read_head(session: &mut HttpSession) -> Result<ResponseHeader, Error> {
    loop {
        session.read_response_header().await.map_err(lost)?;
        match session.response_header() {
            Some(head) if head.status.is_informational() => {}
            Some(head) => return Ok(head.clone()),
            None => return Err(Error::Lost("an answer without a head".to_owned())),
        }
    }
}

async fn read(session: &mut HttpSession, max_bytes: usize) -> Result<Document, Error> {
    let head = &read_head(session).await?;
    if head.status != StatusCode::OK {
        return Err(Error::Status(head.status));
    }
    if head.headers.get_all(CONTENT_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(Error::Encoded);
    }
    let content_type = joined(head, &CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let cache_control = joined(head, &CACHE_CONTROL);
    let mut body = BytesMut::new();
    while let Some(piece) = session.read_response_body().await.map_err(lost)? {
        if body.len().saturating_add(piece.len()) > max_bytes {
            return Err(Error::TooLarge(max_bytes));
        }
        body.extend_from_slice(&piece);
    }
    Ok(Document { body: body.freeze(), content_type, cache_control })
}

/// The fields of this name, as one list; those that are no text are left out.
fn joined(head: &ResponseHeader, name: &HeaderName) -> String {
    let values: Vec<&str> = head.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(", ")
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

/// The same certificates in the same order.
impl PartialEq for Authorities {
    fn eq(&self, other: &Authorities) -> bool {
        let der = |one: &'_ CaType| one.iter().map(|it| it.borrow_raw_cert().clone()).collect::<Vec<_>>();
        Arc::ptr_eq(&self.0, &other.0) || der(&self.0) == der(&other.0)
    }
}

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

#[cfg(test)]
mod tests;
