//! `portcullis approvals approve`, `deny`, `reopen`, `resolve`, `withdraw`: a person's word, with their password.

use super::{By, show, with_log};
use crate::approval::{
    AT_TERMINAL, Decided, Decider, LONGEST_REASON, People, Place, Proof, Refused, Verdict, View, hex,
};
use crate::cli::context::{Context, usage};
use crate::cli::password;
use crate::store::Approval;
use anyhow::{Context as _, bail};
use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;

/// Digits of the digest that are typed at a terminal.
const TYPED: usize = 6;

/// `approvals approve`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Approve {
    /// Its id.
    #[arg(value_name = "ID")]
    pub(super) id: String,
    #[command(flatten)]
    pub(super) by: By,
    /// Its digest, all 64 digits, as `approvals show` prints it. Left out, its end is asked for at the terminal.
    #[arg(long, value_name = "HEX")]
    pub(super) digest: Option<String>,
}

/// `approvals deny`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Deny {
    /// Its id.
    #[arg(value_name = "ID")]
    pub(super) id: String,
    #[command(flatten)]
    pub(super) by: By,
    /// Why; its caller is told.
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<String>,
}

/// `approvals reopen`, `approvals withdraw`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Change {
    /// Its id.
    #[arg(value_name = "ID")]
    pub(super) id: String,
    #[command(flatten)]
    pub(super) by: By,
}

/// `approvals resolve`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true)))]
pub(in crate::cli) struct Resolve {
    /// Its id.
    #[arg(value_name = "ID")]
    pub(super) id: String,
    /// It has run.
    #[arg(long, group = "what")]
    pub(super) ran: bool,
    /// It has not run.
    #[arg(long, group = "what")]
    pub(super) did_not_run: bool,
    #[command(flatten)]
    pub(super) by: By,
}

pub(super) async fn approve(args: &Approve, context: &Context<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let approvals = super::readable(context)?;
    let view = show::view(&approvals, &args.id).await?;
    let now_ms = context.clock.unix_ms();
    let notices = approvals.notices(&args.id).await?;
    show::print(&view, &notices, &approvals, now_ms, out)?;
    out.flush()?;
    confirm(args.digest.as_deref(), &view)?;
    let decided = decide(&view, Verdict::Approve, None, &args.by, context).await?;
    let more = if decided.needs_more { "; further people must approve before it may run" } else { "" };
    writeln!(out, "\n{} approved by {}{more}", view.approval.id, args.by.name)?;
    Ok(())
}

/// Makes sure that what is approved was looked at.
fn confirm(given: Option<&str>, view: &View) -> anyhow::Result<()> {
    let digest = hex(&view.approval.digest);
    if let Some(given) = given {
        let given: String = given.chars().filter(|c| !c.is_whitespace()).collect();
        if given.len() != digest.len() {
            return Err(usage("--digest takes all 64 digits, as `portcullis approvals show` prints them"));
        }
        if !given.eq_ignore_ascii_case(&digest) {
            bail!("this is not the digest of the call that is held: look at it again");
        }
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(usage("there is no terminal to ask at: write --digest and the digest that was shown"));
    }
    eprint!("\nTo let this run, type the last {TYPED} digits of the digest: ");
    let mut typed = String::new();
    io::stdin().read_line(&mut typed).context("cannot read from the terminal")?;
    // As they are shown, too: in words of four.
    typed.retain(|c| !c.is_whitespace());
    if Some(typed.to_ascii_lowercase().as_str()) != digest.get(digest.len().saturating_sub(TYPED)..) {
        bail!("these are not its last {TYPED} digits; nothing was approved");
    }
    Ok(())
}

pub(super) async fn deny(args: &Deny, context: &Context<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let reason = args.reason.as_deref();
    if reason.is_some_and(|reason| reason.len() > LONGEST_REASON) {
        return Err(usage(format!("a reason has at most {LONGEST_REASON} bytes")));
    }
    let view = show::view(&super::readable(context)?, &args.id).await?;
    decide(&view, Verdict::Deny, reason, &args.by, context).await?;
    writeln!(out, "{} denied by {}", view.approval.id, args.by.name)?;
    Ok(())
}

async fn decide(
    view: &View,
    verdict: Verdict,
    reason: Option<&str>,
    by: &By,
    context: &Context<'_>,
) -> anyhow::Result<Decided> {
    let name = verified(by, context).await?;
    let Approval { id, digest, .. } = &view.approval;
    let decided = with_log(context, async |approvals| {
        Ok(approvals.decide(id, verdict, digest, reason, &decider(&name, context)).await?)
    });
    counts(decided.await?)
}

pub(super) async fn reopen(args: &Change, context: &Context<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let name = verified(&args.by, context).await?;
    let hooks = context.config.approvals.hook_names();
    let reopened =
        with_log(context, async |approvals| Ok(approvals.reopen(&args.id, &hooks, &decider(&name, context)).await?));
    let held = counts(reopened.await?)?;
    writeln!(out, "{} may be decided on again", held.id)?;
    Ok(())
}

pub(super) async fn withdraw(args: &Change, context: &Context<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let name = verified(&args.by, context).await?;
    let withdrawn =
        with_log(context, async |approvals| Ok(approvals.withdraw(&args.id, &decider(&name, context)).await?));
    let held = counts(withdrawn.await?)?;
    writeln!(out, "{} withdrawn by {name}", held.id)?;
    Ok(())
}

pub(super) async fn resolve(args: &Resolve, context: &Context<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let name = verified(&args.by, context).await?;
    let resolved = with_log(context, async |approvals| {
        Ok(approvals.resolve(&args.id, args.ran, &decider(&name, context)).await?)
    });
    let held = counts(resolved.await?)?;
    writeln!(out, "{} {}: {name} says that it {}", held.id, held.state.as_str(), what(args))?;
    Ok(())
}

fn what(args: &Resolve) -> &'static str {
    if args.ran { "ran" } else { "did not run" }
}

/// The name of who changes something, after their password was found right.
async fn verified(by: &By, context: &Context<'_>) -> anyhow::Result<Arc<str>> {
    Ok(password::verified(&by.name, by.password_file.as_deref(), context).await?.name)
}

fn decider<'a>(name: &'a str, context: &'a Context<'_>) -> Decider<'a> {
    let users = context.users.clone();
    let people: People = Arc::new(move |name| users.get(name).map(|person| Arc::clone(&person.groups)));
    let place = Place { issuer: &context.issuer, ..Place::default() };
    Decider { person: name, proof: Proof::Password, via: AT_TERMINAL, place, people }
}

fn counts<T>(outcome: Result<T, Refused>) -> anyhow::Result<T> {
    outcome.map_err(|refused| anyhow::anyhow!("{refused}"))
}
