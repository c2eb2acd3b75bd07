//! The commands as people type them: what they print, and what they exit with.

use crate::support::gateway::{Gateway, Launch, in_front_of, password};
use crate::support::process::Finished;
use crate::support::recorder::Recorder;
use crate::support::wait_for;
use serde_json::json;
use std::fs;
use std::net::{TcpListener, TcpStream};

const RULES: &str = r#"
- { name: reads, tools: ["up/echo"], allow: {} }
- { name: not on sundays, tools: ["up/echo"], when: { /day: { equals: sunday } }, deny: { reason: "rest" } }
- { name: big sums, tools: ["up/add"], when: { /a: { min: 10 } }, hold: { approvers: { groups: [admins] } } }
- { name: sums, tools: ["up/add"], allow: {} }
- { name: scoped, tools: ["up/danger"], who: { scopes: [danger] }, allow: {} }
"#;

fn launch(url: &str) -> Launch {
    Launch::new(&in_front_of(url, RULES))
}

/// A file with a password in it, as an argument.
fn password_file(launch: &Launch, name: &str, contents: &str) -> String {
    let path = launch.path(name);
    fs::write(&path, contents).expect("the folder is ours");
    path.to_str().expect("temporary paths are UTF-8").to_owned()
}

#[track_caller]
fn assert_exit(finished: &Finished, code: i32, says: &str) {
    assert_eq!(finished.status.code(), Some(code), "{finished:#?}");
    assert!(finished.stderr.contains(says), "{says:?} is not said: {finished:#?}");
    assert!(!finished.stderr.contains("panicked"), "{finished:#?}");
}

/// What was printed, with the folder's name and the hash taken out.
fn whole(launch: &Launch, printed: &str) -> String {
    let folder = launch.path("").display().to_string();
    let text = printed.replace(folder.trim_end_matches('/'), "DIR");
    match text.split_once("(configuration ") {
        Some((before, after)) => format!("{before}(configuration HASH{}", &after[12..]),
        None => text,
    }
}

// === check, schema ===

#[test]
fn check_prints_what_it_found_and_exits_with_0() {
    let rules =
        "- { name: reads, tools: [\"up/echo\"], allow: {} }\n- { name: never, tools: [\"up/danger\"], deny: {} }";
    let tests = "  tests:\n    - { tool: up/echo, user: alice, expect: allow }\n";
    let launch = Launch::new(&format!("{}{tests}", in_front_of("http://127.0.0.1:1/mcp", rules)));

    let checked = launch.cli(&["check"]).success();

    assert_eq!(
        whole(&launch, &checked.stdout),
        "DIR/gateway.yaml: good: 1 upstreams, 2 rules, 1 policy tests passed (configuration HASH)\n"
    );
    assert_eq!(checked.stderr, "");
    assert!(!launch.path("data").exists(), "a check makes nothing");
}

#[test]
fn check_prints_every_error_with_its_place_and_exits_with_2() {
    let launch = Launch::new(
        r#"listen: 0.0.0.0:8080
upstreams:
  up: { http: { url: "http://127.0.0.1:1/mcp" } }
policy:
  rules:
    - { name: a, tolls: ["up/echo"], allow: {} }
    - { name: a, tools: ["upp/echo"], allow: {} }
"#,
    );

    let checked = launch.cli(&["check"]);

    assert_eq!(checked.status.code(), Some(2), "{checked:#?}");
    assert_eq!(checked.stdout, "");
    assert_eq!(
        whole(&launch, &checked.stderr),
        r#"error: unknown key `tolls` (DIR/gateway.yaml:6:18)
  6 |     - { name: a, tolls: ["up/echo"], allow: {} }
    |                  ^^^^^
hint: did you mean `tools`?
"#
    );
}

#[test]
fn check_prints_errors_of_sense_together() {
    let launch = Launch::new(
        r#"listen: 0.0.0.0:8080
upstreams:
  up: { http: { url: "http://127.0.0.1:1/mcp" } }
policy:
  rules:
    - { name: a, tools: ["up/echo"], allow: {} }
    - { name: a, tools: ["upp/echo"], allow: {} }
    - { name: c, tools: ["up/echo"] }
"#,
    );

    let checked = launch.cli(&["check"]);

    assert_exit(&checked, 2, "without TLS");
    for place in ["gateway.yaml:1:9", "gateway.yaml:7:", "gateway.yaml:8:"] {
        assert!(checked.stderr.contains(place), "{place}: {}", checked.stderr);
    }
    assert!(checked.stderr.contains("did you mean `up"), "{}", checked.stderr);
}

