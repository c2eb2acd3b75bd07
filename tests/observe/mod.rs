//! What operators see: traces, the status page.

mod traces;
