//! `portcullis keys`: the keys that sign access tokens.

use super::context::Context;
use super::password;
use crate::audit::{self, Audit, Durability, Event, Kind, Who};
use crate::clock;
use crate::identity::{ADMINS, Keys, Listed, Person, State};
use anyhow::bail;
use std::fmt::Write as _;
use std::path::PathBuf;

/// The keys that sign access tokens.
#[derive(Debug, clap::Subcommand)]
pub(super) enum KeysCommand {
    /// List the keys, newest first, with what each is for. Shows no key.
    List,
    /// Make a new key. It signs a minute from now, and nobody is logged out.
    Rotate(Rotate),
}

/// `keys rotate`.
#[derive(Debug, clap::Args)]
pub(super) struct Rotate {
    /// The admin who rotates. Their password is asked for.
    #[arg(long = "as", value_name = "ADMIN")]
    pub(super) by: String,
    /// Read the password from the first line of this file.
    #[arg(long, value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
}

/// Runs one of the commands.
///
/// # Errors
/// What went wrong, for people.
pub(super) async fn run(command: KeysCommand, context: &Context<'_>) -> anyhow::Result<()> {
    match command {
        KeysCommand::List => print!("{}", list(context)?),
        KeysCommand::Rotate(args) => {
            let kid = rotate(&args, context).await?;
            eprintln!("key {kid} was made; it signs a minute from now");
            eprintln!(
                "the keys before it verify until the last token they signed has expired; see: portcullis keys list"
            );
        }
    }
    Ok(())
}

fn list(context: &Context<'_>) -> anyhow::Result<String> {
    let keys = Keys::open(&context.data_dir)?;
    let mut text = String::new();
    for Listed { kid, made_at_ms, state } in keys.list(context.clock.unix_ms()) {
        let state = match state {
            State::SignsFrom(at_ms) => format!("signs from {}", clock::rfc3339(at_ms)),
            State::Signs => "signs".to_owned(),
            State::VerifiesUntil(at_ms) => format!("verifies until {}", clock::rfc3339(at_ms)),
        };
        _ = writeln!(text, "{kid}\tmade {}\t{state}", clock::rfc3339(made_at_ms));
    }
    Ok(text)
}

/// Makes a key; gives its id.
async fn rotate(args: &Rotate, context: &Context<'_>) -> anyhow::Result<String> {
    let person = password::verified(&args.by, args.password_file.as_deref(), context).await?;
    if !person.is_in(ADMINS) {
        bail!("`{}` is not in group `{ADMINS}`", person.name);
    }
    // There is always a key that is older than the new one: a new one that is alone would sign at once.
    Keys::open(&context.data_dir)?;
    let audit = context.open_log()?;
    let kid = Keys::rotate(&context.data_dir)?;
    let recorded = record(&audit, context, &person, &kid).await;
    audit.record_later(Event::new(Kind::Stop));
    audit.close();
    recorded?;
    Ok(kid)
}

async fn record(audit: &Audit, context: &Context<'_>, person: &Person, kid: &str) -> anyhow::Result<()> {
    let subject = audit::Subject::User(&person.name);
    let who = Who { issuer: &context.issuer, subject, client: "cli", grant: None, person: None };
    let detail = format!("signing key {kid} was made");
    let event = Event { principal: Some(who), detail: Some(&detail), ..Event::new(Kind::KeyRotated) };
    audit.record(event, Durability::Synced).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::context::tests::World;
    use crate::identity::PasswordError;

    #[tokio::test]
    async fn an_admin_rotates_and_the_log_says_who() {
        let world = World::new(&[("root", &["admins"]), ("bob", &["ops"])]).await;
        let context = world.context().await;
        let by = |name: &str, file: PathBuf| Rotate { by: name.to_owned(), password_file: Some(file) };

        let wrong = rotate(&by("root", world.wrong_password()), &context).await.unwrap_err();
        assert!(matches!(wrong.downcast_ref(), Some(PasswordError::Wrong)), "{wrong}");
        let no_admin = rotate(&by("bob", world.right_password()), &context).await.unwrap_err();
        assert_eq!(no_admin.to_string(), "`bob` is not in group `admins`");
        assert_eq!(list(&context).unwrap().lines().count(), 1);

        let kid = rotate(&by("root", world.right_password()), &context).await.unwrap();

        let listed = list(&context).unwrap();
        assert_eq!(listed.lines().count(), 2);
        assert!(listed.starts_with(&format!("{kid}\tmade ")), "{listed}");
        let log = std::fs::read_dir(context.data_dir.join("audit")).unwrap();
        let log: String = log.filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok()).collect();
        let said = format!("signing key {kid} was made");
        assert!(log.lines().any(|line| line.contains("key.rotated") && line.contains(&said) && line.contains("root")));
    }
}
