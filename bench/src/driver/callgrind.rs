//! Instructions, counted by callgrind: the one figure that a busy machine does not change.
//!
//! One thing it does not see as the machine does is put right: its CPU has no SHA instructions, so SHA-256 runs in its
//! slow form. Where the real CPU has them, what that form took is counted as what the fast one takes; the tables show
//! both figures. Another is left as it is, for every peer alike: `rep movsb`, with which the C library copies what is
//! larger than 2 KiB, counts as one instruction a byte.

use crate::loader::Loader;
use crate::peer::{Kind, Peer, Places};
use crate::process::output;
use crate::profile::{self, Profile};
use crate::scenario::Scenario;
use anyhow::Context as _;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Connections that call at the same time.
const CONNECTIONS: usize = 8;
/// Instructions for one block of SHA-256 (64 bytes) in ring 0.17: with the CPU's SHA instructions, and with AVX, as
/// under valgrind. Both loops have no branches, so that these are the lengths of their bodies.
const SHA_BLOCK: f64 = 171.0;
const SHA_BLOCK_AVX: f64 = 2066.0;

/// User-space instructions per call.
pub(crate) struct Instructions {
    /// As callgrind counts them.
    pub(crate) raw: f64,
    /// With SHA-256 as this CPU runs it.
    pub(crate) real: f64,
    /// The same, by kind of work.
    pub(crate) profile: Profile,
}

/// A peer that runs under callgrind.
pub(crate) struct Counted {
    peer: Peer,
    file: PathBuf,
    n_dumps: usize,
}

impl Counted {
    pub(crate) fn start(
        kind: Kind,
        upstream: SocketAddr,
        places: &Places,
        cpu: Option<usize>,
    ) -> anyhow::Result<Counted> {
        let name = kind.name().replace([' ', ','], "-");
        let file = places.work.join(format!("callgrind.{name}"));
        let prefix =
            ["valgrind".to_owned(), "--tool=callgrind".to_owned(), format!("--callgrind-out-file={}", file.display())];
        Ok(Counted { peer: Peer::start(kind, upstream, places, &prefix, cpu)?, file, n_dumps: 0 })
    }

    /// Counts a scenario's calls.
    pub(crate) fn instructions(
        &mut self,
        scenario: &Scenario,
        share: f64,
        places: &Places,
        cpu: Option<usize>,
    ) -> anyhow::Result<Instructions> {
        let (payload, requests) = scenario.counted.context("a scenario that is counted")?;
        let requests = ((requests as f64 * share) as u64).max(2 * CONNECTIONS as u64);
        let mut arguments: Vec<String> =
            ["--payload", payload, "--connections", &CONNECTIONS.to_string()].map(str::to_owned).to_vec();
        arguments.extend(["--requests".to_owned(), requests.to_string()]);
        arguments.extend(["--warm-up".to_owned(), (requests / 6).max(CONNECTIONS as u64).to_string()]);
        if scenario.is_legacy {
            arguments.extend(["--era", "legacy"].map(str::to_owned));
        }
        let mut loader = Loader::ready(places, &self.peer, &arguments, cpu)?;
        self.control("-z")?;
        let report = loader.work()?;
        self.control("-d")?;
        self.n_dumps += 1;
        let dump = PathBuf::from(format!("{}.{}", self.file.display(), self.n_dumps));
        let text = std::fs::read_to_string(&dump).with_context(|| format!("{}", dump.display()))?;
        let total = text.lines().rev().find_map(|line| line.strip_prefix("totals: "));
        let total: f64 = total.context("a dump has totals")?.trim().parse()?;
        // To be looked at with callgrind_annotate.
        let name = format!("{}.{}", self.file.display(), scenario.title.replace([' ', ','], "-"));
        std::fs::rename(&dump, name)?;
        let calls = report.ok as f64;
        let mut profile = profile::of(&text, if has_sha() { SHA_BLOCK / SHA_BLOCK_AVX } else { 1.0 });
        profile.values_mut().for_each(|cost| *cost /= calls);
        Ok(Instructions { raw: total / calls, real: profile.values().sum(), profile })
    }

    fn control(&self, what: &str) -> anyhow::Result<()> {
        let id = self.peer.process.as_ref().context("a peer with a process")?.id();
        output("callgrind_control", &[what, &id.to_string()]).map(drop)
    }
}

fn has_sha() -> bool {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpus.lines().any(|line| line.starts_with("flags") && line.split(' ').any(|flag| flag == "sha_ni"))
}
