//! A host that shows another key than the pinned one: it is told nothing, its upstream is down, and that is on record.

use super::{alice, both_modes, config, status, structured};
use crate::support::gateway::Gateway;
use crate::support::recorder::Recorder;
use crate::support::wait_for;
use serde_json::{Value, json};

fn up(gateway: &Gateway) -> bool {
    gateway.metric("portcullis_upstream_up{upstream=\"prod\"}") > 0.5
}

/// What the audit log has of the upstream's comings and goings.
fn recorded(gateway: &Gateway) -> Vec<Value> {
    let is_it = |record: &Value| record["event"].as_str().is_some_and(|event| event.starts_with("upstream."));
    gateway.audit().into_iter().filter(|record| is_it(record) && record["upstream"] == "prod").collect()
}

#[test]
fn u_19_a_changed_host_key_is_refused_and_the_upstream_down_until_the_key_is_back() {
    for setup in both_modes() {
        let mut sshd = setup.start();
        let other = Recorder::start();
        let up_too = format!("upstreams:\n  up: {{ http: {{ url: \"{}\" }} }}\n", other.url());
        let gateway = Gateway::start(&config(&sshd.settings(), super::EVERYTHING, "").replace("upstreams:\n", &up_too));
        gateway.wait_until_asked("prod");
        let agent = alice(&gateway);
        assert_eq!(structured(&status(&agent, "project-a"))["exit_code"], 0);
        let n_sessions = sshd.sessions().len();

        sshd.with_other_host_key();
        let refused = status(&agent, "project-a");
        let said = refused.refusal();
        assert!(said.contains("host key") && said.contains("nothing was sent to the host"), "{said}");
        wait_for("the end of the upstream", || !up(&gateway));
        wait_for("a record of it", || {
            let records = recorded(&gateway);
            records.iter().any(|record| record["event"] == "upstream.down" && record.to_string().contains("host key"))
        });
        // Down, with the reason in the log, and with nobody let in on the way.
        wait_for("a refusal of the gateway's own", || {
            status(&agent, "project-a").message["error"]["data"]["code"] == "upstream.down"
        });
        assert!(gateway.log().contains("the host key of"), "{}", gateway.log());
        assert_eq!(sshd.sessions().len(), n_sessions, "{}", sshd.log());
        assert!(
            !sshd
                .log()
                .lines()
                .rev()
                .take_while(|line| !line.contains("listening"))
                .any(|line| line.contains("Accepted"))
        );
        gateway.agent("alice", "up").modern().tool("any", json!({})).result();
        assert_eq!(gateway.observe("/healthz").status, 200);

        sshd.with_its_host_key();
        wait_for("the upstream", || up(&gateway));
        assert_eq!(structured(&status(&agent, "project-a"))["exit_code"], 0);
        let events: Vec<Value> = recorded(&gateway).into_iter().map(|record| record["event"].clone()).collect();
        assert_eq!(events.first(), Some(&json!("upstream.up")), "{events:?}");
        assert_eq!(events.last(), Some(&json!("upstream.up")), "{events:?}");
        assert!(events.len() < 12, "it is told, and not again and again: {events:?}");
    }
}

#[test]
fn a_host_that_is_another_one_at_the_start_is_never_spoken_to() {
    let mut sshd = crate::support::sshd::Sshd::restricted().start();
    let settings = sshd.settings();
    sshd.with_other_host_key();

    let gateway = Gateway::start(&config(&settings, super::EVERYTHING, ""));
    gateway.wait_for_log("the host key of");
    let answer = status(&alice(&gateway), "project-a");

    assert_eq!(answer.message["error"]["data"]["code"], "upstream.down", "{answer:#?}");
    let n_accepted = sshd.log().matches("Accepted").count();
    assert_eq!((n_accepted, sshd.sessions().len()), (0, 0), "{}", sshd.log());
    sshd.with_its_host_key();
    wait_for("the upstream", || up(&gateway));
    assert_eq!(structured(&status(&alice(&gateway), "project-a"))["exit_code"], 0);
}

#[test]
fn an_action_that_runs_while_the_host_changes_ends_and_is_told() {
    let mut sshd = crate::support::sshd::Sshd::certificates().start();
    let mark = "611741";
    sshd.hook("project-a", "status", &format!("echo begun; sleep {mark}"));
    let gateway = super::start(&sshd.settings());
    let agent = alice(&gateway);

    let answer = std::thread::scope(|scope| {
        let call = scope.spawn(|| status(&agent, "project-a"));
        wait_for("the action", || !sshd.processes_with(mark).is_empty());
        sshd.with_other_host_key();
        call.join().expect("the call is answered")
    });

    assert_eq!(structured(&answer)["ended"], "lost", "{answer:#?}");
}
