//! `behind_proxy`: whoever does not come from a proxy named there is refused before anything else is looked at.

use crate::support::gateway::{Gateway, in_front_of};
use crate::support::http::Request;
use crate::support::invariants;
use crate::support::recorder::Recorder;
use serde_json::json;

const RULES: &str = r#"- { name: everything, tools: ["up/*"], allow: {} }"#;

fn behind(recorder: &Recorder, from: &str) -> String {
    format!("public_url: https://gw.test\nbehind_proxy: {{ from: [{from}] }}\n{}", in_front_of(&recorder.url(), RULES))
}

#[test]
fn only_the_proxies_named_may_connect() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&behind(&recorder, "127.0.0.1/32"));
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");

    assert_eq!(agent.tool("echo", json!({ "a": 1 })).result()["structuredContent"], json!({ "a": 1 }));
    assert_eq!(recorder.calls().len(), 1);

    gateway.rewrite(&behind(&recorder, "10.0.0.0/8"));
    gateway.reload().success();
    let mark = recorder.mark();
    let refused = agent.tool("echo", json!({ "a": 2 }));
    assert_eq!((refused.status(), refused.error().0), (403, -32600));
    assert_eq!(refused.message["error"]["data"]["code"], "request.peer");
    recorder.assert_untouched(mark);

    gateway.rewrite(&behind(&recorder, "10.0.0.0/8, 127.0.0.1"));
    gateway.reload().success();
    agent.tool("echo", json!({ "a": 3 })).result();
}

#[test]
fn a_stranger_is_told_nothing_else() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&behind(&recorder, "10.0.0.0/8"));
    let forms = [
        Request::mcp("/mcp/up", "{}"),
        Request::mcp("/mcp/nowhere", "{}"),
        Request::mcp("/mcp/up", "{}").header("Host", "evil.test"),
        Request::get("/.well-known/oauth-protected-resource/mcp/up"),
        Request::get("/"),
    ];

    for form in forms {
        let answer = form.send(gateway.agent);

        invariants::check_headers(&answer);
        assert_eq!(answer.status, 403, "{form:?}");
        assert_eq!(answer.json()["error"]["data"]["code"], "request.peer", "{form:?}");
    }
    // The listener for machines that watch is not behind the proxy.
    assert_eq!(gateway.observe("/readyz").status, 200);
    gateway.wait_for_metric("portcullis_refusals_total{code=\"request.peer\",route=\"none\"}", 5.0);
}
