//! A deploy that waits for a person: once approved it runs once, and the host's own log says which request that was.

use super::{config, structured};
use crate::approval::decide::{approve, deny, id, only, wait_for_held, wait_for_state};
use crate::support::agent::{Agent, Answer};
use crate::support::gateway::Gateway;
use crate::support::sshd::{Setup, Sshd};
use serde_json::{Value, json};

const RULES: &str = concat!(
    "    - { name: deploys, tools: [prod/biscuit_deploy], hold: { approvers: { users: [bob] } } }\n",
    "    - { name: rest, tools: [\"prod/*\"], allow: {} }\n",
);

/// A host and a gateway in front of it, where deploys are held for this long.
struct Scene {
    sshd: Sshd,
    gateway: Gateway,
}

impl Scene {
    fn new(setup: Setup, wait: &str) -> Scene {
        let sshd = setup.start();
        // Its home is where it can write.
        sshd.hook("project-b", "deploy", "#!/bin/sh\necho run >>/home/deploy/runs\necho deployed project-b\n");
        let gateway = Gateway::start(&config(&sshd.settings(), RULES, &format!("approvals: {{ wait: {wait} }}\n")));
        gateway.wait_for_log("upstream reached");
        Scene { sshd, gateway }
    }

    fn alice(&self) -> Agent {
        self.gateway.agent("alice", "prod").modern()
    }

    fn n_runs(&self) -> usize {
        std::fs::read_to_string(self.sshd.home().join("runs")).unwrap_or_default().lines().count()
    }

    /// A deploy whose caller waits while somebody decides on it.
    #[track_caller]
    fn deploy(&self, n: usize, decide: impl FnOnce(&Value)) -> (Answer, Value) {
        let alice = self.alice();
        let call = std::thread::spawn(move || deploy(&alice));
        let held = wait_for_held(&self.gateway, n);
        decide(&held);
        (call.join().expect("the caller has an answer"), held)
    }
}

fn deploy(agent: &Agent) -> Answer {
    agent.tool("biscuit_deploy", json!({ "project": "project-b" }))
}

/// What the gateway calls the request that this answers.
#[track_caller]
fn request(answer: &Answer) -> &str {
    answer.response.header("x-request-id").expect("every answer has one")
}

#[track_caller]
fn has_deployed(answer: &Answer) {
    let result = structured(answer);
    assert_eq!((&result["ended"], &result["exit_code"]), (&json!("exited"), &json!(0)), "{result:#}");
    assert_eq!(result["stdout"], "deployed project-b\n");
}

#[test]
fn an_approved_deploy_is_one_session_in_the_hosts_log_under_the_name_of_its_request() {
    let scene = Scene::new(Sshd::certificates(), "30s");
    let before = scene.sshd.log();

    let (answer, held) = scene.deploy(1, |held| {
        assert_eq!(scene.sshd.log(), before, "nothing is sent before somebody has said yes");
        approve(&scene.gateway, held);
    });

    has_deployed(&answer);
    wait_for_state(&scene.gateway, id(&held), "completed");
    let name = format!("{}/{}", request(&answer), id(&held));
    let sessions = scene.sshd.sessions();
    assert_eq!(sessions.len(), 1, "{}", scene.sshd.log());
    assert_eq!(sessions[0].key_id, Some(format!("{name} deploy project-b")), "{}", scene.sshd.log());
    assert_eq!(sessions[0].what, "forced-command (config) '/opt/portcullis/portcullis-gate'");
    assert_eq!(scene.n_runs(), 1);
    // By that name the audit log has who asked, who approved, and how it ended.
    let shown = scene.gateway.cli(&["audit", "show", request(&answer)]).success().stdout;
    for word in ["alice", "biscuit_deploy", id(&held), "completed"] {
        assert!(shown.contains(word), "{word} is not in {shown}");
    }
}

