//! Files that are good, files with every mistake, and what callers may write.

use super::*;

const EXAMPLE: &str = include_str!("../../actions.example.yaml");

/// A file with one action, of which `rest` says the rest.
fn file(rest: &str) -> String {
    format!(
        "check: list\nactions:\n  - name: list\n    description: All.\n    annotations: {{ readOnlyHint: true }}\n    \
         run: list\n  - name: one\n    description: One.\n{rest}"
    )
}

#[track_caller]
fn one(rest: &str) -> Action {
    let actions = Actions::parse(&file(rest)).unwrap_or_else(|fault| panic!("{fault}"));
    actions.get("one").expect("it is in the file").clone()
}

/// What is said of a file, with the line.
#[track_caller]
fn fault(text: &str) -> (Option<u64>, String) {
    let fault = Actions::parse(text).map(|_| ()).expect_err(text);
    (fault.line, fault.message)
}

#[track_caller]
fn refused(rest: &str, line: u64, says: &str) {
    let (at, message) = fault(&file(rest));
    assert!(message.contains(says), "{message}");
    assert_eq!(at, Some(line), "{message}");
}

fn given(arguments: Value) -> Map<String, Value> {
    match arguments {
        Value::Object(arguments) => arguments,
        other => panic!("{other}"),
    }
}

#[test]
fn the_example_makes_the_biscuit_actions() {
    let actions = Actions::parse(EXAMPLE).expect("the example");
    let command = |name: &str, arguments: Value| actions.get(name).expect(name).command(&given(arguments));

    for (name, arguments, made) in [
        ("biscuit_list", json!({}), "list"),
        ("biscuit_status", json!({ "project": "project-a" }), "status project-a"),
        ("biscuit_logs", json!({ "project": "project-b" }), "logs project-b 200"),
        ("biscuit_logs", json!({ "project": "project-b", "lines": 7, "file": null }), "logs project-b 7"),
        ("biscuit_logs", json!({ "project": "project-b", "file": "web/x.log" }), "logs project-b 200 web/x.log"),
        ("biscuit_deploy", json!({ "project": "project-b" }), "deploy project-b"),
        ("biscuit_restart", json!({ "project": "project-a" }), "restart project-a"),
    ] {
        assert_eq!(command(name, arguments).as_deref(), Ok(made));
        assert!(actions.makes(made), "{made}");
    }
    assert_eq!(actions.check(), "list");
    assert_eq!(actions.longest(), Duration::from_secs(15 * 60));
    let finishing: Vec<&str> = actions.iter().filter(|action| action.finishes).map(|a| a.name.as_str()).collect();
    assert_eq!(finishing, ["biscuit_deploy", "biscuit_restart"]);
    for never in [
        "lists",
        "list x",
        "status project-c",
        "status",
        "logs project-a 0200",
        "logs project-a",
        "",
        "deploy  project-a",
    ] {
        assert!(!actions.makes(never), "{never}");
    }
}

#[test]
fn a_schema_says_what_can_be_asked() {
    let actions = Actions::parse(EXAMPLE).expect("the example");

    let schema = actions.get("biscuit_logs").expect("logs").input_schema();

    assert_eq!(
        Value::Object(schema),
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "project": { "type": "string", "enum": ["project-a", "project-b"], "description": "The project." },
                "lines": {
                    "type": "integer", "minimum": 1, "maximum": 1000, "default": 200, "description": "How many lines."
                },
                "file": {
                    "type": "string", "pattern": "^(?:[a-z0-9][a-z0-9._/-]{0,99})$", "minLength": 1, "maxLength": 128,
                    "description": "A file below the project's log folder. Without it, the current log."
                },
            },
            "required": ["project"],
            "additionalProperties": false,
        })
    );
    let schema = actions.get("biscuit_list").expect("list").input_schema();
    assert_eq!(schema["properties"], json!({}));
    assert_eq!(schema.get("required"), None);
}

