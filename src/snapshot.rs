//! The configuration in force: compiled once, swapped whole, and the same for one request from its head to its end.

use crate::approval::webhook::{Hooks, InForce};
use crate::audit;
use crate::config::{self, Known, Network, Path, Problem, Problems};
use crate::fetch::Authorities;
use crate::identity::{self, Clients, Issuer, Issuers, Users};
use crate::metrics;
use crate::policy::{Policy, Recording};
use crate::trace::Tracing;
use crate::upstream::{Upstream, Upstreams};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The scope that every token of ours may carry; of a token for which nobody asked more, the only one.
pub const BASE_SCOPE: &str = "mcp";

/// Everything a request needs to know of the configuration.
pub struct Snapshot {
    /// What was written.
    pub config: config::Config,
    /// The start of the file's SHA-256, in hex; names this configuration in logs, metrics and audit records.
    pub hash: String,
    /// The origin clients type, without a slash at its end. Also the issuer of our tokens.
    pub public_url: Arc<str>,
    /// `/mcp/<name>`, by name.
    pub routes: BTreeMap<String, Arc<Route>>,
    /// Which `Host` and `Origin` values are ours.
    pub guard: Guard,
    /// The admin listener as people see it, where there is one.
    pub admin: Option<Admin>,
    /// People.
    pub users: Users,
    /// OAuth clients that are written here.
    pub clients: Clients,
    /// Trusted for metadata documents of clients, instead of the system's roots.
    pub document_authorities: Option<Authorities>,
    /// External issuers.
    pub issuers: Arc<Issuers>,
    /// Rules.
    pub policy: Policy,
    /// Whose arguments are written down.
    pub recording: Recording,
    /// MCP servers.
    pub upstreams: Arc<Upstreams>,
    /// Who is told of held calls.
    pub hooks: Arc<Hooks>,
    /// Where spans go and which requests have them; `None`: none have.
    pub tracing: Option<Arc<Tracing>>,
    /// Where audit records go beside the files.
    pub sinks: Vec<audit::Sink>,
    /// Where the store, the keys and the audit log live.
    pub data_dir: PathBuf,
    /// What could be better, for people to read.
    pub warnings: Vec<Problem>,
    /// Rules that can do nothing, and what else `policy::lint` finds. `portcullis check` refuses the errors among them;
    /// a running gateway does not: a hasty `deny: */*` makes every other rule unreachable, and must take effect.
    pub dead_ends: Vec<Problem>,
}

/// One path that agents call, and what stands behind it.
pub struct Route {
    /// The upstream's name, which is the route's.
    pub name: Arc<str>,
    /// The resource a token must be for (RFC 8707): `public_url` and the path, byte for byte.
    pub resource: String,
    /// Where its RFC 9728 document is.
    pub metadata_url: String,
    /// Where clients get a token for it.
    pub server: Arc<AuthorizationServer>,
    /// The server behind it.
    pub upstream: Arc<Upstream>,
}

/// Where clients are told to get a token, and what to ask for there.
pub struct AuthorizationServer {
    /// Its issuer: this gateway, or the one that `identity.authorization_server` names.
    pub issuer: Arc<str>,
    /// The scopes to ask for.
    pub scopes: Vec<String>,
    external: Option<Arc<Issuer>>,
}

/// The listener where people decide on held calls. It has names of its own: a page of agents is none of its pages.
#[derive(Debug)]
pub struct Admin {
    /// The origin that approvers type, without a slash at its end.
    pub url: Arc<str>,
    /// Which `Host` and `Origin` values are its own.
    pub guard: Guard,
}

/// Who may connect, and which names and origins are ours: the defence against DNS rebinding and cross-site requests.
#[derive(Debug, Default)]
pub struct Guard {
    hosts: Vec<String>,
    origins: Vec<String>,
    /// The only addresses that may connect; `None` for all.
    proxies: Option<Vec<Network>>,
}

/// What a snapshot is compiled from, beside the file.
pub struct Surroundings<'a> {
    /// Where the agent listener really listens (the file may say port 0).
    pub listening: SocketAddr,
    /// The same of the admin listener; where it is not known, what the file says.
    pub admin: Option<SocketAddr>,
    /// The snapshot in force, whose unchanged upstreams are carried over.
    pub previous: Option<&'a Snapshot>,
}

