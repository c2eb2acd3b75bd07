//! Receivers that are told of held calls, and may decide where they were given that (Standard Webhooks).
//!
//! What is to be sent stands in the store, written in the transaction that holds the call; `deliver` sends it, from whichever
//! process, until it has arrived or the call is over. `body` is what is sent, `sign` what makes it ours, and `hear` takes
//! decisions, as the answer to a notice or by a request of their own: HTTP itself is `fetch`'s and `admin`'s.

mod body;
mod deliver;
mod hear;
mod sign;

pub use deliver::{Deliverer, InForce};
pub use hear::{Heard, Hearing, NotHeard};
pub use sign::{Keys, Signed, Unfit};

use crate::config::{self, DecidesAs, Path, Problem};
use crate::fetch::Authorities;
use std::time::Duration;
use url::Url;

/// All receivers of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Hooks(Vec<Hook>);

/// One receiver.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Its name.
    pub name: String,
    url: Url,
    authorities: Option<Authorities>,
    keys: Keys,
    sends_arguments: bool,
    decides_as: Option<DecidesAs>,
    timeout: Duration,
}

impl Hooks {
    /// Those of a configuration, with their secrets and certificates read.
    ///
    /// # Errors
    /// Every secret that is none, and every file that cannot be used.
    pub fn build(loaded: &config::Loaded) -> Result<Hooks, Vec<Problem>> {
        let path = Path::root().key("approvals").key("webhooks");
        let (mut hooks, mut problems) = (Vec::new(), Vec::new());
        for (at, written) in loaded.config.approvals.webhooks.iter().enumerate() {
            match Hook::of(written, loaded, &path.index(at)) {
                Ok(hook) => hooks.push(hook),
                Err(problem) => problems.push(*problem),
            }
        }
        if problems.is_empty() { Ok(Hooks(hooks)) } else { Err(problems) }
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&Hook> {
        self.0.iter().find(|hook| hook.name == name)
    }

    /// All of them, as written.
    pub fn iter(&self) -> std::slice::Iter<'_, Hook> {
        self.0.iter()
    }
}

impl Hook {
    fn of(written: &config::Webhook, loaded: &config::Loaded, path: &Path) -> Result<Hook, Box<Problem>> {
        let mut secrets = Vec::new();
        let former = written.former_secret.as_ref().map(|secret| ("former_secret", secret));
        for (key, secret) in [("secret", &written.secret)].into_iter().chain(former) {
            let secret = secret.resolve(loaded.directory()).map_err(|why| why.at(path.key(key)))?;
            let unfit = |why: Unfit| {
                Problem::new(path.key(key), why.to_string())
                    .hint("make one: echo \"whsec_$(openssl rand -base64 32)\", and give the receiver the same")
            };
            Keys::of([&secret]).map_err(unfit)?;
            secrets.push(secret);
        }
        let keys = Keys::of(&secrets).map_err(|why| Problem::new(path.key("secret"), why.to_string()))?;
        let url = Url::parse(&written.url).map_err(|why| Problem::new(path.key("url"), why.to_string()))?;
        let authorities = written.ca.as_ref().map(|file| {
            let pem = std::fs::read(loaded.resolve(file)).map_err(|why| format!("cannot read it: {why}"));
            pem.and_then(|pem| Authorities::of_pem(&pem)).map_err(|why| Box::new(Problem::new(path.key("ca"), why)))
        });
        Ok(Hook {
            name: written.name.clone(),
            url,
            authorities: authorities.transpose()?,
            keys,
            sends_arguments: written.arguments,
            decides_as: written.decides_as.clone(),
            timeout: written.timeout.duration(),
        })
    }

    /// How its decisions are written down.
    fn via(&self) -> String {
        format!("webhook {}", self.name)
    }
}
