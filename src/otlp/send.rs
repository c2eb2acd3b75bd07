//! One batch, sent once, and what the collector said of it (OTLP specification, "OTLP/HTTP Response").

use super::message::{
    ExportLogsServiceRequest, ExportServiceResponse, ExportTraceServiceRequest, InstrumentationScope, LogRecord,
    Resource, ResourceLogs, ResourceSpans, RpcStatus, ScopeLogs, ScopeSpans, Span,
};
use crate::fetch::{Answer, Authorities, Fetcher, Post};
use crate::redact::Redactor;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use prost::Message as _;
use std::time::Duration;
use url::Url;

/// Where an OpenTelemetry collector takes one kind of thing, over HTTP.
#[derive(Clone, PartialEq)]
pub struct Collector {
    /// Its whole URL, such as `http://127.0.0.1:4318/v1/traces`; no path is added to it.
    pub url: Url,
    /// Trusted instead of the system's roots.
    pub authorities: Option<Authorities>,
    /// Sent along; credentials among them.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// From looking up the name to the last byte of the answer.
    pub limit: Duration,
}

/// A batch is at the collector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// So many of it the collector did not want; sending them again changes nothing.
    pub n_rejected: u64,
    /// What it says about that. A text of the collector's own.
    pub note: Option<String>,
}

/// A batch is not at the collector, as far as we know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// The same batch may be taken later.
    #[error("{why}")]
    Yet {
        /// What happened.
        why: String,
        /// The collector asks not to be sent anything for this long.
        after: Option<Duration>,
    },
    /// It will never be: it must not be sent again.
    #[error("{0}")]
    Ever(String),
}

/// How long to wait before the next attempt: a second at first, twice as long each time, half a minute at most; the last half of
/// it is left to chance, so that a thousand gateways do not come back at once.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

const FIRST_PAUSE_MS: u64 = 1_000;
const LONGEST_PAUSE_MS: u64 = 30_000;
/// A collector that asks for more patience than this gets this much.
const LONGEST_ASKED: Duration = Duration::from_secs(300);
/// A larger answer is not read.
const LARGEST_ANSWER: usize = 64 * 1024;
/// More of a collector's own words is not kept.
const LONGEST_NOTE: usize = 200;
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

// === impl Collector ===

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the headers: credentials stand there. Not the whole URL: its query may hold one.
        write!(f, "Collector({}{})", self.url.origin().ascii_serialization(), self.url.path())
    }
}

impl Collector {
    /// Sends spans, once.
    ///
    /// # Errors
    /// [`NotTaken`]: they are not there, and whether to send them again.
    pub async fn send_spans(
        &self,
        fetcher: &Fetcher,
        resource: &Resource,
        spans: Vec<Span>,
    ) -> Result<Taken, NotTaken> {
        let scope_spans = vec![ScopeSpans { scope: Some(InstrumentationScope::ours()), spans }];
        let of_us = ResourceSpans { resource: Some(resource.clone()), scope_spans, schema_url: String::new() };
        self.send(fetcher, ExportTraceServiceRequest { resource_spans: vec![of_us] }.encode_to_vec()).await
    }

    /// Sends log records, once.
    ///
    /// # Errors
    /// [`NotTaken`]: they are not there, and whether to send them again.
    pub async fn send_logs(
        &self,
        fetcher: &Fetcher,
        resource: &Resource,
        log_records: Vec<LogRecord>,
    ) -> Result<Taken, NotTaken> {
        let scope_logs = vec![ScopeLogs { scope: Some(InstrumentationScope::ours()), log_records }];
        let of_us = ResourceLogs { resource: Some(resource.clone()), scope_logs };
        self.send(fetcher, ExportLogsServiceRequest { resource_logs: vec![of_us] }.encode_to_vec()).await
    }

    async fn send(&self, fetcher: &Fetcher, body: Vec<u8>) -> Result<Taken, NotTaken> {
        let mut headers = self.headers.clone();
        headers.push((CONTENT_TYPE, PROTOBUF));
        let post = Post {
            url: &self.url,
            authorities: self.authorities.as_ref(),
            headers,
            body: Bytes::from(body),
            limit: self.limit,
            max_bytes: LARGEST_ANSWER,
        };
        let answer = fetcher.post(post).await;
        judged(&answer.map_err(|error| NotTaken::Yet { why: error.to_string(), after: None })?)
    }
}

