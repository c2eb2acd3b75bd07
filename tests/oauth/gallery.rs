//! Every page in every state, as the program would answer it, on a server of its own: what a person can see without
//! having to get into trouble first, and what strangers may make of it.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use portcullis::pages::{self, Asking, Consent, GrantRow, Grants, Hold, Login, Message, Setup};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;

/// A client with a name for every trouble: quotes and tags, writing turned around, accents in heaps, no end.
const HOSTILE: &str = "\"><script>alert(1)</script> \u{202e}edualC\u{202c} A\u{336}\u{336}\u{336}\u{336}\u{336}\u{336}";

/// The client that the consent pages name.
pub(crate) const CLIENT: &str = "https://client.example/callback";

/// What a page is called in the gallery, and the page.
pub(crate) type Sample = (&'static str, fn() -> Response);

/// Every page.
pub(crate) const SAMPLES: &[Sample] = &[
    ("login", || login(None, "", None)),
    ("login-asked", || login(Some(document()), "", None)),
    ("login-refused", || {
        login(Some(document()), "alice", Some("That is not the password of this user, or there is no such user."))
    }),
    ("login-hostile", || login(Some(hostile()), HOSTILE, Some(HOSTILE))),
    ("consent-document", || consent(document())),
    ("consent-configured", || consent(configured())),
    ("consent-registered", || consent(registered())),
    ("consent-app", || consent(Asking { sent_to: "cursor:".into(), ..registered() })),
    ("consent-hostile", || consent(hostile())),
    ("consent-rtl", || consent(Asking { client: "مساعد البرمجة".into(), ..registered() })),
    ("grants", || {
        grants(vec![row("Claude Code", "files"), row("portcullis token issue", "build"), row(HOSTILE, "files")], None)
    }),
    ("grants-revoked", || grants(vec![row("Claude Code", "files")], Some("Codex can no longer use files."))),
    ("grants-none", || grants(Vec::new(), None)),
    ("hold-waits", || hold("Waits for approval", Some("You may approve it yourself, with your password."), true)),
    ("hold-denied", || hold("Denied", Some("that is the wrong database"), false)),
    ("hold-hostile", hostile_hold),
    ("setup", || setup("", None)),
    ("setup-refused", || setup("alice", Some("The two passwords differ."))),
    ("error", error),
    ("error-hostile", hostile_error),
    ("logged-out", || {
        end("You are logged out", "What you allowed to act for you still may.", Some(("/login", "Log in again")))
    }),
    ("close-window", || end("You can close this window", "The program has its answer and goes on by itself.", None)),
];

/// Answers `/<name>` with that page, and what pages load; a form is sent on to [`CLIENT`]. Where it listens.
pub(crate) fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut head =
                    BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
                let request = head.next().unwrap_or_default();
                // The rest is read as well: a browser whose request is cut off shows no page.
                head.for_each(drop);
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                let answer = if request.starts_with("POST ") { sent_on() } else { answer(&path) };
                // A browser that has gone needs no answer.
                drop((&stream).write_all(&wire(answer)));
            });
        }
    });
    address
}

fn answer(path: &str) -> Response {
    let sample = SAMPLES.iter().find(|(name, _)| path.strip_prefix('/') == Some(name));
    match (path, sample) {
        (pages::STYLE_PATH, _) => pages::style(),
        (pages::ICON_PATH, _) => pages::icon(),
        (_, Some((_, page))) => page(),
        _ => pages::answer(StatusCode::NOT_FOUND, &said("No such page", "", true), None),
    }
}

fn sent_on() -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, CLIENT)]).into_response()
}

fn wire(response: Response) -> Vec<u8> {
    let (head, body) = response.into_parts();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime for one body");
    let body = runtime.block_on(body.collect()).expect("the body is in memory").to_bytes();
    let mut text = format!("HTTP/1.1 {}\r\nConnection: close\r\nContent-Length: {}\r\n", head.status, body.len());
    for (name, value) in &head.headers {
        write!(text, "{name}: {}\r\n", value.to_str().expect("headers of pages are text")).expect("a string grows");
    }
    [text.as_bytes(), b"\r\n", &body].concat()
}

// === The pages ===

fn document() -> Asking {
    Asking {
        client: "Claude Code".into(),
        client_id: "https://claude.ai/oauth/claude-code-client-metadata".into(),
        vouched_by: Some("claude.ai".into()),
        is_configured: false,
        sent_to: "localhost".into(),
        is_loopback: true,
        route: "files".into(),
        resource: "https://mcp.example.com/mcp/files".into(),
        scopes: vec!["mcp".into()],
    }
}

fn configured() -> Asking {
    Asking {
        client: "Nightly reports".into(),
        client_id: "reports".into(),
        vouched_by: None,
        is_configured: true,
        sent_to: "reports.example.com".into(),
        is_loopback: false,
        scopes: vec!["mcp".into(), "files:write".into()],
        ..document()
    }
}

