//! `portcullis approvals watch`: held calls as they come and go.

use super::list;
use crate::cli::context::Context;
use crate::store::ApprovalState as State;
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked for changes.
const PAUSE: Duration = Duration::from_millis(250);

pub(super) async fn run(context: &Context<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut seen: HashMap<Arc<str>, State> = HashMap::new();
    // What is open now is news to who begins to watch; what ended before is not.
    let mut last = newest(context).await?;
    let mut open = context.store.approvals(&[State::Pending, State::Approved, State::Indeterminate]).await?;
    open.reverse();
    for held in &open {
        writeln!(out, "{}", list::line(held, context.clock.unix_ms()))?;
        seen.insert(Arc::clone(&held.id), held.state);
    }
    out.flush()?;
    loop {
        tokio::time::sleep(PAUSE).await;
        let (now_last, changed) = context.store.approvals_after(last).await?;
        last = now_last;
        for id in changed {
            let Some(held) = context.store.approval(&id).await? else { continue };
            // Other changes, as that a caller waits, are none of people's.
            let before = if is_over(held.state) { seen.remove(&id) } else { seen.insert(Arc::clone(&id), held.state) };
            if before != Some(held.state) {
                writeln!(out, "{}", list::line(&held, context.clock.unix_ms()))?;
            }
        }
        out.flush()?;
    }
}

/// The number of the latest change.
async fn newest(context: &Context<'_>) -> anyhow::Result<i64> {
    let mut last = 0;
    loop {
        let (next, _) = context.store.approvals_after(last).await?;
        if next == last {
            return Ok(last);
        }
        last = next;
    }
}

fn is_over(state: State) -> bool {
    !matches!(state, State::Pending | State::Approved | State::Denied | State::Consumed | State::Indeterminate)
}
