//! What is a secret is gone, what is none stays, and nobody waits for either.

use super::*;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

fn redactor() -> Redactor {
    Redactor::new(&[7; 32])
}

/// Numbers that look random and are the same each time.
fn draws(seed: u64) -> impl FnMut() -> u8 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    }
}

/// Where secrets stand in what people and programs write. `@` is the secret.
const AROUND: &[&str] = &[
    "@",
    "the key is @.",
    "(@)",
    "\"@\"",
    "{\"a\":[\"@\"]}",
    "{\\\"a\\\":\\\"@\\\"}",
    "first line\n@\nthird line",
    "first line\\n@\\nthird line",
    "Authorization: Bearer @",
    "Authorization%3A%20Bearer%20@",
    "authorization: token @\r\nAccept: */*",
    "curl -H 'X-Api-Key: @' https://a.example/",
    "https://a.example/?access_token=@&page=2",
    "https%3A%2F%2Fa.example%2F%3Faccess_token%3D@%26page%3D2",
    "tool --token @ --verbose",
    "tool --token=@",
    "export GITHUB_TOKEN=@; run",
    "password: @",
    "password='@'",
    "Config { name: \"x\", api_key: \"@\", n: 3 }",
    "Config { secret: Some(\"@\") }",
    "<apiKey>@</apiKey>",
    "a=1,key=@,b=2",
    "é@é",
];

#[test]
fn every_shape_is_found_by_itself_and_wherever_it_stands() {
    let redactor = redactor();
    for (n, shape) in SHAPES.iter().enumerate() {
        for (m, around) in AROUND.iter().enumerate() {
            let secret = shape.example(draws((n * 1000 + m) as u64));
            let text = around.replace('@', &secret);
            let shown = redactor.text(&text);
            assert!(!shown.contains(&secret) && shown.contains("hmac:"), "{}: {text} became {shown}", shape.id);
            assert_eq!(redactor.text(&shown), shown, "{}: {text}", shape.id);
        }
    }
    let ids: BTreeSet<_> = SHAPES.iter().map(|shape| shape.id).collect();
    assert!(ids.len() == SHAPES.len() && ids.len() >= 40, "{} shapes", ids.len());
}

#[test]
fn every_shape_is_found_in_base64_wherever_it_begins() {
    let redactor = redactor();
    for (n, shape) in SHAPES.iter().enumerate() {
        for before in ["", " ", "é", "{\"k\": \""] {
            let secret = shape.example(draws(n as u64));
            let encoded = super::base64::encode(format!("{before}{secret}\"}}").as_bytes());
            for text in [format!("data:{encoded}=="), format!("x-{}", encoded.replace('+', "-").replace('/', "_"))] {
                let shown = redactor.text(&text);
                assert!(!shown.contains(&encoded[6..]), "{}: {secret} as {text} became {shown}", shape.id);
            }
        }
    }
}

