//! The one integration-test binary, its modules in reading order: the harness, then the tests as a call walks.

mod support;

/// The data path.
mod proxy {
    mod arguments;
    mod bytes;
    mod doors;
    mod forgeries;
    mod headers;
    mod messages;
    mod methods;
    mod nothing_slips_through;
    mod real_clients;
    mod tokens;
}
mod policy;
