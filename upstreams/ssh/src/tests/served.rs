//! The MCP server over its socket, as the gateway talks to it: raw HTTP and JSON-RPC, in both eras.

use super::host::{OddHost, Oddity};
use super::house::{House, call_of, private, read, settings, told};
use crate::credential::ephemeral;
use crate::settings::{Credential, Settings};
use serde_json::json;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;

async fn host() -> OddHost {
    OddHost::open(Oddity::none()).await
}

#[tokio::test]
async fn both_eras_are_told_the_actions_of_the_file() {
    let host = host().await;
    let house = House::open(&host).await;
    for agent in [house.user(), house.session().await] {
        let list = agent.ask("tools/list", json!({})).await;

        let tools = list["result"]["tools"].as_array().expect("tools");
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect();
        assert_eq!(names, ["do", "finish", "brief"]);
        assert_eq!(tools[0]["title"], "Do something");
        assert_eq!(
            tools[0]["annotations"],
            json!({"title": "Do something", "readOnlyHint": true, "openWorldHint": false})
        );
        assert_eq!(tools[0]["inputSchema"]["additionalProperties"], false);
        assert_eq!(tools[1]["inputSchema"]["properties"]["what"]["enum"], json!(["stay", "out"]));
        assert_eq!(tools[0]["outputSchema"]["properties"]["exit_code"]["type"], "integer");
        assert_eq!(tools[0]["outputSchema"]["properties"]["signal"]["type"], "string");
    }
}

#[tokio::test]
async fn an_action_is_done_for_whoever_is_known_in_both_eras() {
    let host = host().await;
    let house = House::open(&host).await;
    for agent in [house.user(), house.session().await] {
        let (answer, said, is_error) = agent.call("do", json!({"what": "out"})).await;

        assert_eq!((&answer["action"], &answer["exit_code"], is_error), (&json!("do out"), &json!(0), false));
        assert!(said.starts_with("`do out`: exit code 0 after") && said.ends_with("\nstderr:\nwarning\n"), "{said}");
    }
    let nobody = super::house::Agent { is_known: false, ..house.user() };
    let refused = nobody.ask("tools/call", json!({"name": "do", "arguments": {"what": "out"}})).await;
    assert_eq!(refused["error"]["message"], "the gateway does not say who asks");
    assert!(nobody.ask("tools/list", json!({})).await["result"]["tools"].is_array());
    let happened = host.rest().await;
    assert_eq!(happened.iter().filter(|what| what.starts_with("exec")).count(), 2, "{happened:?}");
}

#[tokio::test]
async fn what_is_not_allowed_reaches_no_host_and_says_what_is() {
    let host = host().await;
    let house = House::open(&host).await;
    assert!(house.is_ready().await);
    host.rest().await;
    for (tool, arguments, says) in [
        ("do", json!({}), "nothing was sent to the host: `what` is missing"),
        ("do", json!({"what": "out", "then": "id"}), "`do` has no argument `then`; it takes `what`"),
        ("do", json!({"what": "out; id"}), "`what` is `out; id`, and that is not allowed"),
        ("do", json!({"what": "out\n"}), "and that is not allowed"),
        ("do", json!({"what": ["out"]}), "`what` is a list"),
        ("finish", json!({"what": "three"}), "it is one of `stay`, `out`"),
    ] {
        let (_, said, is_error) = house.user().call(tool, arguments).await;
        assert!(said.contains(says) && is_error, "{said}");
    }
    let unknown = house.user().ask("tools/call", json!({"name": "sh", "arguments": {}})).await;
    assert_eq!(unknown["error"]["message"], "there is no tool `sh`");
    let happened = host.rest().await;
    assert!(happened.iter().all(|what| what == "disconnected"), "{happened:?}");
    assert!(!house.user().call("do", json!({"what": "out"})).await.2);
}

#[tokio::test]
async fn the_certificate_of_an_action_has_the_requests_name() {
    let host = host().await;
    let credential = Credential::Certificates {
        authority: private(),
        principal: "portcullis".to_owned(),
        source: vec![],
        lifetime: Duration::from_secs(60),
    };
    let house = House::with(&Settings { credential, ..settings(&host) });
    let unnamed = super::house::Agent { request: None, ..house.user() };

    assert!(!house.user().call("do", json!({"what": "out"})).await.2);
    assert!(!unnamed.call("do", json!({"what": "out"})).await.2);

    let happened = host.rest().await;
    let names: Vec<_> = happened.iter().filter_map(|what| what.strip_prefix("certificate ")).collect();
    // Shown, and then proven, each.
    assert_eq!(names, ["r_1/h_2 do out", "- do out"], "{happened:?}");
}

