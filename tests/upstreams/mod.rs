//! The servers behind us: how they are reached, what they are sent, how they fail, and what of theirs goes on.

mod asks;
mod batches;
mod failures;
mod hostile;
mod http;
mod http2;
mod ids;
mod rounds;
mod session_streams;
mod sessions;
mod streams;
mod subscriptions;
mod tls;

use crate::support::agent::Answer;

/// Lets everything through, everywhere.
const EVERYTHING: &str =
    r#"policy: { rules: [{ name: all, tools: ["*/*"], prompts: ["*/*"], resources: ["*/*"], allow: {} }] }"#;

/// A configuration with these upstreams, by name and settings (what stands in `http: { … }`).
fn config(upstreams: &[(&str, String)]) -> String {
    let upstreams: String =
        upstreams.iter().map(|(name, settings)| format!("  {name}: {{ http: {{ {settings} }} }}\n")).collect();
    format!("upstreams:\n{upstreams}{EVERYTHING}\n")
}

/// The stable code of an answer that is an error of the gateway.
fn code(answer: &Answer) -> &str {
    answer.message["error"]["data"]["code"].as_str().unwrap_or_default()
}

/// Fails unless the answer is this failure, says this to people, and nothing of addresses.
#[track_caller]
fn assert_failed(case: &str, answer: &Answer, expected: &str, says: &str) {
    assert_eq!(code(answer), expected, "{case}: {answer:#?}");
    let (_, message) = answer.error();
    assert!(message.contains(says), "{case}: {message:?} does not say {says:?}");
    assert!(!message.contains("127.0.0.1"), "{case}: {message:?} names an address");
}
