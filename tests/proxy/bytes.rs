//! Bytes: what is allowed arrives as it was sent, and what comes back is what the upstream said, whatever its size, its
//! framing and its numbers; and the last byte of a body is judged like the first.

use crate::support::gate::{Gate, META, error, result};
use crate::support::gateway::in_front_of;
use crate::support::http::{Connection, Request, Response};
use crate::support::reply::Reply;
use crate::support::wire;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

const KIB: usize = 1024;

const RULES: &str = r#"
- { name: everything, tools: ["up/*"], allow: {} }
- { name: not the last, tools: ["up/*"], when: { /last: { equals: denied } }, deny: { reason: the last argument is bad } }
"#;

/// A gateway that takes bodies of up to this many bytes.
fn gate(limit: usize) -> Gate {
    Gate::with(|url| format!("limits: {{ body: {limit}B }}\n{}", in_front_of(url, RULES)))
}

/// A call of exactly this size whose last argument is the one that is judged. No two places in it look the same.
fn body_of(size: usize, last: &str) -> String {
    let head = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"pad":""#;
    let tail = format!(r#"","last":"{last}"}}}}}}"#);
    let mut body = String::with_capacity(size);
    body.push_str(head);
    let mut n = 0;
    while body.len() + tail.len() < size {
        body.push_str(&format!("{n}é/"));
        n += 1;
    }
    while body.len() + tail.len() > size {
        body.pop();
    }
    body.extend(std::iter::repeat_n('.', size - body.len() - tail.len()));
    body.push_str(&tail);
    assert_eq!(body.len(), size);
    body
}

/// The request with its body in chunks of this size.
fn chunked(request: Request, body: &str, size: usize) -> Request {
    let chunks = body.as_bytes().chunks(size).map(wire::chunk);
    let framed: Vec<u8> = chunks.chain([wire::chunk(b"")]).flatten().collect();
    request.header("Transfer-Encoding", "chunked").body(framed)
}

#[track_caller]
fn send(gate: &Gate, request: &Request) -> Response {
    let mut connection = Connection::open(gate.gateway.agent);
    drop(connection.try_send(&request.to_bytes(&gate.gateway.agent.to_string())));
    connection.response()
}

#[test]
fn bodies_of_every_size_arrive_whole_and_are_judged_to_their_last_byte() {
    let gate = gate(8 * KIB * KIB);
    for size in [KIB, 63 * KIB, 64 * KIB, 65 * KIB, 128 * KIB, KIB * KIB, 8 * KIB * KIB] {
        let (good, bad) = (body_of(size, "allowd"), body_of(size, "denied"));
        for chunk in [None, Some(size), Some(size / 7 + 1), Some(16 * KIB - 1)] {
            let request = |body: &str| match chunk {
                None => gate.post(body),
                Some(chunk) => chunked(gate.post(""), body, chunk),
            };
            let mark = gate.recorder.mark();
            let refused = send(&gate, &request(&bad));
            assert!(refused.text().contains("the last argument is bad"), "{size}, {chunk:?}: {}", refused.text());
            gate.recorder.assert_untouched(mark);

            gate.recorder.answer_next(Reply::json(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#));
            let passed = send(&gate, &request(&good));

            assert_eq!(passed.text(), r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "{size}, {chunk:?}");
            let arrived = gate.recorder.requests_since(mark);
            assert_eq!(arrived.len(), 1, "{size}, {chunk:?}");
            assert!(arrived[0].body == good.as_bytes(), "{size}, {chunk:?}: it arrives changed");
            let length = size.to_string();
            assert_eq!(arrived[0].headers.all("content-length"), [length.as_str()], "{chunk:?}");
            assert_eq!(arrived[0].header("transfer-encoding"), None, "{size}, {chunk:?}");
        }
    }
}

#[test]
fn one_byte_over_the_limit_is_refused_at_once_and_the_limit_itself_is_not() {
    let limit = 64 * KIB;
    let gate = gate(limit);
    let too_large = error(413, -32600, "request.too_large");
    let over = body_of(limit + 1, "allowd");
    let check = |response: &Response| {
        assert_eq!(response.json()["error"]["data"]["limit"], limit, "{}", response.text());
        let message = response.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains("65536 bytes") && message.contains("limits.body"), "{message}");
    };

    for size in [limit - 1, limit] {
        let body = body_of(size, "allowd");
        gate.passes(&format!("{size} bytes"), &gate.post(body.as_str()));
        gate.recorder.answer_next(Reply::json(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#));
        let response = send(&gate, &chunked(gate.post(""), &body, 1000));
        assert_eq!(response.status, 200, "{size} bytes in chunks: {}", response.text());
        assert!(gate.recorder.last().body == body.as_bytes());
    }
    check(&gate.refuses("by its length", &gate.post(over.as_str()), &too_large));
    check(&gate.refuses(
        "by a length that nobody could send",
        &gate.post("").header("Content-Length", "1099511627776"),
        &too_large,
    ));

    // Not one byte of the body has been sent when the answer comes, and none that is sent later is a request.
    let mark = gate.recorder.mark();
    let mut connection = Connection::open(gate.gateway.agent);
    let announced = gate.post("").header("Content-Length", &over.len().to_string());
    connection.send(&announced.to_bytes(&gate.gateway.agent.to_string()));
    check(&connection.response());
    drop(connection.try_send(&gate.post(body_of(KIB, "allowd")).to_bytes(&gate.gateway.agent.to_string())));
    assert!(connection.closes_within(Duration::from_secs(10)), "what follows is no request of its own");

    // Of a body in chunks the end never comes.
    let head = gate.post("").header("Transfer-Encoding", "chunked").to_bytes(&gate.gateway.agent.to_string());
    let mut connection = Connection::open(gate.gateway.agent);
    connection.send(&head);
    for chunk in over.as_bytes().chunks(4096) {
        drop(connection.try_send(&wire::chunk(chunk)));
    }
    check(&connection.response());
    gate.recorder.assert_untouched(mark);
}

/// Members that a library which decodes and encodes again would change.
const MEMBERS: &[&str] = &[
    r#""a":9007199254740993"#,
    r#""a":-9223372036854775809"#,
    r#""a":18446744073709551616"#,
    r#""a":123456789012345678901234567890.123456789012345678901234567890"#,
    r#""a":1.0"#,
    r#""a":1e400"#,
    r#""a":-1E-400"#,
    r#""a":-0.0"#,
    r#""a":-0"#,
    r#""a":1E+2"#,
    r#""a":0.10"#,
    r#""a":"\u00e9\u00E9é\/\b\f\ud83d\ude00😀\u0000""#,
    r#""a":"e\u0301 é é""#,
    r#""\u0061\/b":1"#,
    r#""z":1,"a":2,"m":{"z":1,"":2,"a":[[],{},null,true,false,""]}"#,
    r#""__proto__":{"x":1},"constructor":2,"toString":3"#,
    " \"a\" :\t1 , \"b\"\r\n: [ 1 , 2 ] ",
];

#[test]
fn numbers_escapes_unknown_fields_and_the_order_of_keys_survive_the_way_there() {
    let gate = gate(64 * KIB);
    for member in MEMBERS {
        for (place, body) in [
            (
                "arguments",
                format!(
                    r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"echo","arguments":{{{member}}}}}}}"#
                ),
            ),
            (
                "params",
                format!(
                    r#"{{"id":7,"params":{{{member},"name":"\u0065cho","future":{{{member}}}}},"jsonrpc":"2.0","method":"tools\/call"}}"#
                ),
            ),
            (
                "_meta",
                format!(
                    r#"{{"method":"tools/call","jsonrpc":"2.0","params":{{"_meta":{{{member}}},"arguments":{{}},"name":"echo"}},"id":7}}"#
                ),
            ),
            (
                "space around",
                format!(
                    "\r\n\t {{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{{\"name\":\"echo\",\"arguments\":{{{member}}}}}}} \n\n"
                ),
            ),
        ] {
            gate.passes(&format!("{member} in {place}"), &gate.post(body));
        }
    }
}

