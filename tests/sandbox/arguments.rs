//! Rules on the arguments of the sandbox's tools: what a rule refuses did not run, and wrote nothing.

use super::{agent, done, output};
use crate::support::gateway::Gateway;
use serde_json::json;

const YAML: &str = r#"
upstreams:
  sandbox: { sandbox: {} }
policy:
  rules:
    - { name: look, tools: [sandbox/read_file, sandbox/list_directory], allow: { reads: true } }
    - { name: builds, tools: [sandbox/run_command], when: { /command: { matches: 'make( [a-z]+)?|echo [a-z]+' } }, allow: {} }
    - { name: below src, tools: [sandbox/write_file], when: { /path: { matches: 'src/[a-z]+\.txt' } }, allow: {} }
    - { name: nobody reads keys, tools: [sandbox/read_file], when: { /path: { matches: '.*\.pem', or_absent: true } }, deny: { reason: keys stay where they are } }
"#;

#[test]
fn a_command_and_a_path_are_judged_before_anything_runs() {
    let gateway = Gateway::start(YAML);
    gateway.wait_for_log("upstream reached");
    let agent = agent(&gateway, "alice");
    let folder = gateway.path("workspace/user-alice");

    for (tool, arguments) in [
        ("run_command", json!({ "command": "touch ran" })),
        ("run_command", json!({ "command": "echo hello; touch ran" })),
        ("run_command", json!({ "command": "echo hello\ntouch ran" })),
        ("run_command", json!({ "command": ["echo", "hello"] })),
        ("run_command", json!({})),
        ("write_file", json!({ "path": "src/../ran", "content": "", "create_parents": true })),
        ("write_file", json!({ "path": "ran", "content": "" })),
        ("write_file", json!({ "path": "/workspace/src/a.txt", "content": "", "create_parents": true })),
        ("read_file", json!({ "path": "a.pem" })),
    ] {
        agent.tool(tool, arguments).refusal();
        assert!(!folder.exists(), "nothing got as far as the sandbox");
    }
    assert_eq!(output(&agent, "echo hello"), "hello\n");
    done(&agent.tool("write_file", json!({ "path": "src/a.txt", "content": "x", "create_parents": true })));
    assert_eq!(std::fs::read_to_string(folder.join("src/a.txt")).expect("it was written"), "x");
    assert_eq!(agent.tools(), ["list_directory", "read_file", "run_command", "write_file"]);
}
