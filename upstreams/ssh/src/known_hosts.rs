//! Which host keys are trusted, out of the text of a `known_hosts` file (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT").
//!
//! Nobody is asked whether a key is right, and none is learnt: a host is spoken to that shows a key which stands here.

use crate::settings::Host;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use russh::keys::{Algorithm, HashAlg, PublicKey};

/// The keys that are pinned for one host.
#[derive(Clone, Debug)]
pub struct Pinned {
    keys: Vec<PublicKey>,
}

/// A line about the host.
struct Line<'a> {
    number: usize,
    marker: Marker,
    kind: &'a str,
    key: &'a str,
}

#[derive(PartialEq)]
enum Marker {
    None,
    Revoked,
    Authority,
}

/// How to get a line that can be used.
const HINT: &str =
    "`ssh-keyscan -t ed25519,ecdsa` writes such lines; compare the key with the one that the host's console shows";

impl Pinned {
    /// The keys of `host`. A name with a port that is not 22 stands there as `[name]:port`; hashed names, patterns and
    /// `@revoked` mean what they mean to ssh(1).
    ///
    /// # Errors
    /// No line is about this host, or one that is about it cannot be used: what, and what to do.
    pub fn of(text: &str, host: &Host) -> Result<Pinned, String> {
        let names = names(host);
        let (mut keys, mut revoked) = (Vec::new(), Vec::new());
        let (mut unusable, mut authorities) = (Vec::new(), Vec::new());
        for line in lines_about(text, &names)? {
            match (&line.marker, is_usable(line.kind)) {
                (Marker::Authority, _) => authorities.push(line.number),
                // What cannot be pinned need not be revoked.
                (Marker::Revoked, false) => {}
                (Marker::None, false) => {
                    unusable.push(format!("`{}` in line {}", line.kind.escape_debug(), line.number));
                }
                (Marker::Revoked, true) => revoked.push(line.read()?),
                (Marker::None, true) => keys.push(line.read()?),
            }
        }
        let n_pinned = keys.len();
        keys.retain(|key| revoked.iter().all(|revoked: &PublicKey| revoked.key_data() != key.key_data()));
        if !keys.is_empty() {
            return Ok(Pinned { keys });
        }
        let name = names.first().map_or("", String::as_str);
        Err(if n_pinned > 0 {
            format!("every key of `{name}` is revoked here")
        } else if !unusable.is_empty() {
            format!("of `{name}` there is only {}; Ed25519 and ECDSA can be used. {HINT}", unusable.join(", "))
        } else if let Some(line) = authorities.first() {
            format!(
                "line {line} has an authority for `{name}` (`@cert-authority`), which is not supported; pin its keys. {HINT}"
            )
        } else {
            let elsewhere = lines_about(text, &[host.name.to_ascii_lowercase()])?;
            let elsewhere = elsewhere.first().filter(|_| host.port != 22).map(|line| line.number);
            let elsewhere = elsewhere.map(|line| format!(" (line {line} is about port 22)")).unwrap_or_default();
            format!("no line is about `{name}`{elsewhere}. {HINT}")
        })
    }

    /// Whether `key` is one of them.
    pub fn has(&self, key: &PublicKey) -> bool {
        self.keys.iter().any(|pinned| pinned.key_data() == key.key_data())
    }

    /// What a host that has one of these keys can sign with: nothing else is offered to it.
    pub fn algorithms(&self) -> Vec<Algorithm> {
        let mut algorithms: Vec<Algorithm> = Vec::new();
        for key in &self.keys {
            if !algorithms.contains(&key.algorithm()) {
                algorithms.push(key.algorithm());
            }
        }
        algorithms
    }

    /// Their fingerprints, as ssh-keygen(1) shows them.
    pub fn fingerprints(&self) -> Vec<String> {
        self.keys.iter().map(fingerprint).collect()
    }
}

/// As ssh-keygen(1) shows it: `ssh-ed25519 SHA256:…`.
pub fn fingerprint(key: &PublicKey) -> String {
    format!("{} {}", key.algorithm(), key.fingerprint(HashAlg::Sha256))
}

/// How `host` is written there.
fn names(host: &Host) -> Vec<String> {
    let name = host.name.to_ascii_lowercase();
    let with_port = format!("[{name}]:{}", host.port);
    if host.port == 22 { vec![name, with_port] } else { vec![with_port] }
}

