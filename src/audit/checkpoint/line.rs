//! One checkpoint, which is one line: a JSON object of printable ASCII with its keys in a fixed order.
//!
//! What is signed is `portcullis/audit/checkpoint/v1`, a line break, and the line without its `signature` member: any
//! change shows, also to `openssl`. `prev` is the SHA-256 of the line before, so that none can go unnoticed in between.

use super::key::{PublicKey, Signer};
use crate::audit::chain::{self, Hash};
use crate::audit::directory::Torn;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

/// See the module. `file`, record `seq` of it and that record's `hash` are what it is about.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::audit) struct Checkpoint {
    /// Its number, from 1.
    #[serde(rename = "checkpoint")]
    pub(in crate::audit) number: u64,
    /// When it was made (RFC 3339).
    pub(in crate::audit) at: String,
    /// The process whose record it is.
    pub(in crate::audit) segment: String,
    pub(in crate::audit) file: String,
    pub(in crate::audit) seq: u64,
    pub(in crate::audit) hash: Hash,
    /// The SHA-256 of the line before, without its line break; zeros before the first.
    pub(in crate::audit) prev: Hash,
    /// What stood after the line before and was none: the beginning of one that a crash or a full disk cut short.
    #[serde(default)]
    pub(in crate::audit) torn: Option<Torn>,
    /// The key that signed it.
    pub(in crate::audit) key: String,
}

/// A line that has the form of a checkpoint. Its signature is not looked at yet.
pub(in crate::audit) struct Unverified<'a> {
    pub(in crate::audit) checkpoint: Checkpoint,
    signed: &'a [u8],
    signature: Vec<u8>,
}

impl Checkpoint {
    /// The line, without a line break.
    pub(super) fn seal(&self, signer: &Signer) -> String {
        let text = self.text();
        let signature = signer.sign(&message(text.as_bytes()));
        format!("{text}{SIGNATURE}{}\"}}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Reads a line (without its line break). `None` when it is no checkpoint.
    pub(in crate::audit) fn parse(line: &[u8]) -> Option<Unverified<'_>> {
        let text = line.strip_suffix(b"\"}")?;
        let (text, signature) = text.split_at_checked(text.len().checked_sub(SIGNATURE_LEN)?)?;
        let signed = text.strip_suffix(SIGNATURE.as_bytes())?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let checkpoint: Checkpoint = serde_json::from_slice(&[signed, b"}"].concat()).ok()?;
        // One way to write each: what is signed is exactly what is understood.
        (checkpoint.text().as_bytes() == signed).then_some(Unverified { checkpoint, signed, signature })
    }

    /// All but the signature and the brace at the end.
    fn text(&self) -> String {
        let Checkpoint { number, at, segment, file, seq, hash, prev, torn, key } = self;
        let torn = torn.as_ref().map_or_else(String::new, |Torn { bytes, sha256 }| {
            format!(r#","torn":{{"bytes":{bytes},"sha256":"{sha256}"}}"#)
        });
        format!(
            r#"{{"checkpoint":{number},"at":"{at}","segment":"{segment}","file":"{file}","seq":{seq},"hash":"{hash}","prev":"{prev}"{torn},"key":"{key}""#
        )
    }
}

impl Unverified<'_> {
    pub(in crate::audit) fn is_signed_by(&self, key: &PublicKey) -> bool {
        self.checkpoint.key == key.kid() && key.verifies(&message(self.signed), &self.signature)
    }
}

/// The hash by which the next checkpoint names this line.
pub(in crate::audit) fn hash(line: &[u8]) -> Hash {
    Hash(chain::sha256(line))
}

fn message(text: &[u8]) -> Vec<u8> {
    [DOMAIN, text, b"}"].concat()
}

/// Keeps what is signed here apart from all else that is ever signed with a key of ours.
const DOMAIN: &[u8] = b"portcullis/audit/checkpoint/v1\n";
const SIGNATURE: &str = r#","signature":""#;
/// 64 bytes in base64url without padding.
const SIGNATURE_LEN: usize = 86;
/// No checkpoint's line is longer, its line break included.
pub(in crate::audit) const LONGEST: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(torn: Option<Torn>) -> Checkpoint {
        Checkpoint {
            number: 3,
            at: "2026-11-30T03:39:42.243Z".to_owned(),
            segment: "b212eadda5286058".to_owned(),
            file: "audit-20261130T033942.243Z-b212eadda5286058.jsonl".to_owned(),
            seq: 1200,
            hash: Hash([1; 32]),
            prev: Hash([2; 32]),
            torn,
            key: Signer::new(&[7; 32]).public().kid().to_owned(),
        }
    }

    #[test]
    fn what_was_sealed_is_read_back_and_its_signature_holds() {
        let signer = Signer::new(&[7; 32]);
        for torn in [None, Some(Torn { bytes: 9, sha256: Hash([3; 32]) })] {
            let sealed = checkpoint(torn);
            let line = sealed.seal(&signer);

            let read = Checkpoint::parse(line.as_bytes()).expect("a checkpoint");

            assert_eq!(read.checkpoint, sealed);
            assert!(read.is_signed_by(signer.public()));
            assert!(!read.is_signed_by(Signer::new(&[8; 32]).public()));
            assert!(line.len() < LONGEST && line.is_ascii(), "{line}");
        }
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let signer = Signer::new(&[7; 32]);
        let line = checkpoint(None).seal(&signer).into_bytes();
        for at in 0..line.len() * 8 {
            let mut changed = line.clone();
            changed[at / 8] ^= 1 << (at % 8);
            let holds = Checkpoint::parse(&changed).is_some_and(|read| read.is_signed_by(signer.public()));
            assert!(!holds, "bit {at}");
        }
    }

    #[test]
    fn the_same_said_in_another_way_is_no_checkpoint() {
        let line = checkpoint(None).seal(&Signer::new(&[7; 32]));
        for (from, to) in [(":3,", ": 3,"), (":3,", ":3,\"x\":1,"), ("audit-", "\\u0061udit-"), ("0101", "0101 ")] {
            assert!(line.contains(from), "{from}");
            assert!(Checkpoint::parse(line.replacen(from, to, 1).as_bytes()).is_none(), "{to}");
        }
    }
}
