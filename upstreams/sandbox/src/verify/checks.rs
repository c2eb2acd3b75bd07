//! What takes more than one probe: time, what is left behind, what two commands see of each other.
//!
//! A check is the same for every runner: it says what was done, and knows nothing of confinements.

use super::Seen;
use super::outside::Outside;
use super::runner::{Ran, Runner, line};
use std::time::Duration;

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// When a command's time is over, all that it started ends.
    Timeout,
    /// When a command ends, all that it started ends.
    LeftBehind,
    /// A call does not wait for what a command left behind.
    HeldOutput,
    /// No process and no cgroup of a command is left on the host.
    Leftovers,
    /// A flood of output is cut, and it is said how much there was.
    Output,
    /// `/tmp` is another one for each command.
    Tmp,
    /// Commands that run at the same time do not see each other.
    Together,
}

/// What a probe has to do with that takes its time.
const LONG: Duration = Duration::from_secs(30);
/// How long something lives that is to be gone earlier.
const LIFE: &str = "8";
/// A flood.
const FLOOD: u64 = 100_000_000;

/// Checks it with this runner.
pub(super) async fn check(check: Check, runner: &impl Runner, outside: &Outside) -> Seen {
    let seen = match check {
        Check::Timeout => timeout(runner).await,
        Check::LeftBehind => left_behind(runner).await,
        Check::HeldOutput => held_output(runner).await,
        Check::Leftovers => leftovers(runner, outside).await,
        Check::Output => output(runner).await,
        Check::Tmp => tmp(runner).await,
        Check::Together => together(runner, outside).await,
    };
    seen.unwrap_or_else(Seen::Untried)
}

type Checked = Result<Seen, String>;

/// That a command works at all: where none does, everything else would look blocked.
///
/// # Errors
/// How it came out instead.
pub(super) async fn works(runner: &impl Runner) -> Result<(), String> {
    let ran = runner.run("echo it; echo works >&2; exit 7", LONG).await?;
    if ran.exit_code == Some(7) && ran.stdout == "it\n" && ran.stderr == "works\n" {
        return Ok(());
    }
    Err(format!("a command that does work came out as {} {:?}: {}{}", ran.ended, ran.exit_code, ran.stdout, ran.stderr))
}

fn daemon(runner: &impl Runner, file: &str, stdout: &str, mark: &str) -> String {
    let words = ["daemon", file, LIFE, stdout, mark].map(str::to_owned);
    line(runner.inner(), &words)
}

/// Whether the file is still written to: what it holds, twice.
async fn beats(runner: &impl Runner, file: &str) -> Result<(String, String), String> {
    let ran = runner.run(&format!("cat {file}; echo; sleep 0.5; cat {file}; rm -f {file}"), LONG).await?;
    let (first, second) = ran.stdout.split_once('\n').unwrap_or_default();
    if first.trim().is_empty() {
        return Err(format!("nothing was left behind to begin with: {}{}", ran.stdout, ran.stderr));
    }
    Ok((first.trim().to_owned(), second.trim().to_owned()))
}

async fn timeout(runner: &impl Runner) -> Checked {
    let file = "verify-beat-timeout";
    let command = format!("{}; sleep 60", daemon(runner, file, "silent", "timeout"));
    let ran = runner.run(&command, Duration::from_secs(2)).await?;
    if ran.ended != "timed_out" {
        return Err(format!("its time was not over: {}: {}", ran.ended, ran.stderr));
    }
    let (first, second) = beats(runner, file).await?;
    if first != second {
        return Ok(Seen::Allowed("a process that it left behind outlived its time".to_owned()));
    }
    Ok(Seen::Blocked(format!("all was gone {} ms after its beginning", ran.waited.as_millis())))
}

async fn left_behind(runner: &impl Runner) -> Checked {
    let file = "verify-beat-left";
    // Long enough that there is something to see, should it live on.
    runner.run(&format!("{}; sleep 0.5", daemon(runner, file, "silent", "left")), LONG).await?;
    let (first, second) = beats(runner, file).await?;
    if first != second {
        return Ok(Seen::Allowed("a process that was left behind lives on".to_owned()));
    }
    Ok(Seen::Blocked("it was gone".to_owned()))
}

