//! What can go wrong with a file, in words for whoever asked: a model, mostly, which does better when it is told what to
//! do instead.

use super::path::WorkspacePath;
use crate::words::size;
use rustix::io::Errno;
use thiserror::Error;

/// Why nothing was read or written.
#[derive(Debug, Error)]
pub enum Error {
    /// Nothing is there.
    #[error("there is no `{0}` in the workspace")]
    Missing(WorkspacePath),
    /// The folder of a file that is to be written is missing.
    #[error("there is no folder `{0}` in the workspace; `create_parents: true` makes it")]
    NoFolder(WorkspacePath),
    /// A new file was to be made, and something has its name.
    #[error("`{path}` exists already, and is {is}; `mode: overwrite` replaces a file, `mode: append` adds to one")]
    Exists {
        /// What is there.
        path: WorkspacePath,
        /// In words.
        is: &'static str,
    },
    /// A link is on the way.
    #[error("`{link}` is a symbolic link to `{target}`, and links are not followed here{}", instead_of(.instead.as_ref()))]
    Link {
        /// The link itself.
        link: WorkspacePath,
        /// What it says.
        target: String,
        /// The path without it, where that is in the workspace.
        instead: Option<WorkspacePath>,
    },
    /// It is not what the tool works on.
    #[error("`{path}` is {is}, not {wanted}")]
    Kind {
        /// What is meant.
        path: WorkspacePath,
        /// In words.
        is: &'static str,
        /// In words.
        wanted: &'static str,
    },
    /// Its permissions forbid that it is written.
    #[error("`{path}` is read-only (mode {mode:04o}); `chmod u+w` by `run_command` first, if it is to be changed")]
    ReadOnly {
        /// What is meant.
        path: WorkspacePath,
        /// Its permission bits.
        mode: u32,
    },
    /// There is no space for it.
    #[error("{0}")]
    Full(String),
    /// The system says no.
    #[error("cannot {doing} `{path}`: {}", reason(*.errno))]
    System {
        /// A verb.
        doing: &'static str,
        /// What is meant.
        path: WorkspacePath,
        /// Why.
        errno: Errno,
    },
}

impl Error {
    /// [`Error::System`].
    pub fn system(doing: &'static str, path: &WorkspacePath, errno: Errno) -> Error {
        Error::System { doing, path: path.clone(), errno }
    }

    /// [`Error::System`], from the standard library's error.
    pub fn io(doing: &'static str, path: &WorkspacePath, error: &std::io::Error) -> Error {
        Error::system(doing, path, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }

    /// A principal's folder has no room for `more` bytes.
    pub fn quota(quota: u64, used: Option<u64>, more: u64) -> Error {
        let used = used.map_or_else(|| "more than that".to_owned(), size);
        Error::Full(format!(
            "the workspace is full: it may hold {}, holds {used}, and this would take {} more; delete something first",
            size(quota),
            size(more)
        ))
    }
}

fn instead_of(instead: Option<&WorkspacePath>) -> String {
    instead.map_or(" (it leads out of the workspace)".to_owned(), |path| format!("; ask for `{path}`"))
}

/// Errors a caller can do something about, in words; others as the system says them.
fn reason(errno: Errno) -> String {
    match errno {
        Errno::ACCESS | Errno::PERM => "permission denied".to_owned(),
        Errno::NOTDIR => "a part of the path is a file, not a folder".to_owned(),
        Errno::XDEV => "it leads out of the workspace".to_owned(),
        Errno::TIME => "it took too long; read it by bytes, with `offset`".to_owned(),
        Errno::NOSPC | Errno::DQUOT => "there is no space left on the disk".to_owned(),
        _ => std::io::Error::from(errno).to_string(),
    }
}
