//! What is accepted, what is refused, and how it is said.

use super::*;

const LIMITS: Limits = Limits {
    depth: 64,
    nodes: 10_000,
};

fn accepted(text: &str) -> Message {
    match parse(text.as_bytes(), LIMITS) {
        Ok(message) => message,
        Err(error) => panic!("refused: {text}\n{error}"),
    }
}

#[test]
fn a_request_is_taken_apart() {
    let text = r#" {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","arguments":{"x":[1,{"y":"\u00e9"}]}}} "#;

    let Message::Request(request) = accepted(text) else {
        panic!("no request");
    };

    assert_eq!(request.id.as_json(), "7");
    assert_eq!(request.method, "tools/call");
    let params = request.params.expect("params");
    let arguments = Node::of(text.as_bytes(), params.get("arguments").expect("arguments"));
    assert_eq!(arguments.text(), r#"{"x":[1,{"y":"\u00e9"}]}"#);
    let y = arguments.pointer("/x/1/y").expect("y");
    assert_eq!(y.as_str().as_deref(), Some("é"));
    let span = y.span_in(text.as_bytes()).expect("inside");
    assert_eq!(span.cut(text.as_bytes()), br#""\u00e9""#);
}
