//! What local upstreams have in common: processes of our own that stand behind the gateway on a UNIX socket.
//!
//! The gateway binds the socket, listens on it, and starts `portcullis upstream <kind>` with everything it needs in
//! descriptors: no secret stands in an argument, a variable or a file. The child answers nobody who does not show the
//! secret of this very start, is not dumpable, and ends when the gateway ends, however that ended.

/// Ending everything in a cgroup.
pub mod cgroup;
/// Which descriptors a new process has, and which cgroups it begins in.
pub mod descriptors;
/// What is handed over at a start, seen from both ends.
pub mod handover;
/// What a command writes: kept, bounded, counted.
pub mod output;
/// Who asks, in a header.
pub mod principal;
/// How something comes along.
pub mod progress;
/// Which request it is, in a header.
pub mod request;
/// JSON Schemas as all clients can read them.
pub mod schema;
/// Answering on the socket that was handed over.
pub mod serve;
/// Sessions of the legacy era: how many, and whose.
pub mod sessions;
/// What verifiers of upstreams say.
pub mod verify;
/// Numbers as people and models read them.
pub mod words;

pub use handover::{Handover, Prepared, Start};
pub use principal::Principal;
pub use request::Request;
pub use serve::{Gone, HEALTH, serve};
pub use sessions::Sessions;
