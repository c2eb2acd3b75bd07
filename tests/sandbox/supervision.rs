//! The sandbox's process: of a user of its own, open to the gateway alone, started again when it ends, and never there
//! without its confinement.

use super::{agent, config, output, run, start, started, upstream_id};
use crate::support::gateway::{Gateway, Launch};
use crate::support::http::{Connection, Request};
use crate::support::process;
use crate::support::recorder::Recorder;
use crate::support::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use tempfile::TempDir;

fn up(gateway: &Gateway) -> f64 {
    gateway.metric("portcullis_upstream_up{upstream=\"sandbox\"}")
}

fn starts(gateway: &Gateway) -> f64 {
    gateway.metric("portcullis_upstream_starts_total{upstream=\"sandbox\"}")
}

/// What the audit log says of the sandbox's process: the event, and why.
fn told(gateway: &Gateway) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let records = gateway.audit().into_iter().filter(|record| record["upstream"] == "sandbox");
    let told = records.filter(|record| record["event"].as_str().is_some_and(|event| event.starts_with("upstream.")));
    told.map(|record| (text(&record["event"]), text(&record["detail"]))).collect()
}

/// What `portcullis status` says of it.
fn status(gateway: &Gateway) -> String {
    let said = gateway.cli(&["status"]).success().stdout;
    said.lines().find(|line| line.contains("upstream `sandbox`")).expect("a line about it").to_owned()
}

fn socket(gateway: &Gateway) -> PathBuf {
    let entries = std::fs::read_dir(gateway.path("data/run")).expect("a folder of sockets").flatten();
    entries.map(|entry| entry.path()).next().expect("the sandbox's socket")
}

#[test]
fn a_sandbox_whose_process_was_killed_is_started_again_and_keeps_its_files() {
    let gateway = start("");
    let agent = agent(&gateway, "alice");
    output(&agent, "echo here >kept");
    let first = upstream_id(&gateway);

    kill(Pid::from_raw(first.cast_signed()), Signal::SIGKILL).expect("it runs");

    wait_for("the second start", || starts(&gateway) >= 2.0 && up(&gateway) >= 1.0);
    assert_ne!(upstream_id(&gateway), first);
    assert_eq!(output(&agent, "cat kept"), "here\n");
    assert!(gateway.log().contains("the upstream does not run"), "{}", gateway.log());
    let told = told(&gateway);
    let events: Vec<&str> = told.iter().map(|(event, _)| event.as_str()).collect();
    assert_eq!(events, ["upstream.up", "upstream.down", "upstream.up"], "{told:?}");
    assert_eq!(told[1].1, "its process ended (signal: 9 (SIGKILL))");
    assert!(status(&gateway).starts_with("upstream `sandbox` runs"), "{}", status(&gateway));
}

#[test]
fn a_sandbox_that_runs_and_does_not_answer_is_started_again() {
    let gateway = start("");
    let agent = agent(&gateway, "alice");
    output(&agent, "true");
    let first = Pid::from_raw(upstream_id(&gateway).cast_signed());

    kill(first, Signal::SIGSTOP).expect("it runs");

    super::wait_longer("the second start", || starts(&gateway) >= 2.0 && up(&gateway) >= 1.0);
    assert_eq!(output(&agent, "echo again"), "again\n");
    assert!(gateway.log().contains("it does not answer any more"), "{}", gateway.log());
}

#[test]
fn b78_a_sandbox_that_cannot_be_confined_does_not_start_and_says_why() {
    let recorder = Recorder::start();
    let yaml = config("program: /nonexistent/bwrap")
        .replace("upstreams:\n", &format!("upstreams:\n  up: {{ http: {{ url: \"{}\" }} }}\n", recorder.url()));
    let gateway = Gateway::start(&yaml);
    gateway.wait_for_log("the upstream does not run");

    let refused = agent(&gateway, "alice").tool("run_command", json!({ "command": "touch ran" }));

    let (_, message) = refused.error();
    assert_eq!(refused.message["error"]["data"]["code"], "upstream.down", "{refused:#?}");
    assert!(message.contains("does not run"), "{message}");
    assert!(!message.contains("bwrap"), "what stands on the host is for its people: {message}");
    assert!(gateway.log().contains("/nonexistent/bwrap"), "{}", gateway.log());
    assert!(up(&gateway).abs() < f64::EPSILON);
    // It is tried again, slower each time, and the other upstream does not suffer.
    wait_for("further starts", || starts(&gateway) >= 3.0);
    assert!(starts(&gateway) < 20.0);
    // However often: its state has changed once.
    let down = told(&gateway);
    assert!(matches!(&down[..], [(event, why)] if event == "upstream.down" && why.contains("bwrap")), "{down:?}");
    assert!(status(&gateway).contains("does not run: ") && status(&gateway).contains("/nonexistent/bwrap"));
    assert_eq!(gateway.observe("/readyz").status, 200, "the other upstream works");
    gateway.agent("alice", "up").tool("any", json!({})).result();
    // The same file with the program where it is.
    gateway.rewrite(
        &config("")
            .replace("upstreams:\n", &format!("upstreams:\n  up: {{ http: {{ url: \"{}\" }} }}\n", recorder.url())),
    );
    gateway.reload().success();
    wait_for("the sandbox", || up(&gateway) >= 1.0);
    assert_eq!(output(&agent(&gateway, "alice"), "ls"), "");
    assert_eq!(told(&gateway).last().map(|(event, _)| event.as_str()), Some("upstream.up"));
}