#[test]
fn numbers_escapes_unknown_fields_and_the_order_of_keys_survive_the_way_back() {
    let gate = gate(64 * KIB);
    let request = gate.post(body_of(KIB, "allowd"));
    let mut answers: Vec<String> = Vec::new();
    for member in MEMBERS {
        answers
            .push(format!(r#"{{"result":{{{member},"content":[{{{member}}}],"future":1}},"jsonrpc":"2.0","id":7}}"#));
        answers.push(format!(
            r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":-1,"message":"\u00e9","data":{{{member}}}}}}}"#
        ));
    }

    for answer in &answers {
        gate.recorder.answer_next(Reply::json(answer.as_str()));
        let whole = request.send(gate.gateway.agent);
        assert_eq!((whole.status, whole.text()), (200, answer.clone()), "as JSON");

        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1.0,"z":9007199254740993,"progressToken":"\u0031"}}"#;
        let data = answer.replace("\r\n", "\n").replace('\n', "\ndata: ");
        let stream = format!("id: 1\ndata: {progress}\n\ndata: {data}\n\n");
        gate.recorder.answer_next(Reply::sse_raw(stream.as_bytes().chunks(11).map(<[u8]>::to_vec).collect()));
        let streamed = request.send(gate.gateway.agent);
        let events: Vec<String> =
            streamed.events().into_iter().map(|event| event.data).filter(|data| !data.is_empty()).collect();
        assert_eq!(events, [progress.to_owned(), answer.replace("\r\n", "\n")], "as events");
    }
}

