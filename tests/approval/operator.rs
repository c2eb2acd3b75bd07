//! The operator's socket: agents often run as the same local user, so it decides on nothing.

use super::held::{Holder, Wish, gateway};
use crate::support::http::{Connection, Request};
use portcullis::approval::hex;
use portcullis::store::ApprovalState;
use std::os::unix::net::UnixStream;

#[test]
fn another_process_of_the_same_user_decides_nothing_over_the_operators_socket() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish::of(r#"{"command":"rm -rf build"}"#));
    let ask = |request: Request| {
        let socket = UnixStream::connect(gateway.path("data/operator.sock")).expect("the operator's socket is there");
        let mut connection = Connection::on(socket);
        connection.send(&request.to_bytes("operator"));
        connection.response().status
    };
    let body = format!("decision=approve&digest={}", hex(&held.digest));

    for path in ["/approvals", "/api/approvals"] {
        for verb in ["", "/approve", "/deny", "/withdraw", "/resolve"] {
            let path = format!("{path}/{}{verb}", held.id);
            let status = ask(Request::post(&path).body(body.clone()));
            assert_eq!(status, 404, "{path}");
        }
    }

    assert_eq!(holder.state(&held), ApprovalState::Pending);
    assert_eq!(ask(Request::get("/status")), 200, "what it is for it does");
}
