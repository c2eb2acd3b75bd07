//! Real clients, real servers: the official SDKs and FastMCP, unchanged, through the gateway. What they get is what they
//! get without it, less what policy takes away.

use crate::support::gateway::{Gateway, in_front_of};
use crate::support::sdk::{Client, Peer};
use serde_json::{Value, json};
use std::thread;

/// What a conversation with one kind of server is about.
struct Case {
    server: fn() -> Peer,
    /// How the client runs: answering what the server asks, or not.
    run: fn(Client, &str, Option<&str>, &Value) -> Vec<Value>,
    /// Steps whose outcomes must not change.
    steps: Vec<Value>,
    /// A tool that is denied.
    denied: &'static str,
    /// A tool that is denied where its argument `a` is above 100.
    adds: &'static str,
}

const REASON: &str = "numbers above 100 are for grown-ups";

impl Case {
    /// One of our own servers: it offers what `tests/sdk/surface.json` says.
    fn ours(server: fn() -> Peer) -> Case {
        let steps = vec![
            json!({ "list": "tools" }),
            json!({ "call": "echo", "arguments": { "text": "ü \u{1f600} \"", "region": "eü", "more": [1, 2.5, null, { "x": {} }] } }),
            json!({ "call": "add", "arguments": { "a": 100, "b": 0.5 } }),
            json!({ "call": "big", "arguments": { "bytes": 200_000 } }),
            json!({ "call": "slow", "arguments": { "seconds": 0.05 } }),
            json!({ "call": "stream", "arguments": { "count": 3 }, "progress": true }),
            json!({ "call": "fail" }),
            json!({ "call": "no such tool" }),
            json!({ "list": "prompts" }),
            json!({ "prompt": "greet", "arguments": { "who": "everyone" } }),
            json!({ "list": "resources" }),
            json!({ "list": "templates" }),
            json!({ "read": "note://welcome" }),
        ];
        Case { server, run: Client::run, steps, denied: "danger", adds: "add" }
    }

    /// The reference server from npm. Its `get-env` would show the environment it runs in.
    fn everything() -> Case {
        let steps = vec![
            json!({ "list": "tools" }),
            json!({ "call": "echo", "arguments": { "message": "ü" } }),
            json!({ "call": "get-sum", "arguments": { "a": 1, "b": 2 } }),
            json!({ "call": "get-structured-content", "arguments": { "location": "Chicago" } }),
            json!({ "call": "get-tiny-image" }),
            json!({ "call": "trigger-long-running-operation", "arguments": { "duration": 0.1, "steps": 2 }, "progress": true }),
            json!({ "list": "prompts" }),
            json!({ "prompt": "args-prompt", "arguments": { "city": "Ulm" } }),
            json!({ "list": "resources" }),
            json!({ "list": "templates" }),
        ];
        Case { server: Peer::everything, run: Client::run, steps, denied: "get-env", adds: "get-sum" }
    }

    /// The server with everything to it, and what there is in both eras.
    fn fixture() -> Case {
        let mut steps: Vec<Value> =
            ["tools", "prompts", "resources", "templates"].map(|list| json!({ "list": list })).into();
        for tool in [
            "test_simple_text",
            "test_image_content",
            "test_audio_content",
            "test_embedded_resource",
            "test_multiple_content_types",
            "test_structured_content",
            "test_error_handling",
            "no such tool",
            "test_elicitation_sep1034_defaults",
            "test_elicitation_sep1330_enums",
            "test_url_elicitation",
            "test_input_required_result_elicitation",
            "test_input_required_result_sampling",
            "test_input_required_result_list_roots",
            "test_input_required_result_request_state",
            "test_input_required_result_multiple_inputs",
            "test_input_required_result_multi_round",
            "test_input_required_result_capabilities",
        ] {
            steps.push(json!({ "call": tool }));
        }
        steps.extend([
            json!({ "call": "json_schema_2020_12_tool", "arguments": { "name": "Ü", "contactMethod": "phone", "phone": "1" } }),
            json!({ "call": "test_header_parameters", "arguments": { "region": " eü", "count": -42, "dry": true } }),
            json!({ "call": "test_header_parameters", "arguments": { "region": "=?base64?eA==?=" } }),
            json!({ "call": "test_tool_with_progress", "progress": true }),
            json!({ "call": "test_streaming_elicitation", "progress": true }),
            json!({ "call": "test_sampling", "arguments": { "prompt": "Wie heißt du?" } }),
            json!({ "call": "test_elicitation", "arguments": { "message": "Who are you?" } }),
            json!({ "call": "test_elicitation", "arguments": { "message": "decline this" } }),
            json!({ "prompt": "test_simple_prompt" }),
            json!({ "prompt": "test_prompt_with_arguments", "arguments": { "arg1": "ü", "arg2": "'" } }),
            json!({ "prompt": "test_prompt_with_embedded_resource", "arguments": { "resourceUri": "test://ü" } }),
            json!({ "prompt": "test_prompt_with_image" }),
            json!({ "prompt": "test_input_required_result_prompt" }),
            json!({ "prompt": "no such prompt" }),
            json!({ "read": "test://static-text" }),
            json!({ "read": "test://static-binary" }),
            json!({ "read": "test://template/a%20b/data" }),
            json!({ "read": "test://nowhere" }),
            json!({ "complete": {
                "ref": { "type": "ref/prompt", "name": "test_prompt_with_arguments" },
                "argument": { "name": "arg2", "value": "par" },
                "context": { "arguments": { "arg1": "x" } }
            } }),
            json!({ "complete": {
                "ref": { "type": "ref/resource", "uri": "test://template/{id}/data" },
                "argument": { "name": "id", "value": "park" }
            } }),
            json!({ "call": "test_waits_for_cancellation", "arguments": { "key": "k" }, "abandon": true }),
            json!({ "call": "test_was_cancelled", "arguments": { "key": "k" } }),
        ]);
        Case { server: Peer::fixture, run: Client::run_answering, steps, denied: "danger", adds: "add" }
    }

