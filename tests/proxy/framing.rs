//! Framing, with raw bytes: where one reader sees one request and another two, there is no request here.
//!
//! Names of cases are the rows T-01 to T-22 of the attack catalogue the project keeps.

use crate::support::gate::{Gate, call};
use crate::support::http::{Connection, Response};
use crate::support::invariants;
use crate::support::wire;
use std::time::Duration;

const RULES: &str = r#"
- { name: everything, tools: ["up/*"], allow: {} }
- { name: no danger, tools: ["up/danger"], deny: {} }
"#;

/// How long a refused connection may take to close.
const SOON: Duration = Duration::from_secs(10);

/// The head of a POST with the token and these further lines (each with its line end), and its empty line.
fn head(gate: &Gate, lines: &str) -> String {
    format!(
        "POST /mcp/up HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{lines}\r\n",
        gate.gateway.agent, gate.token
    )
}

/// A whole call of this tool.
fn whole(gate: &Gate, tool: &str) -> String {
    let body = call(tool, "{}");
    head(gate, &format!("Content-Length: {}\r\n", body.len())) + &body
}

/// Sends the bytes, which must be refused with one of these statuses and the end of the connection, whatever follows
/// them; the upstream hears nothing.
#[track_caller]
fn refused(gate: &Gate, case: &str, bytes: &[u8], statuses: &[u16]) -> Response {
    let mark = gate.recorder.mark();
    let mut connection = Connection::open(gate.gateway.agent);
    drop(connection.try_send(bytes));

    let response = connection.try_response().unwrap_or_else(|error| panic!("{case}: {error}"));

    assert!(statuses.contains(&response.status), "{case}: {response:?}: {}", response.text());
    drop(connection.try_send(whole(gate, "echo").as_bytes()));
    assert!(connection.closes_within(SOON), "{case}: the connection goes on");
    gate.recorder.assert_untouched(mark);
    response
}

/// Refused by the reader of heads.
#[track_caller]
fn malformed(gate: &Gate, case: &str, bytes: &[u8]) {
    let response = refused(gate, case, bytes, &[400]);
    invariants::check(&response, None);
    assert_eq!(response.json()["error"]["data"]["code"], "request.malformed", "{case}: {}", response.text());
}

/// Sends the bytes of one call, which must reach the upstream once.
#[track_caller]
fn passes(gate: &Gate, case: &str, bytes: &[u8]) {
    let mark = gate.recorder.mark();
    let mut connection = Connection::open(gate.gateway.agent);
    connection.send(bytes);
    let response = connection.response();
    assert_eq!(response.status, 200, "{case}: {}", response.text());
    let arrived = gate.recorder.requests_since(mark);
    assert_eq!(arrived.len(), 1, "{case}");
    assert_eq!(arrived[0].json()["params"]["name"], "echo", "{case}");
    assert_eq!(arrived[0].headers.all("content-length").len(), 1, "{case}");
    assert_eq!(arrived[0].header("transfer-encoding"), None, "{case}");
}

fn in_chunks(body: &str, size: usize) -> String {
    let chunks = body.as_bytes().chunks(size).map(wire::chunk).chain([wire::chunk(b"")]);
    String::from_utf8(chunks.flatten().collect()).expect("the body is ASCII")
}

