//! Gets a password from the person at the terminal, or from a file; never from the command line or the environment,
//! which other programs can see.

use super::context::{Context, usage};
use crate::identity::{self, LONGEST_PASSWORD, Person};
use crate::secret::Secret;
use anyhow::Context as _;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::Path;

/// In characters, for new passwords. Guesses are slowed down, so this only has to keep out the first few thousand.
const SHORTEST_NEW_PASSWORD: usize = 8;

/// Failures here are counted apart: whoever tries passwords over the network does not keep people from their terminal.
const TERMINAL: &str = "terminal";

/// The person `name`, after their password was asked for and found right.
pub(super) async fn verified(name: &str, file: Option<&Path>, context: &Context<'_>) -> anyhow::Result<Person> {
    let password = ask(&format!("Password of {name}: "), file, "--password-file")?;
    verify(name, password, context).await
}

/// The person `name`, if this is their password.
pub(super) async fn verify(name: &str, password: Secret<String>, context: &Context<'_>) -> anyhow::Result<Person> {
    let Context { store, users, clock, .. } = context;
    Ok(identity::verify_person(store, users, name, Some(TERMINAL), password, clock).await?)
}

/// A password, from the file or the terminal. `option` is what to write where there is no terminal.
pub(super) fn ask(prompt: &str, file: Option<&Path>, option: &str) -> anyhow::Result<Secret<String>> {
    match file {
        Some(file) => read(file),
        None => prompt_for(prompt, option),
    }
}

/// A new password; at a terminal it is asked for twice.
pub(super) fn ask_new(prompt: &str, file: Option<&Path>) -> anyhow::Result<Secret<String>> {
    let password = ask(prompt, file, "--password-file")?;
    let n_characters = password.expose().chars().count();
    if n_characters < SHORTEST_NEW_PASSWORD {
        return Err(usage(format!(
            "a password needs at least {SHORTEST_NEW_PASSWORD} characters; this one has {n_characters}"
        )));
    }
    if file.is_none() && prompt_for("Once more: ", "--password-file")? != password {
        return Err(usage("the two passwords differ; nothing was changed"));
    }
    Ok(password)
}

fn prompt_for(prompt: &str, option: &str) -> anyhow::Result<Secret<String>> {
    if !io::stdin().is_terminal() {
        return Err(usage(format!("a password is needed and there is no terminal to ask at; write {option} FILE")));
    }
    rpassword::prompt_password(prompt).map(Secret::new).context("cannot read a password from the terminal")
}

/// The first line of the file.
fn read(file: &Path) -> anyhow::Result<Secret<String>> {
    let failed = || format!("cannot read the password from {}", file.display());
    let limit = LONGEST_PASSWORD as u64 + 2;
    let mut text = String::new();
    File::open(file).and_then(|file| file.take(limit).read_to_string(&mut text)).with_context(failed)?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err(usage(format!("{} begins with no password", file.display())));
    }
    Ok(Secret::new(line.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::context::Usage;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn a_password_file_holds_the_password_in_its_first_line() {
        for text in ["pass word", "pass word\n", "pass word\r\n", "pass word\nsecond line\n"] {
            let password = ask("", Some(file(text).path()), "").unwrap();
            assert_eq!(password.expose(), "pass word", "{text:?}");
        }
        for text in ["", "\n", "\nsecond line"] {
            let refused = ask("", Some(file(text).path()), "").unwrap_err();
            assert!(refused.is::<Usage>(), "{text:?}: {refused}");
        }
    }

    #[test]
    fn a_new_password_is_not_short() {
        assert!(ask_new("", Some(file("1234567").path())).unwrap_err().is::<Usage>());
        assert!(ask_new("", Some(file("12345678").path())).is_ok());
    }
}
