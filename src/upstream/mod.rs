//! The MCP servers behind us: how each is reached, what it is sent, and what is known of it.
//!
//! An [`Upstream`] lives as long as its settings do: a reload that does not touch it leaves its connections, its
//! era and its tool definitions alone. What a call means and whether it may pass is not decided here.

mod client;
mod connection;
mod definitions;
mod dial;
mod endpoint;
mod error;
mod event_id;
mod health;
mod hold_state;
mod http2;
/// Upstreams that are processes of our own.
pub mod local;
mod request_state;
mod seal;
mod session;

pub use connection::{Answer, Request, Send};
pub use definitions::{Definition, Definitions, keep_fresh};
pub use error::Error;
pub use event_id::{EventId, Pending};
pub use health::Health;
pub use hold_state::HoldState;
pub use seal::{Scope, Seal, SealKey};
pub use session::{Session, Sessions};

use crate::config::{self, HttpUpstream, Path, Problem, SandboxUpstream, SshUpstream};
use crate::identity::Principal;
use crate::mcp::Abilities;
use crate::metrics::Metrics;
use arc_swap::ArcSwap;
use dial::Dial;
use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use pingora::connectors::http::Connector;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Every upstream, by name.
#[derive(Default)]
pub struct Upstreams {
    by_name: BTreeMap<String, Arc<Upstream>>,
}

/// One MCP server.
pub struct Upstream {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// What it may ask of its clients.
    pub may_ask: Abilities,
    /// SHA-256 over where and how it is reached: configuration, without secrets.
    pub endpoint: [u8; 32],
    dial: Dial,
    target: Target,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The process behind it, where it is one of ours.
    local: Option<local::Process>,
    definitions: ArcSwap<Definitions>,
    /// Whether something was seen that says the definitions have changed.
    is_stale: AtomicBool,
    health: Mutex<Health>,
    /// SHA-256 over everything that was configured, secrets and files included.
    fingerprint: [u8; 32],
}

/// Where requests go on the connection.
struct Target {
    host: HeaderValue,
    path: String,
}

/// Beyond the time of a command: a turn to wait for, a confinement to set up, an output to write.
const WAIT_FOR_A_TURN: Duration = Duration::from_secs(60);

/// How long one upstream may take; see `config::UpstreamTimeouts`.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the request to the head of its answer.
    pub answer: Duration,
    /// Between two reads of a streamed answer.
    pub idle: Duration,
    /// For the whole call.
    pub total: Duration,
}

/// What all upstreams share: the pool of connections and the counters.
#[derive(Clone)]
pub struct Shared {
    /// Pooled connections to every upstream.
    pub connector: Arc<Connector>,
    /// Where connections and failures are counted.
    pub metrics: Arc<Metrics>,
}

impl Shared {
    /// A pool of its own.
    ///
    /// # Errors
    /// The system's certificates cannot be loaded: pingora does so here, and panics where it cannot.
    pub fn new(metrics: Arc<Metrics>) -> Result<Self, Error> {
        rustls_native_certs::load_native_certs().map_err(|why| {
            let where_from = "SSL_CERT_FILE and SSL_CERT_DIR may name them";
            Error::Tls(format!("the system's certificates cannot be loaded ({where_from}): {why}"))
        })?;
        Ok(Shared { connector: Arc::new(Connector::new(None)), metrics })
    }
}

// === impl Upstreams ===

