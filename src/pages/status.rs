//! What admins see of the gateway: what is wrong, the servers behind it, and what it decided lately.

use super::text;
use askama::Template;

/// How it is with the gateway.
#[derive(Debug, Template)]
#[template(path = "status.html")]
pub struct Status {
    /// Who is logged in.
    pub user: String,
    /// Proves that a form is of this session's page.
    pub csrf: String,
    /// Version, age and configuration, in a sentence or two.
    pub lead: String,
    /// What somebody should do something about.
    pub notes: Vec<Note>,
    /// Why the file on disk is not in force, in lines.
    pub refused: Option<String>,
    /// The servers behind the gateway.
    pub upstreams: Vec<StatusRow>,
    /// How many held calls do what; those of which there are some.
    pub holds: Vec<(&'static str, usize)>,
    /// Names and values.
    pub facts: Vec<(String, String)>,
    /// The latest decisions, latest first.
    pub decisions: Vec<DecisionRow>,
}

/// Something that is wrong, or will be.
#[derive(Debug)]
pub struct Note {
    /// Whether it keeps something from working now.
    pub is_bad: bool,
    /// What.
    pub text: String,
}

/// A server behind the gateway.
#[derive(Debug)]
pub struct StatusRow {
    /// Its name.
    pub name: String,
    /// Whether it is up, in a word.
    pub word: &'static str,
    /// The colour of that word.
    pub class: &'static str,
    /// Its tools, and for how long it has been so.
    pub about: String,
    /// How its process is.
    pub process: Option<String>,
    /// What went wrong the last time that something did.
    pub last_error: Option<String>,
}

/// A decision of the policy.
#[derive(Debug)]
pub struct DecisionRow {
    /// When.
    pub at: String,
    /// `allowed`, `denied`, `held`.
    pub word: String,
    /// The colour of that word.
    pub class: &'static str,
    /// The method.
    pub method: String,
    /// The upstream's name.
    pub upstream: String,
    /// The tool, prompt or resource; empty where there is none.
    pub object: String,
    /// Who asked.
    pub subject: String,
    /// By which client.
    pub client: String,
    /// The rules that said so.
    pub rules: Vec<String>,
    /// The request, by which the audit log has more.
    pub request: String,
}
