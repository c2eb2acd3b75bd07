//! What an SSH upstream is given, as far as the file alone shows it; its own files are read where it is built.

use crate::config::SshUpstream;
use crate::config::problem::{Path, Problem};

pub(super) fn check(ssh: &SshUpstream, path: &Path, problems: &mut Vec<Problem>) {
    for (key, period) in [("connect", ssh.connect), ("keep_alive", ssh.keep_alive), ("idle", ssh.idle)] {
        if period.duration().as_secs() == 0 {
            problems.push(Problem::new(path.key(key), format!("`{period}` is not at least `1s`")));
        }
    }
}