#[test]
fn check_prints_warnings_and_exits_with_0() {
    let yaml = format!("public_url: https://localhost:8443\n{}", in_front_of("http://127.0.0.1:1/mcp", RULES));
    let launch = Launch::new(&yaml);

    let checked = launch.cli(&["check"]);

    assert_exit(&checked, 0, "warning: ");
    assert!(checked.stderr.contains("gateway.yaml:1:13"), "{}", checked.stderr);
    assert!(checked.stdout.contains("gateway.yaml: good"), "{}", checked.stdout);
}

#[test]
fn check_refuses_a_rule_that_can_do_nothing() {
    let rules = "- { name: none, tools: [\"*/*\"], deny: {} }\n- { name: one, tools: [\"up/echo\"], allow: {} }";
    let launch = Launch::new(&in_front_of("http://127.0.0.1:1/mcp", rules));

    assert_exit(&launch.cli(&["check"]), 2, "`one`");
}

#[test]
fn check_of_a_missing_file_says_so() {
    let launch = launch("http://127.0.0.1:1/mcp");
    fs::remove_file(launch.path("gateway.yaml")).expect("it is there");

    assert_exit(&launch.cli(&["check"]), 2, "cannot be read");
}

#[test]
fn schema_prints_the_file_in_the_repository() {
    let printed = launch("http://127.0.0.1:1/mcp").cli(&["schema"]).success().stdout;

    assert_eq!(printed, include_str!("../gateway.schema.json"));
}

// === explain, tools ===

