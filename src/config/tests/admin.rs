//! The admin listener: reached as safely as the agents', and apart from it.

use super::{AROUND, messages};

/// What is said of an `admin`.
const CASES: &str = r#"
admin: { listen: 127.0.0.1:9090 }

admin: { listen: "[::1]:9090", public_url: "http://localhost:9090" }

admin: { listen: nowhere }
=> error: `nowhere` is no address to listen on (gateway.yaml:1:18)

admin: { listen: 0.0.0.0:9090 }
=> error: `0.0.0.0:9090` can be reached from other machines, without TLS (gateway.yaml:1:18)
=> error: `public_url` of `admin` is missing, and approvers do not come by this address alone (gateway.yaml:1:18)

admin: { listen: 127.0.0.1:9090, behind_proxy: { from: [127.0.0.1] } }
=> error: `public_url` of `admin` is missing, and approvers do not come by this address alone (gateway.yaml:1:18)

admin: { listen: 0.0.0.0:9090, public_url: https://approve.example.com, tls: { cert: a, key: b } }

admin: { listen: 127.0.0.1:9090, public_url: https://approve.example.com, behind_proxy: { from: [10.0.0.5/8] } }
=> error: `10.0.0.5/8` begins in the middle of its block (gateway.yaml:1:98)

admin: { listen: 127.0.0.1:9090, public_url: http://approve.example.com, behind_proxy: { from: [10.0.0.5] } }
=> error: `http://approve.example.com` is not `https`, so passwords could be read on the way (gateway.yaml:1:46)

admin: { listen: 127.0.0.1:9090, public_url: "http://localhost:9090", tls: { cert: a, key: b } }
=> error: `http://localhost:9090` is `http`, but the listener speaks TLS (gateway.yaml:1:46)

admin: { listen: 127.0.0.1:8080 }
=> error: `127.0.0.1:8080` is where agents connect (gateway.yaml:1:18)

metrics: { listen: 127.0.0.1:9090 }
admin: { listen: 127.0.0.1:9090 }
=> error: `127.0.0.1:9090` is where metrics are served (gateway.yaml:2:18)

public_url: https://mcp.example.com
tls: { cert: a, key: b }
admin: { listen: 0.0.0.0:9090, public_url: "https://mcp.example.com:9090", tls: { cert: a, key: b } }
=> error: `mcp.example.com` is the host that agents use (gateway.yaml:3:44)

public_url: http://localhost:8080
admin: { listen: 127.0.0.1:9090, public_url: "http://localhost:9090" }
"#;

#[test]
fn an_admin_listener_that_others_could_listen_to_or_reach_through_the_agents_is_refused() {
    for block in CASES.trim().split("\n\n") {
        let mut lines = block.split("\n=> ");
        let part = lines.next().expect("a block has a first line");
        assert_eq!(messages(&format!("{part}\n{AROUND}")), lines.collect::<Vec<_>>(), "{part}");
    }
}
