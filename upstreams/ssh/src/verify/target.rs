//! What is attacked: the host, the credential, and what must be known to attack them.
//!
//! In an attack, `{check}` stands for the action that changes nothing, `{project}` for a project whose logs can be read, both
//! also in capitals, and `{run}` for a program that computes `{a}` plus `{b}`, two random numbers. Their sum is in nothing
//! that is sent: where it comes back, something has run.

use super::Error;
use super::attacks::Tried;
use super::refusal::plain;
use crate::actions::{Action, Actions};
use crate::connection::Way;
use crate::credential::Login;
use crate::settings::Settings;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::Value;

/// What is attacked.
pub(super) struct Target {
    pub(super) way: Way,
    pub(super) login: Login,
    /// The action that changes nothing.
    pub(super) check: String,
    /// A project whose logs can be read.
    project: Option<String>,
    /// What the host should do, and nothing else.
    pub(super) actions: Actions,
    /// A value that nobody knows.
    pub(super) unknown: String,
    /// Further accounts of the host.
    pub(super) accounts: Vec<String>,
}

/// Two numbers, and their sum, which tells what has run from what was merely repeated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Canary {
    a: u32,
    b: u32,
}

// === impl Target ===

impl Target {
    /// # Errors
    /// The settings are such that nobody could begin.
    pub(super) fn new(settings: &Settings, accounts: &[String]) -> Result<Target, Error> {
        let way = Way::of(settings).map_err(Error::Settings)?;
        let login = Login::of(&settings.credential).map_err(Error::Settings)?;
        let actions = Actions::parse(&settings.actions).map_err(|fault| Error::Settings(fault.to_string()))?;
        let (check, project) = (actions.check().to_owned(), project(&actions));
        Ok(Target { way, login, check, project, actions, unknown: unknown()?, accounts: accounts.to_vec() })
    }

    /// What an attack sends. `None`: it needs a project, and there is none.
    pub(super) fn fill(&self, template: &[u8], canary: Canary) -> Option<Vec<u8>> {
        let mut sent = template.to_vec();
        let sum = canary.command();
        let (a, b) = (canary.a.to_string(), canary.b.to_string());
        let words = [
            ("{run}", &sum),
            ("{check}", &self.check),
            ("{CHECK}", &self.check.to_uppercase()),
            ("{a}", &a),
            ("{b}", &b),
        ];
        for (word, meaning) in words {
            sent = replaced(&sent, word.as_bytes(), meaning.as_bytes());
        }
        match &self.project {
            Some(project) => {
                sent = replaced(&sent, b"{project}", project.as_bytes());
                Some(replaced(&sent, b"{PROJECT}", project.to_uppercase().as_bytes()))
            }
            None if has(&sent, b"{project}") || has(&sent, b"{PROJECT}") => None,
            None => Some(sent),
        }
    }
    /// What an attack sends, for people: an action as it was filled in.
    pub(super) fn sent(&self, tried: Tried, canary: Canary) -> String {
        match tried {
            Tried::Exec(template) | Tried::Unreadable(template) if !template.is_empty() => {
                self.fill(template, canary).map_or_else(|| tried.words(), |action| plain(&action))
            }
            tried => tried.words(),
        }
    }
}

/// Of letters only: a host that looks for a number finds none in it.
fn unknown() -> Result<String, Error> {
    let mut bytes = [0; 12];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Random)?;
    let letters = bytes.iter().map(|byte| char::from(b'a' + byte % 26));
    Ok(format!("portcullis-verify-{}", letters.collect::<String>()))
}

/// One of those that an action for logs takes.
fn project(actions: &Actions) -> Option<String> {
    let schemas = actions.iter().map(|action| Value::Object(action.input_schema()));
    let values = schemas.flat_map(|schema| {
        let arguments = schema["properties"].as_object().cloned().unwrap_or_default();
        arguments.into_iter().flat_map(|(_, argument)| argument["enum"].as_array().cloned().unwrap_or_default())
    });
    let mut names = values.filter_map(|value| value.as_str().map(str::to_owned));
    let is_harmless = |action: &Action, command: &str| action.is_read_only() && action.makes(command);
    names.find(|name| actions.iter().any(|action| is_harmless(action, &format!("logs {name} 10"))))
}

fn replaced(text: &[u8], word: &[u8], meaning: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(word.len()).position(|window| window == word) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(meaning);
        rest = &rest[at + word.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// Whether `text` holds `word`.
pub(super) fn has(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

// === impl Canary ===

impl Canary {
    pub(super) fn new() -> Result<Canary, Error> {
        let mut bytes = [0; 8];
        SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Random)?;
        let [a, b] = [&bytes[..4], &bytes[4..]].map(|half| half.iter().fold(0u32, |n, byte| n << 8 | u32::from(*byte)));
        // Long enough to be nothing else.
        Ok(Canary { a: 100_000_000 + a % 900_000_000, b: 100_000_000 + b % 900_000_000 })
    }

    /// A program that computes it.
    pub(super) fn command(self) -> String {
        format!("expr {} + {}", self.a, self.b)
    }

    /// `text` with the program, and its numbers, in their places.
    pub(super) fn put_in(self, text: &str) -> String {
        let text = text.replace("{run}", &self.command());
        text.replace("{a}", &self.a.to_string()).replace("{b}", &self.b.to_string())
    }

    /// Whether somebody has computed it.
    pub(super) fn is_in(self, text: &[u8]) -> bool {
        has(text, (u64::from(self.a) + u64::from(self.b)).to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_in_nothing_that_is_sent() {
        for _ in 0..100 {
            let canary = Canary::new().expect("there are random numbers");

            let sent = canary.command();
            assert!(!canary.is_in(sent.as_bytes()), "{sent}");
            let numbers: Vec<u64> = sent.split(' ').filter_map(|word| word.parse().ok()).collect();
            assert!(canary.is_in(format!("x{}y", numbers[0] + numbers[1]).as_bytes()));
        }
    }

    #[test]
    fn words_in_braces_are_put_in_and_other_braces_stay() {
        assert_eq!(replaced(b"{a} {b} {a}", b"{a}", b"1"), b"1 {b} 1");
        assert_eq!(replaced(b"{", b"{a}", b"1"), b"{");
        assert_eq!(replaced(b"", b"{a}", b"1"), b"");
    }

    #[test]
    fn a_project_is_one_that_an_action_for_logs_takes() {
        let example = Actions::parse(include_str!("../../actions.example.yaml")).expect("the example is good");
        assert_eq!(project(&example).as_deref(), Some("project-a"));

        let without =
            "check: list\nactions: [{ name: a, description: d, annotations: { readOnlyHint: true }, run: list }]";
        assert_eq!(project(&Actions::parse(without).expect("it is good")), None);
    }
}