#[test]
fn what_stands_behind_the_name_of_a_secret_is_gone_and_the_rest_stays() {
    for (text, rest) in [
        ("password=hunter2", "password=@"),
        ("user=a password=hunter2 n=3", "user=a password=@ n=3"),
        ("{\"password\":\"hun\\\"ter2\",\"n\":3}", "{\"password\":\"@\",\"n\":3}"),
        ("{\\\"password\\\": \\\"hun\\\\\\\"ter2\\\", \\\"n\\\": 3}", "{\\\"password\\\": \\\"@\\\", \\\"n\\\": 3}"),
        ("X { password: \"hunter2\", n: 3 }", "X { password: \"@\", n: 3 }"),
        ("X { password: hunter2, n: 3 }", "X { password: @, n: 3 }"),
        ("password: correct horse battery\nuser: x", "password: @\nuser: x"),
        ("a\\npassword: correct horse\\nb", "a\\npassword: @\\nb"),
        ("Cookie: a=b; c=d\r\nHost: x", "Cookie: @\r\nHost: x"),
        ("set-cookie: sid=abc; Path=/", "set-cookie: @"),
        ("\"cookie\": \"a=b; c=d\", \"host\": \"x\"", "\"cookie\": \"@\", \"host\": \"x\""),
        ("Authorization: Digest username=\"x\", response=\"y\"", "Authorization: Digest @"),
        ("Authorization: Basic YTpi", "Authorization: Basic @"),
        ("Proxy-Authorization: Negotiate YTpi", "Proxy-Authorization: Negotiate @"),
        ("Server=a;Password=b&c;Database=d", "Server=a;Password=@;Database=d"),
        ("AccountName=a;AccountKey=aGVsbG8+/w==;EndpointSuffix=x", "AccountName=a;AccountKey=@;EndpointSuffix=x"),
        ("grant_type=x&client_secret=a%20b&scope=c", "grant_type=x&client_secret=@&scope=c"),
        ("https://a.example/cb?code=SplxlOBeZQ&state=xyz", "https://a.example/cb?code=@&state=xyz"),
        ("cb%3Fcode%3DSplxlOBeZQ%26state%3Dxyz", "cb%3Fcode%3D@%26state%3Dxyz"),
        ("/x?X-Amz-Signature=0123456789abcdef&n=1", "/x?X-Amz-Signature=@&n=1"),
        ("postgres://me:hunter2@db:5432/app", "postgres://@@db:5432/app"),
        ("postgres://me:hun/t@er2@db/app", "postgres://@@db/app"),
        ("https://me:x@a.example/b@c", "https://@@a.example/b@c"),
        ("https%3A%2F%2Fme%3Ax%40a.example%2F", "https%3A%2F%2F@%40a.example%2F"),
        ("amqp:\\/\\/me:x@a.example\\/", "amqp:\\/\\/@@a.example\\/"),
        ("curl -u me:hunter2 https://a.example", "curl -u @ https://a.example"),
        ("curl --user 'me:hunter2' https://a.example", "curl --user '@' https://a.example"),
        ("run --password hunter2 --x", "run --password @ --x"),
        ("run --api-key=hunter2 --x", "run --api-key=@ --x"),
        ("<password>hunter2</password>", "<password>@</password>"),
        ("user[password]=hunter2&x=1", "user[password]=@&x=1"),
        ("password&quot;: &quot;hunter2&quot;", "password&quot;: &quot;@&quot;"),
        ("Bearer abc123def, x", "Bearer @, x"),
        ("bearer%20abc123def", "bearer%20@"),
        ("{\"kty\":\"OKP\",\"d\":\"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A\"}", "{\"kty\":\"OKP\",\"d\":\"@\"}"),
        ("session=abcdef0123456789abcdef; x", "session=@; x"),
    ] {
        let shown = redactor().text(text).into_owned();
        let at = shown.find("hmac:").unwrap_or_else(|| panic!("{text} stays"));
        let shown = format!("{}@{}", &shown[..at], &shown[at + 30..]);
        assert_eq!(shown, rest, "{text}");
    }
}

#[test]
fn a_private_key_is_gone_with_line_ends_of_any_kind_and_cut_off() {
    let body = "MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF";
    for (begin, end, line) in [
        ("-----BEGIN ", "-----END ", "\n"),
        ("-----BEGIN ", "-----END ", "\\n"),
        ("-----BEGIN ", "-----END ", "\r\n"),
        ("-----BEGIN%20", "-----END%20", "%0A"),
    ] {
        for kind in ["PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY"] {
            let kind = if begin.ends_with('0') { kind.replace(' ', "%20") } else { kind.to_owned() };
            let whole = format!("before {begin}{kind}-----{line}{body}{line}{body}{line}{end}{kind}-----{line}\"after");
            let cut = format!("before {begin}{kind}-----{line}{body}{line}{body}");
            for text in [&whole, &cut] {
                let shown = redactor().text(text).into_owned();
                assert!(
                    shown.starts_with("before hmac:") && !shown.contains("MC4CAQ") && !shown.contains("qfSnF"),
                    "{shown}"
                );
            }
            assert!(redactor().text(&whole).ends_with("\"after"));
        }
    }
    for text in [
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----",
    ] {
        assert_eq!(redactor().text(text), text);
    }
}

