//! Names of things that are secrets: keys of JSON and YAML, header names, parameters, variables, flags. One list for all.

/// Whether what stands under this name is likely to be a secret: `Authorization`, `x_api_key`, `clientSecret`, `DB_PASSWORD_2`, …
pub fn is_secret(name: &str) -> bool {
    let words = words(name);
    let mut words = words.as_slice();
    if is_pair(words) {
        return true;
    }
    // What else is said of a secret says nothing of whether it is one: `password_hash`, `API_KEY_PROD`, `token2`.
    while let [before @ .., last] = words
        && !before.is_empty()
        && (is_any(last, ASIDES) || last.bytes().all(|byte| byte.is_ascii_digit()))
    {
        words = before;
    }
    let (last, before) = match words {
        [] => return false,
        [last] => (*last, ""),
        [.., before, last] => (*last, *before),
    };
    if last.eq_ignore_ascii_case("auth") {
        // `OAuth`, `oauth`: a protocol.
        return !before.eq_ignore_ascii_case("o");
    }
    if last.eq_ignore_ascii_case("key") {
        // Not `key` alone: that is what tables and maps have.
        return !before.is_empty() && !is_any(before, HARMLESS_KEYS);
    }
    if last.eq_ignore_ascii_case("token") && is_any(before, HARMLESS_TOKENS) {
        return false;
    }
    is_any(last, WORDS) || is_pair(words) || ends_with_a_word(words)
}

/// Whether this names a secret where it is a parameter of a URL or form, and need not elsewhere.
pub(super) fn is_secret_parameter(name: &str) -> bool {
    let words = words(name);
    let is_last = |of: &[&str]| words.last().is_some_and(|last| is_any(last, of));
    is_last(&["code", "sig", "signature"]) || name.eq_ignore_ascii_case("samlresponse")
}

/// Whether this names a session, whose id is a secret where it is written like one.
pub(super) fn is_session(name: &str) -> bool {
    words(name).last().is_some_and(|last| is_any(last, &["session", "sess"]))
}

/// Whether the word is one of those whose value is a secret however it looks.
pub(super) fn is_password(name: &str) -> bool {
    words(name).iter().any(|word| {
        let head = word.as_bytes().get(..4).unwrap_or_default();
        head.eq_ignore_ascii_case(b"pass")
            || is_any(word, &["pwd", "cookie", "cookies", "kennwort", "senha", "contrasena"])
    })
}

/// Whether this is the name of a header whose value is credentials to the end of its line.
pub(super) fn is_header_of_credentials(name: &str) -> bool {
    is_any(name, &["authorization", "proxy-authorization", "cookie", "set-cookie", "authentication-info"])
}

/// What every secret name has somewhere in it, in lower case.
pub(super) const MARKS: &[&str] = &[
    "pass",
    "kennwort",
    "senha",
    "contrasena",
    "secret",
    "token",
    "key",
    "auth",
    "cred",
    "cookie",
    "pwd",
    "pw",
    "psk",
    "otp",
    "jwt",
    "sid",
    "dsn",
    "bearer",
    "assertion",
    "mnemonic",
    "sess",
    "conn",
    "code",
    "verifier",
    "sig",
    "saml",
];

/// The words of a name: `clientSecret_2` has three.
fn words(name: &str) -> Vec<&str> {
    let bytes = name.as_bytes();
    let mut words = Vec::with_capacity(4);
    let mut start = 0;
    for at in 0..=bytes.len() {
        let is_word = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
        let is = |at: usize, of: fn(&u8) -> bool| bytes.get(at).is_some_and(of);
        let ends = at > start && (!is_word(at) || is_new_word(at, is));
        if ends {
            words.extend(name.get(start..at));
            start = at;
        }
        if !is_word(at) {
            start = at + 1;
        }
    }
    words
}

/// Whether a new word begins here without anything between: `fooBar`, `FOOBar`, `foo2`, `2foo`.
fn is_new_word(at: usize, is: impl Fn(usize, fn(&u8) -> bool) -> bool) -> bool {
    let (upper, lower, digit) = (u8::is_ascii_uppercase, u8::is_ascii_lowercase, u8::is_ascii_digit);
    is(at, upper) && (is(at - 1, lower) || is(at - 1, upper) && is(at + 1, lower)) || is(at, digit) != is(at - 1, digit)
}

fn is_any(word: &str, of: &[&str]) -> bool {
    of.iter().any(|it| word.eq_ignore_ascii_case(it))
}

fn is_pair(words: &[&str]) -> bool {
    let [.., before, last] = words else { return false };
    PAIRS.iter().any(|(of, second)| last.eq_ignore_ascii_case(second) && is_any(before, of))
}

