//! Listeners, start and stop: everything a process owns is made here, in order, and ended here.
//!
//! pingora's own `Server` is not used: it makes a runtime per service, always waits its whole grace period, and cuts
//! event streams at the end of it. Listeners of ours run on one runtime instead (docs/decisions/0001, 0007).

mod sockets;
mod standing;

pub use sockets::OPERATOR_SOCKET;

use crate::admin::{self, Readiness};
use crate::approval::{self, Approvals};
use crate::audit::{self, Audit, Event, Kind};
use crate::clock::Clock;
use crate::config::{self, Problems};
use crate::fetch::Fetcher;
use crate::identity::{self, Change, Fetching, Keys, Verifier};
use crate::listener::{Certificate, Listener, Socket};
use crate::metrics::Metrics;
use crate::oauth;
use crate::otlp::{Exporter, Exporting};
use crate::proxy::{self, Gateway, Ids, MAX_REFUSALS, Pages, Releasing};
use crate::redact::Redactor;
use crate::reload::Reloader;
use crate::secret::Secret;
use crate::snapshot::{Snapshot, Surroundings};
use crate::store::{self, Store, files};
use crate::trace::Tracer;
use crate::upstream::{self, Seal, SealKey, Sessions};
use crate::web;
use arc_swap::ArcSwap;
use pingora::apps::HttpServerApp;
use sockets::Sockets;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

