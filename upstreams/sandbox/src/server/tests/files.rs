//! Every file tool, and what it refuses.

use super::house::{House, settings};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

/// A house, and alice's folder in it.
async fn house() -> (House, std::path::PathBuf) {
    let house = House::open().await;
    house.user("alice").call("list_directory", json!({})).await;
    let folder = house.folder_of("user-alice");
    (house, folder)
}

#[tokio::test]
async fn what_was_written_is_read_in_both_eras_and_by_both_spellings() {
    let (house, folder) = house().await;
    for (agent, path) in [(house.user("alice"), "a/b.txt"), (house.session("alice").await, "/workspace/c/d.txt")] {
        let arguments = json!({"path": path, "content": "grüße\n", "create_parents": true});
        let (answer, said) = agent.call("write_file", arguments).await;
        let relative = path.trim_start_matches("/workspace/");
        assert_eq!(answer, json!({"path": relative, "created": true, "written": 8, "size": 8}));
        assert_eq!(said, format!("made {relative} with 8 bytes"));

        let (answer, said) = agent.call("read_file", json!({"path": path})).await;

        let expected = json!({
            "path": relative, "encoding": "utf-8", "content": "grüße\n", "offset": 0, "length": 8, "size": 8,
            "more": false, "replaced": false,
        });
        assert_eq!(answer, expected);
        assert_eq!(said, "grüße\n");
        assert_eq!(fs::read_to_string(folder.join(relative)).unwrap(), "grüße\n");
    }
}

#[tokio::test]
async fn a_file_is_read_by_lines_and_by_bytes_and_is_told_to_go_on() {
    let (house, folder) = house().await;
    let alice = house.user("alice");
    let lines: String = (1..=10).map(|n| format!("line {n}\n")).collect();
    fs::write(folder.join("lines"), &lines).unwrap();
    fs::write(folder.join("umlauts"), "äöü").unwrap();

    let (answer, said) = alice.call("read_file", json!({"path": "lines", "first_line": 3, "n_lines": 2})).await;
    assert_eq!(answer["content"], "line 3\nline 4\n");
    assert_eq!((&answer["first_line"], &answer["n_lines"], &answer["more"]), (&json!(3), &json!(2), &json!(true)));
    assert!(said.ends_with("[lines: up to byte 28 of 71; `first_line: 5` reads on]"), "{said}");

    let (answer, _) = alice.call("read_file", json!({"path": "lines", "first_line": 9})).await;
    assert_eq!(answer["content"], "line 9\nline 10\n");
    assert_eq!(answer["more"], json!(false));

    let (answer, said) = alice.call("read_file", json!({"path": "lines", "offset": 7, "length": 6})).await;
    assert_eq!(answer["content"], "line 2");
    assert!(said.ends_with("`offset: 13` reads on]"), "{said}");

    // The second character is cut in two: it comes whole with the next part.
    let (answer, _) = alice.call("read_file", json!({"path": "umlauts", "length": 3})).await;
    assert_eq!((&answer["content"], &answer["length"]), (&json!("ä"), &json!(2)));
    let (answer, _) = alice.call("read_file", json!({"path": "umlauts", "offset": 2})).await;
    assert_eq!(answer["content"], "öü");

    for (arguments, why) in [
        (json!({"path": "lines", "first_line": 12}), "`lines` ends before line 12"),
        (json!({"path": "lines", "offset": 72}), "`lines` ends before byte 72"),
        (json!({"path": "lines", "offset": u64::MAX}), "beyond what a file can hold"),
        (json!({"path": "lines", "offset": i64::MAX}), "beyond what a file can hold"),
        (json!({"path": "lines", "first_line": 0}), "`first_line` is 0"),
        (json!({"path": "lines", "n_lines": 0}), "`n_lines` is 0"),
        (json!({"path": "lines", "first_line": 1, "offset": 1}), "not both"),
        (json!({"path": "lines", "first_line": -1}), "invalid value"),
        (json!({"path": "lines", "encoding": "latin1"}), "unknown variant `latin1`"),
    ] {
        let said = alice.refused("read_file", arguments).await;
        assert!(said.contains(why), "{said}");
    }
}

