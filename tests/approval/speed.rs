//! What the list costs. `make bench-approvals` runs this in a release build and shows what it prints.

use super::held::{Holder, Wish, gateway, logged_in};
use crate::support::http::{Connection, Request};
use std::time::Duration;
use tokio::time::Instant;

/// Held calls in the list.
const ROWS: usize = 1_000;

#[test]
fn the_list_of_a_thousand_calls_is_there_at_once() {
    let gateway = gateway("audit: { sync: relaxed }");
    let holder = Holder::of(&gateway);
    for n in 0..ROWS {
        holder.hold(&Wish::of(&format!(r#"{{"command":"rm -rf /tmp/{n}"}}"#)).found("recursive delete", "/command"));
    }
    let browser = logged_in(&gateway, "alice");
    let cookie: Vec<String> = browser.cookies().iter().map(|(name, value)| format!("{name}={value}")).collect();
    let admin = gateway.admin.unwrap();
    let request = Request::get("/").header("Cookie", &cookie.join("; ")).to_bytes(&admin.to_string());
    let mut connection = Connection::open(admin);
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let began = Instant::now();
            connection.send(&request);
            let page = connection.response().text();
            let took = began.elapsed();
            assert_eq!(page.matches("class=\"pending\"").count(), ROWS);
            took
        })
        .collect();
    times.sort();

    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!(
        "the list of {ROWS} held calls: {median:.1?} in the middle, {worst:.1?} at most, of {} times",
        times.len()
    );
    // A build without optimisation on a machine that does other things proves no more than that nothing grows wildly.
    let limit = if cfg!(debug_assertions) { Duration::from_secs(5) } else { Duration::from_millis(100) };
    assert!(median <= limit, "{median:?} is more than {limit:?}");
}
