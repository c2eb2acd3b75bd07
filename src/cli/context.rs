//! What a command works on: the configuration and what it names, opened once by whoever reads the command line.

use crate::clock::Clock;
use crate::config::Config;
use crate::identity::Users;
use crate::store::Store;
use std::path::PathBuf;
use std::sync::Arc;

/// What a command works on.
#[derive(Debug)]
pub struct Context<'a> {
    /// The configuration, checked.
    pub config: &'a Config,
    /// Its `data_dir`, resolved.
    pub data_dir: PathBuf,
    /// The issuer of our tokens: `public_url` as clients type it, without a slash at its end.
    pub issuer: Arc<str>,
    /// The people in force.
    pub users: Users,
    /// The store in `data_dir`.
    pub store: Store,
    /// Now.
    pub clock: Clock,
}

impl Context<'_> {
    /// The resource URL of the route to this upstream, byte for byte what its metadata says; `None` when there is none.
    pub fn resource(&self, route: &str) -> Option<Arc<str>> {
        self.config
            .upstreams
            .contains_key(route)
            .then(|| format!("{}/mcp/{route}", self.issuer).into())
    }
}

/// The command line, not the world, was wrong: the program ends with 2 instead of 1.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

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
            let users = people
                .iter()
                .map(|(name, groups)| crate::identity::tests::user(name, groups));
            config.identity = Identity {
                users: users.collect(),
            };
            std::fs::write(dir.path().join("right"), crate::identity::tests::PASSWORD).unwrap();
            std::fs::write(dir.path().join("wrong"), "not the password").unwrap();
            World {
                dir,
                config,
                clock: Clock::manual(1_800_000_000_000),
            }
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
