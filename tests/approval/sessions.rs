//! How long a login at the approvals page lasts, with a clock that is moved by hand.

use super::held::{launch, logged_in_at};
use crate::support::browser::Browser;
use portcullis::clock::Clock;
use portcullis::server;
use std::sync::mpsc;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

const MINUTE_MS: i64 = 60_000;

fn is_logged_in(browser: &mut Browser, target: &str) -> bool {
    browser.get(target).text().contains("<h1>Approvals</h1>")
}

#[test]
fn a_login_lasts_half_an_hour_without_use_and_eight_hours_at_most() {
    let launch = launch("");
    let clock = Clock::manual(Clock::System.unix_ms());
    let runtime = Runtime::new().expect("a runtime");
    let (stop, stopped) = oneshot::channel::<()>();
    let (told, started) = mpsc::channel();
    let (file, of_gateway) = (launch.path("gateway.yaml"), clock.clone());
    let running = runtime.spawn(async move {
        let stopped = async {
            let _ = stopped.await;
        };
        server::run(&file, of_gateway, stopped, move |started| told.send(started).expect("somebody waits")).await
    });
    let admin = started.recv().expect("it starts").addresses.admin.expect("there is an admin listener");

    // What is used goes on, up to eight hours.
    let mut browser = logged_in_at(admin, "alice");
    for n in 1..=16 {
        clock.advance_ms(29 * MINUTE_MS);
        assert!(is_logged_in(&mut browser, "/"), "after {} minutes", n * 29);
    }
    clock.advance_ms(29 * MINUTE_MS);
    assert!(!is_logged_in(&mut browser, "/"), "after more than eight hours");

    // A list that keeps itself up to date is no use.
    let mut browser = logged_in_at(admin, "alice");
    clock.advance_ms(29 * MINUTE_MS);
    assert!(is_logged_in(&mut browser, "/?live"));
    clock.advance_ms(2 * MINUTE_MS);
    assert!(!is_logged_in(&mut browser, "/?live"));

    stop.send(()).expect("it runs");
    runtime.block_on(running).expect("it has not died").expect("it ended well");
}