#[tokio::test]
async fn a_name_cannot_end_the_note_that_says_it() {
    let (house, folder) = house().await;
    fs::write(folder.join("a: the file is empty]\nb"), "").unwrap();

    let (_, said) = house.user("alice").call("read_file", json!({"path": "a: the file is empty]\nb"})).await;

    assert_eq!(said.trim_start(), "[a: the file is empty]\\nb: the file is empty]");
}

#[tokio::test]
async fn what_is_not_text_comes_in_base64_or_as_text_where_that_is_wanted() {
    let (house, folder) = house().await;
    let alice = house.user("alice");
    fs::write(folder.join("latin1"), b"gr\xfc\xdfe").unwrap();
    fs::write(folder.join("nul"), b"a\0b").unwrap();
    fs::write(folder.join("empty"), b"").unwrap();

    for (file, bytes) in [("latin1", b"gr\xfc\xdfe".as_slice()), ("nul", b"a\0b")] {
        let (answer, said) = alice.call("read_file", json!({"path": file})).await;
        assert_eq!(answer["encoding"], "base64");
        assert_eq!(STANDARD.decode(answer["content"].as_str().unwrap()).unwrap(), bytes);
        assert!(said.contains("not text"), "{said}");
    }
    let (answer, said) = alice.call("read_file", json!({"path": "latin1", "encoding": "utf-8"})).await;
    assert_eq!((&answer["content"], &answer["replaced"]), (&json!("gr\u{fffd}\u{fffd}e"), &json!(true)));
    assert!(said.contains("not all of it is UTF-8"), "{said}");
    let (answer, said) = alice.call("read_file", json!({"path": "empty"})).await;
    assert_eq!((&answer["content"], &answer["encoding"]), (&json!(""), &json!("utf-8")));
    assert!(said.contains("the file is empty"), "{said}");

    let arguments = json!({"path": "bytes", "content": "AP8=", "encoding": "base64"});
    alice.call("write_file", arguments).await;
    assert_eq!(fs::read(folder.join("bytes")).unwrap(), [0, 255]);
    let said = alice.refused("write_file", json!({"path": "x", "content": "%", "encoding": "base64"})).await;
    assert!(said.contains("not base64"), "{said}");
}

#[tokio::test]
async fn one_answer_holds_a_mebibyte_and_the_next_one_goes_on() {
    let (house, folder) = house().await;
    let alice = house.user("alice");
    let content: String = (0..400_000).map(|n| format!("{n}\n")).collect();
    fs::write(folder.join("big"), &content).unwrap();
    fs::write(folder.join("one-line"), "x".repeat(3 << 20)).unwrap();

    let mut read = String::new();
    loop {
        let (answer, _) = alice.call("read_file", json!({"path": "big", "offset": read.len()})).await;
        assert!(answer["length"].as_u64().unwrap() <= 1 << 20);
        read.push_str(answer["content"].as_str().unwrap());
        if answer["more"] == json!(false) {
            break;
        }
    }

    assert!(read == content);
    let (answer, said) = alice.call("read_file", json!({"path": "one-line", "first_line": 1})).await;
    assert_eq!((&answer["length"], &answer["more"]), (&json!(1 << 20), &json!(true)));
    assert!(said.ends_with("`offset: 1048576` reads on]"), "a line that is cut goes on by bytes");
}

