//! Redirect URIs (RFC 6749 §3.1.2): which of them may be known for a client, and which one counts as which.
//!
//! A URI is read by its text. The one reading that browsers have must find the same host in it, or it is refused: what
//! two parsers read differently is how a code gets to somebody else. After that it is compared byte for byte; only the
//! port of a loopback address may differ (RFC 8252 §7.3), since a program on a desktop takes whichever is free.

use std::net::Ipv4Addr;
use url::Url;

/// In bytes. The longest that clients are known to use have about a hundred.
const LONGEST: usize = 512;

/// What a domain name that was turned round begins with, beside the two letters of a country.
const TOP_LEVEL_DOMAINS: &[&str] = &["app", "biz", "cloud", "com", "dev", "edu", "gov", "info", "net", "org", "tech"];

/// Schemes of programs on a desktop that are not of the form `com.example.app` (RFC 8252 §7.1) and are in use all the
/// same. A scheme proves nothing of who has it; each of these is at least taken by a known program.
const KNOWN_SCHEMES: &[&str] = &[
    "antigravity",
    "claude",
    "cursor",
    "goose",
    "jetbrains",
    "kiro",
    "lmstudio",
    "raycast",
    "trae",
    "vscode",
    "vscode-insiders",
    "vscodium",
    "warp",
    "windsurf",
    "windsurf-next",
    "zed",
];

/// Why a URI may not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// More than 512 bytes.
    #[error("is longer than 512 bytes")]
    TooLong,
    /// Not an absolute URI (RFC 3986 §4.3), or one with a character that none may have.
    #[error("is no absolute URI")]
    Malformed,
    /// With a `#`, which ends up at another place than the code.
    #[error("has a fragment")]
    Fragment,
    /// With a `*`: nothing here is a pattern.
    #[error("has a `*`, and there are no wildcards")]
    Wildcard,
    /// With a user name, which makes one host look like another.
    #[error("has a user name or password before its host")]
    Userinfo,
    /// Plain `http` to another machine.
    #[error("is plain http, which is for this machine only (localhost, 127.0.0.1, [::1])")]
    Http,
    /// Its host is not one that browsers find in it.
    #[error("has no plain host name or address")]
    Host,
    /// Another scheme than `https`, `http` and those of programs.
    #[error(
        "has a scheme that is not allowed: https, http to this machine, a reversed domain name, or that of a known program"
    )]
    Scheme,
    /// A query with a parameter that our answer has.
    #[error("has code, state, iss or error in its query, which the answer brings")]
    Answer,
}

/// What an answer brings (RFC 6749 §4.1.2, RFC 9207 §2). A second one of a client's own choice would be read instead of ours
/// by whoever takes the first.
const ANSWER: &[&str] = &["code", "state", "iss", "error", "error_description", "error_uri"];

/// A URI, taken apart. Nothing is decoded or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts<'a> {
    scheme: &'a str,
    /// Empty where there is no authority. With the brackets of an IPv6 address.
    host: &'a str,
    port: Option<&'a str>,
    /// Path and query.
    rest: &'a str,
}

/// Whether a client may have this redirect URI.
///
/// # Errors
/// Why it may not.
pub fn check(uri: &str) -> Result<(), Unfit> {
    if uri.len() > LONGEST {
        return Err(Unfit::TooLong);
    }
    if uri.contains('#') {
        return Err(Unfit::Fragment);
    }
    if uri.contains('*') {
        return Err(Unfit::Wildcard);
    }
    // RFC 3986 §2: no space, quote, backslash or control character, and nothing beyond ASCII.
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~:/?[]@!$&'()+,;=%".contains(&b);
    if !uri.bytes().all(is_allowed) {
        return Err(Unfit::Malformed);
    }
    let parts = Parts::of(uri)?;
    if parts.has_answer_in_query() {
        return Err(Unfit::Answer);
    }
    match parts.scheme {
        "https" => parts.check_host(uri),
        "http" if is_loopback_host(parts.host) => parts.check_host(uri),
        "http" => Err(Unfit::Http),
        scheme => check_private_scheme(scheme, uri.get(scheme.len() + 1..).unwrap_or_default()),
    }
}