#[test]
fn t_01_to_t_03_a_body_has_one_length_written_in_one_way() {
    let gate = Gate::with_rules(RULES);
    let body = call("echo", "{}");
    let (n, chunked) = (body.len(), in_chunks(&body, 1000));
    let both = [
        format!("Content-Length: {n}\r\nTransfer-Encoding: chunked\r\n"),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {n}\r\n"),
        format!("Transfer-Encoding: chunked\r\nX: y\r\ncontent-length: {}\r\n", chunked.len()),
    ];
    for lines in both {
        malformed(&gate, &lines, (head(&gate, &lines) + &chunked).as_bytes());
    }
    for value in [
        "chunked, identity",
        "identity, chunked",
        " ,chunked",
        "xchunked",
        "chunked\u{b}",
        "\tchunked",
        "gzip, chunked",
    ] {
        let lines = format!("Transfer-Encoding:{value}\r\n");
        malformed(&gate, &lines, (head(&gate, &lines) + &chunked).as_bytes());
    }
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
    malformed(&gate, twice, (head(&gate, twice) + &chunked).as_bytes());
    for value in [
        format!("+{n}"),
        format!("-{n}"),
        format!("0x{n:x}"),
        "5_0".to_owned(),
        String::new(),
        format!("{n}, {n}"),
        format!("{n}, 6"),
        "18446744073709551621".to_owned(),
        format!("{n} {n}"),
        format!("{n}.0"),
    ] {
        let lines = format!("Content-Length: {value}\r\n");
        malformed(&gate, &lines, (head(&gate, &lines) + &body).as_bytes());
    }
    for second in [n, n + 1] {
        let lines = format!("Content-Length: {n}\r\nContent-Length: {second}\r\n");
        malformed(&gate, &lines, (head(&gate, &lines) + &body).as_bytes());
    }
    let refused = "portcullis_connections_refused_total{listener=\"agent\",reason=\"request.malformed\"}";
    gate.gateway.wait_for_metric(refused, 22.0);

    passes(&gate, "a length", whole(&gate, "echo").as_bytes());
    passes(&gate, "chunks", (head(&gate, "Transfer-Encoding: chunked\r\n") + &chunked).as_bytes());
    passes(&gate, "other case", (head(&gate, "transfer-encoding:  CHUNKED \r\n") + &in_chunks(&body, 7)).as_bytes());
}

#[test]
fn t_05_to_t_07_a_head_is_written_in_one_way_only() {
    let gate = Gate::with_rules(RULES);
    let whole = whole(&gate, "echo");
    let with = |lines: &str| whole.replacen("\r\nContent-Type", &format!("\r\n{lines}\r\nContent-Type"), 1);
    let host = format!("Host: {}", gate.gateway.agent);
    let instead = |new: &str| whole.replacen(&host, new, 1);
    let first_line = |new: &str| whole.replacen("POST /mcp/up HTTP/1.1", new, 1);

    for (case, bytes) in [
        ("every line ends in LF", whole.replace("\r\n", "\n")),
        ("one line ends in LF", whole.replacen("\r\nAccept", "\nAccept", 1)),
        ("the head ends in LF", whole.replacen("\r\n\r\n", "\r\n\n", 1)),
        ("a lone CR", with("X: a\rb")),
        ("a folded line", with("X: a\r\n b")),
        ("NUL in a value", with("X: a\0b")),
        ("space before the colon", with("X : a")),
        ("no name", with(": a")),
        ("no colon", with("X")),
        ("no token", with("X(y): a")),
        ("non-ASCII name", with("Xé: a")),
        ("no Host", instead("X: y")),
        ("two Hosts", instead(&format!("{host}\r\n{host}"))),
        ("user in Host", instead(&format!("Host: good@{}", gate.gateway.agent))),
        ("path in Host", instead(&format!("{host}/mcp"))),
        ("space at the end of the request line", first_line("POST /mcp/up HTTP/1.1 ")),
        ("two spaces", first_line("POST  /mcp/up HTTP/1.1")),
        ("a tab", first_line("POST\t/mcp/up\tHTTP/1.1")),
        ("no version", first_line("POST /mcp/up")),
        ("another protocol", first_line("POST /mcp/up HTTPS/1.1")),
        ("lower case", first_line("POST /mcp/up http/1.1")),
        ("a second empty line first", format!("\r\n\r\n{whole}")),
        (
            "chunks in HTTP/1.0",
            first_line("POST /mcp/up HTTP/1.0").replacen("Content-Length", "Transfer-Encoding: chunked\r\nX", 1),
        ),
        ("not even HTTP", "\u{16}\u{3}\u{1}\n".to_owned()),
    ] {
        malformed(&gate, case, bytes.as_bytes());
    }
    let other = first_line("POST http://other.test/mcp/up HTTP/1.1");
    refused(&gate, "Host is not the target's authority", other.as_bytes(), &[400]);
    for version in ["1.2", "2.0", "0.9", "3.0"] {
        let bytes = first_line(&format!("POST /mcp/up HTTP/{version}"));
        let response = refused(&gate, version, bytes.as_bytes(), &[505]);
        assert_eq!(response.json()["error"]["data"]["code"], "request.http_version");
    }

    passes(&gate, "one empty line first", format!("\r\n{whole}").as_bytes());
    passes(
        &gate,
        "absolute form",
        first_line(&format!("POST http://{}/mcp/up HTTP/1.1", gate.gateway.agent)).as_bytes(),
    );
    // M-05: space around values is no part of them (RFC 9110 §5.5).
    passes(
        &gate,
        "space around values",
        whole.replace("application/json\r\n", " \t application/json \t\r\n").as_bytes(),
    );
}

