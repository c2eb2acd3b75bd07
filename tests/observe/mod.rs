//! What operators see: traces, the status page.

mod status;
mod traces;
