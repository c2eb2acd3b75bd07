//! Who asks, eras, sessions, schemas.

use super::house::{Agent, House, LEGACY, MODERN, read};
use serde_json::{Value, json};

#[tokio::test]
async fn both_eras_are_told_who_answers_and_which_tools_there_are() {
    let house = House::open().await;
    let modern = house.user("alice");
    let legacy = house.session("alice").await;

    let discovered = modern.request("server/discover", json!({})).await;
    let begun = legacy.begin().await.messages().pop().unwrap();

    assert!(discovered["result"]["supportedVersions"].as_array().unwrap().contains(&json!(MODERN)), "{discovered}");
    assert_eq!(begun["result"]["protocolVersion"], LEGACY);
    assert_eq!(begun["result"]["serverInfo"]["name"], "portcullis-sandbox");
    assert!(begun["result"]["instructions"].as_str().unwrap().contains("There is no network"), "{begun}");
    for agent in [&modern, &legacy] {
        let listed = agent.request("tools/list", json!({})).await;
        let names: Vec<&Value> =
            listed["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(
            names,
            ["run_command", "read_file", "write_file", "edit_file", "list_directory", "search_files"],
            "{listed}"
        );
    }
}

#[tokio::test]
async fn every_tool_has_a_closed_schema_a_title_and_true_hints() {
    let house = House::open().await;

    let listed = house.user("alice").request("tools/list", json!({})).await;

    for tool in listed["result"]["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        assert_eq!(tool["inputSchema"]["additionalProperties"], json!(false), "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object");
        assert_eq!(tool["outputSchema"]["type"], "object");
        assert!(!tool["title"].as_str().unwrap().is_empty());
        assert!(tool["description"].as_str().unwrap().len() > 100, "{tool}");
        for (argument, schema) in tool["inputSchema"]["properties"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{name} {argument}: {schema}");
            assert!(schema["type"].is_string(), "{name} {argument}: {schema}");
        }
        assert!(!tool.to_string().contains("\"format\""), "no formats that nobody knows: {tool}");
        let reads = ["read_file", "list_directory", "search_files"].contains(&name);
        assert_eq!(tool["annotations"]["readOnlyHint"], json!(reads), "{name}");
        assert_eq!(tool["annotations"]["destructiveHint"], json!(!reads), "{name}");
        assert_eq!(tool["annotations"]["openWorldHint"], json!(false), "{name}: there is no network");
    }
}

#[tokio::test]
async fn an_argument_that_is_not_known_is_an_error_and_nothing_happens() {
    let house = House::open().await;
    let alice = house.user("alice");

    let wrong = json!({"path": "a", "content": "x", "overwrite": true});
    let said = alice.refused("write_file", wrong).await;

    assert!(said.contains("unknown field `overwrite`") && said.contains("`mode`"), "{said}");
    assert!(!house.folder_of("user-alice").join("a").exists());
    let said = alice.refused("write_file", json!({"content": "x"})).await;
    assert!(said.contains("missing field `path`"), "{said}");
    alice.call("write_file", json!({"path": "a", "content": "x"})).await;
    assert!(house.folder_of("user-alice").join("a").exists());
}

#[tokio::test]
async fn a_tool_that_does_not_exist_is_an_error_of_the_protocol() {
    let house = House::open().await;
    let alice = house.user("alice");

    let reply = alice.post(&alice.call_of("rm_rf", &json!({}), &json!({}), 1), &[("mcp-name", "rm_rf")]).await;

    let message = reply.messages().pop().unwrap();
    assert_eq!(message["error"]["code"], json!(-32602), "{message}");
    assert!(message["error"]["message"].as_str().unwrap().contains("`rm_rf`"), "{message}");
}

#[tokio::test]
async fn without_a_principal_there_are_definitions_but_no_files() {
    let house = House::open().await;
    let mut nobody = house.user("alice");
    nobody.principal = None;

    let listed = nobody.request("tools/list", json!({})).await;
    let called = nobody.call_of("list_directory", &json!({}), &json!({}), 1);
    let refused = nobody.post(&called, &[("mcp-name", "list_directory")]).await.messages().pop().unwrap();

    assert!(listed["result"]["tools"].is_array());
    assert!(refused["error"]["message"].as_str().unwrap().contains("who asks"), "{refused}");
    assert_eq!(std::fs::read_dir(house.folder_of("")).unwrap().count(), 1, "only `staging` is there");
}

