//! The harness, tried on itself: a check that cannot fail proves nothing.

use super::agent::Agent;
use super::browser::{self, Browser};
use super::canary::Canary;
use super::http::{Connection, Request, Response};
use super::invariants;
use super::person::Person;
use super::recorder::{Recorded, Recorder};
use super::reply::{Reply, event};
use super::tap::Tap;
use super::tls::{self, Identity};
use super::wire::Headers;
use serde_json::json;
use std::os::unix::net::UnixStream;

#[test]
fn recorder_keeps_every_request_as_it_came() {
    let recorder = Recorder::start();
    let mut connection = Connection::open(recorder.address());

    connection.send(
        b"POST /mcp HTTP/1.1\r\nhOsT: x\r\nX-A: 1\r\nx-a: 2\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{ }\r\n0\r\n\r\n",
    );
    connection.response();
    connection.send(&Request::post("/other?q=1").body("second").to_bytes("x"));
    connection.response();

    let requests = recorder.requests();
    assert_eq!(requests[0].headers.0[0], ("hOsT".to_owned(), "x".to_owned()));
    assert_eq!(requests[0].headers.all("X-a"), ["1", "2"]);
    assert_eq!(requests[0].body, b"{ }");
    assert_eq!((requests[1].target.as_str(), requests[1].body.as_slice()), ("/other?q=1", b"second".as_slice()));
    assert_eq!(recorder.n_connections(), 1);
}

#[test]
#[should_panic(expected = "bytes came")]
fn recorder_notices_a_single_byte() {
    let recorder = Recorder::start();
    let mut connection = Connection::open(recorder.address());
    connection.send(&Request::post("/mcp").to_bytes("x"));
    connection.response();
    let mark = recorder.mark();

    connection.send(b"P");
    connection.finish_sending();
    recorder.wait_until_closed(0);

    recorder.assert_untouched(mark);
}

#[test]
fn recorder_streams_what_the_test_feeds_it() {
    let recorder = Recorder::start();
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    let mut connection = Connection::open(recorder.address());
    connection.send(&Request::mcp("/mcp", "{}").to_bytes("x"));
    let mut stream = connection.streaming();

    feed.message(&json!({ "n": 1 }));
    assert_eq!(stream.message(), Some(json!({ "n": 1 })));
    feed.bytes(": still here\n\nda");
    assert_eq!(stream.event().expect("a comment").comments, ["still here"]);
    feed.bytes("ta: {\"n\":2}\n\n");
    assert_eq!(stream.message(), Some(json!({ "n": 2 })));
    drop(feed);

    assert_eq!(stream.event(), None);
}

#[test]
fn recorder_sees_a_peer_leave_in_the_middle_of_an_answer() {
    let recorder = Recorder::start();
    recorder.answer_next(Reply::hang());
    let mark = recorder.mark();
    let mut connection = Connection::open(recorder.address());
    connection.send(&Request::mcp("/mcp", "{}").to_bytes("x"));
    recorder.wait_for_requests(mark, 1);

    drop(connection);

    recorder.wait_until_closed(0);
}

#[test]
fn recorder_works_on_a_unix_socket_and_behind_tls() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let recorder = Recorder::start_unix(&dir.path().join("socket"));
    let stream = UnixStream::connect(dir.path().join("socket")).expect("it listens");
    let mut connection = Connection::on(stream);
    connection.send(&Request::mcp("/mcp", "{}").to_bytes("x"));
    assert_eq!(connection.response().status, 202);
    assert_eq!(recorder.last().body, b"{}");

    let (ca, stranger) = (Identity::authority("ours"), Identity::authority("a stranger's"));
    let recorder = Recorder::start_tls(&ca.sign(&["up.test"]), None);
    assert!(tls::connect(recorder.address(), "up.test", &stranger).is_err());
    let mut connection =
        Connection::on(tls::connect(recorder.address(), "up.test", &ca).expect("it is signed by ours"));
    connection.send(&Request::mcp("/mcp", "{}").to_bytes("x"));
    assert_eq!(connection.response().status, 202);
    assert_eq!(recorder.n_connections(), 1);
}

#[test]
fn agent_accepts_an_answer_that_holds_what_it_must() {
    let recorder = Recorder::start();
    recorder.answer_with(|request| Reply::mcp(request).header("X-Request-Id", "r-1"));
    let mut agent = Agent::new(recorder.address(), "up", None);

    agent.initialize();
    assert_eq!(agent.tools(), ["add", "danger", "echo"]);
    assert_eq!(agent.modern().tool("echo", json!({ "a": 1 })).result()["structuredContent"], json!({ "a": 1 }));

    let last = recorder.last();
    assert_eq!((last.header("Mcp-Method"), last.header("mcp-name")), (Some("tools/call"), Some("echo")));
}

#[track_caller]
fn assert_refused(why: &str, response: Response) {
    let check = move || invariants::check(&response, Some(&json!(1)));
    let panic = std::panic::catch_unwind(check).expect_err("the check must fail");
    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.contains(why), "{text:?} does not say {why:?}");
}

