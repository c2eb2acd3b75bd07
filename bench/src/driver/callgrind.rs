//! Instructions, counted by callgrind: the one figure that a busy machine does not change.
//!
//! One thing it does not see as the machine does is put right: its CPU has no SHA instructions, so SHA-256 runs in its
//! slow form. Where the real CPU has them, what that form took is counted as what the fast one takes; the tables show
//! both figures. Another is left as it is, for every peer alike: `rep movsb`, with which the C library copies what is
//! larger than 2 KiB, counts as one instruction a byte.

use crate::loader::Loader;
use crate::peer::{Kind, Peer, Places};
use crate::process::output;
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
#[derive(Clone, Copy)]
pub(crate) struct Instructions {
    /// As callgrind counts them.
    pub(crate) raw: f64,
    /// With SHA-256 as this CPU runs it.
    pub(crate) real: f64,
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
        let slow = if has_sha() { self_cost(&text, "sha256_block_data_order_avx") } else { 0.0 };
        let real = total - slow + slow * SHA_BLOCK / SHA_BLOCK_AVX;
        let calls = report.ok as f64;
        Ok(Instructions { raw: total / calls, real: real / calls })
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

/// What the functions whose names have `word` in them took themselves, in the text of a dump.
fn self_cost(dump: &str, word: &str) -> f64 {
    let mut numbers = std::collections::HashSet::new();
    let (mut is_it, mut is_call, mut sum) = (false, false, 0.0);
    for line in dump.lines() {
        // A name is given once, `fn=(12) name` or `cfn=(12) name`, and after that by its number.
        if let Some(name) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
            let (number, text) = name.split_once(' ').unwrap_or((name, ""));
            if text.contains(word) {
                numbers.insert(number);
            }
            if line.starts_with("fn=") {
                is_it = numbers.contains(number);
            }
        } else if line.starts_with("calls=") {
            // The line after it is what the callee took.
            is_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<f64>().ok());
            sum += cost.filter(|_| is_it && !is_call).unwrap_or(0.0);
            is_call = false;
        }
    }
    sum
}
