//! The one integration-test binary, its modules in reading order: the harness, then the tests as a call walks, then
//! what no compiler checks. `tidy` sees to it that no file is forgotten.

mod support;

/// The data path.
mod proxy {
    mod arguments;
    mod bytes;
    mod doors;
    mod headers;
    mod messages;
    mod methods;
    mod nothing_slips_through;
    mod real_clients;
    mod tokens;
}
/// Public bug reports.
mod cases;
mod policy;

mod tidy;
