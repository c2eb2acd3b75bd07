//! What operators and their machines see: health, metrics, and the local socket that commands talk to.

mod health;
mod operator;

pub use health::{Readiness, router as health_router};
pub use operator::{Answer, router as operator_router};
