//! A changed configuration: a bad one changes nothing, a good one is in force for the next call of every session.

use super::{EVERYTHING, NO_DANGER, settled, wait_until, wait_until_up};
use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use serde_json::json;
use std::path::Path;

const FAILED: &str = "portcullis_config_reload_failed";
const REFUSED: &str = "portcullis_config_reloads_total{result=\"refused\"}";

fn is(gateway: &Gateway, sample: &str, value: f64) -> bool {
    (gateway.metric(sample) - value).abs() < f64::EPSILON
}

/// Puts new contents under a name at once, as editors and configuration management do.
fn rename_over(path: &Path, contents: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, contents).expect("the folder is ours");
    std::fs::rename(beside, path).expect("the folder is ours");
}

// B59: MikkoParkkola/mcp-gateway#462, docker/mcp-gateway#383, oryx-labs/oryxos#270, NousResearch/hermes-agent#14745,
// agentgateway/agentgateway#1266.
#[test]
fn bad_file_changes_nothing_and_says_where_and_a_good_one_is_picked_up_by_itself() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, NO_DANGER);
    let agent = gateway.agent("alice", "up");
    let path = gateway.path("gateway.yaml");
    let good = std::fs::read_to_string(&path).expect("the harness wrote it");
    // Each says something else about the policy as well, which must not come in with it.
    let with = |from: &str, to: &str| good.replacen("deny: {}", "deny: { reason: CHANGED }", 1).replacen(from, to, 1);
    let twice = good.replacen("policy:", &format!("  up: {{ http: {{ url: \"{}\" }} }}\npolicy:", recorder.url()), 1);
    let bad: Vec<(&str, String, &str)> = vec![
        ("broken YAML", with("policy:", "policy: ["), "gateway.yaml:"),
        ("cut in the middle", good[..good.len() / 2].to_owned(), "gateway.yaml"),
        ("empty", String::new(), "gateway.yaml"),
        ("comments only", "# nothing\n".to_owned(), "gateway.yaml"),
        ("an unknown key", with("upstreams:", "failureMod: open\nupstreams:"), "failureMod"),
        ("an upstream twice", twice, "up"),
        ("a bad regex", with("deny:", "when: { /x: { matches: \"(\" } }, deny:"), "matches"),
        ("another type", with("rules:\n", "rules: 7\n#"), "gateway.yaml:"),
        ("an unset secret", with("} }\n", ", headers: { X-Key: { env: NOT_SET_ANYWHERE } } } }\n"), "NOT_SET_ANYWHERE"),
        ("an unknown upstream in a rule", with("up/danger", "upp/danger"), "upp"),
        (
            "a failing test",
            good.replacen("policy:\n", "policy:\n  tests: [ { tool: up/danger, user: alice, expect: allow } ]\n", 1),
            "tests",
        ),
    ];
    for (what, text, says) in bad {
        let (n_refused, before) = (gateway.metric(REFUSED), gateway.log().len());

        std::fs::write(&path, &text).expect("the folder is ours");
        gateway.signal("HUP");

        wait_until(&format!("{what} to be refused"), || gateway.metric(REFUSED) > n_refused);
        wait_until(&format!("{what} to show"), || is(&gateway, FAILED, 1.0));
        wait_until(&format!("{what} to be logged"), || gateway.log()[before..].contains("stays in force"));
        let log = gateway.log()[before..].to_owned();
        assert!(log.contains(says) && log.contains("gateway.yaml"), "{what} says: {log}");
        assert_eq!(agent.tool("danger", json!({})).error().1, "Unknown tool", "{what}");
        agent.tool("echo", json!({})).result();
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), text, "{what}: the gateway wrote the file");

        rename_over(&path, &good);
        gateway.signal("HUP");
        wait_until(&format!("the good file after {what}"), || is(&gateway, FAILED, 0.0));
    }
    // Nobody has to say so: the file is looked at.
    std::fs::remove_file(&path).expect("it is there");
    wait_until("a missing file to be noticed", || is(&gateway, FAILED, 1.0));
    agent.tool("echo", json!({})).result();
    assert!(!path.exists(), "the gateway wrote the file");
    std::fs::write(&path, &good).expect("the folder is ours");
    wait_until("the good file", || is(&gateway, FAILED, 0.0));
    assert!(gateway.audit_text().contains("config.refused"));
}

