//! Somebody at a local upstream without a gateway between: for `portcullis verify`, which attacks it as an agent would
//! that nothing was refused, or attacks what stands behind it.

use super::start::Kind;
use super::{Process, asker_header};
use crate::upstream::{Error, Shared, Upstream, client};
use portcullis_local::Principal as Asker;
use portcullis_sandbox::Settings;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::PoisonError;

/// Somebody who calls tools of a local upstream.
pub struct Visitor<'a> {
    upstream: &'a Upstream,
    shared: &'a Shared,
    asker: Asker,
}

/// What an SSH upstream is started with, its credential included. `None`: it is none.
pub fn ssh_settings(upstream: &Upstream) -> Option<&portcullis_ssh::Settings> {
    match &upstream.local.as_ref()?.plan.kind {
        Kind::Ssh(settings) => Some(settings),
        Kind::Sandbox(_) => None,
    }
}

impl<'a> Visitor<'a> {
    /// A visitor of this name; the name is nobody's who comes through the gateway. `None`: it is no process of ours.
    pub fn new(upstream: &'a Upstream, shared: &'a Shared, name: &str) -> Option<Visitor<'a>> {
        upstream.local.as_ref()?;
        let asker = Asker { issuer: String::new(), subject: format!("visitor:{name}") };
        Some(Visitor { upstream, shared, asker })
    }

    /// Waits until the upstream answers. It must be supervised meanwhile.
    ///
    /// # Errors
    /// [`Error::Down`]: it cannot be started, for this reason.
    pub async fn up(&self) -> Result<(), Error> {
        match &self.upstream.local {
            Some(process) => process.up().await,
            None => Ok(()),
        }
    }

    /// The user and group that the upstream runs as, where that is not ourselves.
    ///
    /// # Errors
    /// The configured user is not there, or cannot be had.
    pub fn account(&self) -> Result<Option<(u32, u32)>, String> {
        let plan = self.upstream.local.as_ref().map(|process| &process.plan);
        let account = plan.map(|plan| super::user::account(&plan.name, plan.user.as_deref())).transpose()?;
        Ok(account.flatten().map(|account| (account.uid, account.gid)))
    }

    /// What a sandbox was started with; where its cgroups are is not among it.
    pub fn settings(&self) -> Option<&Settings> {
        match &self.upstream.local.as_ref()?.plan.kind {
            Kind::Sandbox(settings) => Some(settings),
            Kind::Ssh(_) => None,
        }
    }

    /// The cgroups that were made for it, as it runs now.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let of = |process: &Process| process.cgroups.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.upstream.local.as_ref().map(of).unwrap_or_default()
    }

    /// Where it answers.
    pub fn socket(&self) -> PathBuf {
        self.upstream.local.as_ref().map(|process| process.socket.clone()).unwrap_or_default()
    }

    /// The result of `tools/call`, as it came.
    ///
    /// # Errors
    /// [`Error`]: there was no result.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value, Error> {
        client::call(self.upstream, self.shared, vec![asker_header(&self.asker)], tool, arguments).await
    }
}