#[test]
fn a_head_over_the_limit_is_refused_and_one_below_is_not() {
    let gate =
        Gate::with(|url| format!("limits: {{ head: 4KiB }}\n{}", crate::support::gateway::in_front_of(url, RULES)));
    let whole = whole(&gate, "echo");
    let length = whole.find("\r\n\r\n").expect("it has a head") + 4;
    let padded = |n: usize| {
        let line = format!("X: {}\r\nContent-Type", "x".repeat(n - length - 5));
        whole.replacen("Content-Type", &line, 1)
    };

    passes(&gate, "at the limit", padded(4096).as_bytes());
    for size in [4097, 5000, 100_000] {
        let response = refused(&gate, &size.to_string(), padded(size).as_bytes(), &[431]);
        assert_eq!(response.json()["error"]["data"]["code"], "request.head_too_large");
    }
    let endless = format!("POST /mcp/up HTTP/1.1\r\nX: {}", "x".repeat(200_000));
    refused(&gate, "without an end", endless.as_bytes(), &[431]);
}

#[test]
fn t_08_an_upgrade_is_ignored_and_what_follows_is_the_next_request() {
    let gate = Gate::with_rules(RULES);
    for protocol in ["websocket", "h2c"] {
        let lines =
            format!("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\nHTTP2-Settings: AAMAAABk\r\n");
        let upgrading = whole(&gate, "echo").replacen("Content-Type", &format!("{lines}Content-Type"), 1);
        let mark = gate.recorder.mark();
        let mut connection = Connection::open(gate.gateway.agent);

        connection.send((upgrading + &whole(&gate, "danger")).as_bytes());
        let first = connection.response();

        assert_eq!(first.status, 200, "{protocol}: {}", first.text());
        assert_eq!(first.header("upgrade"), None);
        if let Ok(second) = connection.try_response() {
            assert!(second.text().contains("Unknown tool"), "{protocol}: {}", second.text());
        }
        let arrived = gate.recorder.requests_since(mark);
        assert_eq!(arrived.len(), 1, "{protocol}: only the first was allowed");
        assert_eq!(arrived[0].header("upgrade"), None, "{protocol}");
        assert_eq!(arrived[0].header("connection"), None, "{protocol}");
    }
}

