//! What sshd says of the sessions it has begun.

/// A session: something that ran, or was to run, on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// The port that its connection came from.
    pub(crate) from: u16,
    /// What sshd started: `forced-command (key-option) '…'`, `forced-command (config) '…'`, `command`, `shell`, `subsystem 'sftp'`.
    pub(crate) what: String,
    /// The key id of the certificate it was let in with.
    pub(crate) key_id: Option<String>,
}

/// All sessions of a log at level VERBOSE.
pub(super) fn sessions(log: &str) -> Vec<Session> {
    let mut all = Vec::new();
    // Of ports that are in use; a port may be used again.
    let mut ids: Vec<(u16, Option<String>)> = Vec::new();
    for line in log.lines() {
        if let Some(rest) = after(line, "Accepted publickey for ") {
            ids.push((port(rest), key_id(rest)));
        }
        if let Some(rest) = after(line, "Starting session: ") {
            let from = port(rest);
            let what = rest.rsplit_once(" for ").map_or(rest, |(what, _)| what).to_owned();
            let key_id = ids.iter().rev().find(|(port, _)| *port == from).and_then(|(_, id)| id.clone());
            all.push(Session { from, what, key_id });
        }
    }
    all
}

/// All connections.
pub(super) fn n_connections(log: &str) -> usize {
    log.lines().filter(|line| line.contains("Connection from ") && line.contains(" on 127.0.0.1 port ")).count()
}

fn after<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.split_once(mark).map(|(_, rest)| rest)
}

/// `… from 127.0.0.1 port 4711 …`
fn port(rest: &str) -> u16 {
    let number = rest.rsplit_once(" port ").map_or("", |(_, number)| number);
    number.split(' ').next().and_then(|number| number.parse().ok()).expect("sshd names the port")
}

/// `… ssh2: ED25519-CERT SHA256:… ID <key id> (serial 0) CA ED25519 SHA256:…`
fn key_id(rest: &str) -> Option<String> {
    let (_, rest) = rest.split_once("-CERT ")?;
    let (_, rest) = rest.split_once(" ID ")?;
    rest.rsplit_once(" (serial ").map(|(id, _)| id.to_owned())
}
