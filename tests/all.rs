//! The one integration-test binary, its modules in reading order: the harness, then the tests as a call walks.

mod support;

/// The data path.
mod proxy {
    mod peer;
    mod real_clients;
}
mod audit_log;
mod cli;
mod metrics;
mod policy;
mod reload;
mod tls_listener;
mod upstreams;