#[tokio::test]
async fn one_principal_never_sees_anothers_folder() {
    let house = House::open().await;
    for agent in [house.user("alice"), house.session("alice").await] {
        let mode = json!({"path": "secret", "content": "of alice", "mode": "overwrite"});
        agent.call("write_file", mode).await;
        assert_eq!(agent.call("read_file", json!({"path": "secret"})).await.0["content"], "of alice");
    }

    for agent in [house.user("bob"), house.session("bob").await] {
        let said = agent.refused("read_file", json!({"path": "secret"})).await;
        assert_eq!(said, "there is no `secret` in the workspace");
        assert_eq!(agent.call("list_directory", json!({})).await.0["entries"], json!([]));
        for way in ["../user-alice/secret", "/workspace/../user-alice/secret"] {
            let said = agent.refused("read_file", json!({"path": way})).await;
            assert!(said.contains("has a `..`"), "{said}");
        }
    }
}

#[tokio::test]
async fn a_session_is_good_for_whoever_began_it_alone() {
    let house = House::open().await;
    let alice = house.session("alice").await;
    let mut bob = alice.clone();
    bob.principal = house.user("bob").principal;
    let listing = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});

    let statuses =
        [bob.post(&listing, &[]).await.status, bob.bare("GET").await.status, bob.bare("DELETE").await.status];

    assert_eq!(statuses, [404, 404, 404]);
    assert_eq!(alice.post(&listing, &[]).await.status, 200);
}

#[tokio::test]
async fn a_session_is_nobody_elses_whatever_revision_they_name() {
    let house = House::open().await;
    let alice = house.session("alice").await;
    let bob = Agent { session: alice.session.clone(), ..house.user("bob") };
    let params =
        json!({"protocolVersion": MODERN, "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}});

    let reply = bob.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}), &[]).await;

    assert_eq!(reply.status, 404);
}

#[tokio::test]
async fn one_principal_has_so_many_sessions_and_the_one_not_used_for_longest_goes() {
    let house = House::open().await;
    let others = house.session("bob").await;
    let first = house.session("alice").await;
    let second = house.session("alice").await;
    for _ in 2..64 {
        house.session("alice").await;
    }
    let listing = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(first.post(&listing, &[]).await.status, 200, "64 are no more than there may be");

    house.session("alice").await;

    assert_eq!(first.post(&listing, &[]).await.status, 200, "it was just used");
    assert_eq!(second.post(&listing, &[]).await.status, 404);
    assert_eq!(others.post(&listing, &[]).await.status, 200);
}

#[tokio::test]
async fn a_body_larger_than_the_limit_is_refused_unread() {
    let house = House::open().await;
    let alice = house.user("alice");
    let content = "x".repeat(8 << 20);

    let arguments = json!({"path": "big", "content": content});
    let reply =
        alice.post(&alice.call_of("write_file", &arguments, &json!({}), 1), &[("mcp-name", "write_file")]).await;

    assert_eq!(reply.status, 413);
    assert!(!house.folder_of("user-alice").join("big").exists());
}

#[tokio::test]
async fn whoever_does_not_show_the_secret_or_names_another_host_is_refused() {
    let house = &House::open().await;
    let alice = house.user("alice");
    let ours = alice.head("GET", "text/event-stream");
    let without_secret: String =
        ours.lines().filter(|line| !line.contains("secret")).map(|line| format!("{line}\r\n")).collect();
    let of_another_host = ours.replace("host: localhost", "host: rebound.example");
    let status = |head: String| async move { read(house.send(&format!("{head}\r\n"), b"").await).await.status };

    assert_eq!(status(without_secret).await, 403);
    assert_eq!(status(of_another_host).await, 403);
    assert_eq!(status(ours).await, 405, "there is nothing to GET without a session, but it was looked at");
}