#[test]
fn explain_names_the_rule_that_decides() {
    let launch = launch("http://127.0.0.1:1/mcp");
    let explain = |arguments: &[&str]| launch.cli(&[&["explain", "--user", "alice"], arguments].concat());
    let cases: [(&[&str], &str, &str); 6] = [
        (&["--tool", "up/echo"], "allowed by `reads`", "allow `reads` matches"),
        (
            &["--tool", "up/echo", "--arguments", r#"{"day":"sunday"}"#],
            "denied by `not on sundays`: rest",
            "deny `not on sundays` matches",
        ),
        (
            &["--tool", "up/add", "--arguments", r#"{"a":10}"#],
            "held by `big sums` until approved by group `admins`",
            "hold `big sums` matches",
        ),
        (&["--tool", "up/danger"], "denied for want of a scope; the token should carry `danger`", "lacks `danger`"),
        (
            &["--tool", "up/danger", "--scope", "mcp", "--scope", "danger"],
            "allowed by `scoped`",
            "allow `scoped` matches",
        ),
        (&["--tool", "up/other"], "denied, and not listed", "no pattern of it names the tool `up/other`"),
    ];

    for (arguments, decision, line) in cases {
        let explained = explain(arguments).success().stdout;
        assert!(explained.starts_with(decision), "{arguments:?}: {explained}");
        assert!(explained.contains(line), "{arguments:?}: {explained}");
        assert_eq!(explained.lines().count(), 6, "a line for the decision and one a rule: {explained}");
    }
    let wrong: [(&[&str], &str); 5] = [
        (&[], "name what is called"),
        (&["--tool", "echo"], "upstream/name"),
        (&["--tool", "githb/echo"], "unknown upstream `githb`"),
        (&["--tool", "up/echo", "--arguments", "{"], "--arguments"),
        (&["--tool", "up/echo", "--arguments", r#"{"a":1,"a":2}"#], "--arguments"),
    ];
    for (arguments, says) in wrong {
        assert_exit(&explain(arguments), 2, says);
    }
}

#[test]
fn tools_shows_what_each_upstream_offers_and_what_policy_makes_of_it() {
    let recorder = Recorder::start();
    let launch = launch(&recorder.url());

    let all = launch.cli(&["tools"]).success().stdout;
    assert_eq!(all, "up (legacy, 3 tools)\n  add  The tool add.\n  danger  The tool danger.\n  echo  The tool echo.\n");
    let of_alice = launch.cli(&["tools", "--user", "alice"]).success().stdout;
    for line in ["  listed  echo", "  listed  add"] {
        assert!(of_alice.contains(line), "{of_alice}");
    }
    assert!(recorder.calls().is_empty(), "nothing is called");

    let down = Launch::new(&in_front_of("http://127.0.0.1:1/mcp", RULES)).cli(&["tools"]);
    assert_exit(&down, 1, "up: cannot connect");
}

// === user, token ===

#[test]
fn the_first_person_is_added_by_whoever_runs_the_command_and_later_ones_by_an_admin() {
    let launch = Launch::new(&format!(
        "public_url: http://localhost:8080\nidentity: {{}}\n{}",
        in_front_of("http://127.0.0.1:1/mcp", RULES)
    ));
    let (root, eve) =
        (password_file(&launch, "root", "root's password"), password_file(&launch, "eve", "eve's password"));

    let added = launch.cli(&["user", "add", "root", "--password-file", &root]);
    assert_exit(&added, 0, "user `root` added, in admins");
    let alone = launch.cli(&["user", "add", "eve", "--password-file", &eve]);
    assert_exit(&alone, 2, "only an admin may add people; write --as ADMIN");
    let guessed = ["user", "add", "eve", "--password-file", &eve, "--as", "root", "--admin-password-file", &eve];
    assert_exit(&launch.cli(&guessed), 1, "wrong name or password");
    assert_eq!(launch.cli(&["user", "list"]).success().stdout, "root\tadmins\n");

    let by_admin = [
        "user",
        "add",
        "eve",
        "--group",
        "ops",
        "--password-file",
        &eve,
        "--as",
        "root",
        "--admin-password-file",
        &root,
    ];
    launch.cli(&by_admin).success();
    assert_eq!(launch.cli(&["user", "list"]).success().stdout, "eve\tops\nroot\tadmins\n");
}

#[test]
fn a_hash_printed_by_the_command_lets_its_password_in() {
    let launch = launch("http://127.0.0.1:1/mcp");
    let file = password_file(&launch, "carol", "carol opens the gate");
    let hash = launch.cli(&["user", "hash", "--password-file", &file]).success().stdout;
    assert!(hash.starts_with("$argon2id$v=19$") && hash.lines().count() == 1, "{hash}");
    let yaml = format!(
        "public_url: http://localhost:8080\nidentity: {{ users: [{{ name: carol, password_hash: \"{}\" }}] }}\n{}",
        hash.trim(),
        in_front_of("http://127.0.0.1:1/mcp", RULES)
    );
    let launch = Launch::new(&yaml);
    let (right, wrong) =
        (password_file(&launch, "right", "carol opens the gate"), password_file(&launch, "wrong", "carol"));

    let issue =
        |file: &str| launch.cli(&["token", "issue", "--user", "carol", "--route", "up", "--password-file", file]);

    assert_exit(&issue(&wrong), 1, "wrong name or password");
    let issued = issue(&right).success();
    assert_eq!((issued.stdout.trim().split('.').count(), issued.stdout.lines().count()), (3, 1), "{issued:#?}");
}

#[test]
fn a_token_is_issued_listed_and_revoked_by_its_owner_or_an_admin() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, RULES);
    let agent = gateway.agent("bob", "up");
    agent.tool("echo", json!({})).result();
    let listed = gateway.cli(&["token", "list", "--user", "bob"]).success().stdout;
    let grant = listed.split('\t').next().expect("a grant").to_owned();
    assert!(
        listed.contains(&format!("{grant}\tuser:bob\tcli\t{}\tmcp\ttoken issue\tuntil ", gateway.url("up"))),
        "{listed}"
    );
    assert!(!listed.contains(agent.token.as_deref().expect("a token")), "a token is shown");
    assert_eq!(gateway.cli(&["token", "list", "--user", "alice"]).success().stdout, "");
    let alices = gateway.agent("alice", "up");
    let of_alice = gateway.cli(&["token", "list", "--user", "alice"]).success().stdout;
    let of_alice = of_alice.split('\t').next().expect("a grant").to_owned();
    let file = |user: &str| gateway.password_file(user).to_str().expect("temporary paths are UTF-8").to_owned();
    let revoke = |grant: &str, user: &str, file: &str| {
        gateway.cli(&["token", "revoke", grant, "--as", user, "--password-file", file])
    };

    assert_exit(&revoke(&of_alice, "bob", &file("bob")), 1, "only they or an admin may revoke it");
    assert_exit(&revoke(&grant, "bob", &file("alice")), 1, "wrong name or password");
    assert_exit(&revoke("g_unknown", "alice", &file("alice")), 1, "there is no grant `g_unknown`");
    alices.tool("echo", json!({})).result();
    agent.tool("echo", json!({})).result();

    assert_exit(&revoke(&grant, "alice", &file("alice")), 0, "of user:bob revoked");
    wait_for("the revocation", || agent.call("ping", json!({})).status() == 401);
    let mark = recorder.mark();
    assert_eq!(agent.tool("echo", json!({})).status(), 401);
    recorder.assert_untouched(mark);
    let listed = gateway.cli(&["token", "list", "--user", "bob"]).success().stdout;
    assert!(listed.contains("revoked ") && listed.contains(" by user:alice"), "{listed}");
    assert_exit(&revoke(&grant, "bob", &file("bob")), 0, "had been revoked before");
    // By the token itself, from standard input or not.
    let token = alices.token.clone().expect("a token");
    assert_exit(&revoke(&token, "alice", &file("alice")), 0, "revoked");
}

#[test]
fn wrong_passwords_are_slowed_down_and_the_right_one_with_them() {
    let launch =
        Launch::new(&format!("public_url: http://localhost:8080\n{}", in_front_of("http://127.0.0.1:1/mcp", RULES)));
    let (right, wrong) =
        (password_file(&launch, "right", &password("alice")), password_file(&launch, "wrong", "guess"));
    let issue = |user: &str, file: &str| {
        launch.cli(&["token", "issue", "--user", user, "--route", "up", "--password-file", file])
    };

    // Until the pause has grown beyond what a slow machine takes for one more try.
    let n_tries = (1..=40).find(|_| {
        let tried = issue("alice", &wrong);
        assert_eq!(tried.status.code(), Some(1), "{tried:#?}");
        tried.stderr.contains("too many failed attempts")
    });

    let n_tries = n_tries.expect("guessing is slowed down");
    assert!(n_tries > 5, "a person may mistype: slowed down at try {n_tries}");
    // A name that is nobody's is no different.
    assert_exit(&issue("nobody", &wrong), 1, "wrong name or password");
    assert_eq!(launch.cli(&["token", "list"]).success().stdout, "");
    // Others are not kept waiting, and the pause ends.
    let bob = password_file(&launch, "bob", &password("bob"));
    issue("bob", &bob).success();
    wait_for("the pause to end", || issue("alice", &right).status.success());
}

#[test]
fn what_cannot_be_issued_is_refused_as_a_mistake_of_the_command_line() {
    let launch =
        Launch::new(&format!("public_url: http://localhost:8080\n{}", in_front_of("http://127.0.0.1:1/mcp", RULES)));
    let file = password_file(&launch, "right", &password("alice"));
    let missing = launch.path("missing").display().to_string();
    let empty = password_file(&launch, "empty", "\n");
    let cases: [(&[&str], i32, &str); 7] = [
        (&["--route", "up"], 2, "--password-file"),
        (&["--route", "up", "--password-file", &empty], 2, "begins with no password"),
        (&["--route", "up", "--password-file", &missing], 1, "cannot read the password from"),
        (&["--route", "githb", "--password-file", &file], 2, "unknown upstream `githb`; there are: up"),
        (&["--route", "up", "--ttl", "31d", "--password-file", &file], 2, "at most 30d"),
        (&["--route", "up", "--ttl", "soon", "--password-file", &file], 2, "a number and s, m, h or d"),
        (&["--route", "up", "--scope", "a b", "--password-file", &file], 2, "not a scope"),
    ];

    for (arguments, code, says) in cases {
        let issued = launch.cli(&[&["token", "issue", "--user", "alice"], arguments].concat());

        assert_exit(&issued, code, says);
        assert_eq!(issued.stdout, "", "{arguments:?}");
    }
    assert_exit(&launch.cli(&["user", "hash"]), 2, "--password-file");
}

// === serve ===

#[test]
fn serve_with_a_broken_file_exits_with_2_and_binds_nothing() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound");
    let yaml = in_front_of("http://127.0.0.1:1/mcp", RULES);
    let cases = [
        ("a typing error", format!("listen: \"{free}\"\nlissten: 1\n{yaml}"), "unknown key `lissten`"),
        (
            "two rules of one name",
            format!("listen: \"{free}\"\n{}", yaml.replace("name: sums", "name: reads")),
            "`reads`",
        ),
        ("other machines without TLS", format!("listen: \"0.0.0.0:{}\"\n{yaml}", free.port()), "without TLS"),
        (
            "metrics for all",
            format!("listen: \"{free}\"\nmetrics: {{ listen: \"0.0.0.0:0\" }}\n{yaml}"),
            "without a token",
        ),
    ];

    for (case, yaml, says) in cases {
        let launch = Launch::new(&yaml);

        let served = launch.cli(&["serve"]);

        assert_exit(&served, 2, says);
        assert!(served.stderr.contains("gateway.yaml:"), "{case}: {}", served.stderr);
        assert_eq!(served.stdout, "", "{case}: it must not say that it is ready");
        assert!(TcpStream::connect(free).is_err(), "{case}: it listens");
        assert!(!launch.path("data").exists(), "{case}: nothing is made");
    }
}

#[test]
fn serve_on_a_port_in_use_exits_with_1_and_says_which() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound");
    let yaml = in_front_of("http://127.0.0.1:1/mcp", RULES);

    for yaml in [format!("listen: \"{address}\"\n{yaml}"), format!("metrics: {{ listen: \"{address}\" }}\n{yaml}")] {
        let served = Launch::new(&yaml).cli(&["serve"]);

        assert_exit(&served, 1, &format!("error: cannot listen on {address}: "));
        assert_eq!(served.stdout, "");
    }
}