impl Snapshot {
    /// What metrics may name.
    pub fn names(&self) -> metrics::Names {
        let certificate = |upstream: &Arc<Upstream>| Some((upstream.name.to_string(), upstream.certificate_expires()?));
        metrics::Names {
            upstreams: self.routes.keys().cloned().collect(),
            issuers: self.issuers.iter().map(|issuer| issuer.name.to_string()).collect(),
            hooks: self.config.approvals.webhooks.iter().map(|hook| hook.name.clone()).collect(),
            sinks: self.config.audit.also.iter().map(|sink| sink.name.clone()).collect(),
            certificates: self.upstreams.iter().filter_map(certificate).collect(),
        }
    }

    /// Compiles a file that was read. Nothing is half done: either all of it can be in force, or none.
    ///
    /// # Errors
    /// Every problem there is, in the order of the file.
    pub fn compile(loaded: &config::Loaded, around: &Surroundings<'_>) -> Result<Snapshot, Problems> {
        let config = &loaded.config;
        let data_dir = loaded.resolve(&config.data_dir);
        let users = Users::load(&config.identity, &data_dir).map_err(|why| loaded.locate(vec![user_problem(&why)]))?;
        let known = known_people(&users);
        // Those of this file are checked where they stand; `check` is told of the others.
        let is_written_here = |name: &str| config.identity.users.iter().any(|user| user.name == name);
        let names: Vec<&str> =
            known.iter().map(|(name, _)| name.as_str()).filter(|name| !is_written_here(name)).collect();
        let groups: Vec<&str> = known.iter().flat_map(|(_, groups)| groups).map(String::as_str).collect();
        let mut found = config::check(config, Known { users: &names, groups: &groups });
        let policy = Policy::compile(&config.policy).map_err(|more| found.extend(more)).ok();
        let recording = Recording::compile(&config.audit.arguments).map_err(|more| found.extend(more)).ok();
        let upstreams = Upstreams::build(loaded, around.previous.map(|snapshot| &*snapshot.upstreams));
        let upstreams = upstreams.map_err(|more| found.extend(more)).ok();
        let issuers = Issuers::build(loaded, around.previous.map(|snapshot| &*snapshot.issuers));
        let issuers = issuers.map_err(|more| found.extend(more)).ok();
        let clients = Clients::build(loaded).map_err(|more| found.extend(more)).ok();
        let hooks = Hooks::build(loaded).map_err(|more| found.extend(more)).ok();
        let tracing = Tracing::build(loaded).map_err(|more| found.extend(more)).unwrap_or_default();
        let sinks = audit::Sink::build(loaded).map_err(|more| found.extend(more)).unwrap_or_default();
        let document_authorities = document_authorities(loaded).map_err(|problem| found.push(*problem)).ok();
        // While it runs, the listener has its own eye on them, and a renewal under way is no fault of this file.
        if around.previous.is_none() {
            found.extend(listeners_tls(loaded));
        }
        found.extend(crate::policy::unapprovable(&config.policy, &known, !config.identity.issuers.is_empty()));
        if let Some(policy) = &policy {
            found.extend(policy.run_tests(&config.policy.tests, |name| groups_of(&users, name)));
        }
        let (errors, warnings): (Vec<_>, Vec<_>) = found.into_iter().partition(Problem::is_error);
        let (
            Some(policy),
            Some(recording),
            Some(upstreams),
            Some(issuers),
            Some(clients),
            Some(hooks),
            Some(document_authorities),
            true,
        ) = (policy, recording, upstreams, issuers, clients, hooks, document_authorities, errors.is_empty())
        else {
            return Err(loaded.locate(errors));
        };
        let public_url: Arc<str> = public_url(config, around.listening).into();
        let mut dead_ends = crate::policy::lint(&config.policy);
        dead_ends.extend(crate::policy::lint_external(config).into_iter().chain(identity::ownerless(config, &users)));
        let server = Arc::new(AuthorizationServer::of(config, &public_url, &issuers));
        Ok(Snapshot {
            hash: hex_start(&loaded.hash),
            routes: routes(&public_url, &upstreams, &server),
            guard: Guard::of_agents(config, &public_url, around.listening),
            admin: config.admin.as_ref().map(|admin| Admin::of(admin, around.admin)),
            public_url,
            users,
            clients,
            document_authorities,
            issuers: Arc::new(issuers),
            policy,
            recording,
            upstreams: Arc::new(upstreams),
            hooks: Arc::new(hooks),
            tracing,
            sinks,
            data_dir,
            warnings,
            dead_ends,
            config: config.clone(),
        })
    }

    /// The groups of a user; none for someone who is not known here.
    pub fn groups_of(&self, user: &str) -> Vec<String> {
        groups_of(&self.users, user)
    }

