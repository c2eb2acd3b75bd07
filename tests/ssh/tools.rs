//! Every tool of the example, against the script as it is shipped; and what never gets as far as the host.

use super::{alice, both_modes, start, structured};
use crate::support::agent::Agent;
use serde_json::{Value, json};

/// Each tool with its arguments, and what it comes to.
fn calls() -> Vec<(&'static str, Value, String)> {
    let lines = |from: u32, to: u32| (from..=to).map(|n| format!("project-a line {n}\n")).collect::<String>();
    vec![
        ("biscuit_list", json!({}), "project-a\nproject-b\n".to_owned()),
        ("biscuit_status", json!({ "project": "project-a" }), "project-a runs\n".to_owned()),
        ("biscuit_logs", json!({ "project": "project-a" }), lines(101, 300)),
        ("biscuit_logs", json!({ "project": "project-a", "lines": 2 }), lines(299, 300)),
        ("biscuit_logs", json!({ "project": "project-a", "lines": 5, "file": "app/1.log" }), "deep\n".to_owned()),
        ("biscuit_deploy", json!({ "project": "project-b" }), "project-b deployed\n".to_owned()),
        ("biscuit_restart", json!({ "project": "project-a" }), "project-a restarted\n".to_owned()),
    ]
}

#[test]
fn every_tool_works_with_either_credential_in_both_eras() {
    for setup in both_modes() {
        let sshd = setup.start();
        sshd.project_log("project-a", "app/1.log", "deep\n");
        let gateway = start(&sshd.settings());
        let mut legacy = gateway.agent("alice", "prod");
        legacy.initialize();

        for agent in [&alice(&gateway), &legacy] {
            for (tool, arguments, stdout) in calls() {
                let answer = agent.tool(tool, arguments.clone());
                let result = structured(&answer);
                assert_ne!(answer.result()["isError"], true, "{tool} {arguments}: {result:#}");
                assert_eq!(result["ended"], "exited", "{tool} {arguments}: {result:#}");
                assert_eq!((&result["exit_code"], &result["stdout"]), (&json!(0), &json!(stdout)), "{tool}");
                assert_eq!(result["stderr"], "", "{tool}");
            }
        }

        let sessions = sshd.sessions();
        assert_eq!(sessions.len(), 2 * calls().len(), "{}", sshd.log());
        assert!(sessions.iter().all(|it| it.what.contains("'/opt/portcullis/portcullis-gate'")), "{sessions:#?}");
    }
}

#[test]
fn arguments_that_no_action_has_never_get_to_the_host_and_their_twins_do() {
    let sshd = crate::support::sshd::Sshd::restricted().start();
    let gateway = start(&sshd.settings());
    let agent = alice(&gateway);
    let works = |agent: &Agent, tool: &str, arguments: Value| {
        let result = structured(&agent.tool(tool, arguments));
        assert_eq!(result["exit_code"], 0, "{result:#}");
    };
    let logs = |file: &str| json!({ "project": "project-a", "lines": 5, "file": file });
    let lines = |lines: Value| json!({ "project": "project-a", "lines": lines });
    let project = |project: Value| json!({ "project": project });
    let (log, status) = (logs("current.log"), project(json!("project-a")));

    for (tool, arguments, twin) in [
        ("biscuit_list", json!({ "project": "project-a" }), json!({})),
        ("biscuit_status", json!({}), status.clone()),
        ("biscuit_status", project(json!("project-z")), status.clone()),
        ("biscuit_status", project(json!("project-a project-b")), status.clone()),
        ("biscuit_status", project(json!("project-a; id")), status.clone()),
        ("biscuit_status", project(json!("project-a\n")), status.clone()),
        ("biscuit_status", project(json!("$(id)")), status.clone()),
        ("biscuit_status", project(json!("../project-a")), status.clone()),
        ("biscuit_status", project(json!(null)), status.clone()),
        ("biscuit_status", project(json!(["project-a"])), status.clone()),
        ("biscuit_status", json!({ "project": "project-a", "command": "id" }), status.clone()),
        ("biscuit_deploy", project(json!("project-a\u{0}")), project(json!("project-b"))),
        ("biscuit_deploy", project(json!("-f")), project(json!("project-b"))),
        ("biscuit_restart", project(json!("Project-a")), status.clone()),
        ("biscuit_logs", lines(json!(0)), lines(json!(1))),
        ("biscuit_logs", lines(json!(1001)), lines(json!(1000))),
        ("biscuit_logs", lines(json!(-5)), lines(json!(5))),
        ("biscuit_logs", lines(json!("5; id")), lines(json!(5))),
        ("biscuit_logs", lines(json!(5.5)), lines(json!(5))),
        ("biscuit_logs", logs("/etc/passwd"), log.clone()),
        ("biscuit_logs", logs("-f"), log.clone()),
        ("biscuit_logs", logs("a b"), log.clone()),
        ("biscuit_logs", logs("current.log\n/etc/passwd"), log.clone()),
        ("biscuit_logs", logs("ｃurrent.log"), log.clone()),
        ("biscuit_logs", logs(&"l".repeat(200)), log.clone()),
    ] {
        let before = sshd.sessions().len();
        let answer = agent.tool(tool, arguments.clone());
        let said = answer.refusal();
        assert!(said.contains("nothing was sent to the host"), "{tool} {arguments}: {said}");
        assert_eq!(sshd.sessions().len(), before, "{tool} {arguments} got to the host: {}", sshd.log());

        works(&agent, tool, twin);
        assert_eq!(sshd.sessions().len(), before + 1, "{}", sshd.log());
    }
}

#[test]
fn what_the_script_refuses_is_a_refusal_of_the_host_and_runs_nothing() {
    for setup in both_modes() {
        let sshd = setup.start();
        let gateway = start(&sshd.settings());
        let agent = alice(&gateway);
        let logs = |file: &str| agent.tool("biscuit_logs", json!({ "project": "project-a", "lines": 5, "file": file }));

        // The pattern lets it through; the boundary does not.
        let refused = logs("x/../../hooks/status");

        let said = refused.refusal();
        assert!(said.contains("the host refused") && said.contains("not the path of a log"), "{said}");
        let result = structured(&refused);
        assert_eq!(
            (&result["ended"], &result["exit_code"], &result["stdout"]),
            (&json!("refused"), &json!(77), &json!(""))
        );
        assert_eq!(structured(&logs("current.log"))["exit_code"], 0);
    }
}
