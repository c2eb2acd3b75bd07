//! The pages as people see them, in a real browser: every page in every state, by day and by night, on a desk and on a phone.

use super::gallery::{self, CLIENT, SAMPLES};
use crate::support::chromium::{Look, Window};

/// Each kind of window once.
const LOOKS: &[(&str, Look)] = &[
    ("desk", Look::DESK),
    ("desk-dark", Look::DESK.dark()),
    ("phone", Look::PHONE),
    ("phone-dark", Look::PHONE.dark()),
];

#[test]
fn no_page_stands_in_anybodys_way_nor_loads_anything_from_elsewhere() {
    let server = format!("http://{}", gallery::serve());

    for (look_name, look) in LOOKS {
        let Some(window) = Window::open(*look, &[&server]) else {
            return;
        };
        for (name, _) in SAMPLES {
            let seen = window.goto(&format!("{server}/{name}"));

            window.shot(&format!("{name}-{look_name}"));
            assert!(!seen.heading.is_empty() && seen.title.ends_with(" · portcullis"), "{name}: {seen:?}");
            // The rules depend on colours, the measures on the room there is.
            let is_for_rules = look.size == Look::DESK.size;
            let hindrances = if is_for_rules { window.hindrances() } else { window.misfits() };
            assert_eq!(hindrances, [""; 0], "{name}, {look_name}");
        }
    }
}

#[test]
fn pages_are_read_on_paper_and_where_the_system_has_a_few_colours_only() {
    let server = format!("http://{}", gallery::serve());
    let look = Look { has_forced_colors: true, ..Look::DESK };
    let Some(window) = Window::open(look, &[&server]) else {
        return;
    };
    for name in ["consent-document", "login-refused", "grants-revoked"] {
        window.goto(&format!("{server}/{name}"));
        window.shot(&format!("{name}-forced-colors"));
        window.print(&format!("{name}-print"));
        assert_eq!(window.hindrances(), [""; 0], "{name}");
    }
}

#[test]
fn what_is_in_the_way_is_seen() {
    let server = format!("http://{}", gallery::serve());
    let Some(window) = Window::open(Look::PHONE, &[&server]) else {
        return;
    };
    window.goto(&format!("{server}/login"));
    window.spoil();

    let found = window.hindrances().join("\n");

    for hindrance in ["color-contrast", "label", "smaller than 44 px", "px wider than the window", "html-has-lang"] {
        assert!(found.contains(hindrance), "{hindrance} is found in {found}");
    }
}

#[test]
fn a_form_leads_to_the_client_its_page_names_and_to_no_other() {
    let server = format!("http://{}", gallery::serve());
    let Some(window) = Window::open(Look::DESK, &[&server]) else {
        return;
    };
    window.goto(&format!("{server}/consent-registered"));
    let named = window.press_in_vain("Allow", &format!("GET {CLIENT}"));
    assert!(!named.iter().any(|line| line.contains("Content Security Policy")), "{named:?}");

    let Some(window) = Window::open(Look::DESK, &[&server]) else {
        return;
    };
    window.goto(&format!("{server}/grants-revoked"));
    let other = window.press_in_vain("Log out", "form-action");
    assert!(other.iter().any(|line| line.contains("Content Security Policy")), "{other:?}");
    assert!(!other.iter().any(|line| line.contains(CLIENT)), "{other:?}");
}
