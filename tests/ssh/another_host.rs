//! A host that shows another key than the one that is pinned: nothing is sent, the upstream is down, and it is on record.

use super::{EVERYTHING, alice, config, start, status, structured};
use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::recorder::Recorder;
use crate::support::sshd::Sshd;
use crate::support::wait_for;
use serde_json::{Value, json};

fn lists(agent: &Agent) {
    assert_eq!(structured(&agent.tool("biscuit_list", json!({})))["stdout"], "project-a\nproject-b\n");
}

/// What the audit log says of the host's upstream: the event, and why.
fn told(gateway: &Gateway) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let records = gateway.audit().into_iter().filter(|record| record["upstream"] == "prod");
    let told = records.filter(|record| record["event"].as_str().is_some_and(|event| event.starts_with("upstream.")));
    told.map(|record| (text(&record["event"]), text(&record["detail"]))).collect()
}

#[test]
fn u_19_a_changed_host_key_takes_the_upstream_down_and_is_on_record_and_nothing_else_suffers() {
    for setup in [Sshd::restricted(), Sshd::certificates()] {
        let (mut sshd, recorder) = (setup.start(), Recorder::start());
        let gateway = Gateway::start(&format!(
            "upstreams:\n  prod: {{ ssh: {{ {} }} }}\n  up: {{ http: {{ url: \"{}\" }} }}\n\
             policy: {{ rules: [{{ name: all, tools: [\"*/*\"], allow: {{}} }}] }}\n",
            sshd.settings(),
            recorder.url()
        ));
        gateway.wait_for_log("upstream reached upstream=prod");
        let (agent, other) = (gateway.agent("alice", "prod").modern(), gateway.agent("alice", "up"));
        lists(&agent);
        assert_eq!(told(&gateway), [("upstream.up".to_owned(), String::new())]);

        sshd.with_other_host_key();
        let n_sessions = sshd.sessions().len();
        let refused = agent.tool("biscuit_list", json!({}));

        assert!(refused.refusal().to_lowercase().contains("key"), "{refused:#?}");
        wait_for("the record", || told(&gateway).len() >= 2);
        let down = told(&gateway).remove(1);
        assert!(down.0 == "upstream.down" && down.1.contains("SHA256:"), "{down:?}");
        wait_for("further starts", || gateway.metric("portcullis_upstream_starts_total{upstream=\"prod\"}") >= 3.0);
        let refused = agent.tool("biscuit_list", json!({}));
        assert_eq!(refused.message["error"]["data"]["code"], "upstream.down", "{refused:#?}");
        let status = gateway.cli(&["status"]).success().stdout;
        assert!(status.contains("upstream `prod` does not run: ") && status.contains("SHA256:"), "{status}");
        assert_eq!(gateway.metric("portcullis_upstream_up{upstream=\"prod\"}"), 0.0);
        other.tool("any", json!({})).result();
        assert_eq!(gateway.observe("/readyz").status, 200);
        assert_eq!(sshd.sessions().len(), n_sessions, "nothing ran there");
        let all = told(&gateway);
        assert!(all.len() <= 3, "however often it is started: {all:?}");

        sshd.with_its_host_key();
        wait_for("the upstream", || told(&gateway).last().is_some_and(|(event, _)| event == "upstream.up"));
        lists(&agent);
        assert!(gateway.cli(&["status"]).success().stdout.contains("upstream `prod` runs"));
    }
}

#[test]
fn a_host_that_is_another_one_at_the_start_is_never_spoken_to() {
    let mut sshd = Sshd::restricted().start();
    let settings = sshd.settings();
    sshd.with_other_host_key();

    let gateway = Gateway::start(&config(&settings, EVERYTHING, ""));
    gateway.wait_for_log("the host key of");
    let answer = status(&alice(&gateway), "project-a");

    assert_eq!(answer.message["error"]["data"]["code"], "upstream.down", "{answer:#?}");
    let n_accepted = sshd.log().matches("Accepted").count();
    assert_eq!((n_accepted, sshd.sessions().len()), (0, 0), "{}", sshd.log());
    sshd.with_its_host_key();
    wait_for("the upstream", || told(&gateway).last().is_some_and(|(event, _)| event == "upstream.up"));
    assert_eq!(structured(&status(&alice(&gateway), "project-a"))["exit_code"], 0);
}

#[test]
fn an_action_that_runs_while_the_host_changes_ends_and_is_told() {
    let mut sshd = Sshd::certificates().start();
    let mark = "611741";
    sshd.hook("project-a", "status", &format!("echo begun; sleep {mark}"));
    let gateway = start(&sshd.settings());
    let agent = alice(&gateway);

    let answer = std::thread::scope(|scope| {
        let call = scope.spawn(|| status(&agent, "project-a"));
        wait_for("the action", || !sshd.processes_with(mark).is_empty());
        sshd.kill();
        call.join().expect("the call is answered")
    });
    sshd.with_other_host_key();

    assert_eq!(structured(&answer)["ended"], "lost", "{answer:#?}");
    assert!(status(&agent, "project-a").refusal().contains("host key"), "nothing is sent to the other one");
}
