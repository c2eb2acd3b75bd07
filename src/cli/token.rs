//! `portcullis token`: access tokens for clients that cannot log in through a browser.
//!
//! Whoever makes a token must be the person it stands for; whoever revokes one, that person or an admin.

use super::context::{Context, usage};
use super::password;
use crate::audit::{Event, Kind, sha256};
use crate::clock;
use crate::id;
use crate::identity::{self, ADMINS, Claims, Keys, Subject};
use crate::snapshot::BASE_SCOPE;
use crate::store::{Grant, REFRESH_TOKEN, Revocation};
use anyhow::{Context as _, bail};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

/// A longer life is a forgotten token.
const LONGEST_TTL_S: i64 = identity::LONGEST_LIFE_S;

/// Access tokens for clients that cannot log in through a browser.
#[derive(Debug, clap::Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token for yourself; it is printed alone on standard output.
    Issue(Issue),
    /// List grants, latest first. Shows no token.
    List(List),
    /// Revoke a grant and every token of it.
    Revoke(Revoke),
}

/// `token issue`.
#[derive(Debug, clap::Args)]
pub(super) struct Issue {
    /// Whose token: their own password is asked for.
    #[arg(long, value_name = "NAME")]
    pub(super) user: String,
    /// The upstream it opens.
    #[arg(long, value_name = "UPSTREAM")]
    pub(super) route: String,
    /// How long it lives: 90s, 30m, 12h, 7d; at most 30d.
    #[arg(long, default_value = "1h", value_parser = ttl_s)]
    pub(super) ttl: i64,
    /// A scope; repeat for more. Left out: mcp.
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(super) scopes: Vec<String>,
    /// The client it is for, as rules name it.
    #[arg(long, value_name = "ID", default_value = "cli")]
    pub(super) client: String,
    /// Read the password from the first line of this file.
    #[arg(long, value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
}

/// `token list`.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Only this person's.
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,
}

/// `token revoke`.
#[derive(Debug, clap::Args)]
pub(super) struct Revoke {
    /// The grant's id, an access or refresh token of it, or `-` to read either from standard input.
    #[arg(value_name = "GRANT|TOKEN|-")]
    pub(super) grant: String,
    /// Who revokes: the grant's own user, or an admin. Their password is asked for.
    #[arg(long = "as", value_name = "NAME")]
    pub(super) by: String,
    /// Read the password from the first line of this file.
    #[arg(long, value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
}

/// Runs one of the commands.
///
/// # Errors
/// What went wrong, for people; a [`super::context::Usage`] where the command line was.
pub(super) async fn run(command: TokenCommand, context: &Context<'_>) -> anyhow::Result<()> {
    match command {
        TokenCommand::Issue(args) => {
            let (grant, token) = issue(&args, context).await?;
            let until = clock::rfc3339(grant.expires_at_ms);
            eprintln!("grant {} for {} until {until}", grant.id, grant.resource);
            eprintln!("revoke it with: portcullis token revoke {} --as {}", grant.id, args.user);
            println!("{token}");
        }
        TokenCommand::List(args) => print!("{}", list(&args, context).await?),
        TokenCommand::Revoke(args) => eprintln!("{}", revoke(&args, context).await?),
    }
    Ok(())
}

/// Writes the grant, then makes the token: the other way round there could be a token nobody can revoke.
async fn issue(args: &Issue, context: &Context<'_>) -> anyhow::Result<(Grant, String)> {
    let resource = check(args, context)?;
    let person = password::verified(&args.user, args.password_file.as_deref(), context).await?;
    let keys = Keys::open(&context.data_dir)?;
    let now_s = context.clock.unix_seconds();
    let expires_at = now_s.saturating_add(args.ttl);
    let grant = Grant {
        id: id::unguessable("g_").into(),
        issuer: context.issuer.clone(),
        subject: Subject::User(person.name.clone()),
        client: args.client.as_str().into(),
        resource,
        scopes: scopes(&args.scopes),
        created_at_ms: context.clock.unix_ms(),
        expires_at_ms: expires_at.saturating_mul(1000),
        made_by: "token issue".to_owned(),
        password_mark: Some(person.password_mark.clone()),
        longest_until_ms: None,
        revoked: None,
    };
    let until = clock::rfc3339(grant.expires_at_ms);
    let detail = format!("a grant for client {} at {} until {until}", grant.client, grant.resource);
    let event = Event { object: Some(&grant.id), detail: Some(&detail), ..Event::new(Kind::TokenIssued) };
    context.record(&person, event).await?;
    context.store.insert_grant(grant.clone()).await?;
    let token = identity::issue(&keys, &Claims::of(&grant, now_s, expires_at))?;
    if token.len() > identity::LONGEST_TOKEN {
        bail!("the token would be too long; ask for fewer scopes");
    }
    Ok((grant, token))
}

