//! `portcullis approvals`: held calls at the terminal.
//!
//! Reading is for whoever can open `data_dir`. Whoever changes something does it as a person of this gateway, with their
//! password, and is judged and recorded as on every other way. One call at a time, and by its whole id.

mod change;
mod list;
mod show;
mod watch;

use super::context::Context;
use crate::approval::{self, Approvals};
use crate::audit::{Audit, Event, Kind};
use crate::metrics::Metrics;
use crate::server::session_key;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// Calls that are held for a person.
#[derive(Debug, clap::Subcommand)]
pub(super) enum ApprovalsCommand {
    /// List held calls that need somebody, latest first.
    List(list::List),
    /// Show one held call: who asks, why it is held, and all that would run.
    Show(show::Show),
    /// Let a held call run, once.
    Approve(change::Approve),
    /// Refuse a held call; the same call stays refused until its time for a decision has run out.
    Deny(change::Deny),
    /// Ask anew for a decision on a call that was denied.
    Reopen(change::Change),
    /// Say what became of a call that was running when its process ended.
    Resolve(change::Resolve),
    /// Take a held call back.
    Withdraw(change::Change),
    /// Print held calls, and what becomes of them, as it happens, until interrupted.
    Watch,
}

impl ApprovalsCommand {
    /// Whether it changes nothing.
    pub(super) fn is_reading(&self) -> bool {
        matches!(self, ApprovalsCommand::List(_) | ApprovalsCommand::Show(_) | ApprovalsCommand::Watch)
    }
}

/// Who changes something.
#[derive(Debug, clap::Args)]
pub(super) struct By {
    /// Who you are. Your password is asked for.
    #[arg(long = "as", value_name = "NAME")]
    name: String,
    /// Read the password from the first line of this file.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

/// Runs one of the commands.
///
/// # Errors
/// What went wrong, for people; a [`super::context::Usage`] where the command line was.
pub(super) async fn run(command: ApprovalsCommand, context: &Context<'_>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let done = match command {
        ApprovalsCommand::List(args) => list::run(&args, context, &mut out).await,
        ApprovalsCommand::Show(args) => show::run(&args, context, &mut out).await,
        ApprovalsCommand::Approve(args) => change::approve(&args, context, &mut out).await,
        ApprovalsCommand::Deny(args) => change::deny(&args, context, &mut out).await,
        ApprovalsCommand::Reopen(args) => change::reopen(&args, context, &mut out).await,
        ApprovalsCommand::Resolve(args) => change::resolve(&args, context, &mut out).await,
        ApprovalsCommand::Withdraw(args) => change::withdraw(&args, context, &mut out).await,
        ApprovalsCommand::Watch => watch::run(context, &mut out).await,
    };
    match done {
        // `portcullis approvals list | head` has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        done => done.and_then(|()| Ok(out.flush()?)),
    }
}

/// Held calls to look at. Nothing can be decided with it: there is no log to write it in.
fn readable(context: &Context<'_>) -> anyhow::Result<Approvals> {
    approvals(context, Audit::closed(context.clock.clone()))
}

/// Does `change` with a log that it can be written in, which is closed afterwards.
async fn with_log<T>(
    context: &Context<'_>,
    change: impl AsyncFnOnce(&Approvals) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let log = context.open_log()?;
    let approvals = approvals(context, log.clone())?;
    let done = change(&approvals).await;
    log.record_later(Event::new(Kind::Stop));
    log.close();
    done
}

fn approvals(context: &Context<'_>, audit: Audit) -> anyhow::Result<Approvals> {
    Ok(Approvals::new(approval::Given {
        store: context.store.clone(),
        key: &session_key(&context.data_dir)?,
        clock: context.clock.clone(),
        audit,
        metrics: Arc::new(Metrics::new()),
    }))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// JSON in ASCII, so that nothing in it speaks to the terminal. Outside of its strings JSON is ASCII already.
fn ascii(json: &str) -> String {
    let mut out = String::new();
    for c in json.chars() {
        match c {
            '\n' | ' '..='~' => out.push(c),
            c => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    out
}

/// A length of time for people, in its largest unit.
fn period(ms: i64) -> String {
    let s = ms.max(0) / 1000;
    match s {
        0..=119 => format!("{s} s"),
        120..=7199 => format!("{} min", s / 60),
        _ => format!("{} h", s / 3600),
    }
}