/// Whether `asked` is the URI that was registered as `registered`.
pub fn matches(registered: &str, asked: &str) -> bool {
    if registered == asked {
        return true;
    }
    let (Ok(ours), Ok(theirs)) = (Parts::of(registered), Parts::of(asked)) else {
        return false;
    };
    // Checked as well, because it is where a browser will be sent to.
    let is_loopback = ours.scheme == "http" && is_loopback_host(ours.host);
    is_loopback && check(asked).is_ok() && Parts { port: None, ..ours } == Parts { port: None, ..theirs }
}

/// Where a person is sent, as they are told: the host, or the scheme of a program.
pub fn sent_to(uri: &str) -> String {
    match Parts::of(uri) {
        Ok(Parts { scheme: "https" | "http", host, .. }) => host.to_owned(),
        Ok(Parts { scheme, .. }) => format!("{scheme}:"),
        // Nothing that was checked ends here.
        Err(_) => String::new(),
    }
}

/// Whether it leads to a program on the person's own machine, which any other program there could be, too.
pub fn is_loopback(uri: &str) -> bool {
    Parts::of(uri).is_ok_and(|parts| matches!(parts.scheme, "https" | "http") && is_loopback_host(parts.host))
}

// === impl Parts ===

impl Parts<'_> {
    fn has_answer_in_query(&self) -> bool {
        let query = self.rest.split_once('?').map_or("", |(_, query)| query);
        url::form_urlencoded::parse(query.as_bytes()).any(|(name, _)| ANSWER.contains(&&*name))
    }

    fn of(uri: &str) -> Result<Parts<'_>, Unfit> {
        let (scheme, after) = uri.split_once(':').ok_or(Unfit::Malformed)?;
        let is_scheme = scheme.starts_with(|c: char| c.is_ascii_lowercase())
            && scheme.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b));
        if !is_scheme {
            return Err(Unfit::Malformed);
        }
        let Some(after) = after.strip_prefix("//") else {
            return Ok(Parts { scheme, host: "", port: None, rest: after });
        };
        let (authority, rest) = after.split_at(after.find(['/', '?', '#']).unwrap_or(after.len()));
        if authority.contains('@') {
            return Err(Unfit::Userinfo);
        }
        let (host, port) = match authority.rfind(']') {
            // The colons in the brackets are the address's own.
            Some(end) => authority.split_at(end.saturating_add(1)),
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => Some(port).filter(|port| is_port(port)).map(Some).ok_or(Unfit::Malformed)?,
            None if port.is_empty() => None,
            None => return Err(Unfit::Malformed),
        };
        Ok(Parts { scheme, host, port, rest })
    }

    /// Whether the host is written so that a browser finds the same one.
    fn check_host(self, uri: &str) -> Result<(), Unfit> {
        let is_name = self.host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        let is_v6 = self.host.starts_with('[');
        let url = Url::parse(uri).map_err(|_| Unfit::Malformed)?;
        let found = url.host_str().unwrap_or_default();
        let is_same = (is_name || is_v6) && !self.host.is_empty() && found == self.host.to_ascii_lowercase();
        if is_same { Ok(()) } else { Err(Unfit::Host) }
    }
}

