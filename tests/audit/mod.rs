//! The audit log and what must not be in it, through the real program.

mod ceiling;
mod faults;
mod kills;
mod plant;
mod secrets;