    /// What telling webhooks needs to know; `None` where there is no page to lead people to.
    pub fn telling(self: &Arc<Self>) -> Option<InForce> {
        let this = Arc::clone(self);
        Some(InForce {
            hooks: Arc::clone(&self.hooks),
            admin_url: Arc::clone(&self.admin.as_ref()?.url),
            issuer: Arc::clone(&self.public_url),
            people: Arc::new(move |name| this.users.get(name).map(|person| Arc::clone(&person.groups))),
        })
    }

    /// The scopes that mean something here: the base scope first, then those that rules name, each once.
    pub fn scopes(&self) -> Vec<String> {
        let mut scopes = vec![BASE_SCOPE.to_owned()];
        scopes.extend(self.policy.scopes().filter(|scope| *scope != BASE_SCOPE).map(str::to_owned));
        scopes
    }

    /// How long an idle client connection is kept.
    pub fn keep_alive(&self) -> Duration {
        self.config.timeouts.keep_alive.duration()
    }
}

/// Reads and compiles `file` in one go, as `check` and offline commands need it.
///
/// # Errors
/// Every problem there is.
pub fn compile_file(file: &FilePath) -> Result<(config::Loaded, Snapshot), Problems> {
    let loaded = config::read(file)?;
    let listening = loaded.config.listen.parse().unwrap_or_else(|_| SocketAddr::from(([127, 0, 0, 1], 0)));
    let snapshot = Snapshot::compile(&loaded, &Surroundings { listening, admin: None, previous: None })?;
    Ok((loaded, snapshot))
}

fn groups_of(users: &Users, name: &str) -> Vec<String> {
    users.get(name).map(|person| person.groups.to_vec()).unwrap_or_default()
}

/// Everybody with their groups. While there is nobody yet, the first admin to come counts as one.
fn known_people(users: &Users) -> Vec<(String, Vec<String>)> {
    if users.is_empty() {
        return vec![("admin".to_owned(), vec!["admins".to_owned()])];
    }
    users.iter().map(|person| (person.name.to_string(), person.groups.to_vec())).collect()
}

/// What is wrong with the certificates and keys of the listeners.
fn listeners_tls(loaded: &config::Loaded) -> Vec<Problem> {
    let admin = loaded.config.admin.as_ref().and_then(|admin| admin.tls.as_ref());
    let agent = listener_tls(loaded, loaded.config.tls.as_ref(), &Path::root().key("tls"));
    let admin = listener_tls(loaded, admin, &Path::root().key("admin").key("tls"));
    agent.into_iter().chain(admin).collect()
}

/// What is wrong with a listener's certificate and key, said at their place in the file.
fn listener_tls(loaded: &config::Loaded, files: Option<&config::Tls>, at: &Path) -> Option<Problem> {
    let files = files?;
    // It is a secret like any other, and its file is nobody else's.
    if let Err(why) = config::read_secret(&loaded.resolve(&files.key)) {
        return Some(why.at(at.key("key")));
    }
    let (cert, key) = (loaded.resolve(&files.cert), loaded.resolve(&files.key));
    let (Some(cert), Some(key)) = (cert.to_str(), key.to_str()) else {
        return Some(Problem::new(at, "a path is not UTF-8"));
    };
    let Ok(Some((chain, key))) = pingora::tls::load_certs_and_key_files(cert, key) else {
        return Some(Problem::new(at, "no usable certificate and private key in PEM form in these files"));
    };
    pingora::tls::install_default_crypto_provider();
    let config = pingora::tls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    config.err().map(|why| Problem::new(at, format!("this certificate and key cannot be used: {why}")))
}

/// The certificates of `oauth.metadata_documents.ca`.
fn document_authorities(loaded: &config::Loaded) -> Result<Option<Authorities>, Box<Problem>> {
    let Some(file) = &loaded.config.oauth.metadata_documents.ca else {
        return Ok(None);
    };
    let at = Path::root().key("oauth").key("metadata_documents").key("ca");
    let read = std::fs::read(loaded.resolve(file)).map_err(|why| format!("cannot read {}: {why}", file.display()));
    read.and_then(|pem| Authorities::of_pem(&pem)).map(Some).map_err(|why| Box::new(Problem::new(at, why)))
}

fn user_problem(why: &impl std::fmt::Display) -> Problem {
    Problem::new(Path::root().key("identity").key("users"), why.to_string())
}

