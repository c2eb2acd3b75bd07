//! `upstreams.<name>.sandbox`, as written: a shell and files of our own, held in by the kernel.

use super::{ByteSize, Period};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A shell and files that an agent may have: `run_command`, `read_file`, `write_file`, `edit_file`, `list_directory`,
/// `search_files`. Each command runs in a confinement of its own. See `docs/sandbox.md`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxUpstream {
    /// The folder that holds a folder for each principal, which stays from call to call. Made where there is none. It may not
    /// be `data_dir`, in it or around it.
    pub workspace: PathBuf,
    /// What one principal's folder may hold.
    pub quota: ByteSize,
    /// Free space that commands must leave on the workspace's file system.
    pub reserve: ByteSize,
    /// What a command may reach.
    pub network: SandboxNetwork,
    /// Memory of one command and all that it starts, `/tmp` included.
    pub memory: ByteSize,
    /// Memory of all commands together. Left out, half of this host's.
    pub memory_total: Option<ByteSize>,
    /// Processes and threads of one command.
    #[schemars(range(min = 1))]
    pub processes: u32,
    /// Processors of one command, in percent of one: `100` is one, `250` two and a half.
    #[schemars(range(min = 1))]
    pub cpu_percent: u32,
    /// What `/tmp` of a command may hold. It is gone when the command ends.
    pub tmp: ByteSize,
    /// How long a command may run that asks for no time.
    pub timeout: Period,
    /// The longest time a command may ask for.
    pub longest: Period,
    /// What is kept of each of a command's stdout and stderr; what is left out is said.
    pub output: ByteSize,
    /// Commands at once. Further ones wait up to half a minute for their turn. One principal has an eighth of them less, or
    /// one less, so that there are turns for somebody else.
    #[schemars(range(min = 1, max = 1024))]
    pub at_once: u32,
    /// Folders of this host that commands may read, beside `/usr`. Absolute; each stands at its own path.
    pub read_only: Vec<PathBuf>,
    /// Environment variables of every command, beside `PATH`, `HOME`, `LANG`, `TMPDIR`, `USER`, `SHELL` and `TERM`. Nothing of
    /// the gateway's own environment gets there.
    pub environment: BTreeMap<String, String>,
    /// What holds commands in.
    pub backend: SandboxBackend,
    /// The backend's program, where it is not on the usual path: `bwrap` or `runsc`.
    pub program: Option<PathBuf>,
    /// Where commands get their cgroups, which limit memory, processes and processor time as a whole.
    pub cgroup: SandboxCgroup,
    /// The user that the sandbox runs as where the gateway is root. Left out, a number of its own that nobody else has.
    pub user: Option<String>,
}

/// What a command may reach.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxNetwork {
    /// Nothing.
    None,
    /// These places (`host:port`, `*.example.com:443` for every name below it), by an HTTP proxy that stands outside.
    /// Programs that know no proxy reach nothing.
    Allow(Vec<String>),
}

/// What holds a command in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxBackend {
    /// Namespaces, seccomp and Landlock of this host's kernel, by `bwrap`.
    #[default]
    Bubblewrap,
    /// A kernel of its own in user space, by `runsc`. Slower to start; the host's kernel is not touched by commands.
    Gvisor,
}

/// Where commands get their cgroups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxCgroup {
    /// Below the gateway's own cgroup, which must be delegated to its user. Where it is not, the sandbox does not start.
    #[default]
    Own,
    /// Below this folder of cgroup v2, which must be delegated to the gateway's user.
    At(PathBuf),
    /// None. Limits are then those of setrlimit(2), which count each process for itself: many together may use more memory
    /// than `memory`.
    None,
}

impl Default for SandboxUpstream {
    fn default() -> Self {
        SandboxUpstream {
            workspace: PathBuf::from("workspace"),
            quota: ByteSize::mebibytes(1024),
            reserve: ByteSize::mebibytes(1024),
            network: SandboxNetwork::None,
            memory: ByteSize::mebibytes(512),
            memory_total: None,
            processes: 256,
            cpu_percent: 100,
            tmp: ByteSize::mebibytes(128),
            timeout: Period::seconds(60),
            longest: Period::seconds(15 * 60),
            output: ByteSize::kibibytes(256),
            at_once: 64,
            read_only: Vec::new(),
            environment: BTreeMap::new(),
            backend: SandboxBackend::Bubblewrap,
            program: None,
            cgroup: SandboxCgroup::Own,
            user: None,
        }
    }
}