fn is_usable(kind: &str) -> bool {
    ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"].contains(&kind)
}

/// The lines that are about one of `names`.
fn lines_about<'a>(text: &'a str, names: &[String]) -> Result<Vec<Line<'a>>, String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_ascii_whitespace();
        let mut next =
            || words.next().ok_or_else(|| format!("line {number} is no line of known_hosts: names, a type and a key"));
        let first = next()?;
        let (marker, hosts) = match first {
            "@revoked" => (Marker::Revoked, next()?),
            "@cert-authority" => (Marker::Authority, next()?),
            marker if marker.starts_with('@') => {
                return Err(format!("line {number} has the marker `{}`, which nobody knows", marker.escape_debug()));
            }
            hosts => (Marker::None, hosts),
        };
        let (kind, key) = (next()?, next()?);
        if is_about(hosts, names).map_err(|why| format!("line {number} {why}"))? {
            found.push(Line { number, marker, kind, key });
        }
    }
    Ok(found)
}

/// Whether a line's first field means one of `names`. A pattern with `!` that fits rules the line out.
fn is_about(hosts: &str, names: &[String]) -> Result<bool, String> {
    if let Some(hashed) = hosts.strip_prefix("|1|") {
        return is_hash_of(hashed, names).ok_or_else(|| "has a hashed name that cannot be read".to_owned());
    }
    if hosts.starts_with('|') {
        return Err("has a name hashed in a way that nobody knows".to_owned());
    }
    let mut is_meant = false;
    for pattern in hosts.split(',') {
        let (is_not, pattern) = pattern.strip_prefix('!').map_or((false, pattern), |pattern| (true, pattern));
        let pattern = pattern.to_ascii_lowercase();
        if names.iter().any(|name| fits(pattern.as_bytes(), name.as_bytes())) {
            if is_not {
                return Ok(false);
            }
            is_meant = true;
        }
    }
    Ok(is_meant)
}

/// `salt|hash`, both in base64: HMAC-SHA-1 of the name under the salt.
fn is_hash_of(hashed: &str, names: &[String]) -> Option<bool> {
    let (salt, hash) = hashed.split_once('|')?;
    let (salt, hash) = (STANDARD.decode(salt).ok()?, STANDARD.decode(hash).ok()?);
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
    Some(names.iter().any(|name| hmac::verify(&key, name.as_bytes(), &hash).is_ok()))
}

/// `*` for anything, `?` for one byte. Goes back to the last `*` only, and so takes no more than both lengths multiplied.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                p = at + 1;
                n = from + 1;
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