#[test]
fn serve_without_the_systems_certificates_it_was_told_of_exits_with_1_and_says_so() {
    let launch = || Launch::new(&in_front_of("http://127.0.0.1:1/mcp", RULES));

    let served = launch().env("SSL_CERT_FILE", "/nowhere.pem").env("SSL_CERT_DIR", "/nowhere").cli(&["serve"]);

    assert_exit(&served, 1, "certificates cannot be loaded (SSL_CERT_FILE and SSL_CERT_DIR may name them)");
    assert_eq!(served.stdout, "");
    drop(launch().start());
}

#[test]
fn commands_to_a_gateway_that_does_not_run_say_so() {
    let recorder = Recorder::start();
    let never_ran = launch(&recorder.url());
    let mut gateway = Gateway::in_front_of(&recorder, RULES);
    let status = gateway.cli(&["status"]).success().stdout;
    assert!(status.starts_with("configuration ") && status.contains(" in force, "), "{status}");
    gateway.stop();

    for command in ["status", "reload"] {
        for finished in [never_ran.cli(&[command]), gateway.cli(&[command])] {
            assert_exit(&finished, 1, "no gateway answers at ");
            assert!(finished.stderr.contains("operator.sock; is it running with this configuration?"), "{finished:#?}");
        }
    }
}