    /// And what there is in the older era only: sessions with a stream of their own, and coming back to a stream.
    fn legacy_fixture() -> Case {
        let mut case = Case::fixture();
        let watched = "test://watched-resource";
        let update = json!({ "call": "test_trigger_resource_update", "arguments": { "uri": watched } });
        case.steps.extend([
            json!({ "ping": true }),
            json!({ "level": "debug" }),
            json!({ "call": "test_tool_with_logging" }),
            json!({ "hear": 3 }),
            json!({ "level": "error" }),
            json!({ "call": "test_tool_with_logging" }),
            json!({ "call": "test_stream_is_open" }),
            json!({ "subscribe": watched }),
            update.clone(),
            json!({ "hear": 1 }),
            json!({ "call": "test_trigger_tool_change" }),
            json!({ "call": "test_trigger_prompt_change" }),
            json!({ "call": "test_trigger_resource_change" }),
            json!({ "hear": 3 }),
            json!({ "unsubscribe": watched }),
            update,
            json!({ "call": "test_reconnection" }),
            json!({ "call": "test_stream_reconnection" }),
            json!({ "hear": 1 }),
            json!({ "hear": 0 }),
        ]);
        case
    }

    /// And what there is in the newer era only: log levels of a call, and streams that a client asks for.
    fn modern_fixture() -> Case {
        let mut case = Case::fixture();
        let watched = "test://watched-resource";
        case.steps.extend([
            json!({ "call": "test_logging_tool", "meta": { "io.modelcontextprotocol/logLevel": "info" } }),
            json!({ "hear": 3 }),
            json!({ "call": "test_logging_tool", "meta": { "io.modelcontextprotocol/logLevel": "error" } }),
            json!({ "call": "test_logging_tool" }),
            json!({ "listen": { "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": [watched] } }),
            json!({ "call": "test_trigger_resource_update", "arguments": { "uri": watched } }),
            json!({ "hear": 1 }),
            json!({ "call": "test_trigger_resource_update", "arguments": { "uri": "test://static-text" } }),
            json!({ "call": "test_trigger_resource_change" }),
            json!({ "call": "test_trigger_tool_change" }),
            json!({ "call": "test_trigger_prompt_change" }),
            json!({ "hear": 2 }),
            json!({ "hear": 0 }),
        ]);
        case
    }

    /// Many calls at once in one session, or from one client: each gets its own answer, progress and questions.
    fn crowd() -> Case {
        let calls: Vec<Value> = (0..8)
            .flat_map(|n| {
                let prompt = format!("number {n}");
                [
                    json!({ "call": "test_sampling", "arguments": { "prompt": prompt } }),
                    json!({ "call": "test_elicitation", "arguments": { "message": prompt } }),
                    json!({ "call": "test_tool_with_progress", "progress": true }),
                    json!({ "call": "add", "arguments": { "a": n, "b": 1 } }),
                ]
            })
            .collect();
        let steps =
            vec![json!({ "list": "tools" }), json!({ "together": calls }), json!({ "call": "test_simple_text" })];
        Case { steps, ..Case::fixture() }
    }

    /// A client whose connection breaks in the middle of an answer, and that comes back for the rest.
    fn broken() -> Case {
        let steps = vec![
            json!({ "list": "tools" }),
            json!({ "call": "test_tool_with_progress", "progress": true, "cut": true }),
            json!({ "call": "test_sampling", "arguments": { "prompt": "Where were we?" }, "cut": true }),
            json!({ "call": "test_structured_content", "cut": true }),
            json!({ "call": "test_simple_text" }),
        ];
        Case { steps, ..Case::fixture() }
    }

