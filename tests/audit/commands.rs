//! `tail`, `show`, `search` and `stats`: what happened, in one command, safe for a terminal whatever somebody sent.

use super::{document, id, lines, wait_for_results};
use crate::support::gateway::{Gateway, in_front_of, password};
use crate::support::oauth::Client;
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use crate::support::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::thread;

const RULES: &str = r#"
- { name: writes, tools: ["up/*"], allow: {} }
- { name: never, tools: ["up/danger"], when: { /path: { matches: "/etc/.*" } }, deny: { reason: "not there" } }
- { name: looked at, tools: ["up/danger"], when: { /path: { matches: "/srv/.*" } }, hold: { approvers: { groups: [admins] } } }
"#;

#[test]
fn a_line_says_when_who_what_how_and_how_long() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, RULES);
    let agent = gateway.agent("bob", "up");
    let allowed = agent.tool("add", json!({}));
    let denied = agent.tool("danger", json!({ "path": "/etc/passwd" }));
    wait_for_results(&gateway, 2);

    let tail = gateway.cli(&["audit", "tail"]).success().stdout;

    let of = |event: &str, id: &str| -> String {
        let line = tail.lines().find(|line| line.contains(&format!("  {event}  ")) && line.ends_with(id));
        line.unwrap_or_else(|| panic!("no {event} of {id} in {tail}")).to_owned()
    };
    let decided = of("decision", &id(&allowed));
    assert!(decided.contains("  user:bob via cli  up/add  allowed by `writes`  "), "{decided}");
    let ended = of("result", &id(&allowed));
    assert!(ended.contains("  user:bob via cli  up/add  completed 200 "), "{ended}");
    assert!(ended.contains(" ms  ") || ended.contains(" us  ") || ended.contains(" s  "), "how long: {ended}");
    let refused = of("decision", &id(&denied));
    assert!(refused.contains("  up/danger  denied by `never`  "), "{refused}");
    assert!(of("result", &id(&denied)).contains("refused policy.denied 200 "));

    let as_it_stands = gateway.cli(&["audit", "tail", "--json", "-n", "2"]).success().stdout;
    assert!(gateway.audit_text().contains(&as_it_stands), "{as_it_stands}");
}