#[test]
fn nobody_but_the_gateway_is_answered_on_the_socket() {
    let gateway = start("");
    let request = Request::mcp("/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    let ask = |request: Request| {
        let mut connection = Connection::on(UnixStream::connect(socket(&gateway)).expect("we are root"));
        connection.send(&request.to_bytes("localhost"));
        connection.response()
    };

    for request in [
        request.clone(),
        request.clone().header("Portcullis-Upstream-Secret", ""),
        request.clone().header("Portcullis-Upstream-Secret", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
    ] {
        let refused = ask(request);
        assert_eq!(refused.status, 403, "{}", refused.text());
    }
    let about = std::fs::metadata(socket(&gateway)).expect("it is there");
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o777, 0o600);
}

#[test]
fn a_client_cannot_say_who_it_is_or_show_a_secret() {
    let gateway = start("");
    let (alice, bob) = (agent(&gateway, "alice"), agent(&gateway, "bob"));
    output(&alice, "echo of-alice >secret");
    let posing = portcullis_local::Principal { issuer: String::new(), subject: "user:alice".to_owned() }.to_header();

    let (request, id) = bob.request("tools/call", json!({ "name": "read_file", "arguments": { "path": "secret" } }));
    let answer = bob.send(&request.header("Portcullis-Principal", &posing), Some(&id));

    assert!(answer.refusal().contains("there is no"), "{answer:#?}");
    assert_eq!(output(&bob, "ls -A"), "");
    assert_eq!(output(&alice, "cat secret"), "of-alice\n");
}

#[test]
fn b77_u_17_a_command_and_its_upstream_see_nothing_of_the_gateways_environment_and_descriptors() {
    let canary = "canary-6c1f0e";
    let secrets = ["CANARY_SECRET", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "LD_LIBRARY_PATH"];
    let launch = secrets
        .iter()
        .fold(Launch::new(&config("environment: { CI: \"1\" }")), |launch, name| launch.env(name, canary));
    let gateway = started(launch);
    let agent = agent(&gateway, "alice");

    let environment = output(&agent, "env");
    let upstream = upstream_id(&gateway);
    let of_upstream = std::fs::read(format!("/proc/{upstream}/environ")).expect("we are root");

    assert!(!environment.contains(canary), "{environment}");
    assert!(environment.contains("\nCI=1\n"), "{environment}");
    let names: Vec<&str> = environment.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    let base =
        ["CI", "HOME", "LANG", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL", "SHLVL", "TERM", "TMPDIR", "USER", "_"];
    assert!(names.iter().all(|name| base.contains(name)), "{names:?}");
    assert!(!String::from_utf8_lossy(&of_upstream).contains(canary));
    // What is open in a command: three pipes, and the folder that `ls` is looking at.
    assert_eq!(output(&agent, "ls /proc/self/fd"), "0\n1\n2\n3\n");
    // Nothing in the upstream's process that was not handed over or opened by itself.
    let links = std::fs::read_dir(format!("/proc/{upstream}/fd")).expect("we are root").flatten();
    let links: Vec<String> =
        links.filter_map(|entry| std::fs::read_link(entry.path()).ok()).map(|to| to.display().to_string()).collect();
    assert!(!links.iter().any(|to| to.contains("/data/")), "{links:?}");
}

#[test]
fn the_sandbox_of_a_root_gateway_is_a_user_of_its_own_whose_memory_nobody_reads() {
    let gateway = start("");
    let status = std::fs::read_to_string(format!("/proc/{}/status", upstream_id(&gateway))).expect("it runs");
    let ids = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a status has it");
        line.split_whitespace().map(|id| id.parse().expect("a number")).collect::<Vec<u32>>()
    };

    assert!(ids("Uid:").iter().all(|id| (70_000..90_000).contains(id)), "{status}");
    assert!(ids("Gid:").iter().all(|id| (70_000..90_000).contains(id)), "{status}");
    assert_eq!(ids("Groups:"), Vec::<u32>::new());
    // Files of a process that is not dumpable belong to root, whoever it runs as.
    let owner = |id: u32| {
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(format!("/proc/{id}/environ")).expect("it runs"))
    };
    assert_eq!(owner(upstream_id(&gateway)), 0);
    let capabilities = ["CapPrm:", "CapEff:"].map(|key| status.lines().find(|line| line.starts_with(key)));
    for line in capabilities.into_iter().flatten() {
        assert!(line.ends_with("0000000000000000"), "{line}");
    }
}

