//! A changed file: put in force whole, or not at all, however it was changed and whatever goes on meanwhile.

use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use crate::support::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const ECHO: &str = r#"- { name: echo, tools: ["up/echo"], allow: {} }"#;
const ADD: &str = r#"- { name: add, tools: ["up/add"], allow: {} }"#;

/// Everything a gateway needs, so that the harness adds nothing: what is cut is what was written.
fn whole_file(url: &str) -> String {
    format!(
        r#"# Ein Gateway für alle
listen: 127.0.0.1:0
metrics: {{ listen: "127.0.0.1:0" }}
data_dir: data
identity:
  users:
    - name: alice
      groups: [ops, "über"]
      password_hash: {HASH}
upstreams:
  up: {{ http: {{ url: "{url}", timeouts: {{ total: 10m }} }} }}
policy: {{ rules: [
  {{ name: écho, tools: ["up/echo"], who: {{ groups: ["über"] }}, allow: {{}} }},
  {{ name: never, tools: ["up/danger"], deny: {{ reason: "no" }} }} ] }}
"#
    )
}

/// Alice's, as the harness writes it.
const HASH: &str =
    "\"$argon2id$v=19$m=19456,t=2,p=1$c2FsdC1vZi1hbGljZS0wMQ$RIgSXgcpy6dPFN530lQyNSFbf3OwFt3/2mUG400ua7o\"";

/// The first `gateway.yaml:<line>:<column>` in a text.
fn place(text: &str) -> Option<(usize, usize)> {
    let rest = text.split("gateway.yaml:").nth(1)?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[test]
fn a_file_cut_at_any_byte_leaves_the_old_one_in_force_and_says_where() {
    let recorder = Recorder::start();
    let text = whole_file(&recorder.url());
    let gateway = Gateway::start(&text);
    let agent = gateway.agent("alice", "up");
    let in_force = gateway.snapshot();
    let mut taken = Vec::new();

    for end in 0..text.len() {
        gateway.rewrite_raw(&text.as_bytes()[..end]);
        let answer = gateway.operate("POST", "/reload");
        let said = answer["text"].as_str().expect("a text");
        if answer["ok"] == true {
            taken.push(end);
            continue;
        }
        assert_eq!(answer["snapshot"], in_force.as_str(), "cut at {end}");
        assert!(said.ends_with(&format!("the old configuration ({in_force}) stays in force")), "cut at {end}: {said}");
        let (line, column) = place(said).unwrap_or_else(|| panic!("cut at {end}, no place: {said}"));
        let n_lines = text.as_bytes()[..end].split(|byte| *byte == b'\n').count();
        assert!((1..=n_lines).contains(&line) && column >= 1, "cut at {end}: {line}:{column} of {n_lines} lines");
        if end % 150 == 0 {
            agent.tool("echo", json!({ "end": end })).result();
            agent.tool("danger", json!({})).error();
        }
    }

    // All that may be missing is the newline at its end.
    assert_eq!(taken, [text.len() - 1]);
    gateway.rewrite_raw(&text);
    assert_eq!(gateway.operate("POST", "/reload")["snapshot"], in_force.as_str());
    agent.tool("echo", json!({})).result();
}

#[test]
fn the_command_says_what_is_wrong_and_exits_with_1() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, ECHO);

    let text = fs::read_to_string(gateway.path("gateway.yaml")).expect("it is there");
    gateway.rewrite_raw(text.replace("tools:", "tolls:"));
    let refused = gateway.reload();

    assert_eq!(refused.status.code(), Some(1), "{refused:#?}");
    assert!(refused.stdout.contains("gateway.yaml:5:"), "{refused:#?}");
    assert!(refused.stdout.contains("tolls") && refused.stdout.contains("`tools`"), "{refused:#?}");
    assert!(refused.stdout.trim_end().ends_with("stays in force"), "{refused:#?}");
    // It is written down after the answer.
    let is_refusal = |record: &Value| record["event"] == "reload" && record["code"] == "config.refused";
    wait_for("the record", || gateway.audit().iter().any(is_refusal));

    gateway.rewrite_raw(text);
    let taken = gateway.reload().success();
    assert_eq!(taken.stdout, format!("configuration {} is in force\n", gateway.snapshot()));
}

/// Puts other contents in the place of a file.
type Replace = fn(&Path, &str);

const WAYS: [(&str, Replace); 4] = [
    ("written in place", |file, text| fs::write(file, text).expect("the file is ours")),
    ("renamed over it", |file, text| {
        let other = file.with_extension("new");
        fs::write(&other, text).expect("the folder is ours");
        fs::rename(other, file).expect("the folder is ours");
    }),
    ("deleted and created", |file, text| {
        fs::remove_file(file).expect("the folder is ours");
        fs::write(file, text).expect("the folder is ours");
    }),
    // As Kubernetes updates a mounted ConfigMap.
    ("a symlink swapped", |file, text| {
        let version = file.with_extension(format!("{:x}", text.len()));
        fs::write(&version, text).expect("the folder is ours");
        let link = file.with_extension("link");
        symlink(version, &link).expect("the folder is ours");
        fs::rename(link, file).expect("the folder is ours");
    }),
];

