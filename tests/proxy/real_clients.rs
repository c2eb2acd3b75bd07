//! Real clients, real servers: the official SDKs, unchanged, through the gateway. What they get is what they get without
//! it, less what policy takes away.

use crate::support::gateway::{Gateway, in_front_of};
use crate::support::sdk::{Client, Peer};
use serde_json::{Value, json};

/// What a conversation with one server is about.
struct Case {
    server: Peer,
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
    fn ours(server: Peer) -> Case {
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
        Case { server, steps, denied: "danger", adds: "add" }
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
        Case { server: Peer::everything(), steps, denied: "get-env", adds: "get-sum" }
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

    /// Runs one client against the server and through the gateway, and compares.
    #[track_caller]
    fn hold_for(&self, client: Client) {
        let gateway = Gateway::start(&in_front_of(&self.server.url, &self.rules()));
        let token = gateway.token("alice", "up");
        let mut steps = self.steps.clone();
        let mut direct = client.run(&self.server.url, None, &json!(steps));
        steps.push(json!({ "call": self.denied }));
        steps.push(json!({ "call": self.adds, "arguments": { "a": 101, "b": 1 } }));

        let mut through = client.run(&gateway.url("up"), Some(&token), &json!(steps));

        let refused_for_arguments = through.pop().expect("an outcome for each step");
        let refused_by_name = through.pop().expect("an outcome for each step");
        self.take_denied_from_list(&mut direct);
        assert_eq!(through.len(), direct.len(), "through the gateway: {through:#?}\nlog:\n{}", gateway.log());
        for (n, (through, direct)) in through.iter().zip(&direct).enumerate() {
            let step = n.checked_sub(1).map_or("connecting".to_owned(), |n| steps[n].to_string());
            assert_eq!(through, direct, "{client:?}, {step}");
        }
        self.check_refusals(&refused_by_name, &refused_for_arguments);
    }

    #[track_caller]
    fn take_denied_from_list(&self, outcomes: &mut [Value]) {
        let tools = outcomes[1]["result"]["tools"].as_array_mut().expect("the first step lists tools");
        let before = tools.len();
        tools.retain(|tool| tool["name"] != self.denied);
        assert_eq!(tools.len(), before - 1, "the server itself offers {}", self.denied);
    }

    #[track_caller]
    fn check_refusals(&self, by_name: &Value, for_arguments: &Value) {
        assert_eq!(by_name["error"]["code"], -32602, "{by_name}");
        let message = by_name["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("Unknown tool"), "{by_name}");
        assert_eq!(self.server.n_dangers(), 0, "a denied call must not run");

        assert_eq!(for_arguments["result"]["isError"], true, "{for_arguments}");
        let text = for_arguments["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.contains(REASON), "{for_arguments}");
    }
}

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

#[test]
fn python_client_talks_to_a_typescript_server() {
    Case::ours(Peer::typescript()).hold_for(Client::Python);
}

#[test]
fn typescript_v1_client_talks_to_a_typescript_server() {
    Case::ours(Peer::typescript()).hold_for(Client::TypeScriptV1);
}

#[test]
fn typescript_v2_client_of_the_newer_era_talks_to_a_typescript_server() {
    Case::ours(Peer::typescript()).hold_for(Client::TypeScriptV2Modern);
}

#[test]
fn typescript_v2_client_talks_to_a_typescript_server_with_sessions() {
    Case::ours(Peer::typescript_with_sessions()).hold_for(Client::TypeScriptV2);
}

#[test]
fn python_client_of_the_older_era_talks_to_a_python_server() {
    Case::ours(Peer::python()).hold_for(Client::PythonLegacy);
}

#[test]
fn typescript_v1_client_talks_to_a_python_server() {
    Case::ours(Peer::python()).hold_for(Client::TypeScriptV1);
}

#[test]
fn typescript_v2_client_that_tries_the_newer_era_talks_to_a_python_server() {
    Case::ours(Peer::python()).hold_for(Client::TypeScriptV2Auto);
}

#[test]
fn clients_without_a_token_are_refused() {
    let case = Case::ours(Peer::typescript());
    let gateway = Gateway::start(&in_front_of(&case.server.url, &case.rules()));

    for client in [Client::Python, Client::TypeScriptV1, Client::TypeScriptV2] {
        let outcomes = client.run(&gateway.url("up"), None, &json!([{ "call": "danger" }]));

        assert_eq!(outcomes.len(), 1, "{client:?} got in: {outcomes:#?}");
        assert!(outcomes[0]["error"].is_object(), "{client:?}: {outcomes:#?}");
    }
    assert_eq!(case.server.n_dangers(), 0);
}