/// Written together, or with capitals anywhere: `githubtoken`, `passWord`.
fn ends_with_a_word(words: &[&str]) -> bool {
    let written = words.concat().to_ascii_lowercase();
    TOGETHER.iter().any(|word| written.ends_with(word))
}

const WORDS: &[&str] = &[
    "authorization",
    "authentication",
    "cookie",
    "cookies",
    "token",
    "secret",
    "secrets",
    "password",
    "passwords",
    "passwd",
    "passcode",
    "passphrase",
    "pass",
    "pwd",
    "pw",
    "psk",
    "otp",
    "totp",
    "jwt",
    "bearer",
    "credential",
    "credentials",
    "creds",
    "apikey",
    "sid",
    "dsn",
    "assertion",
    "mnemonic",
    "passwort",
    "kennwort",
    "contrasena",
    "senha",
];
const TOGETHER: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "passwort",
    "kennwort",
    "motdepasse",
    "token",
    "secret",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "sessionid",
    "sessid",
    "authkey",
    "credentials",
    "connectionstring",
];
/// Two words that name a secret together.
const PAIRS: &[(&[&str], &str)] = &[
    (&["session", "sess", "sessions"], "id"),
    (&["secret"], "id"),
    (&["connection", "conn"], "string"),
    (&["conn"], "str"),
    (&["code"], "verifier"),
    (
        &[
            "device",
            "authorization",
            "auth",
            "verification",
            "recovery",
            "backup",
            "otp",
            "totp",
            "mfa",
            "sms",
            "security",
            "pin",
            "user",
            "setup",
        ],
        "code",
    ),
];
/// What may follow the name of a secret.
const ASIDES: &[&str] = &[
    "hash",
    "base",
    "value",
    "data",
    "header",
    "b64",
    "base64",
    "raw",
    "hex",
    "enc",
    "encrypted",
    "string",
    "str",
    "binary",
    "text",
    "plain",
    "plaintext",
    "current",
    "old",
    "new",
    "prod",
    "production",
    "staging",
    "test",
    "dev",
    "live",
    "confirmation",
    "confirm",
    "repeat",
    "again",
];
/// What stands before `key` where it is none of a lock.
const HARMLESS_KEYS: &[&str] = &[
    "public",
    "pub",
    "primary",
    "foreign",
    "sort",
    "partition",
    "cache",
    "object",
    "issue",
    "project",
    "idempotency",
    "composite",
    "row",
    "map",
    "config",
    "group",
    "unique",
    "index",
    "lookup",
    "event",
    "message",
    "routing",
    "translation",
    "i18n",
    "label",
    "metric",
    "feature",
    "hot",
    "arrow",
    "answer",
    "parent",
    "registry",
    "range",
    "next",
    "sub",
    "json",
    "dict",
    "by",
    "the",
    "a",
    "per",
    "each",
    "no",
    "unknown",
    "duplicate",
    "missing",
    "this",
    "of",
];
/// What stands before `token` where it lets nobody in.
const HARMLESS_TOKENS: &[&str] = &[
    "page",
    "progress",
    "continuation",
    "next",
    "sync",
    "cursor",
    "cancel",
    "cancellation",
    "max",
    "eos",
    "bos",
    "pad",
    "unk",
    "stop",
    "mask",
    "start",
    "end",
    "per",
];

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "Authorization X-Api-Key x_api_key token access_token Cookie Set-Cookie X-Auth client_secret password_hash \
        apikey apiKey APIKey accessToken DB_PASSWORD passWord pAssWord PASSWORD2 githubtoken _authToken Mcp-Session-Id sessionId \
        PHPSESSID connect.sid connectionString AZURE_STORAGE_CONNECTION_STRING SecretString client-key-data aws_secret_access_key \
        code_verifier deviceCode x-amz-security-token passphrase private_key privateKey basic_auth API_KEY_PROD refreshToken \
        id_token_hint_token user.password new_password passwordConfirmation mot_de_passe SENTRY_DSN csrf_token credentials \
        secret_id client_assertion";
    const NONE: &str = "key tokens author X-Team keys monkey url max_tokens maxTokens progressToken nextPageToken primary_key \
        public_key issueKey token_type token_endpoint secret_name oauth OAuth password_policy code state id path keyboard turkey \
        compass bypass inside session description passed authored_by tokenizer sha256 keyword 2 --- é";

    #[test]
    fn names_of_secrets_are_told_from_others() {
        SECRET.split_whitespace().for_each(|name| assert!(is_secret(name), "{name}"));
        NONE.split_whitespace().chain([""]).for_each(|name| assert!(!is_secret(name), "{name}"));
    }
}
