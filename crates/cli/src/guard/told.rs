//! A guard as its parent sees it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Link;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tenure_core::{Code, LocalInstant, StoreError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::time::timeout;

use super::link::{Input, send_input};
use super::tree::outside;
use super::words::{Order, Report};
use crate::env;

/// A guard that takes its orders at all takes them in this time.
const TAKES_ORDERS_WITHIN: Duration = Duration::from_secs(1);

/// A guard that can be isolated is so in this time, however busy the machine is.
const IS_ISOLATED_WITHIN: Duration = Duration::from_secs(30);

/// A guard process. When this is dropped, the guard ends its command, and then itself.
#[derive(Debug)]
pub(crate) struct Guard {
    pid: Pid,
    /// Names it also after it was reaped, when its number may be somebody else's.
    process: Option<OwnedFd>,
    orders: OwnedWriteHalf,
    reports: Lines<BufReader<OwnedReadHalf>>,
    isolated: bool,
}

impl Guard {
    /// Starts a guard in a process group of its own, out of the way of the terminal's signals. It
    /// removes the folder `scratch` in the end. To be called on a thread that lives as long as the
    /// process, because the kernel tells a child when the thread that started it ends.
    pub(crate) fn start(input: Input, scratch: Option<&Path>, isolate: bool) -> io::Result<Self> {
        let (ours, theirs) = Link::pair()?;
        send_input(&ours, input)?;
        // The running binary, also after its file was replaced.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("tenure").arg("guard").args(isolate.then_some("--isolate"));
        command.args(scratch).process_group(0);
        // Its environment is that of the commands.
        for name in env::SECRETS {
            command.env_remove(name);
        }
        let child = command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn()?;
        let pid = Pid::from_child(&child);
        let process = pidfd_open(pid, PidfdFlags::empty()).ok();
        ours.set_nonblocking(true)?;
        let (reports, orders) = UnixStream::from_std(ours)?.into_split();
        let reports = BufReader::new(reports).lines();
        Ok(Self { pid, process, orders, reports, isolated: isolate })
    }

    /// Waits until the guard is isolated, if it is to be; refuses when that is not possible here.
    pub(crate) async fn ready(&mut self) -> Result<(), StoreError> {
        if !self.isolated {
            return Ok(());
        }
        let detail = match timeout(IS_ISOLATED_WITHIN, self.report()).await {
            Ok(Some(Report::Ready)) => return Ok(()),
            Ok(Some(Report::CannotIsolate { detail })) => detail,
            Ok(_) => "the guard ended before it was ready".to_owned(),
            Err(_) => "the guard was not ready in time".to_owned(),
        };
        Err(StoreError::refused(Code::CannotIsolate, detail))
    }

    /// A process of the command as this process knows it: inside a PID namespace it has another id.
    pub(crate) fn process(&self, pid: i32) -> Option<Pid> {
        let inside = Pid::from_raw(pid);
        if self.isolated { outside(self.pid, inside?) } else { inside }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Tells the guard what to do. An error means that it is gone, or as good as gone.
    pub(crate) async fn order(&mut self, order: &Order) -> io::Result<()> {
        let line = order.line();
        let sent = timeout(TAKES_ORDERS_WITHIN, self.orders.write_all(line.as_bytes())).await;
        sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// What the guard tells next; `None` when it is gone. May be dropped and called again.
    pub(crate) async fn report(&mut self) -> Option<Report> {
        let line = self.reports.next_line().await;
        Report::read(&line.ok()??)
    }

    /// Whether it has died. To be asked of one that has nothing to do.
    pub(crate) fn is_gone(&self) -> bool {
        let link: &UnixStream = self.orders.as_ref();
        let peeked = recv(link, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(peeked, Ok((_, 1..)) | Err(Errno::AGAIN | Errno::INTR))
    }

    /// Kills a guard that does not do its duty.
    pub(crate) fn kill(&self) {
        let _ = match &self.process {
            Some(process) => pidfd_send_signal(process, Signal::KILL),
            // A kernel that has no such thing.
            None => kill_process(self.pid, Signal::KILL),
        };
    }
}

/// A timer on the clock of deadlines, which counts the time that the machine was suspended: after
/// a suspend it goes off at once.
#[derive(Debug)]
pub(crate) struct BootTimer {
    timer: OwnedFd,
    /// The same: it becomes readable, like a pipe, when the timer goes off.
    expired: pipe::Receiver,
    set: Option<LocalInstant>,
}

impl BootTimer {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        let expired = pipe::Receiver::from_owned_fd_unchecked(timer.try_clone()?)?;
        Ok(Self { timer, expired, set: None })
    }

    /// Waits until `at`; for ever when there is no such instant. May be dropped and called again.
    pub(crate) async fn at(&mut self, at: Option<LocalInstant>) {
        let Some(at) = at else { return std::future::pending().await };
        if self.set != Some(at) {
            self.set = Some(at);
            // Zero would switch it off.
            let nanos = at.as_nanos().max(1);
            let it_value = Timespec {
                tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: (nanos % 1_000_000_000) as i64,
            };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            let time = Itimerspec { it_interval, it_value };
            // It refuses only what is no time.
            let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &time);
        }
        loop {
            // Read, it is not ready any more when it is set again.
            match self.expired.try_read(&mut [0; 8]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => break,
            }
            if self.expired.readable().await.is_err() {
                break;
            }
        }
        self.set = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::Clock;
    use tenure_store::BootClock;

    #[tokio::test]
    async fn a_timer_goes_off_not_before_its_time_and_can_be_set_again() {
        let mut timer = BootTimer::new().unwrap();
        timer.at(Some(LocalInstant::from_nanos(0))).await;
        for _ in 0..3 {
            let at = BootClock.now().plus(Duration::from_millis(20));
            let far = at.plus(Duration::from_secs(3600));
            tokio::select! {
                biased;
                () = timer.at(Some(far)) => panic!("too early"),
                () = std::future::ready(()) => {}
            }
            timer.at(Some(at)).await;
            assert!(BootClock.now() >= at);
        }
    }
}
