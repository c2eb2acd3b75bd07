//! `/login` and `/logout`: passwords, sessions, and how fast passwords may be tried.

use super::{RULES, gate};
use crate::support::browser::{Browser, Page};
use crate::support::gate::Gate;
use crate::support::gateway::{Gateway, in_front_of, password};
use crate::support::http::Request;
use crate::support::oauth::{Client, status_with};
use crate::support::recorder::Recorder;
use crate::support::wait_for;

#[track_caller]
fn try_login(browser: &mut Browser, name: &str, password: &str) -> Page {
    let page = browser.get("/login");
    if !page.has_field("password") {
        return page;
    }
    browser.submit(&page, &[("username", name), ("password", password)])
}

fn is_logged_in(browser: &mut Browser) -> bool {
    !browser.get("/grants").has_field("password")
}

fn session(browser: &Browser) -> Option<String> {
    browser.cookies().iter().find(|(name, _)| name == "portcullis-session").map(|(_, value)| value.clone())
}

#[test]
fn a_wrong_password_and_an_unknown_name_get_the_same_page_and_the_right_one_logs_in() {
    let Gate { gateway, .. } = gate("");
    let mut browser = Browser::new(gateway.agent);

    let wrong = try_login(&mut browser, "alice", "wrong");
    let unknown = try_login(&mut browser, "mallory", "wrong");

    assert_eq!((wrong.status(), unknown.status()), (403, 403));
    let plain = |page: &Page, name: &str| {
        let text = page.text().replace(name, "NAME");
        text.split("value=\"").map(|part| part.split_once('"').map_or(part, |(_, rest)| rest)).collect::<String>()
    };
    assert_eq!(plain(&wrong, "alice"), plain(&unknown, "mallory"));
    assert!(!is_logged_in(&mut browser));
    try_login(&mut browser, "alice", &password("alice"));
    assert!(is_logged_in(&mut browser));
    let kinds: Vec<String> =
        gateway.audit().iter().filter_map(|record| record["event"].as_str().map(str::to_owned)).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "login.failed").count(), 2);
    assert_eq!(kinds.iter().filter(|kind| *kind == "login.succeeded").count(), 1);
    assert!(
        !gateway.audit_text().contains("mallory"),
        "what strangers type is not recorded: people type passwords there"
    );
}

#[test]
fn as_30_o_29_after_a_password_the_browser_is_sent_on_by_303() {
    let Gate { gateway, .. } = gate("");
    let mut browser = Browser::new(gateway.agent);
    let page = browser.get("/login");
    let (action, fields) = page.filled(&[("username", "alice"), ("password", &password("alice"))]);
    assert_eq!(browser.post_only(&action, &fields).status(), 303);
}

#[test]
fn o_26_a_session_is_new_at_each_login_and_the_one_before_is_over() {
    let Gate { gateway, .. } = gate("");
    let mut browser = Browser::new(gateway.agent);
    browser.set_cookie("portcullis-session", "chosen-by-somebody-else");
    try_login(&mut browser, "alice", &password("alice"));
    let first = session(&browser).unwrap();
    assert_ne!(first, "chosen-by-somebody-else");

    // As somebody else, in the same browser: the form is still open in another tab.
    let mut other = Browser::new(gateway.agent);
    let page = other.get("/login");
    let (action, fields) = page.filled(&[("username", "bob"), ("password", &password("bob"))]);
    let before: Vec<(String, String)> = other.cookies().to_vec();
    before.iter().for_each(|(name, value)| browser.set_cookie(name, value));
    browser.post(&action, &fields);

    let second = session(&browser).unwrap();
    assert_ne!(first, second);
    assert!(browser.get("/grants").text().contains("bob"));
    let mut thief = Browser::new(gateway.agent);
    thief.set_cookie("portcullis-session", &first);
    assert!(!is_logged_in(&mut thief), "the session from before is over");
    thief.set_cookie("portcullis-session", &second);
    assert!(is_logged_in(&mut thief), "the cookie is what counts");
}

#[test]
fn o_26_logging_out_ends_the_session_everywhere_and_needs_its_own_form() {
    let Gate { gateway, .. } = gate("");
    let mut browser = Browser::new(gateway.agent);
    try_login(&mut browser, "alice", &password("alice"));
    let cookie = session(&browser).unwrap();
    let forged = browser.post("/logout", &[("csrf".to_owned(), "forged".to_owned())]);
    assert_eq!(forged.status(), 400);
    assert!(is_logged_in(&mut browser));

    let page = browser.get("/grants");
    let (action, fields) = page.logout();
    assert_eq!(browser.post(&action, &fields).status(), 200);

    assert_eq!(session(&browser), None);
    browser.set_cookie("portcullis-session", &cookie);
    assert!(!is_logged_in(&mut browser));
}