/// What people and programs write every day.
#[test]
fn ordinary_texts_stay_as_they_are() {
    for text in ORDINARY {
        assert_eq!(redactor().text(text), *text);
        assert!(matches!(redactor().text(text), Cow::Borrowed(_)));
    }
    // Random data in Base64 and hexadecimal, as images and hashes are.
    for seed in 1..60 {
        let mut draw = draws(seed);
        let bytes: Vec<u8> = (0..30_000).map(|_| draw()).collect();
        let image = format!("data:image/png;base64,{}", super::base64::encode(&bytes));
        assert_eq!(
            find::find(&image).iter().map(|r| image.get(r.start..r.start + 60)).collect::<Vec<_>>(),
            [],
            "seed {seed}"
        );
        let hash: String = bytes.iter().take(1000).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(redactor().text(&hash), hash);
    }
}

#[test]
fn a_tag_stays_and_the_same_value_has_the_same_tag_everywhere() {
    let redactor = redactor();
    let secret = SHAPES.iter().find(|shape| shape.id == "github").expect("it is there").example(draws(1));
    let tag = redactor.tag(secret.as_bytes()).0;
    for around in
        ["@", "password=@", "Authorization: Bearer @", "{\"token\":\"@\"}", "Cookie: @", "-u @", "https://@@a.example/"]
    {
        let (plain, tagged) = (around.replacen('@', &secret, 1), around.replacen('@', &tag, 1));
        if around != "-u @" {
            assert_eq!(redactor.text(&plain), tagged);
        }
        assert_eq!(redactor.text(&tagged), tagged);
    }
    assert_eq!(redactor.json(&json!({ "password": secret }), &[], &[]), json!({ "password": tag }));
}

#[test]
fn values_of_json_are_hidden_by_key_by_shape_and_by_rule() {
    let shape = SHAPES.iter().find(|shape| shape.id == "stripe").expect("it is there");
    let secret = shape.example(draws(3));
    let deep = json!({
        "title": "hello", "n": 3, "token": 5, "pin": true, "clientSecret": "abc",
        "auth": { "user": "x", "inner": ["y", 12_345, null, true] },
        "list": [{ "name": "Authorization", "value": "abc" }, ["Cookie", "abc"], ["--token", "abc", "rest"]],
        "text": format!("use {secret} here"), secret.clone(): 1, "jwk": { "kty": "oct", "k": "abc" },
        "body": "left out", "customer": { "id": "c-1", "name": "n" }, "items": [{ "id": 7, "a/b": "x" }],
    });
    let (masked, tagged) =
        (["/body".to_owned()], ["/customer/id".to_owned(), "/items/*/id".to_owned(), "/items/0/a~1b".to_owned()]);
    let redactor = redactor();
    let tag = |text: &str| json!(redactor.tag(text.as_bytes()).0);

    let shown = redactor.json(&deep, &masked, &tagged);

    assert_eq!(
        shown,
        json!({
            "title": "hello", "n": 3, "token": 5, "pin": true, "clientSecret": tag("abc"),
            "auth": { "user": tag("x"), "inner": [tag("y"), tag("12345"), null, true] },
            "list": [{ "name": "Authorization", "value": tag("abc") }, ["Cookie", tag("abc")], ["--token", tag("abc"), "rest"]],
            "text": format!("use {} here", redactor.tag(secret.as_bytes()).0), redactor.tag(secret.as_bytes()).0: 1,
            "jwk": { "kty": "oct", "k": tag("abc") },
            "body": "[masked]", "customer": { "id": tag("c-1"), "name": "n" }, "items": [{ "id": tag("7"), "a/b": tag("x") }],
        })
    );
    assert_eq!(redactor.json(&shown, &[], &[]), shown);
}

