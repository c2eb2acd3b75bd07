//! The OAuth 2.1 authorization server: what clients and people get, and what attackers do not.

mod app;
mod authorize;
mod browser;
mod canary;
mod client_authentication;
mod configured_clients;
mod conformance;
mod consent;
mod desk;
mod discovery;
mod document_outages;
mod gallery;
mod grants;
mod introspection;
mod keys;
mod login;
mod machine;
mod metadata_documents;
mod pages;
mod races;
mod real_clients;
mod redirect_uris;
mod refresh;
mod refusals;
mod register;
mod revocation;
mod scripts;
mod setup;
mod strict_client;
mod token;

use crate::support::gate::Gate;
use crate::support::gateway::in_front_of;

/// Everything of `up` for everybody.
const RULES: &str = "- { name: all, tools: [\"up/*\"], allow: {} }";

/// A gateway with these further top-level keys in front of a recorder.
fn gate(top: &str) -> Gate {
    Gate::with(|url| format!("{top}\n{}", in_front_of(url, RULES)))
}
