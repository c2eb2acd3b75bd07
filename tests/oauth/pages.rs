//! The pages as people see them, in a real browser: every page in every state, by day and by night, on a desk and on a phone.

use super::gallery::{self, SAMPLES};
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
            assert_eq!(window.hindrances(), [""; 0], "{name}, {look_name}");
        }
    }
}