#[test]
fn o_26_a_new_password_ends_sessions_and_tokens() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, RULES);
    let mut browser = Browser::new(gateway.agent);
    try_login(&mut browser, "alice", &password("alice"));
    let client = Client::register(&gateway);
    let tokens = client.log_in(&gateway, "alice", "up");
    let of_bob = client.log_in(&gateway, "bob", "up");
    assert_eq!(status_with(&gateway, &tokens.access), 200);

    // Alice's hash becomes bob's: another password.
    let identity = crate::support::gateway::IDENTITY;
    let bobs = identity.rsplit_once("password_hash: ").unwrap().1;
    let bobs = bobs.split_once('}').unwrap().0.trim();
    let alices = identity.split_once("password_hash: ").unwrap().1.split_once('}').unwrap().0.trim();
    let changed = identity.replace(alices, bobs);
    gateway.rewrite(&format!("{changed}{}", in_front_of(&recorder.url(), RULES)));
    gateway.reload().success();

    assert!(!is_logged_in(&mut browser));
    assert_eq!(status_with(&gateway, &tokens.access), 401);
    let refreshed = crate::support::oauth::token(&gateway, &client.refresh(&tokens.refresh.unwrap()));
    assert_eq!((refreshed.status, refreshed.json()["error"].as_str()), (400, Some("invalid_grant")));
    assert_eq!(status_with(&gateway, &of_bob.access), 200);
    assert!(try_login(&mut browser, "alice", &password("bob")).status() == 200);
}

#[test]
fn o_13_a_login_form_counts_in_the_browser_it_was_made_for_only() {
    let Gate { gateway, .. } = gate("");
    let (mut mallory, mut victim) = (Browser::new(gateway.agent), Browser::new(gateway.agent));
    let page = mallory.get("/login");
    let (action, fields) = page.filled(&[("username", "bob"), ("password", &password("bob"))]);
    victim.get("/login");

    // Login CSRF: the victim's browser sends mallory's form, and would be logged in as bob.
    assert_eq!(victim.post(&action, &fields).status(), 400);

    assert!(!is_logged_in(&mut victim));
    let mut changed = fields.clone();
    for (name, value) in &mut changed {
        if name == "ticket" {
            value.replace_range(3..4, if &value[3..4] == "A" { "B" } else { "A" });
        }
    }
    assert_eq!(mallory.post(&action, &changed).status(), 400);
    assert_eq!(mallory.post(&action, &[]).status(), 400);
    mallory.post(&action, &fields);
    assert!(is_logged_in(&mut mallory));
}

#[test]
fn a_login_form_of_another_web_page_is_refused() {
    let Gate { gateway, .. } = gate("");
    let mut browser = Browser::new(gateway.agent);
    let page = browser.get("/login");
    let (action, fields) = page.filled(&[("username", "alice"), ("password", &password("alice"))]);
    let cookies: Vec<String> = browser.cookies().iter().map(|(name, value)| format!("{name}={value}")).collect();
    let send = |origin: &str| {
        crate::support::oauth::form_request(&action, &fields)
            .header("Origin", origin)
            .header("Cookie", &cookies.join("; "))
            .send(gateway.agent)
            .status
    };
    assert_eq!(send("https://evil.test"), 403);
    // What a browser sends for a page of ours, which asks for no referrer.
    assert_eq!(send("null"), 303);
}

#[test]
fn o_27_passwords_are_tried_at_a_pace_and_a_browser_known_from_before_is_not_kept_out_by_strangers() {
    let Gate { gateway, .. } = gate("");
    let mut known = Browser::new(gateway.agent);
    try_login(&mut known, "alice", &password("alice"));
    let mut stranger = Browser::new(gateway.agent);
    let mut paused = None;
    for _ in 0..12 {
        let page = try_login(&mut stranger, "alice", "guess");
        if page.status() == 429 {
            paused = Some(page);
            break;
        }
    }
    let paused = paused.expect("guesses are slowed down");
    assert!(paused.response.header("retry-after").is_some());
    let right = try_login(&mut stranger, "alice", &password("alice"));
    assert_eq!(right.status(), 429, "while the pause lasts, not even the right one is looked at");

    // Alice, where she has logged in before.
    known.set_cookie("portcullis-session", "gone");
    try_login(&mut known, "alice", &password("alice"));
    assert!(is_logged_in(&mut known));
    // At a browser she has never used: by a link that she gets at her terminal.
    let file = gateway.password_file("alice");
    let made = gateway.cli(&["user", "browser", "alice", "--password-file", file.to_str().unwrap()]).success();
    let mut new = Browser::new(gateway.agent);
    let page = new.get(made.stdout.trim());
    assert!(page.has_field("password"), "the link lets nobody in");
    assert_eq!(try_login(&mut new, "alice", "guess").status(), 403);
    try_login(&mut new, "alice", &password("alice"));
    assert!(is_logged_in(&mut new));
    assert_eq!(stranger.get("/login?browser=AAAA.AAAA").status(), 400);
    // And bob, whom nobody attacks.
    assert!(try_login(&mut stranger, "bob", &password("bob")).status() == 200);
}

