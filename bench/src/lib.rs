//! What the parts of `make bench` share: HTTP/1.1 as far as they need it, and the calls that are made.

pub mod arguments;
pub mod http;
pub mod payload;
pub mod report;