/// What an answer means for the batch.
fn judged(answer: &Answer) -> Result<Taken, NotTaken> {
    let body = answer.body.as_deref().unwrap_or_default();
    let status = answer.status;
    if status.is_success() {
        // A body that is none of the protocol says nothing; what is said is that it was taken.
        let said = ExportServiceResponse::decode(body).unwrap_or_default().partial_success.unwrap_or_default();
        let n_rejected = u64::try_from(said.rejected).unwrap_or_default();
        return Ok(Taken { n_rejected, note: note(&said.error_message) });
    }
    let words = RpcStatus::decode(body).ok().and_then(|said| note(&said.message));
    let why = match words {
        Some(words) => format!("it answered with status {}: {words}", status.as_u16()),
        None => format!("it answered with status {}", status.as_u16()),
    };
    let is_for_now = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    if is_for_now { Err(NotTaken::Yet { why, after: asked_pause(answer) }) } else { Err(NotTaken::Ever(why)) }
}

/// `Retry-After` in seconds, which is what the specification names; a date is not read.
fn asked_pause(answer: &Answer) -> Option<Duration> {
    let text = answer.headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs).map(|asked| asked.min(LONGEST_ASKED))
}

/// The collector's words as one line that cannot be taken for more.
fn note(words: &str) -> Option<String> {
    let words = Redactor::of_process().text(words);
    let line = words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST_NOTE).collect::<String>();
    let line = line.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

// === impl Backoff ===

impl Backoff {
    /// Another attempt has failed; gives how long to wait, no shorter than the collector asked for.
    pub fn failed(&mut self, asked: Option<Duration>) -> Duration {
        let whole = FIRST_PAUSE_MS.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE_MS);
        self.failures = self.failures.saturating_add(1);
        let chance = u64::from(u32::from_be_bytes(crate::id::random_bytes()));
        let half = whole / 2;
        let pause = Duration::from_millis(half + (half * chance) / u64::from(u32::MAX));
        asked.map_or(pause, |asked| asked.max(pause))
    }

    /// An attempt went well.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;

    fn answer(status: u16, retry_after: Option<&'static str>, body: &[u8]) -> Answer {
        let mut headers = HeaderMap::new();
        headers.extend(retry_after.map(|text| (RETRY_AFTER, HeaderValue::from_static(text))));
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, headers, body: Some(Bytes::copy_from_slice(body)) }
    }

    fn after(answer: &Answer) -> Option<Option<u64>> {
        match judged(answer) {
            Err(NotTaken::Yet { after, .. }) => Some(after.map(|pause| pause.as_secs())),
            _ => None,
        }
    }

    #[test]
    fn four_statuses_are_worth_another_attempt_and_no_other() {
        for status in [429, 502, 503, 504] {
            assert_eq!(after(&answer(status, None, b"")), Some(None), "{status}");
        }
        for status in [301, 400, 401, 403, 404, 408, 413, 415, 500, 501, 505] {
            assert!(matches!(judged(&answer(status, None, b"")), Err(NotTaken::Ever(_))), "{status}");
        }
    }

    #[test]
    fn a_collector_that_asks_for_patience_gets_it_within_reason() {
        for (text, seconds) in [("7", Some(7)), (" 0 ", Some(0)), ("99999999", Some(300)), ("-1", None), ("soon", None)]
        {
            assert_eq!(after(&answer(503, Some(text), b"")), Some(seconds), "{text}");
        }
    }

    #[test]
    fn what_was_not_wanted_of_a_batch_is_read_and_never_sent_again() {
        let said = super::super::PartialSuccess { rejected: 3, error_message: "too old\n\u{1b}[31m".to_owned() };
        let body = ExportServiceResponse { partial_success: Some(said) }.encode_to_vec();

        let taken = judged(&answer(200, None, &body)).unwrap();

        assert_eq!(taken, Taken { n_rejected: 3, note: Some("too old  [31m".to_owned()) });
        assert_eq!(judged(&answer(200, None, b"")), Ok(Taken::default()));
        assert_eq!(judged(&answer(200, None, b"{\"not\":\"protobuf\"}")), Ok(Taken::default()));
    }

    #[test]
    fn the_words_of_an_error_are_told() {
        let body = RpcStatus { message: "no such tenant".to_owned() }.encode_to_vec();

        let why = judged(&answer(403, None, &body)).unwrap_err();

        assert_eq!(why.to_string(), "it answered with status 403: no such tenant");
    }

    #[test]
    fn pauses_double_to_half_a_minute_and_begin_again_after_a_success() {
        let mut backoff = Backoff::default();
        for whole in [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            let pause = backoff.failed(None).as_millis();
            assert!((whole / 2..=whole).contains(&pause), "{pause} of {whole}");
        }
        assert_eq!(backoff.failed(Some(Duration::from_secs(120))).as_secs(), 120);

        backoff.reset();

        assert!(backoff.failed(None).as_millis() <= 1_000);
    }
}
