//! What is asked for on a channel, and what is heard there.

use super::Error;
use crate::connection::Connection;
use russh::client::Msg;
use russh::{Channel, ChannelMsg};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long an answer may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// How long a host may take to forget a channel, and how often it is asked.
const FREED: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
/// What is kept of what a channel says, in bytes.
const KEPT: usize = 64 * 1024;

/// What a channel has said, to its end or until nobody waited any longer.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Answers to requests, in their order.
    pub(super) replies: Vec<bool>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) status: Option<u32>,
    pub(super) signal: Option<String>,
    pub(super) end: End,
}

/// How the listening ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// The channel was closed.
    Closed,
    /// The connection went.
    #[default]
    Dropped,
    /// Nothing came any more.
    Late,
}

/// Opens a channel for an action. One that was closed counts on the host (`MaxSessions`) until all that it ran has ended there, so
/// that a host may want us to wait.
///
/// # Errors
/// It could not be.
pub(super) async fn open(on: &Connection) -> Result<Channel<Msg>, Error> {
    let began = Instant::now();
    loop {
        match timeout(PATIENCE, on.handle.channel_open_session()).await.map_err(|_| Error::Silence)? {
            Err(russh::Error::ChannelOpenFailure(_)) if began.elapsed() < FREED => sleep(PAUSE).await,
            opened => return Ok(opened?),
        }
    }
}

/// Asks for an action, with nothing on its stdin, and hears it out.
///
/// # Errors
/// It could not even be asked for.
pub(super) async fn exec(on: &Connection, action: &[u8]) -> Result<Heard, Error> {
    exec_on(open(on).await?, action).await
}

/// The same, on a channel for nothing else.
pub(super) async fn exec_on(mut channel: Channel<Msg>, action: &[u8]) -> Result<Heard, Error> {
    channel.exec(true, action).await?;
    // A host that has closed it already is not told.
    drop(channel.eof().await);
    let heard = hear_action(&mut channel).await;
    drop(channel.close().await);
    Ok(heard)
}

/// Hears a channel out.
pub(super) async fn hear(channel: &mut Channel<Msg>) -> Heard {
    hear_until(channel, |_| false).await
}

/// Hears an action out, the only one on its channel. One that sshd has refused leaves the channel as it is.
pub(super) async fn hear_action(channel: &mut Channel<Msg>) -> Heard {
    hear_until(channel, |heard| heard.replies.first() == Some(&false)).await
}

/// Hears a channel out, or until this is so.
pub(super) async fn hear_until(channel: &mut Channel<Msg>, is_enough: impl Fn(&Heard) -> bool) -> Heard {
    let mut heard = Heard::default();
    let listening = async {
        while let Some(said) = channel.wait().await {
            match said {
                ChannelMsg::Success => heard.replies.push(true),
                ChannelMsg::Failure => heard.replies.push(false),
                ChannelMsg::Data { data } => keep(&mut heard.stdout, &data),
                ChannelMsg::ExtendedData { data, .. } => keep(&mut heard.stderr, &data),
                ChannelMsg::ExitStatus { exit_status } => heard.status = Some(exit_status),
                ChannelMsg::ExitSignal { signal_name, .. } => heard.signal = Some(format!("{signal_name:?}")),
                ChannelMsg::Close => {
                    heard.end = End::Closed;
                    return;
                }
                _ => {}
            }
            if is_enough(&heard) {
                heard.end = End::Late;
                return;
            }
        }
    };
    if timeout(PATIENCE, listening).await.is_err() {
        heard.end = End::Late;
    }
    heard
}

/// What is beyond that is not looked at: nothing that was refused says so much.
fn keep(kept: &mut Vec<u8>, data: &[u8]) {
    let room = KEPT.saturating_sub(kept.len()).min(data.len());
    kept.extend_from_slice(&data[..room]);
}
