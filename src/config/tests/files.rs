//! Files that are cut, broken, hostile, or no files.

use super::{FULL, check, messages};
use crate::config::{Known, fuzz_load, load, read};
use proptest::prelude::*;
use std::path::Path;

#[test]
fn a_file_cut_anywhere_is_good_or_says_where_it_is_not() {
    for end in (0..FULL.len()).filter(|end| FULL.is_char_boundary(*end)) {
        let text = &FULL[..end];
        if let Err(problems) = load(text, "gateway.yaml") {
            for problem in &problems {
                assert!(problem.location.is_some(), "{end}: {problem}");
                assert!(
                    !problem.path.is_root() || problem.location.as_ref().is_some_and(|at| at.line > 0),
                    "{end}: {problem}"
                );
            }
        }
    }
}

#[test]
fn a_file_that_is_no_text_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gateway.yaml");
    let large = format!("a: {}\n", "x".repeat(1024 * 1024));

    for (bytes, expected) in [
        (&b"a: 1\nb: \xff\n"[..], "not UTF-8 text from here on"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "not YAML: unexpected character: `\\u{7f}'"),
        (b"a: \0b\n", "not YAML: unexpected character: `\\u{0}'"),
        (large.as_bytes(), "`FILE` is larger than 1048576 bytes"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let problems = read(&path).expect_err("refused");
        let first = problems.iter().next().expect("a problem");
        assert_eq!(first.message.replace(&path.display().to_string(), "FILE"), expected);
    }
}

#[test]
fn what_is_not_a_file_is_refused_at_once() {
    for (path, expected) in [
        ("/dev/zero", "error: `/dev/zero` is a pipe, socket or device, not a file"),
        ("/tmp", "error: `/tmp` is a directory, not a file"),
        ("/nowhere", "error: `/nowhere` cannot be read: No such file or directory (os error 2)"),
    ] {
        assert_eq!(read(Path::new(path)).expect_err("refused").to_string(), expected);
    }
}

#[test]
fn line_ends_and_a_byte_order_mark_make_no_difference() {
    let plain = load(FULL, "g.yaml").expect("good");

    for text in [FULL.replace('\n', "\r\n"), format!("\u{feff}{FULL}")] {
        let loaded = load(&text, "g.yaml").expect("good");
        assert_eq!(format!("{:?}", loaded.config), format!("{:?}", plain.config));
        assert_ne!(loaded.hash, plain.hash);
    }
    assert_eq!(plain.hash, load(FULL, "h.yaml").expect("good").hash);
    check(
        "\u{feff}listn: a\r\nupstreams: 1\r\npolicy: 2\r\n",
        r#"
error: unknown key `listn` (gateway.yaml:1:1)
  1 | listn: a
    | ^^^^^
hint: did you mean `listen`?

error: expected a mapping, found the number `1` (gateway.yaml:2:12)
  2 | upstreams: 1
    |            ^

error: expected a mapping, found the number `2` (gateway.yaml:3:9)
  3 | policy: 2
    |         ^
"#,
    );
}

#[test]
fn an_alias_bomb_is_refused_before_it_grows() {
    let mut text = "a0: &a0 [x, x]\n".to_owned();
    for n in 1..40 {
        let below = n - 1;
        text.push_str(&format!("a{n}: &a{n} [*a{below}, *a{below}]\n"));
    }

    let messages = messages(&text);

    assert!(messages.len() <= 102, "{}", messages.len());
    assert!(messages[0].starts_with("error: YAML anchors are not read"));
}

#[test]
fn a_file_of_mistakes_is_not_listed_to_the_end() {
    let text: String = (0..20_000).map(|n| format!("k{n}: 1\n")).collect();

    assert!(messages(&text).len() <= 102);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// What the schema lets through, serde builds: the one is as strict as the other.
    #[test]
    fn no_edit_of_a_good_file_passes_the_schema_and_fails_to_build(
        cuts in prop::collection::vec((0..FULL.len(), 0_usize..12, "[a-z0-9:{}\\[\\], \n\"'*-]{0,4}"), 1..3)
    ) {
        let mut text = FULL.to_owned();
        for (at, len, put) in cuts {
            let at = at.min(text.len());
            let end = (at + len).min(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(end) {
                text.replace_range(at..end, &put);
            }
        }
        match load(&text, "gateway.yaml") {
            Ok(loaded) => drop(loaded.check(Known::default()).to_string()),
            Err(problems) => for problem in &problems {
                let place = problem.location.as_ref().expect("a place");
                prop_assert!(place.line > 0 || problem.message.starts_with("section"), "{problem}\n{text}");
            },
        }
    }

    #[test]
    fn any_text_is_read_without_panic(text in "\\PC{0,200}") {
        fuzz_load(text.as_bytes());
    }
}
