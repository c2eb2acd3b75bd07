//! Tokens an attacker would try, each beside the twin that is accepted.

use super::*;
use crate::identity::keys::tests::keys;
use ring::hmac;

const ISSUER: &str = "https://mcp.example.com";
const NOW: i64 = 1_800_000_000;

/// The header and payload of a good token; each test changes one thing in them.
fn header(keys: &Keys) -> String {
    format!(r#"{{"typ":"at+jwt","alg":"ES256","kid":"{}"}}"#, keys.newest_kid())
}

const PAYLOAD: &str = r#"{"iss":"https://mcp.example.com","sub":"user:alice","aud":"https://mcp.example.com/mcp/github","client_id":"cli","scope":"mcp deploy","iat":1800000000,"exp":1800000600,"jti":"t_1","grant":"g_1"}"#;

/// Signs whatever it is given with our key.
fn forge(keys: &Keys, header: &str, payload: &str) -> String {
    let message = format!("{}.{}", base64url(header), base64url(payload));
    let signature = keys.sign_anything(&message);
    format!("{message}.{signature}")
}

fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[track_caller]
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from} is in {text}");
    text.replacen(from, to, 1)
}

#[track_caller]
fn accepted(keys: &Keys, token: &str) -> Claims {
    verify(token, keys, ISSUER, NOW).unwrap_or_else(|error| panic!("{error}: {token}"))
}

/// The name of the error, to compare with.
fn refusal(keys: &Keys, token: &str) -> &'static str {
    match verify(token, keys, ISSUER, NOW) {
        Ok(_) => "accepted",
        Err(Error::Malformed(_)) => "malformed",
        Err(Error::Signature) => "signature",
        Err(Error::Expired) => "expired",
        Err(Error::NotYetValid) => "not yet valid",
        Err(Error::WrongIssuer) => "wrong issuer",
        Err(error) => panic!("not an error of this module: {error}"),
    }
}

