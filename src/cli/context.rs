//! What a command works on: the configuration and what it names, opened once by whoever reads the command line.

use crate::audit::{self, Audit, Durability, Event, Kind, Who};
use crate::clock::Clock;
use crate::config::{self, Config};
use crate::identity::{Person, Users};
use crate::store::Store;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// What a command works on.
#[derive(Debug)]
pub(super) struct Context<'a> {
    /// The configuration, checked.
    pub(super) config: &'a Config,
    /// Its `data_dir`, resolved.
    pub(super) data_dir: PathBuf,
    /// How its audit log is kept, with paths resolved.
    pub(super) audit: config::Audit,
    /// The issuer of our tokens: `public_url` as clients type it, without a slash at its end.
    pub(super) issuer: Arc<str>,
    /// The people in force.
    pub(super) users: Users,
    /// The store in `data_dir`.
    pub(super) store: Store,
    /// Now.
    pub(super) clock: Clock,
}

impl Context<'_> {
    /// The resource URL of the route to this upstream, byte for byte what its metadata says; `None` when there is none.
    pub(super) fn resource(&self, route: &str) -> Option<Arc<str>> {
        self.config.upstreams.contains_key(route).then(|| format!("{}/mcp/{route}", self.issuer).into())
    }

    /// The audit log, to write in. Close it afterwards.
    pub(super) fn open_log(&self) -> anyhow::Result<Audit> {
        let key = crate::server::session_key(&self.data_dir)?;
        Ok(Audit::open(audit::Settings::of(&self.audit, &self.data_dir, key, self.clock.clone()))?)
    }

    /// Writes down what this person is about to do, before it is done: what is not written down does not happen.
    pub(super) async fn record(&self, person: &Person, event: Event<'_>) -> anyhow::Result<()> {
        self.record_by(Some(person), event).await
    }

    /// The same, also where there is nobody yet who could have said who they are.
    pub(super) async fn record_by(&self, person: Option<&Person>, event: Event<'_>) -> anyhow::Result<()> {
        let log = self.open_log()?;
        let principal = person.map(|person| {
            let subject = audit::Subject::User(&person.name);
            Who { issuer: &self.issuer, subject, client: "cli", grant: None, person: None }
        });
        log.record(Event { principal, ..event }, Durability::Synced).await?;
        log.record_later(Event::new(Kind::Stop));
        log.close();
        Ok(())
    }
}

/// Opens what the configuration in `file` names, and runs `command` on it.
pub(super) fn with(
    file: &Path,
    command: impl AsyncFnOnce(&Context<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let loaded = config::read(file)?;
    let data_dir = loaded.resolve(&loaded.config.data_dir);
    let issuer = issuer(&loaded.config, &data_dir)?.into();
    run(&loaded, data_dir, issuer, command)
}

/// The same for what only reads the store, also while the file is broken and the gateway runs on with what it has: then on
/// the folder `data` beside the file, if that is a gateway's.
pub(super) fn with_or_beside(
    file: &Path,
    command: impl AsyncFnOnce(&Context<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let data_dir = super::operator::usual_data_dir(file);
    match config::read(file) {
        Err(problems) if crate::store::is_in(&data_dir) => {
            eprintln!(
                "note: {} cannot be used (`portcullis check` says why); this is of {}",
                file.display(),
                data_dir.display()
            );
            let built_in = config::read(Path::new(config::BUILT_IN)).map_err(|_| problems)?;
            run(&built_in, data_dir, Arc::default(), command)
        }
        _ => with(file, command),
    }
}

fn run(
    loaded: &config::Loaded,
    data_dir: PathBuf,
    issuer: Arc<str>,
    command: impl AsyncFnOnce(&Context<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let users = Users::load(&loaded.config.identity, &data_dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = Store::open(&data_dir).await?;
        let (config, audit) = (&loaded.config, loaded.audit());
        command(&Context { config, data_dir, audit, issuer, users, store, clock: Clock::System }).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// As the gateway itself makes it up; where it listens on a port of the system's choice, only it can tell.
fn issuer(config: &Config, data_dir: &Path) -> anyhow::Result<String> {
    let listening: SocketAddr = config.listen.parse().map_err(|_| usage("`listen` is not an address"))?;
    if config.public_url.is_none() && listening.port() == 0 {
        return super::operator::public_url(data_dir).map_err(|why| {
            usage(format!("`listen` has port 0, so the gateway must run to tell its address: {why:#}"))
        });
    }
    Ok(crate::snapshot::public_url(config, listening))
}

/// The command line, not the world, was wrong: the program ends with 2 instead of 1.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Usage(pub(super) String);

/// A [`Usage`] error.
pub(super) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

#[cfg(test)]
pub(crate) mod tests {
    //! A data directory with people in it, for the tests of commands.

    use super::Context;
    use crate::clock::Clock;
    use crate::config::{Config, Identity};
    use crate::identity::Users;
    use crate::store::Store;
    use std::path::PathBuf;

    /// A configuration with one upstream, `github`, and these people.
    pub(crate) struct World {
        dir: tempfile::TempDir,
        config: Config,
        clock: Clock,
    }

    impl World {
        pub(crate) async fn new(people: &[(&str, &[&str])]) -> World {
            let dir = tempfile::tempdir().unwrap();
            let mut config: Config = serde_saphyr::from_str(
                "upstreams: { github: { http: { url: http://127.0.0.1:1/mcp } } }\npolicy: { rules: [] }\n",
            )
            .unwrap();
            let users = people.iter().map(|(name, groups)| crate::identity::tests::user(name, groups));
            config.identity = Identity { users: users.collect(), ..Identity::default() };
            std::fs::write(dir.path().join("right"), crate::identity::tests::PASSWORD).unwrap();
            std::fs::write(dir.path().join("wrong"), "not the password").unwrap();
            World { dir, config, clock: Clock::manual(1_800_000_000_000) }
        }

        /// What a command started now would see.
        pub(crate) async fn context(&self) -> Context<'_> {
            let data_dir = self.dir.path().join("data");
            Context {
                config: &self.config,
                issuer: "https://mcp.example.com".into(),
                users: Users::load(&self.config.identity, &data_dir).unwrap(),
                store: Store::open(&data_dir).await.unwrap(),
                data_dir,
                audit: self.config.audit.clone(),
                clock: self.clock.clone(),
            }
        }

        pub(crate) fn right_password(&self) -> PathBuf {
            self.dir.path().join("right")
        }

        pub(crate) fn wrong_password(&self) -> PathBuf {
            self.dir.path().join("wrong")
        }
    }
}