#[test]
fn a_file_replaced_in_any_way_is_picked_up_without_asking() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, ECHO);
    let agent = gateway.agent("alice", "up");
    let file = gateway.path("gateway.yaml");
    let text = fs::read_to_string(&file).expect("it is there");
    assert_eq!(agent.tools(), ["echo"]);

    for (n, (way, replace)) in WAYS.iter().enumerate() {
        let tool = if n % 2 == 0 { "add" } else { "echo" };
        replace(&file, &text.replace("up/echo", &format!("up/{tool}")));

        wait_for(way, || agent.tools() == [tool]);
        agent.tool(tool, json!({})).result();
        let other = if n % 2 == 0 { "echo" } else { "add" };
        agent.tool(other, json!({})).error();
    }
}

#[test]
fn a_file_that_cannot_be_read_changes_nothing() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, ECHO);
    let agent = gateway.agent("alice", "up");
    let (file, in_force) = (gateway.path("gateway.yaml"), gateway.snapshot());
    let text = fs::read(&file).expect("it is there");
    let cases: [(&str, &dyn Fn()); 5] = [
        ("missing", &|| ()),
        ("a folder", &|| fs::create_dir(&file).expect("the folder is ours")),
        ("a dangling link", &|| symlink("nowhere", &file).expect("the folder is ours")),
        ("not text", &|| fs::write(&file, b"listen: \xff\xfe").expect("the folder is ours")),
        ("huge", &|| fs::write(&file, vec![b'#'; 2 << 20]).expect("the folder is ours")),
    ];

    for (case, make) in cases {
        drop(fs::remove_file(&file).or_else(|_| fs::remove_dir(&file)));
        make();

        let answer = gateway.operate("POST", "/reload");

        assert_eq!((&answer["ok"], &answer["snapshot"]), (&json!(false), &json!(in_force)), "{case}: {answer}");
        assert!(answer["text"].as_str().is_some_and(|text| text.contains("gateway.yaml")), "{case}: {answer}");
        agent.tool("echo", json!({})).result();
    }
    fs::write(&file, text).expect("the folder is ours");
    assert_eq!(gateway.operate("POST", "/reload")["ok"], true);
}

#[test]
fn a_signal_also_looks_at_the_files_the_configuration_names() {
    let recorder = Recorder::start();
    let upstream = format!("url: \"{}\", headers: {{ X-Key: {{ file: key }} }}", recorder.url());
    let yaml = format!("upstreams: {{ up: {{ http: {{ {upstream} }} }} }}\npolicy:\n  rules:\n    {ECHO}\n");
    let launch = Launch::new(&yaml).file("key", "first");
    let private = || {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(launch.path("key"), fs::Permissions::from_mode(0o600)).expect("the file is ours");
    };
    private();
    let gateway = launch.start();
    let agent = gateway.agent("alice", "up");
    agent.tool("echo", json!({})).result();
    assert_eq!(recorder.last().header("x-key"), Some("first"));
    let reloads = || gateway.metric("portcullis_config_reloads_total{result=\"ok\"}");
    let before = reloads();

    fs::write(gateway.path("key"), "second").expect("the file is ours");
    gateway.signal("HUP");
    wait_for("the reload", || reloads() > before);

    agent.tool("echo", json!({})).result();
    assert_eq!(recorder.last().header("x-key"), Some("second"));
}

#[test]
fn what_a_running_process_cannot_change_is_refused_with_a_hint() {
    let recorder = Recorder::start();
    let yaml = in_front_of(&recorder.url(), ECHO);
    let base = "public_url: http://localhost:8080\n";
    let gateway = Gateway::start(&format!("{base}{yaml}"));
    let in_force = gateway.snapshot();
    let cases = [
        ("listen", format!("listen: \"127.0.0.1:1\"\n{base}")),
        ("public_url", "public_url: http://localhost:8081\n".to_owned()),
        ("data_dir", format!("data_dir: elsewhere\n{base}")),
        ("metrics", format!("metrics: {{ listen: \"127.0.0.1:1\" }}\n{base}")),
    ];

    for (key, head) in cases {
        gateway.rewrite(&format!("{head}{yaml}"));
        let answer = gateway.operate("POST", "/reload");

        let said = answer["text"].as_str().expect("a text");
        assert_eq!((&answer["ok"], &answer["snapshot"]), (&json!(false), &json!(in_force)), "{key}: {said}");
        assert!(said.contains(&format!("`{key}` cannot change while the gateway runs")), "{key}: {said}");
        assert!(said.contains("hint: restart it") && place(said).is_some(), "{key}: {said}");
    }
    gateway.rewrite(&format!("{base}limits: {{ depth: 50 }}\n{yaml}"));
    assert_eq!(gateway.operate("POST", "/reload")["ok"], true, "the rest can change");
}

