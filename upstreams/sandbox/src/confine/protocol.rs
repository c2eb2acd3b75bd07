//! What is said between [`Confinement`](super::Confinement) and the inner stage, which is the first process inside, on a
//! socket that only the two hold: nothing of it stands in arguments or variables.

use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// Asks the inner stage to send SIGTERM to all that runs inside.
pub(super) const TERMINATE: u8 = b'T';
/// What may be handed over, in bytes.
const MAX: usize = 4 * 1024 * 1024;

/// What the inner stage is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// A line for the shell; `None` to look at the confinement only.
    pub(super) line: Option<String>,
    /// Where to run it.
    pub(super) cwd: String,
    /// All of its environment.
    pub(super) environment: Vec<(String, String)>,
    /// What setrlimit(2) is to hold it to.
    pub(super) limits: Limits,
    /// Folders of the host that it may read, beside those that are always there.
    pub(super) read_only: Vec<String>,
    /// Whether Landlock and the file mode filter are this kernel's, or this is a kernel of its own that has neither.
    pub(super) landlock: bool,
}

/// For setrlimit(2).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Limits {
    /// Bytes of one file.
    pub(super) file: u64,
    /// Processes and threads of the user, which is one of this user namespace alone.
    pub(super) processes: u64,
    /// Bytes of address space of each process, where no cgroup counts memory.
    pub(super) memory: Option<u64>,
}

/// What the inner stage tells.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// The command runs.
    Started,
    /// It could not be started for what was asked for: no such folder, too long a line.
    Refused(String),
    /// A part of the confinement could not be set up, or does not hold.
    Failed(String),
    /// What the confinement looks like from inside: all as it should be.
    Holds {
        /// Of Landlock, as far as this kernel knows it; 0 for none.
        landlock: i32,
    },
    /// What those have written to disks, in bytes, that this process has collected ([`super::writes`]).
    Wrote(u64),
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

impl Order {
    /// As it goes over the socket: its length, then JSON.
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let length = u32::try_from(json.len()).ok().filter(|_| json.len() <= MAX);
        let length = length.ok_or_else(|| io::Error::other(format!("more than {MAX} bytes")))?;
        Ok([&length.to_be_bytes()[..], &json].concat())
    }

    /// From the other end of it.
    pub(super) fn read(from: &mut impl Read) -> io::Result<Order> {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX {
            return Err(io::Error::other("too long"));
        }
        let mut json = vec![0; length];
        from.read_exact(&mut json)?;
        Ok(serde_json::from_slice(&json)?)
    }
}

impl Report {
    /// As a line of JSON.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        to.write_all(&line)
    }
}
