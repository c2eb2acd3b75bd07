//! From settings to a pingora peer: address, TLS, and the key that keeps pooled connections apart.

use super::{Error, Fingerprint, http2};
use crate::config::{self, HttpUpstream, Path, Problem, UpstreamTls};
use crate::fetch::parse_certificates;
use pingora::protocols::TcpKeepalive;
use pingora::protocols::tls::CaType;
use pingora::tls::{CryptoProvider, sign};
use pingora::upstreams::peer::{ALPN, HttpPeer, Peer as _, PeerOptions};
use pingora::utils::tls::{CertKey, WrappedX509, parse_x509};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// Resolved names are looked up again after this long.
const ADDRESS_LIFETIME: Duration = Duration::from_secs(10);
/// Idle connections are kept this long: below the 5 s after which the HTTP servers of Node.js and uvicorn hang up,
/// so that a call seldom meets a connection that is just being closed.
const IDLE: Duration = Duration::from_secs(4);
/// To connect to a socket of our own.
const CONNECT: Duration = Duration::from_secs(5);
/// One write to an upstream may take this long.
const WRITE: Duration = Duration::from_secs(30);
/// An answer may be silent for hours; a server that has gone meanwhile is found out, and what stands between the two
/// does not forget the connection.
const KEEPALIVE: TcpKeepalive = TcpKeepalive {
    idle: Duration::from_secs(60),
    interval: Duration::from_secs(10),
    count: 3,
    user_timeout: Duration::ZERO,
};

pub(super) struct Dial {
    address: Address,
    tls: Option<Tls>,
    connect: Duration,
    versions: ALPN,
    group_key: u64,
}

enum Address {
    Ip(SocketAddr),
    /// With what it resolved to and when; the address to use stands first.
    Name {
        host: String,
        port: u16,
        known: Mutex<Option<(Instant, Vec<SocketAddr>)>>,
    },
    Unix(String),
}

struct Tls {
    server_name: String,
    ca: Option<Arc<CaType>>,
    identity: Option<Arc<CertKey>>,
    /// When our certificate runs out, in seconds since the Unix epoch.
    expires: Option<i64>,
}

impl Dial {
    pub(super) fn build(
        name: &str,
        settings: &HttpUpstream,
        loaded: &config::Loaded,
        at: &Path,
    ) -> Result<Dial, Vec<Problem>> {
        let bad_url = |what: &str| vec![Problem::new(at.clone().key("url"), what)];
        let url = url::Url::parse(&settings.url).map_err(|_| bad_url("not a URL"))?;
        let host = url.host_str().ok_or_else(|| bad_url("a URL without a host"))?.trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().ok_or_else(|| bad_url("a URL without a port"))?;
        let mut seal = Fingerprint::new(name);
        let fixed = (&settings.socket, &settings.tls, settings.http2);
        seal.add(format!("{} {host} {port} {fixed:?}", url.scheme()).as_bytes());
        let tls = match url.scheme() {
            "https" => Some(Tls::build(&host, &settings.tls, loaded, &at.clone().key("tls"), &mut seal)?),
            _ => None,
        };
        let address = match &settings.socket {
            Some(socket) => Address::Unix(
                socket_path(&loaded.resolve(socket))
                    .map_err(|why| vec![Problem::new(at.clone().key("socket"), why)])?,
            ),
            None => match host.parse::<IpAddr>() {
                Ok(ip) => Address::Ip(SocketAddr::new(ip, port)),
                Err(_) => Address::Name { host, port, known: Mutex::new(None) },
            },
        };
        let versions = http2::versions(tls.is_some(), settings.http2);
        let connect = settings.timeouts.connect.duration();
        Ok(Dial { address, tls, connect, versions, group_key: group_key(seal) })
    }

    /// A socket of our own.
    ///
    /// # Errors
    /// Its path is longer than a socket's may be.
    pub(super) fn socket(name: &str, path: &std::path::Path) -> Result<Dial, String> {
        let mut seal = Fingerprint::new(name);
        seal.add(path.as_os_str().as_encoded_bytes());
        let address = Address::Unix(socket_path(path)?);
        Ok(Dial { address, tls: None, connect: CONNECT, versions: ALPN::H1, group_key: group_key(seal) })
    }

    /// Tells the pools of two upstreams apart. pingora's own key knows neither the CA nor more of a client
    /// certificate than its serial: without this, a connection verified for one upstream would serve another.
    pub(super) fn group_key(&self) -> u64 {
        self.group_key
    }