#[test]
fn show_tells_the_whole_story_of_a_call_that_a_person_let_through() {
    let recorder = Recorder::start();
    let top =
        "admin: { listen: 127.0.0.1:0 }\napprovals: { wait: 30s }\naudit: { arguments: [{ tools: [\"up/*\"] }] }\n";
    let gateway = Gateway::start(&format!("{top}{}", in_front_of(&recorder.url(), RULES)));
    gateway.wait_until_asked("up");
    let tokens = Client::register(&gateway).log_in(&gateway, "bob", "up");
    let agent = gateway.agent_with(&tokens.access, "up");
    let other = agent.tool("add", json!({}));

    let answer = thread::scope(|scope| {
        let caller = scope.spawn(|| agent.tool("danger", json!({ "path": "/srv/a" })));
        wait_for("the call to be held", || {
            gateway.audit().iter().any(|record| record["event"] == "approval.requested")
        });
        let held = gateway.audit().into_iter().find(|record| record["event"] == "approval.requested").expect("held");
        fs::write(gateway.path("alice"), password("alice")).expect("the folder is ours");
        let file = gateway.path("alice");
        let approve = [
            "approvals",
            "approve",
            held["approval"].as_str().expect("an id"),
            "--digest",
            held["digest"].as_str().expect("a digest"),
            "--as",
            "alice",
            "--password-file",
            file.to_str().expect("UTF-8"),
        ];
        gateway.cli(&approve).success();
        caller.join().expect("the caller does not panic")
    });
    answer.result();
    wait_for_results(&gateway, 2);
    wait_for("the end of the held call", || gateway.audit().iter().any(|record| record["event"] == "approval.ended"));

    let story = lines(&gateway, &["audit", "show", "--json", &id(&answer)]);
    let events: Vec<&str> = story.iter().map(|record| record["event"].as_str().expect("a word")).collect();
    // The person logs in and says yes; the token; then the call: asked for, decided, said yes to, run, ended.
    let mut in_order = events.iter();
    for expected in [
        "login.succeeded",
        "consent.given",
        "token.issued",
        "approval.requested",
        "decision",
        "approval.decided",
        "approval.consumed",
        "approval.ended",
    ] {
        let is_there = in_order.any(|event| *event == expected);
        assert!(is_there, "{expected} is not there, or not in its place: {events:?}");
    }
    assert!(events.contains(&"result"), "{events:?}");
    assert!(!story.iter().any(|record| record["request"] == json!(id(&other))), "another call is another story");
    let mut sorted = story.iter().map(|record| record["at"].as_str().expect("a time")).collect::<Vec<_>>();
    sorted.sort_unstable();
    assert_eq!(sorted, story.iter().map(|record| record["at"].as_str().expect("a time")).collect::<Vec<_>>());

    // By the held call's id it is the same story, and people can read it.
    let held = story.iter().find_map(|record| record["approval"].as_str()).expect("it was held");
    assert_eq!(lines(&gateway, &["audit", "show", "--json", held]).len(), story.len());
    let shown = gateway.cli(&["audit", "show", held]).success().stdout;
    for text in [
        "approval.decided  user:alice via approver  up/danger  allowed via cli",
        r#"  arguments         {"path":"/srv/a"}"#,
        "  groups            ops\n",
    ] {
        assert!(shown.contains(text), "{text:?} is not in {shown}");
    }
    let unknown = gateway.cli(&["audit", "show", "r_nobody"]);
    assert_eq!((unknown.status.code(), unknown.stderr.trim()), (Some(1), "error: no record of `r_nobody`"));
}