#[test]
fn what_is_not_allowed_is_refused_with_what_to_write_instead() {
    let logs = Actions::parse(EXAMPLE).expect("the example").get("biscuit_logs").expect("logs").clone();

    for (arguments, says) in [
        (json!({}), "`project` is missing; it is one of `project-a`, `project-b`"),
        (json!({ "project": null }), "`project` is missing"),
        (json!({ "project": "project-c" }), "`project` is `project-c`, and that is not allowed; it is one of"),
        (json!({ "project": "project-a\n" }), r"`project-a\n`"),
        (json!({ "project": ["project-a"] }), "`project` is a list"),
        (
            json!({ "project": "project-a", "lines": "200" }),
            "`lines` is `200`, and that is not allowed; it is a whole number from 1 to 1000",
        ),
        (json!({ "project": "project-a", "lines": 0 }), "`lines` is 0"),
        (json!({ "project": "project-a", "lines": 1001 }), "`lines` is 1001"),
        (json!({ "project": "project-a", "lines": -1 }), "`lines` is -1"),
        (json!({ "project": "project-a", "lines": 1.5 }), "`lines` is 1.5"),
        (json!({ "project": "project-a", "lines": true }), "`lines` is true"),
        (json!({ "project": "project-a", "file": "" }), "`file` is ``"),
        (json!({ "project": "project-a", "file": "-f" }), "`file` is `-f`"),
        (json!({ "project": "project-a", "file": "a;id" }), "`file` is `a;id`"),
        (json!({ "project": "project-a", "file": "a b" }), "`file` is `a b`"),
        (json!({ "project": "project-a", "file": "a\nb" }), r"`file` is `a\nb`"),
        (json!({ "project": "project-a", "file": "a\n" }), r"`file` is `a\n`"),
        (json!({ "project": "project-a", "file": "ä" }), "`file` is `ä`"),
        (json!({ "project": "project-a", "file": "x".repeat(129) }), "xxx…`"),
        (
            json!({ "project": "project-a", "lins": 3 }),
            "`biscuit_logs` has no argument `lins`; it takes `file`, `lines`, `project`",
        ),
    ] {
        let why = logs.command(&given(arguments.clone())).expect_err(&arguments.to_string());
        assert!(why.contains(says), "{why}");
        assert!(why.len() < 400, "{why}");
    }
    assert_eq!(
        logs.command(&given(json!({ "project": "project-a", "lines": 20.0 }))).as_deref(),
        Ok("logs project-a 20")
    );
    let list = Actions::parse(EXAMPLE).expect("the example").get("biscuit_list").expect("list").clone();
    assert!(list.command(&given(json!({ "x": 1 }))).expect_err("none").contains("it takes none"));
}

#[test]
fn a_pattern_holds_from_the_first_character_to_the_last() {
    for (pattern, has, has_not) in [
        ("a|b", vec!["a", "b"], vec!["ax", "xb", "ab"]),
        ("^a|b$", vec!["a", "b"], vec!["ax", "xb"]),
        ("[a-z]+", vec!["abc"], vec!["abc1", "1abc", "abc.x"]),
        (r"v\d{1,3}(?:\.\d+)*", vec!["v1", "v12.3"], vec!["v", "v1.", "xv1", "v1234"]),
        ("x*", vec!["x"], vec![""]),
        (".*", vec!["a/../b"], vec!["a b", "a;b", "-a", "a\u{661}"]),
    ] {
        let action = one(&format!("    arguments: {{ x: {{ matches: '{pattern}' }} }}\n    run: one {{x}}\n"));
        for value in has {
            assert_eq!(action.command(&given(json!({ "x": value }))), Ok(format!("one {value}")), "{pattern}");
        }
        for value in has_not {
            assert!(action.command(&given(json!({ "x": value }))).is_err(), "{pattern} {value}");
        }
    }
}

#[test]
fn a_pattern_that_would_not_hold_or_means_something_else_elsewhere_is_an_error() {
    for (pattern, says) in [
        ("a)|(b", "cannot be `a)|(b`"),
        ("(?x)a#", "of `(?…` only `(?:` can be used"),
        ("(?i)a", "of `(?…` only `(?:` can be used"),
        ("[[:alpha:]]", "a class in a class"),
        ("[a--b]", "`--` in a class"),
        (r"\pL", "are what patterns of words need"),
        (r"a\nb", "are what patterns of words need"),
        ("a b", "are what patterns of words need"),
        ("[a", "cannot be `[a`"),
        ("(((a{1,100}){1,100}){1,100})", "cannot be"),
        ("", "1 to 256 bytes"),
    ] {
        refused(&format!("    run: one {{x}}\n    arguments:\n      x: {{ matches: '{pattern}' }}\n"), 11, says);
    }
}

#[test]
fn what_is_wrong_in_the_file_is_said_with_its_line() {
    refused("    run: one\n    tiemout: 30s\n", 10, "tiemout");
    refused("    run: one\n    run: two\n", 10, "run");
    refused("    run: one {x}\n", 9, "`run` uses `{x}`, and there is no argument `x`");
    refused("    run: one\n    arguments:\n      x: { one_of: [a] }\n", 11, "`run` does not use the argument `x`");
    refused("    arguments: { x: { one_of: [a] } }\n    run: one {x} {x}\n", 10, "uses `{x}` twice");
    refused("    arguments: { x: { one_of: [a] } }\n    run: '{x} one'\n", 10, "begins with a word");
    refused("    arguments: { x: { one_of: [a] } }\n    run: one pre{x}\n", 10, "the word `pre{x}`");
    refused("    arguments: { x: { one_of: [a], optional: true } }\n    run: one {x} two\n", 10, "no further word");
    refused("    run: one  two\n", 9, "the word ``");
    refused("    run: one --force\n", 9, "the word `--force`");
    refused("    run: one;id\n", 9, "the word `one;id`");
    refused(&format!("    run: one {}\n", "x ".repeat(300).trim_end()), 9, "more than 512 bytes");
    refused("    run: one\n    timeout: 30\n", 10, "30");
    refused("    run: one\n    timeout: 2h\n", 10, "`timeout` is `2h`");
    refused("    run: one\n    timeout: 0s\n", 10, "`timeout` is `0s`");
    refused("    run: one\n    output: 1GiB\n", 10, "`output` is `1GiB`");
    refused("    run: one\n    output: 1MiB\n", 10, "`output` is `1MiB`");
    refused("    run: one\n    finishes: yes\n", 10, "yes");
    refused("    run: one\n    title: \"a\\e[31m\"\n", 10, "no control characters");
    refused("    run: one\n    annotations: { readOnlyHint: true, destructiveHint: true }\n", 10, "be destructive");
    refused("    run: one\n    annotations: { readonly: true }\n", 10, "readonly");
    refused("    run: one\n  - name: one\n    description: x\n    run: two\n", 10, "a second action");
    refused("    run: one\n  - name: one two\n    description: x\n    run: two\n", 10, "no name of a tool");
    refused("    run: one\n  - name: &a two\n    description: x\n    run: two\n", 10, "anchor");
}