    pub(super) fn is_http2_only(&self) -> bool {
        matches!(self.versions, ALPN::H2)
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// When the certificate that we show runs out, in seconds since the Unix epoch.
    pub(super) fn certificate_expires(&self) -> Option<i64> {
        self.tls.as_ref()?.expires
    }

    pub(super) fn connect_limit(&self) -> Duration {
        self.connect
    }

    pub(super) fn idle_limit(&self) -> Duration {
        IDLE
    }

    pub(super) async fn peer(&self) -> Result<HttpPeer, Error> {
        let sni = self.tls.as_ref().map(|tls| tls.server_name.clone()).unwrap_or_default();
        let is_tls = self.tls.is_some();
        let mut peer = match &self.address {
            Address::Ip(address) => HttpPeer::new(*address, is_tls, sni),
            Address::Name { .. } => HttpPeer::new(self.resolved().await?, is_tls, sni),
            Address::Unix(path) => HttpPeer::new_uds(path, is_tls, sni).map_err(|e| Error::Connect(e.to_string()))?,
        };
        peer.group_key = self.group_key;
        if let Some(tls) = &self.tls {
            peer.client_cert_key = tls.identity.clone();
        }
        if let Some(options) = peer.get_mut_peer_options() {
            self.fill(options);
        }
        Ok(peer)
    }

    fn fill(&self, options: &mut PeerOptions) {
        options.connection_timeout = Some(self.connect);
        options.total_connection_timeout = Some(self.connect);
        options.write_timeout = Some(WRITE);
        options.idle_timeout = Some(IDLE);
        options.tcp_keepalive = Some(KEEPALIVE);
        http2::fill(options, &self.versions);
        options.ca = self.tls.as_ref().and_then(|tls| tls.ca.clone());
    }

    async fn resolved(&self) -> Result<SocketAddr, Error> {
        let Address::Name { host, port, known } = &self.address else {
            return Err(Error::Connect("an address without a name".to_owned()));
        };
        let lock = || known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((at, addresses)) = &*lock()
            && at.elapsed() < ADDRESS_LIFETIME
            && let Some(first) = addresses.first()
        {
            return Ok(*first);
        }
        let fault = |cause: String| Error::Resolve { host: host.clone(), cause };
        let lookup = tokio::net::lookup_host((host.as_str(), *port));
        let found: Vec<SocketAddr> = tokio::time::timeout(self.connect, lookup)
            .await
            .map_err(|_| Error::Timeout { what: "address", limit: self.connect })?
            .map_err(|e| fault(e.to_string()))?
            .collect();
        let first = *found.first().ok_or_else(|| fault("no address".to_owned()))?;
        *lock() = Some((Instant::now(), found));
        Ok(first)
    }

    /// Puts an address that did not accept behind the others of its name, and says how many there are. `localhost`
    /// is often `::1` first, where a server that listens on `127.0.0.1` only is not found.
    pub(super) fn put_back(&self, failed: &HttpPeer) -> usize {
        let Address::Name { known, .. } = &self.address else {
            return 1;
        };
        let mut known = known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some((_, addresses)) = &mut *known else {
            return 1;
        };
        // Another call may have been quicker.
        if addresses.first() == failed.address().as_inet() {
            addresses.rotate_left(1);
        }
        addresses.len()
    }
}

impl Tls {
    fn build(
        host: &str,
        settings: &UpstreamTls,
        loaded: &config::Loaded,
        at: &Path,
        seal: &mut Fingerprint,
    ) -> Result<Tls, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut read = |file: &PathBuf, key: &str| match std::fs::read(loaded.resolve(file)) {
            Ok(bytes) => {
                seal.add(&bytes);
                Some(bytes)
            }
            Err(why) => {
                problems.push(Problem::new(at.clone().key(key), format!("cannot read {}: {why}", file.display())));
                None
            }
        };
        let ca = settings.ca.as_ref().and_then(|file| read(file, "ca"));
        let cert = settings.cert.as_ref().and_then(|file| read(file, "cert"));
        let key = settings.key.as_ref().and_then(|file| read(file, "key"));
        let mut certificates = |pem: Vec<u8>, key: &str| match parse_certificates(&pem) {
            Ok(list) => Some(list),
            Err(why) => {
                problems.push(Problem::new(at.clone().key(key), why));
                None
            }
        };
        let ca = ca.and_then(|pem| certificates(pem, "ca"));
        let cert = cert.and_then(|pem| certificates(pem, "cert"));
        let key = key.and_then(|pem| match PrivateKeyDer::from_pem_slice(&pem) {
            Ok(key) => Some(key.secret_der().to_vec()),
            Err(why) => {
                problems.push(Problem::new(at.clone().key("key"), format!("no usable private key: {why}")));
                None
            }
        });
        if let (Some(cert), Some(key)) = (&cert, &key)
            && let Err(why) = check_pair(cert, key)
        {
            problems.push(Problem::new(at.clone().key("key"), format!("cannot be used with this `cert`: {why}")));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let expires = cert.as_ref().and_then(|chain| {
            let (_, first) = x509_parser::parse_x509_certificate(chain.first()?).ok()?;
            Some(first.validity().not_after.timestamp())
        });
        let wrap = |list: Vec<Vec<u8>>| list.into_iter().map(|der| WrappedX509::new(der, parse_x509)).collect();
        Ok(Tls {
            server_name: settings.server_name.clone().unwrap_or_else(|| host.to_owned()),
            ca: ca.map(wrap),
            expires,
            identity: cert.zip(key).map(|(cert, key)| Arc::new(CertKey::new(cert, key))),
        })
    }
}

/// Whether certificate and key belong together. Where one of two files has been replaced and the other not yet, they do
/// not, and the pair in use must stay.
fn check_pair(chain: &[Vec<u8>], key: &[u8]) -> Result<(), String> {
    pingora::tls::install_default_crypto_provider();
    let provider = CryptoProvider::get_default().ok_or("no cryptography is installed")?;
    let chain = chain.iter().map(|der| CertificateDer::from(der.clone())).collect();
    let key = PrivateKeyDer::try_from(key.to_vec()).map_err(str::to_owned)?;
    sign::CertifiedKey::from_der(chain, key, provider).map(drop).map_err(|why| why.to_string())
}

/// `sockaddr_un` holds 108 bytes, the last of them NUL.
fn socket_path(path: &std::path::Path) -> Result<String, String> {
    let path = path.to_str().ok_or("the path of its socket is not UTF-8")?;
    if path.len() > 107 {
        return Err(format!("the path of its socket, {path}, is longer than the 107 bytes that one may have"));
    }
    Ok(path.to_owned())
}

fn group_key(seal: Fingerprint) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = seal.finish();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}
