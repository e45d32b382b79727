//! Tokens: format, stored digest and roles.
//!
//! A token is `sw_live_` and 32 characters of base62, more than 190 random bits. Only its SHA-256
//! is stored, which is also the lookup key; with so many random bits it needs no salt.
//!
//! Why: docs/decisions/0040-tokens-are-checked-in-the-commit.md

use std::fmt;
use std::time::Duration;

use sha2::{Digest, Sha256};

/// Base62, in the order of ASCII.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const SECRET_LENGTH: usize = 32;
/// Length of a token id after `tok_`.
const ID_LENGTH: usize = 16;
const PREFIX: &str = "sw_";
const ID_PREFIX: &str = "tok_";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

tenure_core::text_enum! {
    /// Environment of a token. It is part of the token's text and sets its default lifetime.
    pub enum Environment {
        Live "live" "Production: 90 days."
        Staging "staging" "Staging: 30 days."
        Dev "dev" "A development machine: 7 days."
    }
}

impl Environment {
    /// Returns the default lifetime of a token.
    pub const fn lifetime(self) -> Duration {
        let days = match self {
            Self::Live => 90,
            Self::Staging => 30,
            Self::Dev => 7,
        };
        DAY.saturating_mul(days)
    }
}

tenure_core::text_enum! {
    /// Permission of a token.
    pub enum Role {
        Ingest "ingest" "Submit events and dead letters of one source: its scope."
        Read "read" "Read everything, or with a scope the messages and connectors of one source."
        Admin "admin" "Like `read`, and may resolve dead letters, reset fences and edit connectors."
        Consume "consume" "Like `read`, and may report outcomes of messages."
    }
}

impl Role {
    /// Returns whether this role includes the needed one. An admin may read, but not submit, which
    /// requires a scope.
    pub fn allows(self, needed: Self) -> bool {
        self == needed || (needed == Self::Read && matches!(self, Self::Admin | Self::Consume))
    }
}

/// Returns whether one of the stored roles of a token includes the needed one.
pub fn allowed(roles: &[String], needed: Role) -> bool {
    roles.iter().filter_map(|role| Role::parse(role)).any(|role| role.allows(needed))
}

/// Text of a token. `Debug` does not print it.
pub struct Secret(String);

