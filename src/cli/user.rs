//! `portcullis user`: the people of this gateway.
//!
//! While there is nobody, the first admin may be added by whoever can write `data_dir`; from then on an admin's password
//! is needed, so that an agent which runs as the same local user cannot make itself a person.

use super::context::{Context, usage};
use super::password;
use crate::admin;
use crate::audit::{Event, Kind};
use crate::browser::{self, Signing};
use crate::config;
use crate::identity::{ADMINS, PasswordHash, Person, Users, UsersFile};
use crate::oauth;
use crate::server::session_key;
use crate::snapshot::admin_url;
use anyhow::bail;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The people of this gateway.
#[derive(Debug, clap::Subcommand)]
pub(super) enum UserCommand {
    /// Print the hash of a password, for `identity.users` in the configuration.
    Hash(Hash),
    /// Add a person to `users.yaml` in `data_dir`.
    Add(Add),
    /// List the people and their groups.
    List,
    /// Print a link that opens the login page so that strangers who guess your password do not keep you out.
    Browser(Browser),
}

/// `user browser`.
#[derive(Debug, clap::Args)]
pub(super) struct Browser {
    /// Whose browser: their own password is asked for.
    pub(super) name: String,
    /// Read the password from the first line of this file.
    #[arg(long, value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
}

/// `user hash`.
#[derive(Debug, clap::Args)]
pub(super) struct Hash {
    /// Read the password from the first line of this file.
    #[arg(long, value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
}

/// `user add`.
#[derive(Debug, clap::Args)]
pub(super) struct Add {
    /// The name: [a-z0-9._@-]{1,64}.
    pub(super) name: String,
    /// A group to be in; repeat for more. The first person is in `admins`.
    #[arg(long = "group", value_name = "GROUP")]
    pub(super) groups: Vec<String>,
    /// Read the new password from the first line of this file.
    #[arg(long, value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
    /// The admin who adds; needed as soon as there is anybody.
    #[arg(long = "as", value_name = "ADMIN")]
    pub(super) admin: Option<String>,
    /// Read the admin's password from the first line of this file.
    #[arg(long, value_name = "FILE")]
    pub(super) admin_password_file: Option<PathBuf>,
}

/// Runs one of the commands. `hash` needs no context; see [`hash`].
///
/// # Errors
/// What went wrong, for people; a [`super::context::Usage`] where the command line was.
pub(super) async fn run(command: UserCommand, context: &Context<'_>) -> anyhow::Result<()> {
    match command {
        UserCommand::Hash(args) => hash(&args),
        UserCommand::Add(args) => {
            let groups = add(&args, context).await?;
            eprintln!("user `{}` added, in {groups}", args.name);
            Ok(())
        }
        UserCommand::List => {
            print!("{}", list(&context.users));
            Ok(())
        }
        UserCommand::Browser(args) => {
            let person = password::verified(&args.name, args.password_file.as_deref(), context).await?;
            let (key, now_ms) = (session_key(&context.data_dir)?, context.clock.unix_ms());
            let link = |plane, url: &str| browser::link(&Signing::new(&key, plane), url, &person.name, now_ms);
            eprintln!("open this within 15 minutes, in the browser that is to be yours, and log in:");
            println!("{}", link(oauth::PLANE.name, &context.issuer).expose());
            if let Some(url) = admin_url(context.config) {
                eprintln!("and this for the approvals page, which has a login of its own:");
                println!("{}", link(admin::PLANE.name, &url).expose());
            }
            Ok(())
        }
    }
}

/// Prints the hash of a password.
///
/// # Errors
/// When there is no password to hash.
pub(super) fn hash(args: &Hash) -> anyhow::Result<()> {
    let password = password::ask_new("Password: ", args.password_file.as_deref())?;
    println!("{}", PasswordHash::of(&password)?.to_phc());
    Ok(())
}

/// Adds a person; gives their groups, for people.
async fn add(args: &Add, context: &Context<'_>) -> anyhow::Result<String> {
    check_unused(&args.name, &context.users)?;
    let groups = groups(args, context.users.is_empty())?;
    let is_first = context.users.is_empty();
    let mut by = None;
    if !is_first {
        by = Some(authorise(args.admin.as_deref(), args.admin_password_file.as_deref(), context).await?);
    }
    let prompt = format!("New password of {}: ", args.name);
    let password = password::ask_new(&prompt, args.password_file.as_deref())?;
    let user = config::User {
        name: args.name.clone(),
        password_hash: PasswordHash::of(&password)?.to_phc(),
        groups,
        also: Vec::new(),
    };

    let file = UsersFile::open(&context.data_dir)?;
    // Read again now that nobody else can write: two people must not both be the first.
    if is_first && !file.everybody(&context.config.identity)?.is_empty() {
        bail!("somebody else was added meanwhile; run it again with --as ADMIN");
    }
    let shown = shown_groups(&user.groups);
    let detail = format!("in {shown}");
    let event = Event { object: Some(&args.name), detail: Some(&detail), ..Event::new(Kind::UserAdded) };
    context.record_by(by.as_ref(), event).await?;
    file.add(user, &context.config.identity)?;
    Ok(shown)
}

