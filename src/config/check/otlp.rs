//! Where OpenTelemetry data goes, and whether it can be read on the way.

use super::upstreams;
use crate::config::Otlp;
use crate::config::origin::is_loopback;
use crate::config::problem::{Path, Problem};

/// What is wrong with a collector. `example` says how its URL is written.
pub(super) fn check(otlp: &Otlp, example: &'static str, path: &Path, problems: &mut Vec<Problem>) {
    upstreams::headers(&otlp.headers, &path.key("headers"), problems);
    let at = path.key("url");
    let url = match upstreams::endpoint(&otlp.url, example) {
        Ok(url) => url,
        Err((message, hint)) => return problems.push(Problem::new(at, message).hint(hint)),
    };
    if url.scheme() == "https" {
        return;
    }
    if otlp.ca.is_some() {
        problems.push(Problem::new(path.key("ca"), "`ca` has no meaning for an `http://` URL"));
    }
    if !url.host().is_some_and(|host| is_loopback(&host)) {
        problems.push(
            Problem::new(at, "what is sent there could be read and changed on the way")
                .hint("write `https://`. Plain `http` works for this machine only"),
        );
    }
}