impl Upstreams {
    /// Compiles what was configured. An upstream whose settings did not change since `previous` is carried over as it is.
    ///
    /// # Errors
    /// Every certificate, key, secret or URL that cannot be used.
    pub fn build(loaded: &config::Loaded, previous: Option<&Upstreams>) -> Result<Upstreams, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut by_name = BTreeMap::new();
        for (name, upstream) in &loaded.config.upstreams {
            let at = Path::root().key("upstreams").key(name);
            let built = match upstream {
                config::Upstream::Http(settings) => Upstream::http(name, settings, loaded, &at.key("http")),
                config::Upstream::Sandbox(settings) => Upstream::sandbox(name, settings, loaded, &at.key("sandbox")),
                config::Upstream::Ssh(settings) => Upstream::ssh(name, settings, loaded, &at.key("ssh")),
            };
            match built {
                Ok(built) => {
                    let kept = previous
                        .and_then(|known| known.get(name))
                        .filter(|known| known.fingerprint == built.fingerprint);
                    by_name.insert(name.clone(), kept.map_or_else(|| Arc::new(built), Arc::clone));
                }
                Err(more) => problems.extend(more),
            }
        }
        if problems.is_empty() { Ok(Upstreams { by_name }) } else { Err(problems) }
    }

    /// The upstream of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<Upstream>> {
        self.by_name.get(name)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.by_name.values()
    }
}

// === impl Upstream ===

impl Upstream {
    /// When the certificate that it is shown runs out, in seconds since the Unix epoch.
    pub fn certificate_expires(&self) -> Option<i64> {
        self.dial.certificate_expires()
    }
}

impl Upstream {
    fn http(name: &str, settings: &HttpUpstream, loaded: &config::Loaded, at: &Path) -> Result<Upstream, Vec<Problem>> {
        let mut problems = Vec::new();
        let headers = secret_headers(settings, loaded, at, &mut problems);
        let mut seal = Fingerprint::new(name);
        for (name, value) in &headers {
            seal.add(name.as_str().as_bytes());
            seal.add(value.as_bytes());
        }
        seal.add(format!("{:?} {:?} {:?}", settings.url, settings.timeouts, settings.may_ask).as_bytes());
        let dial = match Dial::build(name, settings, loaded, at) {
            Ok(dial) => dial,
            Err(more) => {
                problems.extend(more);
                return Err(problems);
            }
        };
        if !problems.is_empty() {
            return Err(problems);
        }
        seal.add(&dial.group_key().to_be_bytes());
        let target =
            Target::of(&settings.url).ok_or_else(|| vec![Problem::new(at.clone().key("url"), "not a usable URL")])?;
        Ok(Upstream {
            name: name.into(),
            timeouts: Timeouts {
                answer: settings.timeouts.answer.duration(),
                idle: settings.timeouts.idle.duration(),
                total: settings.timeouts.total.duration(),
            },
            may_ask: may_ask(settings),
            endpoint: endpoint::of_http(settings, loaded),
            dial,
            target,
            headers,
            local: None,
            definitions: ArcSwap::default(),
            is_stale: AtomicBool::new(false),
            health: Mutex::default(),
            fingerprint: seal.finish(),
        })
    }

    fn sandbox(
        name: &str,
        settings: &SandboxUpstream,
        loaded: &config::Loaded,
        at: &Path,
    ) -> Result<Upstream, Vec<Problem>> {
        let process = local::Process::sandbox(name, settings, loaded, at)?;
        Upstream::local(name, process, endpoint::of_sandbox(settings, loaded), &format!("{settings:?}"), at)
    }

    fn ssh(name: &str, settings: &SshUpstream, loaded: &config::Loaded, at: &Path) -> Result<Upstream, Vec<Problem>> {
        let (process, endpoint) = local::Process::ssh(name, settings, loaded, at)?;
        Upstream::local(name, process, endpoint, &format!("{settings:?}"), at)
    }

    /// A process of ours.
    fn local(
        name: &str,
        process: local::Process,
        endpoint: [u8; 32],
        settings: &str,
        at: &Path,
    ) -> Result<Upstream, Vec<Problem>> {
        let mut seal = Fingerprint::new(name);
        seal.add(settings.as_bytes());
        seal.add(&process.fingerprint());
        // A command is silent until it ends, unless it was asked to tell how it comes along.
        let longest = process.longest() + WAIT_FOR_A_TURN;
        Ok(Upstream {
            name: name.into(),
            timeouts: Timeouts { answer: longest, idle: longest, total: longest },
            may_ask: Abilities { elicitation: false, sampling: false, roots: false },
            endpoint,
            dial: Dial::socket(name, &process.socket).map_err(|why| vec![Problem::new(at.clone(), why)])?,
            target: Target { host: HeaderValue::from_static("localhost"), path: "/mcp".to_owned() },
            headers: Vec::new(),
            local: Some(process),
            definitions: ArcSwap::default(),
            is_stale: AtomicBool::new(false),
            health: Mutex::default(),
            fingerprint: seal.finish(),
        })
    }