#[test]
fn what_we_issue_verifies_and_says_what_it_was_given() {
    let keys = keys();
    let claims = Claims {
        issuer: ISSUER.into(),
        subject: Subject::Client("ci".into()),
        resource: "https://mcp.example.com/mcp/github".into(),
        client: "ci".into(),
        scopes: Arc::new(["mcp".to_owned(), "deploy".to_owned()]),
        issued_at: NOW,
        expires_at: NOW + 600,
        grant: "g_1".into(),
    };

    let token = issue(&keys, &claims).unwrap();

    assert_eq!(accepted(&keys, &token), claims);
    assert_eq!(grant_named_in(&token).as_deref(), Some("g_1"));
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    let expected = format!(r#"{{"typ":"at+jwt","alg":"ES256","kid":"{}"}}"#, keys.newest_kid());
    assert_eq!(String::from_utf8(header).unwrap(), expected);
    assert_ne!(issue(&keys, &claims).unwrap(), token, "jti differs");
}

#[test]
fn the_header_is_read_strictly() {
    let keys = keys();
    let good = header(&keys);
    accepted(&keys, &forge(&keys, &good, PAYLOAD));
    let change = |from: &str, to: &str| forge(&keys, &replaced(&good, from, to), PAYLOAD);

    // RS-10: only access tokens.
    for typ in [r#""at+JWT""#, r#""application/at+jwt""#, r#""AT+jwt""#] {
        accepted(&keys, &change(r#""at+jwt""#, typ));
    }
    for typ in [
        r#""JWT""#,
        r#""jwt""#,
        r#""id_token""#,
        r#""logout+jwt""#,
        r#""""#,
        r#"" at+jwt""#,
        r#""at+jwt ""#,
        r#""text/at+jwt""#,
        "null",
        "1",
        r#"["at+jwt"]"#,
    ] {
        assert_eq!(refusal(&keys, &change(r#""at+jwt""#, typ)), "malformed", "typ {typ}");
    }
    assert_eq!(refusal(&keys, &change(r#""typ":"at+jwt","#, "")), "malformed", "no typ");

    // RS-08: only our algorithm, though the signature is right.
    for alg in ["none", "NONE", "nOnE", "", "es256", "ES256 ", "ES384", "RS256", "PS256", "HS256", "EdDSA"] {
        let token = change(r#""ES256""#, &format!("\"{alg}\""));
        assert_eq!(refusal(&keys, &token), "malformed", "alg {alg}");
    }
    assert_eq!(refusal(&keys, &change(r#""alg":"ES256","#, "")), "malformed", "no alg");

    // RS-08: extensions that change what is signed or must be understood.
    for more in [
        r#""crit":["b64"]"#,
        r#""crit":[]"#,
        r#""crit":null"#,
        r#""crit":["exp"],"exp":1"#,
        r#""b64":false"#,
        r#""b64":true"#,
        r#""alg":"none""#,
        r#""kid":"other""#,
        r#""\u0061lg":"none""#,
    ] {
        let token = change("{", &format!("{{{more},"));
        assert_eq!(refusal(&keys, &token), "malformed", "{more}");
    }
}

#[test]
fn a_header_does_not_choose_the_key() {
    let (keys, other) = (keys(), keys_of_another());
    let jwk = other.jwks()["keys"][0].to_string();
    let references = [
        format!(r#""jwk":{jwk}"#),
        r#""jku":"https://evil.example/jwks""#.to_owned(),
        r#""x5u":"https://evil.example/cert""#.to_owned(),
        r#""x5c":["MIIB"]"#.to_owned(),
    ];
    for reference in references {
        let header = replaced(&header(&keys), "{", &format!("{{{reference},"));
        // Not looked at: neither does it harm a token of ours …
        accepted(&keys, &forge(&keys, &header, PAYLOAD));
        // … nor does it help one signed with the key it offers.
        assert_eq!(refusal(&keys, &forge(&other, &header, PAYLOAD)), "signature", "{reference}");
    }
}

fn keys_of_another() -> Keys {
    keys()
}

#[test]
fn only_a_key_of_ours_under_its_own_name_counts() {
    let (keys, other) = (keys(), keys_of_another());
    // RS-07, RS-09: another key, under its own name and under ours.
    assert_eq!(refusal(&keys, &forge(&other, &header(&other), PAYLOAD)), "signature");
    assert_eq!(refusal(&keys, &forge(&other, &header(&keys), PAYLOAD)), "signature");
    assert_eq!(refusal(&keys, &forge(&keys, &header(&other), PAYLOAD)), "signature");

    let kid = keys.newest_kid();
    let change = |to: &str| forge(&keys, &replaced(&header(&keys), &format!("\"{kid}\""), to), PAYLOAD);
    accepted(&keys, &change(&format!("\"{kid}\"")));
    for wrong in [
        format!("\"{kid}.pem\""),
        format!("\"./{kid}\""),
        format!("\"../keys/{kid}\""),
        format!("\"{kid}\\u0000\""),
        format!("\"{}\"", kid.to_ascii_lowercase()),
        r#""../../../dev/null""#.to_owned(),
        r#""' OR 1=1 --""#.to_owned(),
        r#""https://evil.example/k""#.to_owned(),
        r#""""#.to_owned(),
    ] {
        assert_eq!(refusal(&keys, &change(&wrong)), "signature", "kid {wrong}");
    }
    for wrong in ["null", "1", "[]"] {
        assert_eq!(refusal(&keys, &change(wrong)), "malformed", "kid {wrong}");
    }
    let huge = change(&format!("\"{}\"", "k".repeat(1 << 20)));
    assert_eq!(refusal(&keys, &huge), "malformed");
}

#[test]
fn the_public_key_is_no_shared_secret() {
    let keys = keys();
    accepted(&keys, &forge(&keys, &header(&keys), PAYLOAD));
    for (n, secret) in keys.public_forms().iter().enumerate() {
        for alg in ["HS256", "HS384", "HS512", "ES256", "none"] {
            let header = replaced(&header(&keys), "ES256", alg);
            let message = format!("{}.{}", base64url(header), base64url(PAYLOAD));
            let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
            let tag = hmac::sign(&key, message.as_bytes());
            // As it is, and stretched to the length of an ES256 signature.
            for signature in [tag.as_ref().to_vec(), [tag.as_ref(), tag.as_ref()].concat()] {
                let token = format!("{message}.{}", base64url(signature));
                assert_ne!(refusal(&keys, &token), "accepted", "form {n}, {alg}");
            }
        }
    }
}

#[test]
fn a_signature_has_one_form() {
    let keys = keys();
    let good = forge(&keys, &header(&keys), PAYLOAD);
    accepted(&keys, &good);
    let (message, signature) = good.rsplit_once('.').unwrap();
    let bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let (r, s) = bytes.split_at(32);
    let last = signature.chars().last().unwrap();
    let flip = |n: usize| {
        let mut bytes = bytes.clone();
        bytes[n] ^= 1;
        base64url(bytes)
    };
    let cases = [
        ("empty", String::new()),
        ("one byte", "AA".to_owned()),
        ("truncated text", signature[..signature.len() - 1].to_owned()),
        ("truncated bytes", base64url(&bytes[..63])),
        ("longer", base64url([&bytes[..], &[0]].concat())),
        ("twice", base64url([&bytes[..], &bytes[..]].concat())),
        ("padded", format!("{signature}==")),
        ("half padded", format!("{signature}=")),
        ("newline at the end", format!("{signature}\n")),
        ("newline inside", format!("{}\n{}", &signature[..40], &signature[40..])),
        ("space before", format!(" {signature}")),
        ("standard alphabet", signature.replace('-', "+").replace('_', "/") + "+/"),
        ("other last bits", format!("{}{}", &signature[..signature.len() - 1], next_letter(last))),
        ("r is zero", base64url([&[0; 32], s].concat())),
        ("s is zero", base64url([r, &[0; 32]].concat())),
        ("both are zero", base64url([0; 64])),
        ("all ones", base64url([0xff; 64])),
        ("r and s exchanged", base64url([s, r].concat())),
        ("DER", base64url(der_form(r, s))),
        ("a bit of r", flip(3)),
        ("a bit of s", flip(60)),
    ];
    for (what, signature) in cases {
        let refusal = refusal(&keys, &format!("{message}.{signature}"));
        assert!(["malformed", "signature"].contains(&refusal), "{what}: {refusal}");
    }
}

/// The letter after this one: the same bytes, with bits set that a decoder could ignore.
fn next_letter(letter: char) -> char {
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let at = alphabet.find(letter).unwrap();
    alphabet.chars().nth(at + 1).unwrap()
}

fn der_form(r: &[u8], s: &[u8]) -> Vec<u8> {
    let integer = |n: &[u8]| {
        let mut n = n.to_vec();
        if n[0] >= 0x80 {
            n.insert(0, 0);
        }
        [&[2, u8::try_from(n.len()).unwrap()], n.as_slice()].concat()
    };
    let both = [integer(r), integer(s)].concat();
    [&[0x30, u8::try_from(both.len()).unwrap()], both.as_slice()].concat()
}

#[test]
fn a_token_has_three_parts_of_base64url() {
    let keys = keys();
    let good = forge(&keys, &header(&keys), PAYLOAD);
    let parts: Vec<&str> = good.split('.').collect();
    let [header, payload, signature] = parts[..] else { unreachable!() };
    accepted(&keys, &good);
    let cases = [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        "...".to_owned(),
        "a.b.c".to_owned(),
        header.to_owned(),
        format!("{header}.{payload}"),
        format!("{header}.{payload}."),
        format!(".{payload}.{signature}"),
        format!("{header}..{signature}"),
        format!("{good}."),
        format!(".{good}"),
        format!("{good}.{signature}"),
        format!("{header}.{header}.{payload}.{signature}.{signature}"),
        format!("{header}=.{payload}.{signature}"),
        format!("{header}.{payload}=.{signature}"),
        format!("{header}.{payload}\n.{signature}"),
        format!(" {good}"),
        format!("{good} "),
        format!("{good}\0"),
        format!("{header}.{payload}é.{signature}"),
        format!("{good}{}", "A".repeat(LONGEST_TOKEN)),
    ];
    for token in cases {
        let refusal = refusal(&keys, &token);
        assert!(["malformed", "signature"].contains(&refusal), "{token:?}: {refusal}");
    }
    // A nested token and an encrypted one are not tokens either.
    assert_eq!(refusal(&keys, &forge(&keys, &self::header(&keys), &format!("\"{good}\""))), "malformed");
}

#[test]
fn a_token_is_at_most_eight_kibibytes() {
    let keys = keys();
    let with_scope =
        |n: usize| forge(&keys, &header(&keys), &replaced(PAYLOAD, "mcp deploy", &format!("mcp {}", "x".repeat(n))));
    let fits = (5_000..6_200).rev().map(with_scope).find(|token| token.len() <= LONGEST_TOKEN).unwrap();
    assert!(fits.len() > LONGEST_TOKEN - 4);
    accepted(&keys, &fits);
    assert_eq!(refusal(&keys, &with_scope(6_200)), "malformed");
}

/// A claim as it should be, and what must not pass for it.
const WRONG_TYPES: &[(&str, &[&str])] = &[
    (
        r#""exp":1800000600"#,
        &[
            r#""exp":"9999999999""#,
            r#""exp":1e400"#,
            r#""exp":1.8e9"#,
            r#""exp":1800000600.5"#,
            r#""exp":null"#,
            r#""exp":{}"#,
            r#""exp":[1800000600]"#,
            r#""exp":true"#,
            r#""exp":99999999999999999999"#,
            r#""exp":NaN"#,
            r#""exp":Infinity"#,
            r#""exp":+1800000600"#,
            r#""exp":01800000600"#,
            r#""exp":0x7fffffff"#,
            r#""exp":"#,
        ],
    ),
    (
        r#""iat":1800000000"#,
        &[
            r#""iat":"1800000000""#,
            r#""iat":null"#,
            r#""iat":[]"#,
            r#""iat":1e400"#,
            r#""iat":1800000000,"nbf":{}"#,
            r#""iat":1800000000,"nbf":null"#,
            r#""iat":1800000000,"nbf":"0""#,
            r#""iat":1800000000,"nbf":false"#,
            r#""iat":1800000000,"nbf":1e400"#,
        ],
    ),
    (
        r#""sub":"user:alice""#,
        &[
            r#""sub":[]"#,
            r#""sub":["user:alice"]"#,
            r#""sub":null"#,
            r#""sub":1"#,
            r#""sub":{}"#,
            r#""sub":"""#,
            r#""sub":"alice""#,
            r#""sub":"user:""#,
            r#""sub":"user:Alice""#,
            r#""sub":"user:alice\u0000""#,
            r#""sub":"User:alice""#,
            r#""sub":"user:alice ""#,
            r#""sub":"group:admins""#,
        ],
    ),
    (
        r#""aud":"https://mcp.example.com/mcp/github""#,
        &[
            r#""aud":1"#,
            r#""aud":null"#,
            r#""aud":{}"#,
            r#""aud":[]"#,
            r#""aud":["https://mcp.example.com/mcp/github"]"#,
        ],
    ),
    (r#""iss":"https://mcp.example.com""#, &[r#""iss":1"#, r#""iss":null"#, r#""iss":["https://mcp.example.com"]"#]),
    (
        r#""client_id":"cli""#,
        &[
            r#""client_id":null"#,
            r#""client_id":1"#,
            r#""client_id":"""#,
            r#""client_id":"a b""#,
            r#""client_id":["cli"]"#,
        ],
    ),
    (
        r#""scope":"mcp deploy""#,
        &[
            r#""scope":["mcp"]"#,
            r#""scope":null"#,
            r#""scope":"""#,
            r#""scope":" mcp""#,
            r#""scope":"mcp  deploy""#,
            r#""scope":"mcp\tdeploy""#,
            r#""scope":"mcp\"""#,
            r#""scp":"mcp""#,
        ],
    ),
    (r#""jti":"t_1""#, &[r#""jti":1"#, r#""jti":"""#, r#""jti":null"#]),
    (r#""grant":"g_1""#, &[r#""grant":1"#, r#""grant":"""#, r#""grant":null"#, r#""grant":["g_1"]"#]),
];

#[test]
fn claims_are_of_their_type_and_all_there() {
    let keys = keys();
    let change = |from: &str, to: &str| forge(&keys, &header(&keys), &replaced(PAYLOAD, from, to));
    accepted(&keys, &change("{", r#"{"extra":{"exp":[1,{}]},"#));
    accepted(&keys, &change("{", r#"{"nbf":1800000000,"#));

    // RS-12: types. A claim that cannot be read must not count as one that is not there.
    for (good, bad) in WRONG_TYPES {
        accepted(&keys, &change(good, good));
        for bad in *bad {
            assert_eq!(refusal(&keys, &change(good, bad)), "malformed", "{bad}");
        }
        // Missing, and written twice.
        let (comma_before, comma_after) = (format!(",{good}"), format!("{good},"));
        let cut = if PAYLOAD.contains(&comma_before) { comma_before } else { comma_after };
        assert_eq!(refusal(&keys, &change(&cut, "")), "malformed", "without {good}");
        assert_eq!(refusal(&keys, &change(good, &format!("{good},{good}"))), "malformed", "twice {good}");
    }
    for escaped in [r#"{"\u0065xp":9800000600,"#, r#"{"\u0073ub":"user:bob","#] {
        assert_eq!(refusal(&keys, &change("{", escaped)), "malformed", "{escaped}");
    }
    let by_position = r#"["https://mcp.example.com","user:alice","https://mcp.example.com/mcp/github","cli","mcp",1800000000,1800000600,1800000000,"t","g"]"#;
    for payload in [
        "{}",
        "null",
        "\"\"",
        "1",
        "",
        "{",
        by_position,
        &format!("{PAYLOAD}{PAYLOAD}"),
        &format!("{PAYLOAD} x"),
        &format!("\u{feff}{PAYLOAD}"),
    ] {
        let token = forge(&keys, &header(&keys), payload);
        assert_eq!(refusal(&keys, &token), "malformed", "{payload}");
    }
}

#[test]
fn times_hold_to_the_second() {
    let keys = keys();
    let with = |claim: &str, value: i64| {
        let payload = match claim {
            "exp" => replaced(PAYLOAD, r#""exp":1800000600"#, &format!(r#""exp":{value}"#)),
            "iat" => replaced(PAYLOAD, r#""iat":1800000000"#, &format!(r#""iat":{value}"#)),
            _ => replaced(PAYLOAD, "{", &format!(r#"{{"nbf":{value},"#)),
        };
        refusal(&keys, &forge(&keys, &header(&keys), &payload))
    };
    let cases = [
        ("exp", NOW + 1, "accepted"),
        ("exp", NOW, "expired"),
        ("exp", NOW - 1, "expired"),
        ("exp", 0, "expired"),
        ("exp", -1, "expired"),
        ("exp", i64::MIN, "expired"),
        ("exp", i64::MAX, "accepted"),
        ("nbf", NOW + 5, "accepted"),
        ("nbf", NOW + 6, "not yet valid"),
        ("nbf", i64::MAX, "not yet valid"),
        ("nbf", i64::MIN, "accepted"),
        ("iat", NOW + 5, "accepted"),
        ("iat", NOW + 6, "not yet valid"),
        ("iat", i64::MIN, "accepted"),
    ];
    for (claim, value, expected) in cases {
        assert_eq!(with(claim, value), expected, "{claim} {value}");
    }
}

#[test]
fn the_issuer_is_compared_byte_for_byte() {
    let keys = keys();
    let of = |issuer: &str| {
        refusal(
            &keys,
            &forge(
                &keys,
                &header(&keys),
                &replaced(PAYLOAD, r#""iss":"https://mcp.example.com""#, &format!(r#""iss":"{issuer}""#)),
            ),
        )
    };
    assert_eq!(of(ISSUER), "accepted");
    for wrong in [
        "https://mcp.example.com/",
        "https://MCP.example.com",
        "http://mcp.example.com",
        "https://mcp.example.com:443",
        "https://mcp.example.co",
        "https://mcp.example.com.evil.example",
        "https://evil.example",
        "",
    ] {
        assert_eq!(of(wrong), "wrong issuer", "{wrong}");
    }
}

#[test]
fn nothing_a_stranger_writes_is_told_back() {
    let keys = keys();
    let secret = "SECRET-IN-TOKEN";
    for token in [
        secret.to_owned(),
        forge(&keys, &header(&keys), &replaced(PAYLOAD, "user:alice", secret)),
        forge(&keys, &replaced(&header(&keys), "ES256", secret), PAYLOAD),
        forge(&keys, &header(&keys), &replaced(PAYLOAD, "https://mcp.example.com\"", &format!("{secret}\""))),
    ] {
        let error = verify(&token, &keys, ISSUER, NOW).unwrap_err();
        assert_eq!(error.public(), "the access token is not valid");
        assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
    }
}