    /// The same for a client that knows no such streams.
    fn without_listening(mut self) -> Case {
        self.steps.retain(|step| step.get("listen").is_none() && step.get("hear").is_none_or(|n| n == 3));
        self
    }

    fn rules(&self) -> String {
        format!(
            r#"
- {{ name: everything, tools: ["up/*"], prompts: ["up/*"], resources: ["up/*"], allow: {{}} }}
- {{ name: not that one, tools: ["up/{}"], deny: {{}} }}
- {{ name: small numbers, tools: ["up/{}"], when: {{ /a: {{ min: 101 }} }}, deny: {{ reason: "{REASON}" }} }}
"#,
            self.denied, self.adds
        )
    }

    /// Runs one client against a server and, through the gateway, against another of its kind, and compares.
    #[track_caller]
    fn hold_for(&self, client: Client) {
        let server = (self.server)();
        let gateway = Gateway::start(&in_front_of(&server.url, &self.rules()));
        let token = gateway.token("alice", "up");
        let mut steps = self.steps.clone();
        steps.push(json!({ "call": self.denied }));
        steps.push(json!({ "call": self.adds, "arguments": { "a": 101, "b": 1 } }));

        let (mut direct, mut through) = thread::scope(|scope| {
            let direct = scope.spawn(|| (self.run)(client, &(self.server)().url, None, &json!(self.steps)));
            let through = (self.run)(client, &gateway.url("up"), Some(&token), &json!(steps));
            (direct.join().expect("the client runs"), through)
        });

        let refused_for_arguments = through.pop().expect("an outcome for each step");
        let refused_by_name = through.pop().expect("an outcome for each step");
        self.check_direct(&direct);
        self.take_denied_from_list(&mut direct);
        direct.iter_mut().for_each(make_private);
        assert_eq!(through.len(), direct.len(), "through the gateway: {through:#?}\nlog:\n{}", gateway.log());
        for (n, (through, direct)) in through.iter().zip(&direct).enumerate() {
            let step = n.checked_sub(1).map_or("connecting".to_owned(), |n| steps[n].to_string());
            assert_eq!(through, direct, "{client:?}, {step}");
        }
        check_refusals(&refused_by_name, &refused_for_arguments);
        assert_eq!(server.n_dangers(), 0, "a denied call must not run");
    }

    /// Two conversations that fail alike prove nothing.
    #[track_caller]
    fn check_direct(&self, outcomes: &[Value]) {
        assert_eq!(outcomes.len(), self.steps.len() + 1, "{outcomes:#?}");
        for (step, outcome) in self.steps.iter().zip(&outcomes[1..]) {
            let text = step.to_string();
            let may_fail = text.contains("no such") || text.contains("nowhere") || text.contains("abandon");
            assert!(may_fail || outcome["error"].is_null(), "directly, {step}: {outcome}");
            if let Some(n) = step["hear"].as_u64() {
                let n_heard = outcome["result"].as_array().map(Vec::len);
                assert_eq!(n_heard, usize::try_from(n).ok(), "directly, {step}: {outcome}");
            }
            let asks = ["test_elicitation", "test_sampling", "test_input_required", "test_url", "test_streaming"];
            if asks.iter().any(|tool| text.contains(tool)) {
                assert!(outcome["asked"].is_array(), "directly, {step}: {outcome}");
            }
        }
    }

    #[track_caller]
    fn take_denied_from_list(&self, outcomes: &mut [Value]) {
        let tools = outcomes[1]["result"]["tools"].as_array_mut().expect("the first step lists tools");
        let before = tools.len();
        tools.retain(|tool| tool["name"] != self.denied);
        assert_eq!(tools.len(), before - 1, "the server itself offers {}", self.denied);
    }
}

/// What was filtered for one principal is no longer for all to keep.
fn make_private(outcome: &mut Value) {
    if let Some(scope) = outcome.pointer_mut("/result/cacheScope") {
        *scope = json!("private");
    }
}

