//! The client against real SSH servers that are odd, in this process; a real sshd is met through the gateway (tests/ssh).

/// What becomes of actions on hosts that do strange things.
mod actions;
/// Reaching a host: its key, logins, connections that are used again.
mod connections;
/// An odd host.
pub(crate) mod host;
/// The process as the gateway starts it.
pub(crate) mod house;
/// The MCP server over its socket.
mod served;

use crate::connection::{Error, Way};
use crate::credential::{Authority, Login, ephemeral};
use crate::pool::Pool;
use crate::run::{Order, Ran, run};
use host::OddHost;
use portcullis_local::output::Progress;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// An order with generous limits; a test narrows the one it is about.
pub(crate) fn order(command: &str) -> Order {
    Order {
        tool: "do".to_owned(),
        command: command.to_owned(),
        finishes: false,
        timeout: Duration::from_secs(30),
        output: 64 * 1024,
        begin: Duration::from_secs(30),
    }
}

pub(crate) fn way(host: &OddHost) -> Way {
    Way {
        host: host.host(),
        pinned: host.pinned(),
        connect: Duration::from_secs(10),
        keep_alive: Duration::from_secs(10),
    }
}

pub(crate) fn key() -> Login {
    Login::Key(Arc::new(ephemeral()))
}

pub(crate) fn certificates() -> Login {
    Login::Certificates(Authority {
        key: Arc::new(ephemeral()),
        principal: "portcullis".to_owned(),
        source: Vec::new(),
        lifetime: Duration::from_secs(60),
    })
}

pub(crate) fn pool(host: &OddHost) -> Pool {
    Pool::new(way(host), key(), Duration::from_secs(300))
}

/// Asks for it, and waits.
pub(crate) async fn ask(pool: &Pool, order: &Order) -> Result<Ran, Error> {
    ask_until(pool, order, &CancellationToken::new()).await
}

pub(crate) async fn ask_until(pool: &Pool, order: &Order, cancelled: &CancellationToken) -> Result<Ran, Error> {
    let channel = pool.channel(&format!("r_1 {}", order.command)).await?;
    Ok(run(channel, order, &watch::Sender::new(Progress::default()), cancelled, ()).await)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