#[test]
fn a_configuration_whose_own_tests_fail_is_refused() {
    let recorder = Recorder::start();
    let yaml = in_front_of(&recorder.url(), ECHO);
    let gateway = Gateway::start(&yaml);
    let test = |expect: &str| format!("{yaml}  tests:\n    - {{ tool: up/echo, user: alice, expect: {expect} }}\n");
    let in_force = gateway.snapshot();

    gateway.rewrite(&test("deny"));
    let answer = gateway.operate("POST", "/reload");
    let said = answer["text"].as_str().expect("a text");
    assert_eq!((&answer["ok"], &answer["snapshot"]), (&json!(false), &json!(in_force)), "{said}");
    assert!(said.contains("expected `deny`, but the call is allowed by `echo`") && place(said).is_some(), "{said}");

    gateway.rewrite(&test("allow"));
    assert_eq!(gateway.operate("POST", "/reload")["ok"], true);
}

#[test]
fn a_person_added_by_a_command_may_come_in_without_a_restart_and_leaves_with_the_file() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, ECHO);
    let file = |user: &str| gateway.password_file(user).to_str().expect("temporary paths are UTF-8").to_owned();
    let (alice, carol) = (file("alice"), file("carol"));
    let add = ["user", "add", "carol", "--password-file", &carol, "--as", "alice", "--admin-password-file", &alice];
    gateway.cli(&add).success();
    let agent = gateway.agent("carol", "up");

    wait_for("carol to be known", || agent.call("ping", json!({})).status() == 200);
    agent.tool("echo", json!({})).result();

    fs::remove_file(gateway.path("data/users.yaml")).expect("it is there");
    wait_for("carol to be gone", || agent.call("ping", json!({})).status() == 401);
    let mark = recorder.mark();
    assert_eq!(agent.tool("echo", json!({})).status(), 401);
    recorder.assert_untouched(mark);
}

#[test]
fn every_answer_under_load_is_that_of_one_whole_version() {
    let recorder = Recorder::start();
    // What the upstream was sent shows in what it lists.
    recorder.answer_with(|request| match (request.rpc_method().as_str(), request.header("x-version")) {
        ("tools/list", Some(version)) => {
            let tools = ["echo".to_owned(), "danger".to_owned(), format!("seen-{version}")];
            let tools: Vec<Value> =
                tools.iter().map(|name| json!({ "name": name, "inputSchema": { "type": "object" } })).collect();
            Reply::result(request, &json!({ "tools": tools }))
        }
        _ => Reply::mcp(request),
    });
    let version = |version: &str, tool: &str| {
        let upstream = format!("url: \"{}\", headers: {{ X-Version: {version} }}", recorder.url());
        let rule = format!("{{ name: {version}, tools: [\"up/{tool}\", \"up/seen-*\"], allow: {{}} }}");
        format!("upstreams: {{ up: {{ http: {{ {upstream} }} }} }}\npolicy: {{ rules: [{rule}] }}\n")
    };
    let versions = [version("a", "echo"), version("b", "danger")];
    let gateway = Gateway::start(&versions[0]);
    let agent = gateway.agent("alice", "up");
    let is_over = AtomicBool::new(false);

    let seen: BTreeSet<Vec<String>> = thread::scope(|scope| {
        let reloading = scope.spawn(|| {
            let mut n_reloads = 0;
            while !is_over.load(Ordering::Relaxed) {
                n_reloads += 1;
                gateway.rewrite(&versions[n_reloads % 2]);
                assert_eq!(gateway.operate("POST", "/reload")["ok"], true);
            }
            n_reloads
        });
        let callers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..50).map(|_| agent.tools()).collect::<Vec<_>>())).collect();
        let seen = callers.into_iter().flat_map(|caller| caller.join().expect("the caller does not panic")).collect();
        is_over.store(true, Ordering::Relaxed);
        let n_reloads = reloading.join().expect("the reloader does not panic");
        assert!(n_reloads > 5, "only {n_reloads} reloads");
        seen
    });

    let whole = [["echo", "seen-a"], ["danger", "seen-b"]].map(|names| names.map(str::to_owned).to_vec());
    assert_eq!(seen, BTreeSet::from(whole));
}

#[test]
fn a_call_in_flight_ends_under_the_configuration_it_began_with() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, &format!("{ECHO}\n{ADD}"));
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    let (request, id) = agent.request("tools/list", json!({}));
    let mark = recorder.mark();
    let mut connection = agent.open(&request);
    recorder.wait_for_requests(mark, 1);

    gateway.rewrite(&in_front_of(&recorder.url(), ECHO));
    gateway.reload().success();
    assert_eq!(agent.tools(), ["echo"]);
    let tools = json!([{ "name": "echo" }, { "name": "add" }, { "name": "danger" }]);
    feed.message(&json!({ "jsonrpc": "2.0", "id": id, "result": { "tools": tools } }));

    let answer = connection.streaming().message().expect("the answer");
    let names: Vec<&str> =
        answer["result"]["tools"].as_array().expect("a list").iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["echo", "add"], "{answer}");
}
