//! What operators and their machines see: health, metrics, and the local socket that commands talk to.

mod health;
mod operator;
mod webhooks;

pub use health::{Readiness, router as health_router};
pub use operator::{Answer, router as operator_router};
pub use webhooks::router as webhooks_router;
