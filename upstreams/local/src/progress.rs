//! How something comes along that takes its time, for a caller who wants to know (MCP, "Progress").

use crate::output::Progress;
use crate::words::seconds;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::{RequestContext, RoleServer};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

/// How often a caller is told.
const EVERY: Duration = Duration::from_secs(2);

/// Tells a caller who gave a token how far it is, of `limit` at most, as `newest` has it. Never ends.
pub async fn report<T>(context: &RequestContext<RoleServer>, newest: &watch::Receiver<Progress>, limit: Duration) -> T {
    let Some(token) = context.meta.get_progress_token() else {
        return std::future::pending().await;
    };
    let began = Instant::now();
    let mut ticks = tokio::time::interval_at(began + EVERY, EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let message = match &*newest.borrow() {
            progress if progress.last_line.is_empty() => format!("{} bytes written so far", progress.n_written),
            progress => progress.last_line.clone(),
        };
        let told = ProgressNotificationParam::new(token.clone(), seconds(began.elapsed()))
            .with_total(seconds(limit))
            .with_message(message);
        // Whoever went away does not want to know.
        let _ = context.peer.notify_progress(told).await;
    }
}