impl Secret {
    /// Returns the text, to be shown once to the operator who created the token.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the digest that is stored.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(&self.0).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A new token.
#[derive(Debug)]
pub struct Minted {
    /// `tok_` and 16 characters; independent of the secret.
    pub token_id: String,
    /// The token itself.
    pub secret: Secret,
}

/// Creates a token. Each call of the entropy source returns 128 bits, all random except the six
/// that mark a version 4 UUID; it is called as often as needed.
pub fn mint(environment: Environment, entropy: impl FnMut() -> u128) -> Minted {
    let mut random = RandomBytes { entropy, left: Vec::new() };
    let token_id = format!("{ID_PREFIX}{}", random.base62(ID_LENGTH));
    let secret = format!("{PREFIX}{}_{}", environment.as_str(), random.base62(SECRET_LENGTH));
    Minted { token_id, secret: Secret(secret) }
}

/// Returns the digest of a token; `None` if the text is not a token.
pub fn digest(text: &str) -> Option<[u8; 32]> {
    let (environment, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    Environment::parse(environment)?;
    is_base62(secret, SECRET_LENGTH).then(|| Sha256::digest(text).into())
}

/// Returns whether a text has the form of a token id.
pub fn is_id(text: &str) -> bool {
    text.strip_prefix(ID_PREFIX).is_some_and(|id| is_base62(id, ID_LENGTH))
}

fn is_base62(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

struct RandomBytes<F> {
    entropy: F,
    left: Vec<u8>,
}

impl<F: FnMut() -> u128> RandomBytes<F> {
    fn byte(&mut self) -> u8 {
        loop {
            if let Some(byte) = self.left.pop() {
                return byte;
            }
            let bytes = (self.entropy)().to_be_bytes();
            // These two bytes contain the version and variant of a UUID.
            let random = bytes.iter().enumerate().filter(|(n, _)| ![6, 8].contains(n));
            self.left.extend(random.map(|(_, byte)| *byte));
        }
    }

    /// Returns characters of equal probability: bytes above the last multiple of 62 are not used.
    fn base62(&mut self, length: usize) -> String {
        let bytes = std::iter::repeat_with(|| usize::from(self.byte()));
        let even = bytes.filter(|byte| *byte < 256 / ALPHABET.len() * ALPHABET.len());
        even.take(length).map(|byte| char::from(ALPHABET[byte % ALPHABET.len()])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every byte in turn, including those of the UUID version and variant.
    fn counting() -> impl FnMut() -> u128 {
        let mut next = 0u8;
        move || {
            u128::from_be_bytes(std::array::from_fn(|_| {
                next = next.wrapping_add(1);
                next
            }))
        }
    }

    #[test]
    fn a_token_has_its_form_and_its_digest() {
        for &environment in Environment::ALL {
            let Minted { token_id, secret } = mint(environment, tenure_duty::process::entropy);
            assert!(is_id(&token_id), "{token_id}");
            let text = secret.reveal();
            assert!(text.starts_with(&format!("sw_{}_", environment.as_str())));
            assert_eq!(text.rsplit('_').next().unwrap().len(), 32);
            assert_eq!(digest(text), Some(secret.digest()));
        }
        let token = format!("sw_dev_{}", "a".repeat(32));
        let hex: String = digest(&token).unwrap().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "fd4cae0a5943987f121d22eb90d50a23e4f2a2a944031caa393f04d3483b2d59");
    }

    #[test]
    fn what_cannot_be_a_token_has_no_digest() {
        let secret = "a".repeat(32);
        for text in [
            String::new(),
            secret.clone(),
            format!("sw_{secret}"),
            format!("sw_prod_{secret}"),
            format!("sw_Live_{secret}"),
            format!("sw_live_{secret}a"),
            format!("sw_live_{}", &secret[1..]),
            format!("sw_live_{}-", &secret[1..]),
            format!("sw_live_{}_", &secret[1..]),
            format!("sw_live_{}é", &secret[2..]),
            format!(" sw_live_{secret}"),
            format!("sw_live_{secret}\n"),
        ] {
            assert_eq!(digest(&text), None, "{text:?}");
        }
        for id in ["", "tok_", "tok_aaaaaaaaaaaaaaa", "tok_aaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaa"] {
            assert!(!is_id(id), "{id}");
        }
    }

    #[test]
    fn no_two_are_alike_and_the_id_tells_nothing() {
        let one = mint(Environment::Live, tenure_duty::process::entropy);
        let other = mint(Environment::Live, tenure_duty::process::entropy);
        assert_ne!(one.secret.reveal(), other.secret.reveal());
        assert_ne!(one.token_id, other.token_id);
        let id = one.token_id.strip_prefix("tok_").unwrap();
        assert!(!one.secret.reveal().contains(id));
    }

    #[test]
    fn every_character_has_the_same_chance_and_marked_bits_are_left_out() {
        let mut random = RandomBytes { entropy: counting(), left: Vec::new() };
        // 16 calls return each byte once, except the two of each call that are not random.
        let bytes: Vec<u8> = (0..16 * 14).map(|_| random.byte()).collect();
        let mut sorted = bytes.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 16 * 14);
        assert!(bytes.iter().all(|byte| ![7, 9].contains(&(byte % 16))), "{bytes:?}");
        // 248 byte values map to four for each character; the eight above them are skipped.
        let mut counts = [0; 128];
        for first in 0..=u8::MAX {
            let mut calls = [[first; 16], [0; 16]].into_iter();
            let entropy = || u128::from_be_bytes(calls.next().unwrap());
            let drawn = RandomBytes { entropy, left: Vec::new() }.base62(1).as_bytes()[0];
            match first {
                248.. => assert_eq!(drawn, ALPHABET[0], "{first}"),
                _ => counts[usize::from(drawn)] += 1,
            }
        }
        assert!(ALPHABET.iter().all(|character| counts[usize::from(*character)] == 4));
    }

    #[test]
    fn a_secret_does_not_print_itself() {
        let minted = mint(Environment::Dev, tenure_duty::process::entropy);
        let printed = format!("{minted:?} {minted:#?}");
        let secret = minted.secret.reveal().rsplit('_').next().unwrap();
        assert!(!printed.contains(secret) && printed.contains(&minted.token_id), "{printed}");
    }

    #[test]
    fn environments_and_roles_are_what_they_are_called() {
        for (name, days) in [("live", 90), ("staging", 30), ("dev", 7)] {
            let environment = Environment::parse(name).unwrap();
            assert_eq!((environment.as_str(), environment.lifetime()), (name, DAY * days));
        }
        assert_eq!((Environment::parse("prod"), Role::parse("root")), (None, None));
        for (role, may) in [
            (Role::Ingest, &[Role::Ingest][..]),
            (Role::Read, &[Role::Read]),
            (Role::Admin, &[Role::Read, Role::Admin]),
        ] {
            assert_eq!(Role::parse(role.as_str()), Some(role));
            let allows: Vec<Role> = Role::ALL.iter().copied().filter(|r| role.allows(*r)).collect();
            assert_eq!(allows, may, "{role:?}");
            assert_eq!(allowed(&[role.as_str().to_owned()], Role::Read), may.contains(&Role::Read));
        }
        assert!(!allowed(&["Read".to_owned(), String::new()], Role::Read));
    }
}
