//! The one integration-test binary, its modules in reading order: the harness, then the tests as a call walks, then
//! what an operator does, then what no compiler checks. `tidy` sees to it that no file is forgotten.

mod support;

/// The data path.
mod proxy {
    mod arguments;
    mod bytes;
    mod doors;
    mod faults;
    mod forgeries;
    mod framing;
    mod headers;
    mod http2;
    mod leaks;
    mod messages;
    mod methods;
    mod nothing_slips_through;
    mod peer;
    mod real_clients;
    mod slow_clients;
    mod tokens;
}
/// Calls that wait for a person.
mod approval;
mod conformance;
/// Tokens of authorization servers that are not ours.
mod issuers;
mod oauth;
mod policy;
mod sandbox;
/// A few actions on one host.
mod ssh;
mod upstreams;

mod audit;
mod metrics;
/// What an operator sees.
mod observe;
mod tls_listener;

mod bench;
mod cli;
mod reload;

/// Public bug reports.
mod cases;

mod tidy;