#[tokio::test]
async fn a_limit_a_cancel_and_the_end_of_the_gateway_end_an_action_there() {
    let host = host().await;
    let mut house = House::open(&host).await;

    let (answer, said, is_error) = house.user().call("brief", json!({})).await;
    assert_eq!((&answer["ended"], is_error), (&json!("timed_out"), true));
    assert!(said.contains("its time of 0.3 s was over. It was told to end, and has ended."), "{said}");
    while host.next().await != "eof" {}

    // A modern caller goes away.
    let stream = house.user().open(&call_of("do", &json!({"what": "wait"}), &json!({}))).await;
    while host.next().await != "exec do wait" {}
    drop(stream);
    while host.next().await != "eof" {}

    // A legacy one says so.
    let alice = house.session().await;
    let stream = alice.open(&call_of("do", &json!({"what": "wait"}), &json!({}))).await;
    while host.next().await != "exec do wait" {}
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    assert_eq!(read(alice.open(&cancelled).await).await.status, 202);
    while host.next().await != "eof" {}
    drop(stream);

    // One that outlives its connection ends with the gateway, too.
    let _stream = alice.open(&call_of("do", &json!({"what": "wait"}), &json!({}))).await;
    while host.next().await != "exec do wait" {}
    house.gateway = None;
    assert_eq!(house.ended().await, Ok(()));
    while host.next().await != "eof" {}
}

#[tokio::test]
async fn what_is_to_finish_is_not_ended_by_a_caller_who_leaves() {
    let host = host().await;
    let mut house = House::open(&host).await;
    let stream = house.user().open(&call_of("finish", &json!({"what": "stay"}), &json!({}))).await;
    // Its stdin is empty from the beginning.
    while host.next().await != "eof" {}

    drop(stream);

    let (_, said, _) = house.user().call("do", json!({"what": "out"})).await;
    assert!(said.contains("exit code 0"), "{said}");
    let happened = host.rest().await;
    assert!(happened.iter().all(|what| what != "close" && what != "disconnected"), "{happened:?}");
    house.gateway = None;
    assert_eq!(house.ended().await, Ok(()));
}

#[tokio::test]
async fn whoever_wants_to_know_is_told_how_an_action_comes_along() {
    let host = host().await;
    let house = House::open(&host).await;
    for agent in [house.user(), house.session().await] {
        let stream = agent.open(&call_of("do", &json!({"what": "wait"}), &json!({"progressToken": "p-1"}))).await;
        let mut stream = stream;
        let mut said = String::new();
        while !said.contains("notifications/progress") {
            let mut piece = [0; 1024];
            let n = tokio::time::timeout(super::host::PATIENCE, stream.read(&mut piece))
                .await
                .expect("told")
                .expect("read");
            assert!(n > 0, "{said}");
            said.push_str(&String::from_utf8_lossy(&piece[..n]));
        }
        assert!(said.contains("\"message\":\"begun\"") && said.contains("\"total\":30.0"), "{said}");
    }
}

#[tokio::test]
async fn further_actions_wait_their_turn() {
    let host = host().await;
    let house = House::with(&Settings { at_once: 1, ..settings(&host) });
    let (alice, bob) = (house.user(), house.user());
    let first = alice.call("brief", json!({}));
    let second = async {
        while host.next().await != "exec do wait" {}
        bob.call("do", json!({"what": "out"})).await
    };

    let (first, second) = tokio::join!(first, second);

    assert_eq!((&first.0["ended"], second.2), (&json!("timed_out"), false));
    let happened = host.rest().await;
    let at =
        |what: &str| happened.iter().position(|happened| happened == what).unwrap_or_else(|| panic!("{happened:?}"));
    assert!(at("eof") < at("exec do out"), "{happened:?}");
}

