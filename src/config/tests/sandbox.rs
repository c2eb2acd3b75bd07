//! Sandboxes that cannot work, or would leak.

use super::{AROUND, messages};

/// What is said of a sandbox.
const SANDBOXES: &str = r#"
{ memory: 15MiB, tmp: 1MiB }
=> error: `15MiB` is less than `16MiB` (gateway.yaml:2:32)

{ memory: 64MiB }
=> error: `128MiB` is more than `memory` (`64MiB`), which it is a part of (gateway.yaml:2:13)

{ memory: 256MiB, memory_total: 128MiB }
=> error: `128MiB` is less than `memory` (`256MiB`) of one command (gateway.yaml:2:54)

{ quota: 1KiB }
=> error: `1KiB` is less than `1MiB` (gateway.yaml:2:31)

{ output: 1MiB }
=> error: `1MiB` is not between `1KiB` and `512KiB` (gateway.yaml:2:32)

{ timeout: 500ms }
=> error: `500ms` is not at least `1s` (gateway.yaml:2:33)

{ timeout: 20m }
=> error: `20m` is more than `longest` (`15m`) (gateway.yaml:2:33)

{ processes: 0 }
=> error: `0` is too small (gateway.yaml:2:35)

{ network: all }
=> error: unknown word `all` (gateway.yaml:2:33)

{ network: { allow: ["pypi.org:443", "*.example.com:443", "[::1]:80", "10.0.0.1:8080"] } }

{ network: { allow: [pypi.org] } }
=> error: `pypi.org` is no place in the network (gateway.yaml:2:43)

{ network: { allow: ["*:443"] } }
=> error: `*:443` is no place in the network (gateway.yaml:2:43)

{ network: { allow: ["https://pypi.org:443"] } }
=> error: `https://pypi.org:443` is no place in the network (gateway.yaml:2:43)

{ network: { allow: ["pypi.org:443"] }, backend: gvisor }
=> error: gVisor has no network here but `none` (gateway.yaml:2:24)

{ read_only: [/opt/tools, opt, /, /proc/1, /opt/../etc] }
=> error: `opt` is no absolute path (gateway.yaml:2:48)
=> error: `/`: commands have a `/` of their own (gateway.yaml:2:53)
=> error: `/proc/1`: commands have a `/proc` of their own (gateway.yaml:2:56)
=> error: `/opt/../etc` is no absolute path (gateway.yaml:2:65)

{ environment: { CI: "1", "A-B": x, API_TOKEN: x, A: "Bearer x" } }
=> error: `A-B` is no name for a variable (gateway.yaml:2:48)
=> error: the value of `API_TOKEN` looks like a credential (gateway.yaml:2:69)
=> error: the value of `A` looks like a credential (gateway.yaml:2:75)

{ cgroup: { at: portcullis } }
=> error: `portcullis` does not begin with `/` (gateway.yaml:2:38)

{ cgroup: off }
=> error: `off` is read differently by different versions of YAML (gateway.yaml:2:32)

{ network: { all: [x] } }
=> error: unknown key `all` (gateway.yaml:2:35)

{ network: [x] }
=> error: expected one of `none`, found a list (gateway.yaml:2:24)

{ backend: docker }
=> error: unknown word `docker` (gateway.yaml:2:33)
"#;

#[test]
fn a_sandbox_that_cannot_work_or_would_leak_is_refused() {
    let file = |part: &str| AROUND.replace("http: { url: https://api.example.com/mcp }", &format!("sandbox: {part}"));
    for block in SANDBOXES.trim().split("\n\n") {
        let mut lines = block.split("\n=> ");
        let part = lines.next().expect("a block has a first line");
        assert_eq!(messages(&file(part)), lines.collect::<Vec<_>>(), "{part}");
    }
}
