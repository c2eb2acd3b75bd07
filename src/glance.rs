//! A look at a future: is it there already?

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// What `future` gives if it is ready at this moment. If not, it may be waited for later, or given up.
pub async fn glance<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Poll::Ready(None),
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
}
