//! FNV-1a hash with 64 bits. Its values are part of stored and shared state: they never change.

/// A running hash. It detects differences; a score or an offset needs [`Fnv::mixed`].
#[derive(Clone, Copy)]
pub struct Fnv(pub(crate) u64);

impl Fnv {
    /// Returns the hash of no bytes.
    #[must_use]
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes without a length.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self
    }

    /// Returns the hash with every input bit spread over all output bits.
    #[must_use]
    pub fn mixed(self) -> u64 {
        finalise(self.0)
    }

    /// Adds a field and its length, so that adjacent fields cannot be confused.
    pub(crate) fn field(&mut self, bytes: &[u8]) {
        *self = self.bytes(bytes).bytes(&(bytes.len() as u64).to_le_bytes());
    }
}

impl Default for Fnv {
    fn default() -> Self {
        Self::new()
    }
}

/// Applies the finaliser of MurmurHash3: every input bit changes half of the output bits. Without
/// it, names that differ in their last byte have similar FNV hashes.
pub(crate) fn finalise(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors_hold() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(Fnv::new().bytes(text.as_bytes()).0, hash, "{text}");
        }
    }
}
