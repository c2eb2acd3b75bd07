//! Runs commands confined, without a gateway: for the tests of this crate, for measurements, and for looking at what a
//! command sees. The first line of stdin is the settings as JSON, each further one a command; a line of JSON for each
//! that has ended comes out.
//!
//! `confined FOLDER < lines` ends when stdin does and all commands have. `confined FOLDER N < settings` measures what
//! confinement adds to the start of a command, on an idle machine and built with `--release`. Neither runs as root.
//! No part of what is installed.

use portcullis_sandbox::Settings;
use portcullis_sandbox::confine::{Command, Confinement, End, Error, Outcome, Progress, inner};
use serde::Deserialize;
use serde_json::json;
use std::fs::File;
use std::io::BufRead as _;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A command, and what becomes of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: u64,
    line: String,
    #[serde(default)]
    cwd: String,
    #[serde(default)]
    environment: Vec<(String, String)>,
    #[serde(default)]
    stdin: String,
    #[serde(default = "a_minute")]
    timeout_ms: u64,
    /// Whoever asked takes it back once the command has written this line.
    cancel_at: Option<String>,
    /// Whoever asked has taken it back already.
    #[serde(default)]
    cancel_now: bool,
    /// Whoever asked is gone once the command has written this line.
    drop_at: Option<String>,
}

fn a_minute() -> u64 {
    60_000
}

fn main() -> ExitCode {
    if let Some(code) = inner(std::env::args_os()) {
        return code;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let n = std::env::args().nth(2).and_then(|n| n.parse().ok());
    let local = LocalSet::new();
    let done = match n {
        Some(n) => local.block_on(&runtime, measure(n)),
        None => local.block_on(&runtime, serve()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), String> {
    let mut lines = lines();
    let settings = lines.recv().await.ok_or("the first line is the settings")?;
    let (confinement, folder) = establish(&settings).await?;
    let (confinement, folder) = (Rc::new(confinement), Rc::new(folder));
    println!("{}", json!({ "established": true }));
    let mut running = Vec::new();
    while let Some(line) = lines.recv().await {
        let line: Line = serde_json::from_str(&line).map_err(|why| why.to_string())?;
        let (confinement, folder) = (Rc::clone(&confinement), Rc::clone(&folder));
        running.push(tokio::task::spawn_local(async move { run(&confinement, &folder, line).await }));
    }
    for one in running {
        one.await.map_err(|why| why.to_string())?;
    }
    confinement.stop().await;
    Ok(())
}

async fn establish(settings: &str) -> Result<(Confinement, File), String> {
    let folder = std::env::args_os().nth(1).ok_or("usage: confined FOLDER [N]")?;
    let folder = File::open(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let settings: Settings = serde_json::from_str(settings).map_err(|why| why.to_string())?;
    Ok((Confinement::establish(&settings).await.map_err(|why| why.to_string())?, folder))
}

async fn run(confinement: &Confinement, folder: &File, asked: Line) {
    let command = Command {
        line: asked.line,
        cwd: asked.cwd,
        environment: asked.environment,
        stdin: asked.stdin.into_bytes(),
        timeout: Duration::from_millis(asked.timeout_ms),
    };
    let (progress, told) = watch::channel(Progress::default());
    let cancelled = CancellationToken::new();
    if asked.cancel_now {
        cancelled.cancel();
    }
    let running = confinement.run(&command, folder.as_fd(), &progress, &cancelled);
    tokio::pin!(running);
    let ended = tokio::select! {
        ended = &mut running => Some(ended),
        () = written(told.clone(), asked.drop_at) => None,
        () = async {
            written(told, asked.cancel_at).await;
            cancelled.cancel();
            std::future::pending::<()>().await;
        } => None,
    };
    println!("{}", as_json(asked.id, ended));
}

async fn written(mut told: watch::Receiver<Progress>, line: Option<String>) {
    match line {
        Some(line) => drop(told.wait_for(|progress| progress.last_line == line).await),
        None => std::future::pending().await,
    }
}

fn as_json(id: u64, ended: Option<Result<Outcome, Error>>) -> serde_json::Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match ended {
        None => json!({ "id": id, "end": "Dropped" }),
        Some(Err(why)) => json!({ "id": id, "error": why.to_string() }),
        Some(Ok(outcome)) => json!({
            "id": id,
            "end": format!("{:?}", outcome.end),
            "stdout": text(&outcome.stdout.head),
            "stdout_tail": text(&outcome.stdout.tail),
            "stdout_total": outcome.stdout.total,
            "stderr": text(&outcome.stderr.head),
            "stderr_total": outcome.stderr.total,
            "elapsed_us": outcome.elapsed.as_micros(),
        }),
    }
}

/// Lines of stdin, read on a thread, so that a command may end before the next one is asked for.
fn lines() -> mpsc::UnboundedReceiver<String> {
    let (tell, told) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = tell.send(line);
        }
    });
    told
}

/// `bash -c :` confined and plainly forked, side by side, one after the other.
async fn measure(n: usize) -> Result<(), String> {
    let settings = std::io::read_to_string(std::io::stdin()).map_err(|why| why.to_string())?;
    let (confinement, folder) = establish(&settings).await?;
    let (mut plain, mut confined) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for _ in 0..n {
        plain.push(run_plain().await);
        confined.push(run_confined(&confinement, &folder).await);
    }
    for (name, times) in [("plain", &mut plain), ("confined", &mut confined)] {
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
        println!("{name:9} min {:6.2}  median {:6.2}  p95 {:6.2} ms", at(0), at(50), at(95));
    }
    Ok(())
}

async fn run_plain() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "what is compared with")]
    let mut command = std::process::Command::new("/bin/bash");
    command.args(["-c", ":"]).env_clear();
    let begun = Instant::now();
    let output = tokio::process::Command::from(command).output().await.expect("bash");
    assert!(output.status.success());
    begun.elapsed()
}

async fn run_confined(confinement: &Confinement, folder: &File) -> Duration {
    let command = Command {
        line: ":".to_owned(),
        cwd: String::new(),
        environment: Vec::new(),
        stdin: Vec::new(),
        timeout: Duration::from_secs(60),
    };
    let (progress, cancelled) = (watch::Sender::new(Progress::default()), CancellationToken::new());
    let begun = Instant::now();
    let outcome = confinement.run(&command, folder.as_fd(), &progress, &cancelled).await.expect("confined");
    assert_eq!(outcome.end, End::Exited(0));
    begun.elapsed()
}
