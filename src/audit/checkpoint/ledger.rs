//! The file of checkpoints. Every process that writes to the log of one `data_dir` adds to the same one.
//!
//! Nothing in it is ever taken back by us once it was written whole, so that it may lie where nothing can be taken back.
//! Half a line, left by a crash or a full disk, is closed with a line break, and the next checkpoint says how much it was.

use super::key::Signer;
use super::line::{self, Checkpoint, LONGEST};
use super::notary::Reached;
use crate::audit::Error;
use crate::audit::chain::{self, Hash};
use crate::audit::directory::{self, Directory, Torn};
use crate::clock;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// See the module.
pub(in crate::audit) struct Ledger {
    path: PathBuf,
    directory: Directory,
    signer: Signer,
    /// The file as we left it: nobody else has added to it while it still looks like this.
    left: Option<(Identity, Tip)>,
}

/// Where the file ends.
#[derive(Clone, Debug)]
struct Tip {
    number: u64,
    hash: Hash,
    torn: Option<Torn>,
    /// The last checkpoint is whole but for its line break.
    is_open: bool,
}

/// Device, inode and length.
type Identity = (u64, u64, u64);

impl Ledger {
    pub(in crate::audit) fn new(path: PathBuf, directory: Directory, signer: Signer) -> Ledger {
        Ledger { path, directory, signer, left: None }
    }

    /// The key that signs.
    pub(in crate::audit) fn kid(&self) -> &str {
        self.signer.public().kid()
    }

    /// Whether it would lie among the files it is to speak for, also by way of a link. Where its folder cannot be looked
    /// at it may come later: another machine's disk.
    pub(in crate::audit) fn check_place(&self) -> Result<(), Error> {
        let folder = |path: &Path| path.parent().and_then(|folder| folder.canonicalize().ok());
        let (Some(own), Ok(audit)) = (folder(&self.path), self.directory.path.canonicalize()) else {
            return Ok(());
        };
        if own.starts_with(audit) { Err(Error::Misplaced { path: self.path.clone() }) } else { Ok(()) }
    }

    /// Adds a checkpoint for each of these, and puts them on the disk. All or, as far as the disk lets us see to it, none.
    pub(in crate::audit) fn add(&mut self, all: &[Reached], now_ms: i64) -> Result<(), Error> {
        // Beside the audit directory: those who add to it share that, whatever disk the file is on.
        let _lock = directory::lock(&self.directory.path.with_file_name(LOCK))?;
        let mut file = self.open()?;
        let before = self.identity(&file)?;
        let mut tip = match self.left.take() {
            // As we left it, or moved away by somebody: the one in its place goes on with the numbers.
            Some((left, tip)) if left == before || before.2 == 0 => tip,
            _ => self.tip(&mut file)?,
        };
        let mut text = String::new();
        if tip.torn.is_some() || tip.is_open {
            text.push('\n');
        }
        for Reached { segment, file, head, .. } in all {
            let checkpoint = Checkpoint {
                number: tip.number + 1,
                at: clock::rfc3339(now_ms),
                segment: segment.to_string(),
                file: file.to_string(),
                seq: head.seq,
                hash: head.hash,
                prev: tip.hash,
                torn: tip.torn.take(),
                key: self.kid().to_owned(),
            };
            let line = checkpoint.seal(&self.signer);
            tip = Tip { number: checkpoint.number, hash: line::hash(line.as_bytes()), torn: None, is_open: false };
            text.push_str(&line);
            text.push('\n');
        }
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        if let Err(source) = written {
            // Where nothing can be taken back this fails, and the next attempt finds what is there.
            let _ = file.set_len(before.2);
            return Err(Error::io("write to", &self.path)(source));
        }
        self.left = Some((self.identity(&file)?, tip));
        Ok(())
    }

    /// Its folder is not made: where a disk is not mounted, nothing must be written in its place.
    fn open(&self) -> Result<File, Error> {
        let mut options = OpenOptions::new();
        options.read(true).append(true);
        match options.open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened.map_err(Error::io("open", &self.path)),
        }
        let made = options.create_new(true).mode(0o600).open(&self.path).map_err(Error::io("create", &self.path))?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io("sync", folder))?;
        Ok(made)
    }

    fn identity(&self, file: &File) -> Result<Identity, Error> {
        let metadata = file.metadata().map_err(Error::io("look at", &self.path))?;
        if !metadata.is_file() {
            return Err(Error::Foreign { path: self.path.clone() });
        }
        Ok((metadata.dev(), metadata.ino(), metadata.len()))
    }

    /// The last checkpoint and what follows it. A file in which there is none, and which is not empty, is not ours.
    fn tip(&self, file: &mut File) -> Result<Tip, Error> {
        let fault = |source| Error::io("read", &self.path)(source);
        let len = file.seek(SeekFrom::End(0)).map_err(fault)?;
        let mut window = 4 * LONGEST as u64;
        loop {
            let start = len.saturating_sub(window);
            let mut text = Vec::new();
            file.seek(SeekFrom::Start(start)).map_err(fault)?;
            (&mut *file).take(len - start).read_to_end(&mut text).map_err(fault)?;
            if let Some(tip) = last(&text, start == 0) {
                return Ok(tip);
            }
            if start == 0 {
                // The very first may have been cut short.
                let is_beginning = BEGINNING.starts_with(&text) || text.starts_with(BEGINNING);
                let torn = (!text.is_empty()).then(|| torn(&text));
                return match is_beginning {
                    true => Ok(Tip { number: 0, hash: Hash([0; 32]), torn, is_open: false }),
                    false => Err(Error::Foreign { path: self.path.clone() }),
                };
            }
            window = window.saturating_mul(8);
        }
    }
}

fn last(text: &[u8], is_from_start: bool) -> Option<Tip> {
    let open = text.rsplit(|b| *b == b'\n').next().unwrap_or_default();
    if let Some(read) = Checkpoint::parse(open) {
        return Some(Tip { number: read.checkpoint.number, hash: line::hash(open), torn: None, is_open: true });
    }
    let mut rest = text;
    while let Some(newline) = rest.iter().rposition(|b| *b == b'\n') {
        let before = &rest[..newline];
        let start = before.iter().rposition(|b| *b == b'\n');
        if start.is_none() && !is_from_start {
            return None;
        }
        let line = &before[start.map_or(0, |at| at + 1)..];
        if let Some(read) = Checkpoint::parse(line) {
            let after = &text[newline + 1..];
            let torn = (!after.is_empty()).then(|| torn(after));
            return Some(Tip { number: read.checkpoint.number, hash: line::hash(line), torn, is_open: false });
        }
        rest = before;
    }
    None
}

fn torn(text: &[u8]) -> Torn {
    Torn { bytes: text.len() as u64, sha256: Hash(chain::sha256(text)) }
}

const LOCK: &str = "audit-checkpoints.lock";
const BEGINNING: &[u8] = br#"{"checkpoint":1,"at":""#;
