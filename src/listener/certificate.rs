//! The listener's certificate and key, read again when their files change.
//!
//! A poll of the contents is the truth, as for the configuration (`reload`): renewals are written in place, renamed over
//! the old file, or come through a swapped symlink, certificate first or key first. A new pair is used whole or not at
//! all; until both files are there and belong together, the old pair stays in use. Connections keep what they began with.

use crate::clock::Clock;
use crate::config;
use crate::metrics::Metrics;
use arc_swap::ArcSwap;
use pingora::tls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing::{error, info, warn};

/// How often the files are looked at.
const POLL: Duration = Duration::from_millis(500);
/// A certificate that runs out sooner is worth a warning.
const SOON_S: i64 = 14 * 24 * 60 * 60;
/// Offered to clients, the preferred one first (RFC 7301).
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// A certificate with its key: two files, and what is in use of them.
pub struct Certificate {
    /// Whose it is, in metrics.
    used_by: &'static str,
    cert: PathBuf,
    key: PathBuf,
    in_use: ArcSwap<ServerConfig>,
    /// What the files looked like when they were last tried.
    seen: Mutex<[u8; 32]>,
    has_warned: AtomicBool,
    expires: Mutex<i64>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

/// A pair that belongs together.
struct Pair {
    config: ServerConfig,
    /// When its certificate runs out, in seconds since the Unix epoch.
    expires: i64,
}

impl Certificate {
    /// Reads both files. `used_by` is whose they are, in metrics: `listener` (the agents'), `admin`.
    ///
    /// # Errors
    /// Why they cannot be used, for people.
    pub fn open(
        used_by: &'static str,
        cert: PathBuf,
        key: PathBuf,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Result<Self, String> {
        let seen = Mutex::new(fingerprint(&cert, &key));
        let pair = Pair::read(&cert, &key)?;
        let certificate = Certificate {
            used_by,
            cert,
            key,
            in_use: ArcSwap::from_pointee(pair.config),
            seen,
            has_warned: AtomicBool::new(false),
            expires: Mutex::new(pair.expires),
            clock,
            metrics,
        };
        certificate.metrics.certificate_in_use(used_by, pair.expires);
        certificate.warn_of_its_end();
        Ok(certificate)
    }

    /// For the next connection.
    pub(super) fn in_use(&self) -> Arc<ServerConfig> {
        self.in_use.load_full()
    }

    /// Watches the files until the task is dropped.
    pub async fn watch(self: Arc<Self>) {
        let mut tick = tokio::time::interval(POLL);
        loop {
            tick.tick().await;
            let certificate = Arc::clone(&self);
            if let Err(died) = tokio::task::spawn_blocking(move || certificate.look()).await {
                error!(error = %died, "looking at the listener's certificate failed; the one in use stays");
            }
        }
    }

    fn look(&self) {
        self.warn_of_its_end();
        let now = fingerprint(&self.cert, &self.key);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == now {
            return;
        }
        *seen = now;
        match Pair::read(&self.cert, &self.key) {
            Ok(pair) => self.put_in_use(pair),
            Err(why) => {
                self.metrics.certificate_refused(self.used_by);
                error!(
                    cert = %self.cert.display(),
                    "the new certificate and key of the listener cannot be used, the old ones stay in use: {why}"
                );
            }
        }
    }

    fn put_in_use(&self, pair: Pair) {
        self.in_use.store(Arc::new(pair.config));
        *self.expires.lock().unwrap_or_else(PoisonError::into_inner) = pair.expires;
        self.has_warned.store(false, Ordering::Relaxed);
        self.metrics.certificate_in_use(self.used_by, pair.expires);
        info!(cert = %self.cert.display(), expires = %day(pair.expires), "the listener has a new certificate");
        self.warn_of_its_end();
    }

    fn warn_of_its_end(&self) {
        let expires = *self.expires.lock().unwrap_or_else(PoisonError::into_inner);
        if expires - self.clock.unix_seconds() < SOON_S && !self.has_warned.swap(true, Ordering::Relaxed) {
            warn!(cert = %self.cert.display(), expires = %day(expires), "the listener's certificate runs out; renew it");
        }
    }
}

impl Pair {
    fn read(cert: &Path, key: &Path) -> Result<Pair, String> {
        let text = std::fs::read(cert).map_err(|why| format!("{}: {why}", cert.display()))?;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|why| format!("{}: no usable certificate: {why}", cert.display()))?;
        let first = chain.first().ok_or_else(|| format!("{}: no certificate in it", cert.display()))?;
        let expires = match x509_parser::parse_x509_certificate(first) {
            Ok((_, first)) => first.validity().not_after.timestamp(),
            Err(why) => return Err(format!("{}: no usable certificate: {why}", cert.display())),
        };
        // It is a secret like any other, and its file is nobody else's.
        let secret = config::read_secret(key).map_err(|why| why.to_string())?;
        let key = PrivateKeyDer::from_pem_slice(secret.expose().as_bytes())
            .map_err(|why| format!("{}: no usable private key: {why}", key.display()))?;
        pingora::tls::install_default_crypto_provider();
        // Also compares the key with the certificate.
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|why| format!("they cannot be used together: {why}"))?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(Pair { config, expires })
    }
}

/// SHA-256 over both files; one that cannot be read counts as such.
fn fingerprint(cert: &Path, key: &Path) -> [u8; 32] {
    let mut text = Vec::new();
    for file in [cert, key] {
        match std::fs::read(file) {
            Ok(bytes) => text.extend(bytes),
            Err(_) => text.extend(b"unreadable"),
        }
        text.push(0);
    }
    crate::audit::sha256(&text)
}

fn day(unix_seconds: i64) -> String {
    crate::clock::rfc3339(unix_seconds.saturating_mul(1000))
}