#[test]
fn t_10_pipelined_calls_are_answered_in_order_and_each_on_its_own_merits() {
    let gate = Gate::with_rules(RULES);
    let (allowed, denied) = (whole(&gate, "echo"), whole(&gate, "danger"));
    let both = allowed.clone() + &denied;
    let check = |case: &str, connection: &mut Connection, mark| {
        let (first, second) = (connection.response(), connection.response());
        assert!(first.text().contains("\"result\""), "{case}: {}", first.text());
        assert!(second.text().contains("Unknown tool"), "{case}: {}", second.text());
        assert_eq!(gate.recorder.requests_since(mark).len(), 1, "{case}: the first, once");
    };

    let mark = gate.recorder.mark();
    let mut connection = Connection::open(gate.gateway.agent);
    connection.send(both.as_bytes());
    check("at once", &mut connection, mark);
    for cut in (0..both.len()).step_by(7).chain([allowed.len() - 1, allowed.len(), allowed.len() + 1]) {
        let mark = gate.recorder.mark();
        let mut connection = Connection::open(gate.gateway.agent);
        connection.send(&both.as_bytes()[..cut]);
        connection.send(&both.as_bytes()[cut..]);
        check(&format!("cut at {cut}"), &mut connection, mark);
    }
    // Three of them, chunked, in one segment.
    let chunked = head(&gate, "Transfer-Encoding: chunked\r\n") + &in_chunks(&call("echo", "{}"), 9);
    let mark = gate.recorder.mark();
    let mut connection = Connection::open(gate.gateway.agent);
    connection.send((chunked.clone() + &chunked + &denied).as_bytes());
    connection.response();
    check("behind a chunked one", &mut connection, mark_after(&gate, mark));
}

/// The mark behind the first request since this one.
fn mark_after(gate: &Gate, mark: crate::support::recorder::Mark) -> crate::support::recorder::Mark {
    gate.recorder.wait_for_requests(mark, 1);
    mark.after_requests(1)
}

#[test]
fn t_11_what_comes_after_an_early_answer_is_no_request() {
    let gate = Gate::with_rules(RULES);
    let hidden = whole(&gate, "echo");
    for (case, authorization) in [("no token", String::new()), ("a bad one", "Authorization: Bearer x\r\n".to_owned())]
    {
        let mark = gate.recorder.mark();
        let mut connection = Connection::open(gate.gateway.agent);
        let head = format!(
            "POST /mcp/up HTTP/1.1\r\nHost: {}\r\n{authorization}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            gate.gateway.agent,
            hidden.len() + 10
        );
        connection.send((head + "0123456789").as_bytes());
        assert_eq!(connection.response().status, 401, "{case}");

        drop(connection.try_send(hidden.as_bytes()));

        if let Ok(second) = connection.try_response() {
            panic!("{case}: the rest of the body was answered: {second:?}");
        }
        gate.recorder.assert_untouched(mark);
    }
}

#[test]
fn t_12_who_may_not_call_is_told_so_before_being_asked_for_a_body() {
    let gate = Gate::with_rules(RULES);
    let body = call("echo", "{}");
    let expecting = head(&gate, &format!("Expect: 100-continue\r\nContent-Length: {}\r\n", body.len()));
    let mut connection = Connection::open(gate.gateway.agent);
    connection.send(expecting.as_bytes());
    assert_eq!(connection.response().status, 100, "who may is asked for it");
    connection.send(body.as_bytes());
    assert_eq!(connection.response().status, 200);

    let mark = gate.recorder.mark();
    for (case, bytes, status) in [
        ("a bad token", expecting.replacen("Bearer ", "Bearer x", 1), 401),
        ("no JSON", expecting.replacen("application/json", "text/plain", 1), 415),
        ("too large", head(&gate, "Expect: 100-continue\r\nContent-Length: 1000000000\r\n"), 413),
        ("compressed", expecting.replacen("Expect", "Content-Encoding: gzip\r\nExpect", 1), 415),
    ] {
        let mut connection = Connection::open(gate.gateway.agent);
        connection.send(bytes.as_bytes());
        assert_eq!(connection.response().status, status, "{case}");
    }
    gate.recorder.assert_untouched(mark);
}

#[test]
fn t_19_a_compressed_request_is_refused_unread() {
    let gate = Gate::with_rules(RULES);
    for coding in ["gzip", "deflate", "br", "identity", "gzip, gzip", "x-unknown", ""] {
        let lines = format!("Content-Encoding: {coding}\r\nContent-Length: 1000000\r\n");
        let mark = gate.recorder.mark();
        let mut connection = Connection::open(gate.gateway.agent);
        connection.send(head(&gate, &lines).as_bytes());
        assert_eq!(connection.response().status, 415, "{coding:?}");
        gate.recorder.assert_untouched(mark);
    }
    passes(&gate, "plain", whole(&gate, "echo").as_bytes());
}