#[track_caller]
fn check_refusals(by_name: &Value, for_arguments: &Value) {
    assert_eq!(by_name["error"]["code"], -32602, "{by_name}");
    let message = by_name["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("Unknown tool"), "{by_name}");

    assert_eq!(for_arguments["result"]["isError"], true, "{for_arguments}");
    let text = for_arguments["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains(REASON), "{for_arguments}");
}

// === server-everything ===

#[test]
fn python_client_talks_to_server_everything() {
    Case::everything().hold_for(Client::Python);
}

#[test]
fn typescript_v1_client_talks_to_server_everything() {
    Case::everything().hold_for(Client::TypeScriptV1);
}

#[test]
fn typescript_v2_client_talks_to_server_everything() {
    Case::everything().hold_for(Client::TypeScriptV2);
}

#[test]
fn typescript_v2_client_that_tries_the_newer_era_falls_back_for_server_everything() {
    Case::everything().hold_for(Client::TypeScriptV2Auto);
}

// === A server on each official SDK ===

#[test]
fn python_client_talks_to_a_typescript_server() {
    Case::ours(Peer::typescript).hold_for(Client::Python);
}

#[test]
fn typescript_v1_client_talks_to_a_typescript_server() {
    Case::ours(Peer::typescript).hold_for(Client::TypeScriptV1);
}

#[test]
fn typescript_v2_client_of_the_newer_era_talks_to_a_typescript_server() {
    Case::ours(Peer::typescript).hold_for(Client::TypeScriptV2Modern);
}

#[test]
fn typescript_v2_client_talks_to_a_typescript_server_with_sessions() {
    Case::ours(Peer::typescript_with_sessions).hold_for(Client::TypeScriptV2);
}

#[test]
fn python_client_of_the_older_era_talks_to_a_python_server() {
    Case::ours(Peer::python).hold_for(Client::PythonLegacy);
}

#[test]
fn typescript_v1_client_talks_to_a_python_server() {
    Case::ours(Peer::python).hold_for(Client::TypeScriptV1);
}

#[test]
fn typescript_v2_client_that_tries_the_newer_era_talks_to_a_python_server() {
    Case::ours(Peer::python).hold_for(Client::TypeScriptV2Auto);
}

// === Everything there is, by every client in every era it speaks ===

#[test]
fn typescript_v1_client_gets_everything() {
    Case::legacy_fixture().hold_for(Client::TypeScriptV1);
}

#[test]
fn typescript_v2_client_of_the_older_era_gets_everything() {
    Case::legacy_fixture().hold_for(Client::TypeScriptV2);
}

#[test]
fn typescript_v2_client_that_tries_the_newer_era_gets_everything() {
    Case::modern_fixture().hold_for(Client::TypeScriptV2Auto);
}

#[test]
fn typescript_v2_client_of_the_newer_era_gets_everything() {
    Case::modern_fixture().hold_for(Client::TypeScriptV2Modern);
}

#[test]
fn python_client_of_the_older_era_gets_everything() {
    Case::legacy_fixture().hold_for(Client::PythonLegacy);
}

#[test]
fn python_client_that_tries_the_newer_era_gets_everything() {
    Case::modern_fixture().hold_for(Client::Python);
}

#[test]
fn python_client_of_the_newer_era_gets_everything() {
    Case::modern_fixture().hold_for(Client::PythonModern);
}

#[test]
fn fastmcp_client_of_the_older_era_gets_everything() {
    Case::legacy_fixture().hold_for(Client::FastMcpLegacy);
}

#[test]
fn fastmcp_client_that_tries_the_newer_era_gets_everything() {
    Case::modern_fixture().without_listening().hold_for(Client::FastMcp);
}

#[test]
fn fastmcp_client_of_the_newer_era_gets_everything() {
    Case::modern_fixture().without_listening().hold_for(Client::FastMcpModern);
}

// === In trouble ===

#[test]
fn typescript_v1_client_calls_many_tools_at_once() {
    Case::crowd().hold_for(Client::TypeScriptV1);
}

#[test]
fn typescript_v2_client_of_the_newer_era_calls_many_tools_at_once() {
    Case::crowd().hold_for(Client::TypeScriptV2Modern);
}

#[test]
fn typescript_v1_client_whose_connection_breaks_gets_the_rest() {
    Case::broken().hold_for(Client::TypeScriptV1);
}

#[test]
fn typescript_v2_client_whose_connection_breaks_gets_the_rest() {
    Case::broken().hold_for(Client::TypeScriptV2);
}

#[test]
fn clients_without_a_token_are_refused() {
    let case = Case::ours(Peer::typescript);
    let server = Peer::typescript();
    let gateway = Gateway::start(&in_front_of(&server.url, &case.rules()));

    for client in [Client::FastMcp, Client::Python, Client::TypeScriptV1, Client::TypeScriptV2] {
        let outcomes = client.run(&gateway.url("up"), None, &json!([{ "call": "danger" }]));

        assert_eq!(outcomes.len(), 1, "{client:?} got in: {outcomes:#?}");
        assert!(outcomes[0]["error"].is_object(), "{client:?}: {outcomes:#?}");
    }
    assert_eq!(server.n_dangers(), 0);
}
