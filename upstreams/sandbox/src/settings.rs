//! What the gateway hands over at the start: `upstreams.<name>.sandbox` of `gateway.yaml`, with paths and numbers made out.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The upstream's name, for logs.
    pub name: String,
    /// What holds a command in.
    pub backend: Backend,
    /// What a command may reach.
    pub network: Network,
    /// Memory of one command, its `/tmp` included, in bytes.
    pub memory: u64,
    /// Processes and threads of one command.
    pub processes: u32,
    /// Processor time of one command, in thousandths of a processor.
    pub cpu_millis: u32,
    /// What `/tmp` (and `/dev/shm`) may hold, in bytes.
    pub tmp: u64,
    /// What one principal's folder may hold, in bytes.
    pub quota: u64,
    /// Free space that a command must leave on the workspace's file system, in bytes.
    pub reserve: u64,
    /// How long a command may run that says nothing of it.
    pub timeout: Duration,
    /// How long a command may ask to run.
    pub longest: Duration,
    /// What is kept of each of stdout and stderr, in bytes; the rest is counted.
    pub output: u64,
    /// Commands at once; further ones wait their turn for a while.
    pub at_once: u32,
    /// Folders of the host that commands see, read-only, beside `/usr`.
    pub read_only: Vec<PathBuf>,
    /// Variables that every command has.
    pub environment: BTreeMap<String, String>,
    /// Where commands get their cgroups.
    pub cgroup: Cgroup,
}

/// What holds a command in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// Namespaces, mounts, seccomp and Landlock of the host's kernel.
    Bubblewrap {
        /// The program, where it is not found in `/usr/bin:/bin:/usr/local/bin`.
        program: Option<PathBuf>,
    },
    /// A kernel of its own in user space.
    Gvisor {
        /// `runsc`, where it is not found in `/usr/bin:/bin:/usr/local/bin`.
        program: Option<PathBuf>,
    },
}

/// What a command may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nothing.
    None,
    /// These, by way of a proxy that stands outside.
    Allow(Vec<Destination>),
}

/// A place in the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// A name or an address; `*.example.com` for every name below `example.com`.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// Where commands get their cgroups. Each is a folder made for this process, in which it may make further ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cgroup {
    /// The one hierarchy of cgroup v2; `memory`, `pids` and `cpu` are passed on to what is made here.
    V2(PathBuf),
    /// A folder in each hierarchy of cgroup v1.
    V1 {
        /// Of the memory controller.
        memory: PathBuf,
        /// Of the pids controller.
        pids: PathBuf,
        /// Of the cpu controller.
        cpu: PathBuf,
    },
    /// None at all, because the configuration says so: limits are those of setrlimit(2), each for a process or for the
    /// user namespace, and memory is not limited as a whole.
    Off,
}