fn registered() -> Asking {
    Asking {
        client: "ChatGPT".into(),
        client_id: "c_5Yx3mJ0pQx2rWn8TzK1v9A".into(),
        vouched_by: None,
        sent_to: "chatgpt.com".into(),
        is_loopback: false,
        ..document()
    }
}

fn hostile() -> Asking {
    Asking {
        client: HOSTILE.repeat(9),
        client_id: format!("https://client.example/{}", "%22%3E/..".repeat(300)),
        vouched_by: None,
        sent_to: format!("{}.example", "login-claude-ai-security-check.".repeat(7)),
        scopes: vec!["mcp".into(), HOSTILE.into(), "w".repeat(300)],
        ..document()
    }
}

fn row(client: &str, route: &str) -> GrantRow {
    GrantRow {
        id: "g_01".into(),
        client: client.into(),
        client_id: if client.starts_with('"') {
            HOSTILE.repeat(20)
        } else {
            "https://claude.ai/oauth/claude-code-client-metadata".into()
        },
        route: route.into(),
        scopes: "mcp".into(),
        made_by: if client.contains("issue") { "token issue" } else { "login" }.into(),
        since: "30 November 2026, 08:45 UTC".into(),
        until: "28 February 2027, 08:45 UTC".into(),
    }
}

fn login(asking: Option<Asking>, username: &str, problem: Option<&str>) -> Response {
    let page = Login { asking, ticket: "t".into(), username: username.into(), problem: problem.map(Into::into) };
    pages::answer(StatusCode::OK, &page, None)
}

fn consent(asking: Asking) -> Response {
    let page = Consent { user: "alice".into(), asking, flow: "f".into(), csrf: "c".into() };
    pages::answer(StatusCode::OK, &page, Some(CLIENT))
}

fn grants(grants: Vec<GrantRow>, notice: Option<&str>) -> Response {
    let page = Grants { user: "alice".into(), csrf: "c".into(), grants, notice: notice.map(Into::into) };
    pages::answer(StatusCode::OK, &page, None)
}

fn held(heading: &'static str, note: Option<&str>, is_open: bool) -> Hold {
    Hold {
        user: "alice".into(),
        csrf: "c".into(),
        id: "h_5nOqRk3s0cVvIwYQe7cH3g".into(),
        heading,
        explanation: "An app asked for this in your name. It runs once somebody has approved it.",
        note: note.map(str::to_owned),
        is_good: is_open,
        tool: "biscuit_deploy".into(),
        route: "prod".into(),
        client: "https://claude.ai/oauth/claude-code-client-metadata".into(),
        since: "3 February 2027, 08:45 UTC".into(),
        facts: vec![
            ("Can be approved by", "bob, or somebody of admins (2 people)".into()),
            ("Over if nobody decides by", "3 February 2027, 09:15 UTC".into()),
        ],
        may_withdraw: is_open,
    }
}

fn hold(heading: &'static str, note: Option<&str>, is_open: bool) -> Response {
    pages::answer(StatusCode::OK, &held(heading, note, is_open), None)
}

fn hostile_hold() -> Response {
    let page = Hold {
        tool: HOSTILE.into(),
        route: HOSTILE.into(),
        client: HOSTILE.into(),
        facts: vec![("Can be approved by", HOSTILE.into())],
        ..held("Waits for approval", Some(HOSTILE), true)
    };
    pages::answer(StatusCode::OK, &page, None)
}

fn setup(username: &str, problem: Option<&str>) -> Response {
    let page = Setup { link: "l".into(), username: username.into(), problem: problem.map(Into::into) };
    pages::answer(StatusCode::OK, &page, None)
}

fn said(title: &str, text: &str, is_error: bool) -> Message {
    Message { title: title.into(), text: vec![text.into()], details: Vec::new(), link: None, is_error }
}

fn end(title: &str, text: &str, link: Option<(&str, &str)>) -> Response {
    let mut page = said(title, text, false);
    page.link = link.map(|(href, label)| (href.into(), label.into()));
    pages::answer(StatusCode::OK, &page, None)
}

fn error() -> Response {
    let mut page = said(
        "This login has run out",
        "A login has to be finished within ten minutes, in the browser it was begun in. Nothing was allowed.",
        true,
    );
    page.text.push("Go back to the program that sent you here and let it begin again.".into());
    page.details = vec![("Request".into(), "r_01JDXK7M3V9Q".into()), ("Time".into(), "2026-11-30T08:45:51Z".into())];
    pages::answer(StatusCode::BAD_REQUEST, &page, None)
}

fn hostile_error() -> Response {
    let mut page = said(HOSTILE, &HOSTILE.repeat(9), true);
    page.details = vec![("Client".into(), HOSTILE.repeat(9))];
    page.link = Some(("javascript:alert(1)".into(), "Never shown".into()));
    pages::answer(StatusCode::BAD_REQUEST, &page, None)
}