#[tokio::test]
async fn each_mode_of_writing_does_what_it_says() {
    let (house, folder) = house().await;
    let alice = house.user("alice");
    let write = |mode: &str, content: &str| json!({"path": "f", "content": content, "mode": mode});

    let (answer, _) = alice.call("write_file", write("append", "1")).await;
    assert_eq!(answer["created"], json!(true), "append makes what is missing");
    let said = alice.refused("write_file", write("create", "2")).await;
    assert!(said.contains("`f` exists already") && said.contains("mode: overwrite"), "{said}");
    assert_eq!(fs::read_to_string(folder.join("f")).unwrap(), "1");
    let (answer, _) = alice.call("write_file", write("append", "23")).await;
    assert_eq!(answer, json!({"path": "f", "created": false, "written": 2, "size": 3}));
    assert_eq!(fs::read_to_string(folder.join("f")).unwrap(), "123");
    let (answer, _) = alice.call("write_file", write("overwrite", "4")).await;
    assert_eq!(answer, json!({"path": "f", "created": false, "written": 1, "size": 1}));
    assert_eq!(fs::read_to_string(folder.join("f")).unwrap(), "4");

    let said = alice.refused("write_file", json!({"path": "no/such/f", "content": ""})).await;
    assert!(said.contains("there is no folder `no/such`") && said.contains("create_parents"), "{said}");
    let said = alice.refused("write_file", json!({"path": "f/g", "content": "", "create_parents": true})).await;
    assert!(said.contains("is a file, not a folder"), "{said}");
    assert!(!folder.join("no").exists());
}