#[test]
fn what_is_wrong_with_an_argument_is_said_with_its_line() {
    for (argument, says) in [
        ("{}", "exactly one of `one_of`, `integer` and `matches`"),
        ("{ one_of: [a], matches: a }", "exactly one of"),
        ("{ one_of: [] }", "0 values"),
        ("{ one_of: [a, a] }", "`one_of` has `a` twice"),
        ("{ one_of: [a, -b] }", "`-b` cannot be a word"),
        ("{ one_of: ['a b'] }", "`a b` cannot be a word"),
        ("{ one_of: [''] }", "`` cannot be a word"),
        ("{ integer: { min: 3, max: 2 } }", "3 to 2"),
        ("{ integer: { min: 0, max: 9007199254740992 } }", "to 9007199254740991 at most"),
        ("{ integer: { min: -1, max: 2 } }", "-1"),
        ("{ integer: { min: 1 } }", "max"),
        ("{ one_of: [a], default: b }", "`default` is `b`"),
        ("{ integer: { min: 1, max: 2 }, default: 3 }", "`default` is 3"),
        ("{ one_of: [a], default: a, optional: true }", "leave out `optional`"),
        ("{ one_of: [a], description: '' }", "`description` has 1 to"),
    ] {
        refused(&format!("    run: one {{x}}\n    arguments:\n      x: {argument}\n"), 11, says);
    }
    refused("    run: one {x-y}\n    arguments:\n      x-y: { one_of: [a] }\n", 11, "a name has 1 to 64");
}

#[test]
fn what_is_checked_changes_nothing() {
    let with = |check: &str| file("    run: one\n").replace("check: list", &format!("check: {check}"));

    assert!(Actions::parse(&with("list")).is_ok());
    for check in ["one", "lists", "list list", "''"] {
        let (line, message) = fault(&with(check));
        assert!(message.contains("readOnlyHint"), "{message}");
        assert_eq!(line, Some(1));
    }
    assert!(fault(&file("    run: one\n").replace("check: list\n", "")).1.contains("check"));
}

#[test]
fn there_is_an_end_to_everything_that_can_be_many() {
    let action = |n: usize| format!("  - name: a{n}\n    description: x\n    run: one\n");
    let many = |n: usize| file("    run: one\n") + &(2..n).map(action).collect::<String>();
    assert!(Actions::parse(&many(64)).is_ok());
    assert!(fault(&many(65)).1.contains("65 actions"));

    let names: Vec<String> = (0..17).map(|n| format!("x{n}")).collect();
    let with = |n: usize| {
        let arguments: Vec<String> = names[..n].iter().map(|name| format!("{name}: {{ matches: '[a-z]+' }}")).collect();
        let run: Vec<String> = names[..n].iter().map(|name| format!("{{{name}}}")).collect();
        format!("    arguments: {{ {} }}\n    run: one {}\n", arguments.join(", "), run.join(" "))
    };
    refused(&with(17), 7, "more than 16 arguments");
    let action = one(&with(16));
    let all = |value: &str| names[..16].iter().map(|name| (name.clone(), json!(value))).collect::<Map<_, _>>();
    assert!(action.command(&all("x")).is_ok());
    assert!(action.command(&all(&"x".repeat(128))).expect_err("too long").contains("512 are the most"));

    let value = |n: usize| (0..n).map(|n| format!("v{n}")).collect::<Vec<_>>().join(", ");
    let values = |n: usize| format!("    run: one {{x}}\n    arguments:\n      x: {{ one_of: [{}] }}\n", value(n));
    assert_eq!(one(&values(256)).command(&given(json!({ "x": "v255" }))).as_deref(), Ok("one v255"));
    refused(&values(257), 11, "257 values");
    assert!(fault(&format!("{}#{}\n", EXAMPLE, "x".repeat(256 * 1024))).1.contains("more than"));
    assert!(fault("").1.contains("check") || !fault("").1.is_empty());
}