#[test]
fn an_identical_deploy_is_held_anew_and_a_denied_one_leaves_no_trace_on_the_host() {
    for (setup, forced) in [(Sshd::certificates(), "config"), (Sshd::restricted(), "key-option")] {
        let scene = Scene::new(setup, "30s");
        let n_sessions = || scene.sshd.sessions().len();
        let (first, _) = scene.deploy(1, |held| approve(&scene.gateway, held));
        has_deployed(&first);
        assert_eq!((n_sessions(), scene.n_runs()), (1, 1), "{}", scene.sshd.log());
        assert!(scene.sshd.sessions()[0].what.starts_with(&format!("forced-command ({forced})")));

        let (second, held) = scene.deploy(2, |held| {
            assert_eq!((n_sessions(), &held["state"]), (1, &json!("pending")), "an approval is for one run");
            approve(&scene.gateway, held);
        });
        has_deployed(&second);
        wait_for_state(&scene.gateway, id(&held), "completed");
        assert_eq!((n_sessions(), scene.n_runs()), (2, 2), "{}", scene.sshd.log());

        let before = scene.sshd.log();
        let (denied, _) = scene.deploy(3, |held| deny(&scene.gateway, held, "not on a Friday"));
        assert!(denied.refusal().contains("not on a Friday"), "{denied:#?}");
        assert!(deploy(&scene.alice()).refusal().contains("not on a Friday"), "nor when it is asked for again");
        assert_eq!(scene.sshd.log(), before);
        assert_eq!(scene.n_runs(), 2);
    }
}

#[test]
fn an_approved_deploy_whose_caller_has_gone_runs_when_they_ask_again() {
    let scene = Scene::new(Sshd::certificates(), "100ms");
    let alice = scene.alice();
    deploy(&alice).refusal();
    let held = only(&scene.gateway);
    approve(&scene.gateway, &held);
    assert_eq!(scene.sshd.sessions(), [], "nobody is there to hear how it went");

    let answer = deploy(&alice);

    has_deployed(&answer);
    let expected = format!("{}/{} deploy project-b", request(&answer), id(&held));
    let key_ids: Vec<_> = scene.sshd.sessions().into_iter().map(|session| session.key_id).collect();
    assert_eq!(key_ids, [Some(expected)], "it is named after the request that ran it");
    assert_eq!(scene.n_runs(), 1);
}

#[test]
fn a_deploy_that_runs_as_a_task_without_its_client_has_a_name_of_its_own() {
    let scene = Scene::new(Sshd::certificates(), "30s");
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let alice = scene.alice().with_capabilities(tasks);
    let answer = deploy(&alice);
    let held = only(&scene.gateway);
    assert_eq!(answer.result()["taskId"], held["id"]);

    approve(&scene.gateway, &held);

    wait_for_state(&scene.gateway, id(&held), "completed");
    let sessions = scene.sshd.sessions();
    let key_id = sessions.first().and_then(|session| session.key_id.clone()).expect("a session by a certificate");
    let (request, rest) = key_id.split_once('/').expect("a request and an approval");
    assert_eq!(rest, format!("{} deploy project-b", id(&held)));
    assert!(request.starts_with("r_") && request != self::request(&answer), "{request}");
    // What is recorded of the run is recorded under that name.
    let shown = scene.gateway.cli(&["audit", "show", request]).success().stdout;
    assert!(shown.contains(id(&held)), "{shown}");
    assert_eq!((sessions.len(), scene.n_runs()), (1, 1));
}

#[test]
fn a_call_has_the_name_that_the_gateway_gave_it_whatever_its_client_says() {
    let scene = Scene::new(Sshd::certificates(), "30s");
    let alice = scene.alice();
    let call = json!({ "name": "biscuit_list", "arguments": {} });

    let plain = alice.call("tools/call", call.clone());
    let (forged, id) = alice.request("tools/call", call);
    let posing = forged.header("Portcullis-Request", "r_0_0/h_forged").header("Portcullis-Principal", "e30");
    let posing = alice.send(&posing, Some(&id));

    for answer in [&plain, &posing] {
        assert_eq!(structured(answer)["exit_code"], 0);
    }
    let key_ids: Vec<_> = scene.sshd.sessions().into_iter().filter_map(|session| session.key_id).collect();
    assert_eq!(key_ids, [&plain, &posing].map(|answer| format!("{} list", request(answer))));
}