#[test]
fn t_20_headers_that_servers_trust_from_their_proxies_do_not_cross() {
    let gate = Gate::with_rules(RULES);
    let lines = "X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Proto: http\r\nForwarded: for=10.0.0.1\r\n\
                 X-Real-IP: 10.0.0.1\r\nX-Original-URL: /admin\r\nX-Rewrite-URL: /admin\r\nMcp-Gw-User: admin\r\n\
                 mcp-init-host: evil\r\nrouter-key: secret\r\nX-User: admin\r\nPortcullis-Upstream-Secret: x\r\n\
                 Connection: authorization, mcp-name\r\n";
    let bytes = whole(&gate, "echo").replacen("Content-Type", &format!("{lines}Content-Type"), 1);
    let mark = gate.recorder.mark();

    passes(&gate, "with all of them", bytes.as_bytes());

    let arrived = &gate.recorder.requests_since(mark)[0];
    let known = ["host", "user-agent", "content-type", "accept", "content-length", "mcp-protocol-version"];
    for (name, _) in &arrived.headers.0 {
        assert!(known.contains(&name.to_ascii_lowercase().as_str()), "{name} crossed: {arrived:?}");
    }
}

#[test]
fn t_22_a_route_is_its_exact_path() {
    let gate = Gate::with_rules(RULES);
    let at = |path: &str| whole(&gate, "echo").replacen("/mcp/up", path, 1);
    for path in [
        "//mcp/up",
        "/mcp//up",
        "/./mcp/up",
        "/x/../mcp/up",
        "/mcp%2fup",
        "/mcp/%75p",
        "/MCP/up",
        "/mcp/UP",
        "/mcp/up;x",
        "/mcp/up%00",
        "/mcp/up%20",
        "/mcp/up/x",
        "/mcp/..%2fadmin",
        "/mcp/../admin",
        "\\mcp\\up",
        "/mcp/up\\",
        "/mcp/%c0%af",
    ] {
        let mark = gate.recorder.mark();
        let mut connection = Connection::open(gate.gateway.agent);
        connection.send(at(path).as_bytes());
        let response = connection.response();
        assert!(matches!(response.status, 400 | 404), "{path}: {response:?}");
        gate.recorder.assert_untouched(mark);
    }
    malformed(&gate, "bytes that are no ASCII", at("/mcp/up\u{e9}").as_bytes());
    passes(&gate, "the path", at("/mcp/up").as_bytes());
    passes(&gate, "with a query", at("/mcp/up?x=/../y").as_bytes());
}