/// What can be found wrong before anybody types a password. Gives the route's resource URL.
fn check(args: &Issue, context: &Context<'_>) -> anyhow::Result<Arc<str>> {
    let Some(resource) = context.resource(&args.route) else {
        let known: Vec<&str> = context.config.upstreams.keys().map(String::as_str).collect();
        return Err(usage(format!("unknown upstream `{}`; there are: {}", args.route, known.join(", "))));
    };
    if let Some(scope) = args.scopes.iter().find(|scope| !identity::is_scope(scope)) {
        return Err(usage(format!("`{}` is not a scope (RFC 6749 §3.3)", scope.escape_debug())));
    }
    if !identity::is_client_id(&args.client) {
        return Err(usage(format!("`{}` is not a client id", args.client.escape_debug())));
    }
    Ok(resource)
}

fn scopes(asked: &[String]) -> Arc<[String]> {
    if asked.is_empty() {
        return [BASE_SCOPE.to_owned()].into();
    }
    asked.into()
}

/// `30m` in seconds.
fn ttl_s(text: &str) -> Result<i64, String> {
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).unwrap_or_default();
    let unit_s = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return Err("expected a number and s, m, h or d: 30m".to_owned()),
    };
    let is_number = !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit());
    let number: i64 = match number.parse() {
        Ok(number) if is_number => number,
        _ => return Err("expected a number and s, m, h or d: 30m".to_owned()),
    };
    match number.saturating_mul(unit_s) {
        0 => Err("a token must live for a while".to_owned()),
        ttl if ttl > LONGEST_TTL_S => Err("a token lives for at most 30d".to_owned()),
        ttl => Ok(ttl),
    }
}

async fn list(args: &List, context: &Context<'_>) -> anyhow::Result<String> {
    let grants = match &args.user {
        Some(name) => context.store.grants_of(&Subject::User(name.as_str().into())).await?,
        None => context.store.grants().await?,
    };
    let mut text = String::new();
    for grant in &grants {
        let Grant { id, subject, client, resource, scopes, made_by, .. } = grant;
        let (scopes, state) = (scopes.join(" "), state(grant, context.clock.unix_ms()));
        _ = writeln!(text, "{id}\t{subject}\t{client}\t{resource}\t{scopes}\t{made_by}\t{state}");
    }
    Ok(text)
}

fn state(grant: &Grant, now_ms: i64) -> String {
    match &grant.revoked {
        Some(revoked) => format!("revoked {} by {}", clock::rfc3339(revoked.at_ms), revoked.by),
        None if now_ms >= grant.expires_at_ms => {
            format!("expired {}", clock::rfc3339(grant.expires_at_ms))
        }
        None => format!("until {}", clock::rfc3339(grant.expires_at_ms)),
    }
}

/// Revokes a grant; says what happened.
async fn revoke(args: &Revoke, context: &Context<'_>) -> anyhow::Result<String> {
    let id = grant_id(&args.grant, context).await?;
    let person = password::verified(&args.by, args.password_file.as_deref(), context).await?;
    let Some(grant) = context.store.grant(&id).await? else {
        bail!("there is no grant `{}`", id.escape_debug());
    };
    let by = Subject::User(person.name.clone());
    if grant.subject != by && !person.is_in(ADMINS) {
        bail!("grant `{id}` is {}'s; only they or an admin may revoke it", grant.subject);
    }
    if grant.revoked.is_none() {
        let detail = format!("a grant of {} for client {}", grant.subject, grant.client);
        let event = Event { object: Some(&id), detail: Some(&detail), ..Event::new(Kind::TokenRevoked) };
        context.record(&person, event).await?;
    }
    let now_ms = context.clock.unix_ms();
    Ok(match context.store.revoke_grant(&id, &by.to_string(), now_ms).await? {
        Revocation::Done => format!("grant {id} of {} revoked", grant.subject),
        Revocation::Before => {
            format!("grant {id} of {} had been revoked before", grant.subject)
        }
        Revocation::Unknown => bail!("there is no grant `{id}` any more"),
    })
}

