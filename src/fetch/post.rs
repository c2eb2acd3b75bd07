//! One small HTTP POST, bounded as a fetch is: no redirect is followed, no credential but what the caller puts in, no
//! pooled connection.

use super::{AGENT, Authorities, Error, Fetcher, Get, Reach, host_of, lost, target_of};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession;
use std::time::Duration;
use tokio::time::timeout;
use url::Url;

/// What is sent, and what it may cost.
#[derive(Clone, Debug)]
pub struct Post<'a> {
    /// `https`, or `http` where that is enough; whether it is, is the caller's to judge.
    pub url: &'a Url,
    /// Trusted instead of the system's roots.
    pub authorities: Option<&'a Authorities>,
    /// Beside those that every request has.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// JSON.
    pub body: Bytes,
    /// From looking up the name to the last byte of the answer.
    pub limit: Duration,
    /// A larger answer is not read to its end.
    pub max_bytes: usize,
}

/// What came back, whatever its status.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its body; `None` where it was larger than allowed, or compressed, which nobody had asked for.
    pub body: Option<Bytes>,
}

impl Fetcher {
    /// Sends it, once.
    ///
    /// # Errors
    /// [`Error`]: no whole answer came.
    pub async fn post(&self, post: Post<'_>) -> Result<Answer, Error> {
        let limit = post.limit;
        timeout(limit, self.post_unlimited(post)).await.map_err(|_| Error::Timeout(limit))?
    }

    async fn post_unlimited(&self, post: Post<'_>) -> Result<Answer, Error> {
        let is_tls = match post.url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(Error::Url("is neither `https` nor `http`")),
        };
        let Post { url, authorities, limit, max_bytes, .. } = post;
        let head = head(&post)?;
        let where_to = Get { url, authorities, reach: Reach::Anywhere, limit, max_bytes };
        let mut session = self.connect(&where_to, is_tls).await?;
        session.write_request_header(Box::new(head)).await.map_err(lost)?;
        session.write_request_body(post.body, true).await.map_err(lost)?;
        session.finish_request_body().await.map_err(lost)?;
        let answer = read(&mut session, max_bytes).await;
        // Not to be used again, whatever came.
        session.shutdown().await;
        answer
    }
}

fn head(post: &Post<'_>) -> Result<RequestHeader, Error> {
    let unfit = |_| Error::Url("cannot be sent in a request");
    let mut head = RequestHeader::build(Method::POST, target_of(post.url).as_bytes(), Some(8)).map_err(unfit)?;
    let usual = [
        (HOST, host_of(post.url)?),
        (USER_AGENT, HeaderValue::from_static(AGENT)),
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CONTENT_LENGTH, post.body.len().into()),
    ];
    for (name, value) in usual.into_iter().chain(post.headers.iter().cloned()) {
        head.insert_header(name, value).map_err(unfit)?;
    }
    Ok(head)
}

async fn read(session: &mut HttpSession, max_bytes: usize) -> Result<Answer, Error> {
    let head = super::read_head(session).await?;
    let (status, headers) = (head.status, head.headers.clone());
    if headers.contains_key(CONTENT_ENCODING) {
        return Ok(Answer { status, headers, body: None });
    }
    let mut body = BytesMut::new();
    while let Some(piece) = session.read_response_body().await.map_err(lost)? {
        if body.len().saturating_add(piece.len()) > max_bytes {
            return Ok(Answer { status, headers, body: None });
        }
        body.extend_from_slice(&piece);
    }
    Ok(Answer { status, headers, body: Some(body.freeze()) })
}
