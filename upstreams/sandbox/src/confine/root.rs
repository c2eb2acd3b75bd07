//! What a command sees of files: the host's programs, read-only, a small `/etc` of its own, and places to write that
//! are counted. Nothing of a home, of `/var`, or of the gateway.
//!
//! All is put together from a new, empty tree, which is read-only at last: what is not named here is not there.

use super::WORKSPACE;
use crate::settings::{Network, Settings};
use portcullis_local::handover::filled;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// Who a command is, inside.
pub(super) const USER: &str = "agent";
/// The number of that user and of its group, inside.
pub(super) const ID: u32 = 1000;

/// Of the root of the host: links into `/usr`, or folders where that is not merged.
const PROGRAMS: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Folders of `/etc` that programs do not work without, and that hold no secret: which of several programs is meant, who
/// is trusted in TLS.
const ETC: [&str; 5] =
    ["/etc/alternatives", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/maven"];
/// Beginnings of names of further such folders.
const ETC_BEGINS: [&str; 1] = ["java-"];
/// Files of `/etc` that are copied.
const COPIED: [&str; 6] = [
    "/etc/ld.so.cache",
    "/etc/ssl/openssl.cnf",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/protocols",
    "/etc/services",
];
/// What a copied file may have: each command has its own.
const COPIED_MAX: usize = 64 * 1024;

/// The tree, as it is for every command.
pub(super) struct Root {
    /// Arguments of bwrap that name no descriptor.
    mounts: Vec<OsString>,
    /// Files that are written into it, and what is in them.
    files: Vec<(PathBuf, Vec<u8>)>,
    /// Arguments that come last, since they may cover what stands before.
    after: Vec<OsString>,
}

impl Root {
    /// Looks at the host once.
    ///
    /// # Errors
    /// A folder that the settings name is not there.
    pub(super) fn new(settings: &Settings) -> Result<Root, String> {
        let mut mounts: Vec<OsString> = ["--dir", "/etc", "--dir", "/var"].map(OsString::from).into();
        let mut files = synthesized(&settings.network);
        bind(&mut mounts, Path::new("/usr"));
        for place in PROGRAMS.map(Path::new) {
            match fs::read_link(place) {
                Ok(target) => mounts.extend(["--symlink".into(), target.into(), place.into()]),
                Err(_) if place.is_dir() => bind(&mut mounts, place),
                Err(_) => {}
            }
        }
        let begun = fs::read_dir("/etc")
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| ETC_BEGINS.iter().any(|begin| entry.file_name().to_string_lossy().starts_with(begin)));
        let folders = ETC.iter().map(PathBuf::from).chain(begun.map(|entry| entry.path()));
        folders.filter(|folder| folder.is_dir()).for_each(|folder| bind(&mut mounts, &folder));
        for place in COPIED {
            let found = fs::read(place).ok().filter(|bytes| bytes.len() <= COPIED_MAX);
            match found {
                Some(bytes) => files.push((place.into(), bytes)),
                None if Path::new(place).is_file() => bind(&mut mounts, Path::new(place)),
                None => {}
            }
        }
        let mut after = after(settings.tmp);
        for place in &settings.read_only {
            may_show(place)?;
            bind(&mut after, place);
        }
        Ok(Root { mounts, files, after })
    }

    /// As arguments of bwrap. `pass` says which number a descriptor will have there.
    ///
    /// # Errors
    /// A file in memory cannot be made.
    pub(super) fn arguments(
        &self,
        workspace: Option<OwnedFd>,
        mut pass: impl FnMut(OwnedFd) -> OsString,
    ) -> io::Result<Vec<OsString>> {
        let mut arguments = self.mounts.clone();
        for (place, bytes) in &self.files {
            let read = filled(bytes)?;
            arguments.extend(["--perms".into(), "0444".into(), "--file".into(), pass(read), place.into()]);
        }
        arguments.extend(self.after.iter().cloned());
        match workspace {
            Some(folder) => arguments.extend(["--bind-fd".into(), pass(folder), WORKSPACE.into()]),
            None => arguments.extend(["--dir", WORKSPACE].map(OsString::from)),
        }
        arguments.extend(["--remount-ro", "/", "--chdir", "/"].map(OsString::from));
        Ok(arguments)
    }
}

/// Whether a folder of the host may be shown: not where it would cover what is ours.
fn may_show(place: &Path) -> Result<(), String> {
    let fault = |what: &str| Err(format!("`read_only`: {} {what}", place.display()));
    if !place.is_absolute() || place.components().any(|part| part == Component::ParentDir) {
        return fault("is not an absolute path without `..`");
    }
    if !place.exists() {
        return fault("is not there, or the user that the sandbox runs as cannot reach it");
    }
    let ours = ["/etc", "/usr", "/var/tmp", "/proc", "/dev", "/tmp", "/run", WORKSPACE];
    let is_inside = |outer: &str| place.starts_with(outer);
    if ours.iter().any(|ours| Path::new(ours).starts_with(place))
        || ["/proc", "/dev", WORKSPACE].into_iter().any(is_inside)
    {
        return fault("would cover what every command needs; name folders in it, or another one");
    }
    Ok(())
}

/// What is not of the host's disk.
fn after(tmp: u64) -> Vec<OsString> {
    let tmp = tmp.to_string();
    let mut arguments: Vec<OsString> =
        ["--symlink", "../usr/lib/os-release", "/etc/os-release", "--proc", "/proc", "--dev", "/dev"]
            .map(OsString::from)
            .into();
    for (place, mode) in [("/dev/shm", "1777"), ("/tmp", "1777"), ("/run", "0755")] {
        arguments.extend(["--perms", mode, "--size", &tmp, "--tmpfs", place].map(OsString::from));
    }
    arguments.extend(["--symlink", "../tmp", "/var/tmp", "--remount-ro", "/dev"].map(OsString::from));
    arguments
}

fn synthesized(network: &Network) -> Vec<(PathBuf, Vec<u8>)> {
    let users = format!(
        "root:x:0:0:root:/root:/usr/sbin/nologin\n{USER}:x:{ID}:{ID}:{USER}:{WORKSPACE}:/bin/bash\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    );
    let groups = format!("root:x:0:\n{USER}:x:{ID}:\nnogroup:x:65534:\n");
    let resolver = match network {
        Network::None => "# There is no network here.\n",
        Network::Allow(_) => "# Names are resolved by the proxy of HTTP_PROXY, outside.\n",
    };
    [
        ("/etc/passwd", users.as_str()),
        ("/etc/group", &groups),
        ("/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
        ("/etc/resolv.conf", resolver),
    ]
    .map(|(place, text)| (PathBuf::from(place), text.as_bytes().to_vec()))
    .into()
}

fn bind(arguments: &mut Vec<OsString>, place: &Path) {
    arguments.extend(["--ro-bind".into(), place.into(), place.into()]);
}
