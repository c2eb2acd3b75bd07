//! What a stream costs that is open and says nothing.

use crate::loader::Loader;
use crate::peer::{Kind, Peer, Places};
use anyhow::Context as _;
use serde::Deserialize;
use std::net::SocketAddr;
use std::time::Duration;

/// What many idle streams cost one peer; bytes.
pub(crate) struct Idle {
    pub(crate) kind: Kind,
    pub(crate) streams: usize,
    pub(crate) resident_before: u64,
    pub(crate) per_stream: f64,
}

#[derive(Deserialize)]
struct Opened {
    open: usize,
}

#[derive(Deserialize)]
struct Closed {
    broken: usize,
}

/// Opens the streams through a peer that has just been started, and reads its memory.
pub(crate) fn measure(
    kind: Kind,
    upstream: SocketAddr,
    streams: usize,
    places: &Places,
    cpus: [Option<usize>; 2],
) -> anyhow::Result<Idle> {
    let peer = Peer::start(kind, upstream, places, &[], cpus[0])?;
    let process = peer.process.as_ref().context("a peer with a process")?;
    let arguments = ["--payload", "idle", "--connections", &streams.to_string()].map(str::to_owned);
    let mut loader = Loader::ready(places, &peer, &arguments, cpus[1])?;
    let before = process.memory()?.resident;
    let opened: Opened = serde_json::from_str(&loader.go()?)?;
    // What is freed late is freed now.
    std::thread::sleep(Duration::from_secs(2));
    let after = process.memory()?.resident;
    let closed: Closed = serde_json::from_str(&loader.go()?)?;
    anyhow::ensure!(closed.broken == 0, "{} of {} idle streams broke", closed.broken, opened.open);
    let per_stream = after.saturating_sub(before) as f64 / opened.open as f64;
    Ok(Idle { kind, streams: opened.open, resident_before: before, per_stream })
}