/// Ids as clients write them.
const IDS: &[&str] = &[
    "0",
    "1",
    r#""1""#,
    "-7",
    "9007199254740993",
    "123456789012345678901234567890",
    r#""é""#,
    r#""\u00e9\/\"""#,
    r#""""#,
    r#"" 7 ""#,
];

#[test]
fn ids_come_back_as_they_were_written_from_the_upstream_and_from_us() {
    let gate = gate(64 * KIB);
    for id in IDS {
        let body = |last: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"last":"{last}"}}}}}}"#
            )
        };
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        for reply in [Reply::json(answer.as_str()), Reply::sse_raw(vec![format!("data: {answer}\n\n").into_bytes()])] {
            gate.recorder.answer_next(reply);
            let response = gate.post(body("allowed")).send(gate.gateway.agent);
            assert_eq!(response.status, 200, "{id}");
            assert!(response.text().contains(&answer), "{id}: {}", response.text());
            assert_eq!(gate.recorder.last().body, body("allowed").as_bytes(), "{id}");
        }

        gate.refuses(
            &format!("{id}, for its arguments"),
            &gate.post(body("denied")),
            &result("the last argument").id(id),
        );
        let unknown = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/Call"}}"#);
        gate.refuses(&format!("{id}, for its method"), &gate.post(unknown), &error(200, -32601, "mcp.method").id(id));
    }
}

#[test]
fn a_number_and_a_string_that_look_alike_are_two_ids() {
    let gate = gate(64 * KIB);
    let body = |id: &str, text: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"{text}"}}}}}}"#
        )
    };
    // Neither is answered before both are there.
    let both = Arc::new(Barrier::new(2));
    gate.recorder.answer_with(move |request| {
        both.wait();
        Reply::json(format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"was":{}}}}}"#,
            request.json()["id"],
            request.json()["params"]["arguments"]["text"]
        ))
    });

    let (number, string) = thread::scope(|scope| {
        let ask = |id: &'static str, text: &'static str| {
            scope.spawn({
                let request = gate.post(body(id, text));
                let to = gate.gateway.agent;
                move || request.send(to)
            })
        };
        let (number, string) = (ask("1", "number"), ask(r#""1""#, "string"));
        (number.join().expect("it is answered"), string.join().expect("it is answered"))
    });
    assert_eq!(number.text(), r#"{"jsonrpc":"2.0","id":1,"result":{"was":"number"}}"#);
    assert_eq!(string.text(), r#"{"jsonrpc":"2.0","id":"1","result":{"was":"string"}}"#);

    // And an answer to the one is none to the other.
    for (asked, answered) in [("1", r#""1""#), (r#""1""#, "1"), ("9007199254740993", "9007199254740992"), ("1", "1.0")]
    {
        gate.recorder
            .answer_next(Reply::json(format!(r#"{{"jsonrpc":"2.0","id":{answered},"result":{{"secret":1}}}}"#)));
        let response = gate.post(body(asked, "")).send(gate.gateway.agent);
        assert_eq!(
            response.json()["error"]["data"]["code"],
            "upstream.malformed",
            "{asked} answered as {answered}: {}",
            response.text()
        );
        assert!(!response.text().contains("secret"), "{}", response.text());
    }
}

#[test]
fn a_list_keeps_the_bytes_of_what_stays_in_it() {
    let gate = Gate::with_rules(
        r#"
- { name: everything, tools: ["up/*"], allow: {} }
- { name: no danger, tools: ["up/danger"], deny: {} }
"#,
    );
    for member in MEMBERS {
        let tool = |name: &str| format!(r#"{{ "inputSchema":{{{member}}},"name":"{name}", "future":1e400 }}"#);
        let list =
            |tools: &str| format!(r#"{{"id":7, "result":{{"ttlMs":1.0,"tools":{tools},{member}}},"jsonrpc":"2.0"}}"#);
        gate.recorder.answer_next(Reply::json(list(&format!("[ {} , {},{}]", tool("a"), tool("danger"), tool("b")))));

        let response = gate
            .modern(
                "tools/list",
                None,
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{{{META}}}}}"#),
            )
            .send(gate.gateway.agent);

        assert_eq!(response.text(), list(&format!("[{},{}]", tool("a"), tool("b"))));
    }
}
