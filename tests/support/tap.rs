//! A listener between clients and the gateway that keeps every byte of both directions: what a client really sent and was
//! told, whichever program it is. The gateway's `public_url` is the tap's.

use super::canary::Canary;
use super::http::Response;
use super::wire::{self, Framing, Headers};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::fmt;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A running tap.
pub(crate) struct Tap {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    leads_to: Mutex<Option<SocketAddr>>,
    connections: Mutex<Vec<Connection>>,
    n_pieces: AtomicUsize,
}

/// What went over one connection.
#[derive(Clone, Default)]
struct Connection {
    sent: Vec<u8>,
    /// Where pieces of `sent` begin, and when they came: counted over all connections.
    times: Vec<(usize, usize)>,
    answered: Vec<u8>,
}

/// A request and what was answered.
#[derive(Clone)]
pub(crate) struct Exchange {
    /// Its method.
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// Its header fields.
    pub(crate) headers: Headers,
    /// Its body.
    pub(crate) body: Vec<u8>,
    /// The answer, if one came whole.
    pub(crate) response: Option<Response>,
    at: usize,
}

// === impl Tap ===

impl Tap {
    /// On a port of 127.0.0.1. It leads nowhere yet.
    pub(crate) fn start() -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let to = Arc::clone(&shared);
        thread::spawn(move || listener.incoming().flatten().for_each(|client| to.relay(client)));
        Tap { address, shared }
    }

    /// Its origin.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads new connections here.
    pub(crate) fn lead_to(&self, gateway: SocketAddr) {
        *self.shared.leads_to.lock().expect("no thread of the tap panics") = Some(gateway);
    }

    /// Everything that was asked so far, in its order.
    pub(crate) fn exchanges(&self) -> Vec<Exchange> {
        let connections = self.shared.connections().clone();
        let mut all: Vec<Exchange> = connections.iter().flat_map(Connection::exchanges).collect();
        all.sort_by_key(|exchange| exchange.at);
        all
    }

    /// What was asked of this path.
    pub(crate) fn asked(&self, method: &str, path: &str) -> Vec<Exchange> {
        let is_it = |exchange: &Exchange| exchange.method == method && exchange.path() == path;
        self.exchanges().into_iter().filter(is_it).collect()
    }

    /// Token requests of this grant type that were granted.
    pub(crate) fn granted(&self, grant_type: &str) -> Vec<Exchange> {
        let is_it = |exchange: &Exchange| {
            exchange.form("grant_type").as_deref() == Some(grant_type)
                && exchange.response.as_ref().is_some_and(|response| response.status == 200)
        };
        self.asked("POST", "/token").into_iter().filter(is_it).collect()
    }

    /// Every secret that went over the wire. One of a few characters is not: it stands everywhere by chance.
    pub(crate) fn secrets(&self) -> Vec<Canary> {
        let mut all: Vec<Canary> = self.exchanges().iter().flat_map(Exchange::secrets).collect();
        all.retain(|secret| secret.value.len() >= 8);
        all.sort();
        all.dedup();
        all
    }
}

impl Shared {
    fn connections(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.connections.lock().expect("no thread of the tap panics")
    }

    fn relay(self: &Arc<Shared>, client: TcpStream) {
        let leads_to = *self.leads_to.lock().expect("no thread of the tap panics");
        // Without a gateway there is nothing to say: the client is closed on.
        let Some(Ok(gateway)) = leads_to.map(TcpStream::connect) else {
            return;
        };
        let n = {
            let mut connections = self.connections();
            connections.push(Connection::default());
            connections.len() - 1
        };
        let halves = client.try_clone().and_then(|other| gateway.try_clone().map(|gateway| (other, gateway)));
        let Ok((client_again, gateway_again)) = halves else {
            return;
        };
        let keeper = Arc::clone(self);
        thread::spawn(move || copy(client, gateway, |piece| keeper.keep_sent(n, piece)));
        let keeper = Arc::clone(self);
        thread::spawn(move || {
            copy(gateway_again, client_again, |piece| keeper.connections()[n].answered.extend_from_slice(piece));
        });
    }

    fn keep_sent(&self, n: usize, piece: &[u8]) {
        let now = self.n_pieces.fetch_add(1, Ordering::SeqCst);
        let connection = &mut self.connections()[n];
        connection.times.push((connection.sent.len(), now));
        connection.sent.extend_from_slice(piece);
    }
}

