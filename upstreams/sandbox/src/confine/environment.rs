//! The variables a command has: nothing of ours, nothing of the gateway's.

use super::WORKSPACE;
use crate::network;
use crate::settings::{Network, Settings};
use std::collections::BTreeMap;

/// What every command begins with.
const BASE: [(&str, &str); 8] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"),
    ("HOME", WORKSPACE),
    ("LANG", "C.UTF-8"),
    ("TMPDIR", "/tmp"),
    ("USER", super::root::USER),
    ("LOGNAME", super::root::USER),
    ("SHELL", "/bin/bash"),
    ("TERM", "dumb"),
];

/// All of them: those of the call stand above those of the settings, and these above what every command has.
pub(super) fn of(settings: &Settings, call: &[(String, String)]) -> Vec<(String, String)> {
    let mut all: BTreeMap<String, String> =
        BASE.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    if settings.network != Network::None {
        all.extend(network::environment());
    }
    all.extend(settings.environment.clone());
    all.extend(call.iter().cloned());
    all.into_iter().collect()
}
