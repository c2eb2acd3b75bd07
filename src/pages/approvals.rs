//! What approvers see: the list of held calls, and one of them with everything that would run.
//!
//! What an agent wrote comes as pieces of a [`Value`]: text that is what it looks like, and escapes. No piece is ever a link, a
//! picture or markup; a template escapes each, and shows it in an order that no writing direction changes.

use super::text;
use askama::Template;

/// The list of held calls.
#[derive(Debug, Template)]
#[template(path = "approvals.html")]
pub struct Approvals {
    /// Who is logged in.
    pub user: String,
    /// Proves that a form is of this session's page.
    pub csrf: String,
    /// Whether there is a status page for them.
    pub is_admin: bool,
    /// Calls that wait for a decision.
    pub n_pending: usize,
    /// What needs somebody, what runs, what has ended; a list each.
    pub groups: Vec<ApprovalGroup>,
    /// Webhooks that could not be told, and are not tried again.
    pub n_dead: usize,
    /// Whether more are held than the store lists at once.
    pub is_cut: bool,
    /// What was just done.
    pub notice: Option<String>,
}

/// Held calls that stand alike.
#[derive(Debug)]
pub struct ApprovalGroup {
    /// The end of an id for its heading.
    pub name: &'static str,
    /// What they have in common.
    pub title: &'static str,
    /// Latest first, or what runs out first.
    pub rows: Vec<ApprovalRow>,
    /// Older ones that are not listed.
    pub n_more: usize,
}

/// One held call in the list.
#[derive(Debug)]
pub struct ApprovalRow {
    /// Its id.
    pub id: String,
    /// The upstream's name.
    pub upstream: String,
    /// The tool's own name.
    pub tool: String,
    /// Who asks.
    pub subject: String,
    /// By which client.
    pub client: String,
    /// The word of its state.
    pub state: &'static str,
    /// When something happens, or has happened.
    pub time: String,
    /// Whether its caller waits.
    pub is_waited_for: bool,
    /// What the rules' signals found, each once.
    pub signals: Vec<String>,
    /// Whether it is the person's own call.
    pub is_own: bool,
}

/// One held call.
#[derive(Debug, Template)]
#[template(path = "approval.html")]
pub struct Approval {
    /// Who is logged in.
    pub user: String,
    /// Proves that a form is of this session's page.
    pub csrf: String,
    /// Its id.
    pub id: String,
    /// The upstream's name.
    pub upstream: String,
    /// The tool's own name, never its title.
    pub tool: String,
    /// Who asks, as the token said.
    pub subject: String,
    /// Which person of this gateway that is, where the subject does not say so.
    pub person: Option<String>,
    /// Who vouches for them, where that is not this gateway.
    pub issuer: Option<String>,
    /// The OAuth client.
    pub client: String,
    /// The word of its state.
    pub state: &'static str,
    /// What that means.
    pub status: String,
    /// Whether it may still be decided on.
    pub is_pending: bool,
    /// The rules that hold it.
    pub rules: Vec<String>,
    /// What the rules' signals found, and where.
    pub findings: Vec<(String, String)>,
    /// What people must know of an earlier call that was the same.
    pub warning: Option<String>,
    /// Names and times, for the list of facts.
    pub facts: Vec<(&'static str, String)>,
    /// What an approval would do: whether its caller waits.
    pub caller: String,
    /// Whether it waits.
    pub is_waited_for: bool,
    /// Until when it waits, and how long an approval would last.
    pub clocks: Option<String>,
    /// The digest, in groups of eight digits.
    pub digest: Vec<String>,
    /// Each set of approvers that the rules ask for.
    pub quorums: Vec<Quorum>,
    /// What was said so far.
    pub said: Vec<Said>,
    /// What would run: this part of it.
    pub sections: Vec<Section>,
    /// Whether what it holds was erased.
    pub is_erased: bool,
    /// Which part, from 1.
    pub part: usize,
    /// How many there are.
    pub n_parts: usize,
    /// How large all of it is, in words.
    pub size: String,
    /// Proves which parts were shown; goes with links and forms.
    pub shown: String,
    /// What the person may do.
    pub choice: Option<Choice>,
    /// Why nothing may be decided.
    pub refusal: Option<String>,
    /// What became of its webhooks.
    pub notices: Vec<NoticeRow>,
    /// What was just done.
    pub notice: Option<String>,
    /// Why what was just tried was not done.
    pub problem: Option<String>,
}

/// People of whom so many must approve.
#[derive(Debug)]
pub struct Quorum {
    /// Who they are: `user bob or group admins`.
    pub of: String,
    /// How many must.
    pub needed: usize,
    /// How many have.
    pub given: usize,
}

/// One person's word.
#[derive(Debug)]
pub struct Said {
    /// Who.
    pub person: String,
    /// `approved` or `denied`.
    pub word: &'static str,
    /// On which way.
    pub via: String,
    /// When.
    pub at: String,
}

/// What a person may do with a held call.
#[derive(Debug, Default)]
pub struct Choice {
    /// The digest that the form repeats, in hex.
    pub digest: String,
    /// Say no.
    pub can_deny: bool,
    /// Say yes, as soon as all was shown.
    pub can_approve: bool,
    /// Take it back.
    pub can_withdraw: bool,
    /// Ask anew.
    pub can_reopen: bool,
    /// Say what became of it.
    pub can_resolve: bool,
    /// Why the password is asked for, where it is.
    pub password: Option<&'static str>,
    /// The reason that was typed before.
    pub reason: String,
}

/// One part of a call: arguments, answers, state.
#[derive(Debug)]
pub struct Section {
    /// Its name.
    pub title: &'static str,
    /// Its values.
    pub values: Vec<Value>,
}

/// One value, or what of it stands in this part.
#[derive(Debug)]
pub struct Value {
    /// How deep it is indented; deeper ones stand as deep as the deepest, and say their level.
    pub indent: usize,
    /// Objects and arrays around it, where they are more than are indented.
    pub level: Option<usize>,
    /// Its name.
    pub key: Vec<Piece>,
    /// What it is, and how large.
    pub size: String,
    /// Its lines, numbered.
    pub lines: Vec<Line>,
    /// Whether its beginning stands in the part before.
    pub is_continued: bool,
    /// Whether it has more lines than one, here or in another part.
    pub is_long: bool,
    /// Whether a rule keeps it from approvers.
    pub is_masked: bool,
    /// Whether a word in it mixes alphabets.
    pub mixes_scripts: bool,
    /// Whether it has characters beyond ASCII, which are marked.
    pub has_foreign: bool,
}

/// One line of a value.
#[derive(Debug)]
pub struct Line {
    /// Its number, where it begins here.
    pub number: Option<usize>,
    /// Its text.
    pub pieces: Vec<Piece>,
    /// Whether a line break ends it.
    pub is_broken: bool,
}

/// Some text of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Printable ASCII.
    Plain(String),
    /// Other letters and signs; marked, since some look like others.
    Foreign(String),
    /// The name of what cannot be seen: `⟦U+202E⟧`.
    Escape(String),
}

