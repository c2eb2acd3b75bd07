//! The command line. One file a command; each asks the parts below and prints what they say.
//!
//! Exit codes: 0 done, 1 it did not work, 2 the command line or the configuration is wrong.

mod approvals;
mod audit;
mod check;
mod clients;
mod context;
mod explain;
mod keys;
mod log;
mod operator;
mod password;
mod serve;
mod token;
mod tools;
mod upstream;
mod user;
mod verify;

use crate::config::{self, Problems};
use crate::redact::Redactor;
use clap::{Parser, Subcommand};
use context::Usage;
use std::path::PathBuf;
use std::process::ExitCode;

/// A gateway in front of MCP servers that lets an AI agent do exactly what its people allow.
#[derive(Parser)]
#[command(name = "portcullis", version, max_term_width = 100)]
struct Cli {
    /// The configuration. Left out, `gateway.yaml`; where there is none, a sandbox on 127.0.0.1:8080.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway.
    Serve,
    /// Check the configuration and run the policy tests in it.
    Check,
    /// Say which rule decides a call, without making it.
    Explain(explain::Explain),
    /// Ask every upstream for its tools and show what policy makes of them.
    Tools(tools::Tools),
    /// Users and their passwords.
    #[command(subcommand)]
    User(user::UserCommand),
    /// Access tokens made by hand.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// The keys that sign access tokens.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// OAuth clients.
    #[command(subcommand)]
    Clients(clients::ClientsCommand),
    /// Calls that are held for a person.
    #[command(subcommand)]
    Approvals(approvals::ApprovalsCommand),
    /// Read and verify the audit log.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Let the running gateway read its configuration again.
    Reload,
    /// Ask the running gateway how it is.
    Status,
    /// Try whether what is claimed holds.
    #[command(subcommand)]
    Verify(verify::VerifyCommand),
    /// What the gateway starts itself.
    #[command(subcommand, hide = true)]
    Upstream(upstream::UpstreamCommand),
    /// Print the JSON Schema of the configuration.
    Schema,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            // Problems print themselves, one by one, with their places.
            match error.downcast_ref::<Problems>() {
                Some(problems) => eprintln!("{}", Redactor::of_process().text(&problems.to_string())),
                None => eprintln!("{}", Redactor::of_process().text(&format!("error: {error:#}"))),
            }
            let is_usage = error.is::<Problems>() || error.is::<Usage>();
            ExitCode::from(if is_usage { 2 } else { 1 })
        }
    }
}

/// What is configured where nobody says: the file here, or where there is none, what is built in.
fn usual_file() -> PathBuf {
    let file = PathBuf::from("gateway.yaml");
    // Whatever else stands in the way of reading it is for the reader to say.
    if file.symlink_metadata().is_ok() { file } else { config::BUILT_IN.into() }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let file = cli.config.unwrap_or_else(usual_file);
    match cli.command {
        Command::Serve => serve::run(&file),
        Command::Check => check::run(&file),
        Command::Explain(explain) => explain.run(&file),
        Command::Tools(tools) => tools.run(&file),
        // Needs no configuration: its result goes into one.
        Command::User(user::UserCommand::Hash(hash)) => user::hash(&hash).map(|()| ExitCode::SUCCESS),
        Command::User(command) => context::with(&file, async |context| user::run(command, context).await),
        Command::Token(command) => context::with(&file, async |context| token::run(command, context).await),
        Command::Keys(command) => context::with(&file, async |context| keys::run(command, context).await),
        Command::Clients(clients::ClientsCommand::Secret) => {
            clients::print_secret();
            Ok(ExitCode::SUCCESS)
        }
        Command::Clients(command) => context::with(&file, async |context| clients::run(command, context).await),
        Command::Approvals(command) if command.is_reading() => {
            context::with_or_beside(&file, async |context| approvals::run(command, context).await)
        }
        Command::Approvals(command) => context::with(&file, async |context| approvals::run(command, context).await),
        Command::Audit(audit::AuditCommand::Verify(verify)) => verify.run(&file),
        Command::Audit(audit::AuditCommand::Key) => audit::print_key(&file),
        Command::Audit(command) => {
            let loaded = config::read(&file)?;
            audit::run(command, &loaded)
        }
        Command::Verify(command) => verify::run(&command, &file),
        Command::Upstream(command) => Ok(upstream::run(&command)),
        Command::Reload => operator::reload(&file),
        Command::Status => operator::status(&file),
        Command::Schema => {
            print!("{}", crate::config::schema());
            Ok(ExitCode::SUCCESS)
        }
    }
}
