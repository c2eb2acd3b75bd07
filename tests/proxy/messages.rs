//! What is not exactly one JSON-RPC message, read the same way by every parser, does not get through: also where the
//! policy would allow all of it, since what arrives there may be read as something else.

use crate::support::gate::{Gate, Refused, call, error};

/// As open as a policy can be that still denies something.
const RULES: &str = r#"
- { name: everything, tools: ["up/*"], prompts: ["up/*"], resources: ["up/*"], allow: {} }
- { name: no danger, tools: ["up/danger"], deny: {} }
"#;

fn syntax() -> Refused {
    error(400, -32700, "jsonrpc.syntax")
}

/// Refused as no JSON-RPC message; the id had been read.
fn invalid() -> Refused {
    error(400, -32600, "jsonrpc.invalid").id("7")
}

/// Sends each body, and then a good call.
#[track_caller]
fn all_refused(gate: &Gate, cases: &[(&str, Vec<u8>, Refused)]) {
    let mark = gate.recorder.mark();
    for (case, body, how) in cases {
        gate.refuses(case, &gate.post(body.as_slice()), how);
    }
    gate.passes("the allowed twin", &gate.post(call("echo", r#"{"a":1}"#)));
    assert_eq!(gate.recorder.requests_since(mark).len(), 1, "nothing came late");
}

#[test]
fn batches_are_refused_whole_in_every_shape_and_version() {
    let gate = Gate::with_rules(RULES);
    let (good, bad) = (call("echo", "{}"), call("danger", "{}"));
    let ten_thousand = vec![good.as_str(); 10_000].join(",");
    let shapes = [
        ("allowed and denied", format!("[{good},{bad}]")),
        ("denied and allowed", format!("[{bad},{good}]")),
        ("denied alone", format!("[{bad}]")),
        ("allowed alone", format!("[{good}]")),
        ("none", "[]".to_owned()),
        ("ten thousand", format!("[{ten_thousand}]")),
        ("in each other", format!("[[{good}]]")),
        ("space in front", format!(" \r\n\t[{good}]")),
        ("a notification", r#"[{"jsonrpc":"2.0","method":"notifications/initialized"}]"#.to_owned()),
        ("a response", r#"[{"jsonrpc":"2.0","id":7,"result":{}}]"#.to_owned()),
        ("not closed", format!("[{good}")),
        ("initialize", r#"[{"jsonrpc":"2.0","id":7,"method":"initialize","params":{}}]"#.to_owned()),
    ];
    for version in
        [None, Some("2024-11-05"), Some("2025-03-26"), Some("2025-06-18"), Some("2025-11-25"), Some("2026-07-28")]
    {
        let with_version = |body: &str| match version {
            Some(version) => gate.post(body).header("MCP-Protocol-Version", version),
            None => gate.post(body),
        };
        for (shape, body) in &shapes {
            gate.refuses(&format!("{shape}, {version:?}"), &with_version(body), &error(400, -32600, "jsonrpc.batch"));
        }
        if version != Some("2026-07-28") {
            gate.passes(&format!("one message, {version:?}"), &with_version(&good));
        }
    }
}

#[test]
fn a_name_given_twice_is_refused_at_every_level_and_in_every_spelling() {
    let gate = Gate::with_rules(RULES);
    let params = |inside: &str| format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{inside}}}}}"#);
    let top =
        |more: &str| format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"echo"}},{more}}}"#);
    // Of a message that names one of its own members twice the id is not believed.
    let twin = error(400, -32600, "jsonrpc.invalid");
    let deep = format!("{}{}{}", r#"{"a":["#.repeat(20), r#"{"x":1,"y":2,"\u0078":3}"#, "]}".repeat(20));
    let cases = [
        ("method", top(r#""method":"ping""#), twin.clone()),
        ("method, the same", top(r#""method":"tools/call""#), twin.clone()),
        ("method, escaped", top(r#""\u006dethod":"ping""#), twin.clone()),
        ("params", top(r#""params":{"name":"danger"}"#), twin.clone()),
        ("params, escaped", top(r#""\u0070\u0061rams":{"name":"danger"}"#), twin.clone()),
        ("id", top(r#""id":8"#), twin.clone()),
        ("id, escaped", top(r#""i\u0064":8"#), twin.clone()),
        ("jsonrpc", top(r#""jsonrpc":"2.0""#), twin),
        ("name", params(r#""name":"echo","name":"danger""#), invalid()),
        ("name, denied first", params(r#""name":"danger","name":"echo""#), invalid()),
        ("name, escaped", params(r#""name":"echo","n\u0061me":"danger""#), invalid()),
        ("name, escaped in both", params(r#""\u006eame":"echo","n\u0061me":"danger""#), invalid()),
        ("arguments", params(r#""name":"echo","arguments":{},"arguments":{"a":1}"#), invalid()),
        ("in the arguments", params(r#""name":"echo","arguments":{"a":1,"b":2,"a":1}"#), invalid()),
        ("in the arguments, escaped", params(r#""name":"echo","arguments":{"a":1,"\u0061":2}"#), invalid()),
        (
            "in the arguments, a pair of surrogates",
            params(r#""name":"echo","arguments":{"😀":1,"\ud83d\ude00":2}"#),
            invalid(),
        ),
        ("in the arguments, empty", params(r#""name":"echo","arguments":{"":1,"":2}"#), invalid()),
        ("deep in the arguments", params(&format!(r#""name":"echo","arguments":{deep}"#)), invalid()),
        ("in _meta", params(r#""name":"echo","_meta":{"a":1,"a":2}"#), invalid()),
        ("in what nobody knows", params(r#""name":"echo","future":[{"a":1,"a":2}]"#), invalid()),
    ];

    all_refused(&gate, &cases.map(|(case, body, how)| (case, body.into_bytes(), how)));

    let one_each = params(&format!(r#""name":"echo","arguments":{}"#, deep.replace(r"\u0078", "z")));
    gate.passes("the same names in different objects", &gate.post(one_each));
}

#[test]
fn names_that_only_look_like_those_of_the_envelope_are_refused() {
    let gate = Gate::with_rules(RULES);
    let beside =
        |name: &str| format!(r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{{}},"{name}":"tools/call"}}"#);
    let mut cases = Vec::new();
    for name in [
        "Method",
        "METHOD",
        "method\\u0000",
        "\\u0000method",
        "method ",
        " method",
        "method\\u200b",
        "\\ufeffmethod",
        "m\\u0435thod",
        "PARAMS",
        "Params",
        "paramſ",
        "param\\u017f",
        "params\\u0000",
        "ID",
        "Id",
        "JSONRPC",
        "jsonRpc",
        "Result",
        "Error",
        "meta",
        "_meta",
        "",
    ] {
        cases.push((format!("{name:?} beside the real ones"), beside(name).into_bytes(), invalid()));
    }
    let alone = [
        r#"{"jsonrpc":"2.0","id":7,"Method":"tools/call","params":{"name":"danger"}}"#,
        r#"{"jsonrpc":"2.0","id":7,"METHOD":"tools/call","PARAMS":{"name":"danger"}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method\u0000":"tools/call","params":{"name":"danger"}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","paramſ":{"name":"danger"}}"#,
        r#"{"id":7,"JSONRPC":"2.0","method":"tools/call","params":{"name":"danger"}}"#,
    ];
    cases.extend(alone.map(|body| (format!("{body} alone"), body.as_bytes().to_vec(), invalid())));

    let cases: Vec<_> = cases.iter().map(|(case, body, how)| (case.as_str(), body.clone(), how.clone())).collect();
    all_refused(&gate, &cases);
    let escaped = r#"{"\u006asonrpc":"2.0","id":7,"m\u0065thod":"ping","p\u0061rams":{}}"#;
    gate.passes("the real ones, escaped", &gate.post(escaped));
}

#[test]
fn names_that_only_look_like_those_of_params_are_refused() {
    let gate = Gate::with_rules(RULES);
    let body =
        |method: &str, params: &str| format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params}}}}}"#);
    // A server that reads names without regard to case (as Go's encoding/json does) would take the last one.
    let cases = [
        ("Name", body("tools/call", r#""name":"echo","Name":"danger""#)),
        ("NAME in front", body("tools/call", r#""NAME":"danger","name":"echo""#)),
        ("name with NUL", body("tools/call", r#""name":"echo","name\u0000":"danger""#)),
        ("Arguments", body("tools/call", r#""name":"echo","arguments":{},"Arguments":{"a":1}"#)),
        ("argumentſ", body("tools/call", r#""name":"echo","arguments":{},"argument\u017f":{"a":1}"#)),
        ("Name alone", body("tools/call", r#""Name":"danger""#)),
        ("_META", body("tools/call", r#""name":"echo","_META":{}"#)),
        ("Name of a prompt", body("prompts/get", r#""name":"greet","Name":"other""#)),
        ("URI", body("resources/read", r#""uri":"note://one","URI":"note://two""#)),
        ("Ref", body("completion/complete", r#""ref":{"type":"ref/prompt","name":"greet"},"Ref":{}"#)),
        ("Name in ref", body("completion/complete", r#""ref":{"type":"ref/prompt","name":"greet","Name":"x"}"#)),
    ];

    all_refused(&gate, &cases.map(|(case, body)| (case, body.into_bytes(), invalid())));

    gate.passes("names of the tool's own", &gate.post(call("echo", r#"{"Name":1,"name":2,"ARGUMENTS":3}"#)));
    gate.passes("names nobody knows", &gate.post(body("tools/call", r#""name":"echo","names":1,"title":"Name""#)));
}

#[test]
fn names_that_are_orders_to_a_json_library_are_refused_at_any_depth() {
    let gate = Gate::with_rules(RULES);
    let mut cases = Vec::new();
    for name in
        ["$serde_json::private::RawValue", "$serde_json::private::Number", r"\u0024serde_json::private::RawValue"]
    {
        let order = format!(r#"{{"{name}":"[1]"}}"#);
        let nested = format!("{}{order}{}", r#"{"a":"#.repeat(20), "}".repeat(20));
        let twenty = format!("{}1{}", format!(r#"{{"{name}":"#).repeat(20), "}".repeat(20));
        for arguments in [order, nested, twenty] {
            cases.push((format!("{name} in {arguments}"), call("echo", &arguments).into_bytes(), invalid()));
        }
        cases.push((format!("{name} at the top"), format!(r#"{{"id":7,"{name}":1}}"#).into_bytes(), invalid()));
    }

    let cases: Vec<_> = cases.iter().map(|(case, body, how)| (case.as_str(), body.clone(), how.clone())).collect();
    all_refused(&gate, &cases);
    gate.passes("as a value", &gate.post(call("echo", r#"{"a":"$serde_json::private::RawValue","$serde_json":1}"#)));
}

#[test]
fn what_is_not_one_json_text_in_utf_8_is_refused() {
    let gate = Gate::with_rules(RULES);
    let good = call("echo", r#"{"a":"x"}"#);
    let utf_16: Vec<u16> = good.encode_utf16().collect();
    let bytes = |units: &[u16], to: fn(u16) -> [u8; 2]| units.iter().copied().flat_map(to).collect::<Vec<u8>>();
    let with = |inside: &[u8]| {
        [br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"a":"#, inside, b"}}}"]
            .concat()
    };
    let mut cases: Vec<(String, Vec<u8>, Refused)> = vec![
        ("BOM".into(), [b"\xef\xbb\xbf", good.as_bytes()].concat(), syntax()),
        ("UTF-16LE".into(), bytes(&utf_16, u16::to_le_bytes), syntax()),
        ("UTF-16BE".into(), bytes(&utf_16, u16::to_be_bytes), syntax()),
        ("UTF-16LE with BOM".into(), [b"\xff\xfe".to_vec(), bytes(&utf_16, u16::to_le_bytes)].concat(), syntax()),
        ("UTF-16BE with BOM".into(), [b"\xfe\xff".to_vec(), bytes(&utf_16, u16::to_be_bytes)].concat(), syntax()),
        ("UTF-32LE".into(), good.chars().flat_map(|c| (c as u32).to_le_bytes()).collect(), syntax()),
        ("empty".into(), Vec::new(), syntax()),
        ("space".into(), b" \r\n".to_vec(), syntax()),
        ("form feed in front".into(), format!("\x0c{good}").into_bytes(), syntax()),
        ("no-break space in front".into(), format!("\u{a0}{good}").into_bytes(), syntax()),
        ("gzip without saying so".into(), b"\x1f\x8b\x08\x00\x00\x00\x00\x00".to_vec(), syntax()),
        ("a form".into(), b"jsonrpc=2.0&id=7&method=ping".to_vec(), syntax()),
    ];
    for tail in [" x", "{}", "\0", "]", "}", ",", "// comment", "/* comment */", "\u{a0}", "\u{feff}", "\n;"] {
        cases.push((format!("followed by {tail:?}"), format!("{good}{tail}").into_bytes(), syntax()));
    }
    for between in ["", "\n", "\r\n", "\x1e", ",", "\0"] {
        let two = format!("{good}{between}{}", call("danger", "{}"));
        cases.push((format!("two texts with {between:?} between"), two.into_bytes(), syntax()));
    }
    let values: [&[u8]; 33] = [
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"0x10",
        b"01",
        b"-01",
        b"+1",
        b"1.",
        b".5",
        b"1e",
        b"1e+",
        b"-",
        b"--1",
        b"1_000",
        b"'x'",
        b"x",
        b"True",
        b"nul",
        b"[1,]",
        b"{\"b\":1,}",
        b"{b:1}",
        b"\"\x01\"",
        b"\"\n\"",
        b"\"\t\"",
        b"\"\\x41\"",
        b"\"\\u12\"",
        br#""\ud800""#,
        br#""\udc00\ud800""#,
        b"\"\xff\"",
        b"\"caf\xe9\"",
        b"\"\xc0\xaf\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xf4\x90\x80\x80\"",
    ];
    for value in values {
        cases.push((format!("the value {}", value.escape_ascii()), with(value), syntax()));
    }
    cases.push(("cut short".into(), good.as_bytes()[..good.len() - 1].to_vec(), syntax()));

    let cases: Vec<_> = cases.iter().map(|(case, body, how)| (case.as_str(), body.clone(), how.clone())).collect();
    all_refused(&gate, &cases);
}

#[test]
fn json_that_is_no_request_is_refused() {
    let gate = Gate::with_rules(RULES);
    let none = || error(400, -32600, "jsonrpc.invalid");
    let long_id = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(1_000_000));
    let cases = [
        ("null", "null", none()),
        ("a string", r#""tools/call""#, none()),
        ("a number", "42", none()),
        ("nothing in it", "{}", none()),
        ("no jsonrpc", r#"{"id":7,"method":"ping"}"#, invalid()),
        ("jsonrpc 1.0", r#"{"id":7,"jsonrpc":"1.0","method":"ping"}"#, invalid()),
        ("jsonrpc as a number", r#"{"id":7,"jsonrpc":2.0,"method":"ping"}"#, invalid()),
        ("id null", r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, none()),
        ("id 1.0", r#"{"jsonrpc":"2.0","id":1.0,"method":"ping"}"#, none()),
        ("id 1e3", r#"{"jsonrpc":"2.0","id":1e3,"method":"ping"}"#, none()),
        ("id -0", r#"{"jsonrpc":"2.0","id":-0,"method":"ping"}"#, none()),
        ("id true", r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, none()),
        ("id an object", r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, none()),
        ("id an array", r#"{"jsonrpc":"2.0","id":[7],"method":"ping"}"#, none()),
        ("id of a million letters", &long_id, none()),
        ("method a number", r#"{"jsonrpc":"2.0","id":7,"method":7}"#, invalid()),
        ("method null", r#"{"jsonrpc":"2.0","id":7,"method":null}"#, invalid()),
        ("method empty", r#"{"jsonrpc":"2.0","id":7,"method":""}"#, invalid()),
        ("no method", r#"{"jsonrpc":"2.0","id":7,"params":{"name":"danger"}}"#, invalid()),
        ("params an array", r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":["danger",{}]}"#, invalid()),
        ("params null", r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":null}"#, invalid()),
        ("params a string", r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":"danger"}"#, invalid()),
        ("a result", r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, none()),
        ("an error", r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}"#, none()),
        (
            "method and result",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"danger"},"result":{}}"#,
            invalid(),
        ),
        ("method and error", r#"{"jsonrpc":"2.0","id":7,"method":"ping","error":{"code":1,"message":"x"}}"#, invalid()),
        ("result and error", r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"x"}}"#, invalid()),
        ("a call without an id", r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}"#, none()),
        (
            "a denied call without an id",
            r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"danger"}}"#,
            none(),
        ),
        ("a list without an id", r#"{"jsonrpc":"2.0","method":"tools/list"}"#, none()),
        ("a notification with an id", r#"{"jsonrpc":"2.0","id":7,"method":"notifications/initialized"}"#, invalid()),
    ];

    all_refused(&gate, &cases.map(|(case, body, how)| (case, body.as_bytes().to_vec(), how)));

    gate.passes(
        "a notification without an id",
        &gate.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
    );
}

#[test]
fn nesting_and_numbers_of_values_have_limits() {
    let gate = Gate::with_rules(RULES);
    // The message, its params and the arguments are three levels.
    let nested = |depth: usize| call("echo", &format!(r#"{{"a":{}{}}}"#, "[".repeat(depth - 3), "]".repeat(depth - 3)));
    let many = |n: usize| call("echo", &format!(r#"{{"a":[{}]}}"#, vec!["0"; n].join(",")));
    let cases = [
        ("65 levels", nested(65), invalid()),
        ("a million levels", nested(1_000_000), invalid()),
        ("100 000 values in an array", many(100_000), invalid()),
        ("a million values in an array", many(1_000_000), invalid()),
    ];

    all_refused(&gate, &cases.map(|(case, body, how)| (case, body.into_bytes(), how)));

    gate.passes("64 levels", &gate.post(nested(64)));
    gate.passes("99 900 values", &gate.post(many(99_900)));
}
