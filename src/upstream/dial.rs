//! From settings to a pingora peer: address, TLS, and the key that keeps pooled connections apart.

use super::{Error, Fingerprint};
use crate::config::{self, HttpUpstream, Path, Problem, UpstreamTls};
use crate::fetch::parse_certificates;
use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::{HttpPeer, Peer as _, PeerOptions};
use pingora::utils::tls::{CertKey, WrappedX509, parse_x509};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
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
/// One write to an upstream may take this long.
const WRITE: Duration = Duration::from_secs(30);

pub(super) struct Dial {
    address: Address,
    tls: Option<Tls>,
    connect: Duration,
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
        seal.add(format!("{} {host} {port} {:?} {:?}", url.scheme(), settings.socket, settings.tls).as_bytes());
        let tls = match url.scheme() {
            "https" => Some(Tls::build(&host, &settings.tls, loaded, &at.clone().key("tls"), &mut seal)?),
            _ => None,
        };
        let address = match &settings.socket {
            Some(socket) => Address::Unix(unix_path(&loaded.resolve(socket), at)?),
            None => match host.parse::<IpAddr>() {
                Ok(ip) => Address::Ip(SocketAddr::new(ip, port)),
                Err(_) => Address::Name { host, port, known: Mutex::new(None) },
            },
        };
        let [a, b, c, d, e, f, g, h, ..] = seal.finish();
        let group_key = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        Ok(Dial { address, tls, connect: settings.timeouts.connect.duration(), group_key })
    }

    /// Tells the pools of two upstreams apart. pingora's own key knows neither the CA nor more of a client
    /// certificate than its serial: without this, a connection verified for one upstream would serve another.
    pub(super) fn group_key(&self) -> u64 {
        self.group_key
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
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
        if !problems.is_empty() {
            return Err(problems);
        }
        let wrap = |list: Vec<Vec<u8>>| list.into_iter().map(|der| WrappedX509::new(der, parse_x509)).collect();
        Ok(Tls {
            server_name: settings.server_name.clone().unwrap_or_else(|| host.to_owned()),
            ca: ca.map(wrap),
            identity: cert.zip(key).map(|(cert, key)| Arc::new(CertKey::new(cert, key))),
        })
    }
}

fn unix_path(path: &std::path::Path, at: &Path) -> Result<String, Vec<Problem>> {
    let problem = |what: &str| vec![Problem::new(at.clone().key("socket"), what)];
    let path = path.to_str().ok_or_else(|| problem("not a UTF-8 path"))?;
    // sockaddr_un holds 108 bytes, the last of them NUL.
    if path.len() > 107 {
        Err(problem("longer than the 107 bytes a UNIX socket's path may have"))
    } else {
        Ok(path.to_owned())
    }
}
