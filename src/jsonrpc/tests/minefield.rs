//! Texts that parsers are known to read differently, in the spirit of Nicolas Seriot's "Parsing JSON is a Minefield".
//! Our own cases; each is put where an argument of a tool stands, or is a whole body.

use super::*;

/// A request with `value` as an argument.
fn with(value: &[u8]) -> Vec<u8> {
    let before = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":"#;
    [before, value, b"}}}"].concat()
}

#[track_caller]
fn check_value(value: impl AsRef<[u8]>, expected: Option<i64>) {
    let body = with(value.as_ref());
    check_body(body, expected);
}

/// `None`: accepted; otherwise the code of the refusal.
#[track_caller]
fn check_body(body: impl AsRef<[u8]>, expected: Option<i64>) {
    let body = body.as_ref();
    fuzz_parse(body);
    let code = parse(body, LIMITS).err().map(|error| error.code());
    assert_eq!(code, expected, "{}", String::from_utf8_lossy(body));
}

const SYNTAX: Option<i64> = Some(-32700);
const INVALID: Option<i64> = Some(-32600);

#[test]
#[rustfmt::skip]
fn well_formed_values_are_accepted() {
    for value in [
        "null", "true", "false", "0", "-0", "-1", "10", "123.456", "0.1", "-0.0", "1e5", "1E+5", "1e-5", "0e0",
        "0E01", "1.0", "1e400", "-1e-400", "9007199254740993", "9223372036854775808", "18446744073709551616", "[]",
        "[ ]", "{}", "{ }", "[[],[]]", "[1 , 2]", "\t\r\n 1 \t\r\n", r#""""#, r#""a""#, r#"" ""#,
        r#""\"\\\/\b\f\n\r\t""#, r#""\u0000""#, r#""\u00E9\u00e9""#, r#""\uD834\uDD1E""#, r#""\uFFFE\uffff""#,
        r#""\uDBFF\uDFFF""#, "\"\u{7f}\"", "\"é\u{20ac}\u{1f600}\"", "\"\u{2028}\u{2029}\"",
        "\"\u{fdd0}\u{10ffff}\"", "\"\u{feff}\"", r#""\\u0061""#, r#""\\\"""#, r#""//""#, r#""/* no comment */""#,
        r#"{"":0}"#, r#"{"":0," ":1}"#, r#"{"a":{"a":{"a":1}}}"#, r#"[{"a":1},{"a":1}]"#, r#"{"a":1,"A":2}"#,
        r#"{"a":1,"a ":2}"#, r#"{"e\u0301":1,"\u00e9":2}"#,
        r#"{"$serde_json":1,"$serde_json::private":2,"x$serde_json::private::Number":3}"#,
        r#"{"a":"$serde_json::private::RawValue"}"#,
    ] {
        check_value(value, None);
    }
    check_value("1".repeat(400), None);
}

#[test]
fn names_that_are_special_elsewhere_are_plain_here() {
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"__proto__":{"x":1},"constructor":2,"toString":3,"hasOwnProperty":4}}"#;

    let params = request(text).params.expect("params");

    let proto = Node::of(text.as_bytes(), params.get("__proto__").expect("there"));
    assert_eq!(proto.get("x").and_then(Node::as_number), Some("1"));
    assert_eq!(proto.get("constructor").map(Node::text), None);
    assert_eq!(params.members.len(), 4);
}

#[test]
#[rustfmt::skip]
fn malformed_numbers_are_refused() {
    for value in [
        "NaN", "nan", "Infinity", "-Infinity", "inf", "+1", "++1", "--1", "-", "-a", "01", "-01", "00", "0x10",
        "0b1", "1_000", "1,000", ".5", "-.5", "5.", "-5.", "5.e1", "1e", "1e+", "1E-", "1ee2", "1e1.5", "1.2.3",
        "1a", "1 2", "0 1", "1f", "1n", "٣", "１", "1\u{a0}", "0e", "0.e1", "1/2", "$1", "1%",
    ] {
        check_value(value, SYNTAX);
    }
}

