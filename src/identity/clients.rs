//! OAuth clients that are written in the configuration: machines, and connectors that ask for an id.

use super::public_keys::PublicKeys;
use super::users::Users;
use crate::config::{self, Path, Problem, did_you_mean};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;

/// In bytes.
const LARGEST_KEY_SET: u64 = 64 * 1024;

/// Every configured client, by id.
#[derive(Debug, Default)]
pub struct Clients(BTreeMap<String, Arc<ConfiguredClient>>);

/// One of them.
#[derive(Debug)]
pub struct ConfiguredClient {
    /// Its `client_id`.
    pub id: Arc<str>,
    /// What people see.
    pub name: String,
    /// SHA-256 of its secret.
    pub secret: Option<[u8; 32]>,
    /// Its public keys.
    pub keys: Option<Arc<PublicKeys>>,
    /// Where people are sent back to.
    pub redirect_uris: Vec<String>,
    /// What it may do on its own account.
    pub machine: Option<Machine>,
}

/// A client that may act on its own account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The user who answers for it.
    pub owner: Arc<str>,
    /// Its groups.
    pub groups: Arc<[String]>,
    /// The routes it may have tokens for.
    pub routes: Vec<String>,
}

// === impl Clients ===

impl Clients {
    /// Compiles what was configured and, by `config::check`, makes sense.
    ///
    /// # Errors
    /// Every key set that cannot be used, every hash that is none.
    pub fn build(loaded: &config::Loaded) -> Result<Clients, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut clients = BTreeMap::new();
        for (at, client) in loaded.config.identity.clients.iter().enumerate() {
            let path = Path::root().key("identity").key("clients").index(at);
            match ConfiguredClient::build(client, loaded, &path) {
                Ok(built) => drop(clients.insert(client.id.clone(), Arc::new(built))),
                Err(problem) => problems.push(*problem),
            }
        }
        if problems.is_empty() { Ok(Clients(clients)) } else { Err(problems) }
    }

    /// The client of this id.
    pub fn get(&self, id: &str) -> Option<&Arc<ConfiguredClient>> {
        self.0.get(id)
    }

    /// In the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ConfiguredClient>> {
        self.0.values()
    }

    /// The machine of this id, while its owner is a user here: nobody answers for it otherwise.
    pub fn machine(&self, id: &str, users: &Users) -> Option<&Machine> {
        self.get(id)?.machine.as_ref().filter(|machine| users.get(&machine.owner).is_some())
    }
}

/// Machines whose owner is not there. No error of the file: whoever leaves must not keep a reload from taking effect.
pub fn ownerless(config: &config::Config, users: &Users) -> Vec<Problem> {
    let mut found = Vec::new();
    for (at, client) in config.identity.clients.iter().enumerate() {
        let Some(owner) = client.owner.as_deref().filter(|owner| users.get(owner).is_none()) else {
            continue;
        };
        let path = Path::root().key("identity").key("clients").index(at).key("owner");
        let message = format!("unknown user `{owner}`, so `{}` can get no token on its own account", client.id);
        let names: Vec<String> = users.iter().map(|person| person.name.to_string()).collect();
        found.push(Problem::new(path, message).maybe_hint(did_you_mean(owner, names.iter().map(String::as_str))));
    }
    found
}

// === impl ConfiguredClient ===

impl ConfiguredClient {
    fn build(client: &config::Client, loaded: &config::Loaded, path: &Path) -> Result<Self, Box<Problem>> {
        let secret = match &client.secret_hash {
            None => None,
            Some(text) => Some(
                config::secret_hash(text)
                    .ok_or_else(|| Box::new(Problem::new(path.key("secret_hash"), "no hash of a client's secret")))?,
            ),
        };
        let keys = match &client.jwks {
            None => None,
            Some(file) => {
                let keys = read_keys(&loaded.resolve(file));
                Some(Arc::new(keys.map_err(|why| {
                    Box::new(Problem::new(path.key("jwks"), format!("{} cannot be used: {why}", file.display())))
                })?))
            }
        };
        let machine = client.owner.as_ref().map(|owner| Machine {
            owner: owner.as_str().into(),
            groups: client.groups.as_slice().into(),
            routes: client.routes.clone(),
        });
        Ok(ConfiguredClient {
            id: client.id.as_str().into(),
            name: client.name.clone().unwrap_or_else(|| client.id.clone()),
            secret,
            keys,
            redirect_uris: client.redirect_uris.clone(),
            machine,
        })
    }
}

fn read_keys(file: &std::path::Path) -> Result<PublicKeys, String> {
    let mut json = Vec::new();
    std::fs::File::open(file)
        .and_then(|file| file.take(LARGEST_KEY_SET).read_to_end(&mut json))
        .map_err(|why| why.to_string())?;
    PublicKeys::parse(&json).map_err(|why| why.to_string())
}

#[cfg(test)]
pub(in crate::identity) mod tests {
    use super::*;

    /// Clients with these owners, each in group `robots`.
    pub(in crate::identity) fn clients(list: &[(&str, Option<&str>)]) -> Clients {
        let client = |(id, owner): &(&str, Option<&str>)| {
            let machine = owner.map(|owner| Machine {
                owner: owner.into(),
                groups: Arc::new(["robots".to_owned()]),
                routes: vec!["github".to_owned()],
            });
            let (id, name): (Arc<str>, String) = ((*id).into(), (*id).to_owned());
            let client = ConfiguredClient { id, name, secret: None, keys: None, redirect_uris: vec![], machine };
            (client.name.clone(), Arc::new(client))
        };
        Clients(list.iter().map(client).collect())
    }
}