#[tokio::test]
async fn a_replaced_file_keeps_its_permissions_but_never_set_user_id() {
    let (house, folder) = house().await;
    let alice = house.user("alice");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let file = folder.join("f");
    let overwrite = json!({"path": "f", "content": "x", "mode": "overwrite"});
    for (before, after) in [(0o755, 0o755), (0o600, 0o600), (0o6755, 0o755), (0o4711, 0o711), (0o1644, 0o644)] {
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(before)).unwrap();

        alice.call("write_file", overwrite.clone()).await;

        assert_eq!(mode(&file), after, "{before:o}");
        fs::set_permissions(&file, fs::Permissions::from_mode(before)).unwrap();
        let edits = json!([{"old": "x", "new": "y"}]);
        alice.call("edit_file", json!({"path": "f", "edits": edits})).await;
        assert_eq!(mode(&file), after, "{before:o}");
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();

    let said = alice.refused("write_file", overwrite).await;

    assert!(said.contains("read-only (mode 0444)"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "y");
}

#[tokio::test]
async fn a_reader_has_the_old_contents_or_the_new_ones() {
    let (house, folder) = house().await;
    let alice = house.user("alice");
    fs::write(folder.join("f"), "old").unwrap();
    let held = fs::File::open(folder.join("f")).unwrap();
    fs::hard_link(folder.join("f"), folder.join("other-name")).unwrap();

    alice.call("write_file", json!({"path": "f", "content": "new", "mode": "overwrite"})).await;

    assert_eq!(std::io::read_to_string(held).unwrap(), "old", "nothing was written into it");
    assert_eq!(fs::read_to_string(folder.join("f")).unwrap(), "new");
    assert_eq!(fs::read_to_string(folder.join("other-name")).unwrap(), "old", "it is another file now");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing of ours is left in the folder");
    let ours: Vec<_> = fs::read_dir(house.folder_of("staging")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(ours.len(), 1, "the folder of this process");
    assert_eq!(fs::read_dir(&ours[0]).unwrap().count(), 0);
}

#[tokio::test]
async fn exact_pieces_are_replaced_all_or_none() {
    let (house, folder) = house().await;
    let alice = house.user("alice");
    fs::write(folder.join("f"), "one\ntwo\nthree\n").unwrap();
    let edit = |edits: Value| json!({"path": "f", "edits": edits});

    let said = alice.refused("edit_file", edit(json!([{"old": "one", "new": "1"}, {"old": "four", "new": "4"}]))).await;
    assert!(said.contains("edit 2: `old` is not there") && said.contains("nothing was changed"), "{said}");
    assert_eq!(fs::read_to_string(folder.join("f")).unwrap(), "one\ntwo\nthree\n");

    let (answer, said) =
        alice.call("edit_file", edit(json!([{"old": "one", "new": "1"}, {"old": "1\ntwo", "new": "1\n2"}]))).await;
    assert_eq!((&answer["replaced"], &answer["size"]), (&json!(2), &json!(10)));
    assert_eq!(answer["diff"], "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n-one\n-two\n+1\n+2\n three\n");
    assert!(said.starts_with("replaced 2 places in f\n--- a/f"), "{said}");
    assert_eq!(fs::read_to_string(folder.join("f")).unwrap(), "1\n2\nthree\n");

    fs::write(folder.join("binary"), b"\xff").unwrap();
    for (arguments, why) in [
        (edit(json!([{"old": "three", "new": "three"}])), "leave `f` as it is"),
        (edit(json!([])), "0 entries"),
        (edit(json!([{"old": "e", "new": ""}])), "2 times"),
        (json!({"path": "binary", "edits": [{"old": "a", "new": "b"}]}), "not text: byte 0"),
        (json!({"path": "missing", "edits": [{"old": "a", "new": "b"}]}), "there is no `missing`"),
        (json!({"path": ".", "edits": [{"old": "a", "new": "b"}]}), "`.` is a folder"),
    ] {
        let said = alice.refused("edit_file", arguments).await;
        assert!(said.contains(why), "{said}");
    }
}

#[tokio::test]
async fn a_folder_is_listed_with_what_is_in_it_in_order() {
    let (house, folder) = house().await;
    fs::create_dir_all(folder.join("b/c/d")).unwrap();
    fs::write(folder.join("b/c/file"), "12345").unwrap();
    fs::write(folder.join("a\nb"), "").unwrap();
    symlink("/etc/passwd", folder.join("z")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, folder.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let listed = |answer: &Value| -> Vec<String> {
        let entries = answer["entries"].as_array().unwrap().iter();
        entries
            .map(|entry| format!("{} {}", entry["type"].as_str().unwrap(), entry["path"].as_str().unwrap()))
            .collect()
    };
    for agent in [house.user("alice"), house.session("alice").await] {
        let (answer, said) = agent.call("list_directory", json!({})).await;
        assert_eq!(listed(&answer), ["file a\nb", "directory b", "other pipe", "symlink z"]);
        assert_eq!(answer["entries"][3]["target"], "/etc/passwd");
        assert!(said.starts_with(".: 4 entries\na\\nb  0  2"), "a name is one line: {said}");
        assert!(said.contains("\nz -> /etc/passwd"), "{said}");

        let (answer, _) = agent.call("list_directory", json!({"path": "b", "recursive": true})).await;
        assert_eq!(listed(&answer), ["directory b/c", "directory b/c/d", "file b/c/file"]);
        assert_eq!(answer["entries"][2]["size"], json!(5));
        let modified = answer["entries"][2]["modified"].as_str().unwrap();
        assert!(modified.len() == 20 && modified.starts_with("20") && modified.ends_with('Z'), "{modified}");

        let (answer, _) = agent.call("list_directory", json!({"recursive": true, "max_depth": 2})).await;
        assert_eq!(listed(&answer).len(), 5);
    }
    let alice = house.user("alice");
    for (arguments, why) in [
        (json!({"path": "missing"}), "there is no `missing`"),
        (json!({"path": "b/c/file"}), "`b/c/file` is a file, not a folder"),
        (json!({"path": "z"}), "`z` is a symbolic link to `/etc/passwd`"),
        (json!({"max_depth": 2}), "for `recursive: true`"),
        (json!({"recursive": true, "max_depth": 65}), "from 1 to 64"),
    ] {
        let said = alice.refused("list_directory", arguments).await;
        assert!(said.contains(why), "{said}");
    }
}

#[tokio::test]
async fn a_large_folder_is_cut_after_its_first_thousand_entries() {
    let (house, folder) = house().await;
    for n in (0..1500).rev() {
        fs::write(folder.join(format!("{n:04}")), "").unwrap();
    }

    let (answer, said) = house.user("alice").call("list_directory", json!({"recursive": true})).await;

    let entries = answer["entries"].as_array().unwrap();
    assert_eq!((entries.len(), &answer["truncated"]), (1000, &json!(true)));
    assert_eq!((&entries[0]["path"], &entries[999]["path"]), (&json!("0000"), &json!("0999")));
    assert!(said.contains("and more that are not listed"), "{said:.200}");
    for n in 1000..1500 {
        fs::remove_file(folder.join(format!("{n:04}"))).unwrap();
    }
    let (answer, _) = house.user("alice").call("list_directory", json!({})).await;
    assert_eq!(answer["truncated"], json!(false), "a thousand are all of them");
}

#[tokio::test]
async fn lines_that_match_are_found_and_what_is_left_out_is_said() {
    let (house, folder) = house().await;
    fs::create_dir_all(folder.join("src/deep")).unwrap();
    fs::create_dir_all(folder.join(".git")).unwrap();
    fs::write(folder.join("src/a.rs"), "fn main() {}\r\n\r\nfn other() {}\r\n").unwrap();
    fs::write(folder.join("src/deep/b.rs"), "// fn in a comment\n").unwrap();
    fs::write(folder.join("src/c.txt"), "fn text").unwrap();
    fs::write(folder.join("binary"), b"fn \0").unwrap();
    fs::write(folder.join(".git/config"), "fn").unwrap();
    fs::write(folder.join("large"), "fn\n".repeat(6 << 20)).unwrap();
    symlink("/etc/passwd", folder.join("passwd")).unwrap();
    let found = |answer: &Value| -> Vec<String> {
        let found = answer["matches"].as_array().unwrap().iter();
        found.map(|found| format!("{}:{}", found["path"].as_str().unwrap(), found["line"])).collect()
    };
    for agent in [house.user("alice"), house.session("alice").await] {
        let (answer, said) = agent.call("search_files", json!({"pattern": "^fn|root"})).await;
        assert_eq!(found(&answer), ["src/a.rs:1", "src/a.rs:3", "src/c.txt:1"]);
        assert_eq!(answer["matches"][0]["text"], "fn main() {}");
        assert_eq!((&answer["files"], &answer["skipped"]), (&json!(3), &json!(2)));
        assert!(said.starts_with("3 matches in 3 files, 2 not searched\nsrc/a.rs:1: fn main() {}"), "{said}");

        let (answer, _) = agent.call("search_files", json!({"pattern": "fn", "glob": "*.rs", "path": "src"})).await;
        assert_eq!(found(&answer), ["src/a.rs:1", "src/a.rs:3", "src/deep/b.rs:1"]);
        let (answer, _) = agent.call("search_files", json!({"pattern": "fn", "glob": "deep/*", "path": "src"})).await;
        assert_eq!(found(&answer), ["src/deep/b.rs:1"]);
        let (answer, _) = agent.call("search_files", json!({"pattern": "(?i)MAIN", "path": "src/a.rs"})).await;
        assert_eq!(found(&answer), ["src/a.rs:1"]);
        let (answer, _) = agent.call("search_files", json!({"pattern": "^$"})).await;
        assert_eq!(found(&answer), ["src/a.rs:2"], "what comes after the last line end is no line");
        let (answer, said) = agent.call("search_files", json!({"pattern": "fn", "max_matches": 1})).await;
        assert_eq!((found(&answer).len(), &answer["truncated"]), (1, &json!(true)));
        assert!(said.contains("there are more"), "{said}");
    }
    let alice = house.user("alice");
    for (arguments, why) in [
        (json!({"pattern": "("}), "unclosed group"),
        (json!({"pattern": ""}), "0 bytes"),
        (json!({"pattern": "((((((a{1000}){1000}){1000}"}), "cannot be used"),
        (json!({"pattern": "(?:a{1000}){1000}"}), "size limit"),
        (json!({"pattern": "[ab]*a[ab]{10000}[c-z]"}), "size limit"),
        (json!({"pattern": "a", "glob": "["}), "not closed"),
        (json!({"pattern": "a", "max_matches": 1001}), "from 1 to 1000"),
        (json!({"pattern": "a", "path": "passwd"}), "is a symbolic link"),
        (json!({"pattern": "a", "path": "missing"}), "there is no `missing`"),
    ] {
        let said = alice.refused("search_files", arguments).await;
        assert!(said.contains(why), "{said}");
    }
}

#[tokio::test]
async fn what_is_beyond_the_bound_of_a_line_is_not_searched_and_that_is_said() {
    let (house, folder) = house().await;
    fs::write(folder.join("f"), format!("{0}end\nend{0}\nend\n", " ".repeat(16 * 1024))).unwrap();

    let (answer, said) = house.user("alice").call("search_files", json!({"pattern": "end", "path": "f"})).await;

    let lines: Vec<_> = answer["matches"].as_array().unwrap().iter().map(|found| &found["line"]).collect();
    assert_eq!(lines, [&json!(2), &json!(3)]);
    assert_eq!(answer["cut_lines"], json!(2));
    assert!(said.starts_with("2 matches in 1 file, 2 lines searched in the first 16 KiB only\n"), "{said:.200}");
}

#[tokio::test]
async fn what_would_go_over_the_quota_is_refused_before_it_is_written() {
    let house = House::with(crate::settings::Settings { quota: 1 << 20, ..settings() }).await;
    let alice = house.user("alice");
    let write = |path: &str, n: usize| json!({"path": path, "content": "x".repeat(n), "mode": "overwrite"});
    alice.call("write_file", write("a", 600_000)).await;

    let said = alice.refused("write_file", write("b", 600_000)).await;

    assert!(said.contains("the workspace is full: it may hold 1 MiB, holds 588 KiB"), "{said}");
    assert!(!house.folder_of("user-alice").join("b").exists());
    alice.call("write_file", write("a", 1_000_000)).await;
    let said = alice.refused("write_file", json!({"path": "a", "content": "x".repeat(60_000), "mode": "append"})).await;
    assert!(said.contains("the workspace is full"), "{said}");
    assert_eq!(house.folder_of("user-alice").join("a").metadata().unwrap().size(), 1_000_000);
    alice.call("write_file", write("a", 10)).await;
    alice.call("write_file", write("b", 600_000)).await;
    // Another principal's folder is none of her business.
    house.user("bob").call("write_file", write("a", 1_000_000)).await;
}

#[tokio::test]
async fn a_full_disk_is_left_with_its_reserve() {
    let house = House::with(crate::settings::Settings { reserve: u64::MAX / 2, ..settings() }).await;

    let said = house.user("alice").refused("write_file", json!({"path": "a", "content": "x"})).await;

    assert!(said.contains("nearly full"), "{said}");
    assert!(!house.folder_of("user-alice").join("a").exists());
}

#[tokio::test]
async fn a_line_that_is_too_far_to_be_found_in_time_is_given_up() {
    let (house, folder) = house().await;
    fs::write(folder.join("f"), "x").unwrap();
    fs::File::create(folder.join("sparse")).unwrap().set_len(1 << 42).unwrap();

    let said = house.user("alice").refused("read_file", json!({"path": "sparse", "first_line": 2})).await;

    assert!(said.contains("it took too long; read it by bytes"), "{said}");
    let (answer, _) =
        house.user("alice").call("read_file", json!({"path": "sparse", "offset": 1u64 << 41, "length": 1})).await;
    assert_eq!(answer["content"], "AA==");
}

#[tokio::test]
async fn the_slowest_pattern_ends_in_time() {
    let (house, folder) = house().await;
    // Chance, so that an automaton meets ever new states.
    let mut state = 1u32;
    let mut letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 { 'a' } else { 'b' }
    };
    let line: String = (0..16_000).map(|_| letter()).collect();
    fs::write(folder.join("f"), format!("{line}\n").repeat(1000)).unwrap();

    let began = tokio::time::Instant::now();
    let slow = json!({"pattern": "a[ab]{1000}[ab]{1000}c"});
    let (answer, _) = house.user("alice").call("search_files", slow).await;

    assert_eq!(answer["truncated"], json!(true));
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}
