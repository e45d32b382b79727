//! FNV-1a with 64 bits: small, and fixed for ever.

/// A running hash. Good enough to notice a difference; as a score it needs a finaliser.
#[derive(Clone, Copy)]
pub(crate) struct Fnv(pub(crate) u64);

impl Fnv {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes as they are.
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self
    }

    /// Adds a field and its length, so that two fields never run into each other.
    pub(crate) fn field(&mut self, bytes: &[u8]) {
        *self = self.bytes(bytes).bytes(&(bytes.len() as u64).to_le_bytes());
    }
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
