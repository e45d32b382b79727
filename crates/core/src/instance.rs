//! Identity of a process.

use std::fmt;

use crate::{Code, InstanceId, StoreError};

/// A unique 128-bit number: it distinguishes processes, or sessions, that have the same name (R3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(u128);

impl Nonce {
    /// Creates a version 4 UUID from the caller's entropy.
    pub const fn from_entropy(entropy: u128) -> Self {
        let version = entropy & !(0xf << 76) | (0x4 << 76);
        Self(version & !(0b11 << 62) | (0b10 << 62))
    }

    /// Parses the form that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        match u128::from_str_radix(&digits, 16) {
            Ok(bits) if digits.len() == 32 => Ok(Self(bits)),
            _ => Err(StoreError::refused(Code::Damaged, format!("{text:?} is not a UUID"))),
        }
    }

    /// Returns the bits, for stores with a UUID column type.
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

/// Displays as a UUID: 8-4-4-4-12 lower-case hex digits.
impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = self.0;
        let (low, d, c) = (b & 0xffff_ffff_ffff, b >> 48 & 0xffff, b >> 64 & 0xffff);
        write!(f, "{:08x}-{:04x}-{c:04x}-{d:04x}-{low:012x}", b >> 96, b >> 80 & 0xffff)
    }
}

/// One process, from start to exit: a readable id and a UUID, generated together.
///
/// It is neither `Clone` nor `Default`: a process creates one and lends it. The id is never given
/// to another process, and no setting can replace it.
#[derive(Debug, PartialEq, Eq)]
pub struct Instance {
    id: InstanceId,
    uuid: Nonce,
}

impl Instance {
    /// Creates the identity `hostname-bootUnixNanos-8hex` from the host name, the wall clock at the
    /// start of the process, and 128 random bits.
    pub fn mint(hostname: &str, boot_unix_nanos: u128, entropy: u128) -> Self {
        let tag = (Nonce::from_entropy(entropy).0 >> 96) as u32;
        Self::mint_tagged(hostname, boot_unix_nanos, tag, entropy)
    }

    /// Creates an identity whose id ends in `tag` instead of random bits: the first bytes of its
    /// public key.
    pub fn mint_tagged(hostname: &str, boot_unix_nanos: u128, tag: u32, entropy: u128) -> Self {
        let uuid = Nonce::from_entropy(entropy);
        let host: String = hostname
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '-' })
            .take(253)
            .collect();
        let host = if host.is_empty() { "host".to_owned() } else { host };
        let text = format!("{host}-{boot_unix_nanos}-{tag:08x}");
        // At most 253 + 39 + 8 + 2 bytes of letters, digits, dots and dashes: always a valid id.
        #[expect(clippy::expect_used)]
        let id = InstanceId::new(text).expect("a minted id is valid");
        Self { id, uuid }
    }

    /// Returns the readable id, in the form of the poll-lease layout.
    pub fn id(&self) -> &InstanceId {
        &self.id
    }

    /// Returns the UUID, as in heartbeats.
    pub fn uuid(&self) -> Nonce {
        self.uuid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minted_id_is_readable_and_has_a_uuid() {
        let entropy = 0xa1b2_c3d4_0000_0000_0000_0000_0000_0001;
        let instance = Instance::mint("api-7fd8c9", 1_736_598_400_000_000_000, entropy);
        assert_eq!(instance.id().as_str(), "api-7fd8c9-1736598400000000000-a1b2c3d4");
        assert_eq!(instance.uuid().to_string(), "a1b2c3d4-0000-4000-8000-000000000001");
    }

    #[test]
    fn a_tag_stands_in_the_place_of_random_bits() {
        let instance = Instance::mint_tagged("api", 7, 0x0a0b_0c0d, u128::MAX);
        assert_eq!(instance.id().as_str(), "api-7-0a0b0c0d");
        assert!(instance.uuid().to_string().starts_with("ffffffff"));
    }

    #[test]
    fn any_hostname_gives_a_plain_id() {
        for host in ["", "bücher:/ {}", &"h".repeat(1000)] {
            let id = Instance::mint(host, u128::MAX, u128::MAX).id().clone();
            assert_eq!(id.escaped(), id.as_str());
        }
    }

    #[test]
    fn a_nonce_round_trips_and_refuses_other_text() {
        let nonce = Nonce::from_entropy(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(Nonce::parse(&nonce.to_string()).unwrap(), nonce);
        for bad in ["", "12", "g1b2c3d4-0000-4000-8000-000000000001"] {
            assert_eq!(Nonce::parse(bad).unwrap_err().code(), Code::Damaged);
        }
    }
}
