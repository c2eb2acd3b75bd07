//! The same server over HTTP/2 without TLS (RFC 9113 §3.3, prior knowledge), for an upstream that is reached that way.

use super::answers::{Answers, Body, last_event};
use bytes::Bytes;
use h2::server::SendResponse;
use http::{Request, Response};
use std::rc::Rc;
use tokio::task::{LocalSet, spawn_local};

pub(crate) fn run(listener: std::net::TcpListener) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve(listener))
}

async fn serve(listener: std::net::TcpListener) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let answers = Rc::new(Answers::new());
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let answers = Rc::clone(&answers);
        // A connection that breaks is its peer's affair.
        spawn_local(async move { drop(connection(socket, answers).await) });
    }
}

async fn connection(socket: tokio::net::TcpStream, answers: Rc<Answers>) -> Result<(), h2::Error> {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(1024).initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
    let mut connection = builder.handshake::<_, Bytes>(socket).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        let answers = Rc::clone(&answers);
        spawn_local(async move { drop(answer(request, respond, &answers).await) });
    }
    Ok(())
}

async fn answer(
    mut request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    answers: &Answers,
) -> Result<(), h2::Error> {
    let mut body = Vec::new();
    while let Some(data) = request.body_mut().data().await {
        let data = data?;
        request.body_mut().flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    let head = |status: u16, kind: &str| {
        let head = Response::builder().status(status).header("content-type", kind);
        head.body(()).expect("the parts are ours")
    };
    match answers.body(request.method().as_str().as_bytes(), &body) {
        Body::Accepted => drop(respond.send_response(head(202, "application/json"), true)?),
        Body::Json(json) => {
            respond.send_response(head(200, "application/json"), false)?.send_data(json.into(), true)?;
        }
        Body::Stream { events, every, is_idle, id } => {
            let mut stream = respond.send_response(head(200, "text/event-stream"), false)?;
            for event in answers.events(events) {
                if let Some(every) = every {
                    tokio::time::sleep(every).await;
                }
                stream.send_data(Bytes::copy_from_slice(event), false)?;
            }
            if is_idle {
                // Until the other side goes.
                return std::future::poll_fn(|context| stream.poll_reset(context)).await.map(drop);
            }
            stream.send_data(last_event(&id).into(), true)?;
        }
    }
    Ok(())
}
