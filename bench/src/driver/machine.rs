//! Where and when something was measured.

use crate::process::output;

/// One sentence on the machine.
pub(crate) fn description() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(':').nth(1))
            .map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
    };
    let system = field(&read("/etc/os-release").replace('=', ":"), "PRETTY_NAME").replace('"', "");
    let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
    let memory: u64 = field(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0);
    let rust = output("rustc", &["--version"]).unwrap_or_else(|_| "no rustc".to_owned());
    let cpu = field(&read("/proc/cpuinfo"), "model name");
    format!("{} CPUs ({cpu}), {} GiB, {system}, Linux {kernel}, {rust}", cpus(), memory / 1024 / 1024)
}

pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The load average of the last minute: how busy others kept the machine.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or_default()
}

/// Today's date and the minute, in UTC.
pub(crate) fn now() -> String {
    output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_default()
}
