//! What is refused is recorded: the page names the request, and whoever is asked for help finds it in the log.

use super::gate;
use crate::support::browser::{Browser, Page};
use crate::support::gate::Gate;
use crate::support::gateway::{Gateway, password};
use crate::support::http::{Request, Response};
use crate::support::oauth::{Client, challenge, post_form, token};
use crate::support::wait_for;

/// The code under which this refusal is recorded, once, and that `portcullis audit show` finds it.
#[track_caller]
fn recorded(gateway: &Gateway, refused: &Response) -> String {
    let id = refused.header("x-request-id").expect("an answer has a name").to_owned();
    let of_request = |gateway: &Gateway| {
        let records = gateway.audit().into_iter();
        records.filter(|record| record["request"] == *id && record["event"] == "refused").collect::<Vec<_>>()
    };
    wait_for(&format!("a record of {id}"), || !of_request(gateway).is_empty());
    let records = of_request(gateway);
    assert_eq!(records.len(), 1, "{records:?}");
    assert!(records[0]["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1")), "{records:?}");
    let shown = gateway.cli(&["audit", "show", &id]).success().stdout;
    assert!(shown.contains("refused"), "{shown}");
    records[0]["code"].as_str().expect("a code").to_owned()
}

/// As [`recorded`], of a page that tells people the name of the request.
#[track_caller]
fn recorded_page(gateway: &Gateway, page: &Page) -> String {
    assert!((400..500).contains(&page.status()), "{} {}", page.status(), page.text());
    let id = page.response.header("x-request-id").expect("an answer has a name");
    assert!(page.text().contains(id), "{id} is not in {}", page.text());
    recorded(gateway, &page.response)
}

fn fields(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn n_refused(gateway: &Gateway) -> usize {
    gateway.audit().iter().filter(|record| record["event"] == "refused").count()
}

#[test]
fn what_is_refused_at_the_pages_is_in_the_log_under_the_name_that_the_page_tells() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    let mut browser = Browser::new(gateway.agent);

    for (name, value, code) in [
        ("redirect_uri", "https://evil.example/cb", "invalid_redirect_uri"),
        ("client_id", "c_nobody", "invalid_client"),
    ] {
        let refused = browser.get(&client.ask(&gateway, "up").with(name, value).url());
        assert_eq!(recorded_page(&gateway, &refused), code, "{name}");
    }
    // The client is told at once.
    let refused = browser.get(&client.ask(&gateway, "up").with("scope", "\"").url());
    assert_eq!((refused.status(), recorded(&gateway, &refused.response).as_str()), (303, "invalid_scope"));

    // A login form of another browser, an old or made-up one.
    let foreign = Browser::new(gateway.agent).get(&client.ask(&gateway, "up").url());
    let (action, form) = foreign.filled(&[("username", "alice"), ("password", &password("alice"))]);
    let refused = browser.post_only(&action, &form);
    assert_eq!(recorded_page(&gateway, &refused), "page.stale");
    let refused = browser.post_only("/login", &fields(&[("ticket", "x"), ("username", "alice"), ("password", "x")]));
    assert_eq!(recorded_page(&gateway, &refused), "page.stale");

    // The question: without its form's own mark, and in another session.
    let login = browser.get(&client.ask(&gateway, "up").url());
    let question = browser.submit(&login, &[("username", "alice"), ("password", &password("alice"))]);
    let (action, allow) = question.filled(&[("decision", "allow")]);
    let forged: Vec<_> = allow.iter().filter(|(name, _)| name != "csrf").cloned().collect();
    assert_eq!(recorded_page(&gateway, &browser.post_only(&action, &forged)), "page.stale");
    let mut other = Browser::new(gateway.agent);
    let page = other.get("/login");
    other.submit(&page, &[("username", "bob"), ("password", &password("bob"))]);
    assert_eq!(recorded_page(&gateway, &other.post_only(&action, &allow)), "page.stale");

    let n_before = n_refused(&gateway);
    assert!(browser.post(&action, &allow).left_for.is_some(), "the true form counts");
    assert_eq!(n_refused(&gateway), n_before, "and is no refusal");
    assert!(!gateway.audit_text().contains(&password("alice")));
}

#[test]
fn a_malformed_request_to_an_endpoint_for_machines_is_in_the_log() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    let asked = client.ask(&gateway, "up");
    let right = client.redeem(&client.code(&gateway, "alice", &asked), &asked.verifier);
    let doubled: Vec<_> = right.iter().chain(&right[..1]).cloned().collect();
    let json = |path: &str| Request::post(path).header("Content-Type", "application/json").body("{}");

    for path in ["/token", "/revoke", "/introspect"] {
        for refused in [post_form(&gateway, path, &doubled), json(path).send(gateway.agent)] {
            assert_eq!(refused.status, 400, "{path}: {}", refused.text());
            assert_eq!(recorded(&gateway, &refused), "invalid_request", "{path}");
        }
    }
    let wrong: Vec<_> = right
        .iter()
        .map(|(name, value)| (name.clone(), if name == "code_verifier" { challenge("x") } else { value.clone() }))
        .collect();
    assert_eq!(recorded(&gateway, &token(&gateway, &wrong)), "invalid_grant");
    let refused = json("/register").send(gateway.agent);
    assert_eq!((refused.status, recorded(&gateway, &refused).as_str()), (400, "invalid_redirect_uri"));

    let n_before = n_refused(&gateway);
    assert_eq!(token(&gateway, &right).status, 200);
    assert_eq!(n_refused(&gateway), n_before);
}

#[test]
fn a_logout_is_in_the_log_and_one_without_a_session_is_none() {
    let Gate { gateway, .. } = gate("");
    let mut browser = Browser::new(gateway.agent);
    let login = browser.get("/login");
    let page = browser.submit(&login, &[("username", "alice"), ("password", &password("alice"))]);
    let ended = |gateway: &Gateway| {
        let records = gateway.audit().into_iter();
        records.filter(|record| record["event"] == "login.ended").collect::<Vec<_>>()
    };

    assert_eq!(Browser::new(gateway.agent).post_only("/logout", &[]).status(), 200);
    let (action, form) = page.logout();
    assert_eq!(browser.post(&action, &form).status(), 200);

    wait_for("a record", || !ended(&gateway).is_empty());
    let records = ended(&gateway);
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(records[0]["principal"]["subject"], "user:alice");
}
