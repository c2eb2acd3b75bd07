//! `portcullis approvals show`: all that is known of one held call, and all that would run.
//!
//! What strangers wrote is escaped, and broken into lines here rather than by the terminal, each behind a mark: so no line
//! of theirs can begin where ours do.

use super::{ascii, period, readable};
use crate::approval::{self, Approvals, Call, Row, View, hex, is_waited_for, state_at};
use crate::cli::context::Context;
use crate::clock::rfc3339;
use crate::jsonrpc::Kind;
use crate::pages::text::exact_line;
use crate::policy::Approvers;
use crate::store::{ApprovalDecision, ApprovalState as State, Notice, NoticeState};
use anyhow::bail;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Columns that one line takes at most: a terminal has 80.
const COLUMNS: usize = 78;
/// Deeper values are not moved further to the right.
const DEEPEST: usize = 16;
/// Stands before the further lines of a field.
const FIELD: &str = "            ";

/// `approvals show`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Show {
    /// Its id.
    #[arg(value_name = "ID")]
    pub(super) id: String,
    /// As JSON.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) async fn run(args: &Show, context: &Context<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let approvals = readable(context)?;
    let view = view(&approvals, &args.id).await?;
    let notices = approvals.notices(&args.id).await?;
    let now_ms = context.clock.unix_ms();
    if args.json {
        writeln!(out, "{}", ascii(&facts(&view, &notices, &approvals, now_ms)))?;
        return Ok(());
    }
    print(&view, &notices, &approvals, now_ms, out)
}

/// The held call of this id, or an error that says there is none.
pub(super) async fn view(approvals: &Approvals, id: &str) -> anyhow::Result<View> {
    let Some(view) = approvals.view(id).await? else {
        bail!("there is no held call `{}`", exact_line(id));
    };
    Ok(view)
}

/// Everything, for people.
pub(super) fn print(
    view: &View,
    notices: &[Notice],
    approvals: &Approvals,
    now_ms: i64,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let held = &view.approval;
    writeln!(out, "held call {}: {}", held.id, state_at(held, now_ms).as_str())?;
    who(view, out)?;
    why(view, out)?;
    field(out, "digest", &grouped(&held.digest))?;
    clocks(view, now_ms, out)?;
    let says = if is_waited_for(held, now_ms) {
        "is waiting: once approved, it runs at once"
    } else {
        "is not waiting: once approved, it runs when the same call comes again in time"
    };
    if matches!(held.state, State::Pending | State::Approved) {
        field(out, "caller", says)?;
    }
    for said in &view.decisions {
        field(out, "decided", &decision(said))?;
    }
    for notice in notices {
        field(out, "webhook", &told(notice))?;
    }
    if let Some(note) = &held.note {
        field(out, "note", &exact_line(note))?;
    }
    content(view, approvals, out)
}

fn who(view: &View, out: &mut dyn Write) -> io::Result<()> {
    let held = &view.approval;
    let requester = &held.requester;
    field(out, "calls", &format!("{}/{}", held.upstream, exact_line(&held.tool)))?;
    field(out, "who", &format!("{} of {}", exact_line(&requester.subject.to_string()), exact_line(&requester.issuer)))?;
    if let Some(person) = &requester.person {
        field(out, "person", &exact_line(person))?;
    }
    field(out, "client", &exact_line(&requester.client))
}

fn why(view: &View, out: &mut dyn Write) -> io::Result<()> {
    let rules: Vec<String> = view.approval.rules.iter().map(|rule| exact_line(rule)).collect();
    field(out, "held by", &format!("rule {}", rules.join(", ")))?;
    for finding in &view.terms.findings {
        let at = if finding.at.is_empty() { "the arguments" } else { &finding.at };
        field(out, "signal", &format!("{} at {}", exact_line(&finding.signal), exact_line(at)))?;
    }
    if let Some(warning) = &view.terms.warning {
        field(out, "warning", &exact_line(warning))?;
    }
    let sets: Vec<String> = view.terms.approvers.iter().map(approvers).collect();
    field(out, "approvers", &sets.join("; and "))?;
    if view.terms.by_requester {
        field(out, "", "the requester may be one of them, with the password")?;
    }
    Ok(())
}

fn approvers(set: &Approvers) -> String {
    let users = set.users.iter().map(|name| exact_line(name));
    let groups = set.groups.iter().map(|name| format!("group {}", exact_line(name)));
    let names: Vec<String> = users.chain(groups).collect();
    format!("{} of {}", set.quorum.max(1), names.join(", "))
}

fn clocks(view: &View, now_ms: i64, out: &mut dyn Write) -> io::Result<()> {
    let held = &view.approval;
    field(out, "asked", &rfc3339(held.created_at_ms))?;
    let until = |ms: i64| format!("{}, in {}", rfc3339(ms), period(ms.saturating_sub(now_ms)));
    match state_at(held, now_ms) {
        State::Pending => {
            field(out, "decide by", &until(held.expires_at_ms))?;
            field(out, "then", &format!("an approval may be used for {}", period(held.valid_for_ms)))?;
        }
        State::Approved => field(out, "usable", &format!("until {}", until(held.usable_until_ms.unwrap_or(0))))?,
        State::Denied => field(out, "denied", &format!("until {}", until(held.expires_at_ms)))?,
        _ => {}
    }
    if let Some(at_ms) = held.consumed_at_ms {
        field(out, "ran", &rfc3339(at_ms))?;
    }
    if let Some(at_ms) = held.ended_at_ms {
        field(out, "ended", &rfc3339(at_ms))?;
    }
    Ok(())
}

fn decision(said: &ApprovalDecision) -> String {
    let word = if said.approves { "approved" } else { "denied" };
    format!("{word} by {} ({}) at {}", exact_line(&said.person), exact_line(&said.via), rfc3339(said.at_ms))
}

