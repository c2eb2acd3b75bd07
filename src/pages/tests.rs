//! What goes over the wire with a page, and that nothing a stranger wrote becomes a part of it.

use super::*;

/// Ends a text, an attribute, a tag; turns the writing; calls a script.
const HOSTILE: &str = "\"'><script>alert(1)</script><b onclick=x>\u{202e}{{ 7*7 }}&amp;";

fn hostile() -> Asking {
    Asking {
        client: HOSTILE.into(),
        client_id: HOSTILE.into(),
        vouched_by: Some(HOSTILE.into()),
        is_configured: false,
        sent_to: HOSTILE.into(),
        is_loopback: true,
        route: HOSTILE.into(),
        resource: HOSTILE.into(),
        scopes: vec![HOSTILE.into()],
    }
}

fn pages() -> Vec<(&'static str, String)> {
    let text = || HOSTILE.to_owned();
    let login =
        Login { asking: Some(hostile()), ticket: text(), username: text(), problem: Some(text()) }.render().unwrap();
    let consent = Consent { user: text(), asking: hostile(), flow: text(), csrf: text() }.render().unwrap();
    let message = Message {
        title: text(),
        text: vec![text()],
        details: vec![(text(), text())],
        link: Some((format!("/{HOSTILE}"), text())),
        is_error: true,
    };
    let row = GrantRow {
        id: text(),
        client: text(),
        client_id: text(),
        route: text(),
        scopes: text(),
        made_by: text(),
        since: text(),
        until: text(),
    };
    let grants = Grants { user: text(), csrf: text(), grants: vec![row], notice: Some(text()) }.render().unwrap();
    let hold = Hold {
        user: text(),
        csrf: text(),
        id: text(),
        heading: "Waits",
        explanation: HOSTILE,
        note: Some(text()),
        is_good: true,
        tool: text(),
        route: text(),
        client: text(),
        since: text(),
        facts: vec![("What", text())],
        may_withdraw: true,
    };
    let setup = Setup { link: text(), username: text(), problem: Some(text()) }.render().unwrap();
    vec![
        ("login", login),
        ("consent", consent),
        ("message", message.render().unwrap()),
        ("grants", grants),
        ("hold", hold.render().unwrap()),
        ("setup", setup),
    ]
}

#[test]
fn nothing_a_stranger_wrote_becomes_markup() {
    for (name, html) in pages() {
        assert!(html.contains("&#60;script&#62;"), "{name} shows it: {html}");
        assert!(!html.contains("<script") && !html.contains("<b onclick") && !html.contains("\"'>"), "{name}: {html}");
        assert!(html.contains("{{ 7*7 }}&#38;amp;"), "{name}: {html}");
        assert!(html.contains("⟦U+202E⟧"), "{name}: {html}");
    }
}

/// What stands between `<` and `>`: what is escaped never does.
fn tags(html: &str) -> impl Iterator<Item = &str> {
    html.split('<').skip(1).filter_map(|rest| rest.split_once('>')).map(|(tag, _)| tag)
}

#[test]
fn no_page_has_a_script_a_style_of_its_own_or_anything_from_elsewhere() {
    for (name, html) in pages() {
        let mut n_addresses = 0;
        for tag in tags(&html) {
            let element = tag.split([' ', '\n']).next().unwrap_or_default();
            assert!(!["script", "style", "iframe", "img", "object", "base"].contains(&element), "{name}: {tag}");
            let names: String = tag.split('"').step_by(2).collect();
            assert!(
                ![" on", " style=", " src=", "xlink", "http-equiv"].iter().any(|it| names.contains(it)),
                "{name}: {tag}"
            );
            for attribute in [" href=\"", " action=\"", " formaction=\""] {
                if let Some((_, value)) = tag.split_once(attribute) {
                    n_addresses += 1;
                    assert!(value.starts_with('/') && !value.starts_with("//"), "{name}: {tag}");
                }
            }
        }
        assert!(n_addresses >= 3, "{name}: the tags are read");
    }
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"), "the style sheet loads nothing");
}

#[test]
fn a_page_is_answered_with_headers_that_keep_it_to_itself() {
    let page = Message { title: "x".into(), text: vec![], details: vec![], link: None, is_error: false };
    let response = answer(StatusCode::BAD_REQUEST, &page, None);

    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let expected = [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("content-security-policy", POLICY),
    ];
    for (name, value) in expected {
        assert_eq!(response.headers()[name], value, "{name}");
    }
}

