//! Traces: a collector that anybody could read along with, and a share that is none, are refused.

use super::{AROUND, messages};

const CASES: &str = r#"
traces: { otlp: { url: "http://127.0.0.1:4318/v1/traces" } }

traces: { otlp: { url: "https://c.example.com/v1/traces", headers: { X-Api-Key: { env: K } }, ca: c.pem }, sample: 0 }

traces: { otlp: { url: "http://c.example.com/v1/traces" } }
=> error: what is sent there could be read and changed on the way (gateway.yaml:1:24)

traces: { otlp: { url: "https://c.example.com/v1/traces", headers: { X-Api-Key: abc } } }
=> error: the value of `X-Api-Key` looks like a credential (gateway.yaml:1:81)

traces: { otlp: { url: "https://me:pass@c.example.com/v1/traces" } }
=> error: a URL with a user name or password in it (gateway.yaml:1:24)

traces: { otlp: { url: "http://127.0.0.1:4318/v1/traces", ca: c.pem } }
=> error: `ca` has no meaning for an `http://` URL (gateway.yaml:1:63)

traces: { sample: 0.5 }
=> error: key `otlp` is missing (gateway.yaml:1:1)
"#;

#[test]
fn spans_go_where_nobody_reads_along() {
    for block in CASES.trim().split("\n\n") {
        let mut lines = block.split("\n=> ");
        let part = lines.next().expect("a block has a first line");
        assert_eq!(messages(&format!("{part}\n{AROUND}")), lines.collect::<Vec<_>>(), "{part}");
    }
}

#[test]
fn a_share_is_between_none_and_all() {
    for sample in ["-0.1", "1.1", "2"] {
        let text = format!("traces: {{ otlp: {{ url: \"http://[::1]:4318/\" }}, sample: {sample} }}\n{AROUND}");
        assert_eq!(messages(&text).len(), 1, "{sample}");
    }
}
