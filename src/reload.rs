//! From a changed file to a new snapshot, swapped whole. A file that cannot be used changes nothing and says why.
//!
//! A poll of the files' contents is the truth: it sees in-place writes, renames and swapped symlinks alike, and misses
//! no event. SIGHUP and `portcullis reload` only ask for it at once. The files that upstreams name (certificates,
//! secrets) count as part of the configuration; the listener's own certificate is watched by `listener`.

use crate::audit::{Audit, Event, Kind};
use crate::clock::Clock;
use crate::config::{self, Path, Problem, Problems};
use crate::metrics::Metrics;
use crate::snapshot::{Snapshot, Surroundings};
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tracing::{error, info, warn};

/// How often the files are looked at.
const POLL: Duration = Duration::from_millis(500);

/// Reads the file again, and puts it in force.
pub struct Reloader {
    /// `gateway.yaml`.
    pub file: PathBuf,
    /// Where the agent listener listens.
    pub listening: SocketAddr,
    /// Where the admin listener listens.
    pub admin: Option<SocketAddr>,
    /// What is in force.
    pub snapshots: Arc<ArcSwap<Snapshot>>,
    /// Told of every reload.
    pub audit: Audit,
    /// Told of every reload.
    pub metrics: Arc<Metrics>,
    /// The time of day.
    pub clock: Clock,
    /// Tells those who wait that another configuration is in force.
    pub reloaded: watch::Sender<()>,
    /// What the files looked like when they were last tried; also makes reloads wait for each other.
    pub seen: Mutex<Option<[u8; 32]>>,
    /// Why the file that was tried last is not in force, and since when, in milliseconds since the Unix epoch.
    pub refusal: Mutex<Option<(i64, String)>>,
}

impl Reloader {
    /// Reads the file and puts it in force. Returns the hash of what is in force now.
    ///
    /// # Errors
    /// Every problem of the file; what was in force stays.
    pub fn reload(&self) -> Result<String, Problems> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = self.fingerprint();
        let current = self.snapshots.load_full();
        let reloaded = config::read(&self.file).and_then(|loaded| {
            check_fixed(&current.config, &loaded)?;
            let around = Surroundings { listening: self.listening, admin: self.admin, previous: Some(&current) };
            Snapshot::compile(&loaded, &around)
        });
        match reloaded {
            Ok(snapshot) => {
                let names_others = named_files(&snapshot.config) != named_files(&current.config);
                let hash = self.put_in_force(snapshot);
                if names_others {
                    *seen = self.fingerprint();
                }
                Ok(hash)
            }
            Err(problems) => {
                self.refuse(&current, &problems);
                Err(problems)
            }
        }
    }

    /// Takes the files as they are for those of the snapshot in force, which was just compiled from them.
    pub fn remember(&self) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = self.fingerprint();
    }

    /// When and why the file that was tried last was refused, where it was.
    pub fn refused(&self) -> Option<(i64, String)> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, refusal: Option<(i64, String)>) {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
    }

    /// Watches the files until the task is dropped.
    pub async fn watch(self: Arc<Self>) {
        let mut tick = tokio::time::interval(POLL);
        loop {
            tick.tick().await;
            let reloader = Arc::clone(&self);
            // Files are read and password hashes parsed: not on a thread that serves calls.
            let looked = tokio::task::spawn_blocking(move || reloader.look()).await;
            if let Err(died) = looked {
                error!(error = %died, "a reload failed; the configuration in force stays");
            }
        }
    }

    fn look(&self) {
        let now = self.fingerprint();
        let is_new = *self.seen.lock().unwrap_or_else(PoisonError::into_inner) != now;
        if is_new {
            // Its result is logged where it is made.
            let _ = self.reload();
        }
    }

    fn put_in_force(&self, snapshot: Snapshot) -> String {
        for warning in &snapshot.warnings {
            warn!("{warning}");
        }
        let hash = snapshot.hash.clone();
        self.audit.reload(&snapshot.config.audit);
        // Before it is in force: what is found out of a new upstream is not taken for news of an unknown one.
        self.metrics.config_named(snapshot.names());
        self.snapshots.store(Arc::new(snapshot));
        self.metrics.config_loaded(&hash, self.clock.unix_seconds());
        self.note(None);
        self.reloaded.send_replace(());
        self.audit.record_later(Event { snapshot: Some(&hash), ..Event::new(Kind::Reload) });
        info!(snapshot = %hash, "configuration in force");
        hash
    }

    fn refuse(&self, current: &Snapshot, problems: &Problems) {
        self.metrics.config_refused();
        self.note(Some((self.clock.unix_ms(), problems.to_string())));
        let event = Event { snapshot: Some(&current.hash), code: Some("config.refused"), ..Event::new(Kind::Reload) };
        self.audit.record_later(event);
        error!("the new configuration was refused; the old one ({}) stays in force\n{problems}", current.hash);
    }

    /// SHA-256 over the files that are watched; `None` while one cannot be read.
    fn fingerprint(&self) -> Option<[u8; 32]> {
        let mut text = config::bytes(&self.file)?;
        let users = self.snapshots.load().data_dir.join("users.yaml");
        text.push(0);
        text.extend(std::fs::read(users).unwrap_or_default());
        let base = self.file.parent().unwrap_or(std::path::Path::new("."));
        for file in named_files(&self.snapshots.load().config) {
            text.push(0);
            // What is in them stays in this function. A file that has gone is a change as well.
            text.extend(std::fs::read(base.join(file)).unwrap_or_else(|_| b"unreadable".to_vec()));
        }
        Some(crate::audit::sha256(&text))
    }
}