#[test]
fn a_form_may_lead_to_the_client_and_nowhere_else() {
    let cases = [
        ("https://client.example/cb?x=1", Some("https://client.example")),
        ("https://client.example:8443/cb", Some("https://client.example:8443")),
        ("http://127.0.0.1:4711/callback", Some("http://127.0.0.1:4711")),
        ("http://127.0.0.2:4711/callback", Some("http:")),
        ("https://10.0.0.7/callback", Some("https:")),
        ("http://localhost:4711/callback", Some("http://localhost:4711")),
        ("http://[::1]:4711/callback", Some("http:")),
        ("cursor://anysphere.cursor-deeplink/mcp/auth", Some("cursor:")),
        ("com.example.app:/cb", Some("com.example.app:")),
        ("https://bücher.example/cb", Some("https://xn--bcher-kva.example")),
        // What would be another source, or another directive.
        ("https://*.example/cb", None),
        ("https://*/cb", None),
        ("https://a;script-src/cb", None),
        ("https://a'self'/cb", None),
        ("https://a, default-src *", None),
        ("javascript:alert(1)", None),
        ("data:text/html,x", None),
        ("*", None),
        ("'unsafe-inline'", None),
        ("a; script-src *", None),
        ("https://x\r\nSet-Cookie: a=b", None),
        ("", None),
    ];
    for (uri, source) in cases {
        let sent = policy(Some(uri));
        let expected = source.map_or(POLICY.to_owned(), |source| format!("{POLICY} {source}"));
        assert_eq!(sent.to_str().unwrap(), expected, "{uri}");
    }
}

#[test]
fn a_link_runs_nothing_and_reads_no_file() {
    let link = |href: &str| {
        let link = Some((href.to_owned(), "Go on".to_owned()));
        let page = Message { title: "x".into(), text: vec![], details: vec![], link, is_error: false };
        page.render().unwrap().contains("<a ")
    };
    for href in ["/grants", "/login?x=1", "https://client.example/cb?error=x", "http://127.0.0.1:1/", "cursor://x"] {
        assert!(link(href), "{href}");
    }
    let harmful = ["javascript:alert(1)", " javascript:x", "JAVASCRIPT:x", "java\nscript:x", "data:text/html,x"];
    for href in harmful.into_iter().chain(["file:///etc/passwd", "//evil.example", "/\\evil.example", "x", ""]) {
        assert!(!link(href), "{href}");
    }
}

#[test]
fn the_page_says_what_vouches_for_a_client() {
    let consent = |change: fn(&mut Asking)| {
        let mut asking = Asking {
            client: "Codex".into(),
            client_id: "https://chatgpt.example/client.json".into(),
            vouched_by: None,
            is_configured: false,
            sent_to: "client.example".into(),
            is_loopback: false,
            route: "files".into(),
            resource: "https://gw.example/mcp/files".into(),
            scopes: vec!["mcp".into(), "write".into()],
        };
        change(&mut asking);
        Consent { user: "alice".into(), asking, flow: "f".into(), csrf: "c".into() }.render().unwrap()
    };
    let (nobody, loopback) = ("Nobody vouches for this name", "app on your own computer");

    let registered = consent(|_| {});
    assert!(registered.contains(nobody) && !registered.contains(loopback), "{registered}");
    assert!(registered.contains("https://chatgpt.example/client.json") && registered.contains("client.example"));
    assert!(registered.contains("https://gw.example/mcp/files") && registered.contains("write"));
    let document = consent(|asking| asking.vouched_by = Some("chatgpt.example".into()));
    assert!(document.contains("vouches for this app") && !document.contains(nobody), "{document}");
    let configured = consent(|asking| asking.is_configured = true);
    assert!(configured.contains("into its configuration") && !configured.contains(nobody), "{configured}");
    assert!(consent(|asking| asking.is_loopback = true).contains(loopback));
    assert!(consent(|asking| asking.sent_to = "cursor:".into()).contains("an app on this device"));
    // Who presses Enter without reading denies nothing by mistake and allows nothing either: Deny is first.
    assert!(registered.find("value=\"deny\"") < registered.find("value=\"allow\""));
}

#[test]
fn times_are_written_for_people() {
    assert_eq!(moment(1_801_646_745_123), "3 February 2027, 09:25 UTC");
    assert_eq!(moment(i64::MAX), "at no time");
}