#[test]
fn a_gateway_told_to_stop_finishes_what_it_began_and_takes_nothing_new() {
    let recorder = Recorder::start();
    let mut gateway = Gateway::in_front_of(&recorder, RULES);
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let (reply, feed) = crate::support::reply::Reply::sse_fed();
    recorder.answer_next(reply);
    let mark = recorder.mark();
    let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
    let mut connection = agent.open(&request);
    recorder.wait_for_requests(mark, 1);

    gateway.signal("TERM");
    gateway.wait_for_log("stopping");
    wait_for("the listener to close", || TcpStream::connect(gateway.agent).is_err());
    feed.message(&json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } }));

    assert_eq!(connection.streaming().message().expect("the answer")["id"], id);
    assert_eq!(gateway.stop().code(), Some(0));
    assert!(!gateway.log().contains("cut"), "{}", gateway.log());
    assert_eq!(gateway.audit().last().expect("records")["event"], "stop");
}

#[test]
fn a_gateway_told_to_stop_waits_only_as_long_as_it_is_told_to() {
    let recorder = Recorder::start();
    let yaml = format!("timeouts: {{ drain: 200ms }}\n{}", in_front_of(&recorder.url(), RULES));
    let mut gateway = Gateway::start(&yaml);
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    recorder.answer_next(crate::support::reply::Reply::hang());
    let mark = recorder.mark();
    let (request, _) = agent.request("tools/call", json!({ "name": "echo" }));
    let mut connection = agent.open(&request);
    recorder.wait_for_requests(mark, 1);

    assert_eq!(gateway.stop().code(), Some(0));

    assert!(gateway.log().contains("requests were cut"), "{}", gateway.log());
    assert!(connection.try_response().is_err());
}