fn told(notice: &Notice) -> String {
    let times = if notice.attempts == 1 { "1 attempt".to_owned() } else { format!("{} attempts", notice.attempts) };
    let why = notice.last_error.as_ref().map(|why| format!(": {}", exact_line(why))).unwrap_or_default();
    format!("{}: {} after {times}{why}", notice.hook, notice.state.as_str())
}

fn content(view: &View, approvals: &Approvals, out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(rendered) = approvals.rendered(view) else {
        writeln!(out, "\nwhat it held was erased, a day after its end")?;
        return Ok(());
    };
    for (name, rows) in rendered.parts() {
        if let Some(first) = rows.first() {
            writeln!(out, "\n{name}: {}", first.size())?;
        }
        for row in rows {
            self::row(row, out)?;
        }
    }
    if rendered.arguments.is_empty() {
        writeln!(out, "\nno arguments")?;
    }
    Ok(())
}

/// A value: its name and size, then what it says, behind a mark.
fn row(row: &Row, out: &mut dyn Write) -> io::Result<()> {
    let indent = " ".repeat(2 * row.depth.min(DEEPEST));
    if row.depth > 0 {
        let odd = if row.mixes_scripts { " (mixes alphabets that look alike)" } else { "" };
        let deep = if row.depth > DEEPEST { format!(" (level {})", row.depth) } else { String::new() };
        behind(out, &indent, ["", "  "], &format!("{}: {}{odd}{deep}", row.key, row.size()))?;
    }
    let is_container = matches!(row.kind, Kind::Object | Kind::Array) && !row.is_masked;
    if is_container || row.kind == Kind::Null {
        return Ok(());
    }
    for line in row.text.split('\n') {
        behind(out, &indent, ["  | ", "  : "], line)?;
    }
    Ok(())
}

/// `text` in lines that fit, the first behind the first mark, the others behind the second.
fn behind(out: &mut dyn Write, indent: &str, marks: [&str; 2], text: &str) -> io::Result<()> {
    let room = COLUMNS.saturating_sub(indent.len() + marks[1].len());
    let (mut line, mut columns, mut mark) = (String::new(), 0, marks[0]);
    for c in text.chars() {
        let width = width(c);
        if columns + width > room {
            writeln!(out, "{indent}{mark}{line}")?;
            (columns, mark) = (0, marks[1]);
            line.clear();
        }
        line.push(c);
        columns += width;
    }
    writeln!(out, "{indent}{mark}{line}")
}

/// A name and what is said of it, in lines that end where a word does.
fn field(out: &mut dyn Write, name: &str, value: &str) -> io::Result<()> {
    let mark = format!("  {name:<10}");
    let room = COLUMNS.saturating_sub(mark.len());
    let (mut line, mut mark) = (String::new(), &*mark);
    for word in value.split(' ') {
        if !line.is_empty() && columns(&line) + 1 + columns(word) > room {
            behind(out, "", [mark, FIELD], &line)?;
            (mark, line) = (FIELD, String::new());
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    behind(out, "", [mark, FIELD], &line)
}

fn columns(text: &str) -> usize {
    text.chars().map(width).sum()
}

/// What is not ASCII may be wide.
fn width(c: char) -> usize {
    if c.is_ascii() { 1 } else { 2 }
}

/// In words of four digits, as people compare them.
pub(super) fn grouped(digest: &[u8; 32]) -> String {
    let words: Vec<String> = digest.chunks(2).map(hex).collect();
    words.join(" ")
}

/// Everything, for programs, in JSON.
fn facts(view: &View, notices: &[Notice], approvals: &Approvals, now_ms: i64) -> String {
    let mut facts = approval::facts(&view.approval, now_ms);
    let arguments = approvals.masked_arguments(view).unwrap_or_else(|| "null".to_owned());
    let responses = view.call.as_ref().and_then(Call::input_responses);
    let responses = responses.map_or("null", |node| node.text());
    let more = json!({
        "arguments": parsed(&arguments),
        "masked": view.terms.mask,
        "input_responses": parsed(responses),
        "request_state": view.call.as_ref().and_then(Call::request_state),
        "is_erased": view.call.is_none(),
        "approvers": view.terms.approvers,
        "self": view.terms.by_requester,
        "signals": view.terms.findings,
        "warning": view.terms.warning,
        "decisions": view.decisions.iter().map(said).collect::<Vec<_>>(),
        "webhooks": notices.iter().map(webhook).collect::<Vec<_>>(),
    });
    if let (Value::Object(facts), Value::Object(more)) = (&mut facts, more) {
        facts.extend(more);
    }
    let text = with_member(&format!("{facts:#}"), "arguments", &arguments);
    with_member(&text, "input_responses", responses)
}

/// Nothing where it is deeper than the parser goes; then [`with_member`] puts it in as it is.
fn parsed(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// The member of the outermost object, which alone stands at the beginning of a line like this.
fn with_member(facts: &str, name: &str, text: &str) -> String {
    facts.replacen(&format!("\n  \"{name}\": null"), &format!("\n  \"{name}\": {text}"), 1)
}

fn webhook(notice: &Notice) -> Value {
    json!({
        "name": &*notice.hook,
        "state": notice.state.as_str(),
        "attempts": notice.attempts,
        "next_at": (notice.state == NoticeState::Waiting).then(|| rfc3339(notice.next_at_ms)),
        "last_error": notice.last_error,
    })
}

fn said(said: &ApprovalDecision) -> Value {
    let decision = if said.approves { "approve" } else { "deny" };
    json!({ "person": &*said.person, "decision": decision, "via": said.via, "at": rfc3339(said.at_ms) })
}
