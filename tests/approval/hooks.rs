//! Webhooks for tests: what configures them, what signs for a receiver, and what a receiver makes of a message. The
//! signatures here are made without the code that is tested.

use crate::support::gateway::{Launch, in_front_of};
use crate::support::recorder::{Recorded, Recorder};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The secret of every webhook here.
pub(crate) const SECRET: &str = "whsec_c2VjcmV0IG9mIGEgd2ViaG9vayBpbiB0ZXN0cw==";
/// Somebody else's.
pub(crate) const OTHER: &str = "whsec_YW5vdGhlciBzZWNyZXQgb2Ygbm9ib2R5IGhlcmU=";

/// `up/danger` is held for the group `admins` (alice), with these webhooks; each is told what it is told at `url`.
pub(crate) fn config(upstream: &str, hooks: &[String]) -> String {
    let rules = r#"
- { name: risky, tools: [up/danger], hold: { approvers: { groups: [admins] }, mask: [/pin], wait: 1s } }
- { name: rest, tools: ["up/*"], allow: {} }"#;
    let hooks: String = hooks.iter().map(|hook| format!("    - {hook}\n")).collect();
    format!("{}admin: {{ listen: 127.0.0.1:0 }}\napprovals:\n  webhooks:\n{hooks}", in_front_of(upstream, rules))
}

/// One webhook, with further settings.
pub(crate) fn hook(name: &str, url: &str, more: &str) -> String {
    format!("{{ name: {name}, url: \"{url}\", secret: {{ file: hook-secret }}{more} }}")
}

/// Where this recorder receives webhooks.
pub(crate) fn url(receiver: &Recorder) -> String {
    format!("http://{}/hook?from=gateway", receiver.address())
}

/// With the file that holds the secret, which nobody else may read.
pub(crate) fn with_secret(launch: Launch) -> Launch {
    let launch = launch.file("hook-secret", SECRET);
    make_private(&launch.path("hook-secret"));
    launch
}

pub(crate) fn make_private(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
}

/// The signature of a message, as the specification makes it.
pub(crate) fn signature(secret: &str, id: &str, timestamp_s: i64, body: &[u8]) -> String {
    let key = STANDARD.decode(secret.trim_start_matches("whsec_")).expect("base64");
    let signed = [format!("{id}.{timestamp_s}.").as_bytes(), body].concat();
    format!("v1,{}", STANDARD.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed)))
}

/// The body of a message, after its signature was found right.
#[track_caller]
pub(crate) fn verified(request: &Recorded) -> Value {
    let header = |name| request.header(name).unwrap_or_else(|| panic!("{name} is missing: {:?}", request.headers));
    let timestamp_s = header("webhook-timestamp").parse().expect("seconds");
    let expected = signature(SECRET, header("webhook-id"), timestamp_s, &request.body);
    assert!(header("webhook-signature").split(' ').any(|one| one == expected), "the signature is not of this message");
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/hook?from=gateway"));
    assert_eq!(header("content-type"), "application/json");
    request.json()
}
