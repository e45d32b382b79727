//! The socket between a guard and its parent.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
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
    let input: OwnedFd = match input {
        Input::Ours => io::stdin().as_fd().try_clone_to_owned()?,
        Input::Nothing => File::open("/dev/null")?.into(),
    };
    let files = [input.as_fd()];
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
