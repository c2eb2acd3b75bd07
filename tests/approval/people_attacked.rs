//! Those who decide are not kept out: strangers who guess, floods of connections, deep arguments, a broken file; and what
//! the command line shows them can be used as it stands.

use super::beside::{Beside, call};
use super::held::{gateway, logged_in, password_of};
use super::hooks;
use crate::support::browser::Browser;
use crate::support::gateway::{Gateway, Launch, in_front_of, password};
use crate::support::http::Request;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis::approval::{Verdict, hex};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;
use tokio::time::Instant;

const RULES: &str = r#"- { name: risky, tools: ["up/danger"], hold: { approvers: { groups: [admins] } } }"#;

fn api_status(gateway: &Gateway, name: &str, password: &str) -> u16 {
    let credentials = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
    let request = Request::get("/api/approvals").header("Authorization", &credentials);
    request.send(gateway.admin.expect("there is an admin listener")).status
}

#[test]
fn guesses_on_the_agents_listener_delay_no_approver_on_the_admin_listener() {
    let gateway = gateway("");
    let mut stranger = Browser::new(gateway.agent);
    let page = stranger.get("/login");
    let guess = |stranger: &mut Browser, password: &str| {
        stranger.submit(&page, &[("username", "alice"), ("password", password)]).status()
    };
    while guess(&mut stranger, "wrong") != 429 {}
    assert_eq!(guess(&mut stranger, &password_of("alice")), 429, "there even the right one waits");

    assert_eq!(api_status(&gateway, "alice", &password_of("alice")), 200);
    logged_in(&gateway, "alice");

    // Its twin: who guesses on the admin listener is slowed down there.
    while api_status(&gateway, "alice", "wrong") != 429 {}
    assert_eq!(api_status(&gateway, "alice", &password_of("alice")), 429);
    assert_eq!(api_status(&gateway, "carol", &password_of("carol")), 200);
}

#[test]
fn a_program_with_the_right_password_may_come_as_often_as_it_likes() {
    let gateway = gateway("");

    let statuses: Vec<u16> = (0..30).map(|_| api_status(&gateway, "alice", &password_of("alice"))).collect();

    assert_eq!(statuses, [200; 30]);
    // Its twin: with wrong ones for whomever, the address has had enough after twenty.
    let wrong: Vec<u16> = (0..24).map(|n| api_status(&gateway, &format!("nobody{n}"), "wrong")).collect();
    assert_eq!((wrong.first(), wrong.last()), (Some(&401), Some(&429)), "{wrong:?}");
}

#[test]
fn heads_that_never_end_keep_no_approver_waiting() {
    let gateway = gateway("");
    let admin = gateway.admin.expect("there is an admin listener");
    let flood: Vec<TcpStream> = (0..640)
        .map(|_| {
            let mut stream = TcpStream::connect(admin).expect("the kernel takes it");
            // Some are closed by then.
            _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n");
            stream
        })
        .collect();

    let began = Instant::now();
    logged_in(&gateway, "alice");

    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let refused = "portcullis_connections_refused_total{listener=\"admin\",reason=\"pushed_out\"}";
    assert!(gateway.metric(refused) > 100.0, "{}", gateway.metric(refused));
    drop(flood);
}

fn launch() -> Launch {
    let launch = Launch::new(&format!("listen: 127.0.0.1:8399\n{}", in_front_of("http://127.0.0.1:1/mcp", RULES)));
    fs::write(launch.path("alice"), password("alice")).expect("the folder is ours");
    launch
}

fn as_alice<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["approvals"], arguments, &["--as", "alice", "--password-file", "alice"]].concat()
}