#[test]
fn a_call_that_began_under_the_old_configuration_ends_under_it() {
    let gateway = start("memory: 256MiB");
    let agent = agent(&gateway, "alice");
    let first = upstream_id(&gateway);

    let long = std::thread::scope(|scope| {
        let long = scope.spawn(|| output(&agent, "touch begun; until [ -e go ]; do sleep 0.05; done; echo done"));
        wait_for("the command", || gateway.path("workspace/user-alice/begun").exists());
        gateway.rewrite(&config("memory: 128MiB, tmp: 64MiB"));
        gateway.reload().success();
        wait_for("the new process", || starts(&gateway) >= 2.0);
        // A second one beside it, on the same files.
        wait_for("its answers", || {
            let limit = run(&agent, "touch go; cat /proc/self/cgroup >/dev/null; echo new");
            limit["stdout"] == "new\n"
        });
        long.join().expect("the command ends")
    });

    assert_eq!(long, "done\n");
    wait_for("the end of the old process", || !std::path::Path::new(&format!("/proc/{first}")).exists());
}

#[test]
fn what_the_gateway_starts_itself_says_so_to_whoever_starts_it_by_hand() {
    let launch = Launch::new(&config(""));

    let said = launch.cli(&["upstream", "sandbox"]);

    assert_eq!(said.status.code(), Some(2), "{said:?}");
    assert!(said.stderr.contains("the gateway starts this"), "{}", said.stderr);
}

#[test]
fn the_tools_of_a_sandbox_are_shown_while_no_gateway_runs() {
    let launch = Launch::new(&config(""));

    let said = launch.cli(&["tools", "--user", "alice"]).success();

    for tool in ["run_command", "read_file", "write_file", "edit_file", "list_directory", "search_files"] {
        assert!(said.stdout.contains(&format!("listed  {tool}")), "{}", said.stdout);
    }
}

#[test]
fn a_workspace_that_would_give_the_gateways_keys_away_is_refused() {
    for (settings, says) in [
        ("workspace: data/workspace", "may not stand in each other"),
        ("workspace: .", "may not stand in each other"),
        ("workspace: x/../data", "may not stand in each other"),
    ] {
        let said = Launch::new(&config(settings)).cli(&["check"]);

        assert_eq!(said.status.code(), Some(2), "{settings}: {said:?}");
        assert!(said.stderr.contains(says), "{settings}: {}", said.stderr);
    }
    let usr = TempDir::new_in("/usr/local").expect("we are root");
    std::fs::write(usr.path().join("gateway.yaml"), config("")).expect("the folder is ours");
    let mut check = process::command(env!("CARGO_BIN_EXE_portcullis"));
    let said = process::run(check.arg("check").current_dir(usr.path()), b"");
    for what in ["`data_dir`", "the workspace", "the folder of the configuration"] {
        assert!(said.stderr.contains(&format!("every command sees /usr, and {what}")), "{}", said.stderr);
    }
    let launch = Launch::new(&config("")).file("tools/x", "");
    let around = config(&format!("read_only: [{}]", launch.path("").display()));
    let said = launch.file("gateway.yaml", around + "listen: 127.0.0.1:0\n").cli(&["check"]);
    assert!(said.stderr.contains("would be seen with it"), "{}", said.stderr);
    let two = format!(
        "upstreams:\n  a: {{ sandbox: {{ workspace: w }} }}\n  b: {{ sandbox: {{ workspace: w/b }} }}\n{}\n",
        super::EVERYTHING
    );
    let said = Launch::new(&two).cli(&["check"]);
    assert!(said.stderr.contains("the workspace of `b`"), "{}", said.stderr);
    Launch::new(&config("workspace: w")).cli(&["check"]).success();
}
