//! How the writer's thread is scheduled: it runs at once where a CPU is free, and takes none away from who is at work.
//!
//! Where every CPU is busy with calls, a thread that is woken is run in place of the one that woke it, and would write each
//! record by itself. A thread of the kernel's batch class (sched(7)) waits for its turn, mostly a few milliseconds, and
//! then finds the records of many calls: one write, one sync, one change of threads for all of them.

use nix::libc;

/// Puts this thread into the batch class. Any thread may do so; where it is refused all the same, only time is lost.
#[expect(unsafe_code, reason = "no library we use has a safe form of this call")]
pub(super) fn give_way() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the thread itself, and the pointer is to a plain value that outlives the call.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    if result != 0 {
        tracing::debug!(error = %std::io::Error::last_os_error(), "the audit writer is scheduled as any thread");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_itself_is_in_the_batch_class() {
        let class = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("Linux has it");
            // proc(5): field 41; the name, field 2, may have spaces in it and ends with the last bracket.
            let fields = stat.rsplit_once(')').expect("a name").1;
            fields.split_whitespace().nth(38).and_then(|field| field.parse::<i32>().ok()).expect("a number")
        };
        let before = class();
        let inside = std::thread::spawn(move || {
            give_way();
            class()
        });
        assert_eq!(inside.join().expect("no panic"), libc::SCHED_BATCH);
        assert_eq!((class(), before), (before, libc::SCHED_OTHER));
    }
}