#[test]
#[rustfmt::skip]
fn malformed_strings_are_refused() {
    for value in [
        r#"""#, r#""a"#, r#""\"#, r#""\""#, "'a'", "`a`", "a", r#""\x61""#, r#""\a""#, r#""\'""#, r#""\0""#,
        r#""\u""#, r#""\u1""#, r#""\u12""#, r#""\u123""#, r#""\u12G4""#, r#""\u{61}""#, r#""\U0061""#,
        r#""\u+061""#, r#""\u 061""#, r#""\uD800""#, r#""\uDC00""#, r#""\uD800a""#, r#""\uD800\n""#,
        r#""\uD800\u""#, r#""\uD800\uD800""#, r#""\uD800\u0061""#, r#""\uDC00\uD800""#, r#""\ud83dx\ude00""#,
        "\"\n\"", "\"\t\"", "\"\r\"", "\"\0\"", "\"\u{1f}\"", "\"a\u{8}b\"", "\"aaaaaaa\u{1}aaaaaaaa\"",
        r#""a" "b""#, r#""a"+"b""#, "\\u0022a\\u0022", "“a”", "\"\\\u{e9}\"", "\"\\u00\u{e9}\"",
    ] {
        check_value(value, SYNTAX);
    }
}

#[test]
#[rustfmt::skip]
fn malformed_structures_and_literals_are_refused() {
    for value in [
        "", " ", "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1,,2]", "[,]", "[1 2]", "[1:2]", "[1}", "[1;2]", "[-]",
        "{", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,", "{\"a\":1,}", "{,}", "{,\"a\":1}", "{\"a\" 1}",
        "{\"a\",1}", "{\"a\"::1}", "{\"a\":1 \"b\":2}", "{\"a\":1,,\"b\":2}", "{a:1}", "{'a':1}", "{1:1}",
        "{null:1}", "{\"a\":}", "{[]:1}", "{\"a\":1]", "{\"a\":[1}", "[{]}", "True", "TRUE", "tru", "truee", "nul",
        "nulll", "None", "undefined", "fals", "t", "1//c", "/*c*/1", "1 #c", "\u{c}1", "\u{a0}1", "\u{2028}1",
        "\u{b}1", "\0", "1\0", "\u{feff}1", "@", "<a/>", "...",
    ] {
        check_value(value, SYNTAX);
    }
}

#[test]
#[rustfmt::skip]
fn what_is_not_utf8_is_refused() {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
    let utf16 =
        |order: fn(u16) -> [u8; 2]| body.encode_utf16().flat_map(order).collect::<Vec<u8>>();
    for text in [
        [b"\xEF\xBB\xBF", body.as_bytes()].concat(),
        utf16(u16::to_le_bytes),
        utf16(u16::to_be_bytes),
        [&b"\xFF\xFE"[..], &utf16(u16::to_le_bytes)].concat(),
        [&b"\xFE\xFF"[..], &utf16(u16::to_be_bytes)].concat(),
        body.chars()
            .flat_map(|c| u32::from(c).to_le_bytes())
            .collect(),
        body.chars()
            .flat_map(|c| u32::from(c).to_be_bytes())
            .collect(),
    ] {
        check_body(text, SYNTAX);
    }
    for value in [
        &b"\"\xE9\""[..],                // Latin-1
        b"\"\xC0\xAF\"",                 // overlong
        b"\"\xE0\x80\xAF\"",             // overlong
        b"\"\xC0\x80\"",                 // overlong NUL
        b"\"\xED\xA0\x80\"",             // surrogate
        b"\"\xED\xA0\xBD\xED\xB8\x80\"", // surrogate pair (CESU-8)
        b"\"\xF4\x90\x80\x80\"",         // beyond U+10FFFF
        b"\"\xF8\x88\x80\x80\x80\"", b"\"\x80\"", b"\"\xE2\x82\"", b"\"\xFF\"", b"\"\\\xE9\"", b"\xC2\xA01",
    ] {
        check_value(value, SYNTAX);
    }
}

#[test]
#[rustfmt::skip]
fn names_given_twice_are_refused() {
    for body in [
        r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"m"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","\u006dethod":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":1,"\u006dethod":"tools/list","m\u0065thod":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{},"params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","name":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","n\u0061me":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":1,"result":1}"#,
    ] {
        check_body(body, INVALID);
    }
    for value in [
        r#"{"a":1,"a":1}"#, r#"{"a":1,"b":2,"a":3}"#, r#"{"":1,"":2}"#, r#"[[{"x":{"a":1,"a":2}}]]"#,
        r#"{"a":1,"\u0061":2}"#, r#"{"\u0061":1,"a":2}"#, r#"{"\u0061":1,"\u0061":2}"#, r#"{"é":1,"\u00E9":2}"#,
        r#"{"😀":1,"\ud83d\ude00":2}"#, r#"{"/":1,"\/":2}"#, r#"{"\n":1,"\u000A":2}"#, r#"{"\"":1,"\u0022":2}"#,
        r#"{"a":{"b":1,"c":{},"b":2}}"#, r#"{"k":{"a":1},"l":{"a":1},"k":{}}"#,
    ] {
        check_value(value, INVALID);
    }
}

