//! The one integration-test binary, its modules in reading order: the harness, then the tests as a call walks.

mod support;

/// The data path.
mod proxy {
    mod real_clients;
}
/// Public bug reports.
mod cases;
mod policy;
