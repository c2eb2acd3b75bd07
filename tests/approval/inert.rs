//! What an agent writes is shown whole, and does nothing (attack tests A-18 to A-21).

use super::held::{Holder, Wish, gateway, logged_in, password_of, path, recorded};
use crate::support::browser::{Browser, Page};
use crate::support::chromium::{Look, Window};
use portcullis::store::ApprovalState;
use serde_json::json;

/// Markup that would set a canary, in every way there is to get out of a text.
const MARKUP: &[&str] = &[
    "<script>window.__x=1</script>",
    "\"><img src=x onerror=\"window.__x=1\">",
    "'><svg onload=window.__x=1>",
    "</bdo></div></main></html><script>window.__x=1</script>",
    "<a href=\"javascript:window.__x=1\">press me</a>",
    "[link](javascript:window.__x=1) ![x](https://evil.test/x.png)",
    "{{ 7*7 }} {% call x %} ${7*7} &lt;b&gt; <!-- -->",
    "<style>body{display:none}</style><base href=https://evil.test/>",
    "<meta http-equiv=refresh content=\"0;url=https://evil.test/\">",
    "<iframe srcdoc=\"<script>parent.__x=1</script>\"></iframe>",
];

/// Characters that hide, turn, pile up, or speak to a terminal; and how each is shown.
const UNSEEN: &[(&str, &str)] = &[
    ("a\u{202e}b", "⟦U+202E⟧"),
    ("a\u{200b}b", "⟦U+200B⟧"),
    ("a\u{2066}b\u{2069}", "⟦U+2069⟧"),
    ("\u{1b}[2J\u{1b}]0;x\u{7}", "⟦U+001B⟧"),
    ("safe\rrm", "⟦U+000D⟧"),
    ("tag\u{e0041}", "⟦U+E0041⟧"),
    ("a\u{a0}b", "⟦U+00A0⟧"),
    ("Z\u{336}\u{336}\u{336}\u{336}\u{336}", "⟦U+0336⟧"),
    ("⟦U+0041⟧", "⟦U+27E6⟧"),
    ("⏎", "⟦U+23CE⟧"),
];

#[test]
fn a_20_markup_in_tool_keys_values_and_client_name_is_inert_in_a_browser() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let object: serde_json::Map<_, _> =
        MARKUP.iter().map(|markup| ((*markup).to_owned(), json!([markup, { *markup: markup }]))).collect();
    let mut wish = Wish::of(&json!(object).to_string()).found(MARKUP[0], MARKUP[1]);
    wish.tool = MARKUP.concat();
    wish.client = MARKUP.concat();
    let held = holder.hold(&wish);
    let origin = format!("http://{}", gateway.admin.unwrap());
    let Some(window) = Window::open(Look::DESK, &[&origin]) else {
        return;
    };
    window.goto(&format!("{origin}{}", path(&held)));
    window.fill("User name", "alice");
    window.fill("Password", &password_of("alice"));
    let page = window.press("Log in");

    for markup in MARKUP {
        assert!(page.text.contains(markup), "{markup} is shown: {}", page.text);
    }
    let (canary, names) = window.census(".fence");
    assert_eq!(canary, "undefined");
    assert_eq!(names, ["bdo", "div", "h3", "li", "p", "span", "ul"], "only our own elements are behind the fence");
    window.goto(&origin);
    let (canary, names) = window.census("main");
    assert_eq!(canary, "undefined");
    assert!(!names.iter().any(|name| ["script", "img", "iframe", "svg", "style"].contains(&&**name)), "{names:?}");
}

#[test]
fn a_19_what_cannot_be_seen_is_named_and_nothing_can_pass_for_such_a_name() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let mut browser = logged_in(&gateway, "alice");
    for (text, shown) in UNSEEN {
        let mut wish = Wish::of(&json!({ *text: text, "plain": "rm -rf /" }).to_string());
        wish.tool = format!("tool{text}");
        let page = browser.get(&path(&holder.hold(&wish))).text();

        let escape = format!("<span class=\"esc\">{shown}</span>");
        assert!(page.matches(&escape).count() >= 2, "{text:?} is {escape} in its key and its value: {page}");
        // The signs that stand for something are the page's own, too.
        for c in text.chars().filter(|c| !c.is_ascii() && !"⟧⟦⏎\u{336}".contains(*c)) {
            assert!(!page.contains(c), "{c:?} itself is not in {page}");
        }
        assert!(!page.contains('\u{1b}') && !page.contains('\r'), "{page}");
    }
}

#[test]
fn a_21_what_is_shown_is_the_canonical_form_with_types_and_sizes_and_masked_values_left_out() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let mut wish = Wish::of(r#"{ "z":1.0, "a":"1", "list":[], "secret":"hunter2 hunter2", "text":"one\ntwo\n" }"#);
    wish.terms.mask.insert("/secret".to_owned());
    let held = holder.hold(&wish);
    let page = logged_in(&gateway, "alice").get(&path(&held)).text();

    for size in ["object, 5 members", "string, 1 byte", "array, 0 elements", "number", "string, 8 bytes, 3 lines"] {
        assert!(page.contains(size), "{size}: {page}");
    }
    assert!(!page.contains("hunter2"), "{page}");
    assert!(page.contains("[masked, 15 bytes, tag "), "{page}");
    let digest: String = held.digest.iter().map(|byte| format!("{byte:02x}")).collect();
    for group in digest.as_bytes().chunks(8) {
        let group = format!("<span>{}</span>", String::from_utf8_lossy(group));
        assert!(page.contains(&group), "{group}: {page}");
    }
}