/// The origin clients type, without a slash at its end: as configured, or else the loopback address listened on.
pub fn public_url(config: &config::Config, listening: SocketAddr) -> String {
    origin(config.public_url.as_deref(), listening)
}

/// The origin approvers type, as far as the file alone says it: not where only a running gateway knows the port.
pub fn admin_url(config: &config::Config) -> Option<String> {
    let admin = config.admin.as_ref()?;
    let listening: SocketAddr = admin.listen.parse().ok()?;
    let is_said = admin.public_url.is_some() || listening.port() != 0;
    is_said.then(|| origin(admin.public_url.as_deref(), listening))
}

fn origin(url: Option<&str>, listening: SocketAddr) -> String {
    match url {
        // Normalised by the URL standard: lower-case host, no default port, no slash.
        Some(url) => url::Url::parse(url).map_or_else(|_| url.to_owned(), |url| url.origin().ascii_serialization()),
        None => format!("http://{listening}"),
    }
}

fn routes(public_url: &str, upstreams: &Upstreams, server: &Arc<AuthorizationServer>) -> BTreeMap<String, Arc<Route>> {
    let route = |upstream: &Arc<Upstream>| Route {
        name: Arc::clone(&upstream.name),
        resource: format!("{public_url}/mcp/{}", upstream.name),
        metadata_url: format!("{public_url}/.well-known/oauth-protected-resource/mcp/{}", upstream.name),
        server: Arc::clone(server),
        upstream: Arc::clone(upstream),
    };
    upstreams.iter().map(|upstream| (upstream.name.to_string(), Arc::new(route(upstream)))).collect()
}

