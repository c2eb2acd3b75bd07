//! The answer to a head that is refused before the data path has seen it, and a close that lets it arrive.

use super::head::Fault;
use crate::id::RequestId;
use bytes::BytesMut;
use http::StatusCode;
use pingora::protocols::Stream;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt};
use tokio::time::timeout;

/// A client that was refused may still be sending; closed at once, the answer would be lost in a reset.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 256 * 1024;

/// Answers, in the form of the data path's own refusals, and closes. Everything here takes a few seconds at most.
pub(super) async fn answer(mut stream: Stream, fault: Fault, unix_seconds: i64) {
    let bytes = message(fault, unix_seconds);
    // Nobody may be there to take it; the connection ends either way.
    drop(timeout(LINGER, say_and_wait(&mut stream, &bytes)).await);
}

async fn say_and_wait(stream: &mut Stream, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await?;
    AsyncWriteExt::shutdown(stream).await?;
    let mut left = LINGER_BYTES;
    let mut rest = BytesMut::with_capacity(4096);
    while left > 0 {
        rest.clear();
        let n = stream.read_buf(&mut rest).await?;
        if n == 0 {
            break;
        }
        left = left.saturating_sub(n);
    }
    Ok(())
}

fn message(fault: Fault, unix_seconds: i64) -> Vec<u8> {
    let (code, status, number) = fault.row();
    let status = StatusCode::from_u16(status).expect("the table holds status codes");
    let error = json!({ "code": number, "message": fault.text(), "data": { "code": code } });
    let body = format!(r#"{{"jsonrpc":"2.0","id":null,"error":{error}}}"#);
    let head = format!(
        "HTTP/1.1 {status}\r\nDate: {}\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n\
         X-Request-Id: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        date(unix_seconds),
        RequestId::next(),
        body.len(),
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// IMF-fixdate (RFC 9110 §5.6.7).
fn date(unix_seconds: i64) -> String {
    let at = jiff::Timestamp::from_second(unix_seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_whole_response_that_ends_the_connection() {
        let text = String::from_utf8(message(Fault::Slow, 784_111_777)).expect("it is text");

        let (head, body) = text.split_once("\r\n\r\n").expect("head and body");
        assert!(head.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{head}");
        assert!(head.contains("\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        assert!(head.ends_with("\r\nConnection: close"), "{head}");
        assert!(body.contains(r#""code":"request.too_slow""#), "{body}");
    }
}