/// 1 to 65535, written without zeros in front.
fn is_port(text: &str) -> bool {
    !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// RFC 8252 §7.3 and §8.3: `localhost` as well, since that is what clients in use register. Names below it are not: who
/// they lead to is for a name server to say.
fn is_loopback_host(host: &str) -> bool {
    host == "localhost" || host == "[::1]" || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// RFC 8252 §7.1: a domain name that its owner has turned round; or one of those in use.
/// One that is not turned round would be read as a host by people, who see it on the page.
fn check_private_scheme(scheme: &str, rest: &str) -> Result<(), Unfit> {
    let mut labels = scheme.split('.');
    let first = labels.next().unwrap_or_default();
    let is_top = first.len() == 2 || TOP_LEVEL_DOMAINS.contains(&first);
    let is_domain = is_top && scheme.contains('.') && labels.all(|label| !label.is_empty());
    let is_path = rest.starts_with('/');
    if KNOWN_SCHEMES.contains(&scheme) || (is_domain && is_path) { Ok(()) } else { Err(Unfit::Scheme) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    #[test]
    fn what_real_clients_register_may_be_registered() {
        for uri in [
            "https://claude.ai/api/mcp/auth_callback",
            "https://chatgpt.com/connector_platform_oauth_redirect",
            "https://vscode.dev/redirect",
            "https://app.example:8443/cb?tenant=1",
            "https://localhost:6274/oauth/callback",
            "https://10.0.0.7/cb",
            "http://127.0.0.1/",
            "http://127.0.0.1",
            "http://127.0.0.1:33418/",
            "http://127.8.9.10:1/cb",
            "http://localhost/callback",
            "http://localhost:57382/callback",
            "http://[::1]:3000/cb",
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "vscode://vscode.github-authentication/did-authenticate",
            "com.example.app:/cb",
            "com.example.app://callback",
        ] {
            assert_eq!(check(uri), Ok(()), "{uri}");
        }
    }

    /// O-10, AS-69.
    #[test]
    fn what_could_lead_elsewhere_may_not_be_registered() {
        use Unfit::{Fragment, Host, Http, Malformed, Scheme, TooLong, Userinfo, Wildcard};
        let long = format!("https://app.example/{}", "a".repeat(500));
        for (uri, why) in [
            ("", Malformed),
            ("/cb", Malformed),
            ("app.example/cb", Malformed),
            ("//app.example/cb", Malformed),
            (" https://app.example/cb", Malformed),
            ("https://app.example/cb ", Malformed),
            ("https://app.example/\ncb", Malformed),
            ("https://app.example/\0", Malformed),
            ("https://app.exämple/cb", Malformed),
            ("https://evil\\@good.example", Malformed),
            ("https://app.example/\"><script>", Malformed),
            ("HTTPS://app.example/cb", Malformed),
            ("https://app.example:/cb", Malformed),
            ("https://app.example:0/cb", Malformed),
            ("https://app.example:65536/cb", Malformed),
            ("https://app.example:+1/cb", Malformed),
            ("https://app.example/#x", Fragment),
            ("https://app.example/cb#", Fragment),
            ("https://*.example/cb", Wildcard),
            ("https://app.example/*", Wildcard),
            ("https://u:p@app.example/cb", Userinfo),
            ("http://127.0.0.1@evil.example/", Userinfo),
            ("https:/app.example/cb", Host),
            ("https:app.example/cb", Host),
            ("https:///cb", Host),
            ("https://app%2eexample/cb", Host),
            ("https://0x7f.1/cb", Host),
            ("https://2130706433/cb", Host),
            ("https://[::1%25eth0]/cb", Malformed),
            ("https://[::ffff:1.2.3.4]/cb", Host),
            ("http://app.example/cb", Http),
            ("http://localhost.evil.example/cb", Http),
            ("http://127.0.0.1.evil.example/cb", Http),
            ("http://sub.localhost/cb", Http),
            ("http://localhost./cb", Http),
            ("http://127.1/cb", Http),
            ("http://0x7f.0.0.1/cb", Http),
            ("http://0177.0.0.1/cb", Http),
            ("http://128.0.0.1/cb", Http),
            ("http://0.0.0.0/cb", Http),
            ("http://[::]/cb", Http),
            ("http://[::ffff:127.0.0.1]/cb", Http),
            ("http:/localhost/cb", Http),
            ("javascript:alert(1)", Scheme),
            ("javascript://app.example/%0aalert(1)", Scheme),
            ("data:text/html,x", Scheme),
            ("file:///etc/passwd", Scheme),
            ("vbscript:x", Scheme),
            ("blob:https://app.example/1", Scheme),
            ("about:blank", Scheme),
            ("view-source:https://app.example", Scheme),
            ("intent://app.example/", Scheme),
            ("ftp://app.example/", Scheme),
            ("ws://app.example/", Scheme),
            ("mailto:a", Scheme),
            ("urn:ietf:wg:oauth:2.0:oob", Scheme),
            ("myapp:/cb", Scheme),
            ("com.:/cb", Scheme),
            (&long, TooLong),
        ] {
            assert_eq!(check(uri), Err(why), "{uri}");
        }
    }

    /// AS-07, AS-08, AS-09, B11, B15.
    #[test]
    fn only_the_port_of_a_loopback_address_may_differ() {
        for (registered, asked) in [
            ("http://127.0.0.1/", "http://127.0.0.1:52001/"),
            ("http://127.0.0.1:33418/", "http://127.0.0.1:52001/"),
            ("http://127.0.0.1:33418/", "http://127.0.0.1/"),
            ("http://localhost/callback", "http://localhost:52002/callback"),
            ("http://[::1]/cb?x=1", "http://[::1]:7/cb?x=1"),
            ("https://app.example/cb", "https://app.example/cb"),
            ("cursor://anysphere.cursor-mcp/oauth/callback", "cursor://anysphere.cursor-mcp/oauth/callback"),
        ] {
            assert!(matches(registered, asked), "{registered} {asked}");
        }
        for (registered, asked) in [
            ("http://127.0.0.1/", "http://[::1]:52001/"),
            ("http://127.0.0.1/", "http://localhost/"),
            ("http://127.0.0.1/", "http://127.0.0.2/"),
            ("http://127.0.0.1/", "http://127.0.0.1:52001"),
            ("http://127.0.0.1/", "http://127.0.0.1:52001/other"),
            ("http://127.0.0.1/", "http://127.0.0.1:52001/?x"),
            ("http://127.0.0.1/", "http://127.0.0.1:52001/#x"),
            ("http://127.0.0.1/", "http://127.0.0.1:52001/%"),
            ("http://127.0.0.1/", "http://127.0.0.1.evil.test:1/"),
            ("http://127.0.0.1/", "http://127.0.0.1@evil.test/"),
            ("http://127.0.0.1/", "http://127.0.0.1:1@evil.test/"),
            ("http://127.0.0.1/", "http://127.0.0.1:99999/"),
            ("http://127.0.0.1/", "http://127.0.0.1:/"),
            ("http://127.0.0.1/", "http://127.1:1/"),
            ("http://127.0.0.1/", "https://127.0.0.1:1/"),
            ("http://localhost/callback", "http://localhost:1/callback/x"),
            ("http://localhost/callback", "http://localhost:1/callback/"),
            ("http://localhost/callback", "http://localhost:1/Callback"),
            ("http://localhost/callback", "http://LOCALHOST:1/callback"),
            ("http://localhost/callback", "http://localhost.evil.test:52002/callback"),
            ("http://localhost/callback", "https://localhost:52002/callback"),
            ("https://app.example/cb", "https://app.example:444/cb"),
            ("https://app.example/cb", "https://app.example:443/cb"),
            ("https://app.example/cb", "https://APP.example/cb"),
            ("https://app.example/cb", "https://app.example/cb/"),
            ("https://app.example/cb", "https://app.example/cb?x"),
            ("https://app.example/cb", "https://app.example/c%62"),
            ("https://app.example/cb", "https://app.example/x/../cb"),
            ("https://app.example/cb", "https://app.example/c"),
            ("https://app.example/cb", "https://app.example/cb#"),
            ("https://app.example/cb", "http://app.example/cb"),
            ("https://localhost/cb", "https://localhost:1/cb"),
            ("com.example.app://x/cb", "com.example.app://x:1/cb"),
        ] {
            assert!(!matches(registered, asked), "{registered} {asked}");
        }
    }

    /// What people would read as a host, and what the client would read twice.
    #[test]
    fn a_scheme_is_a_domain_turned_round_and_a_query_has_nothing_of_the_answer() {
        for uri in
            ["com.example.app:/cb", "com.example.app://x/cb", "ch.example:/", "https://a.example/cb?codes=1&x=state"]
        {
            assert_eq!(check(uri), Ok(()), "{uri}");
        }
        for uri in [
            "www.google.com:80/",
            "www.google.com:/",
            "claude.ai:443/cb",
            "localhost.evil:8080/cb",
            "x-apple.systempreferences:com.apple",
            "com.example.app:cb",
            "com.example.app:8080/cb",
        ] {
            assert_eq!(check(uri), Err(Unfit::Scheme), "{uri}");
        }
        for query in
            ["code=1", "x=1&state=2", "iss=https%3A%2F%2Fa.example", "%65rror=x", "error_description", "error_uri="]
        {
            assert_eq!(check(&format!("https://a.example/cb?{query}")), Err(Unfit::Answer), "{query}");
        }
    }

    #[test]
    fn people_are_told_the_host_and_whether_it_is_their_own_computer() {
        for (uri, told, loopback) in [
            ("https://app.example:8443/cb?x=1", "app.example", false),
            ("https://app.example", "app.example", false),
            ("https://10.0.0.7/cb", "10.0.0.7", false),
            ("http://127.0.0.1:5/cb", "127.0.0.1", true),
            ("http://127.0.0.2:5/cb", "127.0.0.2", true),
            ("http://localhost/cb", "localhost", true),
            ("http://[::1]:5/cb", "[::1]", true),
            ("https://localhost:5/cb", "localhost", true),
            ("cursor://anysphere.cursor-mcp/cb", "cursor:", false),
            ("com.example.app:/cb", "com.example.app:", false),
        ] {
            assert_eq!(check(uri), Ok(()), "{uri}");
            assert_eq!((sent_to(uri), is_loopback(uri)), (told.into(), loopback));
        }
    }

    /// Written from the words alone: "Loopback redirect ports are ignored (`localhost`, 127/8, `[::1]`), everything else
    /// is byte-exact". It cuts the port out with a regular expression and compares what is left.
    fn model(registered: &str, asked: &str) -> bool {
        static LOOPBACK: LazyLock<regex::Regex> = LazyLock::new(|| {
            regex::Regex::new(
            r"^http://(localhost|127(?:\.(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}|\[::1\])(?::([0-9]+))?((?:[/?].*)?)$",
        )
        .unwrap()
        });
        let cut = |uri: &str| {
            let found = LOOPBACK.captures(uri)?;
            let port = found.get(2).map_or("1", |port| port.as_str());
            let is_port = !port.starts_with('0') && port.len() <= 5 && port.parse::<u32>().is_ok_and(|n| n < 65_536);
            is_port.then(|| (found[1].to_owned(), found[3].to_owned()))
        };
        let same_but_port = cut(registered).is_some_and(|ours| cut(asked) == Some(ours));
        registered == asked || same_but_port
    }

    /// Two URIs of which the second has most parts of the first.
    fn uris() -> impl Strategy<Value = (String, String)> {
        let scheme = || prop::sample::select(vec!["http", "http", "http", "https", "com.example.app"]);
        let host = || {
            let good = ["localhost", "127.0.0.1", "127.1.2.3", "[::1]", "app.example"];
            let bad = ["127.1", "128.0.0.1", "localhost.evil.test", "LOCALHOST", "[::2]", "127.0.0.01", "u@localhost"];
            prop::sample::select([&good[..], &good[..], &good[..], &bad[..], &["127.0.0.1@evil.test"]].concat())
        };
        let port = || prop::sample::select(vec!["", "", ":1", ":52001", ":65535", ":65536", ":0", ":", ":08", ":1@x"]);
        let rest = || prop::sample::select(vec!["", "/", "/cb", "/cb/", "/CB", "/cb?x=1", "?x=1", "/cb%2f"]);
        let first = (scheme(), host(), port(), rest());
        let other = prop::option::weighted(0.1, scheme());
        let other = (other, prop::option::weighted(0.3, host()), prop::option::weighted(0.7, port()));
        (first, other, prop::option::weighted(0.2, rest())).prop_map(|(first, other, other_rest)| {
            let (scheme, host, port, rest) = first;
            let registered = format!("{scheme}://{host}{port}{rest}");
            let (scheme, host, port) = (other.0.unwrap_or(scheme), other.1.unwrap_or(host), other.2.unwrap_or(port));
            (registered, format!("{scheme}://{host}{port}{}", other_rest.unwrap_or(rest)))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_matches_is_what_a_small_model_of_the_rule_says((registered, asked) in uris()) {
            // Nothing else is ever registered.
            if check(&registered).is_ok() {
                prop_assert_eq!(matches(&registered, &asked), model(&registered, &asked), "{} {}", registered, asked);
            }
        }

        #[test]
        fn whatever_matches_could_have_been_registered_itself((registered, asked) in uris()) {
            if check(&registered).is_ok() && matches(&registered, &asked) {
                prop_assert_eq!(check(&asked), Ok(()));
                prop_assert_eq!(sent_to(&registered), sent_to(&asked));
            }
        }
    }
}
