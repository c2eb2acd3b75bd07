//! The one who clears up after a gateway that was killed: a process of its own that only waits for the gateway's end.
//!
//! A cgroup has no owner whose death removes it, and where the gateway is root its upstreams may not remove theirs.

use super::start::Left;
use std::collections::BTreeSet;
use std::io::{BufRead, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use tracing::warn;

/// The keeper, as the gateway sees it. It sees the end of the gateway by the end of this pipe.
pub(super) struct Keeper {
    child: Child,
    tell: Option<ChildStdin>,
}

impl Keeper {
    /// Starts it.
    pub(super) fn start() -> Option<Keeper> {
        #[expect(clippy::disallowed_methods, reason = "it belongs to the processes that upstreams are")]
        let mut command = Command::new("/proc/self/exe");
        command.arg0("portcullis").args(["upstream", "keep"]).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        // Nothing that the gateway's own parent left open.
        portcullis_local::descriptors::pass(&mut command, Vec::new(), Vec::new());
        match command.spawn() {
            Ok(mut child) => Some(Keeper { tell: child.stdin.take(), child }),
            Err(why) => {
                warn!(error = %why, "nobody would clear up after this gateway if it were killed");
                None
            }
        }
    }

    /// This is there from now on.
    pub(super) fn add(&mut self, left: &Left) {
        self.say('+', left);
    }

    /// This was cleared up.
    pub(super) fn remove(&mut self, left: &Left) {
        self.say('-', left);
    }

    fn say(&mut self, sign: char, left: &Left) {
        let Some(tell) = &mut self.tell else {
            return;
        };
        for path in &left.cgroups {
            if let Err(why) = writeln!(tell, "{sign}{}", path.display()) {
                warn!(error = %why, "nobody would clear up after this gateway if it were killed");
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It has nothing left to do and ends at once.
        drop(self.tell.take());
        let _ = self.child.wait();
    }
}

/// `portcullis upstream keep`: remembers what the lines say, and when they end sweeps what is left.
pub fn keep(lines: impl BufRead) {
    let mut there = BTreeSet::new();
    for line in lines.lines().map_while(Result::ok) {
        match (line.get(..1), line.get(1..)) {
            (Some("+"), Some(path)) => _ = there.insert(PathBuf::from(path)),
            (Some("-"), Some(path)) => _ = there.remove(std::path::Path::new(path)),
            _ => {}
        }
    }
    Left { cgroups: there.into_iter().collect() }.sweep();
}