#[test]
fn search_finds_by_every_filter_and_prints_the_newest_last() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, RULES);
    let (alice, bob) = (gateway.agent("alice", "up"), gateway.agent("bob", "up"));
    let first = id(&alice.tool("add", json!({})));
    let second = id(&bob.tool("add", json!({})));
    let denied = id(&bob.tool("danger", json!({ "path": "/etc/x" })));
    let echoed = id(&bob.tool("echo", json!({})));
    recorder.answer_next(Reply::new(500, ""));
    let broken = id(&alice.tool("add", json!({ "n": 1 })));
    wait_for_results(&gateway, 5);

    let found = |filters: &[&str]| -> Vec<String> {
        let records = lines(&gateway, &[&["audit", "search", "--json"], filters].concat());
        records.iter().map(|record| record["request"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let decisions = |filters: &[&str]| found(&[&["--event", "decision"], filters].concat());
    assert_eq!(decisions(&[]), [&first, &second, &denied, &echoed, &broken].map(String::clone));
    assert_eq!(decisions(&["--user", "bob"]), [&second, &denied, &echoed].map(String::clone));
    assert_eq!(decisions(&["--user", "user:alice"]), [&first, &broken].map(String::clone));
    assert_eq!(decisions(&["--tool", "e*"]), std::slice::from_ref(&echoed));
    assert_eq!(decisions(&["--tool", "up/a*"]), [&first, &second, &broken].map(String::clone));
    assert_eq!(decisions(&["--tool", "other/a*"]), Vec::<String>::new());
    assert_eq!(
        decisions(&["--upstream", "up", "--client", "cli", "--limit", "2"]),
        [&echoed, &broken].map(String::clone)
    );
    assert_eq!(decisions(&["--client", "nobody"]), Vec::<String>::new());
    assert_eq!(decisions(&["--decision", "denied"]), std::slice::from_ref(&denied));
    assert_eq!(decisions(&["--rule", "never"]), std::slice::from_ref(&denied));
    assert_eq!(found(&["--code", "policy.denied"]), std::slice::from_ref(&denied));
    assert_eq!(found(&["--code", "upstream."]), std::slice::from_ref(&broken));
    assert_eq!(found(&["--request", &echoed]), [echoed.clone(), echoed.clone()]);
    assert_eq!(found(&["--event", "result", "--text", "UPSTREAM.STATUS"]), std::slice::from_ref(&broken));
    assert_eq!(decisions(&["--since", "1h"]).len(), 5);
    assert_eq!(decisions(&["--until", "2020-01-01"]), Vec::<String>::new());
    assert_eq!(decisions(&["--since", "2020-01-01T00:00:00Z", "--until", "2099-01-01"]).len(), 5);

    let shown = gateway.cli(&["audit", "search", "--event", "decision", "--limit", "1"]).success();
    assert_eq!(shown.stdout.lines().count(), 1);
    assert!(shown.stdout.trim_end().ends_with(&broken), "{shown:#?}");
    assert!(shown.stderr.contains("4 older records match"), "{shown:#?}");
    for (wrong, says) in
        [(["--since", "yesterday"], "is no time"), (["--decision", "maybe"], "none of allowed, held, denied")]
    {
        let refused = gateway.cli(&[&["audit", "search"][..], &wrong].concat());
        assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
        assert!(refused.stderr.contains(says), "{refused:#?}");
    }
}

#[test]
fn stats_count_what_was_decided_and_how_it_ended() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, RULES);
    let (alice, bob) = (gateway.agent("alice", "up"), gateway.agent("bob", "up"));
    (0..3).for_each(|n| drop(alice.tool("add", json!({ "n": n })).result()));
    bob.tool("danger", json!({ "path": "/etc/x" }));
    bob.tools();
    wait_for_results(&gateway, 5);

    let stats = document(&gateway, &["audit", "stats", "--json"]);
    assert_eq!(stats["decisions"], json!({ "allowed": 4, "denied": 1 }));
    assert_eq!(stats["tools"], json!({ "up/add": 3, "up/danger": 1 }));
    assert_eq!(stats["other_methods"], json!({ "tools/list": 1 }));
    assert_eq!(stats["users"], json!({ "user:alice": 3, "user:bob": 2 }));
    assert_eq!(stats["rules"], json!({ "writes": 3, "never": 1 }));
    assert_eq!(stats["codes"], json!({ "policy.denied": 1 }));
    assert_eq!(stats["outcomes"], json!({ "completed": 4, "refused": 1 }));
    let durations = &stats["durations_us"];
    assert_eq!((&durations["n"], durations["p50"].as_u64() <= durations["longest"].as_u64()), (&json!(5), true));
    assert_eq!(stats["durations_us_by_upstream"]["up"]["n"], 5);
    assert_eq!(
        document(&gateway, &["audit", "stats", "--json", "--user", "bob"])["decisions"],
        json!({ "allowed": 1, "denied": 1 })
    );

    let shown = gateway.cli(&["audit", "stats", "--top", "1"]).success().stdout;
    for text in [
        "\ndecisions\n          4  allowed\n          1  (1 others)\n",
        "\ntools\n          3  up/add\n",
        "p50",
        "\nbusiest minutes\n",
    ] {
        assert!(shown.contains(text), "{text:?} is not in {shown}");
    }
}

