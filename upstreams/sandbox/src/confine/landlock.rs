//! Landlock, as a second line behind the mounts: which files may be opened for what, even if a mount is wrong. As much
//! of it as this kernel knows.
//!
//! Not used: its rules for TCP. The network namespace is empty but for a loopback device, which tests of servers need.

use super::WORKSPACE;
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, Scope,
};

/// The newest version whose rights are used.
const NEWEST: ABI = ABI::V6;

/// May be read and run.
const READ: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc"];
/// May be read and written, with nothing made or removed.
const WRITE: [&str; 2] = ["/proc", "/dev"];
/// May be used like any folder of one's own.
const OWN: [&str; 4] = [WORKSPACE, "/tmp", "/run", "/dev/shm"];
/// Devices that answer more than reading and writing: terminals that were made inside.
const TERMINALS: [&str; 2] = ["/dev/ptmx", "/dev/pts"];

/// Restricts this process and all that it starts. Where the workspace is full, what is in it can be read and removed, and
/// nothing else: a file's holes can be filled though it may not grow. Returns the version of Landlock that this kernel has, 0 for none.
///
/// # Errors
/// The kernel knows Landlock and refuses this.
pub(super) fn restrict(read_only: &[String], is_full: bool) -> Result<i32, String> {
    let read = AccessFs::from_read(NEWEST);
    let write = read | AccessFs::WriteFile | AccessFs::Truncate;
    let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    let own = AccessFs::from_all(NEWEST) & !devices;
    let removal = read | AccessFs::RemoveFile | AccessFs::RemoveDir;
    let places = READ
        .into_iter()
        .chain(read_only.iter().map(String::as_str))
        .map(|path| (path, read))
        .chain(WRITE.map(|path| (path, write)))
        .chain(OWN.map(|path| (path, if is_full && path == WORKSPACE { removal } else { own })))
        .chain(TERMINALS.map(|path| (path, write | AccessFs::IoctlDev)))
        // Looking at what there is.
        .chain([("/", BitFlags::from(AccessFs::ReadDir))]);
    let restrict = || -> Result<i32, landlock::RulesetError> {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?;
        for (path, access) in places {
            // What is not there needs no right.
            let Ok(at) = PathFd::new(path) else { continue };
            ruleset = ruleset.add_rule(PathBeneath::new(at, access))?;
        }
        Ok(match ruleset.restrict_self()?.landlock {
            LandlockStatus::Available { effective_abi, .. } => effective_abi as i32,
            _ => 0,
        })
    };
    restrict().map_err(|why| format!("Landlock: {why}"))
}
