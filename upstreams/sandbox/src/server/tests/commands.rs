//! What becomes of commands: progress, cancelling, the end. What confines them is tested with the gateway.

use super::house::{House, PATIENCE, read, settings, text};
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt as _;

#[tokio::test]
async fn a_command_gets_what_was_asked_for() {
    let house = House::open().await;
    for agent in [house.user("alice"), house.session("alice").await] {
        let env = json!({"A": "1", "B": "2", "_C": ""});
        let arguments =
            json!({"command": "make", "cwd": "/workspace/src", "stdin": "to it", "env": env, "timeout": 600});

        let (answer, said) = agent.call("run_command", arguments).await;

        assert_eq!(house.next().await, "began make in `src`");
        assert_eq!(answer["ended"], "exited");
        assert_eq!(answer["exit_code"], json!(3));
        assert_eq!(answer["stdout"], "to it");
        assert_eq!(answer["seconds"], json!(1.5));
        assert_eq!(said, "exit code 3 after 1.5 s. stdout: 5 bytes.\nstdout:\nto it");
    }
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_and_does_not_run() {
    let house = House::open().await;
    let alice = house.user("alice");
    for (arguments, why) in [
        (json!({"command": " \n"}), "`command` is empty"),
        (json!({"command": "a\u{0}b"}), "NUL"),
        (json!({"command": "x".repeat(128 * 1024)}), "write it to a file"),
        (json!({"command": "ls", "timeout": 601}), "from 1 to 600 s"),
        (json!({"command": "ls", "timeout": 0}), "from 1 to 600 s"),
        (json!({"command": "ls", "timeout": 1.5}), "expected u64"),
        (json!({"command": "ls", "cwd": "../x"}), "has a `..`"),
        (json!({"command": "ls", "cwd": "/etc"}), "outside of /workspace"),
        (json!({"command": "ls", "env": {"A=B": "c"}}), "the name `A=B`"),
        (json!({"command": "ls", "env": {"1A": "c"}}), "the name `1A`"),
        (json!({"command": "ls", "env": {"": "c"}}), "the name ``"),
        (json!({"command": "ls", "env": {"A": "\u{0}"}}), "NUL"),
        (json!({"command": "ls", "env": {"A": "x".repeat(128 * 1024)}}), "are the most"),
        (json!({"command": ["ls", "-l"]}), "expected a string"),
        (json!({"cmd": "ls"}), "unknown field `cmd`"),
    ] {
        let said = alice.refused("run_command", arguments.clone()).await;
        assert!(said.contains(why), "{arguments:.100}: {said}");
    }
    assert!(house.commands.lock().await.try_recv().is_err(), "nothing ran");
    alice.call("run_command", json!({"command": "ls"})).await;
    assert_eq!(house.next().await, "began ls in ``");
}

#[tokio::test]
async fn a_caller_who_wants_to_know_is_told_how_a_command_comes_along() {
    let house = House::open().await;
    for agent in [house.user("alice"), house.session("alice").await] {
        let call = agent.call_of("run_command", &json!({"command": "wait"}), &json!({"progressToken": "p-1"}), 5);

        let mut stream = agent.open(&call, &[("mcp-name", "run_command")]).await;

        let mut told = Vec::new();
        let reading = async {
            while told.len() < 2 {
                let mut line = String::new();
                assert!(stream.read_line(&mut line).await.unwrap() > 0, "it ended");
                if let Some(data) = line.strip_prefix("data:").filter(|data| data.trim().len() > 1) {
                    told.push(serde_json::from_str::<Value>(data).unwrap());
                }
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("no progress");
        for message in &told {
            assert_eq!(message["method"], "notifications/progress", "{message}");
            assert_eq!(message["params"]["progressToken"], "p-1");
            assert_eq!(message["params"]["total"], json!(60.0));
            assert_eq!(message["params"]["message"], "[3/9] cc main.c");
        }
        let progress = |n: usize| told[n]["params"]["progress"].as_f64().unwrap();
        assert!(1.0 < progress(0) && progress(0) < progress(1), "{told:?}");
    }
}

#[tokio::test]
async fn a_modern_command_is_cancelled_when_its_caller_goes_away() {
    let house = House::open().await;
    let alice = house.user("alice");
    let call = alice.call_of("run_command", &json!({"command": "wait"}), &json!({}), 5);
    let stream = alice.open(&call, &[("mcp-name", "run_command")]).await;
    assert_eq!(house.next().await, "began wait in ``");

    drop(stream);

    assert_eq!(house.next().await, "cancelled");
}

#[tokio::test]
async fn a_legacy_command_is_cancelled_by_its_notification_and_by_the_end_of_the_session() {
    let house = House::open().await;
    let alice = house.session("alice").await;
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
    let call = alice.call_of("run_command", &json!({"command": "wait"}), &json!({}), 5);
    let stream = alice.open(&call, &[]).await;
    assert_eq!(house.next().await, "began wait in ``");

    assert_eq!(alice.post(&cancelled, &[]).await.status, 202);

    assert_eq!(house.next().await, "cancelled");
    drop(stream);
    let call = alice.call_of("run_command", &json!({"command": "wait"}), &json!({}), 6);
    let _stream = alice.open(&call, &[]).await;
    assert_eq!(house.next().await, "began wait in ``");

    assert_eq!(alice.bare("DELETE").await.status, 202);

    assert_eq!(house.next().await, "cancelled");
}

#[tokio::test]
async fn a_legacy_command_goes_on_when_its_connection_breaks_since_it_can_be_asked_for_again() {
    let house = House::open().await;
    let alice = house.session("alice").await;
    let call = alice.call_of("run_command", &json!({"command": "wait"}), &json!({}), 5);
    let stream = alice.open(&call, &[]).await;
    assert_eq!(house.next().await, "began wait in ``");

    drop(stream);
    alice.call("list_directory", json!({})).await;

    assert!(house.commands.lock().await.try_recv().is_err(), "it was cancelled");
}

#[tokio::test]
async fn when_the_gateway_has_gone_every_command_is_ended_before_the_server_is() {
    let mut house = House::open().await;
    let gateway = house.gateway.take();
    let (alice, bob) = (house.user("alice"), house.session("bob").await);
    let wait =
        |agent: &super::house::Agent<'_>| agent.call_of("run_command", &json!({"command": "wait"}), &json!({}), 5);
    let _streams = [alice.open(&wait(&alice), &[("mcp-name", "run_command")]).await, bob.open(&wait(&bob), &[]).await];
    assert_eq!([house.next().await, house.next().await], ["began wait in ``", "began wait in ``"]);

    drop(gateway);

    assert_eq!([house.next().await, house.next().await], ["cancelled", "cancelled"]);
    let ended = tokio::time::timeout(PATIENCE, &mut house.server).await.expect("it does not end");
    assert!(ended.unwrap().is_ok());
}

#[tokio::test]
async fn what_runs_beside_others_is_answered_apart_from_them() {
    let house = House::open().await;
    let alice = house.user("alice");
    let waiting = alice
        .open(&alice.call_of("run_command", &json!({"command": "wait"}), &json!({}), 1), &[("mcp-name", "run_command")])
        .await;
    assert_eq!(house.next().await, "began wait in ``");

    let (answer, _) = alice.call("run_command", json!({"command": "ls"})).await;

    assert_eq!(answer["exit_code"], json!(0));
    drop(waiting);
    let reply = read(
        alice
            .open(
                &alice.call_of("run_command", &json!({"command": "ls"}), &json!({}), 2),
                &[("mcp-name", "run_command")],
            )
            .await,
    )
    .await;
    assert!(text(&reply.messages()[0]["result"]).starts_with("exit code 0"));
}

#[tokio::test]
async fn so_many_calls_of_one_principal_are_taken_at_once_and_anothers_are_not_counted() {
    let house = House::with(crate::settings::Settings { at_once: 128, ..settings() }).await;
    let (alice, bob) = (house.user("alice"), house.user("bob"));
    let wait = alice.call_of("run_command", &json!({"command": "wait"}), &json!({}), 1);
    let mut waiting = Vec::new();
    for _ in 0..64 {
        waiting.push(alice.open(&wait, &[("mcp-name", "run_command")]).await);
        assert_eq!(house.next().await, "began wait in ``");
    }

    let said = alice.refused("list_directory", json!({})).await;

    assert!(said.contains("too many calls at once"), "{said}");
    bob.call("list_directory", json!({})).await;
    waiting.pop();
    assert_eq!(house.next().await, "cancelled");
    // The place is free a moment after that.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while alice.answer("list_directory").await["isError"] == json!(true) {
        assert!(tokio::time::Instant::now() < deadline, "the place is not free");
    }
}

#[tokio::test]
async fn one_principal_never_has_all_turns_and_what_waits_runs_when_one_is_free() {
    let house = House::with(crate::settings::Settings { at_once: 4, ..settings() }).await;
    let (alice, bob) = (house.user("alice"), house.user("bob"));
    let wait = alice.call_of("run_command", &json!({"command": "wait"}), &json!({}), 1);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(alice.open(&wait, &[("mcp-name", "run_command")]).await);
        assert_eq!(house.next().await, "began wait in ``");
    }

    let fourth = alice.call_of("run_command", &json!({"command": "fourth"}), &json!({}), 2);
    let fourth = alice.open(&fourth, &[("mcp-name", "run_command")]).await;
    // It has been taken when this is answered, and whoever is not alice has a turn.
    alice.call("list_directory", json!({})).await;
    bob.call("run_command", json!({"command": "bobs"})).await;
    assert_eq!(house.next().await, "began bobs in ``", "the fourth of alice waits");

    waiting.pop();
    let mut next = [house.next().await, house.next().await];
    next.sort();
    assert_eq!(next, ["began fourth in ``", "cancelled"]);
    assert!(text(&read(fourth).await.messages()[0]["result"]).starts_with("exit code 0"));
}
