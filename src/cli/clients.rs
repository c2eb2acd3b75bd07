//! `portcullis clients`: the OAuth clients that registered themselves, and secrets for those that are configured.

use super::context::{Context, usage};
use super::password;
use crate::audit::{Event, Kind, sha256};
use crate::clock;
use crate::id;
use crate::identity::{ADMINS, is_client_id};
use crate::redirect_uri;
use crate::store::RegisteredClient;
use anyhow::bail;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

/// OAuth clients.
#[derive(Debug, clap::Subcommand)]
pub(super) enum ClientsCommand {
    /// List the clients that registered themselves, latest first: id, name, where they send people, last use.
    List,
    /// Show all that a client said of itself. Nobody has checked it.
    Show(Show),
    /// Remove a client and revoke every grant of it, at once. It has to register again, and people have to log in again.
    Remove(Remove),
    /// Print a new secret for a client of `identity.clients`, and the hash that belongs there.
    Secret,
}

/// `clients show`.
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// Its `client_id`.
    #[arg(value_name = "ID")]
    pub(super) id: String,
}

/// `clients remove`.
#[derive(Debug, clap::Args)]
pub(super) struct Remove {
    /// Its `client_id`; for a metadata document, the URL.
    #[arg(value_name = "ID")]
    pub(super) id: String,
    /// Who removes it: somebody in `admins`. Their password is asked for.
    #[arg(long = "as", value_name = "NAME")]
    pub(super) by: String,
    /// Read the password from the first line of this file.
    #[arg(long, value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
}

/// Runs one of the commands.
///
/// # Errors
/// For people; a [`super::context::Usage`] where the command line was wrong.
pub(super) async fn run(command: ClientsCommand, context: &Context<'_>) -> anyhow::Result<()> {
    match command {
        ClientsCommand::List => print!("{}", list(context).await?),
        ClientsCommand::Show(args) => print!("{}", show(&args, context).await?),
        ClientsCommand::Remove(args) => eprintln!("{}", remove(&args, context).await?),
        ClientsCommand::Secret => print_secret(),
    }
    Ok(())
}