    /// What is sent beside the call: to a process of ours, who asks, and the name of the request.
    pub fn about(&self, who: &Principal, request: &str) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
        let headers = self.local.as_ref().map(|_| [local::principal_header(who), local::request_header(request)]);
        headers.into_iter().flatten()
    }

    /// How it is with the process behind it, where that is one of ours: a sentence whose subject is the upstream.
    pub fn process(&self) -> Option<String> {
        self.local.as_ref().map(local::Process::described)
    }

    /// How it was the last time it was asked for its tools.
    pub fn health(&self) -> Health {
        self.health.lock().clone()
    }

    /// Whether many calls share one connection to it in any case (HTTP/2 by prior knowledge).
    pub fn shares_connections(&self) -> bool {
        self.dial.is_http2_only()
    }

    /// What is known of its tools: the newest copy fetched, empty until the first fetch.
    pub fn definitions(&self) -> Arc<Definitions> {
        self.definitions.load_full()
    }
}

/// Says in what [`Upstream::about`] has made that the request runs the held call `hold`.
pub fn also_named(headers: &mut [(HeaderName, HeaderValue)], hold: &str) {
    for (name, value) in headers {
        if name == local::REQUEST
            && let Ok(request) = value.to_str()
            && let Ok(both) = HeaderValue::try_from(format!("{request}/{hold}"))
        {
            *value = both;
        }
    }
}

/// All of it, where nothing was written.
fn may_ask(settings: &HttpUpstream) -> Abilities {
    let may = |what| settings.may_ask.as_ref().is_none_or(|asked| asked.contains(&what));
    Abilities {
        elicitation: may(config::Ask::Elicitation),
        sampling: may(config::Ask::Sampling),
        roots: may(config::Ask::Roots),
    }
}

impl Target {
    fn of(url: &str) -> Option<Target> {
        let url = url::Url::parse(url).ok()?;
        let host = match url.port() {
            Some(port) => format!("{}:{port}", url.host_str()?),
            None => url.host_str()?.to_owned(),
        };
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        Some(Target { host: HeaderValue::try_from(host).ok()?, path })
    }
}

fn secret_headers(
    settings: &HttpUpstream,
    loaded: &config::Loaded,
    at: &Path,
    problems: &mut Vec<Problem>,
) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::new();
    for (name, text) in &settings.headers {
        let at = at.clone().key("headers").key(name);
        let value = match text.resolve(loaded.directory()) {
            Ok(value) => value,
            Err(why) => {
                problems.push(why.at(at));
                continue;
            }
        };
        match (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.expose().as_str())) {
            (Ok(name), Ok(mut value)) => {
                // Keeps it out of any `Debug` of a header map.
                value.set_sensitive(true);
                headers.push((name, value));
            }
            (Err(_), _) => problems.push(Problem::new(at, format!("`{name}` is not a header name"))),
            (_, Err(_)) => problems.push(Problem::new(at, "the value holds characters that a header cannot carry")),
        }
    }
    headers
}

/// Tells two sets of settings apart.
struct Fingerprint(ring::digest::Context);

impl Fingerprint {
    fn new(name: &str) -> Self {
        let mut fingerprint = Fingerprint(ring::digest::Context::new(&ring::digest::SHA256));
        fingerprint.add(name.as_bytes());
        fingerprint
    }

    fn add(&mut self, part: &[u8]) {
        // The length keeps `ab`+`c` and `a`+`bc` apart.
        self.0.update(&(part.len() as u64).to_be_bytes());
        self.0.update(part);
    }

    fn finish(self) -> [u8; 32] {
        self.0.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}
