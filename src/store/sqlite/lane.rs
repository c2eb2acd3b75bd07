//! A thread with something that only it may touch, and a bounded queue of work for it.

use crate::store::Error;
use std::io;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use tokio::sync::oneshot;

/// Work that waits at most; more is refused at once, so that a slow disk shows as an error and not as memory.
const QUEUE: usize = 1024;

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// The queue's entrance. Its thread ends when this is dropped and the queue is empty.
#[derive(Debug)]
pub(super) struct Lane<S> {
    jobs: SyncSender<Job<S>>,
}

impl<S: Send + 'static> Lane<S> {
    pub(super) fn start(name: &str, mut state: S) -> io::Result<Self> {
        let (jobs, queue) = sync_channel::<Job<S>>(QUEUE);
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            for job in queue {
                job(&mut state);
            }
        })?;
        Ok(Lane { jobs })
    }

    /// Runs `work` on the thread, after what was asked before. Once queued it runs, also when the caller stops waiting.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut S) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let job: Job<S> = Box::new(move |state| {
            // Nobody waits any more: the work is done all the same.
            _ = answer.send(work(state));
        });
        self.jobs.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(_) => Error::Busy,
            TrySendError::Disconnected(_) => Error::Closed,
        })?;
        answered.await.unwrap_or(Err(Error::Closed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[tokio::test]
    async fn work_beyond_the_queue_is_refused_at_once() {
        let lane = Lane::start("test", 0_u32).unwrap();
        let (open, gate) = channel::<()>();
        let (begun, has_begun) = channel::<()>();
        let block = async {
            lane.run(move |_| {
                _ = begun.send(());
                _ = gate.recv();
                Ok(())
            })
            .await
        };
        let flood = async {
            has_begun.recv().unwrap();
            for _ in 0..QUEUE {
                lane.jobs.try_send(Box::new(|n| *n += 1)).expect("there is room");
            }
            let beyond = lane.run(|_| Ok(())).await;
            open.send(()).unwrap();
            beyond
        };

        let (blocked, beyond) = tokio::join!(block, flood);

        assert!(blocked.is_ok());
        assert!(matches!(beyond, Err(Error::Busy)));
        // Its thread takes a moment until there is room again.
        let n_done = loop {
            match lane.run(|n| Ok(*n)).await {
                Err(Error::Busy) => tokio::task::yield_now().await,
                done => break done.unwrap(),
            }
        };
        assert_eq!(n_done, 1024);
    }
}
