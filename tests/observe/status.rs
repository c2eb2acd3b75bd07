//! The status page: what admins see of the gateway, live, and nobody else does.

use crate::approval::decide::{RULES, approve, wait_for_held};
use crate::approval::held::logged_in;
use crate::support::chromium::{Look, Window};
use crate::support::gateway::{Gateway, in_front_of, password};
use crate::support::http::Request;
use crate::support::recorder::Recorder;
use crate::support::wait_for;
use serde_json::{Value, json};
use std::thread;

/// One server that is there and one that is not.
fn config(recorder: &Recorder) -> String {
    let around = in_front_of(
        &recorder.url(),
        &format!(
            "- {{ name: never, tools: [up/add], deny: {{ reason: not here }} }}\n{RULES}\n- {{ name: far, tools: [\"away/*\"], allow: {{}} }}"
        ),
    );
    let around = around.replace("policy:", "  away: { http: { url: \"http://127.0.0.1:9/mcp\" } }\npolicy:");
    let recorded = "audit: { arguments: [{ tools: [\"up/*\"] }] }";
    format!("admin: {{ listen: 127.0.0.1:0 }}\n{recorded}\n{around}approvals: {{ wait: 30s }}\n")
}

#[track_caller]
fn start(recorder: &Recorder) -> Gateway {
    let gateway = Gateway::start(&config(recorder));
    gateway.wait_until_asked("up");
    gateway.wait_until_asked("away");
    gateway
}

/// Does what an ordinary day brings, with names that nobody should trust.
fn live_a_little(gateway: &Gateway) {
    let agent = gateway.agent("alice", "up");
    agent.tool("echo", json!({ "word": "sesame" })).result();
    agent.tool("add", json!({})).error();
    agent.tool("<img src=x onerror=alert(1)>", json!({})).result();
    agent.tool("a\u{202e}b\nc", json!({})).result();
    agent.call("tools/call", json!({ "name": "ghp_0123456789abcdefghijklmnopqrstuvwxyz" })).result();
    thread::scope(|scope| {
        let call = scope.spawn(|| agent.tool("danger", json!({ "n": 1 })));
        approve(gateway, &wait_for_held(gateway, 1));
        call.join().expect("it is answered").result();
    });
}

fn basic(user: &str) -> String {
    use base64::Engine as _;
    let pair = format!("{user}:{}", password(user));
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
}

/// What `/api/status` answers this person.
#[track_caller]
pub(crate) fn api(gateway: &Gateway, user: &str) -> (u16, Value) {
    let request = Request::get("/api/status").header("Authorization", &basic(user));
    let response = request.send(gateway.admin.expect("there is an admin listener"));
    (response.status, response.json())
}

