//! `traces` and other places of the configuration where a collector stands, made ready for use: secrets and certificates
//! read, and the share of requests as a threshold.

use crate::config::{self, Path, Problem};
use crate::fetch::Authorities;
use crate::otlp::Collector;
use http::{HeaderName, HeaderValue};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// One request to a collector may take this long.
const LIMIT: Duration = Duration::from_secs(10);
/// Of the seven last bytes of a trace id, which are random (W3C Trace Context Level 2, "random-trace-id flag").
const RANDOM: u64 = 1 << 56;

/// What `traces` says.
#[derive(Debug)]
pub struct Tracing {
    /// Where spans go.
    pub collector: Arc<Collector>,
    /// A trace whose random part is this or more is sampled.
    threshold: u64,
}

impl Tracing {
    /// That of a configuration; `None` where it has no `traces`.
    ///
    /// # Errors
    /// Every secret that is none, and every file that cannot be used.
    pub fn build(loaded: &config::Loaded) -> Result<Option<Arc<Tracing>>, Vec<Problem>> {
        let Some(written) = &loaded.config.traces else {
            return Ok(None);
        };
        let path = Path::root().key("traces").key("otlp");
        let collector = Arc::new(collector(&written.otlp, loaded, &path)?);
        Ok(Some(Arc::new(Tracing { collector, threshold: threshold(written.sample) })))
    }

    /// Whether a trace is sampled that no client has decided on: the same for the same trace id everywhere, so that
    /// gateways in a row take the same ones.
    pub(super) fn samples(&self, trace: &[u8; 16]) -> bool {
        let [.., a, b, c, d, e, f, g] = *trace;
        u64::from_be_bytes([0, a, b, c, d, e, f, g]) >= self.threshold
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 2^56, which is exact")]
#[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
fn threshold(sample: f64) -> u64 {
    ((1.0 - sample.clamp(0.0, 1.0)) * RANDOM as f64) as u64
}

/// A collector as written at `path`, with its secrets and certificates read.
///
/// # Errors
/// Every secret that is none, and every file that cannot be used.
pub fn collector(written: &config::Otlp, loaded: &config::Loaded, path: &Path) -> Result<Collector, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut headers = Vec::new();
    for (name, text) in &written.headers {
        let at = path.clone().key("headers").key(name);
        match text.resolve(loaded.directory()) {
            Err(why) => problems.push(why.at(at)),
            Ok(value) => match (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.expose().as_str())) {
                (Ok(name), Ok(mut value)) => {
                    value.set_sensitive(true);
                    headers.push((name, value));
                }
                _ => problems.push(Problem::new(at, "this cannot be sent in a header")),
            },
        }
    }
    let authorities = written.ca.as_ref().map(|file| {
        let pem = std::fs::read(loaded.resolve(file)).map_err(|why| format!("cannot read {}: {why}", file.display()));
        pem.and_then(|pem| Authorities::of_pem(&pem))
    });
    let authorities = authorities.transpose().map_err(|why| problems.push(Problem::new(path.clone().key("ca"), why)));
    let url =
        Url::parse(&written.url).map_err(|why| problems.push(Problem::new(path.clone().key("url"), why.to_string())));
    match (authorities, url) {
        (Ok(authorities), Ok(url)) if problems.is_empty() => Ok(Collector { url, authorities, headers, limit: LIMIT }),
        _ => Err(problems),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(sample: f64) -> usize {
        let collector = Collector {
            url: "http://127.0.0.1/".parse().unwrap(),
            authorities: None,
            headers: Vec::new(),
            limit: LIMIT,
        };
        let tracing = Tracing { collector: Arc::new(collector), threshold: threshold(sample) };
        (0..10_000).filter(|_| tracing.samples(&crate::id::random_bytes())).count()
    }

    #[test]
    fn the_share_of_sampled_traces_is_the_one_that_is_written() {
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 10_000));
        for (sample, expected) in [(0.5, 4_500..=5_500), (0.1, 800..=1_200)] {
            let n = sampled(sample);
            assert!(expected.contains(&n), "{n} of 10,000 at {sample}");
        }
    }
}
