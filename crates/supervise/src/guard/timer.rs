//! Timer on the clock of deadlines.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tenure_core::LocalInstant;
use tokio::net::unix::pipe;

/// A timer on `CLOCK_BOOTTIME`, which counts suspended time: after a suspend it fires at once.
#[derive(Debug)]
pub(crate) struct BootTimer {
    timer: OwnedFd,
    /// The same descriptor, which becomes readable when the timer fires.
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

    /// Waits until `at`, or for ever without one. Cancellation-safe.
    pub(crate) async fn at(&mut self, at: Option<LocalInstant>) {
        let Some(at) = at else { return std::future::pending().await };
        if self.set != Some(at) {
            self.set = Some(at);
            // Zero would disarm it.
            let nanos = at.as_nanos().max(1);
            let it_value = Timespec {
                tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: (nanos % 1_000_000_000) as i64,
            };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            let time = Itimerspec { it_interval, it_value };
            // It fails only for an invalid time.
            let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &time);
        }
        loop {
            // Reading clears its readiness, so that it can be set again.
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
    use std::time::Duration;
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
