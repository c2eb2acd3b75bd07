//! Depth, number of values, time and stack.

use super::*;

fn nested(depth: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"a":{}{}}}}}"#,
        "[".repeat(depth - 2),
        "]".repeat(depth - 2)
    )
}

fn parsed(text: &str, depth: usize, nodes: usize) -> Result<Message, Fault> {
    parse(text.as_bytes(), Limits { depth, nodes }).map_err(|error| error.fault)
}

#[test]
fn depth_is_counted_from_the_message_itself() {
    for depth in [64, 127, 128, 129] {
        let text = nested(depth);

        assert!(parsed(&text, depth, 1000).is_ok());
        assert_eq!(parsed(&text, depth - 1, 1000), Err(Fault::TooDeep { limit: depth - 1 }));
    }
}

#[test]
fn values_are_counted_wherever_they_stand() {
    // The message, version, id, method, params, a, its two elements, b.
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[true,{}],"b":"c"}}"#;

    assert!(parsed(text, 9, 9).is_ok());
    assert_eq!(parsed(text, 9, 8), Err(Fault::TooManyNodes { limit: 8 }));
}

#[test]
fn a_limit_of_nothing_lets_nothing_in() {
    let text = r#"{"jsonrpc":"2.0","method":"m"}"#;

    assert_eq!(parsed(text, 0, 9), Err(Fault::TooDeep { limit: 0 }));
    assert_eq!(parsed(text, 9, 0), Err(Fault::TooManyNodes { limit: 0 }));
}

#[test]
fn a_million_brackets_are_refused_at_the_limit() {
    for bracket in ["[", "{\"a\":", "[{\"a\":"] {
        for depth in [10_000, 1_000_000] {
            let text = format!(r#"{{"id":1,"params":{{"a":{}"#, bracket.repeat(depth));

            assert_eq!(parsed(&text, 64, 100_000), Err(Fault::TooDeep { limit: 64 }));
        }
    }
}

#[test]
fn nesting_costs_no_stack() {
    let depth = 1_000_000;
    let text = nested(depth);

    let small = std::thread::Builder::new().stack_size(128 * 1024);
    let elements = small
        .spawn(move || {
            let message = parsed(&text, depth, depth + 10).expect("within its limits");
            let Message::Request(request) = message else {
                panic!("no request");
            };
            let span = request.params.and_then(|params| params.get("a"));
            Node::of(text.as_bytes(), span.expect("a")).elements().count()
        })
        .expect("a thread")
        .join()
        .expect("no overflow");

    assert_eq!(elements, 1);
}

#[test]
fn many_names_are_compared_in_linear_time() {
    // No clock: comparing all pairs would take the better part of an hour, and nobody would overlook that.
    for escape in ["k", "\\u006b"] {
        let names: Vec<String> = (0..100_000).map(|n| format!("\"{escape}{n}\":0")).collect();
        let params = names.join(",");
        let text = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{{params}}}}}"#);
        let twice = text.replace("k99999\"", "k77777\"");

        assert!(parsed(&text, 64, 200_000).is_ok());
        if escape == "k" {
            assert!(matches!(parsed(&twice, 64, 200_000), Err(Fault::Duplicate { .. })));
        }
    }
}

#[test]
fn long_strings_and_names_are_no_matter() {
    let long = "x".repeat(1 << 20);
    let text = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{"{long}":"{long}"}}}}"#);

    let message = parsed(&text, 64, 100).expect("within its limits");

    let Message::Notification(Notification { params, .. }) = message else {
        panic!("no notification");
    };
    let span = params.and_then(|params| params.get(&long)).expect("its member");
    assert_eq!(span.cut(text.as_bytes()).len(), long.len() + 2);
}
