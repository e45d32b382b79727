//! Signing keys by id, with their permitted use.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac as _};
use sha2::Sha256;
use tenure_core::{Code, Mac, StoreError, StoreResult};

/// Use of a key. In a rotation, a key is first `Verify` everywhere, then `Sign`, then `Verify`
/// again, and finally `Retired`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// It signs; exactly one key does.
    Sign,
    /// Its signatures are valid.
    Verify,
    /// Its signatures are no longer valid.
    Retired,
}

struct SigningKey {
    id: String,
    may: KeyUse,
    secret: Vec<u8>,
}

/// The keys of a store's users. Prints without secrets.
pub struct Keyring {
    keys: Vec<SigningKey>,
    /// Index of the key that signs.
    signer: usize,
}

impl Keyring {
    /// The shortest secret.
    pub const MIN_BYTES: usize = 32;

    /// The longest id.
    pub const MAX_ID: usize = 64;

    /// Reads `ID sign|verify|retired HEX`, one key per line or separated by commas. Empty lines and
    /// lines that begin with `#` are ignored. A retired key needs no secret.
    pub fn parse(text: &str) -> StoreResult<Self> {
        let keys = read_all("key", text, read, |key| &key.id)?;
        let mut signers = keys.iter().enumerate().filter(|(_, key)| key.may == KeyUse::Sign);
        match (signers.next().map(|(at, _)| at), signers.next()) {
            (Some(signer), None) => Ok(Self { keys, signer }),
            (None, _) => Err(bad("no key is marked sign")),
            (Some(_), Some(_)) => Err(bad("more than one key is marked sign")),
        }
    }

    /// The id of the key that signs.
    pub fn signer(&self) -> &str {
        &self.keys[self.signer].id
    }

    /// Returns the use of the key with this id; `None` when the key is unknown.
    pub fn find(&self, id: &str) -> Option<KeyUse> {
        self.key(id).map(|key| key.may)
    }

    fn key(&self, id: &str) -> Option<&SigningKey> {
        self.keys.iter().find(|key| key.id == id)
    }

    /// Signs with the key that signs.
    pub(super) fn sign(&self, message: &[&[u8]]) -> Mac {
        let mac = keyed(&self.keys[self.signer], message).finalize();
        Mac(mac.into_bytes().into())
    }

    /// Whether `mac` is the signature of the message by the key with this id, in constant time.
    pub(super) fn verifies(&self, id: &str, message: &[&[u8]], mac: &Mac) -> bool {
        self.key(id).is_some_and(|key| keyed(key, message).verify_slice(&mac.0).is_ok())
    }
}

fn keyed(key: &SigningKey, message: &[&[u8]]) -> Hmac<Sha256> {
    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
    let mut hmac = Hmac::new_from_slice(&key.secret).expect("HMAC takes a key of any length");
    message.iter().for_each(|part| hmac.update(part));
    hmac
}

/// Prints ids, which are not secret and help to find mistakes, but never the secrets.
impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.keys.iter().map(|key| (&key.id, key.may));
        f.debug_map().entries(keys).finish()
    }
}

pub(super) fn bad(detail: &str) -> StoreError {
    StoreError::refused(Code::BadKeys, detail)
}

/// Reads keys, one per line or separated by commas. `what` names a key in errors, which repeat no
/// word of the text: it has secrets.
pub(super) fn read_all<K>(
    what: &str,
    text: &str,
    read: impl Fn(&str) -> Result<K, &'static str>,
    id: impl Fn(&K) -> &str,
) -> StoreResult<Vec<K>> {
    let mut keys: Vec<K> = Vec::new();
    let lines = text.split(['\n', ',']).map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    for (n, line) in lines.enumerate() {
        let key = read(line).map_err(|why| bad(&format!("{what} {}: {why}", n + 1)))?;
        if keys.iter().any(|known| id(known) == id(&key)) {
            return Err(bad(&format!("{what} {}: its id appears twice", n + 1)));
        }
        keys.push(key);
    }
    Ok(keys)
}

/// Checks the id of a key, and decodes its secret.
pub(super) fn id_and_secret(id: &str, secret: &str) -> Result<(String, Vec<u8>), &'static str> {
    let secret = hex::decode(secret).map_err(|_| "its secret is not hexadecimal")?;
    Ok((id_of(id)?, secret))
}

/// Checks the id of a key.
pub(super) fn id_of(id: &str) -> Result<String, &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:@".contains(c);
    if id.len() > Keyring::MAX_ID || !id.chars().all(plain) {
        return Err("an id has 1 to 64 characters of A-Z, a-z, 0-9 and -._:@");
    }
    Ok(id.to_owned())
}

/// Reads one key. An error repeats no word of the input, which may be the secret.
fn read(line: &str) -> Result<SigningKey, &'static str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (id, may, secret) = match words[..] {
        [id, "retired"] => (id, KeyUse::Retired, ""),
        [id, "retired", secret] => (id, KeyUse::Retired, secret),
        [id, "sign", secret] => (id, KeyUse::Sign, secret),
        [id, "verify", secret] => (id, KeyUse::Verify, secret),
        _ => return Err("expected `ID sign|verify|retired HEX`"),
    };
    let (id, secret) = id_and_secret(id, secret)?;
    if may != KeyUse::Retired && secret.len() < Keyring::MIN_BYTES {
        return Err("its secret is shorter than 32 bytes");
    }
    Ok(SigningKey { id, may, secret })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "5ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7";

    #[test]
    fn keys_are_read_from_lines_or_commas() {
        for separator in ["\n", ",", " , ", "\n\n# older\n"] {
            let text = format!("b sign {HEX}{separator}a verify {HEX}{separator}c retired");
            let keys = Keyring::parse(&text).unwrap();
            assert_eq!(keys.signer(), "b");
            assert_eq!(keys.find("a"), Some(KeyUse::Verify));
            assert_eq!(keys.find("c"), Some(KeyUse::Retired));
            assert_eq!(keys.find("d"), None);
            assert!(!format!("{keys:?}").contains("5ec7e7"), "{keys:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        for bad in [
            String::new(),
            format!("a verify {HEX}"),
            format!("a sign {HEX},b sign {HEX}"),
            format!("a sign {HEX},a verify {HEX}"),
            format!("a {HEX}"),
            HEX.to_owned(),
            format!("a/b sign {HEX}"),
            format!("a sign {}", &HEX[2..]),
            format!("a sign {HEX}zz"),
        ] {
            let error = Keyring::parse(&bad).unwrap_err();
            assert_eq!(error.code(), Code::BadKeys, "{bad}");
            assert!(!error.to_string().contains("5ec7e7"), "{error}");
        }
    }
}
