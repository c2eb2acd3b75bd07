//! Checkpoints: signed statements of how far the log had come, kept apart from it.
//!
//! A hash needs no secret: whoever can write the files can cut off the newest one's end, or write a tail anew with
//! hashes that fit. A checkpoint names the last record of a file with its hash, and its signature needs a key. `line` is
//! its form, `key` what signs it, `ledger` the file it is added to, `notary` the thread that does so and when.
//!
//! The log never waits for a checkpoint: the file may be on another machine.

mod key;
mod ledger;
mod line;
mod notary;

pub use key::{PublicKey, Signer};
pub use notary::CheckpointStatus;

pub(super) use ledger::Ledger;
pub(super) use line::{Checkpoint, LONGEST, Unverified, hash as hash_of_line};
pub(super) use notary::{Notary, Pace, Reached};
