//! Who gets to the approvals page, and with what: doors that stay closed, each beside the one that opens
//! (attack tests A-15 to A-17).

use super::held::{Holder, Wish, decide, gateway, launch, logged_in, password_of, path, recorded};
use super::page::COMMAND;
use crate::support::browser::{Browser, encode_form};
use crate::support::gateway::{Gateway, Launch};
use crate::support::http::{Connection, Request, Response};
use crate::support::tls::{self, Identity};
use portcullis::store::{Approval, ApprovalState};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

/// Every page and endpoint, and how it is asked.
fn endpoints(held: &Approval) -> Vec<(&'static str, String)> {
    let api = format!("/api{}", path(held));
    let mut all: Vec<(&str, String)> =
        ["/", "/login", "/events", "/api/approvals", "/assets/style.css", "/no-such-page"]
            .map(|target| ("GET", target.to_owned()))
            .into();
    all.extend([
        ("GET", path(held)),
        ("POST", path(held)),
        ("POST", "/login".to_owned()),
        ("POST", "/logout".to_owned()),
    ]);
    all.push(("POST", "/webhooks/chat".to_owned()));
    all.push(("GET", api.clone()));
    all.extend(["approve", "deny", "reopen", "withdraw", "resolve"].map(|verb| ("POST", format!("{api}/{verb}"))));
    all
}

fn cookies(browser: &Browser) -> String {
    browser.cookies().iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
}

#[test]
fn an_agents_token_opens_nothing_on_any_endpoint_and_that_is_written_down() {
    let gateway = gateway("");
    let held = Holder::of(&gateway).hold(&Wish::of(COMMAND));
    let (admin, token) = (gateway.admin.unwrap(), gateway.token("alice", "up"));
    let browser = logged_in(&gateway, "alice");

    for (method, target) in endpoints(&held) {
        let request = Request::new(method, &target).bearer(&token);
        // Not even beside a session that is good.
        for request in [request.clone(), request.header("Cookie", &cookies(&browser))] {
            let response = request.send(admin);
            assert_eq!(response.status, 401, "{method} {target}");
            assert!(!response.text().contains(&token), "{}", response.text());
        }
    }
    recorded(&gateway, "refused", "admin.token");
    let page = Request::get(&path(&held)).header("Cookie", &cookies(&browser)).send(admin);
    assert!(page.status == 200 && page.text().contains("run_command"), "{}", page.text());
}

#[test]
fn a_session_of_one_listener_is_none_on_the_other_under_either_name() {
    let gateway = gateway("");
    let held = Holder::of(&gateway).hold(&Wish::of(COMMAND));
    let admin = gateway.admin.unwrap();
    let mut agents = Browser::new(gateway.agent);
    let login = agents.get("/login");
    agents.submit(&login, &[("username", "alice"), ("password", &password_of("alice"))]);
    let approvers = logged_in(&gateway, "alice");
    let value = |browser: &Browser, wanted: &str| {
        let found = browser.cookies().iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
        found.unwrap_or_else(|| panic!("{wanted} is there"))
    };
    let theirs = value(&agents, "portcullis-session");
    let ours = value(&approvers, "portcullis-approver");

    for name in ["portcullis-session", "portcullis-approver"] {
        let at_ours = Request::get(&path(&held)).header("Cookie", &format!("{name}={theirs}")).send(admin).text();
        assert!(at_ours.contains("<h1>Log in</h1>") && !at_ours.contains("run_command"), "{name}: {at_ours}");
        let at_theirs = Request::get("/grants").header("Cookie", &format!("{name}={ours}")).send(gateway.agent).text();
        assert!(at_theirs.contains("<h1>Log in</h1>"), "{name}: {at_theirs}");
    }
    let own = Request::get(&path(&held)).header("Cookie", &format!("portcullis-approver={ours}")).send(admin).text();
    assert!(own.contains("run_command"), "{own}");
    let own = Request::get("/grants").header("Cookie", &format!("portcullis-session={theirs}")).send(gateway.agent);
    assert!(!own.text().contains("<h1>Log in</h1>"), "{}", own.text());
}