#[test]
#[rustfmt::skip]
fn names_reserved_by_serde_json_are_refused_at_any_depth() {
    for value in [
        r#"{"$serde_json::private::RawValue":"{\"tool\":\"evil\"}"}"#.to_owned(),
        r#"{"$serde_json::private::Number":"1e999"}"#.to_owned(), r#"{"$serde_json::private::":1}"#.to_owned(),
        r#"{"\u0024serde_json::private::RawValue":"1"}"#.to_owned(),
        r#"{"$serde_json::\u0070rivate::Number":"1"}"#.to_owned(),
        r#"{"a":1,"$serde_json::private::Later":2}"#.to_owned(),
        format!(
            "{}{}{}",
            "[".repeat(20),
            r#"{"$serde_json::private::Number":"1"}"#,
            "]".repeat(20)
        ),
    ] {
        check_value(value, INVALID);
    }
    check_body(
        r#"{"$serde_json::private::RawValue":"{\"jsonrpc\":\"2.0\"}"}"#,
        INVALID,
    );
}

#[test]
fn a_body_is_one_message_and_nothing_else() {
    let good = r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
    check_body(format!("\r\n\t {good} \n"), None);
    for after in ["x", "{}", "[]", ",", "}", "]", "\0", "//", "\u{a0}", "\u{c}", "1", "null", "\u{1a}", "\u{1e}"] {
        check_body(format!("{good}{after}"), SYNTAX);
    }
    check_body(format!("{good}\n{good}"), SYNTAX);
    for before in ["\u{1e}", ")]}',\n", "//\n", "\0", "\u{c}", "data: ", ","] {
        check_body(format!("{before}{good}"), SYNTAX);
    }
    for end in 0..good.len() {
        check_body(&good[..end], SYNTAX);
    }
    for body in ["null", "true", "\"str\"", "42", "1e5", " 0 "] {
        check_body(body, INVALID);
    }
}

#[test]
fn batches_are_refused_whatever_they_hold() {
    let good = r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
    for body in [
        "[]".to_owned(),
        format!("[{good}]"),
        format!(" \n[{good},{good}]"),
        format!("[[{good}]]"),
        format!("[{}{good}]", format!("{good},").repeat(10_000)),
        "[".to_owned(),
        "[1,".to_owned(),
    ] {
        assert_eq!(parse(body.as_bytes(), LIMITS).map_err(|error| error.fault), Err(Fault::Batch));
    }
}

