//! Public bug reports of systems like this one, each as a test of what must happen here instead. The comment above a
//! test names the case and where it was reported; what a case asks of parts that do not exist yet is left out.

mod body_size;
mod discovery;
mod encoding;
mod headers;
mod http2;
mod issuers;
mod json_rpc;
mod lists;
mod metrics;
mod policy;
mod reload;
mod resume;
mod schema;
mod secrets;
mod sessions;
mod streams;
mod timeouts;
mod tls;

use crate::support::PATIENCE;
use crate::support::gateway::Gateway;
use crate::support::recorder::Recorder;
use tokio::time::Instant;

/// Everything of upstream `up` may be used, by everyone.
const EVERYTHING: &str = r#"- { name: all, tools: ["up/*"], prompts: ["up/*"], resources: ["up/*"], allow: {} }"#;

/// Everything of upstream `up` but its tool `danger`.
const NO_DANGER: &str = r#"
- { name: all, tools: ["up/*"], prompts: ["up/*"], resources: ["up/*"], allow: {} }
- { name: no danger, tools: ["up/danger"], deny: {} }
"#;

/// A gateway in front of this recorder that has already fetched its tool definitions: what comes now is a client's.
#[track_caller]
fn settled(recorder: &Recorder, rules: &str) -> Gateway {
    let gateway = Gateway::in_front_of(recorder, rules);
    wait_until_up(&gateway, "up");
    gateway
}

/// The same with more at the top of the configuration.
#[track_caller]
fn settled_with(top: &str, recorder: &Recorder, rules: &str) -> Gateway {
    let yaml = format!("{top}\n{}", crate::support::gateway::in_front_of(&recorder.url(), rules));
    let gateway = Gateway::start(&yaml);
    wait_until_up(&gateway, "up");
    gateway
}

/// Waits until the gateway has fetched this upstream's tool definitions.
#[track_caller]
fn wait_until_up(gateway: &Gateway, upstream: &str) {
    let sample = format!("portcullis_upstream_up{{upstream=\"{upstream}\"}}");
    wait_until(&format!("upstream {upstream} up"), || (gateway.metric(&sample) - 1.0).abs() < f64::EPSILON);
}

/// Asks again and again until it is so.
#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        // A poll; nothing depends on how long it is.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
