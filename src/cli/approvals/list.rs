//! `portcullis approvals list`: one held call a line.

use super::{ascii, readable};
use crate::approval::{facts, state_at};
use crate::cli::context::Context;
use crate::clock::rfc3339;
use crate::pages::text::exact_line;
use crate::store::{Approval, ApprovalState as State};
use serde_json::Value;
use std::io::Write;

/// What needs somebody: a decision, a caller, or a word on what became of it.
const OPEN: [State; 4] = [State::Pending, State::Approved, State::Consumed, State::Indeterminate];

/// `approvals list`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct List {
    /// Those that have ended as well.
    #[arg(long)]
    pub(super) all: bool,
    /// As JSON.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) async fn run(args: &List, context: &Context<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let states: &[State] = if args.all { &State::ALL } else { &OPEN };
    let held = readable(context)?.list(states).await?;
    let now_ms = context.clock.unix_ms();
    if args.json {
        let held: Vec<Value> = held.iter().map(|one| facts(one, now_ms)).collect();
        writeln!(out, "{}", ascii(&format!("{:#}", Value::from(held))))?;
        return Ok(());
    }
    if held.is_empty() {
        // Not where a program would read it.
        eprintln!("nothing is held");
    }
    for one in &held {
        writeln!(out, "{}", line(one, now_ms))?;
    }
    Ok(())
}

/// One held call in one line, its parts set apart by tabs.
pub(super) fn line(held: &Approval, now_ms: i64) -> String {
    let Approval { id, requester, upstream, tool, rules, .. } = held;
    let (who, client, tool) =
        (exact_line(&requester.subject.to_string()), exact_line(&requester.client), exact_line(tool));
    let rules: Vec<String> = rules.iter().map(|rule| exact_line(rule)).collect();
    format!(
        "{id}\t{}\t{}\t{who}\t{client}\t{upstream}/{tool}\t{}",
        state_at(held, now_ms).as_str(),
        time(held),
        rules.join(", ")
    )
}

fn time(held: &Approval) -> String {
    match (held.ended_at_ms, held.usable_until_ms) {
        (Some(ended_ms), _) => format!("ended {}", rfc3339(ended_ms)),
        (None, Some(until_ms)) if held.state == State::Approved => format!("until {}", rfc3339(until_ms)),
        (None, _) if matches!(held.state, State::Pending | State::Denied) => {
            format!("until {}", rfc3339(held.expires_at_ms))
        }
        (None, _) => format!("since {}", rfc3339(held.consumed_at_ms.unwrap_or(held.created_at_ms))),
    }
}