/// Why a gateway could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(Problems),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// As configured.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The certificate or key of a listener cannot be used.
    #[error("cannot use the certificate and key in `tls`: {0}")]
    Tls(String),
    /// A file of ours cannot be made or read.
    #[error("cannot use {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The store cannot be opened.
    #[error("cannot open the store")]
    Store(#[from] store::Error),
    /// The signing keys cannot be made or read.
    #[error("cannot use the signing keys")]
    Keys(#[from] identity::KeysError),
    /// Connections to upstreams cannot be made at all.
    #[error("cannot connect to upstreams")]
    Upstreams(#[from] upstream::Error),
    /// The audit log cannot be opened.
    #[error("cannot open the audit log")]
    Audit(#[from] audit::Error),
}

/// Where a running gateway can be reached.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The agent listener.
    pub agent: SocketAddr,
    /// The listener for metrics and health, where there is one.
    pub metrics: Option<SocketAddr>,
    /// The listener for people who decide, where there is one.
    pub admin: Option<SocketAddr>,
}

/// What is to be told when a gateway has started.
#[derive(Clone, Debug)]
pub struct Started {
    /// Where it can be reached.
    pub addresses: Addresses,
    /// Where people decide on held calls, where there is a page for that.
    pub approvals_url: Option<String>,
    /// The link by which the first person is made, where there is nobody yet. Whoever has it becomes an admin.
    pub setup_link: Option<Secret<String>>,
}

/// Runs the gateway described by `file` until `stop` resolves. `ready` is called once every listener accepts.
///
/// # Errors
/// [`Error`]: it could not start, and nothing of it runs.
pub async fn run(
    file: &Path,
    clock: Clock,
    stop: impl Future<Output = ()>,
    ready: impl FnOnce(Started),
) -> Result<(), Error> {
    // Before anything is bound or made: a broken file must not take the socket of a gateway that runs.
    let (loaded, _) = crate::snapshot::compile_file(file).map_err(Error::Config)?;
    let sockets = Sockets::bind(&loaded)?;
    let addresses = sockets.addresses;
    let (parts, gateway, exporting, setup_link) = Parts::build(file, &loaded, addresses, clock).await?;
    let stops = Stops::default();
    let upstreams = tokio::spawn(parts.supervise(&gateway, &stops));
    let traces = tokio::spawn(parts.export_traces(exporting, &gateway, &stops));
    let mut tasks = JoinSet::new();
    let gateway = Arc::new(gateway);
    let fetcher = gateway.fetching.fetcher.clone();
    parts.spawn_background(&gateway, &stops, &mut tasks);
    let mut services = JoinSet::new();
    parts.spawn_services(gateway, sockets, &stops, &mut services)?;
    info!(agent = %addresses.agent, snapshot = %parts.snapshots.load().hash, "gateway ready");
    let approvals_url = parts.snapshots.load().admin.as_ref().map(|admin| admin.url.to_string());
    ready(Started { addresses, approvals_url, setup_link });
    // After the line that says so: one of them may be standard output.
    let sinks = parts.start_sinks(fetcher);
    stop.await;
    parts.drain(&stops, &mut services).await;
    // Those that are processes of ours end after the last call.
    stops.upstreams.send_replace(true);
    let _ = upstreams.await;
    tasks.shutdown().await;
    stops.traces.send_replace(true);
    let _ = traces.await;
    parts.audit.record_later(Event::new(Kind::Stop));
    parts.audit.close();
    if let Some(sinks) = sinks {
        sinks.finish(SINKS_PATIENCE).await;
    }
    Ok(())
}

/// Tells listeners to close: first to agents, and once their requests have ended to those who watch; then ends upstreams, and
/// last what tells of all this.
#[derive(Default)]
struct Stops {
    agents: watch::Sender<bool>,
    operators: watch::Sender<bool>,
    upstreams: watch::Sender<bool>,
    traces: watch::Sender<bool>,
}

/// What the listeners of one process share.
#[derive(Clone)]
struct Common {
    snapshots: Arc<ArcSwap<Snapshot>>,
    store: Store,
    keys: Arc<Keys>,
    clock: Clock,
    audit: Audit,
    metrics: Arc<Metrics>,
    approvals: Approvals,
    /// From which everything that is sealed or signed for browsers and clients is derived.
    key: SealKey,
}

/// What a process is made of.
struct Parts {
    readiness: Readiness,
    reloader: Arc<Reloader>,
    snapshots: Arc<ArcSwap<Snapshot>>,
    audit: Audit,
    metrics: Arc<Metrics>,
    verifier: Verifier,
    keys: Arc<Keys>,
    clock: Clock,
    certificate: Option<Arc<Certificate>>,
    admin_certificate: Option<Arc<Certificate>>,
    admin: admin::Given,
    standing: standing::Parts,
}

/// What further sinks of the audit log get to take the last records.
const SINKS_PATIENCE: Duration = Duration::from_secs(2);

// === impl Common ===

impl Common {
    async fn open(loaded: &config::Loaded, addresses: Addresses, clock: Clock) -> Result<Common, Error> {
        let metrics = Arc::new(Metrics::new());
        let snapshot = first_snapshot(loaded, addresses, &metrics, &clock)?;
        let data_dir = &snapshot.data_dir;
        let store = Store::open(data_dir).await?;
        let keys = Arc::new(Keys::open(data_dir)?);
        let key = session_key(data_dir)?;
        Redactor::new(&key).put_in_force();
        let mut settings = audit::Settings::of(&loaded.audit(), data_dir, key, clock.clone());
        settings.metrics = Arc::clone(&metrics);
        settings.removes_old = true;
        let audit = Audit::open(settings)?;
        let approvals = Approvals::new(approval::Given {
            store: store.clone(),
            key: &key,
            clock: clock.clone(),
            audit: audit.clone(),
            metrics: Arc::clone(&metrics),
        });
        let snapshots = Arc::new(ArcSwap::from_pointee(snapshot));
        Ok(Common { snapshots, store, keys, clock, audit, metrics, approvals, key })
    }

    fn admin(&self, standing: standing::Parts) -> admin::Given {
        let Common { snapshots, store, clock, audit, approvals, key, .. } = self.clone();
        admin::Given { snapshots, store, clock, audit, approvals, key, standing: Arc::new(move || standing.look()) }
    }

    fn standing(&self, reloader: &Arc<Reloader>, traces: Exporter, addresses: Addresses) -> standing::Parts {
        let Common { snapshots, audit, metrics, .. } = self.clone();
        standing::Parts {
            began: Instant::now(),
            snapshots,
            metrics,
            audit,
            reloader: Arc::clone(reloader),
            traces,
            metrics_listener: addresses.metrics,
        }
    }

    fn oauth(&self, fetcher: Fetcher) -> (oauth::Shared, Option<Secret<String>>) {
        let Common { snapshots, store, keys, clock, audit, approvals, ref key, .. } = self.clone();
        oauth::Shared::new(oauth::Given { snapshots, keys, store, clock, audit, approvals, fetcher, key })
    }

    fn reloader(&self, file: &Path, addresses: Addresses, reloaded: watch::Sender<()>) -> Arc<Reloader> {
        let Common { snapshots, clock, audit, metrics, .. } = self.clone();
        let reloader = Reloader {
            file: file.to_owned(),
            listening: addresses.agent,
            admin: addresses.admin,
            snapshots,
            audit,
            metrics,
            clock,
            reloaded,
            seen: Mutex::new(None),
            refusal: Mutex::new(None),
        };
        reloader.remember();
        Arc::new(reloader)
    }
}

// === impl Parts ===

impl Parts {
    async fn build(
        file: &Path,
        loaded: &config::Loaded,
        addresses: Addresses,
        clock: Clock,
    ) -> Result<(Parts, Gateway, Exporting, Option<Secret<String>>), Error> {
        let common = Common::open(loaded, addresses, clock).await?;
        let Common { snapshots, store, keys, clock, audit, metrics, approvals, key } = common.clone();
        let in_force = snapshots.load_full();
        let capacity = in_force.config.limits.tokens as usize;
        let issuer = Arc::clone(&in_force.public_url);
        let seal = Arc::new(Seal::new(&key));
        let sessions = Sessions::open_with(Arc::clone(&seal), store.clone(), clock.clone()).await?;
        let verifier = Verifier::new(issuer, Arc::clone(&keys), store, clock.clone(), capacity);
        let (reloaded, reloads) = watch::channel(());
        let token = metrics_token(loaded)?;
        let [certificate, admin_certificate] = certificates(loaded, &clock, &metrics)?;
        let shared = upstream::Shared::new(Arc::clone(&metrics))?;
        let fetcher = Fetcher::new(Arc::clone(&shared.connector));
        let (pages, setup_link) = common.oauth(fetcher.clone());
        let (tracer, exporting) = tracer(&key, clock.clone());
        let gateway = Gateway {
            snapshots: Arc::clone(&snapshots),
            verifier: verifier.clone(),
            fetching: Fetching { fetcher, metrics: Arc::clone(&metrics), clock: clock.clone() },
            audit: audit.clone(),
            approvals,
            metrics: Arc::clone(&metrics),
            shared,
            seal,
            sessions,
            ids: Ids::default(),
            releasing: Releasing::default(),
            reloads,
            refusals: Arc::new(Semaphore::new(MAX_REFUSALS)),
            tracer,
            pages: Pages {
                router: oauth::router(pages, Arc::clone(&metrics)),
                open_to_scripts: oauth::OPEN_TO_SCRIPTS,
            },
        };
        let readiness = Readiness {
            audit: audit.clone(),
            verifier: verifier.clone(),
            is_stopping: Arc::new(AtomicBool::new(false)),
            metrics: Arc::clone(&metrics),
            traces: gateway.tracer.exporter().clone(),
            token,
        };
        let reloader = common.reloader(file, addresses, reloaded);
        let standing = common.standing(&reloader, gateway.tracer.exporter().clone(), addresses);
        let admin = common.admin(standing.clone());
        let parts = Parts {
            readiness,
            reloader,
            snapshots,
            audit,
            metrics,
            verifier,
            keys,
            clock,
            certificate,
            admin_certificate,
            admin,
            standing,
        };
        Ok((parts, gateway, exporting, setup_link))
    }

    fn start_sinks(&self, fetcher: Fetcher) -> Option<audit::Sinks> {
        let (sinks, metrics, clock) =
            (self.snapshots.load().sinks.clone(), Arc::clone(&self.metrics), self.clock.clone());
        self.audit.start_sinks(audit::SinksGiven { sinks, fetcher, metrics, clock })
    }

    /// Starts local upstreams, and keeps them running.
    fn supervise(&self, gateway: &Gateway, stops: &Stops) -> impl Future<Output = ()> + use<> {
        let snapshots = Arc::clone(&self.snapshots);
        let in_force = move || Arc::clone(&snapshots.load().upstreams);
        upstream::local::supervise(
            in_force,
            gateway.shared.clone(),
            Some(self.audit.clone()),
            stops.upstreams.subscribe(),
        )
    }

    /// Sends spans to wherever the configuration in force says.
    fn export_traces(
        &self,
        exporting: Exporting,
        gateway: &Gateway,
        stops: &Stops,
    ) -> impl Future<Output = ()> + use<> {
        let snapshots = Arc::clone(&self.snapshots);
        let collector = move || snapshots.load().tracing.as_ref().map(|tracing| Arc::clone(&tracing.collector));
        exporting.run(gateway.fetching.fetcher.clone(), collector, stops.traces.subscribe())
    }

    fn spawn_background(&self, gateway: &Arc<Gateway>, stops: &Stops, tasks: &mut JoinSet<()>) {
        let verifier = self.verifier.clone();
        tasks.spawn(async move { verifier.watch_revocations().await });
        let (verifier, audit) = (self.verifier.clone(), self.audit.clone());
        let tell = move |change: &Change| key_changed(change, &verifier, &audit);
        tasks.spawn(identity::watch_keys(Arc::clone(&self.keys), self.clock.clone(), tell));
        tasks.spawn(Arc::clone(&self.reloader).watch());
        tasks.spawn(gateway.approvals.clone().watch());
        tasks.spawn(proxy::stand_in(Arc::clone(gateway), stops.agents.subscribe()));
        tasks.spawn(proxy::look_after_reloads(Arc::clone(gateway), stops.agents.subscribe()));
        let (snapshots, fetcher) = (Arc::clone(&self.snapshots), gateway.fetching.fetcher.clone());
        let telling = move || snapshots.load_full().telling();
        tasks.spawn(approval::webhook::Deliverer::new(gateway.approvals.clone(), fetcher, telling).run());
        let snapshots = Arc::clone(&self.snapshots);
        let in_force = move || Arc::clone(&snapshots.load().upstreams);
        tasks.spawn(upstream::keep_fresh(in_force, gateway.shared.clone()));
        let snapshots = Arc::clone(&self.snapshots);
        tasks.spawn(identity::keep_fresh(move || Arc::clone(&snapshots.load().issuers), gateway.fetching.clone()));
        tasks.spawn(reload_on_hangup(Arc::clone(&self.reloader)));
        for certificate in [&self.certificate, &self.admin_certificate].into_iter().flatten() {
            tasks.spawn(Arc::clone(certificate).watch());
        }
    }

    fn spawn_services(
        &self,
        gateway: Arc<Gateway>,
        sockets: Sockets,
        stops: &Stops,
        services: &mut JoinSet<()>,
    ) -> Result<(), Error> {
        let fault = |source| Error::Listen { address: "a socket that is bound".to_owned(), source };
        let mut agent = self.listener("agent", gateway, self.snapshots.load().config.limits.connections as usize);
        agent.certificate.clone_from(&self.certificate);
        let socket = Socket::tcp(sockets.agent).map_err(fault)?;
        services.spawn(agent.run(socket, stops.agents.subscribe()));
        if let Some(socket) = sockets.metrics {
            let pages = Arc::new(web::Pages::new(admin::health_router(self.readiness.clone())));
            let socket = Socket::tcp(socket).map_err(fault)?;
            services.spawn(self.listener("metrics", pages, FEW).run(socket, stops.operators.subscribe()));
        }
        if let Some(socket) = sockets.admin {
            let door = admin::Door::new(self.admin.clone(), stops.operators.subscribe());
            let mut listener = self.listener("admin", Arc::new(door), PEOPLE);
            listener.certificate.clone_from(&self.admin_certificate);
            listener.makes_room = true;
            let socket = Socket::tcp(socket).map_err(fault)?;
            services.spawn(listener.run(socket, stops.operators.subscribe()));
        }
        let (socket, path) = sockets.operator;
        let socket = Socket::unix(socket).map_err(|source| Error::File { path, source })?;
        let pages = Arc::new(web::Pages::new(self.standing.clone().operator_router()));
        services.spawn(self.listener("operator", pages, FEW).run(socket, stops.operators.subscribe()));
        Ok(())
    }

    fn listener<A: HttpServerApp>(&self, name: &'static str, app: Arc<A>, max_connections: usize) -> Listener<A> {
        Listener {
            name,
            app,
            certificate: None,
            max_connections,
            makes_room: false,
            snapshots: Arc::clone(&self.snapshots),
            metrics: Arc::clone(&self.metrics),
            clock: self.clock.clone(),
        }
    }

    /// Stops listening, and waits for the requests in flight as long as the configuration grants them.
    async fn drain(&self, stops: &Stops, services: &mut JoinSet<()>) {
        self.readiness.is_stopping.store(true, Ordering::Relaxed);
        let limit = self.snapshots.load().config.timeouts.drain.duration();
        info!(in_flight = self.metrics.in_flight(), ?limit, "stopping");
        stops.agents.send_replace(true);
        let until = Instant::now() + limit;
        while self.metrics.in_flight() > 0 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if self.metrics.in_flight() > 0 {
            warn!(in_flight = self.metrics.in_flight(), "requests were cut: they did not end in time");
        }
        stops.operators.send_replace(true);
        // Whoever still holds a connection without a request on it is not waited for.
        let all_ended = async { while services.join_next().await.is_some() {} };
        if tokio::time::timeout(FAREWELL, all_ended).await.is_err() {
            services.shutdown().await;
        }
    }
}

/// The gate for spans, and what sends them on.
fn tracer(key: &SealKey, clock: Clock) -> (Tracer, Exporting) {
    let (exporter, exporting) = Exporter::new(&crate::id::unguessable("i_"));
    (Tracer::new(exporter, Redactor::new(key), clock), exporting)
}

fn first_snapshot(
    loaded: &config::Loaded,
    addresses: Addresses,
    metrics: &Metrics,
    clock: &Clock,
) -> Result<Snapshot, Error> {
    let around = Surroundings { listening: addresses.agent, admin: addresses.admin, previous: None };
    let snapshot = Snapshot::compile(loaded, &around).map_err(Error::Config)?;
    for warning in &snapshot.warnings {
        warn!("{warning}");
    }
    metrics.config_named(snapshot.names());
    metrics.config_loaded(&snapshot.hash, clock.unix_seconds());
    Ok(snapshot)
}

/// Connections at once of the listeners that are not for agents.
const FEW: usize = 64;
/// Connections at once of the listener for people who decide; an open list holds one.
const PEOPLE: usize = 512;
/// How long clients get to close their connections after the last request has ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// Those of the agent listener and of the admin listener.
fn certificates(
    loaded: &config::Loaded,
    clock: &Clock,
    metrics: &Arc<Metrics>,
) -> Result<[Option<Arc<Certificate>>; 2], Error> {
    let open = |tls: Option<&config::Tls>, listener| -> Result<_, Error> {
        let Some(tls) = tls else {
            return Ok(None);
        };
        let (cert, key) = (loaded.resolve(&tls.cert), loaded.resolve(&tls.key));
        let opened = Certificate::open(listener, cert, key, clock.clone(), Arc::clone(metrics)).map_err(Error::Tls)?;
        Ok(Some(Arc::new(opened)))
    };
    let admin = loaded.config.admin.as_ref().and_then(|admin| admin.tls.as_ref());
    Ok([open(loaded.config.tls.as_ref(), "listener")?, open(admin, "admin")?])
}

fn metrics_token(loaded: &config::Loaded) -> Result<Option<Secret<String>>, Error> {
    let Some(token) = loaded.config.metrics.as_ref().and_then(|metrics| metrics.token.as_ref()) else {
        return Ok(None);
    };
    let at = config::Path::root().key("metrics").key("token");
    let problem = |why: config::ValueError| Error::Config(loaded.locate(vec![why.at(at)]));
    token.resolve(loaded.directory()).map(Some).map_err(problem)
}

/// The key that seals session ids; made at the first start, and kept so that sessions outlive a restart.
///
/// # Errors
/// [`Error::File`]: it can be neither read nor made.
pub fn session_key(data_dir: &Path) -> Result<SealKey, Error> {
    let path = data_dir.join("keys").join("session.key");
    let fault = |source| Error::File { path: path.clone(), source };
    match std::fs::read(&path) {
        Ok(bytes) => {
            let wrong = |_| fault(std::io::Error::other("not 32 bytes long"));
            bytes.try_into().map_err(wrong)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key: SealKey = crate::id::random_bytes();
            // Commands may come before the first start.
            files::make_private_dir(&data_dir.join("keys")).map_err(fault)?;
            files::replace(&path, &key).map_err(fault)?;
            Ok(key)
        }
        Err(error) => Err(fault(error)),
    }
}

/// Writes down what became of a signing key. What was verified with one that is gone is not remembered.
fn key_changed(change: &Change, verifier: &Verifier, audit: &Audit) {
    let (kid, what) = match change {
        Change::Added(kid) => (kid, "was added"),
        Change::Signs(kid) => (kid, "signs from now on"),
        Change::Removed(kid) => (kid, "is gone"),
    };
    if matches!(change, Change::Removed(_)) {
        verifier.forget();
    }
    info!("signing key {kid} {what}");
    let detail = format!("signing key {kid} {what}");
    audit.record_later(Event { detail: Some(&detail), ..Event::new(Kind::KeyRotated) });
}

async fn reload_on_hangup(reloader: Arc<Reloader>) {
    let Ok(mut hangup) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()) else {
        warn!("SIGHUP cannot be waited for; use `portcullis reload`");
        return;
    };
    while hangup.recv().await.is_some() {
        let reloader = Arc::clone(&reloader);
        // Its result is logged where it is made.
        let _ = tokio::task::spawn_blocking(move || reloader.reload()).await;
    }
}
