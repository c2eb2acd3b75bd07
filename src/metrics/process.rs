//! What the kernel knows of this process, under the names that every Prometheus client exports.

use super::list::Metric;
use std::fs;

/// The kernel tells of time in these, whatever its own clock does (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// As it is right now.
pub(super) struct Process {
    cpu_seconds: f64,
    resident_bytes: f64,
    virtual_bytes: f64,
    threads: f64,
    open_fds: f64,
    max_fds: f64,
    started_at: f64,
}

impl Process {
    /// `None` where there is no `/proc`.
    pub(super) fn read() -> Option<Process> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let boot = fs::read_to_string("/proc/stat").ok()?;
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let limits = fs::read_to_string("/proc/self/limits").ok()?;
        // The one that lists them is open as well.
        let open_fds = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
        // The name of the program may hold anything, also spaces and brackets.
        let (_, fields) = stat.rsplit_once(") ")?;
        let field = |n: usize| fields.split(' ').nth(n - 3)?.parse::<f64>().ok();
        let line = |text: &str, start: &str| text.lines().find_map(|line| line.strip_prefix(start).map(str::to_owned));
        let number = |text: String| text.split_whitespace().next()?.parse::<f64>().ok();
        Some(Process {
            cpu_seconds: (field(14)? + field(15)?) / TICKS_PER_SECOND,
            resident_bytes: number(line(&status, "VmRSS:")?)? * 1024.0,
            virtual_bytes: field(23)?,
            threads: field(20)?,
            open_fds: f64::from(u32::try_from(open_fds).ok()?),
            max_fds: number(line(&limits, "Max open files")?).unwrap_or(f64::INFINITY),
            started_at: number(line(&boot, "btime ")?)? + field(22)? / TICKS_PER_SECOND,
        })
    }

    pub(super) fn value(&self, metric: Metric) -> Option<f64> {
        Some(match metric {
            Metric::ProcessCpu => self.cpu_seconds,
            Metric::ProcessResident => self.resident_bytes,
            Metric::ProcessVirtual => self.virtual_bytes,
            Metric::ProcessThreads => self.threads,
            Metric::ProcessOpenFds => self.open_fds,
            Metric::ProcessMaxFds => self.max_fds,
            Metric::ProcessStarted => self.started_at,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_process_knows_what_it_uses_and_since_when() {
        let process = Process::read().expect("Linux says");
        let now = Clock::System.unix_seconds() as f64;

        assert!(process.started_at <= now + 1.0 && process.started_at > now - 3600.0, "{}", process.started_at);
        assert!(process.resident_bytes > 1e6 && process.resident_bytes < process.virtual_bytes);
        assert!(process.threads >= 1.0 && process.open_fds >= 3.0 && process.max_fds > process.open_fds);
        assert!(process.cpu_seconds >= 0.0 && process.cpu_seconds < 36_000.0);
    }
}
