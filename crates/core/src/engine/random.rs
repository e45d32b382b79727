//! Seeded randomness: the engine uses no other source.

use crate::{Jitter, Nonce};

/// SplitMix64: good enough for jitter, and to derive the nonces of a process from 128 random bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SplitMix64 {
    state: u64,
    high: u64,
}

impl SplitMix64 {
    pub(super) fn new(seed: u128) -> Self {
        Self { state: seed as u64, high: (seed >> 64) as u64 }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn jitter(&mut self) -> Jitter {
        Jitter((self.next() >> 48) as u16)
    }

    /// Draws a nonce. It contains the high half of the seed, so no other seed gives the same nonce.
    pub(super) fn nonce(&mut self) -> Nonce {
        let low = self.next();
        Nonce::from_entropy(u128::from(self.high ^ low.rotate_left(7)) << 64 | u128::from(low))
    }
}