fn hex_start(hash: &[u8; 32]) -> String {
    hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

// === impl AuthorizationServer ===

impl AuthorizationServer {
    fn of(config: &config::Config, public_url: &Arc<str>, issuers: &Issuers) -> Self {
        let external = config.identity.authorization_server.as_deref().and_then(|name| issuers.get(name));
        match external {
            Some(issuer) => AuthorizationServer {
                issuer: Arc::clone(&issuer.name),
                scopes: issuer.scopes_supported(),
                external: Some(Arc::clone(issuer)),
            },
            None => AuthorizationServer {
                issuer: Arc::clone(public_url),
                scopes: vec![BASE_SCOPE.to_owned()],
                external: None,
            },
        }
    }

    /// What one of our scopes is called there; `None` where it cannot be had.
    pub fn name_of_scope(&self, ours: &str) -> Option<String> {
        match &self.external {
            Some(issuer) => issuer.name_of_scope(ours),
            None => Some(ours.to_owned()),
        }
    }
}

// === impl Admin ===

impl Admin {
    fn of(admin: &config::Admin, listening: Option<SocketAddr>) -> Self {
        let written = || admin.listen.parse().unwrap_or_else(|_| SocketAddr::from(([127, 0, 0, 1], 0)));
        let listening = listening.unwrap_or_else(written);
        let url = origin(admin.public_url.as_deref(), listening);
        let guard = Guard::default().with(admin.behind_proxy.as_ref(), &url, listening);
        Admin { url: url.into(), guard }
    }

    /// Whether it is reached over plain HTTP, which is for this machine only: other programs of this machine, too, may then
    /// hold a session's cookie, since cookies ignore ports.
    pub fn is_plain(&self) -> bool {
        self.url.starts_with("http://")
    }
}

// === impl Guard ===

impl Guard {
    fn of_agents(config: &config::Config, public_url: &str, listening: SocketAddr) -> Self {
        let proxies = config.behind_proxy.as_ref();
        let guard = Guard { hosts: config.hosts.clone(), origins: config.origins.clone(), proxies: None };
        guard.with(proxies, public_url, listening)
    }

    /// With the names and the origin of a listener, and those that may connect to it.
    fn with(self, proxies: Option<&config::BehindProxy>, url: &str, listening: SocketAddr) -> Self {
        // `config::check` has refused what is no network; were there one, nobody would be in it.
        let networks = |proxy: &config::BehindProxy| proxy.from.iter().filter_map(|text| text.parse().ok()).collect();
        let mut guard = Guard { proxies: proxies.map(networks), ..self };
        guard.origins.push(url.to_owned());
        guard.hosts.extend(url.split_once("://").map(|(_, host)| host.to_owned()));
        if listening.ip().is_loopback() {
            let port = listening.port();
            for name in ["localhost", "127.0.0.1", "[::1]"] {
                guard.hosts.push(format!("{name}:{port}"));
                if port == 80 {
                    guard.hosts.push(name.to_owned());
                }
            }
        }
        for host in &mut guard.hosts {
            host.make_ascii_lowercase();
        }
        guard
    }

    /// Whether a connection may come from this address: with `behind_proxy`, only from the proxies named there.
    pub fn is_peer(&self, address: Option<IpAddr>) -> bool {
        let Some(proxies) = &self.proxies else {
            return true;
        };
        address.is_some_and(|address| proxies.iter().any(|network| network.contains(address)))
    }

    /// The client's address. Behind trusted proxies it is the last one in `X-Forwarded-For` that is no proxy of ours:
    /// each proxy adds the address it saw at the end, and what stands before that is whatever a client wrote itself.
    pub fn client_address<'a>(&self, peer: IpAddr, forwarded: impl DoubleEndedIterator<Item = &'a str>) -> IpAddr {
        let Some(proxies) = &self.proxies else {
            return peer.to_canonical();
        };
        let is_proxy = |address: IpAddr| proxies.iter().any(|network| network.contains(address));
        let mut seen = peer;
        for hop in forwarded.rev().flat_map(|line| line.rsplit(',')) {
            if !is_proxy(seen) {
                break;
            }
            let Ok(address) = hop.trim().parse() else {
                break;
            };
            seen = address;
        }
        seen.to_canonical()
    }

    /// Our names, as a request's `Host` has them.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Whether a request's `Host` is one of our names. Compared as written, but for the case of letters.
    pub fn is_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host))
    }

    /// Whether pages of this `Origin` may call us (RFC 6454 §7).
    pub fn is_origin(&self, origin: &str) -> bool {
        self.origins.iter().any(|ours| ours == origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        Guard {
            hosts: vec!["gw.example.test".to_owned(), "127.0.0.1:8080".to_owned()],
            origins: vec!["https://gw.example.test".to_owned()],
            proxies: None,
        }
    }

    #[test]
    fn only_our_own_names_are_hosts() {
        for ours in ["gw.example.test", "GW.example.test", "127.0.0.1:8080"] {
            assert!(guard().is_host(ours), "{ours}");
        }
        for theirs in
            ["evil.test", "gw.example.test.evil.test", "gw.example.test:81", "127.0.0.1", "good@evil.test", ""]
        {
            assert!(!guard().is_host(theirs), "{theirs}");
        }
    }

    #[test]
    fn only_proxies_may_connect_where_there_are_any() {
        let proxies = ["10.0.0.0/8", "::1"].map(|text| text.parse().unwrap());
        let closed = Guard { proxies: Some(proxies.to_vec()), ..guard() };
        for proxy in ["10.1.2.3", "::ffff:10.1.2.3", "::1"] {
            assert!(closed.is_peer(proxy.parse().ok()), "{proxy}");
        }
        for stranger in ["11.0.0.1", "127.0.0.1", "::2"] {
            assert!(!closed.is_peer(stranger.parse().ok()), "{stranger}");
            assert!(guard().is_peer(stranger.parse().ok()), "{stranger}");
        }
        assert!(!closed.is_peer(None), "an address that is not known is not a proxy's");
    }

    #[test]
    fn a_client_cannot_choose_its_address() {
        let address = |guard: &Guard, peer: &str, forwarded: &[&str]| {
            guard.client_address(peer.parse().unwrap(), forwarded.iter().copied()).to_string()
        };
        let behind = Guard { proxies: Some(vec!["10.0.0.0/8".parse().unwrap()]), ..guard() };

        assert_eq!(address(&guard(), "192.0.2.1", &["198.51.100.7"]), "192.0.2.1");
        assert_eq!(address(&behind, "10.0.0.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(address(&behind, "10.0.0.1", &["203.0.113.9, 198.51.100.7, 10.2.2.2"]), "198.51.100.7");
        assert_eq!(address(&behind, "10.0.0.1", &["203.0.113.9", "198.51.100.7"]), "198.51.100.7");
        assert_eq!(address(&behind, "10.0.0.1", &["203.0.113.9, unknown"]), "10.0.0.1");
        assert_eq!(address(&behind, "10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(address(&behind, "::ffff:10.0.0.1", &["::ffff:198.51.100.7"]), "198.51.100.7");
    }

    #[test]
    fn only_whole_origins_are_ours() {
        assert!(guard().is_origin("https://gw.example.test"));
        for theirs in
            ["http://gw.example.test", "https://gw.example.test:444", "null", "https://gw.example.test.evil.test"]
        {
            assert!(!guard().is_origin(theirs), "{theirs}");
        }
    }
}