#[test]
fn an_admin_sees_servers_decisions_and_what_is_wrong_and_nothing_that_a_stranger_wrote_is_markup() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    live_a_little(&gateway);
    let mut browser = logged_in(&gateway, "alice");
    assert!(browser.get("/").text().contains("Status"), "the list leads to it");

    let page = browser.get("/status");

    assert_eq!(page.status(), 200);
    let text = page.text();
    for part in [
        "Upstream away does not answer.",
        "3 tools, for",
        "Last error:",
        "user:alice",
        "rest",
        "echo",
        "danger",
        "r_",
        concat!("portcullis ", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    for word in ["allowed", "denied", "held"] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
    let raw = String::from_utf8_lossy(&page.response.body).into_owned();
    assert!(!raw.contains("<img src=x") && !raw.contains('\u{202e}'), "{raw}");
    assert!(text.contains("⟦U+202E⟧"), "what cannot be seen is named: {text}");
    assert!(!raw.contains("sesame") && !raw.contains("ghp_0123"), "neither arguments nor secrets: {raw}");

    // The file on disk is broken.
    gateway.rewrite("listen: 127.0.0.1:0\nupstream: {}\n");
    gateway.reload();
    let text = browser.get("/status").text();
    assert!(text.contains("is not in force"), "{text}");
    assert!(text.contains("unknown key `upstream`"), "{text}");
    gateway.rewrite(&config(&recorder));
    gateway.reload().success();
    assert!(!browser.get("/status").text().contains("is not in force"));
}

#[test]
fn looking_changes_nothing_and_the_page_says_the_same_as_its_api_and_the_command() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    live_a_little(&gateway);
    let mut browser = logged_in(&gateway, "alice");
    wait_for("what was done to be written", || {
        let records = gateway.audit();
        let n = |event: &str| records.iter().filter(|record| record["event"] == event).count();
        n("result") >= 6 && n("login.succeeded") >= 1
    });
    let (records, mark) = (gateway.audit().len(), recorder.mark());

    for _ in 0..3 {
        assert_eq!(browser.get("/status").status(), 200);
        assert_eq!(browser.get("/status?live").status(), 200);
    }
    let (status, said) = api(&gateway, "alice");
    let printed: Value = serde_json::from_str(&gateway.cli(&["status", "--json"]).success().stdout).expect("JSON");
    let text = gateway.cli(&["status"]).success().stdout;

    assert_eq!(status, 200, "{said}");
    recorder.assert_untouched(mark);
    assert_eq!(gateway.audit().len(), records, "nobody has done anything");
    assert_eq!(said["holds"], json!({ "pending": 0, "approved": 0, "running": 0, "lost": 0 }));
    let decisions = said["decisions"].as_array().expect("a list");
    assert_eq!(decisions.len(), 6, "{said:#}");
    assert_eq!((&decisions[0]["object"], &decisions[0]["decision"]), (&json!("danger"), &json!("held")));
    assert_eq!(decisions[5]["object"], "echo");
    // The log has them; whoever wants them asks it.
    assert!(gateway.audit_text().contains("sesame") && !said.to_string().contains("sesame"), "{said:#}");
    for one in [&said["status"], &printed] {
        assert_eq!(one["configuration"]["hash"], json!(gateway.snapshot()));
        assert_eq!(one["decisions"], 6, "{one:#}");
        assert_eq!(one["audit"]["is_available"], true);
        assert_eq!(one["metrics_listener"], json!(gateway.metrics.map(|address| address.to_string())));
        let up: Vec<_> = one["upstreams"].as_array().expect("a list").iter().map(|one| &one["is_up"]).collect();
        assert_eq!(up, [&json!(false), &json!(true)], "{one:#}");
    }
    for part in ["in force", "upstream `up` is up, 3 tools", "upstream `away` is down", "audit log can be written"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn nobody_but_an_admin_sees_it() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    live_a_little(&gateway);
    let admin = gateway.admin.expect("there is an admin listener");

    // Nobody.
    let response = Request::get("/status").send(admin);
    assert!(response.text().contains("Password") && !response.text().contains("away"), "{response:?}");
    assert_eq!(Request::get("/api/status").send(admin).status, 401);
    // An approver who is no admin.
    let mut bob = logged_in(&gateway, "bob");
    assert!(!bob.get("/").text().contains("Status"));
    let page = bob.get("/status");
    assert_eq!(page.status(), 403);
    assert!(page.text().contains("for people of the group “admins”") && !page.text().contains("away"));
    assert_eq!(bob.get("/status?live").status(), 403);
    let (status, said) = api(&gateway, "bob");
    assert_eq!((status, &said["error"]), (403, &json!("admin.group")), "{said}");
    assert!(said.get("status").is_none());
    // A token of an admin's agent.
    let token = gateway.token("alice", "up");
    assert_eq!(Request::get("/api/status").bearer(&token).send(admin).status, 401);
    // An admin under another name of this listener, or by a page of elsewhere.
    let foreign = Request::get("/api/status").header("Authorization", &basic("alice"));
    assert_eq!(foreign.clone().header("Host", "evil.test").send(admin).status, 403);
    assert_eq!(foreign.header("Origin", "https://evil.test").send(admin).status, 403);
    // On the agents' listener there is no such page.
    assert_eq!(Request::get("/status").send(gateway.agent).status, 404);
    // It takes nothing.
    let mut alice = logged_in(&gateway, "alice");
    assert_eq!(alice.get("/status").status(), 200);
    assert_eq!(alice.post("/status", &[]).status(), 405);
}

#[test]
fn the_page_keeps_up_by_itself_and_without_scripts_by_a_link() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let origin = format!("http://{}", gateway.admin.expect("there is an admin listener"));
    let Some(window) = Window::open(Look::DESK, &[&origin]) else {
        return;
    };
    let open = |window: &Window| {
        window.goto(&format!("{origin}/status"));
        window.fill("User name", "alice");
        window.fill("Password", &password("alice"));
        window.press("Log in")
    };
    let page = open(&window);
    assert_eq!(page.heading, "Status");
    assert!(page.url.ends_with("/status") && page.text.contains("Nothing yet."), "{page:?}");

    gateway.rewrite("listen: 127.0.0.1:0\nupstream: {}\n");
    gateway.reload();
    window.wait_for_heading("Why the file is not in force");

    let still = Window::open(Look::DESK.without_script(), &[&origin]).expect("there is a Chromium");
    open(&still);
    gateway.rewrite(&config(&recorder));
    gateway.reload().success();
    let page = still.press("show it as it is now");
    assert!(!page.text.contains("is not in force"), "{page:?}");
}

#[track_caller]
fn look(name: &str, look: Look, judge: fn(&Window) -> Vec<String>) {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    live_a_little(&gateway);
    gateway.rewrite("listen: 127.0.0.1:0\nupstream: {}\n");
    gateway.reload();
    let origin = format!("http://{}", gateway.admin.expect("there is an admin listener"));
    let Some(window) = Window::open(look, &[&origin]) else {
        return;
    };
    window.goto(&format!("{origin}/status"));
    window.fill("User name", "alice");
    window.fill("Password", &password("alice"));
    window.press("Log in");

    window.shot(&format!("status-{name}"));
    assert_eq!(judge(&window), [""; 0], "{name}");
}

#[test]
fn the_status_page_stands_in_nobodys_way_on_a_desk() {
    look("desk", Look::DESK, Window::hindrances);
    look("desk-dark", Look::DESK.dark(), Window::hindrances);
}

#[test]
fn the_status_page_stands_in_nobodys_way_on_a_phone() {
    look("phone", Look::PHONE, Window::misfits);
    look("phone-dark", Look::PHONE.dark(), Window::misfits);
}
