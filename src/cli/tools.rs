//! `portcullis tools`: what every upstream offers right now, and what policy makes of it for one user.

use crate::identity::{Principal, Subject};
use crate::jsonrpc::{Node, Span};
use crate::mcp::Era;
use crate::metrics::Metrics;
use crate::policy::Object;
use crate::snapshot::{self, Snapshot};
use crate::upstream::local::supervised;
use crate::upstream::{Definitions, Shared, Upstream};
use clap::Args;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Whose view is shown.
#[derive(Args)]
pub(super) struct Tools {
    /// For this user: marks each tool as listed or hidden.
    #[arg(long)]
    user: Option<String>,
    /// Only this upstream.
    #[arg(long)]
    upstream: Option<String>,
}

impl Tools {
    pub(super) fn run(self, file: &Path) -> anyhow::Result<ExitCode> {
        let (_, snapshot) = snapshot::compile_file(file)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Shared::new(Arc::new(Metrics::new()))?;
        let principal = self.user.as_deref().map(|name| principal(name, &snapshot));
        let asking = async {
            let mut code = ExitCode::SUCCESS;
            for upstream in snapshot.upstreams.iter() {
                if self.upstream.as_deref().is_some_and(|only| *only != *upstream.name) {
                    continue;
                }
                match upstream.fetch(&shared).await {
                    Ok(known) => print(upstream, &known, &snapshot, principal.as_ref()),
                    Err(error) => {
                        eprintln!("{}: {error}", upstream.name);
                        code = ExitCode::FAILURE;
                    }
                }
            }
            code
        };
        // Once for all of them: what was ended is not started again.
        Ok(runtime.block_on(supervised(&snapshot.upstreams, &shared, asking)))
    }
}

fn principal(name: &str, snapshot: &Snapshot) -> Principal {
    Principal {
        issuer: Arc::clone(&snapshot.public_url),
        subject: Subject::User(name.into()),
        client: "cli".into(),
        scopes: vec!["mcp".to_owned()].into(),
        groups: snapshot.groups_of(name).into(),
        claimed: [].into(),
        grant: None,
        until: None,
        is_local: true,
        person: Some(name.into()),
    }
}

fn print(upstream: &Upstream, known: &Definitions, snapshot: &Snapshot, principal: Option<&Principal>) {
    println!("{} ({}, {} tools)", upstream.name, known.era.map_or("unknown", Era::as_str), known.tools.len());
    for (name, definition) in &known.tools {
        let mark = match principal.map(|who| snapshot.policy.is_listed(who, &upstream.name, Object::Tool(name))) {
            Some(true) => "listed  ",
            Some(false) => "hidden  ",
            None => "",
        };
        let json = Node::of(&definition.json, Span { start: 0, end: definition.json.len() });
        let description = json.get("description").and_then(Node::as_str).unwrap_or_default();
        // What an upstream says of itself goes to a terminal: escaped, and one line of it.
        let line: String = description.lines().next().unwrap_or_default().escape_debug().take(80).collect();
        println!("  {mark}{}  {line}", name.escape_debug());
    }
}