#[test]
fn texts_made_to_be_read_again_and_again_are_hidden_in_time() {
    let redactor = redactor();
    for piece in [
        "-eyJ",
        "-eyJa.b",
        "password=",
        "://",
        "://a:b",
        "Bearer ",
        "-----BEGIN PRIVATE KEY",
        "-u a",
        "password=\"",
        "Q~",
        "a:AA",
        "Z2hw",
        "token ",
        "\\\"d\\\"",
        "\"d\":\"a",
    ] {
        let text = piece.repeat((1 << 20) / piece.len());
        let start = Instant::now();
        let shown = redactor.text(&text);
        assert!(start.elapsed() < Duration::from_secs(30), "{piece}: {:?}", start.elapsed());
        assert!(shown.len() <= text.len() * 40);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_planted_secret_is_in_what_comes_out(seed in any::<u64>(), shape in 0..SHAPES.len(), around in 0..AROUND.len(), before in ".{0,40}", after in ".{0,40}") {
        let secret = SHAPES[shape].example(draws(seed));
        let text = format!("{before}\n{}\n{after}", AROUND[around].replace('@', &secret));
        let shown = redactor().text(&text).into_owned();
        prop_assert!(!shown.contains(&secret), "{text} became {shown}");
    }

    #[test]
    fn what_came_out_stays(pieces in prop::collection::vec((0..PIECES.len(), ".{0,6}"), 0..12)) {
        let text: String = pieces.iter().map(|(n, rest)| format!("{}{rest}", PIECES[*n])).collect();
        let shown = redactor().text(&text).into_owned();
        prop_assert_eq!(redactor().text(&shown), shown.as_str(), "of {}", text);
    }

    #[test]
    fn a_password_is_gone_however_it_is_written(password in "[A-Za-z0-9!#@/_+~^?][A-Za-z0-9!#@/:_.+~^=(){\\[*$%?-]{6,22}[A-Za-z0-9!#@/_+~^?]") {
        for around in ["password=@", "\"password\": \"@\"", "password: @", "--password @ x", "<password>@</password>", "DB_PASSWORD=@ x", "{\\\"passwd\\\":\\\"@\\\"}", "x\nsecret_key: @\ny"] {
            let text = around.replace('@', &password);
            let shown = redactor().text(&text).into_owned();
            prop_assert!(!shown.contains(&password), "{text} became {shown}");
        }
    }
}

const PIECES: &[&str] = &[
    "password",
    "=",
    ":",
    "://",
    "@",
    "Bearer ",
    "Basic ",
    "token",
    "\"",
    "\\",
    "-u ",
    "eyJabcdefghijkl.",
    "ghp_",
    "%3D",
    "%26",
    "&",
    ";",
    " ",
    "\n",
    "Cookie: ",
    "Authorization: ",
    "-----BEGIN PRIVATE KEY-----",
    "-----END PRIVATE KEY-----",
    "hmac:0123abcd:0123456789abcdef",
    "{",
    "}",
    "abcdefghijklmnopqrstuvwxyz012345",
    "--",
    "<secret>",
    "<",
    "sk-",
    "https",
    "?code=",
    "session=",
    "'",
];

const ORDINARY: &[&str] = &[
    "tools/call",
    "create_issue",
    "github",
    "user:alice",
    "r_5f3a9c21b7d4_1f",
    "g_0123456789abcdefghijkl",
    "h_Wq7sF0aPzL2mXv8bN1cKtQ",
    "c_Wq7sF0aPzL2mXv8bN1cKtQ",
    "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "urn:uuid:3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "1c53ebcf3e7d12a4b5c6d7e8f9a0b1c2d3e4f5a6",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "/home/alice/.ssh/known_hosts",
    "C:\\Users\\alice\\token\\readme.txt",
    "src/oauth/token.rs:42:17",
    "file:///var/log/auth.log",
    "alice@example.com",
    "mailto:alice@example.com",
    "https://a.example/path?page=2&per_page=50&sort=created",
    "https://github.com/rust-lang/rust/pull/123#issuecomment-456",
    "ssh://git@github.com/rust-lang/rust.git",
    "git@github.com:rust-lang/rust.git",
    "http://127.0.0.1:8080/mcp/up",
    "http://[::1]:8080/x@y",
    "https://a.example/@alice/status/123",
    "npm install @scope/package@1.2.3",
    "docker run -u 1000:1000 alpine",
    "docker pull ghcr.io/a/b@sha256:abc",
    "the token is missing",
    "token: expired",
    "a token of another gateway",
    "invalid token: unexpected end",
    "the Bearer scheme is asked for",
    "Bearer token missing",
    "Bearer realm=\"portcullis\"",
    "WWW-Authenticate: Bearer resource_metadata=\"https://a.example/.well-known/oauth-protected-resource\"",
    "Basic authentication is off",
    "basics of cooking",
    "the password is wrong",
    "password must have 12 characters",
    "no secret here",
    "secret sauce",
    "authors: alice, bob",
    "max_tokens=4096",
    "{\"max_tokens\":4096,\"temperature\":0.7}",
    "{\"progressToken\":\"abc-123-def-456\"}",
    "nextPageToken: CAUQAA4567",
    "primary_key=customer_id",
    "{\"key\":\"value\"}",
    "key=value",
    "keyboard: qwerty123",
    "issueKey: PROJ-1234",
    "author=alice2024",
    "monkey: banana42",
    "path=/etc/passwd",
    "PWD=/home/alice",
    "passed: 120, failed: 3",
    "compass: north-42x",
    "code=policy.denied",
    "{\"code\":31202,\"message\":\"call held for approval expired after 10m\"}",
    "?code=404&x=1",
    "task-1234567890abcdefghijklmnopqrstuvwxyz",
    "risk-assessment-document-of-the-whole-company-2026",
    "ask-alice-about-the-thing",
    "eyJjdXJzb3IiOjEyMzQ1Njc4OTB9",
    "sk-learn",
    "SKU12345",
    "pat-1.2",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "2026-11-30T03:39:42.243Z",
    "v1.2.3-rc.4+build.5",
    "0x7ffee4bff8c0",
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
    "SELECT * FROM users WHERE id = 42",
    "session 12 of 30",
    "session=main",
    "Cookies are needed",
    "a sandbox of uid 65534:65534",
    "let token = 5;",
    "-----BEGIN CERTIFICATE-----",
    "hmac:0123abcd:0123456789abcdef",
    "日本語のテキスト",
    "Content-Type: application/json",
    "",
    "a",
    "\u{0}\u{1}",
    "the upstream `up` answered with 500",
    "configuration in force snapshot=0123456789abcdef upstreams=3 rules=12",
    "listening address=127.0.0.1:39211",
    "signing keys: 2",
    "keys: [a, b]",
    "tokens: 5",
    "token.issued",
    "token.refreshed",
    "login.failed",
    "key.rotated",
    "oauth: { issuer: https://a.example }",
    "authorization_endpoint: https://a.example/authorize",
    "token_endpoint_auth_method=client_secret_post",
    "code_challenge_method=S256",
    "grant_type=authorization_code",
    "password: { env: DB_PASSWORD }",
    "headers: { Authorization: { file: key } }",
    "certificate_key: { file: tls.key }",
    "${SECRET}",
    "token=${TOKEN}",
    "TOKEN=$(cat token)",
    "password=[masked]",
    "secret: [secret]",
];
