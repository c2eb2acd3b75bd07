//! Claims and headers one by one. Signatures, and the whole way of a token, are in `tests/issuers`.
#![expect(clippy::needless_pass_by_value, reason = "tables of literals read better without a `&` before each")]

use super::*;
use serde_json::json;

const NOW: i64 = 1_800_000_000;

fn settings(more: Value) -> config::Issuer {
    let mut settings = json!({
        "issuer": "https://idp.test",
        "groups": { "operators": "ops", "Admins": "admins" },
        "scopes": { "mcp.use": "mcp", "mcp.write": "write" },
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(settings).unwrap()
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn payload(more: Value) -> Value {
    let mut payload = json!({
        "iss": "https://idp.test", "sub": "u1", "aud": "https://gw.test/mcp/up", "client_id": "app",
        "iat": NOW - 10, "exp": NOW + 300,
    });
    for (name, value) in more.as_object().unwrap() {
        match value {
            Value::Null => drop(payload.as_object_mut().unwrap().remove(name)),
            value => payload[name] = value.clone(),
        }
    }
    payload
}

fn read(more: Value, set: Value) -> Result<Claims, Error> {
    claims(&part(&payload(more)), &settings(set), NOW)
}

#[track_caller]
fn refused(more: Value) -> Error {
    read(more.clone(), json!({})).expect_err(&more.to_string())
}

#[test]
fn what_is_mapped_counts_and_nothing_else_does() {
    let claims = read(
        json!({ "groups": ["operators", "admins", "root", "operators"], "scope": "openid mcp.write mcp.writeall mcp" }),
        json!({}),
    )
    .unwrap();

    assert_eq!(*claims.groups, ["ops"]);
    assert_eq!(*claims.scopes, ["write"]);
    assert_eq!((claims.subject, &*claims.client), (Subject::User("u1".into()), "app"));
    assert_eq!(*claims.audience, ["https://gw.test/mcp/up"]);
}

#[test]
fn scopes_and_groups_are_read_as_the_common_issuers_write_them() {
    let scopes = |more: Value| read(more, json!({})).unwrap().scopes.to_vec();
    assert_eq!(scopes(json!({ "scp": "mcp.use mcp.write" })), ["mcp", "write"]);
    assert_eq!(scopes(json!({ "scp": ["mcp.use", "openid"] })), ["mcp"]);
    assert_eq!(scopes(json!({ "scope": "" })), Vec::<String>::new());
    assert_eq!(scopes(json!({})), Vec::<String>::new());
    let groups = |more: Value, claim: &str| read(more, json!({ "groups_claim": claim })).unwrap().groups.to_vec();
    assert_eq!(groups(json!({ "realm_access": { "roles": ["operators"] } }), "/realm_access/roles"), ["ops"]);
    assert_eq!(groups(json!({ "https://x.test/roles": ["Admins"] }), "https://x.test/roles"), ["admins"]);
    assert_eq!(groups(json!({ "roles": "operators" }), "roles"), ["ops"]);
    assert_eq!(groups(json!({ "realm_access": 1 }), "/realm_access/roles"), Vec::<String>::new());
    assert_eq!(groups(json!({ "a/b": { "c~d": ["Admins"] } }), "/a~1b/c~0d"), ["admins"]);
    for client in ["azp", "cid", "appid"] {
        let claims = read(json!({ "client_id": null, client: "x" }), json!({})).unwrap();
        assert_eq!(&*claims.client, "x");
    }
}

/// RS-05, RS-12: times are numbers, and one that is written wrongly is not one that is left out.
#[test]
fn times_have_their_type_and_their_limits() {
    for good in [
        json!({ "exp": NOW + 1 }),
        json!({ "exp": 1_800_000_000.9 + 1.0 }),
        json!({ "iat": null }),
        json!({ "nbf": NOW + 30, "iat": NOW + 30 }),
    ] {
        read(good.clone(), json!({})).unwrap_or_else(|error| panic!("{good}: {error}"));
    }
    for over in [json!({ "exp": NOW }), json!({ "exp": NOW - 5 }), json!({ "exp": -1 }), json!({ "exp": 0 })] {
        assert!(matches!(refused(over), Error::Expired));
    }
    for ahead in [json!({ "nbf": NOW + 31 }), json!({ "iat": NOW + 31 })] {
        assert!(matches!(refused(ahead), Error::NotYetValid));
    }
    for wrong in [
        json!({ "exp": null }),
        json!({ "exp": "1900000000" }),
        json!({ "exp": [NOW + 300] }),
        json!({ "exp": true }),
        json!({ "exp": 1e300 }),
        json!({ "nbf": {} }),
        json!({ "nbf": "0" }),
        json!({ "iat": "0" }),
    ] {
        assert!(matches!(refused(wrong), Error::Malformed(_)));
    }
    let too_large = payload(json!({ "exp": 7_777 })).to_string().replace("7777", "1e400");
    assert!(claims(&URL_SAFE_NO_PAD.encode(too_large), &settings(json!({})), NOW).is_err());
}

#[test]
fn claims_have_their_type_and_must_be_there() {
    for wrong in [
        json!({ "sub": null }),
        json!({ "sub": "" }),
        json!({ "sub": ["u1"] }),
        json!({ "sub": "a\nb" }),
        json!({ "sub": "s".repeat(256) }),
        json!({ "client_id": null }),
        json!({ "client_id": 7 }),
        json!({ "client_id": "a b" }),
        json!({ "aud": 1 }),
        json!({ "aud": ["https://gw.test/mcp/up", 1] }),
        json!({ "scope": 1 }),
        json!({ "scope": ["mcp.use", 1] }),
        json!({ "scope": "mcp.use \u{fc}" }),
        json!({ "groups": { "operators": true } }),
        json!({ "groups": ["operators", 1] }),
        json!({ "iss": 1 }),
        json!({ "iss": null }),
    ] {
        assert!(matches!(refused(wrong), Error::Malformed(_)));
    }
    assert!(matches!(refused(json!({ "aud": null })), Error::WrongAudience));
    for other in ["https://idp.test/", "https://IDP.test", "https://idp.test.evil.test", "http://idp.test"] {
        assert!(matches!(refused(json!({ "iss": other })), Error::WrongIssuer), "{other}");
    }
    let twice = payload(json!({})).to_string().replacen('{', r#"{"sub":"u2","#, 1);
    assert!(claims(&URL_SAFE_NO_PAD.encode(twice), &settings(json!({})), NOW).is_err(), "a claim twice");
    let deep = payload(json!({ "x": { "a": 0 } })).to_string().replace(r#"{"a":0}"#, r#"{"a":0,"\u0061":1}"#);
    assert!(claims(&URL_SAFE_NO_PAD.encode(deep), &settings(json!({})), NOW).is_err(), "twice inside, by an escape");
}

/// RS-10: what is signed by the same keys and is no access token.
#[test]
fn id_refresh_and_logout_tokens_are_no_access_tokens() {
    for other in [
        json!({ "nonce": "n" }),
        json!({ "at_hash": "h" }),
        json!({ "events": {} }),
        json!({ "typ": "ID" }),
        json!({ "typ": "Refresh" }),
        json!({ "typ": "Logout" }),
        json!({ "typ": 1 }),
        json!({ "cnf": { "jkt": "x" } }),
        json!({ "typ": "Bearer", "cnf": { "x5t#S256": "x" } }),
    ] {
        assert!(matches!(refused(other), Error::Malformed(_)));
    }
    // Older Keycloak puts the nonce of the login into the access token, and says that it is one.
    read(json!({ "typ": "Bearer", "nonce": "n" }), json!({})).unwrap();
}

#[test]
fn groups_that_were_left_out_are_not_taken_for_none() {
    for overage in [json!({ "hasgroups": true }), json!({ "_claim_names": { "groups": "src1" } })] {
        assert!(matches!(refused(overage), Error::Malformed(_)));
    }
    read(json!({ "_claim_names": { "other": "src1" } }), json!({})).unwrap();
}

/// RS-20.
#[test]
fn a_machine_is_not_the_person_of_its_name() {
    let subject = |more: Value, set: Value| read(more, set).unwrap().subject;
    assert_eq!(subject(json!({ "sub": "app" }), json!({})), Subject::Client("app".into()));
    assert_eq!(subject(json!({ "sub": "App" }), json!({})), Subject::User("App".into()));
    let by_oid = json!({ "subject_claim": "oid" });
    assert_eq!(subject(json!({ "oid": "o1" }), by_oid.clone()), Subject::User("o1".into()));
    assert_eq!(subject(json!({ "oid": "o1", "sub": "app" }), by_oid.clone()), Subject::Client("o1".into()));
    assert!(read(json!({}), by_oid).is_err(), "the configured claim must be there");
}

#[test]
fn only_named_clients_count_where_some_are_named() {
    read(json!({}), json!({ "clients": ["other", "app"] })).unwrap();
    assert!(matches!(read(json!({}), json!({ "clients": ["App"] })), Err(Error::Client(_))));
}

#[test]
fn a_header_is_held_against_what_is_configured() {
    let read = |header: Value, set: Value| super::header(&part(&header), &settings(set));
    let good = json!({ "typ": "at+jwt", "alg": "ES256", "kid": "k" });
    let with = |name: &str, value: Value| {
        let mut header = good.clone();
        match value {
            Value::Null => drop(header.as_object_mut().unwrap().remove(name)),
            value => header[name] = value,
        }
        header
    };
    assert_eq!(read(good.clone(), json!({})).unwrap(), Header { alg: Algorithm::ES256, kid: "k".to_owned() });
    for typ in ["AT+JWT", "application/at+jwt"] {
        assert!(read(with("typ", json!(typ)), json!({})).is_ok(), "{typ}");
    }
    for typ in [Value::Null, json!("JWT"), json!("id_token"), json!("logout+jwt"), json!(1), json!("")] {
        assert!(read(with("typ", typ.clone()), json!({})).is_err(), "{typ}");
    }
    let lenient = || json!({ "token_types": ["JWT", "none"] });
    assert!(read(with("typ", json!("jwt")), lenient()).is_ok());
    assert!(read(with("typ", Value::Null), lenient()).is_ok());
    assert!(read(good.clone(), lenient()).is_err());
    for alg in ["none", "None", "HS256", "HS512", "ES384", "es256", "RS1", "dir", ""] {
        assert!(read(with("alg", json!(alg)), json!({})).is_err(), "{alg}");
    }
    assert!(read(with("alg", json!("RS256")), json!({ "algorithms": ["ES256"] })).is_err());
    for (name, value) in [
        ("alg", Value::Null),
        ("kid", Value::Null),
        ("kid", json!(1)),
        ("crit", json!(["exp"])),
        ("crit", json!([])),
        ("b64", json!(true)),
    ] {
        assert!(read(with(name, value.clone()), json!({})).is_err(), "{name}: {value}");
    }
    // A key, or where one is, is not looked at.
    let loaded = json!({
        "typ": "at+jwt", "alg": "ES256", "kid": "../../k", "jku": "https://evil.test", "x5u": "https://evil.test",
        "jwk": { "kty": "oct", "k": "AA" }, "x5c": ["AA"],
    });
    assert_eq!(read(loaded, json!({})).unwrap().kid, "../../k");
}