/// Everything between the fences of a page, without tags.
fn fenced(page: &Page) -> String {
    let text = page.text();
    let inside = text.split("class=\"fence\"").nth(1).expect("there is a fence");
    let inside = inside.split("</section>").next().unwrap_or_default();
    let mut out = String::new();
    for part in inside.split('<') {
        out.push_str(part.split_once('>').map_or("", |(_, text)| text));
    }
    out
}

/// The text of the values of a page.
fn values(page: &Page) -> String {
    let text = page.text();
    let lines = text.split("<div class=\"line\">").skip(1).filter_map(|line| line.split("</div>").next());
    let texts = lines.filter_map(|line| line.split_once("<bdo dir=\"ltr\">").map(|(_, text)| text));
    texts.flat_map(|text| text.split('<').map(|part| part.rsplit('>').next().unwrap_or(part).to_owned())).collect()
}

/// The pages of all parts, in order, as a person goes through them.
fn all_parts(browser: &mut Browser, first: Page) -> Vec<Page> {
    let mut pages = vec![first];
    loop {
        let text = pages.last().expect("one").text();
        let Some(at) = text.find("class=\"main\" href=\"") else {
            return pages;
        };
        let link = text[at..].split('"').nth(3).expect("a link").replace("&amp;", "&");
        pages.push(browser.get(&link));
    }
}

#[test]
fn a_18_a_megabyte_is_shown_in_parts_and_approving_is_impossible_before_the_last() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let filler = "nothing to see here; ".repeat(25_000);
    let text = format!("{filler}\u{202e}rm -rf /etc{filler}the very end");
    let held = holder.hold(&Wish::of(&json!({ "text": text }).to_string()));
    let mut browser = logged_in(&gateway, "alice");
    let first = browser.get(&path(&held));
    assert!(
        !first.text().contains("value=\"approve\"") && first.text().contains("value=\"deny\""),
        "{}",
        first.status()
    );
    assert!(first.text().contains("1,050,"), "its size is said");

    // Whoever writes the form by themselves has no note of what they were shown.
    let (action, mut fields) = first.filled(&[("decision", "deny"), ("password", &password_of("alice"))]);
    fields.iter_mut().filter(|(name, _)| name == "decision").for_each(|(_, value)| *value = "approve".to_owned());
    let forced = browser.post(&action, &fields);
    assert_eq!((forced.status(), holder.state(&held)), (403, ApprovalState::Pending));
    recorded(&gateway, "approval.refused", "approval.unseen");
    // Nor does a leap to the end help: what comes next is the next part.
    let leap = browser.get(&format!("{}?part=99", path(&held)));
    assert!(leap.text().contains("<b>Part 1 of "), "{}", leap.status());
    assert!(!leap.text().contains("value=\"approve\""));

    let pages = all_parts(&mut browser, first);
    assert!(pages.len() > 10, "{} parts", pages.len());
    let whole: String = pages.iter().map(values).collect();
    assert!(whole.contains("⟦U+202E⟧rm -rf /etc") && whole.contains("the very end"), "nothing is left out");
    assert_eq!(whole.matches("nothing to see here; ").count(), 50_000);
    let last = pages.last().expect("a last part");
    browser.submit(last, &[("decision", "approve"), ("password", &password_of("alice"))]);
    assert_eq!(holder.state(&held), ApprovalState::Approved);
}

#[test]
fn a_long_call_can_be_denied_at_once() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish::of(&json!({ "text": "x".repeat(500_000) }).to_string()));
    let mut browser = logged_in(&gateway, "alice");

    let page = browser.get(&path(&held));
    browser.submit(&page, &[("decision", "deny"), ("password", &password_of("alice"))]);

    assert_eq!(holder.state(&held), ApprovalState::Denied);
}

#[test]
fn ten_thousand_values_deep_nesting_and_blank_lines_are_all_there() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let mut browser = logged_in(&gateway, "alice");
    let many: serde_json::Map<_, _> = (0..10_000).map(|n| (format!("key{n:05}"), json!(n))).collect();
    let deep = format!("{}1{}", "[".repeat(60), "]".repeat(60));
    let blank = json!({ "text": format!("start{}end", "\n".repeat(5_000)) }).to_string();

    for (arguments, sought) in [
        (json!(many).to_string(), vec!["key00000", "key05000", "key09999"]),
        (format!(r#"{{"deep":{deep}}}"#), vec!["level 60"]),
        (blank, vec!["start", "5001 lines", "end"]),
    ] {
        let held = holder.hold(&Wish::of(&arguments));
        let first = browser.get(&path(&held));
        let shown: String = all_parts(&mut browser, first).iter().map(fenced).collect();
        for text in sought {
            assert!(shown.contains(text), "{text} of {}", &arguments[..40]);
        }
    }
}