#[test]
fn a_15_looking_a_hundred_times_by_whatever_prefetches_changes_nothing() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish::of(COMMAND));
    let admin = gateway.admin.unwrap();
    let mut browser = logged_in(&gateway, "alice");
    let (csrf, digest) = (browser.get("/"), path(&held));
    let (_, fields) = csrf.logout();
    let targets = [
        path(&held),
        format!("{}?decision=approve&csrf={}&digest={digest}", path(&held), fields[0].1),
        format!("/api{}/approve", path(&held)),
    ];
    let cookie = cookies(&browser);

    for n in 0..100 {
        let target = &targets[n % targets.len()];
        let request = Request::new(if n % 2 == 0 { "GET" } else { "HEAD" }, target);
        let request = if n % 4 < 2 { request.header("Cookie", &cookie) } else { request };
        let request = request.header("Sec-Purpose", "prefetch").header("Connection", "close");
        let mut connection = Connection::open(admin);
        connection.send(&request.to_bytes(&admin.to_string()));
        let status = connection.streaming().status;
        assert!([200, 405].contains(&status), "{status} {target}");
    }

    assert_eq!(holder.state(&held), ApprovalState::Pending);
    assert!(!gateway.audit_text().contains("approval.decided"));
    decide(&mut browser, &held, "alice", "approve");
    assert_eq!(holder.state(&held), ApprovalState::Approved);
}

#[test]
fn a_16_a_decision_needs_the_mark_of_this_very_session() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish::of(COMMAND));
    let mut former = logged_in(&gateway, "alice");
    let page = former.get(&path(&held));
    let (action, of_former) = page.filled(&[("decision", "approve"), ("password", &password_of("alice"))]);
    let (logout, fields) = page.logout();
    former.post(&logout, &fields);
    let mut browser = logged_in(&gateway, "alice");
    let page = browser.get(&path(&held));
    let (_, own) = page.filled(&[("decision", "approve"), ("password", &password_of("alice"))]);
    let with = |csrf: Option<&str>| {
        let kept = own.iter().filter(|(name, _)| name != "csrf").cloned();
        kept.chain(csrf.map(|csrf| ("csrf".to_owned(), csrf.to_owned()))).collect::<Vec<_>>()
    };
    let of_carol = logged_in(&gateway, "carol").get(&path(&held));
    let (_, of_carol) = of_carol.filled(&[("decision", "approve")]);
    let mark = |fields: &[(String, String)]| {
        fields.iter().find(|(name, _)| name == "csrf").map(|(_, value)| value.clone()).expect("a mark")
    };

    for (what, fields) in [
        ("none", with(None)),
        ("an empty one", with(Some(""))),
        ("that of a session that is over", with(Some(&mark(&of_former)))),
        ("that of another person", with(Some(&mark(&of_carol)))),
    ] {
        let page = browser.post(&action, &fields);
        assert_eq!((page.status(), holder.state(&held)), (403, ApprovalState::Pending), "{what}");
    }
    recorded(&gateway, "refused", "page.stale");
    browser.post(&action, &own);
    assert_eq!(holder.state(&held), ApprovalState::Approved);
}

#[test]
fn a_16_a_form_of_another_site_decides_nothing_even_with_everything_in_it() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish::of(COMMAND));
    let admin = gateway.admin.unwrap();
    let mut browser = logged_in(&gateway, "alice");
    let page = browser.get(&path(&held));
    let (action, fields) = page.filled(&[("decision", "approve"), ("password", &password_of("alice"))]);
    let post = |headers: &[(&str, &str)]| -> Response {
        let request = Request::post(&action).header("Content-Type", "application/x-www-form-urlencoded");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        request.header("Cookie", &cookies(&browser)).body(encode_form(&fields)).send(admin)
    };

    for headers in [
        &[("Origin", "https://evil.test")][..],
        &[("Origin", "null")],
        &[("Origin", "http://127.0.0.1:1")],
        &[("Sec-Fetch-Site", "cross-site")],
        &[("Sec-Fetch-Site", "same-site")],
        &[("Host", "evil.test")],
    ] {
        assert_eq!((post(headers).status, holder.state(&held)), (403, ApprovalState::Pending), "{headers:?}");
    }
    for code in ["request.origin", "request.host"] {
        recorded(&gateway, "refused", code);
    }
    let own = format!("http://{admin}");
    assert_eq!(post(&[("Origin", &own), ("Sec-Fetch-Site", "same-origin")]).status, 303);
    assert_eq!(holder.state(&held), ApprovalState::Approved);
}

