//! The pages as people see them, in a real browser: every page in every state, by day and by night, on a desk and on a phone.

use super::gallery::{self, CLIENT, SAMPLES};
use crate::support::chromium::{Look, Window};

/// Looks at every page through such a window, and keeps a picture of it. `judge` gives what stands in people's way.
#[track_caller]
fn look_at_all(look_name: &str, look: Look, judge: fn(&Window) -> Vec<String>) {
    let server = format!("http://{}", gallery::serve());
    let Some(window) = Window::open(look, &[&server]) else {
        return;
    };
    for (name, _) in SAMPLES {
        let seen = window.goto(&format!("{server}/{name}"));

        window.shot(&format!("{name}-{look_name}"));
        assert!(!seen.heading.is_empty() && seen.title.ends_with(" · portcullis"), "{name}: {seen:?}");
        assert_eq!(judge(&window), [""; 0], "{name}, {look_name}");
    }
}

// Whatever a window loads is checked in each of these: nothing comes from elsewhere. The rules depend on colours, the measures
// on the room there is.

#[test]
fn no_page_stands_in_anybodys_way_on_a_desk_by_day() {
    look_at_all("desk", Look::DESK, Window::hindrances);
}

#[test]
fn no_page_stands_in_anybodys_way_on_a_desk_by_night() {
    look_at_all("desk-dark", Look::DESK.dark(), Window::hindrances);
}

#[test]
fn no_page_stands_in_anybodys_way_on_a_phone_by_day() {
    look_at_all("phone", Look::PHONE, Window::misfits);
}

#[test]
fn no_page_stands_in_anybodys_way_on_a_phone_by_night() {
    look_at_all("phone-dark", Look::PHONE.dark(), Window::misfits);
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
