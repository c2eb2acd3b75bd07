//! What an SSH upstream is given, as far as the file alone shows it; its own files are read where it is built.

use crate::config::problem::{Path, Problem};
use crate::config::{Network, Period, SshCertificates, SshUpstream};

/// As the schema has it.
const AT_ONCE_MAX: u32 = 256;
/// Each must fit into a certificate, and a person must be able to see what is written.
const SOURCES_MAX: usize = 32;
const PRINCIPAL_MAX: usize = 64;

pub(super) fn check(ssh: &SshUpstream, path: &Path, problems: &mut Vec<Problem>) {
    credential(ssh, path, problems);
    let mut between = |key: &str, period, min, max| problems.extend(outside(period, min, max, path.key(key)));
    between("connect", ssh.connect, Period::seconds(1), Period::seconds(60));
    between("keep_alive", ssh.keep_alive, Period::seconds(1), Period::seconds(5 * 60));
    between("idle", ssh.idle, Period::seconds(1), Period::seconds(24 * 60 * 60));
    // Less than one is a mistake of form.
    if ssh.at_once > AT_ONCE_MAX {
        let message = format!("`{}` is not between `1` and `{AT_ONCE_MAX}`", ssh.at_once);
        problems.push(Problem::new(path.key("at_once"), message));
    }
    if let Some(certificates) = &ssh.certificates {
        self::certificates(certificates, &path.key("certificates"), problems);
    }
}

fn credential(ssh: &SshUpstream, path: &Path, problems: &mut Vec<Problem>) {
    let (message, hint) = match (&ssh.key, &ssh.certificates) {
        (None, None) => (
            "nothing opens the host: neither `key` nor `certificates` is there",
            "write `key: { file: path }`, or `certificates: { authority: { file: path } }`",
        ),
        (Some(_), Some(_)) => (
            "`key` and `certificates` are both there, and only one can open the host",
            "keep the one that the host is set up for",
        ),
        _ => return,
    };
    let at = if ssh.key.is_some() { path.key("key") } else { path.clone() };
    problems.push(Problem::new(at, message).at_key().hint(hint));
}

fn certificates(certificates: &SshCertificates, path: &Path, problems: &mut Vec<Problem>) {
    let SshCertificates { authority: _, principal, source, lifetime } = certificates;
    if !is_principal(principal) {
        problems.push(
            Problem::new(path.key("principal"), format!("`{}` is no name for a principal", principal.escape_debug()))
                .hint(format!(
                    "1 to {PRINCIPAL_MAX} of letters, digits and `._@:/-`, as the host's file of principals has it"
                )),
        );
    }
    problems.extend(outside(*lifetime, Period::seconds(10), Period::seconds(60 * 60), path.key("lifetime")));
    if source.len() > SOURCES_MAX {
        let message = format!("{} places to come from, and a certificate names at most {SOURCES_MAX}", source.len());
        problems.push(Problem::new(path.key("source"), message).hint("write wider blocks"));
    }
    for (index, text) in source.iter().enumerate() {
        let at = path.key("source").index(index);
        match text.parse::<Network>() {
            Err(malformed) => problems.push(malformed.at(at)),
            Ok(network) if network.is_everyone() => problems.push(
                Problem::warning(at, format!("`{text}` is every address: a certificate could be used from anywhere"))
                    .hint("write the address that the host sees this gateway come from"),
            ),
            Ok(_) => {}
        }
    }
}

/// In a file of principals a space, a comma, a quote or a `#` means something else.
fn is_principal(text: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"._@:/-".contains(&b);
    (1..=PRINCIPAL_MAX).contains(&text.len()) && text.bytes().all(is_allowed)
}

fn outside(period: Period, min: Period, max: Period, path: Path) -> Option<Problem> {
    let message = || format!("`{period}` is not between `{min}` and `{max}`");
    (!(min..=max).contains(&period)).then(|| Problem::new(path, message()))
}
