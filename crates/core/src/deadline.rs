//! TTL and deadline: limits of the time in which a holder may act, by its own clock (R5, R6, R7).

use std::time::Duration;

use crate::text::span;
use crate::{Code, LocalInstant, Mutant, StoreError};

/// Lease duration: the store ends a session this long after its last renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

/// A fraction in `0..=65535` that shortens an interval; the caller supplies the randomness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter(pub u16);

impl Ttl {
    /// Below this, the margin would consume the time in which a holder may act.
    pub const MIN_TTL: Duration = Duration::from_millis(200);
    /// Above this, a dead holder would block its duty for more than a day.
    pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
    /// The smallest safety margin.
    pub const MIN_MARGIN: Duration = Duration::from_millis(50);

    /// Creates a TTL, rounded down to milliseconds, from [`Ttl::MIN_TTL`] to [`Ttl::MAX_TTL`].
    pub fn new(ttl: Duration) -> Result<Self, StoreError> {
        let whole = Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        if whole < Self::MIN_TTL || whole > Self::MAX_TTL {
            let (ttl, min, max) = (span(ttl), span(Self::MIN_TTL), span(Self::MAX_TTL));
            let detail = format!("TTL {ttl} is outside the range {min} to {max}");
            return Err(StoreError::refused(Code::BadInput, detail));
        }
        Ok(Self(whole))
    }

    /// Returns the TTL as the store counts it.
    pub const fn get(self) -> Duration {
        self.0
    }

    /// Returns the TTL in milliseconds.
    pub fn as_millis(self) -> u64 {
        // A day, the longest TTL, fits 32 bits of milliseconds.
        self.0.as_millis() as u64
    }

    /// Returns the safety margin for scheduling and delivery: `max(ttl / 20, 50 ms)`.
    pub fn margin(self) -> Duration {
        (self.0 / 20).max(Self::MIN_MARGIN)
    }

    /// Returns the deadline for a request sent at `sent`: `sent + ttl * 0.9 - margin`. A tenth of
    /// the TTL covers clocks that run at different rates. Counting starts *before* the request
    /// leaves, because the store may start its own count at any moment after that (R5).
    pub fn deadline(self, sent: LocalInstant) -> Deadline {
        if Mutant::R5Margin.is_on() {
            return Deadline(sent.plus(self.0));
        }
        Deadline(sent.plus(self.0 * 9 / 10 - self.margin()))
    }

    /// Returns the renewal interval: a third of the TTL, shortened by up to a fifth (R7).
    pub fn renew_every(self, jitter: Jitter) -> Duration {
        let third = if Mutant::R7Renew.is_on() { self.0 * 2 / 3 } else { self.0 / 3 };
        third - (third / 5) * u32::from(jitter.0) / u32::from(u16::MAX)
    }

    /// Returns the timeout of one renewal: a tenth of the TTL (R7).
    pub fn attempt_timeout(self) -> Duration {
        self.0 / 10
    }
}

/// The local instant from which a holder must no longer act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(LocalInstant);

impl Deadline {
    /// Sets the instant directly, for the model checker, which shifts time.
    #[doc(hidden)]
    pub const fn from_instant(at: LocalInstant) -> Self {
        Self(at)
    }

    /// Returns the first instant at which the holder must not act.
    pub const fn at(self) -> LocalInstant {
        self.0
    }

    /// Whether the holder may act at `now`.
    pub fn allows(self, now: LocalInstant) -> bool {
        now < self.0 || Mutant::R6Guard.is_on()
    }

    /// Returns the time left at `now`; zero after the deadline.
    pub fn remaining(self, now: LocalInstant) -> Duration {
        self.0.since(now)
    }

    /// Whether work that may take up to `needed` can begin at `now` and end in time.
    pub fn leaves(self, now: LocalInstant, needed: Duration) -> bool {
        self.remaining(now) > needed
    }
}

/// Whether a tick due at `due` and seen at `seen` was late enough to count as a pause: then the
/// hold must be verified again before any effect (R7).
pub fn is_pause(due: LocalInstant, seen: LocalInstant, ttl: Ttl) -> bool {
    seen.since(due) > ttl.margin() && !Mutant::R7Pause.is_on()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ttl(millis: u64) -> Ttl {
        Ttl::new(Duration::from_millis(millis)).unwrap()
    }

    fn at(millis: u64) -> LocalInstant {
        LocalInstant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn the_deadline_counts_from_before_the_request_left() {
        // 30 s: 27 s less 1.5 s. 300 ms: 270 ms less the smallest margin of 50 ms.
        assert_eq!(ttl(30_000).deadline(at(1_000)).at(), at(1_000 + 25_500));
        assert_eq!(ttl(300).deadline(at(0)).at(), at(220));
    }

    #[test]
    fn a_holder_may_act_before_the_deadline_and_not_at_it() {
        let deadline = ttl(1_000).deadline(at(0));
        assert!(deadline.allows(at(849)));
        assert!(!deadline.allows(at(850)));
        assert!(deadline.leaves(at(0), Duration::from_millis(849)));
        assert!(!deadline.leaves(at(0), Duration::from_millis(850)));
        assert_eq!(deadline.remaining(at(9_000)), Duration::ZERO);
    }

    #[test]
    fn a_late_tick_is_a_pause_only_beyond_the_margin() {
        assert!(!is_pause(at(100), at(150), ttl(1_000)));
        assert!(is_pause(at(100), at(151), ttl(1_000)));
        assert!(!is_pause(at(100), at(90), ttl(1_000)));
    }

    #[test]
    fn a_ttl_outside_the_limits_is_refused() {
        for bad in [0, 199, 24 * 60 * 60 * 1000 + 1] {
            let error = Ttl::new(Duration::from_millis(bad)).unwrap_err();
            assert_eq!(error.code(), Code::BadInput);
        }
    }

    proptest! {
        /// R5 and R7 for every TTL: the holder stops before the store's count can end even when
        /// its clock runs a tenth slow, and two renewals can fail before it must stop.
        #[test]
        fn the_arithmetic_is_safe_for_every_ttl(
            millis in 200_u64..=86_400_000,
            sent in 0_u64..1 << 60,
            jitter: u16,
        ) {
            let ttl = ttl(millis);
            let sent = LocalInstant::from_nanos(sent);
            let may_act = ttl.deadline(sent).at().since(sent);
            prop_assert!(may_act > Duration::ZERO);
            prop_assert!(may_act.mul_f64(10.0 / 9.0) < ttl.get());
            let every = ttl.renew_every(Jitter(jitter));
            prop_assert!(every <= ttl.get() / 3 && every >= ttl.get() / 3 * 4 / 5);
            prop_assert!(every + ttl.attempt_timeout() * 2 <= may_act);
        }
    }
}