// B59: every way a file comes to be another one.
#[test]
fn good_file_is_in_force_by_itself_however_it_was_put_there() {
    let recorder = Recorder::start();
    let launch = Launch::new("");
    std::fs::remove_file(launch.path("gateway.yaml")).expect("the harness wrote it");
    let version = |n: usize| {
        format!(
            "{}# {n}\n",
            harness_defaults(&in_front_of(&recorder.url(), if n.is_multiple_of(2) { EVERYTHING } else { NO_DANGER }))
        )
    };
    let launch = launch.file("v0.yaml", version(0)).file("v1.yaml", version(1)).file("v2.yaml", version(2));
    let link = |name: &str, to: &Path| {
        let beside = to.with_extension("link");
        std::os::unix::fs::symlink(name, &beside).expect("the folder is ours");
        std::fs::rename(beside, to).expect("the folder is ours");
    };
    link("v0.yaml", &launch.path("gateway.yaml"));
    let gateway = launch.start();
    wait_until_up(&gateway, "up");
    let agent = gateway.agent("alice", "up");
    let path = gateway.path("gateway.yaml");
    let is_denied = || agent.tool("danger", json!({})).message.get("error").is_some();
    assert!(!is_denied());

    link("v1.yaml", &path);
    wait_until("a swapped symlink", is_denied);
    std::fs::write(gateway.path("v1.yaml"), version(4)).expect("the folder is ours");
    wait_until("a write to what the symlink names", || !is_denied());
    rename_over(&path, &version(5));
    wait_until("a file renamed over", is_denied);
    std::fs::write(&path, version(6)).expect("the folder is ours");
    wait_until("a write in place", || !is_denied());
    // The same length and, on a coarse clock, the same time: the contents are looked at.
    std::fs::write(&path, version(6).replace("allow: {}", "deny:  {}")).expect("the folder is ours");
    wait_until("a change of the same length", is_denied);
}

/// What `Gateway::start` would add, for files that are written without it.
fn harness_defaults(yaml: &str) -> String {
    let launch = Launch::new(yaml);
    std::fs::read_to_string(launch.path("gateway.yaml")).expect("the harness wrote it")
}

// B59: new servers that "reload fine" but are not found.
#[test]
fn upstream_that_a_reload_adds_can_be_called_at_once() {
    let (recorder, added) = (Recorder::start(), Recorder::start());
    let gateway = settled(&recorder, EVERYTHING);
    let yaml = in_front_of(&recorder.url(), &EVERYTHING.replace("tools: [\"up/*\"]", "tools: [\"up/*\", \"zed/*\"]"));
    gateway.rewrite(&yaml.replacen(
        "policy:",
        &format!("  zed: {{ http: {{ url: \"{}\" }} }}\npolicy:", added.url()),
        1,
    ));

    gateway.reload().success();

    gateway.agent("alice", "zed").tool("echo", json!({ "a": 1 })).result();
    assert_eq!(added.calls().len(), 1);
    wait_until_up(&gateway, "zed");
    assert_eq!(gateway.reload().success().stderr, "");
}

// B59: `portcullis reload` tells whoever asked.
#[test]
fn reload_command_and_start_fail_on_a_bad_file_with_line_and_key() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, EVERYTHING);
    let bad = in_front_of(&recorder.url(), EVERYTHING).replace("allow: {}", "alow: {}");
    gateway.rewrite(&bad);

    let reload = gateway.reload();

    assert!(!reload.status.success());
    let said = format!("{}{}", reload.stdout, reload.stderr);
    for part in ["gateway.yaml:5:", "alow", "did you mean", "allow", "stays in force"] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    // At start-up a bad file is fatal.
    let said = Launch::new(&bad).try_start().err().expect("it must not start");
    assert!(said.contains("alow") && said.contains("gateway.yaml:5:"), "{said}");
    assert!(Launch::new("").file("gateway.yaml", "").try_start().is_err(), "an empty file");
}