impl Line<'_> {
    fn read(&self) -> Result<PublicKey, String> {
        let Line { number, kind, key, .. } = self;
        PublicKey::from_openssh(&format!("{kind} {key}"))
            .map_err(|why| format!("line {number} has a key of type `{kind}` that cannot be read: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::ephemeral;

    fn host(text: &str) -> Host {
        Host::parse(&format!("deploy@{text}")).expect("a host")
    }

    fn key() -> (PublicKey, String) {
        let key = ephemeral().public_key().clone();
        let text = key.to_openssh().expect("a key is text");
        (key, text)
    }

    fn hashed(name: &str) -> String {
        let salt = [7; 20];
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt), name.as_bytes());
        format!("|1|{}|{}", STANDARD.encode(salt), STANDARD.encode(tag))
    }

    #[test]
    fn a_line_is_about_the_hosts_that_it_names() {
        let (key, text) = key();
        for (names, is_about, is_not) in [
            (
                "prod.internal",
                vec!["prod.internal", "prod.internal:22"],
                vec!["prod.internal:2222", "prod", "xprod.internal"],
            ),
            ("Prod.Internal", vec!["prod.internal"], vec![]),
            ("a,prod.internal,10.0.0.7", vec!["prod.internal", "10.0.0.7", "a"], vec!["10.0.0.8"]),
            ("[prod.internal]:2222", vec!["prod.internal:2222"], vec!["prod.internal", "prod.internal:2223"]),
            ("[prod.internal]:22", vec!["prod.internal"], vec![]),
            ("[::1]:2222", vec!["[::1]:2222"], vec!["[::1]"]),
            ("::1", vec!["[::1]"], vec!["[::1]:2222"]),
            (
                "*.internal",
                vec!["prod.internal", "a.b.internal"],
                vec!["prod.internal.evil", "internal", "prod.internal:2222"],
            ),
            ("pro?.internal", vec!["prod.internal"], vec!["pro.internal", "prodd.internal"]),
            ("[*.internal]:2222", vec!["prod.internal:2222"], vec!["prod.internal"]),
            ("*,!prod.internal", vec!["test.internal"], vec!["prod.internal"]),
            ("!prod.internal,*", vec!["test.internal"], vec!["prod.internal"]),
            ("!test.internal", vec![], vec!["prod.internal"]),
            (&hashed("prod.internal"), vec!["prod.internal"], vec!["test.internal", "prod.internal:2222"]),
            (&hashed("[prod.internal]:2222"), vec!["prod.internal:2222"], vec!["prod.internal"]),
        ] {
            let file = format!("# a comment\n\n  {names} {text} a comment # of a line\n");
            for name in is_about {
                let pinned = Pinned::of(&file, &host(name)).unwrap_or_else(|why| panic!("{names} {name}: {why}"));
                assert!(pinned.has(&key));
                assert!(!pinned.has(ephemeral().public_key()));
            }
            for name in is_not {
                let why = Pinned::of(&file, &host(name)).map(|_| ()).expect_err(&format!("{names} {name}"));
                assert!(why.contains("no line is about"), "{why}");
            }
        }
    }

    #[test]
    fn all_keys_of_a_host_count_and_their_algorithms_alone_are_offered() {
        let ((one, a), (two, b)) = (key(), key());
        let file = format!("prod {a}\nprod,other {b}\n");

        let pinned = Pinned::of(&file, &host("prod")).expect("pinned");

        assert!(pinned.has(&one) && pinned.has(&two));
        assert_eq!(pinned.algorithms(), [Algorithm::Ed25519]);
        assert_eq!(pinned.fingerprints().len(), 2);
        assert!(pinned.fingerprints()[0].starts_with("ssh-ed25519 SHA256:"));
    }

    #[test]
    fn a_revoked_key_is_trusted_by_no_line() {
        let ((one, a), (two, b)) = (key(), key());
        let file = format!("prod {a}\nprod {b}\n@revoked * {a}\n");

        let pinned = Pinned::of(&file, &host("prod")).expect("pinned");

        assert!(!pinned.has(&one));
        assert!(pinned.has(&two));
        let all = Pinned::of(&format!("@revoked * {a}\nprod {a}\n"), &host("prod")).map(|_| ());
        assert_eq!(all, Err("every key of `prod` is revoked here".to_owned()));
    }

    #[test]
    fn what_cannot_be_used_is_said_where_nothing_else_is_there() {
        let (key, text) = key();
        let rsa = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAAQC1";
        let says = |file: &str, says: &str| {
            let why = Pinned::of(file, &host("prod:2222")).map(|_| ()).expect_err(file);
            assert!(why.contains(says), "{why}");
        };

        says("", "no line is about `[prod]:2222`");
        says(&format!("prod {text}\n"), "(line 1 is about port 22)");
        says(&format!("\n[prod]:2222 {rsa}\n"), "there is only `ssh-rsa` in line 2; Ed25519 and ECDSA can be used");
        says(&format!("@cert-authority [prod]:2222 {text}\n"), "line 1 has an authority");
        says(&format!("@authority [prod]:2222 {text}\n"), "the marker `@authority`");
        says("[prod]:2222 ssh-ed25519\n", "line 1 is no line of known_hosts");
        says("[prod]:2222 ssh-ed25519 AAAA\n", "line 1 has a key of type `ssh-ed25519` that cannot be read");
        says(&format!("[prod]:2222 ecdsa-sha2-nistp256 {}\n", &text["ssh-ed25519 ".len()..]), "cannot be read");
        says(&format!("@revoked [prod]:2222 ssh-ed25519 AAAA\n[prod]:2222 {text}\n"), "cannot be read");
        says(&format!("|2|x|y {text}\n"), "hashed in a way that nobody knows");
        says(&format!("|1|x {text}\n"), "cannot be read");
        for beside in [rsa.to_owned(), format!("{text}\n@cert-authority [prod]:2222 {text}")] {
            let file = format!("[prod]:2222 {beside}\n[prod]:2222 {text}\n");
            assert!(Pinned::of(&file, &host("prod:2222")).expect("one is left").has(&key));
        }
    }
}
