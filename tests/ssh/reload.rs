//! The files of a host, changed while the gateway runs.

use super::config;
use crate::approval::decide::{all, approve, id, only, wait_for_held, wait_for_state};
use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::process;
use crate::support::sshd::Sshd;
use crate::support::wait_for;
use serde_json::json;
use std::path::Path;

const ALL: &str = "    - { name: all, tools: [\"*/*\"], allow: {} }\n";
const HELD: &str = "    - { name: all, tools: [\"*/*\"], hold: { approvers: { users: [bob] } } }\n";

/// A host, a gateway in front of it, and an actions file that is the test's.
struct Scene {
    sshd: Sshd,
    gateway: Gateway,
    alice: Agent,
}

impl Scene {
    fn new(rules: &str, wait: &str) -> Scene {
        let sshd = Sshd::restricted().start();
        let actions = sshd.key().with_file_name("actions.yaml");
        std::fs::write(&actions, example()).expect("the folder is the test's");
        let settings = sshd.settings_with(sshd.port, &actions);
        let gateway = Gateway::start(&config(&settings, rules, &format!("approvals: {{ wait: {wait} }}\n")));
        gateway.wait_for_log("upstream reached");
        let alice = gateway.agent("alice", "prod").modern();
        Scene { sshd, gateway, alice }
    }

    fn n_starts(&self) -> f64 {
        self.gateway.metric("portcullis_upstream_starts_total{upstream=\"prod\"}")
    }

    /// Writes one of the host's files anew, and waits until that is in force.
    #[track_caller]
    fn change(&self, path: &Path, change: impl FnOnce(String) -> String) {
        let n_before = self.n_starts();
        let text = std::fs::read_to_string(path).expect("it is there");
        std::fs::write(path, change(text)).expect("the folder is the test's");
        // The files are watched; nobody asks for a reload.
        wait_for("another process", || self.n_starts() > n_before);
        self.gateway.wait_until_asked("prod");
    }

    fn actions(&self) -> std::path::PathBuf {
        self.sshd.key().with_file_name("actions.yaml")
    }

    /// Another key that the host lets in as well.
    fn rotate_key(&self) {
        let other = self.sshd.key().with_file_name("other");
        let mut keygen = process::command("ssh-keygen");
        process::run(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&other), b"").success();
        self.sshd.let_in(&other.with_extension("pub"));
        self.change(&self.sshd.key(), |_| std::fs::read_to_string(&other).expect("it was made"));
    }
}

fn example() -> String {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/ssh/actions.example.yaml");
    std::fs::read_to_string(example).expect("it is there")
}

fn lists(agent: &Agent) -> String {
    let answer = agent.tool("biscuit_list", json!({}));
    super::structured(&answer)["stdout"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn what_changes_a_hosts_files_takes_effect_and_what_does_not_keeps_its_process() {
    let scene = Scene::new(ALL, "100ms");
    let projects = lists(&scene.alice);
    assert_eq!(projects, "project-a\nproject-b\n");
    let n_connections = scene.sshd.n_connections();

    // The same bytes, and a change elsewhere in the configuration.
    std::fs::write(scene.actions(), example()).expect("the folder is the test's");
    scene.gateway.reload().success();
    assert_eq!(lists(&scene.alice), projects);
    assert!((scene.n_starts() - 1.0).abs() < f64::EPSILON, "nothing has changed");
    assert_eq!(scene.sshd.n_connections(), n_connections, "its connection is used again");

    scene.change(&scene.actions(), |text| text.replace("biscuit_restart", "biscuit_again"));
    wait_for("the new tool", || scene.alice.tools().contains(&"biscuit_again".to_owned()));
    assert!(!scene.alice.tools().contains(&"biscuit_restart".to_owned()));

    scene.rotate_key();
    assert_eq!(lists(&scene.alice), projects);

    // A file with a mistake changes nothing, and says so.
    let n_starts = scene.n_starts();
    std::fs::write(scene.actions(), "check: nothing\n").expect("the folder is the test's");
    let refused = scene.gateway.reload();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(refused.stdout.contains("actions.yaml"), "{refused:?}");
    assert_eq!(lists(&scene.alice), projects);
    assert!((scene.n_starts() - n_starts).abs() < f64::EPSILON);
}

#[test]
fn a_rotated_key_leaves_an_approval_in_force() {
    let scene = Scene::new(HELD, "100ms");
    let list = || scene.alice.tool("biscuit_list", json!({}));
    list().refusal();
    let held = only(&scene.gateway);
    approve(&scene.gateway, &held);

    scene.rotate_key();

    assert_eq!(super::structured(&list())["exit_code"], 0);
    wait_for_state(&scene.gateway, id(&held), "completed");
    assert_eq!(scene.sshd.sessions().len(), 1);
}

#[test]
fn an_approval_is_not_for_other_actions_or_another_host_key() {
    let other_actions = |scene: &Scene| {
        scene.change(&scene.actions(), |text| text.replace("run: list\n", "run: list # the same words\n"));
    };
    let other_host = |scene: &Scene| {
        scene.change(&scene.sshd.known_hosts(), |text| format!("{text}# another line\n"));
    };
    for change in [&other_actions as &dyn Fn(&Scene), &other_host] {
        let scene = Scene::new(HELD, "100ms");
        scene.alice.tool("biscuit_list", json!({})).refusal();
        let held = only(&scene.gateway);
        approve(&scene.gateway, &held);

        change(&scene);

        let again = scene.alice.tool("biscuit_list", json!({}));
        assert!(again.refusal().contains("is held"), "{again:#?}");
        assert_eq!(all(&scene.gateway).len(), 2, "what was approved was another call");
        assert_eq!(scene.sshd.sessions(), [], "nothing ran");
    }
    for change in [&other_actions as &dyn Fn(&Scene), &other_host] {
        let scene = Scene::new(HELD, "30s");
        let waiting = scene.gateway.agent("alice", "prod").modern();
        let call = std::thread::spawn(move || waiting.tool("biscuit_list", json!({})));
        let held = wait_for_held(&scene.gateway, 1);

        change(&scene);
        approve(&scene.gateway, &held);

        call.join().expect("the caller has an answer").refusal();
        wait_for_state(&scene.gateway, id(&held), "invalidated");
        assert_eq!(scene.sshd.sessions(), [], "nothing ran");
    }
}