/// What upstreams, webhooks and the collector of traces name beside `gateway.yaml`: certificates, keys, secrets, actions.
fn named_files(config: &config::Config) -> Vec<&std::path::Path> {
    let mut files = Vec::new();
    let mut secrets: Vec<&config::SecretRef> = Vec::new();
    for upstream in config.upstreams.values() {
        match upstream {
            config::Upstream::Http(http) => {
                files.extend([&http.tls.ca, &http.tls.cert, &http.tls.key].into_iter().flatten().map(PathBuf::as_path));
                secrets.extend(http.headers.values().filter_map(|value| match value {
                    config::Text::From(secret) => Some(secret),
                    config::Text::Literal(_) => None,
                }));
            }
            config::Upstream::Sandbox(_) => {}
            config::Upstream::Ssh(ssh) => {
                files.extend([ssh.known_hosts.as_path(), ssh.actions.as_path()]);
                secrets.extend(&ssh.key);
                secrets.extend(ssh.certificates.iter().map(|certificates| &certificates.authority));
            }
        }
    }
    if let Some(traces) = &config.traces {
        files.extend(traces.otlp.ca.as_deref());
        secrets.extend(traces.otlp.headers.values().filter_map(|value| match value {
            config::Text::From(secret) => Some(secret),
            config::Text::Literal(_) => None,
        }));
    }
    for hook in &config.approvals.webhooks {
        files.extend(hook.ca.as_deref());
        secrets.push(&hook.secret);
        secrets.extend(&hook.former_secret);
    }
    files.extend(secrets.into_iter().filter_map(|secret| match secret {
        config::SecretRef::File(path) => Some(path.as_path()),
        config::SecretRef::Env(_) => None,
    }));
    files
}

/// What a running process cannot change about itself.
fn check_fixed(current: &config::Config, loaded: &config::Loaded) -> Result<(), Problems> {
    let new = &loaded.config;
    let metrics = |config: &config::Config| format!("{:?}", config.metrics);
    let admin = |config: &config::Config| format!("{:?}", config.admin);
    let tls = |config: &config::Config| config.tls.as_ref().map(|tls| (tls.cert.clone(), tls.key.clone()));
    let fixed = [
        ("listen", current.listen == new.listen),
        ("public_url", current.public_url == new.public_url),
        ("data_dir", current.data_dir == new.data_dir),
        ("metrics", metrics(current) == metrics(new)),
        ("admin", admin(current) == admin(new)),
        ("limits.tokens", current.limits.tokens == new.limits.tokens),
        ("limits.connections", current.limits.connections == new.limits.connections),
        ("tls", tls(current) == tls(new)),
        ("audit.checkpoints.file", current.audit.checkpoints.file == new.audit.checkpoints.file),
        ("audit.also", current.audit.also == new.audit.also),
    ];
    let changed = fixed.into_iter().filter(|(_, is_same)| !is_same).map(|(key, _)| {
        Problem::new(
            key.split('.').fold(Path::root(), |path, key| path.key(key)),
            format!("`{key}` cannot change while the gateway runs"),
        )
        .hint("restart it")
    });
    let changed: Vec<Problem> = changed.collect();
    if changed.is_empty() { Ok(()) } else { Err(loaded.locate(changed)) }
}