#[test]
fn a_form_that_is_too_large_is_refused_and_written_down_like_any_other_refusal() {
    let gateway = gateway("");
    let admin = gateway.admin.unwrap();
    let post = |password: usize| {
        let form = format!("username=alice&password={}", "x".repeat(password));
        let request = Request::post("/login").header("Content-Type", "application/x-www-form-urlencoded");
        request.body(form).send(admin).status
    };

    assert_ne!(post(60_000), 413);
    assert!(!gateway.audit_text().contains("request.too_large"));
    assert_eq!(post(70_000), 413);
    recorded(&gateway, "refused", "request.too_large");
}

#[test]
fn a_17_no_page_can_be_framed_kept_or_made_to_load_or_run_anything() {
    let gateway = gateway("");
    let held = Holder::of(&gateway).hold(&Wish::of(COMMAND));
    let mut browser = logged_in(&gateway, "alice");

    for target in ["/", &path(&held), "/no-such-page"] {
        let page = browser.get(target);
        let header = |name: &str| page.response.header(name).unwrap_or_default().to_owned();
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none';") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(policy.contains("form-action 'self'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(policy.contains("script-src"), target == "/", "{target}: only the list has a script: {policy}");
        assert_eq!(header("x-frame-options"), "DENY");
        assert_eq!(header("cache-control"), "no-store");
        assert_eq!(header("referrer-policy"), "same-origin");
        assert_eq!(header("cross-origin-opener-policy"), "same-origin");
    }
}

#[test]
fn over_plain_http_every_decision_asks_for_the_password_at_the_pace_of_a_login() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish::of(COMMAND));
    let mut browser = logged_in(&gateway, "alice");
    let page = browser.get(&path(&held));

    for decision in ["approve", "deny", "withdraw"] {
        let page = browser.submit(&page, &[("decision", decision), ("password", "")]);
        assert_eq!((page.status(), holder.state(&held)), (403, ApprovalState::Pending), "{decision}");
    }
    recorded(&gateway, "approval.refused", "approval.needs_password");
    let mut statuses = Vec::new();
    for _ in 0..7 {
        let page = browser.submit(&page, &[("decision", "approve"), ("password", "wrong")]);
        statuses.push(page.status());
    }
    assert_eq!((statuses.first(), statuses.last()), (Some(&403), Some(&429)), "{statuses:?}");
    recorded(&gateway, "login.failed", "login.wrong");
    assert_eq!(holder.state(&held), ApprovalState::Pending);
    let mut other = logged_in(&gateway, "carol");
    decide(&mut other, &held, "carol", "approve");
    assert_eq!(holder.state(&held), ApprovalState::Approved);
}

#[test]
fn logging_out_and_a_new_password_end_a_session() {
    let gateway = gateway("");
    let held = Holder::of(&gateway).hold(&Wish::of(COMMAND));
    let mut browser = logged_in(&gateway, "alice");
    let before = cookies(&browser);
    let (logout, fields) = browser.get("/").logout();
    let page = browser.post(&logout, &fields);
    assert!(page.text().contains("<h1>Logged out</h1>"), "{}", page.text());
    let old = Request::get(&path(&held)).header("Cookie", &before).send(gateway.admin.unwrap()).text();
    assert!(old.contains("<h1>Log in</h1>"), "{old}");

    let mut browser = logged_in(&gateway, "alice");
    assert!(browser.get(&path(&held)).text().contains("run_command"));
    let other_hash = super::held::PEOPLE.replace("RIgSXgcpy6dPFN530lQyNSFbf3OwFt3", "RIgSXgcpy6dPFN530lQyNSFbf3OwFt4");
    gateway.rewrite(&super::held::yaml("", &other_hash));
    gateway.reload().success();
    assert!(browser.get(&path(&held)).text().contains("<h1>Log in</h1>"));
}