#[test]
fn a_digest_is_taken_as_it_was_shown_and_never_broken_within_a_word() {
    let launch = launch();
    let beside = Beside::of(&launch);
    let (held, other) = (beside.hold(&call(r#"{"path":"/tmp/a"}"#)), beside.hold(&call(r#"{"path":"/tmp/b"}"#)));
    let shown = launch.cli(&["approvals", "show", &held.id]).success().stdout;

    let (_, after) = shown.split_once("  digest    ").expect("it is there");
    let (digest, _) = after.split_once("\n  asked").expect("it ends there");
    assert!(digest.contains('\n'), "it has two lines: {shown}");
    assert!(digest.split_whitespace().all(|word| word.len() == 4), "{shown}");
    let unbroken: String = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(unbroken.contains("it runs when the same call comes again in time") || unbroken.contains("runs at once"));
    launch.cli(&as_alice(&["approve", &held.id, "--digest", digest])).success();
    assert_eq!(beside.state(&held), "approved");

    let end = hex(&other.digest)[58..].to_owned();
    let typed = format!("{} {}\n", &end[..2], &end[2..]);
    let approved = launch.at_terminal(&as_alice(&["approve", &other.id]), &typed);
    assert!(approved.status.success(), "{approved:#?}");
    assert_eq!(beside.state(&other), "approved");
}

#[test]
fn an_empty_list_says_so_and_a_yes_is_taken_back_by_the_word_that_is_named() {
    let launch = launch();
    let beside = Beside::of(&launch);
    let empty = launch.cli(&["approvals", "list"]).success();
    assert_eq!((empty.stdout.as_str(), empty.stderr.as_str()), ("", "nothing is held\n"));
    let held = beside.hold(&call("{}"));
    beside.decide(&held, Verdict::Approve);

    let late = launch.cli(&as_alice(&["deny", &held.id]));

    assert!(late.stderr.contains("it is approved already: `withdraw` takes it back"), "{late:#?}");
    launch.cli(&as_alice(&["withdraw", &held.id])).success();
    assert_eq!(beside.state(&held), "withdrawn");
}

#[test]
fn what_happened_to_a_call_is_shown_in_the_order_in_which_it_happened() {
    let launch = launch();
    let beside = Beside::of(&launch);
    let held = beside.hold(&call("{}"));
    launch.cli(&as_alice(&["approve", &held.id, "--digest", &hex(&held.digest)])).success();
    beside.consume(&held);

    let shown = launch.cli(&["audit", "show", &held.id]).success().stdout;

    let events: Vec<&str> = shown.lines().filter(|line| !line.starts_with(' ')).collect();
    let at = |event: &str| {
        events.iter().position(|line| line.contains(&format!("  {event}  "))).unwrap_or_else(|| panic!("{shown}"))
    };
    assert!(at("approval.requested") < at("approval.decided"), "{shown}");
    assert!(at("approval.decided") < at("approval.consumed"), "{shown}");
}

#[test]
fn held_calls_can_be_looked_at_while_the_file_is_broken() {
    let launch = launch();
    let beside = Beside::of(&launch);
    let held = beside.hold(&call(r#"{"path":"/tmp/a"}"#));
    fs::write(launch.path("gateway.yaml"), "policy: [").expect("the folder is ours");

    let listed = launch.cli(&["approvals", "list"]).success();
    let shown = launch.cli(&["approvals", "show", &held.id]).success();
    let denied = launch.cli(&as_alice(&["deny", &held.id]));

    assert!(listed.stdout.contains(&*held.id) && listed.stderr.contains("`portcullis check` says why"), "{listed:#?}");
    assert!(shown.stdout.contains("| /tmp/a"), "{shown:#?}");
    assert_eq!((denied.status.code(), beside.state(&held)), (Some(2), "pending"), "{denied:#?}");
}

#[test]
fn webhooks_are_told_of_a_call_that_is_reopened_as_news() {
    let chat = [hooks::hook("chat", "http://127.0.0.1:1/", "")];
    let launch = hooks::with_secret(Launch::new(&format!(
        "listen: 127.0.0.1:8399\n{}",
        hooks::config("http://127.0.0.1:1/mcp", &chat)
    )));
    fs::write(launch.path("alice"), password("alice")).expect("the folder is ours");
    let beside = Beside::of(&launch);
    // It was told to nobody: the webhook is newer.
    let held = beside.hold(&call("{}"));
    beside.decide(&held, Verdict::Deny);
    let notices = || beside.runtime.block_on(beside.approvals.notices(&held.id)).expect("the store is there");
    assert!(notices().is_empty());

    launch.cli(&as_alice(&["reopen", &held.id])).success();
    let first = notices();
    assert_eq!(first.iter().map(|notice| &*notice.hook).collect::<Vec<_>>(), ["chat"]);

    // One that still waits tells it as well.
    beside.decide(&held, Verdict::Deny);
    launch.cli(&as_alice(&["reopen", &held.id])).success();
    assert_eq!(notices(), first);
}

#[test]
fn arguments_of_any_depth_are_given_to_programs() {
    let launch = launch();
    let beside = Beside::of(&launch);
    let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
    let arguments = format!(r#"{{"input_responses":null,"value":{deep}}}"#);
    let (held, flat) = (beside.hold(&call(&arguments)), beside.hold(&call(r#"{"input_responses":null}"#)));

    let shown = launch.cli(&["approvals", "show", &held.id, "--json"]).success().stdout;
    let of_flat = launch.cli(&["approvals", "show", &flat.id, "--json"]).success().stdout;

    assert!(shown.contains(&format!("\n  \"arguments\": {arguments},\n")), "{shown}");
    let of_flat: Value = serde_json::from_str(&of_flat).expect("JSON");
    assert_eq!(of_flat["arguments"], serde_json::json!({ "input_responses": null }));
    assert_eq!(of_flat["input_responses"], Value::Null);
}
