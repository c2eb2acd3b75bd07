//! Definitions and results pass as the upstream wrote them, whatever members they carry.

use super::{EVERYTHING, NO_DANGER, settled};
use crate::support::http::Request;
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use serde_json::{Value, json};

/// A tool with every member that any revision knows, and some that none does. As text: order and spelling count.
const TOOL: &str = r##"{"x-future":{"a":[1,null]},"name":"full","title":"Full","description":"d\u00e9","icons":[{"src":"data:,","sizes":["1x1"],"theme":"dark"}],"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","$defs":{"n":{"type":"number","minimum":1.0}},"properties":{"n":{"$ref":"#/$defs/n"},"o":{"anyOf":[{"type":"null"},{"const":1e2}],"default":null}},"additionalProperties":false},"outputSchema":{"type":"object","properties":{}},"annotations":{"readOnlyHint":true,"destructiveHint":null,"x":1},"execution":{"taskSupport":"optional"},"_meta":{"vendor/x":null}}"##;

const RESULT: &str = r##"{"x-future":null,"structuredContent":{"b":1,"a":[1.0,null]},"isError":false,"_meta":{"k":{"n":null}},"content":[{"type":"text","text":"t","annotations":{"audience":["user"],"priority":0.50},"_meta":{"a":1}},{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"audio","data":"AA==","mimeType":"audio/wav","annotations":{}},{"type":"resource_link","uri":"note://one","name":"one","size":1,"icons":[]},{"type":"resource","resource":{"uri":"note://two","text":"t","_meta":null}},{"type":"x-future","v":null}]}"##;

fn messages() -> Vec<(&'static str, Value, String)> {
    let list = |key: &str, entry: &str| format!(r#"{{"_meta":{{"p":1}},"{key}":[{entry}],"x":null,"nextCursor":"c"}}"#);
    let resource = r#"{"uri":"note://one","name":"one","title":"t","size":10,"annotations":{"lastModified":"2025-01-01T00:00:00Z"},"icons":[],"_meta":null,"x-future":[]}"#;
    vec![
        ("tools/list", json!({}), list("tools", &format!(r#"{TOOL},{{"name":"b"}},{{"name":"a"}}"#))),
        ("tools/call", json!({ "name": "full", "arguments": {} }), RESULT.to_owned()),
        ("resources/list", json!({}), list("resources", resource)),
        ("resources/templates/list", json!({}), list("resourceTemplates", r#"{"uriTemplate":"note://{n}","name":"n","x-future":1}"#)),
        ("resources/read", json!({ "uri": "note://one" }), r#"{"contents":[{"uri":"note://one","blob":"AA==","_meta":{"a":null},"x":1}],"ttl":1.0}"#.to_owned()),
        ("prompts/list", json!({}), list("prompts", r#"{"name":"p","title":"P","arguments":[{"name":"a","required":true,"x":null}],"icons":[],"_meta":{}}"#)),
        ("prompts/get", json!({ "name": "p" }), r#"{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"t","_meta":{}},"x":null}],"_meta":null}"#.to_owned()),
    ]
}

// B39: gridctl/gridctl#848, IBM/mcp-context-forge#1258, wso2/carbon-apimgt#13901, mcp-use/mcp-use#2562,
// stacklok/toolhive#4336.
#[test]
fn definitions_and_results_differ_in_no_byte_from_what_the_upstream_wrote() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");

    for (method, params, result) in messages() {
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#);
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        for streams in [false, true] {
            let reply = || match streams {
                true => Reply::sse_raw(vec![format!("data: {text}\n\n").into_bytes()]),
                false => Reply::json(text.clone()),
            };
            recorder.answer_next(reply());
            let direct = Request::mcp("/mcp", body.clone()).send(recorder.address());
            recorder.answer_next(reply());
            let through = agent.post(body.clone()).response;

            let whole = |response: &crate::support::http::Response| match streams {
                true => response.events().into_iter().find(|event| !event.data.is_empty()).expect("an event").data,
                false => response.text(),
            };
            assert_eq!(whole(&through), whole(&direct), "{method}, stream: {streams}");
        }
    }
}

// B39: what is taken out of a list changes nothing about the rest of it.
#[test]
fn entries_that_stay_in_a_filtered_list_keep_their_bytes_and_their_order() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, NO_DANGER);
    let agent = gateway.agent("alice", "up");
    let list = |tools: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"x":null,"tools":[{tools}],"nextCursor":"c","ttlMs":1.50}}}}"#)
    };
    let body = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;

    for around in
        [r#"{"name":"danger"},"#, r#"{"na\u006de":"danger"},"#, r#"{"name":"d\u0061nger","x":{"name":"echo"}},"#]
    {
        recorder
            .answer_next(Reply::json(list(&format!(r#"{around}{{"name":"z"}},{around}{TOOL},{{"name":"danger"}}"#))));
        let through = agent.post(body).response.text();
        assert_eq!(through, list(&format!(r#"{{"name":"z"}},{TOOL}"#)), "{around}");
    }
}
