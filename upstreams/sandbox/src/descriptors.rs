//! How many descriptors this process may have.
//!
//! The usual limit of 1,024 is for programs that call select(2). Each command takes some; who runs the host decides by
//! the hard limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// What one command takes at most while it is set up and runs: pipes, sockets, its folder, its cgroup, what it is given.
const OF_ONE: u64 = 32;
/// What everything else takes: connections, file tools, each of which may be as deep as folders are.
const OF_ALL: u64 = 512;

/// Raises the soft limit to the hard one, and says where that is too little for so many commands at once.
pub(crate) fn raise(at_once: u32) {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        warn!(%error, "the limit of open files cannot be raised");
    }
    let (may, needed) = (getrlimit(Resource::Nofile).current, needed(at_once));
    if may.is_some_and(|may| may < needed) {
        warn!(
            may,
            needed,
            at_once,
            "too few files may be open for so many commands at once, and some may fail: raise the hard limit \
             (LimitNOFILE= of systemd, ulimit -Hn), or lower `at_once`"
        );
    }
}

fn needed(at_once: u32) -> u64 {
    OF_ALL + OF_ONE * u64::from(at_once)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_may_be_open_as_the_hard_limit_says() {
        let hard = getrlimit(Resource::Nofile).maximum;
        // A little lower: other tests go on meanwhile.
        let lower = hard.map_or(1 << 20, |hard| hard - 1);
        setrlimit(Resource::Nofile, Rlimit { current: Some(lower), maximum: hard }).unwrap();

        raise(1);

        assert_eq!(getrlimit(Resource::Nofile).current, hard);
    }

    #[test]
    fn more_commands_at_once_need_more_files() {
        assert_eq!((needed(1), needed(64)), (544, 2560));
    }
}
