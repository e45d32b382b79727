//! The socket between a guard and its parent.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// What a command reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input {
    /// What this process reads.
    Ours,
    /// Nothing.
    Nothing,
}

/// Sends the standard input of the commands: the guard's own is the socket.
pub(super) fn send_input(link: &UnixStream, input: Input) -> io::Result<()> {
    match input {
        Input::Ours => send_file(link, io::stdin().as_fd()),
        Input::Nothing => send_file(link, File::open("/dev/null")?.as_fd()),
    }
}

/// Sends a file to whoever has the other end.
pub(super) fn send_file(link: &UnixStream, input: BorrowedFd<'_>) -> io::Result<()> {
    let files = [input];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    // The room was made for one.
    control.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(link, &[IoSlice::new(b"i")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes the standard input of the commands.
pub(super) fn receive_input(link: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    recvmsg(link, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    file.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "no standard input was sent"))
}
