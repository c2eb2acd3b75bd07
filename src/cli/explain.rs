//! `portcullis explain`: which rule decides a call, and why the others do not. Nothing is called.

use super::context::Usage;
use crate::identity::{Principal, Subject};
use crate::jsonrpc::{Node, Span};
use crate::policy::{Object, Request};
use crate::snapshot::{self, Snapshot};
use clap::Args;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// A call that somebody might make.
#[derive(Args)]
pub(super) struct Explain {
    /// Who asks.
    #[arg(long)]
    user: String,
    /// Further groups they are taken to be in.
    #[arg(long = "group")]
    groups: Vec<String>,
    /// The OAuth client they use.
    #[arg(long, default_value = "cli")]
    client: String,
    /// Scopes of their token.
    #[arg(long = "scope", default_value = "mcp")]
    scopes: Vec<String>,
    /// The tool, as `upstream/tool`.
    #[arg(long, group = "object")]
    tool: Option<String>,
    /// The resource, as `upstream/uri`.
    #[arg(long, group = "object")]
    resource: Option<String>,
    /// The prompt, as `upstream/prompt`.
    #[arg(long, group = "object")]
    prompt: Option<String>,
    /// The arguments, as a JSON object.
    #[arg(long)]
    arguments: Option<String>,
}

impl Explain {
    pub(super) fn run(self, file: &Path) -> anyhow::Result<ExitCode> {
        let (_, snapshot) = snapshot::compile_file(file)?;
        let principal = self.principal(&snapshot);
        let (upstream, object) = self.object()?;
        if snapshot.upstreams.get(upstream).is_none() {
            return Err(Usage(format!("unknown upstream `{upstream}`")).into());
        }
        let arguments = self.arguments.as_deref().map(checked).transpose()?;
        let request = Request { principal: &principal, upstream, object, arguments };
        println!("{}", snapshot.policy.explain(&request));
        Ok(ExitCode::SUCCESS)
    }

    fn principal(&self, snapshot: &Snapshot) -> Principal {
        let mut groups = snapshot.groups_of(&self.user);
        groups.extend(self.groups.iter().cloned());
        Principal {
            issuer: Arc::clone(&snapshot.public_url),
            subject: Subject::User(self.user.as_str().into()),
            client: self.client.as_str().into(),
            scopes: self.scopes.clone().into(),
            groups: groups.into(),
            claimed: [].into(),
            grant: None,
            is_local: true,
            person: Some(self.user.as_str().into()),
        }
    }

    fn object(&self) -> Result<(&str, Object<'_>), Usage> {
        let split = |name| str::split_once(name, '/');
        let found = match (&self.tool, &self.resource, &self.prompt) {
            (Some(name), _, _) => split(name).map(|(upstream, name)| (upstream, Object::Tool(name))),
            (_, Some(name), _) => split(name).map(|(upstream, name)| (upstream, Object::Resource(name))),
            (_, _, Some(name)) => split(name).map(|(upstream, name)| (upstream, Object::Prompt(name))),
            (None, None, None) => None,
        };
        found.ok_or_else(|| Usage("name what is called: --tool, --resource or --prompt, as `upstream/name`".to_owned()))
    }
}

/// Arguments as strictly read as a client's would be.
fn checked(text: &str) -> Result<Node<'_>, Usage> {
    let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"explain","params":{text}}}"#);
    let limits = crate::jsonrpc::Limits { depth: 64, nodes: 100_000 };
    let whole = text.trim();
    match crate::jsonrpc::parse(message.as_bytes(), limits) {
        Ok(_) => Ok(Node::of(whole.as_bytes(), Span { start: 0, end: whole.len() })),
        Err(error) => Err(Usage(format!("--arguments: {error}"))),
    }
}