#[tokio::test]
async fn u_19_with_another_host_key_it_does_not_begin_and_says_why() {
    let host = host().await;
    let known_hosts = host.line(&ephemeral());
    let mut house = House::with(&Settings { known_hosts, ..settings(&host) });

    let why = house.ended().await.expect_err("another host");

    assert!(why.contains("is not the pinned one: it shows ssh-ed25519 SHA256:"), "{why}");
    assert!(!house.is_ready().await);
    let happened = host.rest().await;
    assert!(happened.iter().all(|what| !what.starts_with("login")), "{happened:?}");
}

#[tokio::test]
async fn f_11_a_host_that_is_down_is_no_reason_not_to_begin() {
    let host = host().await;
    let (settings, oddity) = (settings(&host), Oddity { key: host.key.clone(), ..Oddity::none() });
    let address = host.end().await;
    let house = House::with(&settings);
    assert!(house.is_ready().await);

    let (_, said, is_error) = house.user().call("do", json!({"what": "out"})).await;
    assert!(said.starts_with("nothing was sent to the host: cannot reach deploy@127.0.0.1:") && is_error, "{said}");

    let _host = OddHost::at(address, oddity).await;
    assert!(!house.user().call("do", json!({"what": "out"})).await.2);
}

#[tokio::test]
async fn u_19_a_host_key_that_changes_ends_this_process_after_what_runs_has_ended() {
    let host = host().await;
    // Sessions are one to a connection, so that the second call makes one.
    let credential = Credential::Certificates {
        authority: private(),
        principal: "portcullis".to_owned(),
        source: vec![],
        lifetime: Duration::from_secs(60),
    };
    let mut house = House::with(&Settings { credential, ..settings(&host) });
    let running = house.user().open(&call_of("brief", &json!({}), &json!({}))).await;
    while host.next().await != "exec do wait" {}
    host.has_another_key();
    host.rest().await;

    let (_, said, is_error) = house.user().call("do", json!({"what": "out"})).await;
    assert!(said.starts_with("nothing was sent to the host: the host key of") && is_error, "{said}");
    let (_, again, _) = house.user().call("do", json!({"what": "out"})).await;
    assert_eq!(again, said);

    let answer = read(running).await.messages().pop().expect("an answer");
    assert_eq!(told(&answer["result"]).0["ended"], "timed_out");
    let why = house.ended().await.expect_err("another host");
    assert!(why.contains("is not the pinned one"), "{why}");
    let happened = host.rest().await;
    assert_eq!(happened.iter().filter(|what| *what == "connected").count(), 1, "{happened:?}");
    assert!(happened.iter().all(|what| !what.starts_with("login") && !what.starts_with("exec")), "{happened:?}");
}

/// Runs in a process of its own, with everything set that ssh(1) would heed.
#[test]
fn u_19_no_file_and_no_agent_of_the_users_is_heard() {
    const INNER: &str = "PORTCULLIS_SSH_TEST_INNER";
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    if std::env::var_os(INNER).is_some() {
        runtime().block_on(async {
            let host = host().await;
            let house = House::open(&host).await;
            assert!(!house.user().call("do", json!({"what": "out"})).await.2);
        });
        return;
    }
    let home = tempfile::tempdir().expect("a folder");
    let ssh = home.path().join(".ssh");
    std::fs::create_dir(&ssh).expect("a folder");
    let ran = home.path().join("ran");
    let config = format!("Host *\n  ProxyCommand touch {0}; false\n  LocalCommand touch {0}\n", ran.display());
    std::fs::write(ssh.join("config"), config).expect("written");
    std::fs::write(ssh.join("known_hosts"), "garbage\n").expect("written");
    let agent = std::os::unix::net::UnixListener::bind(home.path().join("agent")).expect("listens");
    agent.set_nonblocking(true).expect("set");

    #[expect(clippy::disallowed_methods, reason = "the environment of this process is not changed")]
    let inner = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "tests::served::u_19_no_file_and_no_agent_of_the_users_is_heard"])
        .env(INNER, "1")
        .env("HOME", home.path())
        .env("SSH_AUTH_SOCK", home.path().join("agent"))
        .output()
        .expect("run");

    assert!(inner.status.success(), "{inner:?}");
    assert!(!ran.exists());
    assert!(agent.accept().is_err_and(|why| why.kind() == std::io::ErrorKind::WouldBlock));
}