/// The grant meant by an id or a token. A token is not verified: it only names a row, and the row says who may revoke it.
/// What looks like a token is never said back.
async fn grant_id(given: &str, context: &Context<'_>) -> anyhow::Result<String> {
    let text = if given == "-" { read_stdin()? } else { given.to_owned() };
    if text.starts_with(REFRESH_TOKEN) {
        let found = context.store.refresh_token(sha256(text.as_bytes())).await?;
        return found.map(|found| found.grant.id.to_string()).ok_or_else(|| usage("that is no refresh token of ours"));
    }
    if !text.contains('.') {
        return Ok(text);
    }
    identity::grant_named_in(&text).ok_or_else(|| usage("that is neither a grant's id nor a token of ours"))
}

fn read_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    let limit = identity::LONGEST_TOKEN as u64 + 2;
    std::io::stdin().take(limit).read_to_string(&mut text).context("cannot read standard input")?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::context::Usage;
    use crate::cli::context::tests::World;
    use crate::identity::{Error, PasswordError, Verifier};

    fn args(user: &str, world: &World) -> Issue {
        Issue {
            user: user.to_owned(),
            route: "github".to_owned(),
            ttl: 3600,
            scopes: vec![],
            client: "cli".to_owned(),
            password_file: Some(world.right_password()),
        }
    }

    async fn verifier(world: &World) -> Verifier {
        let context = world.context().await;
        let keys = Keys::open(&context.data_dir).unwrap();
        Verifier::new(context.issuer, keys.into(), context.store, context.clock, 10)
    }

    const RESOURCE: &str = "https://mcp.example.com/mcp/github";

    #[tokio::test]
    async fn a_token_made_here_is_accepted_until_it_is_revoked() {
        let world = World::new(&[("alice", &[])]).await;
        let context = world.context().await;

        let (grant, token) = issue(&args("alice", &world), &context).await.unwrap();

        let verified = verifier(&world).await.verify(&token, RESOURCE).await.unwrap();
        assert_eq!(verified.subject.to_string(), "user:alice");
        assert_eq!((&*verified.client, &*verified.scopes), ("cli", &["mcp".to_owned()][..]));
        assert_eq!(verified.expires_at, context.clock.unix_seconds() + 3600);
        let listed = list(&List { user: Some("alice".to_owned()) }, &context).await.unwrap();
        assert!(listed.starts_with(&format!("{}\tuser:alice\tcli\t{RESOURCE}\tmcp\ttoken issue\tuntil ", grant.id)));
        assert!(!listed.contains(&token));

        let by_token =
            Revoke { grant: token.clone(), by: "alice".to_owned(), password_file: Some(world.right_password()) };
        revoke(&by_token, &context).await.unwrap();

        let refused = verifier(&world).await.verify(&token, RESOURCE).await;
        assert!(matches!(refused, Err(Error::Revoked)), "{refused:?}");
        assert!(list(&List { user: None }, &context).await.unwrap().contains("by user:alice"));
    }

    #[tokio::test]
    async fn a_token_takes_the_users_own_password() {
        let world = World::new(&[("alice", &[]), ("root", &["admins"])]).await;
        let context = world.context().await;
        let wrong = Issue { password_file: Some(world.wrong_password()), ..args("alice", &world) };
        for refused in [issue(&wrong, &context).await, issue(&args("nobody", &world), &context).await] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused.downcast_ref(), Some(PasswordError::Wrong)), "{refused}");
        }
        assert_eq!(list(&List { user: None }, &context).await.unwrap(), "");
    }

    #[tokio::test]
    async fn only_its_user_or_an_admin_revokes_a_grant() {
        let world = World::new(&[("alice", &[]), ("bob", &["ops"]), ("root", &["admins"])]).await;
        let context = world.context().await;
        let (grant, _) = issue(&args("alice", &world), &context).await.unwrap();
        let by = |name: &str| Revoke {
            grant: grant.id.to_string(),
            by: name.to_owned(),
            password_file: Some(world.right_password()),
        };

        let refused = revoke(&by("bob"), &context).await.unwrap_err();
        assert!(refused.to_string().ends_with("only they or an admin may revoke it"), "{refused}");
        let wrong = Revoke { password_file: Some(world.wrong_password()), ..by("root") };
        assert!(revoke(&wrong, &context).await.is_err());
        assert_eq!(context.store.grant(&grant.id).await.unwrap().unwrap().revoked, None);

        let revoked = || {
            let log = std::fs::read_dir(context.data_dir.join("audit")).into_iter().flatten();
            let log: String = log.filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok()).collect();
            log.lines().filter(|line| line.contains("token.revoked")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(revoked(), [""; 0]);
        assert!(revoke(&by("root"), &context).await.unwrap().ends_with("revoked"));
        assert!(
            matches!(&revoked()[..], [line] if line.contains("user:root") && line.contains(&*grant.id)),
            "{:?}",
            revoked()
        );
        assert!(revoke(&by("alice"), &context).await.unwrap().ends_with("had been revoked before"));
        assert_eq!(revoked().len(), 1);
        let unknown = Revoke { grant: "g_nope".to_owned(), ..by("root") };
        assert!(revoke(&unknown, &context).await.is_err());
    }

    #[tokio::test]
    async fn a_refresh_token_names_its_grant_and_one_that_is_unknown_is_not_said_back() {
        let world = World::new(&[("alice", &[])]).await;
        let context = world.context().await;
        let (made, _) = issue(&args("alice", &world), &context).await.unwrap();
        let (code, token) = ([1; 32], "pcr_a-token-of-this-test");
        let grant = Grant { id: "g_login".into(), made_by: crate::store::LOGIN.to_owned(), ..made };
        let written = crate::store::Code {
            digest: code,
            issuer: grant.issuer.clone(),
            subject: grant.subject.clone(),
            client: grant.client.clone(),
            resource: grant.resource.clone(),
            scopes: grant.scopes.clone(),
            password_mark: None,
            redirect_uri: String::new(),
            challenge: String::new(),
            expires_at_ms: grant.created_at_ms + 1,
        };
        context.store.insert_code(written).await.unwrap();
        let expires_at_ms = grant.expires_at_ms;
        let refresh_token = crate::store::NewRefreshToken { digest: sha256(token.as_bytes()), expires_at_ms };
        let redemption = crate::store::Redemption { code, grant, refresh_token: Some(refresh_token) };
        context.store.redeem_code(redemption).await.unwrap();
        let by = |grant: &str| Revoke {
            grant: grant.to_owned(),
            by: "alice".to_owned(),
            password_file: Some(world.right_password()),
        };

        let unknown = revoke(&by("pcr_another"), &context).await.unwrap_err();
        assert!(unknown.is::<Usage>() && !unknown.to_string().contains("pcr_"), "{unknown}");

        assert_eq!(revoke(&by(token), &context).await.unwrap(), "grant g_login of user:alice revoked");
    }

    #[tokio::test]
    async fn what_cannot_be_issued_is_refused_before_a_password_is_asked_for() {
        let world = World::new(&[("alice", &[])]).await;
        let context = world.context().await;
        let good = || Issue { password_file: None, ..args("alice", &world) };
        let cases = [
            Issue { route: "githb".to_owned(), ..good() },
            Issue { scopes: vec!["a b".to_owned()], ..good() },
            Issue { scopes: vec![String::new()], ..good() },
            Issue { client: "a b".to_owned(), ..good() },
        ];
        for case in cases {
            let refused = issue(&case, &context).await.unwrap_err();
            assert!(refused.is::<Usage>(), "{case:?}: {refused}");
        }
    }

    #[test]
    fn a_ttl_is_a_number_and_a_unit_up_to_thirty_days() {
        for (text, expected) in [("1s", 1), ("90s", 90), ("30m", 1800), ("1h", 3600), ("30d", LONGEST_TTL_S)] {
            assert_eq!(ttl_s(text), Ok(expected), "{text}");
        }
        for text in
            ["", "1", "h", "0s", "-1h", "+1h", "1.5h", "1 h", "1H", "31d", "721h", "99999999999999999999d", "1ü"]
        {
            assert!(ttl_s(text).is_err(), "{text}");
        }
    }
}