/// What became of one notice.
#[derive(Debug)]
pub struct NoticeRow {
    /// The webhook's name.
    pub hook: String,
    /// The word of its state.
    pub state: &'static str,
    /// How often it was sent, and what went wrong last.
    pub detail: String,
    /// Whether it is not tried again.
    pub is_dead: bool,
}

// === impl Approval ===

impl Approval {
    fn is_last_part(&self) -> bool {
        self.part >= self.n_parts
    }

    fn has_choice_on_pending(&self) -> bool {
        self.choice.as_ref().is_some_and(|choice| choice.can_approve || choice.can_deny)
    }
}

// === impl Piece ===

impl Piece {
    /// Text that is escaped already (`⟦U+202E⟧`), in pieces.
    pub fn all_of(escaped: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut rest = escaped;
        while let Some(at) = rest.find('⟦') {
            let (before, from) = rest.split_at(at);
            push_text(before, &mut pieces);
            let end = from.find('⟧').map_or(from.len(), |end| end + '⟧'.len_utf8());
            let (escape, after) = from.split_at(end);
            pieces.push(Piece::Escape(escape.to_owned()));
            rest = after;
        }
        push_text(rest, &mut pieces);
        pieces
    }
}

/// Text without escapes, ASCII and the rest apart.
fn push_text(text: &str, pieces: &mut Vec<Piece>) {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_ascii = first.is_ascii();
        let end = rest.find(|c: char| c.is_ascii() != is_ascii).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        pieces.push(if is_ascii { Piece::Plain(run.to_owned()) } else { Piece::Foreign(run.to_owned()) });
        rest = after;
    }
}

/// A time in Unix milliseconds, to the second: `30 November 2026, 15:20:31 UTC`.
pub fn second(unix_ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(unix_ms) {
        Ok(at) => at.strftime("%-d %B %Y, %H:%M:%S UTC").to_string(),
        // No clock says so.
        Err(_) => "at no time".to_owned(),
    }
}

/// A length of time for people, rounded down: `23 min`, `5 s`.
pub fn period(ms: i64) -> String {
    let s = ms.max(0) / 1000;
    match s {
        0..=119 => format!("{s} s"),
        120..=7199 => format!("{} min", s / 60),
        7200..=172_799 => format!("{} h", s / 3600),
        _ => format!("{} days", s / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_apart_in_what_it_is() {
        let escaped = text::exact("rm \u{202e}é⟦x");
        let plain = |text: &str| Piece::Plain(text.to_owned());
        let escape = |text: &str| Piece::Escape(text.to_owned());
        assert_eq!(
            Piece::all_of(&escaped),
            [plain("rm "), escape("⟦U+202E⟧"), Piece::Foreign("é".to_owned()), escape("⟦U+27E6⟧"), plain("x")]
        );
        assert!(Piece::all_of("").is_empty());
    }

    #[test]
    fn times_are_said_as_people_read_them() {
        assert_eq!(second(1_796_050_051_000), "30 November 2026, 14:47:31 UTC");
        let said: Vec<_> = [-5, 5_000, 119_000, 120_000, 7_200_000, 200_000_000].map(period).into();
        assert_eq!(said, ["0 s", "5 s", "119 s", "2 min", "2 h", "2 days"]);
    }
}
