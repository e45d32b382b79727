//! Liveness of connectors: the time since their last heartbeat.

const SECOND: i64 = 1_000_000;

tenure_core::text_enum! {
    /// Liveness of a connector.
    pub enum Liveness {
        Online "online" "Its last heartbeat is recent."
        Stale "stale" "A heartbeat is overdue."
        Offline "offline" "No heartbeat came for a long time."
        Unknown "unknown" "It never sent a heartbeat."
    }
}

/// Thresholds for liveness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Online up to 300 seconds or 2.5 intervals, stale up to 900 seconds or 5 intervals, whichever
    /// is longer. Intervals are capped at the longest one of the protocol.
    #[default]
    Usual,
    /// Online up to 2.5 intervals and stale up to 5, of any length; `Usual` without an interval.
    Observed,
    /// Online below two minutes and stale up to four, as the protocol says. A connector with an
    /// interval of two minutes is then stale just before most heartbeats.
    Spec5,
    /// Fixed limits in microseconds.
    Fixed {
        /// Online up to this age.
        online: i64,
        /// Stale up to this age.
        stale: i64,
    },
}

const DEFAULT_LIMITS: (i64, i64) = (300 * SECOND, 900 * SECOND);
/// Longest interval of the protocol.
const MAX_INTERVAL: i64 = 300 * SECOND;

impl Policy {
    /// Returns the longest interval that counts, in microseconds. Only policy `Observed` accepts
    /// one that is longer than the protocol allows.
    pub fn longest_interval(self) -> i64 {
        match self {
            Self::Observed => i64::MAX,
            _ => MAX_INTERVAL,
        }
    }

    /// Returns the interval to expect, given the observed one.
    pub fn interval(self, observed: Option<i64>) -> Option<i64> {
        observed.map(|it| it.min(self.longest_interval()))
    }

    /// Judges a connector by its last heartbeat and its interval, in microseconds; `now` is by the
    /// same clock as the heartbeat. A heartbeat from the future counts as received now.
    pub fn judge(
        self,
        now: i64,
        last_heartbeat_at: Option<i64>,
        interval: Option<i64>,
    ) -> Liveness {
        let Some(last) = last_heartbeat_at else { return Liveness::Unknown };
        let age = now.saturating_sub(last).max(0);
        let own = self.interval(interval);
        let own = own.map(|it| (it.saturating_mul(5) / 2, it.saturating_mul(5)));
        let (online, stale) = match (self, own) {
            (Self::Usual, Some(own)) => (DEFAULT_LIMITS.0.max(own.0), DEFAULT_LIMITS.1.max(own.1)),
            (Self::Observed, Some(own)) => own,
            (Self::Usual | Self::Observed, None) => DEFAULT_LIMITS,
            (Self::Spec5, _) => (120 * SECOND - 1, 240 * SECOND),
            (Self::Fixed { online, stale }, _) => (online, stale),
        };
        if age <= online {
            Liveness::Online
        } else if age <= stale {
            Liveness::Stale
        } else {
            Liveness::Offline
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Liveness::{Offline, Online, Stale};

    #[test]
    fn bounds_are_exact() {
        let at = |policy: Policy, age: i64, interval| policy.judge(age, Some(0), interval);
        let cases = [
            (Policy::Usual, None, 300 * SECOND, 900 * SECOND),
            (Policy::Usual, Some(30 * SECOND), 300 * SECOND, 900 * SECOND),
            (Policy::Usual, Some(300 * SECOND), 750 * SECOND, 1500 * SECOND),
            (Policy::Usual, Some(3600 * SECOND), 750 * SECOND, 1500 * SECOND),
            (Policy::Observed, Some(3600 * SECOND), 9000 * SECOND, 18_000 * SECOND),
            (Policy::Observed, None, 300 * SECOND, 900 * SECOND),
            (Policy::Observed, Some(30 * SECOND), 75 * SECOND, 150 * SECOND),
            (Policy::Spec5, Some(300 * SECOND), 120 * SECOND - 1, 240 * SECOND),
            (Policy::Fixed { online: 5, stale: 7 }, Some(300 * SECOND), 5, 7),
        ];
        for (policy, interval, online, stale) in cases {
            assert_eq!(at(policy, online, interval), Online, "{policy:?}");
            assert_eq!(at(policy, online + 1, interval), Stale, "{policy:?}");
            assert_eq!(at(policy, stale, interval), Stale, "{policy:?}");
            assert_eq!(at(policy, stale + 1, interval), Offline, "{policy:?}");
        }
    }

    #[test]
    fn the_future_is_now_and_silence_is_unknown() {
        assert_eq!(Policy::Usual.judge(0, Some(i64::MAX), None), Online);
        assert_eq!(Policy::Usual.judge(i64::MAX, Some(i64::MIN), Some(i64::MAX)), Offline);
        assert_eq!(Policy::Observed.judge(i64::MAX, Some(i64::MIN), Some(i64::MAX)), Stale);
        assert_eq!(Policy::Usual.judge(0, None, None), Liveness::Unknown);
    }
}