// B60: can1357/oh-my-pi#8693, openclaw/openclaw#114027, agentgateway/agentgateway#896, openshift/openshift-docs#110614.
#[test]
fn reload_that_denies_a_tool_holds_for_open_sessions_and_lets_running_calls_finish() {
    let recorder = Recorder::start();
    recorder.answer_with(|request| Reply::mcp(request).header("Mcp-Session-Id", "s"));
    let gateway = settled(&recorder, EVERYTHING);
    let mut agent = gateway.agent("alice", "up");
    agent.initialize();
    assert_eq!(agent.tools(), ["add", "danger", "echo"]);
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    let (request, id) = agent.request("tools/call", json!({ "name": "danger", "arguments": { "running": true } }));
    let mut connection = agent.open(&request);
    let mut running = connection.streaming();
    let mut other = agent.open(&agent.request("ping", json!({})).0);
    assert_eq!(other.response().status, 200);

    gateway.rewrite(&in_front_of(&recorder.url(), NO_DANGER));
    gateway.reload().success();
    let mark = recorder.mark();

    // On the same session, and on a connection that was open before.
    assert_eq!(agent.tool("danger", json!({})).error().1, "Unknown tool");
    other.send(
        &agent
            .request("tools/call", json!({ "name": "danger", "arguments": {} }))
            .0
            .to_bytes(&gateway.agent.to_string()),
    );
    let refused = other.response().text();
    assert!(refused.contains("Unknown tool"), "{refused}");
    recorder.assert_untouched(mark);
    assert_eq!(agent.tools(), ["add", "echo"]);
    let mut new = gateway.agent("alice", "up");
    new.initialize();
    assert_eq!(new.tool("danger", json!({})).error().1, "Unknown tool");
    // The call that was running ends as it began.
    feed.message(&json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } }));
    drop(feed);
    assert_eq!(running.message().expect("the answer")["id"], id);
    agent.tool("echo", json!({})).result();
}

// B60: a user who is removed.
#[test]
fn reload_that_removes_a_user_ends_their_tokens_at_once() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, EVERYTHING);
    let (alice, bob) = (gateway.agent("alice", "up"), gateway.agent("bob", "up"));
    bob.tool("echo", json!({})).result();
    let text = std::fs::read_to_string(gateway.path("gateway.yaml")).expect("the harness wrote it");
    let without: String =
        text.lines().filter(|line| !line.contains("name: bob")).map(|line| format!("{line}\n")).collect();
    let mark = recorder.mark();

    gateway.rewrite_raw(without);
    gateway.reload().success();

    assert_eq!(bob.tool("echo", json!({})).status(), 401);
    assert_eq!(bob.call("tools/list", json!({})).status(), 401);
    recorder.assert_untouched(mark);
    alice.tool("echo", json!({})).result();
}

// B60: a reload that has nothing to do with it.
#[test]
fn reload_of_another_upstream_leaves_sessions_and_pooled_connections_alone() {
    let (recorder, other) = (Recorder::start(), Recorder::start());
    recorder.answer_with(|request| Reply::mcp(request).header("Mcp-Session-Id", "s"));
    let rules = EVERYTHING.replace("tools: [\"up/*\"]", "tools: [\"up/*\", \"other/*\"]");
    let with_other = |path: &str| {
        let line = format!("  other: {{ http: {{ url: \"http://{}{path}\" }} }}\npolicy:", other.address());
        in_front_of(&recorder.url(), &rules).replacen("policy:", &line, 1)
    };
    let gateway = Gateway::start(&with_other("/one"));
    wait_until_up(&gateway, "up");
    wait_until_up(&gateway, "other");
    let mut agent = gateway.agent("alice", "up");
    agent.initialize();
    agent.tool("echo", json!({})).result();
    let (mark, n_connections) = (recorder.mark(), recorder.n_connections());

    gateway.rewrite(&with_other("/two"));
    gateway.reload().success();
    wait_until("the changed upstream to be asked", || other.requests().iter().any(|request| request.target == "/two"));
    agent.tool("echo", json!({})).result();

    assert_eq!(recorder.requests_since(mark).len(), 1, "it was asked nothing but the call");
    assert_eq!(recorder.n_connections(), n_connections, "the pooled connection was used");
    assert_eq!(recorder.last().header("mcp-session-id"), Some("s"));
}