#[test]
#[rustfmt::skip]
fn members_are_exact() {
    for name in [
        "Method", "METHOD", "ID", "Id", "JSONRPC", "jsonRpc", "Params", "PARAMS", "paramſ", "Name",
        "meth\u{212a}od", r"method\u0000", "method ", " method", "method\u{200b}", "\u{feff}method",
        "m\u{435}thod", "", "_meta", "auth", "extensions", "methods", "metho", "$ref", "__proto__", "results",
        "Error",
    ] {
        let beside = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","{name}":"x"}}"#);
        let alone = format!(r#"{{"jsonrpc":"2.0","id":1,"{name}":"x"}}"#);

        check_body(beside, INVALID);
        check_body(alone, INVALID);
    }
}

#[test]
#[rustfmt::skip]
fn the_version_is_the_string_two_point_zero() {
    for version in [
        "\"1.0\"", "2.0", "2", "\"2\"", "\"2.00\"", "\" 2.0\"", "\"2.0 \"", "null", "[\"2.0\"]", "{}", "true",
        "\"\"",
    ] {
        check_body(
            format!(r#"{{"jsonrpc":{version},"id":1,"method":"m"}}"#),
            INVALID,
        );
    }
    check_body(r#"{"id":1,"method":"m"}"#, INVALID);
}

#[test]
#[rustfmt::skip]
fn an_id_is_a_short_string_or_an_integer() {
    let with_id = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
    let text = |len: usize| format!("\"{}\"", "x".repeat(len));
    for id in [
        "0", "1", "-1", "9007199254740993", "18446744073709551616", "\"\"", "\"1\"", "\"é\"", r#""\u0000""#,
    ] {
        check_body(with_id(id), None);
    }
    check_body(with_id(&text(256)), None);
    check_body(with_id(&"1".repeat(256)), None);
    for id in [
        "null", "true", "1.0", "1.5", "1e0", "1E2", "-0", "-0.0", "{}", "[]", "[1]", r#"{"a":1}"#,
    ] {
        check_body(with_id(id), INVALID);
    }
    for id in [
        text(257),
        text(1 << 20),
        "1".repeat(257),
        r"\u0061".repeat(43),
    ] {
        let id = if id.starts_with('\\') {
            format!("\"{id}\"")
        } else {
            id
        };
        check_body(with_id(&id), INVALID);
    }
    for id in ["01", "+1", "0x10", "NaN", "", "1,", "'a'"] {
        check_body(with_id(id), SYNTAX);
    }
}

#[test]
fn a_method_is_a_short_string() {
    let with_method = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":{method}}}"#);
    check_body(with_method(&format!("\"{}\"", "m".repeat(256))), None);
    check_body(with_method(r#""tools/call ""#), None);
    for method in ["1", "null", "true", "{}", "[\"m\"]", "\"\""] {
        check_body(with_method(method), INVALID);
    }
    check_body(with_method(&format!("\"{}\"", "m".repeat(257))), INVALID);
    check_body(r#"{"jsonrpc":"2.0","id":1}"#, INVALID);
    check_body(r#"{"jsonrpc":"2.0","id":1,"params":{}}"#, INVALID);
}

#[test]
fn params_are_an_object() {
    for params in ["[]", "[1]", "null", "1", "\"a\"", "true"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#);
        check_body(body, INVALID);
    }
    check_body(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{}}"#, None);
}

#[test]
#[rustfmt::skip]
fn a_message_is_a_call_or_an_answer() {
    let error = r#"{"code":1,"message":"no"}"#;
    for rest in [
        r#""id":1,"method":"m","result":1"#.to_owned(),
        format!(r#""id":1,"method":"m","error":{error}"#),
        format!(r#""id":1,"result":1,"error":{error}"#),
        r#""id":1,"result":1,"error":null"#.to_owned(),
        format!(r#""id":1,"result":null,"error":{error}"#),
        r#""id":1,"result":1,"params":{}"#.to_owned(),
        r#""result":1"#.to_owned(),
        format!(r#""error":{error}"#),
        r#""id":null,"result":1"#.to_owned(),
        r#""id":1.5,"result":1"#.to_owned(),
        r#""id":null"#.to_owned(),
        r#""id":1"#.to_owned(),
    ] {
        check_body(format!(r#"{{"jsonrpc":"2.0",{rest}}}"#), INVALID);
    }
    for error in [
        "null", "1", "\"no\"", "[]", "{}", r#"{"code":1}"#, r#"{"message":"no"}"#,
        r#"{"code":"1","message":"no"}"#, r#"{"code":1.5,"message":"no"}"#, r#"{"code":1e2,"message":"no"}"#,
        r#"{"code":1,"message":null}"#, r#"{"code":1,"message":["no"]}"#,
    ] {
        check_body(
            format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#),
            INVALID,
        );
    }
    check_body(
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":[]}}"#,
        None,
    );
}
