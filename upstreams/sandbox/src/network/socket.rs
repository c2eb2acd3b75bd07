//! How the proxy's listening socket comes from inside to the outside: made in the network namespace of the command, and
//! sent over a UNIX socket (unix(7), SCM_RIGHTS). Who holds it accepts what connects in there, wherever that is.

use super::PORT;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use tokio::io::Interest;

/// Listens inside, and sends the socket to the outside.
///
/// # Errors
/// There is no loopback device, or nobody to send it to.
pub(crate) fn send(outside: &UnixStream) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))?;
    let sockets = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    if !message.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    sendmsg(outside, &[IoSlice::new(b"L")], &mut message, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The socket that comes from inside.
///
/// # Errors
/// None came.
pub(crate) async fn receive(inside: UnixStream) -> io::Result<tokio::net::TcpListener> {
    inside.set_nonblocking(true)?;
    let inside = tokio::net::UnixStream::from_std(inside)?;
    let received = inside.async_io(Interest::READABLE, || receive_now(&inside)).await?;
    let listener = TcpListener::from(received);
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

fn receive_now(inside: &tokio::net::UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut messages = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(inside, &mut [IoSliceMut::new(&mut byte)], &mut messages, RecvFlags::CMSG_CLOEXEC)?;
    let rights = messages.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    rights.ok_or_else(|| io::Error::other("no socket came from inside"))
}