#[test]
fn o_27_a_spoofed_forwarded_address_buys_no_further_tries() {
    let top = "public_url: http://localhost:9999\nhosts: [\"localhost:9999\"]\nbehind_proxy: { from: [127.0.0.1/32] }";
    let recorder = Recorder::start();
    let gateway = Gateway::start(&format!("{top}\n{}", in_front_of(&recorder.url(), RULES)));
    let mut n_looked_at = 0;
    for n in 0..40 {
        // The proxy adds the address it saw at the end; what stands before that is the client's own.
        let forwarded = format!("198.51.100.{n}, 203.0.113.7");
        let page = Request::get("/login").header("Host", "localhost:9999").send(gateway.agent);
        let cookie = page.headers.all("set-cookie")[0].split(';').next().unwrap().to_owned();
        let html = page.text();
        let ticket = html.split("name=\"ticket\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let fields = [
            ("ticket".to_owned(), ticket),
            ("username".to_owned(), format!("name-{n}")),
            ("password".to_owned(), "x".to_owned()),
        ];
        let answer = crate::support::oauth::form_request("/login", &fields)
            .header("Host", "localhost:9999")
            .header("Cookie", &cookie)
            .header("X-Forwarded-For", &forwarded)
            .send(gateway.agent);
        n_looked_at += usize::from(answer.status == 403);
    }
    assert!((15..=25).contains(&n_looked_at), "{n_looked_at} of 40 were looked at");
}

#[test]
fn o_27_a_password_of_a_megabyte_is_not_hashed_and_a_hundred_at_once_do_no_harm() {
    let Gate { gateway, .. } = gate("");
    let mut browser = Browser::new(gateway.agent);
    let page = try_login(&mut browser, "alice", &"x".repeat(40_000));
    assert_eq!(page.status(), 403);
    let page = browser.get("/login");
    let (action, fields) = page.filled(&[("username", "alice"), ("password", &"x".repeat(1_000_000))]);
    assert_eq!(browser.post_only(&action, &fields).status(), 413);
    wait_for("its record", || gateway.audit_text().contains(r#""code":"request.too_large","#));

    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let run = |n: usize| {
            let agent = gateway.agent;
            move || try_login(&mut Browser::new(agent), &format!("name{n}"), "x").status()
        };
        let all: Vec<_> = (0..100).map(|n| scope.spawn(run(n))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| matches!(status, 403 | 429)), "{statuses:?}");
    assert!(statuses.contains(&429));
    assert_eq!(Request::get("/login").send(gateway.agent).status, 200);
}

#[test]
fn o_27_a_flood_of_strangers_keeps_nobody_out_of_a_browser_they_have_used() {
    let Gate { gateway, .. } =
        gate("behind_proxy: { from: [127.0.0.1/32] }\npublic_url: http://localhost:9999\nhosts: [\"localhost:9999\"]");
    let agent = gateway.agent;
    let mut known = Browser::at("http://localhost:9999", move || crate::support::http::Connection::open(agent));
    try_login(&mut known, "alice", &password("alice"));
    assert!(is_logged_in(&mut known));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for flood in 0..40 {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut stranger =
                    Browser::at("http://localhost:9999", move || crate::support::http::Connection::open(agent));
                let page = stranger.get("/login");
                let (action, fields) = page.filled(&[("username", &format!("n{flood}")), ("password", "x")]);
                let cookies: Vec<String> =
                    stranger.cookies().iter().map(|(name, value)| format!("{name}={value}")).collect();
                for n in 0..10_000 {
                    if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    crate::support::oauth::form_request(&action, &fields)
                        .header("Host", "localhost:9999")
                        .header("Cookie", &cookies.join("; "))
                        .header("X-Forwarded-For", &format!("198.51.{flood}.{}", n % 250))
                        .send(agent);
                }
            });
        }
        for _ in 0..5 {
            known.set_cookie("portcullis-session", "gone");
            let page = try_login(&mut known, "alice", &password("alice"));
            is_over.store(page.status() != 200, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(page.status(), 200, "{}", page.text());
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
