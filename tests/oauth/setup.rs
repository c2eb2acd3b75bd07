//! `/setup`: the first person of a new gateway.

use super::RULES;
use crate::support::browser::Browser;
use crate::support::gateway::{Gateway, in_front_of};
use crate::support::http::Request;
use crate::support::oauth::Client;
use crate::support::recorder::Recorder;
use crate::support::wait_for;

const PASSWORD: &str = "a long enough password";

/// A gateway that has nobody, and the link it printed.
fn new_gateway() -> (Gateway, Recorder, String) {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&format!("identity: {{}}\n{}", in_front_of(&recorder.url(), RULES)));
    gateway.wait_for_log("/setup?link=");
    let log = gateway.log();
    let link = log.split_whitespace().find(|word| word.contains("/setup?link=")).expect("it is printed");
    let path =
        link.strip_prefix(&format!("http://{}", gateway.agent)).expect("it begins with the public URL").to_owned();
    (gateway, recorder, path)
}

fn fields<'a>(name: &'a str, password: &'a str, again: &'a str) -> [(&'a str, &'a str); 3] {
    [("username", name), ("password", password), ("again", again)]
}

#[test]
fn the_link_makes_the_first_admin_who_can_let_a_client_in_at_once() {
    let (gateway, _recorder, link) = new_gateway();
    let mut browser = Browser::new(gateway.agent);
    let page = browser.get(&link);

    let grants = browser.submit(&page, &fields("root", PASSWORD, PASSWORD));

    assert!(grants.text().contains("root"), "logged in already: {}", grants.text());
    assert_eq!(gateway.cli(&["user", "list"]).success().stdout.trim(), "root\tadmins");
    let client = Client::register(&gateway);
    let asked = client.ask(&gateway, "up");
    let back = browser.authorize(&asked.url(), "root", PASSWORD, "allow");
    assert!(back.contains("code="));
    wait_for("its record", || gateway.audit().iter().any(|r| r["event"] == "user.added" && r["object"] == "root"));
    assert!(!gateway.audit_text().contains(link.split_once('=').unwrap().1), "the link's secret is nowhere");
}

#[test]
fn the_link_works_once_and_no_other_link_does() {
    let (gateway, _recorder, link) = new_gateway();
    let mut browser = Browser::new(gateway.agent);
    for wrong in ["/setup", "/setup?link=", "/setup?link=AAAA", &format!("{link}x")] {
        assert_eq!(browser.get(wrong).status(), 404, "{wrong}");
    }
    let page = browser.get(&link);
    let (action, form) = page.filled(&fields("root", PASSWORD, PASSWORD));
    let forged: Vec<(String, String)> = form
        .iter()
        .map(|(name, value)| (name.clone(), if name == "link" { "AAAA".to_owned() } else { value.clone() }))
        .collect();
    assert_eq!(browser.post(&action, &forged).status(), 404);
    assert!(gateway.cli(&["user", "list"]).success().stdout.is_empty(), "nobody was made");

    browser.post(&action, &form);

    assert_eq!(browser.get(&link).status(), 404);
    let second: Vec<(String, String)> = form
        .iter()
        .map(|(name, value)| (name.clone(), if name == "username" { "mallory".to_owned() } else { value.clone() }))
        .collect();
    assert_eq!(browser.post(&action, &second).status(), 404);
    assert_eq!(gateway.cli(&["user", "list"]).success().stdout.trim(), "root\tadmins");
}

#[test]
fn two_at_the_same_moment_are_one_admin() {
    let (gateway, _recorder, link) = new_gateway();
    let made: Vec<u16> = std::thread::scope(|scope| {
        let run = |name: String| {
            let (agent, link) = (gateway.agent, link.clone());
            move || {
                let mut browser = Browser::new(agent);
                let page = browser.get(&link);
                if page.status() != 200 {
                    return page.status();
                }
                browser.submit(&page, &fields(&name, PASSWORD, PASSWORD)).status()
            }
        };
        let all: Vec<_> = (0..8).map(|n| scope.spawn(run(format!("root{n}")))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(made.iter().filter(|status| **status == 200).count(), 1, "{made:?}");
    assert_eq!(gateway.cli(&["user", "list"]).success().stdout.lines().count(), 1);
}

#[test]
fn what_is_typed_wrong_is_said_and_nobody_is_made() {
    let (gateway, _recorder, link) = new_gateway();
    let mut browser = Browser::new(gateway.agent);
    let page = browser.get(&link);
    for (name, password, again) in [
        ("Root", PASSWORD, PASSWORD),
        ("", PASSWORD, PASSWORD),
        ("root", PASSWORD, "another password"),
        ("root", "short", "short"),
        ("root", "", ""),
    ] {
        let answer = browser.submit(&page, &fields(name, password, again));
        assert_eq!(answer.status(), 422, "{name} {password}");
        assert!(answer.text().contains("role=\"alert\""));
        assert!(!answer.text().contains(PASSWORD));
    }
    assert!(gateway.cli(&["user", "list"]).success().stdout.is_empty());
}

#[test]
fn where_there_is_somebody_no_link_is_printed() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, RULES);
    assert!(!gateway.log().contains("/setup"));
    assert_eq!(Request::get("/setup?link=x").send(gateway.agent).status, 404);
}
