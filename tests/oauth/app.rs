//! The clients of the tests about tokens. They are written in the configuration, and their codes straight into the store,
//! as `/authorize` writes them: what is tried here is what comes after.

use super::RULES;
use crate::support::gate::Gate;
use crate::support::gateway::{Gateway, IDENTITY, in_front_of};
use crate::support::http::Response;
use crate::support::oauth::{CALLBACK, Client, Tokens, challenge, token};
use portcullis::store::{Code, Store, Subject};
use ring::digest::{SHA256, digest};
use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The secret of the clients that have one.
pub(super) const SECRET: &str = "secret-of-a-client-of-the-tests-0123456789abcdef";

/// `app` and `other` are public. `checker` is a machine of alice's for route `up` that people can log in with, too, `stranger`
/// one for no route that is there but its own.
fn identity() -> String {
    let hash: String = digest(&SHA256, SECRET.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let machine = |id: &str, routes: &str| {
        format!(
            "    - {{ id: {id}, secret_hash: \"sha256:{hash}\", owner: alice, groups: [ci], routes: [{routes}], \
             redirect_uris: [\"{CALLBACK}\"] }}\n"
        )
    };
    format!(
        "{IDENTITY}  clients:\n    - {{ id: app, redirect_uris: [\"{CALLBACK}\"] }}\n    - {{ id: other, redirect_uris: \
         [\"{CALLBACK}\"] }}\n{}{}",
        machine("checker", "up"),
        machine("stranger", "two"),
    )
}

/// A gateway with those clients and these further top-level keys, in front of a recorder as `up`; `two` is behind nothing.
pub(super) fn configuration(url: &str, top: &str) -> String {
    with_rules(url, top, RULES)
}

/// The same with these rules (the list under `policy.rules`).
pub(super) fn with_rules(url: &str, top: &str, rules: &str) -> String {
    let up = in_front_of(url, rules);
    let two = "upstreams:\n  two: { http: { url: \"http://127.0.0.1:9/mcp\" } }\n";
    format!("{top}\n{}\n{}", up.replace("upstreams:\n", two), identity())
}

/// The same, running.
pub(super) fn gate(top: &str) -> Gate {
    Gate::with(|url| configuration(url, top))
}

/// The public client `app`.
pub(super) fn app() -> Client {
    of("app", None)
}

/// A client of the configuration, by its id.
pub(super) fn of(id: &str, secret: Option<&str>) -> Client {
    Client { id: id.to_owned(), secret: secret.map(str::to_owned), redirect_uri: CALLBACK.to_owned() }
}

/// Writes codes into a gateway's store, as another process that shares it.
pub(super) struct Codes {
    store: Store,
    issuer: String,
    runtime: tokio::runtime::Runtime,
}

/// What a client has when its person comes back.
#[derive(Clone, Debug)]
pub(super) struct Back {
    pub(super) code: String,
    pub(super) verifier: String,
}

impl Codes {
    /// For the tokens of this issuer.
    pub(super) fn of(gateway: &Gateway, issuer: &str) -> Codes {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let store = runtime.block_on(Store::open(&gateway.path("data"))).expect("the store of the gateway");
        Codes { store, issuer: issuer.to_owned(), runtime }
    }

    /// A code of alice's for `app` and the route `up`.
    pub(super) fn write(&self) -> Back {
        static N: AtomicUsize = AtomicUsize::new(0);
        let n = N.fetch_add(1, Ordering::Relaxed);
        let (code, verifier) = (format!("code-of-a-test-{n}"), format!("{n:0>50}"));
        let written = Code {
            digest: digest(&SHA256, code.as_bytes()).as_ref().try_into().expect("32 bytes"),
            issuer: self.issuer.as_str().into(),
            subject: Subject::User("alice".into()),
            client: "app".into(),
            resource: format!("{}/mcp/up", self.issuer).into(),
            scopes: ["mcp".to_owned()].into(),
            password_mark: None,
            redirect_uri: CALLBACK.to_owned(),
            challenge: challenge(&verifier),
            expires_at_ms: portcullis::clock::Clock::System.unix_ms() + 60_000,
        };
        self.runtime.block_on(self.store.insert_code(written)).expect("the store takes it");
        Back { code, verifier }
    }

    /// Tokens of a new login.
    pub(super) fn log_in(&self, gateway: &Gateway) -> Tokens {
        let back = self.write();
        Tokens::of(&token(gateway, &app().redeem(&back.code, &back.verifier)))
    }

    /// Whether this grant is revoked.
    pub(super) fn is_revoked(&self, grant: &str) -> bool {
        let grant = self.runtime.block_on(self.store.grant(grant)).expect("the store answers");
        grant.expect("the grant is there").revoked.is_some()
    }
}

/// Sends the same to `n` connections, spread over these gateways, at once.
pub(super) fn at_once(to: &[SocketAddr], n: usize, request: &crate::support::http::Request) -> Vec<Response> {
    let barrier = Barrier::new(n);
    thread::scope(|scope| {
        let send = |at: usize| {
            let (barrier, address) = (&barrier, to[at % to.len()]);
            scope.spawn(move || {
                let mut connection = crate::support::http::Connection::open(address);
                barrier.wait();
                connection.send(&request.to_bytes(&address.to_string()));
                connection.response()
            })
        };
        let all: Vec<_> = (0..n).map(send).collect();
        all.into_iter().map(|one| one.join().expect("an answer")).collect()
    })
}