#[test]
fn there_is_no_admin_listener_where_none_is_configured_and_its_guard_knows_its_own_names_only() {
    let gateway = Gateway::start(
        "upstreams: { up: { http: { url: \"http://127.0.0.1:9/mcp\" } } }\npolicy: { rules: [ { name: a, tools: [\"up/*\"], allow: {} } ] }\n",
    );
    assert_eq!(gateway.admin, None);
    // Nor is anything of it on the agent listener.
    let response = Request::get("/api/approvals").send(gateway.agent);
    assert_eq!(response.status, 404);

    let gateway = super::held::gateway("");
    let admin = gateway.admin.unwrap();
    let status = |host: &str| Request::get("/").header("Host", host).send(admin).status;
    for host in ["evil.test", "127.0.0.1", &gateway.agent.to_string(), ""] {
        assert_eq!(status(host), 403, "{host}");
    }
    for host in [admin.to_string(), format!("localhost:{}", admin.port())] {
        assert_eq!(status(&host), 200, "{host}");
    }
}

fn over_tls(ca: &Identity) -> Launch {
    let own = ca.sign(&["approve.example.com"]);
    let admin = "admin: { listen: 127.0.0.1:0, public_url: \"https://approve.example.com\", tls: { cert: own.pem, key: own.key } }";
    let launch = launch(admin).file("own.pem", own.cert).file("own.key", own.key);
    fs::set_permissions(launch.path("own.key"), Permissions::from_mode(0o600)).expect("the file is ours");
    launch
}

#[test]
fn over_tls_a_session_decides_alone_but_not_on_the_persons_own_call() {
    let ca = Identity::authority("ours");
    let gateway = over_tls(&ca).start();
    let (holder, admin) = (Holder::of(&gateway), gateway.admin.unwrap());
    let open = move || Connection::on(tls::connect(admin, "approve.example.com", &ca).expect("it is trusted"));
    let mut browser = Browser::at("https://approve.example.com", open);
    let login = browser.get("/");
    let page = browser.submit(&login, &[("username", "alice"), ("password", &password_of("alice"))]);
    assert!(page.response.header("strict-transport-security").is_some());
    assert!(browser.cookies().iter().any(|(name, _)| name == "__Host-portcullis-approver"), "{:?}", browser.cookies());

    let others = holder.hold(&Wish::of(COMMAND));
    let page = browser.get(&path(&others));
    assert!(!page.has_field("password"));
    browser.submit(&page, &[("decision", "approve")]);
    assert_eq!(holder.state(&others), ApprovalState::Approved);

    let mut own = Wish { by: "alice", ..Wish::of(r#"{"command":"rm answer"}"#) };
    own.terms.by_requester = true;
    let own = holder.hold(&own);
    let page = browser.get(&path(&own));
    let refused = browser.submit(&page, &[("decision", "approve"), ("password", "")]);
    assert_eq!((refused.status(), holder.state(&own)), (403, ApprovalState::Pending));
    recorded(&gateway, "approval.refused", "approval.needs_password");
    browser.submit(&page, &[("decision", "approve"), ("password", &password_of("alice"))]);
    assert_eq!(holder.state(&own), ApprovalState::Approved);
}

#[test]
fn a_link_for_a_browser_makes_it_known_at_the_approvals_page_too() {
    let ca = Identity::authority("ours");
    let gateway = over_tls(&ca).start();
    let file = gateway.password_file("alice");
    let arguments = ["user", "browser", "alice", "--password-file", file.to_str().expect("temporary paths are UTF-8")];
    let links = gateway.cli(&arguments).success().stdout;
    let link =
        links.lines().find(|link| link.starts_with("https://approve.example.com/")).expect("a link of that page");
    let of_agents =
        links.lines().next().expect("a link of the agents' login").split_once("?browser=").expect("a token");
    let admin = gateway.admin.unwrap();
    let open = move || Connection::on(tls::connect(admin, "approve.example.com", &ca).expect("it is trusted"));
    let mut browser = Browser::at("https://approve.example.com", open);
    let is_known = |browser: &Browser| browser.cookies().iter().any(|(name, _)| name.ends_with("approver-device"));

    let other = browser.get(&format!("/login?browser={}", of_agents.1));
    assert!(other.status() == 403 && !is_known(&browser), "a link of the other plane does nothing here");
    browser.get(link);
    assert!(is_known(&browser), "{:?}", browser.cookies());
}
