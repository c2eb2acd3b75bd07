//! What counts as refused: the script says so in its own words, or sshd does in the protocol's. A bare failure shows nothing:
//! whatever is broken fails, too.

use super::Seen;
use super::channels::{End, Heard};
use super::target::Canary;

/// What the script exits with when it refuses. See `host/portcullis-gate`.
const DENIED: u32 = 77;
/// How the one line begins that it then writes to stderr.
const MARKER: &str = "portcullis-gate: denied: ";
/// How much of what a host says is told, in characters.
const TOLD: usize = 200;

/// Whether what was heard is the script's refusal, and nothing else.
pub(super) fn by_script(heard: &Heard, canary: Canary) -> Seen {
    if canary.is_in(&heard.stdout) || canary.is_in(&heard.stderr) {
        return Seen::Broken(heard.ran());
    }
    // Asked for nothing else, so that this is about the action.
    if heard.replies.last() == Some(&false) && heard.status.is_none() && heard.stdout.is_empty() {
        return Seen::Refused("sshd refused the request".to_owned());
    }
    match denial(&heard.stderr) {
        Some(line) if heard.status == Some(DENIED) && heard.stdout.is_empty() => Seen::Refused(line.to_owned()),
        Some(_) if heard.status == Some(DENIED) => Seen::Broken(format!("more than a refusal: {}", heard.words())),
        _ => Seen::Broken(format!("not refused by the script: {}", heard.words())),
    }
}

/// The same for a subsystem, of which sshd throws the stderr away: the script's status, and nothing that a server would say.
pub(super) fn by_status(heard: &Heard, canary: Canary) -> Seen {
    match by_script(heard, canary) {
        Seen::Broken(_) if heard.status == Some(DENIED) && heard.stdout.is_empty() && heard.stderr.is_empty() => {
            Seen::Refused(format!("status {DENIED}, which is the script's (sshd passes on no more of a subsystem)"))
        }
        seen => seen,
    }
}

/// The same, or nothing has run and nothing was said, since it never came as far as the script.
pub(super) fn before_script(heard: &Heard, canary: Canary) -> Seen {
    if canary.is_in(&heard.stderr) {
        return Seen::Broken(heard.ran());
    }
    match by_script(heard, canary) {
        Seen::Broken(_) if heard.is_silent() && heard.end == End::Dropped => {
            Seen::Refused("sshd ended the connection".to_owned())
        }
        Seen::Broken(_) if heard.is_silent() && heard.status.is_some_and(|status| status != 0) => {
            Seen::Refused(format!("the host could not begin it: {}", heard.words()))
        }
        seen => seen,
    }
}

/// The line, where there is one line, and it is the script's.
fn denial(stderr: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(stderr).ok()?.strip_suffix('\n')?;
    (line.starts_with(MARKER) && line.len() > MARKER.len() && !line.contains(char::is_control)).then_some(line)
}

impl Heard {
    /// Whether nothing came out, but for complaints of whoever could not begin.
    fn is_silent(&self) -> bool {
        self.stdout.is_empty() && self.signal.is_none()
    }

    /// That something has run.
    pub(super) fn ran(&self) -> String {
        format!("it RAN: {}", self.words())
    }

    /// In words.
    pub(super) fn words(&self) -> String {
        let mut words = match (&self.signal, self.status, self.end) {
            (Some(signal), _, _) => format!("ended by {signal}"),
            (None, Some(status), _) => format!("status {status}"),
            (None, None, End::Late) => "no end".to_owned(),
            (None, None, End::Closed) => "no status".to_owned(),
            (None, None, End::Dropped) => "the connection was over".to_owned(),
        };
        for (name, bytes) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !bytes.is_empty() {
                words.push_str(&format!(", {name} {}", plain(bytes)));
            }
        }
        words
    }
}

/// What a host has said, quoted, and not too much of it.
pub(super) fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut chars = text.chars();
    let told: String = chars.by_ref().take(TOLD).collect();
    let more = if chars.next().is_some() { "…" } else { "" };
    format!("{told:?}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canary() -> Canary {
        Canary::new().expect("there are random numbers")
    }

    fn heard(status: u32, stdout: &str, stderr: &str) -> Heard {
        Heard {
            replies: vec![true],
            stdout: stdout.into(),
            stderr: stderr.into(),
            status: Some(status),
            signal: None,
            end: End::Closed,
        }
    }

    #[test]
    fn only_the_scripts_own_words_are_its_refusal() {
        let refusal = "portcullis-gate: denied: there is no such action\n";
        assert!(matches!(by_script(&heard(77, "", refusal), canary()), Seen::Refused(_)));

        let twice = refusal.repeat(2);
        let behind = format!("bash: warning: setlocale\n{refusal}");
        for (status, stdout, stderr) in [
            (1, "", ""),
            (77, "", ""),
            (1, "", refusal),
            (0, "", refusal),
            (77, "Welcome!\n", refusal),
            (77, "", behind.as_str()),
            (77, "", twice.as_str()),
            (77, "", "portcullis-gate: denied: \n"),
            (77, "", "portcullis-gate: denied: no end of the line"),
            (77, "", "portcullis-gate: denied: \x1b[2J\n"),
            (127, "", "sh: 1: expr: not found\n"),
        ] {
            let seen = by_script(&heard(status, stdout, stderr), canary());
            assert!(matches!(seen, Seen::Broken(_)), "{status} {stdout:?} {stderr:?}: {seen:?}");
        }
    }

    #[test]
    fn what_has_run_was_not_refused_whatever_else_was_said() {
        let canary = canary();
        let numbers: Vec<u64> = canary.command().split(' ').filter_map(|word| word.parse().ok()).collect();
        let stderr = format!("portcullis-gate: denied: {}\n", numbers[0] + numbers[1]);

        for judge in [by_script, before_script] {
            assert!(matches!(judge(&heard(77, "", &stderr), canary), Seen::Broken(_)));
        }
    }

    #[test]
    fn a_subsystem_is_refused_by_the_scripts_status_and_silence() {
        assert!(matches!(by_status(&heard(77, "", ""), canary()), Seen::Refused(_)));
        for (status, stdout) in [(1, ""), (0, ""), (77, "\0\0\0\x05\x02\0\0\0\x03")] {
            assert!(matches!(by_status(&heard(status, stdout, ""), canary()), Seen::Broken(_)), "{status} {stdout:?}");
        }
    }

    #[test]
    fn what_never_began_was_refused_only_where_it_may_not_have_come_to_the_script() {
        let dropped = Heard { replies: vec![true], ..Heard::default() };
        let long = heard(1, "", "/bin/sh: Argument list too long\n");

        for heard in [&dropped, &long] {
            assert!(matches!(by_script(heard, canary()), Seen::Broken(_)));
            assert!(matches!(before_script(heard, canary()), Seen::Refused(_)));
        }
        assert!(matches!(before_script(&heard(0, "", ""), canary()), Seen::Broken(_)));
        assert!(matches!(before_script(&heard(1, "x", ""), canary()), Seen::Broken(_)));
    }

    #[test]
    fn a_refused_request_is_a_refusal() {
        let refused = Heard { replies: vec![false], end: End::Late, ..Heard::default() };
        assert!(matches!(by_script(&refused, canary()), Seen::Refused(_)));

        let unanswered = Heard { replies: vec![], end: End::Closed, ..Heard::default() };
        assert!(matches!(by_script(&unanswered, canary()), Seen::Broken(_)));
    }
}
