//! That somebody could not be told is seen where people look.

use super::decide::{id, only};
use super::held::logged_in;
use super::hooks::{config, hook, url, with_secret};
use crate::support::gateway::Launch;
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use serde_json::json;

#[test]
fn a_webhook_that_was_given_up_is_seen_on_the_list_and_on_the_page_of_its_call() {
    let (upstream, receiver) = (Recorder::start(), Recorder::start());
    receiver.answer_with(|_| Reply::new(410, ""));
    let gateway = with_secret(Launch::new(&config(&upstream.url(), &[hook("chat", &url(&receiver), "")]))).start();
    gateway.wait_until_asked("up");
    let mut browser = logged_in(&gateway, "alice");
    assert!(!browser.get("/").text().contains("given up"));

    gateway.agent("bob", "up").tool("danger", json!({})).refusal();
    gateway.wait_for_metric("portcullis_webhook_deliveries_total{hook=\"chat\",result=\"dead\"}", 1.0);

    assert!(browser.get("/").text().contains("One webhook was given up"), "{}", browser.get("/").text());
    let page = browser.get(&format!("/approvals/{}", id(&only(&gateway)))).text();
    let notice = page.split("class=\"dead\"").nth(1).expect("a dead notice");
    assert!(notice.contains("<b>chat</b>") && notice.contains("1 attempt; last: "), "{notice}");
    assert!(!page.contains("whsec_") && !page.contains("from=gateway"), "{page}");
}
