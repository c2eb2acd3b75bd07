//! The audit log: what would lose records, or sign them beside themselves, is refused.

use super::{AROUND, messages};

/// What is said of an `audit`.
const CASES: &str = r#"
audit: { sync: strict, file_size: 64KiB, keep: 90d, keep_at_most: 20GiB }

audit: { checkpoints: { file: /mnt/other/checkpoints.jsonl, every: 100ms, records: 1 } }

audit: { file_size: 1KiB }
=> error: `1KiB` is not between `64KiB` and `4GiB` (gateway.yaml:1:21)

audit: { keep: 30m }
=> error: `30m` is shorter than a held call may live, which is `50m` (gateway.yaml:1:16)

audit: { keep: 50m }

audit: { keep: 1h }
approvals: { expires: 2h }
=> error: `1h` is shorter than a held call may live, which is `140m` (gateway.yaml:1:16)

audit: { file_size: 64MiB, keep_at_most: 255MiB }
=> error: `255MiB` has no room for 4 files of `64MiB` (gateway.yaml:1:42)

audit: { keep_at_most: 256MiB }

audit: { checkpoints: { every: 10ms, records: 0 } }
=> error: `0` is too small (gateway.yaml:1:47)

audit: { checkpoints: { every: 10ms } }
=> error: `10ms` is not between `100ms` and `1h` (gateway.yaml:1:32)

audit: { checkpoints: { file: data/audit/checkpoints.jsonl } }
=> error: `data/audit/checkpoints.jsonl` lies among the files it is to speak for (gateway.yaml:1:31)

audit: { checkpoints: { file: ./data/x/../audit/../audit/c } }
=> error: `./data/x/../audit/../audit/c` lies among the files it is to speak for (gateway.yaml:1:31)

data_dir: /var/lib/portcullis
audit: { checkpoints: { file: /var/lib/portcullis/keys/c } }
=> error: `/var/lib/portcullis/keys/c` lies among the keys (gateway.yaml:2:31)

audit: { checkpoints: { file: /mnt/.. } }
=> error: `/mnt/..` is no file (gateway.yaml:1:31)

audit: { arguments: [{ tools: ["github/*"], mask: [/body, "/users/*/name"], tag: [""] }, { tools: ["*/*"] }] }

audit: { arguments: [{ tools: [] }] }
=> error: at least one is needed here (gateway.yaml:1:24)

audit: { arguments: [{ tools: ["v/*"], mask: [body], tag: ["/a~2"] }] }
=> error: unknown upstream `v` (gateway.yaml:1:32)
=> error: `body` is no JSON Pointer (gateway.yaml:1:47)
=> error: `/a~2` is no JSON Pointer (gateway.yaml:1:60)

audit: { also: [{ name: a, stdout: {} }, { name: b, syslog: { to: "unix:/dev/log" } }, { name: c, otlp: { url: "http://127.0.0.1:4318/v1/logs" } }] }

audit: { also: [{ name: a, stdout: {} }, { name: a, syslog: { to: "tcp:[::1]:601" } }] }
=> error: sink `a` stands twice (gateway.yaml:1:50)

audit: { also: [{ name: a, stdout: {} }, { name: b, stdout: {} }] }
=> error: sink `a` goes there already (gateway.yaml:1:53)

audit: { also: [{ name: A b, stdout: {} }] }
=> error: `A b` is no name of a sink (gateway.yaml:1:25)

audit: { also: [{ name: a }] }
=> error: sink `a` needs exactly one of `stdout`, `syslog`, `otlp` (gateway.yaml:1:19)

audit: { also: [{ name: a, stdout: {}, syslog: { to: "unix:/dev/log" } }] }
=> error: sink `a` needs exactly one of `stdout`, `syslog`, `otlp` (gateway.yaml:1:19)

audit: { also: [{ name: a, syslog: { to: /dev/log } }] }
=> error: `/dev/log` is no syslog server (gateway.yaml:1:42)

audit: { also: [{ name: a, syslog: { to: "udp:logs.example.com:0" } }] }
=> error: `udp:logs.example.com:0` is no syslog server (gateway.yaml:1:42)

audit: { also: [{ name: a, syslog: { to: "udp:logs.example.com:514" } }] }
=> warning: records are sent to `logs.example.com` unencrypted (gateway.yaml:1:42)

audit: { also: [{ name: a, otlp: { url: "http://logs.example.com/v1/logs" } }] }
=> error: what is sent there could be read and changed on the way (gateway.yaml:1:41)

audit: { also: [{ name: a, otlp: { url: "https://logs.example.com/v1/logs", headers: { Authorization: Bearer x } } }] }
=> error: the value of `Authorization` looks like a credential (gateway.yaml:1:103)
"#;

#[test]
fn a_log_that_would_not_hold_what_it_is_for_is_refused() {
    for block in CASES.trim().split("\n\n") {
        let mut lines = block.split("\n=> ");
        let part = lines.next().expect("a block has a first line");
        assert_eq!(messages(&format!("{part}\n{AROUND}")), lines.collect::<Vec<_>>(), "{part}");
    }
}
