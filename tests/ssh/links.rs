//! A host that is down, or behind a link that fails: calls fail fast and say why, and the next one works once it is back.

use super::{actions, alice, both_modes, config, start, status, structured};
use crate::support::agent::{Agent, Answer};
use crate::support::gateway::Gateway;
use crate::support::link::Link;
use crate::support::recorder::Recorder;
use crate::support::sshd::{Setup, Sshd};
use crate::support::wait_for;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// Above what any failure may take: a second to connect, or two unanswered questions a second apart; the machine is busy.
const FAST: Duration = Duration::from_secs(15);

/// A host behind a link, a gateway in front of both, and another upstream beside it.
struct Scene {
    sshd: Sshd,
    link: Link,
    gateway: Gateway,
    agent: Agent,
    _other: Recorder,
}

impl Scene {
    #[track_caller]
    fn new(setup: Setup) -> Scene {
        let sshd = setup.start();
        let link = Link::to(sshd.address());
        let actions = actions(&sshd, |text| text.replace("timeout: 30s", "timeout: 10m"));
        let settings = format!("{}, connect: 1s, keep_alive: 1s", sshd.settings_with(link.port, &actions));
        let other = Recorder::start();
        let up = format!("upstreams:\n  up: {{ http: {{ url: \"{}\" }} }}\n", other.url());
        let gateway = Gateway::start(&config(&settings, super::EVERYTHING, "").replace("upstreams:\n", &up));
        gateway.wait_until_asked("prod");
        let agent = alice(&gateway);
        Scene { sshd, link, gateway, agent, _other: other }
    }

    /// A call that works.
    #[track_caller]
    fn works(&self) {
        let answer = status(&self.agent, "project-a");
        assert_eq!(structured(&answer)["stdout"], "project-a runs\n", "{answer:#?}");
    }

    /// A call that fails, soon, with a reason; meanwhile the rest of the gateway is as it was.
    #[track_caller]
    fn fails_fast(&self) -> String {
        let began = Instant::now();
        let said = status(&self.agent, "project-a").refusal();
        assert!(began.elapsed() < FAST, "it took {:?}: {said}", began.elapsed());
        self.rest_is_well();
        said
    }

    #[track_caller]
    fn rest_is_well(&self) {
        let tools = self.agent.call("tools/list", json!({})).result();
        assert_eq!(tools["tools"].as_array().map(Vec::len), Some(5), "{tools:#}");
        self.gateway.agent("alice", "up").modern().tool("any", json!({})).result();
        assert_eq!(self.gateway.observe("/healthz").status, 200);
    }

    /// A call during which something happens: what it comes to, and how long it took from then.
    #[track_caller]
    fn during(&self, mark: &str, happens: impl FnOnce()) -> (Answer, Duration) {
        self.sshd.hook("project-b", "status", &format!("echo begun; sleep {mark}"));
        std::thread::scope(|scope| {
            let call = scope.spawn(|| status(&self.agent, "project-b"));
            wait_for("the action", || !self.sshd.processes_with(mark).is_empty());
            happens();
            let since = Instant::now();
            (call.join().expect("the call is answered"), since.elapsed())
        })
    }
}

#[track_caller]
fn is_lost(answer: &Answer) {
    let result = structured(answer);
    assert_eq!((&result["ended"], &result["exit_code"]), (&json!("lost"), &serde_json::Value::Null), "{result:#}");
    assert!(answer.refusal().contains("not known"), "{}", answer.refusal());
}

#[test]
fn b75_a_link_that_falls_silent_is_noticed_and_the_next_call_after_it_works() {
    for setup in both_modes() {
        let scene = Scene::new(setup);
        scene.works();

        let (answer, took) = scene.during("611731", || scene.link.fall_silent());
        is_lost(&answer);
        assert!(took < FAST, "it took {took:?}");
        let before = scene.link.n_connections();
        for _ in 0..3 {
            let said = scene.fails_fast();
            assert!(said.contains("nothing was sent to the host") && said.contains("did not answer"), "{said}");
        }
        assert!(
            scene.link.n_connections() - before <= 3,
            "one attempt a call: {}",
            scene.link.n_connections() - before
        );

        scene.link.go_on();
        scene.works();
    }
}

#[test]
fn b75_a_host_that_refuses_connections_is_not_stormed_and_the_next_call_after_that_works() {
    for setup in both_modes() {
        let mut scene = Scene::new(setup);
        scene.works();

        scene.link.refuse();
        for _ in 0..5 {
            let said = scene.fails_fast();
            assert!(said.contains("cannot reach") && said.contains("nothing was sent to the host"), "{said}");
        }
        let before = scene.link.n_connections();
        scene.link.accept();
        scene.works();

        assert_eq!(scene.link.n_connections() - before, 1);
    }
}