/// Needs no configuration: its result goes into one.
pub(super) fn print_secret() {
    let secret = id::secret("cs_");
    let hash: String = sha256(secret.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    println!("secret for the client, shown only now:  {secret}");
    println!("line for its entry in identity.clients: secret_hash: \"sha256:{hash}\"");
}

async fn list(context: &Context<'_>) -> anyhow::Result<String> {
    let mut text = String::new();
    for client in context.store.clients().await? {
        let (name, places) = said(&client);
        let used =
            client.used_at_ms.map_or_else(|| "never used".to_owned(), |at| format!("used {}", clock::rfc3339(at)));
        _ = writeln!(text, "{}\t{name}\t{places}\t{used}", client.id);
    }
    Ok(text)
}

/// Its name, and where it sends people.
fn said(client: &RegisteredClient) -> (String, String) {
    let metadata: Value = serde_json::from_str(&client.metadata).unwrap_or_default();
    let name = metadata["client_name"].as_str().unwrap_or("(no name)").escape_debug().to_string();
    let uris = metadata["redirect_uris"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let places: BTreeSet<String> = uris.map(redirect_uri::sent_to).collect();
    (name, places.into_iter().collect::<Vec<_>>().join(" "))
}

async fn show(args: &Show, context: &Context<'_>) -> anyhow::Result<String> {
    let Some(client) = context.store.client(&args.id).await? else {
        if context.config.identity.clients.iter().any(|client| client.id == args.id) {
            bail!("client `{}` stands in the configuration, under identity.clients", args.id);
        }
        bail!("no client `{}` registered here", args.id.escape_debug());
    };
    let metadata: Value = serde_json::from_str(&client.metadata)?;
    let mut text = format!("{}\nregistered {}\n", client.id, clock::rfc3339(client.created_at_ms));
    match client.used_at_ms {
        Some(at) => _ = writeln!(text, "last used {}", clock::rfc3339(at)),
        None => text.push_str("never used\n"),
    }
    _ = writeln!(text, "what it says of itself:\n{metadata:#}");
    Ok(text)
}

/// Removes it; says what happened.
async fn remove(args: &Remove, context: &Context<'_>) -> anyhow::Result<String> {
    if !is_client_id(&args.id) {
        return Err(usage(format!("`{}` is not a client id", args.id.escape_debug())));
    }
    let person = password::verified(&args.by, args.password_file.as_deref(), context).await?;
    if !person.is_in(ADMINS) {
        bail!("only somebody in {ADMINS} may remove a client");
    }
    let event = Event { object: Some(&args.id), ..Event::new(Kind::ClientRemoved) };
    context.record(&person, event).await?;
    let by = format!("user:{}", person.name);
    let removal = context.store.remove_client(&args.id, &by, context.clock.unix_ms()).await?;
    let grants = match removal.n_revoked {
        1 => "1 grant".to_owned(),
        n => format!("{n} grants"),
    };
    if removal.was_registered {
        return Ok(format!("client {} removed, {grants} revoked", args.id));
    }
    if removal.n_revoked == 0 {
        bail!("no client `{}` registered here, and it has no grant", args.id);
    }
    Ok(format!("client {} never registered here; {grants} revoked. It can ask people again", args.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit;
    use crate::cli::context::Usage;
    use crate::cli::context::tests::World;
    use crate::store::{Grant, Subject};

    async fn register(context: &Context<'_>, id: &str, name: &str) {
        let metadata = format!(
            r#"{{"client_name":"{name}","redirect_uris":["http://127.0.0.1/","https://app.example/cb","cursor://x/cb"]}}"#
        );
        let client = RegisteredClient { id: id.to_owned(), metadata, secret: None, created_at_ms: 1, used_at_ms: None };
        context.store.insert_client(client, 10).await.unwrap();
    }

    async fn grant(context: &Context<'_>, id: &str, client: &str) {
        let grant = Grant {
            id: id.into(),
            issuer: context.issuer.clone(),
            subject: Subject::User("alice".into()),
            client: client.into(),
            resource: "https://mcp.example.com/mcp/github".into(),
            scopes: [].into(),
            created_at_ms: 1,
            expires_at_ms: i64::MAX,
            made_by: "test".to_owned(),
            password_mark: None,
            longest_until_ms: None,
            revoked: None,
        };
        context.store.insert_grant(grant).await.unwrap();
    }

    #[tokio::test]
    async fn clients_are_listed_with_where_they_send_people_and_their_last_use() {
        let world = World::new(&[("root", &["admins"])]).await;
        let context = world.context().await;
        register(&context, "c_1", "Claude Code").await;

        let places = "127.0.0.1 app.example cursor:";
        assert_eq!(list(&context).await.unwrap(), format!("c_1\tClaude Code\t{places}\tnever used\n"));
        context.store.touch_client("c_1", 1_800_000_000_000).await.unwrap();
        assert!(list(&context).await.unwrap().ends_with("\tused 2027-01-15T08:00:00.000Z\n"));
        let shown = show(&Show { id: "c_1".to_owned() }, &context).await.unwrap();
        assert!(shown.contains("https://app.example/cb"), "{shown}");
        assert!(show(&Show { id: "c_2".to_owned() }, &context).await.is_err());
    }

    #[tokio::test]
    async fn only_an_admin_removes_a_client_and_its_grants_end_with_it() {
        let world = World::new(&[("alice", &["ops"]), ("root", &["admins"])]).await;
        let context = world.context().await;
        register(&context, "c_1", "x").await;
        for (id, client) in [("g_1", "c_1"), ("g_2", "c_1"), ("g_3", "https://app.example/client.json")] {
            grant(&context, id, client).await;
        }
        let by = |id: &str, name: &str, password: PathBuf| Remove {
            id: id.to_owned(),
            by: name.to_owned(),
            password_file: Some(password),
        };

        assert!(remove(&by("c_1", "alice", world.right_password()), &context).await.is_err());
        assert!(remove(&by("c_1", "root", world.wrong_password()), &context).await.is_err());
        assert!(context.store.client("c_1").await.unwrap().is_some());
        assert_eq!(context.store.grant("g_1").await.unwrap().unwrap().revoked, None);

        let said = remove(&by("c_1", "root", world.right_password()), &context).await.unwrap();
        assert_eq!(said, "client c_1 removed, 2 grants revoked");
        assert!(context.store.client("c_1").await.unwrap().is_none());
        let revoked = context.store.grant("g_1").await.unwrap().unwrap().revoked;
        assert_eq!(revoked.unwrap().by, "user:root");
        assert!(context.store.grant("g_3").await.unwrap().unwrap().revoked.is_none());
        let url = "https://app.example/client.json";
        let said = remove(&by(url, "root", world.right_password()), &context).await.unwrap();
        assert!(said.contains("1 grant revoked"), "{said}");
        assert!(remove(&by("c_1", "root", world.right_password()), &context).await.is_err());
        assert!(remove(&by("a b", "root", world.right_password()), &context).await.unwrap_err().is::<Usage>());
        let report = audit::verify(&audit::Directory::new(context.data_dir.join("audit")), &audit::Against::default());
        assert!(report.is_ok());
    }
}