fn check_unused(name: &str, users: &Users) -> anyhow::Result<()> {
    if !crate::identity::is_user_name(name) {
        return Err(usage(format!("user name `{name}` is not of the form [a-z0-9._@-]{{1,64}}")));
    }
    if users.get(name).is_some() {
        return Err(usage(format!("there is a user `{name}` already")));
    }
    Ok(())
}

fn groups(args: &Add, is_first: bool) -> anyhow::Result<Vec<String>> {
    let is_fit = |group: &str| (1..=64).contains(&group.len()) && group.bytes().all(|c| c.is_ascii_graphic());
    if let Some(unfit) = args.groups.iter().find(|group| !is_fit(group)) {
        return Err(usage(format!("group `{}` is not 1 to 64 visible ASCII characters", unfit.escape_debug())));
    }
    if !is_first {
        return Ok(args.groups.clone());
    }
    if args.groups.is_empty() {
        return Ok(vec![ADMINS.to_owned()]);
    }
    if !args.groups.iter().any(|group| group == ADMINS) {
        return Err(usage(format!("the first person must be able to add others; write --group {ADMINS} too")));
    }
    Ok(args.groups.clone())
}

/// Asks the named admin for the password.
async fn authorise(admin: Option<&str>, password_file: Option<&Path>, context: &Context<'_>) -> anyhow::Result<Person> {
    let Some(admin) = admin else {
        return Err(usage("only an admin may add people; write --as ADMIN"));
    };
    let prompt = format!("Password of {admin}: ");
    let password = password::ask(&prompt, password_file, "--admin-password-file")?;
    let person = password::verify(admin, password, context).await?;
    if !person.is_in(ADMINS) {
        bail!("`{admin}` is not in group `{ADMINS}`");
    }
    Ok(person)
}

fn list(users: &Users) -> String {
    let mut people: Vec<_> = users.iter().collect();
    people.sort_by(|a, b| a.name.cmp(&b.name));
    people.iter().fold(String::new(), |mut text, person| {
        _ = writeln!(text, "{}\t{}", person.name, shown_groups(&person.groups));
        text
    })
}

fn shown_groups(groups: &[String]) -> String {
    if groups.is_empty() {
        return "no group".to_owned();
    }
    groups.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::context::Usage;
    use crate::cli::context::tests::World;
    use crate::identity::PasswordError;

    fn args(name: &str, groups: &[&str], world: &World) -> Add {
        Add {
            name: name.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            password_file: Some(world.right_password()),
            admin: None,
            admin_password_file: None,
        }
    }

    #[tokio::test]
    async fn the_first_person_is_an_admin_and_needs_nobody() {
        let world = World::new(&[]).await;

        let refused = add(&args("alice", &["ops"], &world), &world.context().await).await.unwrap_err();
        assert!(refused.is::<Usage>(), "{refused}");
        add(&args("alice", &[], &world), &world.context().await).await.unwrap();

        let users = world.context().await.users;
        assert!(users.get("alice").unwrap().is_in(ADMINS));
        assert_eq!(list(&users), "alice\tadmins\n");
    }

    #[tokio::test]
    async fn later_people_are_added_by_an_admin_only() {
        let world = World::new(&[("root", &["admins"]), ("bob", &["ops"])]).await;
        let add_as = async |admin: Option<&str>, password: PathBuf| {
            let args = Add {
                admin: admin.map(str::to_owned),
                admin_password_file: Some(password),
                ..args("eve", &["ops"], &world)
            };
            add(&args, &world.context().await).await
        };

        assert!(add_as(None, world.right_password()).await.unwrap_err().is::<Usage>());
        let wrong = add_as(Some("root"), world.wrong_password()).await.unwrap_err();
        assert!(matches!(wrong.downcast_ref(), Some(PasswordError::Wrong)), "{wrong}");
        let nobody = add_as(Some("eve"), world.right_password()).await.unwrap_err();
        assert!(matches!(nobody.downcast_ref(), Some(PasswordError::Wrong)), "{nobody}");
        let no_admin = add_as(Some("bob"), world.right_password()).await.unwrap_err();
        assert_eq!(no_admin.to_string(), "`bob` is not in group `admins`");
        assert!(world.context().await.users.get("eve").is_none());

        add_as(Some("root"), world.right_password()).await.unwrap();
        assert!(world.context().await.users.get("eve").unwrap().is_in("ops"));
    }

    #[tokio::test]
    async fn two_cannot_both_be_the_first() {
        let world = World::new(&[]).await;
        let (one, other) = (world.context().await, world.context().await);
        add(&args("alice", &[], &world), &one).await.unwrap();

        let late = add(&args("mallory", &[], &world), &other).await.unwrap_err();

        assert!(late.to_string().contains("somebody else was added meanwhile"), "{late}");
        assert!(world.context().await.users.get("mallory").is_none());
    }

    #[tokio::test]
    async fn a_name_is_taken_once_and_well_formed() {
        let world = World::new(&[("root", &["admins"])]).await;
        for name in ["root", "Root", "", "a b", "a:b"] {
            let refused = add(&args(name, &[], &world), &world.context().await).await.unwrap_err();
            assert!(refused.is::<Usage>(), "{name}: {refused}");
        }
    }
}