#[test]
fn b75_many_calls_at_a_host_that_is_away_make_few_attempts() {
    let scene = Scene::new(Sshd::restricted());
    scene.works();
    scene.link.forget();
    scene.link.fall_silent();
    let before = scene.link.n_connections();

    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..12).map(|_| scope.spawn(|| status(&scene.agent, "project-a").refusal())).collect();
        for call in calls {
            let said = call.join().expect("the call is answered");
            assert!(said.contains("cannot reach"), "{said}");
        }
    });

    let n_attempts = scene.link.n_connections() - before;
    assert!((1..=4).contains(&n_attempts), "{n_attempts} attempts");
    // Nobody tries on their own when nobody asks.
    let quiet = scene.link.n_connections();
    scene.rest_is_well();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(scene.link.n_connections(), quiet);
    scene.link.go_on();
    scene.works();
}

#[test]
fn b75_blips_do_not_add_up() {
    let mut scene = Scene::new(Sshd::restricted());
    let before = scene.link.n_connections();

    for _ in 0..6 {
        scene.link.refuse();
        assert!(scene.fails_fast().contains("cannot reach"));
        scene.link.accept();
        scene.works();
        scene.works();
    }

    // One for each time that it was away; the second call of each round found a connection.
    assert_eq!(scene.link.n_connections() - before, 6);
    let starts = scene.gateway.metric("portcullis_upstream_starts_total{upstream=\"prod\"}");
    assert!((starts - 1.0).abs() < f64::EPSILON, "{starts} starts");
}

#[test]
fn b75_a_host_that_forgot_the_connection_is_connected_to_anew_within_the_call() {
    let scene = Scene::new(Sshd::restricted());
    scene.works();

    let (answer, took) = scene.during("611732", || scene.link.forget());
    is_lost(&answer);
    assert!(took < FAST, "it took {took:?}");
    scene.works();
    // And where nothing ran on it when it died: no call is lost.
    scene.link.forget();
    scene.works();

    // Of three, the two that are dead are closed.
    wait_for("one connection", || n_established(scene.link.port) == 1);
}

/// Connections of this machine that lead to this port.
fn n_established(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("there is /proc");
    let leads_there = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[2].ends_with(&format!(":{port:04X}")) && fields[3] == "01"
    };
    table.lines().skip(1).filter(leads_there).count()
}

#[test]
fn f_11_a_server_that_was_killed_and_started_again_answers_the_next_call() {
    for setup in both_modes() {
        let mut scene = Scene::new(setup);
        scene.works();

        scene.sshd.restart();
        scene.works();
        scene.sshd.kill();
        let said = scene.fails_fast();
        assert!(said.contains("nothing was sent to the host"), "{said}");
        scene.sshd.start();
        scene.works();
    }
}

#[test]
fn f_11_a_server_that_stops_in_the_middle_is_noticed_within_the_keep_alive_time() {
    let scene = Scene::new(Sshd::restricted());
    scene.works();

    let (answer, took) = scene.during("611733", || scene.sshd.freeze());
    is_lost(&answer);
    assert!(took < FAST, "it took {took:?}");
    assert!(scene.fails_fast().contains("did not answer"));

    scene.sshd.thaw();
    scene.works();
}

#[test]
fn f_11_a_server_that_wants_a_password_is_asked_once_and_nobody_is() {
    let mut sshd = Sshd::restricted().line("KbdInteractiveAuthentication yes").start();
    sshd.host().write("etc/ssh/authorized_keys", "");
    let gateway = start(&sshd.settings());
    let before = sshd.n_connections();

    let said = status(&alice(&gateway), "project-a").refusal();

    assert!(said.contains("does not accept") && said.contains("nothing was sent to the host"), "{said}");
    assert_eq!((sshd.n_connections() - before, sshd.sessions().len()), (1, 0), "{}", sshd.log());
    assert!(!sshd.log().contains("password"), "{}", sshd.log());
    // The twin: the same host, once it knows the key.
    sshd.let_in(&sshd.key().with_extension("pub"));
    sshd.restart();
    assert_eq!(structured(&status(&alice(&gateway), "project-a"))["exit_code"], 0);
}

#[test]
fn f_11_an_upstream_whose_host_is_down_at_the_start_is_there_and_works_when_the_host_is() {
    let mut sshd = Sshd::restricted().start();
    let settings = sshd.settings();
    sshd.kill();

    let gateway = start(&settings);
    let agent = alice(&gateway);
    let said = status(&agent, "project-a").refusal();
    assert!(said.contains("cannot reach"), "{said}");

    sshd.start();
    assert_eq!(structured(&status(&agent, "project-a"))["exit_code"], 0);
}
