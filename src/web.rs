//! An axum router answered on a pingora session: pages, documents and small APIs live on the same listeners as the
//! data path, so that they start, drain and stop with it.

use crate::glance::survived;
use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use pingora::apps::{HttpPersistentSettings, HttpServerApp, ReusedHttpStream};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt as _;

/// Forms and small JSON documents; nothing that a page of ours takes is larger.
const MAX_BODY: usize = 64 * 1024;
/// A page's request body must be here within this time.
const BODY_LIMIT: Duration = Duration::from_secs(10);

/// Who asks for a page, for handlers (`axum::Extension<Caller>`).
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The client's address; behind trusted proxies, the one they vouch for.
    pub address: Option<IpAddr>,
    /// The request's name, as in its `X-Request-Id`.
    pub request: String,
}

/// What was answered, for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The HTTP status.
    pub status: u16,
    /// Why it is not the router's answer: the stable code.
    pub unread: Option<&'static str>,
}

/// Lets `router` answer the request that `session` has read.
///
/// # Errors
/// When the client is gone: nothing more can be done for it.
pub async fn answer(
    router: &Router,
    session: &mut ServerSession,
    caller: Caller,
    extra: &[(http::HeaderName, http::HeaderValue)],
) -> pingora::Result<Answered> {
    let (response, unread) = match read_body(session).await? {
        Ok(body) => {
            let request = request(session, body, caller);
            match survived(router.clone().oneshot(request)).await {
                // A router's error type is `Infallible`.
                Some(answered) => (answered.unwrap_or_else(|never| match never {}), None),
                None => unread(http::StatusCode::INTERNAL_SERVER_ERROR),
            }
        }
        Err(status) => unread(status),
    };
    let status = write(session, response, extra).await?;
    Ok(Answered { status, unread })
}

/// The answer where the body was too large or did not come, or a handler panicked; and the code.
fn unread(status: http::StatusCode) -> (Response<Body>, Option<&'static str>) {
    let (why, code) = match status {
        http::StatusCode::PAYLOAD_TOO_LARGE => ("the body is too large; at most 64 KiB", "request.too_large"),
        http::StatusCode::INTERNAL_SERVER_ERROR => ("a fault inside the gateway", "gateway.broken"),
        _ => ("the body did not come in time", "request.too_slow"),
    };
    let error = if status.is_server_error() { "server_error" } else { "invalid_request" };
    let body = format!(r#"{{"error":"{error}","error_description":"{why}"}}"#);
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    (response, Some(code))
}

async fn read_body(session: &mut ServerSession) -> pingora::Result<Result<Bytes, http::StatusCode>> {
    let mut body = BytesMut::new();
    let read = async {
        let mut status = Ok(());
        while let Some(piece) = session.read_request_body().await? {
            if body.len().saturating_add(piece.len()) > MAX_BODY {
                status = Err(http::StatusCode::PAYLOAD_TOO_LARGE);
                break;
            }
            body.extend_from_slice(&piece);
        }
        Ok::<_, pingora::BError>(status)
    };
    match tokio::time::timeout(BODY_LIMIT, read).await {
        Ok(status) => Ok(status?.map(|()| body.freeze())),
        Err(_) => Ok(Err(http::StatusCode::REQUEST_TIMEOUT)),
    }
}

fn request(session: &ServerSession, body: Bytes, caller: Caller) -> Request<Body> {
    let head = session.req_header();
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = head.uri.clone();
    *request.headers_mut() = head.headers.clone();
    request.extensions_mut().insert(caller);
    request
}

async fn write(
    session: &mut ServerSession,
    response: Response<Body>,
    extra: &[(http::HeaderName, http::HeaderValue)],
) -> pingora::Result<u16> {
    let is_head = session.req_header().method == http::Method::HEAD;
    let (parts, mut body) = response.into_parts();
    let mut head = ResponseHeader::build(parts.status, Some(parts.headers.len() + extra.len() + 1))?;
    for (name, value) in &parts.headers {
        head.append_header(name.clone(), value.clone())?;
    }
    for (name, value) in extra {
        head.insert_header(name.clone(), value.clone())?;
    }
    let size = axum::body::HttpBody::size_hint(&body).exact();
    if !parts.headers.contains_key(header::CONTENT_LENGTH) {
        match size {
            Some(size) => head.insert_header(header::CONTENT_LENGTH, size)?,
            None => head.insert_header(header::TRANSFER_ENCODING, "chunked")?,
        }
    }
    session.write_response_header(Box::new(head)).await?;
    if !is_head {
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(piece) = frame.into_data() {
                session.write_response_body(piece, false).await?;
            }
        }
    }
    session.finish_body().await?;
    Ok(parts.status.as_u16())
}

/// Gives the connection of a finished session back to its listener, where it is fit for another request, together with
/// what was read of it beyond this one.
pub async fn give_back(session: ServerSession) -> Option<ReusedHttpStream> {
    let mut settings = HttpPersistentSettings::for_session(&session);
    let (stream, unread) = session.finish().await.ok().flatten()?.into_parts();
    // pingora's own field for it can be written but not read.
    settings.set_user_context(Box::new(unread.unwrap_or_default()));
    Some(ReusedHttpStream::new(stream, Some(settings)))
}

/// A router as a listener's whole application, for listeners that serve nothing else.
pub struct Pages {
    router: Router,
}

/// A connection to such a listener may idle this long, in seconds.
const KEEP_ALIVE_S: u64 = 60;

impl Pages {
    /// Serves `router`.
    pub fn new(router: Router) -> Self {
        Pages { router }
    }
}

#[async_trait]
impl HttpServerApp for Pages {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        // The listener gives sessions whose head is whole.
        match session.read_request().await {
            Ok(true) => {}
            Ok(false) => return None,
            Err(_) => {
                let _ = session.respond_error(400).await;
                return None;
            }
        }
        // What pingora turned off for doubtful framing stays off.
        if session.get_keepalive().is_some() {
            session.set_keepalive((!*shutdown.borrow()).then_some(KEEP_ALIVE_S));
        }
        answer(&self.router, &mut session, Caller::default(), &[]).await.ok()?;
        give_back(session).await
    }
}