#[test]
fn t_04_and_t_21_chunks_that_are_not_well_formed_reach_nobody() {
    let gate = Gate::with_rules(RULES);
    let body = call("echo", "{}");
    let n = format!("{:x}", body.len());
    let chunked = head(&gate, "Transfer-Encoding: chunked\r\n");
    let good = format!("{n}\r\n{body}\r\n0\r\n\r\n");
    for (case, framed) in [
        ("0x", good.replacen(&n, &format!("0x{n}"), 1)),
        ("plus", good.replacen(&n, &format!("+{n}"), 1)),
        ("minus", good.replacen(&n, &format!("-{n}"), 1)),
        ("17 digits", good.replacen(&n, &format!("{}{n}", "0".repeat(15) + "f"), 1)),
        ("space before", good.replacen(&n, &format!(" {n}"), 1)),
        ("a lone LF after the size", good.replacen("\r\n", "\n", 1)),
        ("a lone CR in an extension", good.replacen(&n, &format!("{n};x\ry"), 1)),
        ("a lone LF in an extension", good.replacen(&n, &format!("{n};x\ny"), 1)),
        ("a control character in an extension", good.replacen(&n, &format!("{n};\u{1}"), 1)),
        ("no size", good.replacen(&n, "", 1)),
        ("a lone LF in a trailer", good.replacen("0\r\n\r\n", "0\r\nA: b\n\r\n", 1)),
        ("a lone LF after the data", good.replacen("\r\n0\r\n", "\n0\r\n", 1)),
        ("a lone LF after the last chunk", good.replacen("0\r\n\r\n", "0\n\r\n", 1)),
        ("no hexadecimal", good.replacen(&n, "zz", 1)),
        ("nothing after the data", format!("{n}\r\n{body}0\r\n\r\n")),
        ("too much data", format!("{n}\r\n{body}x\r\n0\r\n\r\n")),
        ("an extension without an end", format!("{n};{}", "x".repeat(1024 * 1024))),
    ] {
        // At once it is refused before anything is done with it; behind its head, when it comes.
        malformed(&gate, case, (chunked.clone() + &framed).as_bytes());
        let mark = gate.recorder.mark();
        let mut connection = Connection::open(gate.gateway.agent);
        connection.send(head(&gate, "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n").as_bytes());
        assert_eq!(connection.response().status, 100, "{case}");
        drop(connection.try_send(framed.as_bytes()));
        let response = connection.try_response().unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(response.status, 400, "{case}: {}", response.text());
        drop(connection.try_send(whole(&gate, "echo").as_bytes()));
        if let Ok(second) = connection.try_response() {
            panic!("{case}: after {response:?} the connection goes on: {second:?}");
        }
        gate.recorder.assert_untouched(mark);
    }
    passes(&gate, "as it should be", (chunked + &good).as_bytes());
}

#[test]
fn t_21_trailers_are_dropped_and_the_next_request_is_found_behind_them() {
    let gate = Gate::with_rules(RULES);
    let body = call("echo", "{}");
    let framed = format!("{:x}\r\n{body}\r\n0\r\nMcp-Name: danger\r\nAuthorization: Bearer x\r\n\r\n", body.len());
    let bytes = head(&gate, "Transfer-Encoding: chunked\r\nTrailer: Mcp-Name\r\n") + &framed + &whole(&gate, "danger");
    let mark = gate.recorder.mark();
    let mut connection = Connection::open(gate.gateway.agent);
    connection.send(bytes.as_bytes());

    let (first, second) = (connection.response(), connection.response());

    assert_eq!(first.status, 200, "{}", first.text());
    assert!(second.text().contains("Unknown tool"), "{}", second.text());
    let arrived = gate.recorder.requests_since(mark);
    assert_eq!(arrived.len(), 1);
    assert_eq!((arrived[0].header("mcp-name"), arrived[0].header("trailer")), (None, None));
}

#[test]
fn t_04_what_chunks_may_carry_beside_data_changes_nothing_that_is_sent_on() {
    let gate = Gate::with_rules(RULES);
    let body = call("echo", "{}");
    let n = format!("{:x}", body.len());
    for extension in ["", ";a=b", ";a=\"b;c\"", " ", " ;a"] {
        let framed = format!("{n}{extension}\r\n{body}\r\n0{extension}\r\n\r\n");
        let bytes = head(&gate, "Transfer-Encoding: chunked\r\n") + &framed + &whole(&gate, "danger");
        let mark = gate.recorder.mark();
        let mut connection = Connection::open(gate.gateway.agent);
        connection.send(bytes.as_bytes());

        let (first, second) = (connection.response(), connection.response());

        assert_eq!(first.status, 200, "{extension:?}: {}", first.text());
        assert!(second.text().contains("Unknown tool"), "{extension:?}: {}", second.text());
        let arrived = gate.recorder.requests_since(mark);
        assert_eq!(arrived.len(), 1, "{extension:?}");
        assert!(arrived[0].body == body.as_bytes(), "{extension:?}: {arrived:?}");
        assert_eq!(arrived[0].headers.all("content-length"), [body.len().to_string()], "{extension:?}");
        assert_eq!(arrived[0].header("transfer-encoding"), None, "{extension:?}");
    }
}