async fn held_output(runner: &impl Runner) -> Checked {
    let file = "verify-beat-held";
    let ran = runner.run(&daemon(runner, file, "holding", "held"), LONG).await?;
    drop(runner.run(&format!("rm -f {file}"), LONG).await);
    let waited = ran.waited.as_millis();
    if ran.waited > Duration::from_secs(5) {
        return Ok(Seen::Allowed(format!("the call waited {waited} ms for a process that was left behind")));
    }
    Ok(Seen::Blocked(format!("the call was answered after {waited} ms")))
}

async fn leftovers(runner: &impl Runner, outside: &Outside) -> Checked {
    // Another one for each runner: the control's process may live on.
    let (file, mark) = ("verify-beat-over", outside.next_mark());
    let ran = runner.run(&format!("{}; sleep 0.5", daemon(runner, file, "silent", &mark)), LONG).await?;
    if !ran.stdout.contains("left a process behind") {
        return Err(format!("nothing was left behind to begin with: {}{}", ran.stdout, ran.stderr));
    }
    let has_process = outside.has_process(&mark);
    let cgroups = outside.cgroups();
    drop(runner.run(&format!("rm -f {file}"), LONG).await);
    match (has_process, cgroups) {
        (true, _) => Ok(Seen::Allowed("a process is left on the host".to_owned())),
        (false, 0) => Ok(Seen::Blocked("no process and no cgroup is left".to_owned())),
        (false, n) => Ok(Seen::Allowed(format!("{n} cgroups are left"))),
    }
}

async fn output(runner: &impl Runner) -> Checked {
    let command = line(runner.inner(), &["shout".to_owned(), FLOOD.to_string()]);
    let ran: Ran = runner.run(&command, Duration::from_secs(60)).await?;
    let kept = ran.stdout.len() as u64;
    if kept >= FLOOD {
        return Ok(Seen::Allowed(format!("all {kept} bytes were kept")));
    }
    if ran.n_stdout < FLOOD {
        return Err(format!("{} bytes were counted of {FLOOD}: {}: {}", ran.n_stdout, ran.ended, ran.stderr));
    }
    Ok(Seen::Blocked(format!("{kept} of {} bytes were kept, and it was said", ran.n_stdout)))
}

async fn tmp(runner: &impl Runner) -> Checked {
    let file = format!("/tmp/verify-tmp-{}", std::process::id());
    let ran = runner.run(&format!("echo first >{file} && cat {file}"), LONG).await?;
    if ran.stdout != "first\n" {
        return Err(format!("/tmp cannot be written to: {}", ran.stderr));
    }
    let ran = runner.run(&format!("cat {file}; rm -f {file}"), LONG).await?;
    if ran.stdout == "first\n" {
        return Ok(Seen::Allowed("it found what the command before had left in /tmp".to_owned()));
    }
    Ok(Seen::Blocked("/tmp was empty".to_owned()))
}

async fn together(runner: &impl Runner, outside: &Outside) -> Checked {
    let mark = outside.next_mark();
    let victim = line(runner.inner(), &["victim".to_owned(), mark.clone(), "4".to_owned()]);
    let looks = async {
        // The other one is there by then; each of three looks is enough to see it.
        let mut seen = Seen::Untried("it did not look".to_owned());
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            seen = runner.attempt(&["named".to_owned(), mark.clone()]).await;
            if !matches!(seen, Seen::Blocked(_)) {
                break;
            }
        }
        seen
    };
    let (ran, seen) = tokio::join!(runner.run(&victim, LONG), looks);
    let ran = ran?;
    if !ran.stdout.contains("left alone") {
        return Err(format!("there was nothing to see: {}: {}", ran.ended, ran.stderr));
    }
    Ok(seen)
}
