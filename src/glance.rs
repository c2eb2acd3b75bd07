//! A look at a future: is it there already? And one that its panic does not outlive.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;

/// What `future` gives if it is ready at this moment. If not, it may be waited for later, or given up.
pub async fn glance<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// What `future` gives; `None` where it panicked, which the panic hook has told of. What it borrowed may be half done: the
/// caller knows what of it can still be used.
pub async fn survived<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    #[tokio::test]
    async fn what_is_not_there_yet_is_not_waited_for() {
        let (tell, told) = tokio::sync::oneshot::channel();
        let mut told = pin!(told);
        assert_eq!(glance(told.as_mut()).await, None);
        tell.send(1).unwrap();
        assert_eq!(glance(told.as_mut()).await, Some(Ok(1)));
    }

    #[tokio::test]
    async fn a_panic_ends_its_future_and_nothing_else() {
        assert_eq!(survived(async { 1 }).await, Some(1));
        let broken = survived(async {
            tokio::task::yield_now().await;
            panic!("a bug")
        });
        let is_broken: Option<()> = broken.await;
        assert_eq!(is_broken, None);
    }
}
