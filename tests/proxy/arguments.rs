//! Names and arguments: only the exact name is the tool, and rules on arguments hold for arguments that are missing, of
//! another type, or spelled otherwise.

use crate::support::gate::{Gate, Refused, call, error, quoted, result};
use crate::support::gateway::in_front_of;
use crate::support::http::Request;
use serde_json::json;

fn unlisted() -> Refused {
    error(200, -32602, "policy.unlisted").id("7")
}

#[test]
fn only_the_exact_bytes_of_a_name_are_the_name() {
    let gate = Gate::with_rules(
        r#"
- { name: two tools, tools: ["up/echo", "up/café"], allow: {} }
- { name: no danger, tools: ["up/danger"], deny: {} }
"#,
    );
    let answer = gate.refuses("a stranger", &gate.post(call("nobody", "{}")), &unlisted()).text();
    let mut names = vec![
        "danger".to_owned(),
        String::new(),
        "cafe\u{301}".to_owned(),
        "CAFÉ".to_owned(),
        "cafe".to_owned(),
        "\u{ff45}cho".to_owned(),
        "ec\u{4bb}o".to_owned(),
        "e\u{441}ho".to_owned(),
    ];
    for name in ["danger", "echo"] {
        let upper = name.to_uppercase();
        let title = format!("{}{}", &upper[..1], &name[1..]);
        names.extend([upper, title]);
        for around in [
            " ", "\t", "\n", "\r\n", "\0", "\u{a0}", "\u{200b}", "\u{200d}", "\u{2060}", "\u{feff}", "\u{ad}",
            "\u{202e}", "\u{fe0f}", "/", ".", "%00", "%20", "#", "?", ";", "*", "\\",
        ] {
            names.extend([
                format!("{name}{around}"),
                format!("{around}{name}"),
                format!("{}{around}{}", &name[..2], &name[2..]),
            ]);
        }
        let percent: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        names.extend([
            percent,
            format!("up/{name}"),
            format!("./{name}"),
            format!("x/../{name}"),
            format!("up__{name}"),
            format!("{name},{name}"),
            format!("\"{name}\""),
            format!("\\u0065{}", &name[1..]),
        ]);
    }
    for name in &names {
        let request = gate.post(call(name, r#"{"a":1}"#));
        assert_eq!(gate.refuses(&format!("{name:?}"), &request, &unlisted()).text(), answer, "{name:?}");
    }
    for spelled in [r"\u0064anger", r"d\u0061nger", r"\u0064\u0061\u006e\u0067\u0065\u0072"] {
        gate.refuses(spelled, &gate.post(call("NAME", "{}").replace("NAME", spelled)), &unlisted());
    }

    for spelled in ["echo", r"\u0065cho", r"e\u0063h\u006f", "café", r"caf\u00e9"] {
        gate.passes(spelled, &gate.post(call("NAME", "{}").replace("NAME", spelled)));
    }
}

#[test]
fn names_and_arguments_of_another_type_are_refused_by_their_form() {
    let gate = Gate::with_rules(
        r#"- { name: everything, tools: ["up/*"], prompts: ["up/*"], resources: ["up/*"], allow: {} }"#,
    );
    let params = error(200, -32602, "mcp.params").id("7");
    let body = |method: &str, params: &str| {
        gate.post(format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params}}}}}"#))
    };
    for value in ["null", "7", "true", r#"["echo"]"#, r#"{"name":"echo"}"#, "[]"] {
        gate.refuses(&format!("name {value}"), &body("tools/call", &format!(r#""name":{value}"#)), &params);
        gate.refuses(
            &format!("name of a prompt {value}"),
            &body("prompts/get", &format!(r#""name":{value}"#)),
            &params,
        );
        gate.refuses(&format!("uri {value}"), &body("resources/read", &format!(r#""uri":{value}"#)), &params);
        gate.refuses(
            &format!("ref {value}"),
            &body("completion/complete", &format!(r#""ref":{value},"argument":{{}}"#)),
            &params,
        );
    }
    for value in ["null", "[]", r#"[{"a":1}]"#, r#""{}""#, "7", "true"] {
        gate.refuses(&format!("arguments {value}"), &gate.post(call("echo", value)), &params);
        gate.refuses(
            &format!("arguments of a prompt {value}"),
            &body("prompts/get", &format!(r#""name":"greet","arguments":{value}"#)),
            &params,
        );
    }
    gate.refuses("no name", &body("tools/call", r#""arguments":{}"#), &params);
    let no_params = gate.post(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#);
    gate.refuses("no params", &no_params, &params);

    gate.passes("arguments", &gate.post(call("echo", r#"{"__proto__":{"a":1},"constructor":1,"toString":null}"#)));
    gate.passes("no arguments", &body("tools/call", r#""name":"echo""#));
    gate.passes("a prompt without arguments", &body("prompts/get", r#""name":"greet""#));
}

/// What must not be in `cmd`, and how much `n` may be.
const RULES: &str = r#"
- { name: everything, tools: ["up/plain", "up/strict", "up/sums", "up/deep"], allow: {} }
- { name: no rm, tools: ["up/plain"], when: { /cmd: { matches: '.*rm.*' } }, deny: { reason: nothing is removed } }
- { name: no rm at all, tools: ["up/strict"], when: { /cmd: { matches: '.*rm.*', or_absent: true } }, deny: { reason: nothing is removed } }
- { name: no large sums, tools: ["up/sums"], when: { /n: { min: 101 } }, deny: { reason: too much } }
- { name: nothing forced, tools: ["up/deep"], when: { /options/0/force: { equals: true } }, deny: { reason: no force } }
- { name: small and here, tools: ["up/narrow"], when: { /n: { max: 100 }, /path: { matches: '/srv/[a-z.]+' } }, allow: {} }
- { name: looked at, tools: ["up/danger"], when: { /to: { equals: prod } }, hold: { approvers: { users: [bob] } } }
- { name: deploying, tools: ["up/danger"], allow: {} }
"#;

/// From a client that takes no stream: its answer is one message, however long it waits.
fn silent(request: Request) -> Request {
    request.without("Accept").header("Accept", "application/json")
}

/// Calls of one tool: arguments that get through, and arguments that do not.
#[track_caller]
fn check(
    gate: &Gate,
    tool: &str,
    passing: &[&str],
    refused: &[&str],
    text: &'static str,
    rules: &[&str],
    decision: &str,
) {
    let mark = gate.recorder.mark();
    for arguments in refused {
        let request = silent(gate.post(call(tool, arguments)));
        let response = gate.refuses(&format!("{tool} {arguments}"), &request, &result(text));
        let record = gate.decision(&response);
        assert_eq!(
            (&record["decision"], record.get("rules").cloned().unwrap_or_else(|| json!([]))),
            (&json!(decision), json!(rules)),
            "{tool} {arguments}: {record}"
        );
    }
    for arguments in passing {
        let response = gate.passes(&format!("{tool} {arguments}"), &gate.post(call(tool, arguments)));
        assert_eq!(response.body, call(tool, arguments).as_bytes());
    }
    assert_eq!(gate.recorder.requests_since(mark).len(), passing.len(), "nothing came late");
}

#[test]
fn a_deny_on_arguments_is_not_passed_by_another_type_a_line_break_or_an_escape() {
    let gate = Gate::with_rules(RULES);
    let around: Vec<String> = ["\n", "\r", "\r\n", "\u{85}", "\u{2028}", "\u{2029}", "\0", "\u{b}", "\t"]
        .iter()
        .flat_map(|space| {
            [format!("{space}rm x"), format!("ls{space}rm x"), format!("rm x{space}"), format!("{space}rm{space}")]
        })
        .map(|cmd| format!(r#"{{"cmd":{}}}"#, quoted(&cmd)))
        .collect();
    let mut refused: Vec<&str> = around.iter().map(String::as_str).collect();
    refused.extend([
        r#"{"cmd":"rm"}"#,
        r#"{"cmd":"\u0072m"}"#,
        r#"{"\u0063md":"rm"}"#,
        r#"{"cmd":"a\u000arm"}"#,
        r#"{"cmd":["rm"]}"#,
        r#"{"cmd":["ls"]}"#,
        r#"{"cmd":null}"#,
        r#"{"cmd":5}"#,
        r#"{"cmd":false}"#,
        r#"{"cmd":{}}"#,
        r#"{"cmd":[]}"#,
        r#"{"x":"ls","cmd":{"cmd":"ls"}}"#,
    ]);
    let reason = "nothing is removed";
    // What is absent is no match without `or_absent` (docs/policy.md), and another name is another argument.
    let passing = [
        r#"{"cmd":"ls"}"#,
        r#"{"cmd":"r m"}"#,
        r#"{"cmd":"RM"}"#,
        r#"{"cmd":""}"#,
        "{}",
        r#"{"Cmd":"rm"}"#,
        r#"{"a":{"cmd":"rm"}}"#,
    ];
    check(&gate, "plain", &passing, &refused, reason, &["no rm"], "denied");

    refused.extend(["{}", r#"{"Cmd":"ls"}"#, r#"{"cmd ":"ls"}"#, r#"{"cmd\u0000":"ls"}"#, r#"{"a":{"cmd":"ls"}}"#]);
    check(&gate, "strict", &[r#"{"cmd":"ls"}"#, r#"{"cmd":"ls\n"}"#], &refused, reason, &["no rm at all"], "denied");
    let absent = gate.post(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"strict"}}"#);
    gate.refuses("no arguments at all", &absent, &result(reason));
    gate.passes(
        "no arguments at all, without or_absent",
        &gate.post(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"plain"}}"#),
    );
}

#[test]
fn numbers_are_compared_as_they_are_written() {
    let gate = Gate::with_rules(RULES);
    let refused = [
        r#"{"n":101}"#,
        r#"{"n":101.0}"#,
        r#"{"n":1.01e2}"#,
        r#"{"n":1010E-1}"#,
        r#"{"n":0.101e+3}"#,
        r#"{"n":101.00000000000000000000000000001}"#,
        r#"{"n":9007199254740993}"#,
        r#"{"n":18446744073709551616}"#,
        r#"{"n":1e400}"#,
        r#"{"n":1e99999999999999999999}"#,
        r#"{"n":"101"}"#,
        r#"{"n":"1"}"#,
        r#"{"n":null}"#,
        r#"{"n":[1]}"#,
        r#"{"n":true}"#,
        r#"{"n":{}}"#,
    ];
    let passing = [
        r#"{"n":100}"#,
        r#"{"n":1e2}"#,
        r#"{"n":100.99999999999999999999999999999}"#,
        r#"{"n":-0.0}"#,
        r#"{"n":-1e400}"#,
        r#"{"n":1e-400}"#,
        r#"{"n":-9007199254740993}"#,
        "{}",
    ];
    check(&gate, "sums", &passing, &refused, "too much", &["no large sums"], "denied");
}

#[test]
fn a_deny_inside_an_argument_is_not_passed_by_another_shape() {
    let gate = Gate::with_rules(RULES);
    let refused = [
        r#"{"options":[{"force":true}]}"#,
        r#"{"options":[{"force":"true"}]}"#,
        r#"{"options":[{"force":1}]}"#,
        r#"{"options":[{"force":null}]}"#,
        r#"{"options":["force"]}"#,
        r#"{"options":[null]}"#,
        r#"{"options":"force"}"#,
        r#"{"options":null}"#,
        r#"{"options":true}"#,
        r#"{"opti\u006fns":[{"f\u006frce":true}]}"#,
    ];
    let passing = [
        r#"{"options":[{"force":false}]}"#,
        r#"{"options":[{}]}"#,
        r#"{"options":[]}"#,
        "{}",
        r#"{"options":[{"force":false},{"force":true}]}"#,
    ];
    check(&gate, "deep", &passing, &refused, "no force", &["nothing forced"], "denied");
}

#[test]
fn an_allow_on_arguments_takes_only_what_it_names() {
    let gate = Gate::with_rules(RULES);
    let refused = [
        "{}",
        r#"{"n":1}"#,
        r#"{"path":"/srv/a"}"#,
        r#"{"n":101,"path":"/srv/a"}"#,
        r#"{"n":100.00000000000000000000000001,"path":"/srv/a"}"#,
        r#"{"n":"1","path":"/srv/a"}"#,
        r#"{"n":null,"path":"/srv/a"}"#,
        r#"{"n":[1],"path":"/srv/a"}"#,
        r#"{"n":1,"path":"/srv/a\n"}"#,
        r#"{"n":1,"path":"\n/srv/a"}"#,
        r#"{"n":1,"path":"/srv/a\n/etc/passwd"}"#,
        r#"{"n":1,"path":"/etc\n/srv/a"}"#,
        r#"{"n":1,"path":"/srv/a\r"}"#,
        r#"{"n":1,"path":"/srv/a\u2028"}"#,
        r#"{"n":1,"path":"/srv/a\u0000"}"#,
        r#"{"n":1,"path":"/srv/a/../../etc"}"#,
        r#"{"n":1,"path":"/srv/A"}"#,
        r#"{"n":1,"path":["/srv/a"]}"#,
        r#"{"n":1,"path":{"a":"/srv/a"}}"#,
        r#"{"n":1,"path":null}"#,
        r#"{"N":1,"path":"/srv/a"}"#,
        r#"{"n":1,"Path":"/srv/a"}"#,
    ];
    let passing =
        [r#"{"n":100,"path":"/srv/a"}"#, r#"{"n":1e2,"path":"\/srv\/b"}"#, r#"{"path":"/srv/a","more":[1],"n":-1}"#];
    check(
        &gate,
        "narrow",
        &passing,
        &refused,
        "no rule of this gateway's policy permits these arguments",
        &[],
        "denied",
    );
}

#[test]
fn a_call_that_is_held_is_not_sent_and_its_caller_is_told() {
    let gate = Gate::with(|url| format!("{}approvals: {{ wait: 100ms }}\n", in_front_of(url, RULES)));
    let refused =
        [r#"{"to":"prod"}"#, r#"{"to":"pr\u006fd","x":1}"#, r#"{"to":["prod"]}"#, r#"{"to":null}"#, r#"{"to":1}"#];
    let text = "it needs a person's approval and has not run";
    check(&gate, "danger", &[r#"{"to":"test"}"#, "{}"], &refused, text, &["looked at"], "held");

    let request = silent(gate.post(call("danger", r#"{"to":"prod"}"#)));
    let first = gate.refuses("asked once", &request, &result(text)).text();
    assert_eq!(gate.refuses("asked again", &request, &result(text)).text(), first, "asking again opens nothing");
    let quiet = gate.post(call("danger", r#"{"to":"prod"}"#).replace(r#""id":7,"#, ""));
    gate.refuses("as a notification", &quiet, &error(400, -32600, "jsonrpc.invalid"));
}