#[test]
fn invariants_refuse_each_thing_that_must_not_go_out() {
    let response = |status, headers: &[(&str, &str)], body: &str| {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Response { status, headers: Headers(headers), body: body.as_bytes().to_vec() }
    };
    let json = [("X-Request-Id", "r"), ("Content-Type", "application/json")];
    let good = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    invariants::check(&response(200, &json, good), Some(&json!(1)));

    assert_refused("not one x-request-id", response(200, &json[1..], good));
    assert_refused("header Server", response(200, &[&json[..], &[("Server", "x")]].concat(), good));
    assert_refused("content-type", response(200, &[json[0], ("Content-Type", "text/html")], good));
    assert_refused("the id comes back", response(200, &json, &good.replace(":1", ":\"1\"")));
    assert_refused("a result goes out with 200", response(400, &json, good));
    assert_refused("one of result and error", response(200, &json, r#"{"jsonrpc":"2.0","id":1}"#));
    assert_refused("challenge", response(401, &json, ""));
    assert_refused("an empty answer", response(200, &json, ""));
    let stream = [json[0], ("Content-Type", "text/event-stream"), ("X-Accel-Buffering", "no")];
    assert_refused("answers its request once", response(200, &stream, &event(&json!({ "method": "x" }))));
    assert_refused("a proxy in front", response(200, &stream[..2], &event(&json!({}))));
}

#[test]
fn recorded_request_names_its_rpc_method() {
    let request = |body: &[u8]| Recorded {
        connection: 0,
        method: "POST".to_owned(),
        target: "/".to_owned(),
        headers: Headers::default(),
        body: body.to_vec(),
    };

    assert_eq!(request(br#"{"method":"ping"}"#).rpc_method(), "ping");
    assert_eq!(request(b"not JSON").rpc_method(), "");
}

/// A login as ours is: a form on a page of its own, then a choice, then the way back to the client.
fn login_server(callback: &str) -> Recorder {
    let recorder = Recorder::start();
    let back = format!("{callback}?code=c%2B1&iss=http%3A%2F%2Fx");
    recorder.answer_with(move |request| {
        let html = |page: &str| Reply::new(200, page).header("Content-Type", "text/html; charset=utf-8");
        let see = |location: &str| Reply::new(303, "").header("Location", location);
        let cookies = request.header("cookie").unwrap_or_default().to_owned();
        match (request.method.as_str(), request.target.split('?').next().unwrap_or_default()) {
            ("GET", "/authorize") => html(
                "<form><input name=unrelated></form><form method=\"post\" action='/login'><input type=hidden name=flow \
                 value=\"a&amp;b&#x3d;&quot;\"><label>Name <input name=username autofocus></label>\
                 <input type=\"password\" name=\"password\"/><button>Log in</button></form>",
            )
            .header("Set-Cookie", "__Host-flow=f1; Path=/; Secure; HttpOnly; SameSite=Lax")
            .header("Set-Cookie", "old=gone; Max-Age=0"),
            ("POST", "/login") => see("/consent?flow=1").header("Set-Cookie", "__Host-session=s1; Path=/; Secure"),
            ("GET", "/consent") if cookies.contains("__Host-session=s1") => html(
                "<form method=post action=\"/consent\"><input type=hidden name=csrf value=c1><input type=checkbox name=all>\
                 <button name=decision value=allow>Allow</button><button name=decision value=deny>Deny</button></form>",
            ),
            ("POST", "/consent") => see(&back),
            _ => Reply::new(400, "no"),
        }
    });
    recorder
}

#[test]
fn browser_fills_in_forms_keeps_cookies_and_stops_where_it_leaves() {
    let server = login_server("http://127.0.0.1:1/callback");
    let mut browser = Browser::new(server.address());
    browser.set_cookie("old", "stale");

    let back = browser.authorize("/authorize?client_id=x", "alice", "p&=+ ü", "deny");

    assert_eq!(browser::parameter(&back, "code").as_deref(), Some("c+1"));
    let requests = server.requests();
    let sent: Vec<_> = requests.iter().map(|request| (request.target.as_str(), request.body.as_slice())).collect();
    let login: &[u8] = b"flow=a%26b%3D%22&username=alice&password=p%26%3D%2B+%C3%BC";
    let expected: [(&str, &[u8]); 4] = [
        ("/authorize?client_id=x", b""),
        ("/login", login),
        ("/consent?flow=1", b""),
        ("/consent", b"csrf=c1&decision=deny"),
    ];
    assert_eq!(sent, expected);
    assert_eq!(requests[0].header("cookie"), Some("old=stale"));
    assert_eq!(requests[3].header("cookie"), Some("__Host-flow=f1; __Host-session=s1"));
    assert_eq!(requests[3].header("origin"), Some(&*format!("http://{}", server.address())));
    assert_eq!(browser.cookies().len(), 2);
}

#[test]
fn browser_can_send_what_no_page_offered() {
    let server = login_server("http://127.0.0.1:1/callback");
    let mut browser = Browser::new(server.address());

    let page = browser.post_only("/login", &[("username".to_owned(), "mallory".to_owned())]);
    let refused = Browser::new(server.address()).get("/consent?flow=1");

    assert_eq!((page.status(), page.left_for.is_none()), (303, true));
    assert_eq!((refused.status(), refused.text().as_str()), (400, "no"));
}

#[test]
#[should_panic(expected = "a browser refuses this cookie")]
fn browser_takes_no_host_cookie_that_is_not_bound_to_its_host() {
    let server = Recorder::start();
    server.answer_next(Reply::new(200, "").header("Set-Cookie", "__Host-session=s1; Path=/login; Secure"));

    Browser::new(server.address()).get("/");
}

#[test]
#[should_panic(expected = "is no way back to a client")]
fn browser_does_not_take_an_error_page_for_a_callback() {
    let server = Recorder::start();
    server.answer_with(|_| Reply::new(400, "<p>This link has expired.</p>").header("Content-Type", "text/html"));

    Browser::new(server.address()).get("/authorize").callback();
}

#[test]
fn person_logs_in_presses_the_button_they_chose_and_comes_back_to_the_client() {
    let client = Recorder::start();
    client.answer_with(|_| Reply::new(200, "You can close this page."));
    let server = login_server(&format!("http://{}/callback", client.address()));
    let person = Person::new("alice");
    person.decides("deny");

    person.visit(&format!("http://{}/authorize?client_id=x", server.address())).success();

    let sent: Vec<_> = server.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(sent[1], b"flow=a%26b%3D%22&username=alice&password=alice+opens+the+gate");
    assert_eq!(sent[3], b"csrf=c1&decision=deny");
    assert_eq!(client.last().target, "/callback?code=c%2B1&iss=http%3A%2F%2Fx");
    assert_eq!(person.seen().len(), 5);
}

#[test]
fn person_does_not_come_back_from_an_error_page() {
    let server = Recorder::start();
    server.answer_with(|_| Reply::new(400, "<p>This link has expired.</p>").header("Content-Type", "text/html"));

    let visit = Person::new("alice").visit(&format!("http://{}/authorize", server.address()));

    assert!(!visit.status.success(), "{visit:?}");
}

#[test]
fn tap_pairs_requests_with_answers_and_finds_every_secret() {
    let recorder = Recorder::start();
    let json = |body: &str| Reply::json(body.to_owned());
    recorder.answer_next(json(r#"{"client_id":"c","client_secret":"CANARY-secret"}"#));
    recorder.answer_next(
        Reply::redirect(303, "http://127.0.0.1:1/?code=CANARY-code").header("Set-Cookie", "s=CANARY-cookie; Path=/"),
    );
    recorder.answer_next(json(
        r#"{"access_token":"eyJ.CANARY-claims.CANARY-signature","refresh_token":"CANARY-refresh-2"}"#,
    ));
    let tap = Tap::start();
    tap.lead_to(recorder.address());
    let mut connection = Connection::open(tap.address());
    let form = |path: &str, body: &str| {
        Request::post(path).header("Content-Type", "application/x-www-form-urlencoded").body(body)
    };

    for request in [
        Request::post("/register").body("{}"),
        form("/login", "username=alice&password=CANARY+password"),
        form("/token", "grant_type=refresh_token&refresh_token=CANARY-refresh-1")
            .header("Authorization", "Basic YzpDQU5BUlktYmFzaWM="),
    ] {
        connection.send(&request.to_bytes("x"));
        connection.response();
    }

    let granted = tap.granted("refresh_token");
    assert_eq!(granted[0].answered("refresh_token"), "CANARY-refresh-2");
    let found: Vec<String> = tap.secrets().into_iter().map(|secret| secret.value).collect();
    for secret in [
        "CANARY-secret",
        "CANARY-code",
        "CANARY-cookie",
        "CANARY password",
        "CANARY-basic",
        "CANARY-refresh-1",
        "CANARY-refresh-2",
        "CANARY-signature",
        "eyJ.CANARY-claims.CANARY-signature",
    ] {
        assert!(found.iter().any(|value| value == secret), "{secret} is not among {found:?}");
    }
}

#[test]
fn canary_is_found_in_every_spelling() {
    let canary = Canary::new("a password", "alice opens the gate");
    canary.assert_absent("a log", "alice does not open the gate");

    for line in [
        "password: alice opens the gate",
        "password=alice+opens+the+gate",
        "616c696365206f70656e73207468652067617465",
        "x: YWxpY2Ugb3BlbnMgdGhlIGdhdGU",
    ] {
        let seen = std::panic::catch_unwind(|| canary.assert_absent("a log", line));
        assert!(seen.is_err(), "not seen: {line}");
    }
}