#[test]
fn nothing_that_somebody_sent_reaches_the_terminal_as_it_was() {
    let recorder = Recorder::start();
    let rules = RULES.replace("up/*", "*/*");
    let gateway = Gateway::start(&format!(
        "{}\naudit: {{ arguments: [{{ tools: [\"up/*\"] }}] }}\n",
        in_front_of(&recorder.url(), &rules)
    ));
    let agent = gateway.agent("alice", "up");
    let hostile = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\u{2028}\r\n{\"seq\":1}\u{200b}\u{7f}";
    let mut ids = vec![id(&agent.tool(hostile, json!({ hostile: [hostile] })))];
    ids.push(id(&agent.tool(&format!("{hostile}{}", "x".repeat(1 << 20)), json!({}))));
    ids.push(id(&agent.call("resources/read", json!({ "uri": format!("file:///{hostile}") }))));
    wait_for_results(&gateway, 3);
    // Somebody has edited the log as well: what they wrote is no record, and no command.
    let file = fs::read_dir(gateway.path("data/audit")).expect("a log").flatten().map(|entry| entry.path());
    let file =
        file.into_iter().filter(|path| path.extension().is_some_and(|end| end == "jsonl")).max().expect("a segment");
    let forged = format!(
        "{{\"seq\":9,\"at\":\"2026-11-30T00:00:00.000Z\",\"event\":\"decision\u{1b}[2J\",\"decision\":\"\u{202e}denied\",\"object\":\"{}\u{9b}\",\"arguments\":{{\"a\":\"\u{1b}[1m\"}},\"request\":\"r_forged\"}}\nno record \u{1b}[2J\n",
        "y".repeat(1 << 19)
    );
    let mut text = fs::read(&file).expect("readable");
    text.extend_from_slice(forged.as_bytes());
    fs::write(&file, text).expect("the folder is ours");

    let policy = gateway.path("gateway.yaml");
    let policy = policy.to_str().expect("UTF-8");
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["audit", "tail", "-n", "1000"],
        vec!["audit", "search", "--limit", "0"],
        vec!["audit", "stats"],
        vec!["audit", "replay", "--policy", policy],
        vec!["audit", "show", "r_forged"],
        vec!["audit", "hash", "--find", hostile],
        vec!["audit", "search", "--text", hostile],
    ];
    commands.extend(ids.iter().map(|id| vec!["audit", "show", id.as_str()]));
    for command in commands {
        for json in [&[][..], &["--json"]] {
            let printed = gateway.cli(&[command.as_slice(), json].concat());
            let text = [printed.stdout, printed.stderr].concat();
            let raw: Vec<char> = text.chars().filter(|c| !matches!(c, ' '..='~' | '\n')).collect();
            assert!(raw.is_empty(), "{command:?} {json:?} printed {raw:?}");
            let is_whole = command[1] == "show" || command[1] == "replay" || !json.is_empty();
            let longest = text.lines().map(str::len).max().unwrap_or_default();
            assert!(
                is_whole || longest < 16 * 1024 || command[1] == "tail",
                "{command:?} {json:?} printed {longest} characters on a line"
            );
        }
    }
    // And what they did is found.
    let found = lines(&gateway, &["audit", "search", "--json", "--event", "decision", "--request", &ids[0]]);
    assert_eq!(found[0]["object"], hostile);
}

#[test]
fn records_of_several_processes_come_in_the_order_of_time() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, RULES);
    let agent = gateway.agent("alice", "up");
    for n in 0..3 {
        agent.tool("add", json!({ "n": n })).result();
        // Each command that records something has a file of its own.
        let issued = gateway.issue("bob", "up", &["--ttl", "1h"]).success().stderr;
        let grant = issued.split(' ').nth(1).expect("it names the grant");
        let file = gateway.password_file("bob");
        let file = file.to_str().expect("temporary paths are UTF-8");
        gateway.cli(&["token", "revoke", grant, "--as", "bob", "--password-file", file]).success();
    }
    wait_for_results(&gateway, 3);

    let records = lines(&gateway, &["audit", "search", "--json", "--limit", "0"]);

    let times: Vec<&str> = records.iter().map(|record| record["at"].as_str().expect("a time")).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(records.len(), gateway.audit().len());
    let tail = lines(&gateway, &["audit", "tail", "--json", "-n", "5"]);
    assert_eq!(tail, records[records.len() - 5..], "the newest of all processes");
    let newest = records.iter().filter(|record| record["event"] == "decision").map(Value::to_string).next_back();
    assert_eq!(
        newest,
        lines(&gateway, &["audit", "search", "--json", "--event", "decision"]).last().map(Value::to_string)
    );
}