/// Copies until one side ends. What is passed on was kept before.
fn copy(mut from: TcpStream, mut to: TcpStream, keep: impl Fn(&[u8])) {
    let mut piece = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = from.read(&mut piece) {
        keep(&piece[..n]);
        if to.write_all(&piece[..n]).is_err() {
            // Nobody is left to read for.
            drop(from.shutdown(Shutdown::Both));
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
}

// === impl Connection, Exchange ===

impl Connection {
    fn exchanges(&self) -> Vec<Exchange> {
        let (mut sent, mut answered) = (self.sent.as_slice(), self.answered.as_slice());
        let mut all = Vec::new();
        loop {
            let begin = self.sent.len() - sent.len();
            let Ok(Some(head)) = wire::read_head(&mut sent) else {
                return all;
            };
            let mut words = head.start.splitn(3, ' ').map(str::to_owned);
            let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let body = Framing::of_request(&head.headers).rest(&mut sent).unwrap_or_default();
            let at = self.times.iter().rfind(|(from, _)| *from <= begin).map_or(0, |(_, at)| *at);
            all.push(Exchange { method, target, headers: head.headers, body, response: response(&mut answered), at });
        }
    }
}

/// A line, as one reads it in a failure.
impl fmt::Debug for Exchange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = self.response.as_ref().map_or("no answer".to_owned(), |response| response.status.to_string());
        write!(formatter, "{} {} → {answer}", self.method, self.target)?;
        let failed = self.response.as_ref().filter(|response| response.status >= 400);
        failed.map_or(Ok(()), |response| write!(formatter, ": {}", response.text()))
    }
}

/// The next whole response.
fn response(answered: &mut &[u8]) -> Option<Response> {
    let head = wire::read_head(answered).ok().flatten()?;
    let status = head.start.split(' ').nth(1)?.parse().ok()?;
    let body = Framing::of_response(status, &head.headers).rest(answered).ok()?;
    Some(Response { status, headers: head.headers, body })
}

impl Exchange {
    /// Its target without the query.
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A parameter of its form.
    pub(crate) fn form(&self, name: &str) -> Option<String> {
        url::form_urlencoded::parse(&self.body).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    /// A member of the JSON that was answered.
    #[track_caller]
    pub(crate) fn answered(&self, name: &str) -> String {
        let response = self.response.as_ref().unwrap_or_else(|| panic!("no answer to {self:?}"));
        let json = response.json();
        json[name].as_str().unwrap_or_else(|| panic!("no {name} in {json}")).to_owned()
    }

    /// Secrets in it, wherever they stand.
    fn secrets(&self) -> Vec<Canary> {
        let mut found = Vec::new();
        let mut take = |what: String, value: &str| found.push(Canary::new(what, value));
        let at = format!("{} {}", self.method, self.path());
        for value in self.headers.all("authorization") {
            match value.split_once(' ') {
                Some(("Basic", pair)) => {
                    let pair = STANDARD.decode(pair).unwrap_or_default();
                    let pair = String::from_utf8_lossy(&pair).into_owned();
                    take(format!("the client's secret in {at}"), pair.split_once(':').unwrap_or_default().1);
                }
                Some((_, token)) => take_token(&mut take, format!("the bearer token of {at}"), token),
                None => {}
            }
        }
        if self.headers.get("content-type").is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded")) {
            for (name, value) in url::form_urlencoded::parse(&self.body).filter(|(name, _)| is_secret(name)) {
                take_token(&mut take, format!("`{name}` of {at}"), &value);
            }
        }
        let Some(response) = &self.response else {
            return found;
        };
        for cookie in response.headers.all("set-cookie") {
            let (name, value) = cookie.split(';').next().and_then(|pair| pair.split_once('=')).unwrap_or_default();
            take(format!("the cookie {name}"), value);
        }
        let location = response.header("location").unwrap_or_default();
        for (name, value) in super::browser::parameters(location).iter().filter(|(name, _)| name == "code") {
            take(format!("`{name}` in the redirect of {at}"), value);
        }
        if let Ok(Value::Object(members)) = serde_json::from_slice::<Value>(&response.body) {
            for (name, value) in members.iter().filter(|(name, _)| is_secret(name)) {
                take_token(&mut take, format!("`{name}` answered to {at}"), value.as_str().unwrap_or_default());
            }
        }
        found
    }
}

fn is_secret(name: &str) -> bool {
    const SECRETS: &[&str] = &[
        "access_token",
        "client_assertion",
        "client_secret",
        "code",
        "code_verifier",
        "password",
        "refresh_token",
        "registration_access_token",
        "token",
    ];
    SECRETS.contains(&name)
}

/// Of a JWT its signature is the secret part; the rest is claims, of which some are in the records by right.
fn take_token(take: &mut impl FnMut(String, &str), what: String, value: &str) {
    if value.starts_with("ey") && value.split('.').count() == 3 {
        take(format!("the signature of {what}"), value.rsplit('.').next().unwrap_or_default());
    }
    take(what, value);
}
