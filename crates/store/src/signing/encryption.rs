//! Encryption of checkpoints: XChaCha20-Poly1305 with random nonces.
//!
//! The tag covers the key's id, the duty, epoch, version, the signature of the previous version,
//! the source or target of a move, and the instance (R14). So a ciphertext cannot be decrypted
//! under another duty, version or epoch.
//!
//! Why: docs/decisions/0051-checkpoints-are-encrypted-then-signed.md

use std::fmt;

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use tenure_core::{CipherNonce, StoreResult};

use super::keys::{bad, id_and_secret, read_all};

/// Name in place of a key: new checkpoints are not encrypted.
const NONE: &str = "none";

struct EncryptionKey {
    id: String,
    encrypts: bool,
    /// `None` for the entry that stands for no key.
    secret: Option<Key>,
}

/// Encryption keys by id: one encrypts, all decrypt. Prints without secrets.
pub struct EncryptionKeys {
    keys: Vec<EncryptionKey>,
    /// Index of the key that encrypts.
    encryptor: usize,
    /// Source of 128 bits per call, of which at least 120 are random.
    entropy: fn() -> u128,
}

impl EncryptionKeys {
    /// Reads `ID encrypt|decrypt HEX`, one key per line or separated by commas. Empty lines and
    /// lines that begin with `#` are ignored. `none encrypt` stands for no encryption of new
    /// checkpoints. Nonces are made of `entropy`, 128 random bits per call.
    pub fn parse(text: &str, entropy: fn() -> u128) -> StoreResult<Self> {
        let keys = read_all("encryption key", text, read, |key| &key.id)?;
        let mut encryptors = keys.iter().enumerate().filter(|(_, key)| key.encrypts);
        match (encryptors.next().map(|(at, _)| at), encryptors.next()) {
            (Some(encryptor), None) => Ok(Self { keys, encryptor, entropy }),
            (None, _) => Err(bad("no encryption key is marked encrypt")),
            (Some(_), Some(_)) => Err(bad("more than one encryption key is marked encrypt")),
        }
    }

    /// The id of the key that encrypts; `None` if new checkpoints are not encrypted.
    pub fn encryptor(&self) -> Option<&str> {
        let key = &self.keys[self.encryptor];
        key.secret.as_ref().map(|_| key.id.as_str())
    }

    fn cipher(&self, id: &str) -> Option<XChaCha20Poly1305> {
        let key = self.keys.iter().find(|key| key.id == id)?;
        key.secret.as_ref().map(XChaCha20Poly1305::new)
    }

    /// Whether the key with this id can decrypt.
    pub(super) fn knows(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.id == id && key.secret.is_some())
    }

    /// Returns a nonce for one encryption.
    pub(super) fn nonce(&self) -> CipherNonce {
        let mut nonce = [0; 24];
        nonce[..16].copy_from_slice(&(self.entropy)().to_be_bytes());
        // Of a UUID, these bytes have more random bits than the first ones.
        nonce[16..].copy_from_slice(&(self.entropy)().to_be_bytes()[8..]);
        CipherNonce(nonce)
    }

    /// Encrypts a payload. `None` only if the payload is too long for the cipher.
    pub(super) fn encrypt(
        &self,
        id: &str,
        nonce: &CipherNonce,
        bound: &[u8],
        payload: &[u8],
    ) -> Option<Vec<u8>> {
        let payload = Payload { msg: payload, aad: bound };
        self.cipher(id)?.encrypt(&XNonce::from(nonce.0), payload).ok()
    }

    /// Decrypts a payload; `None` if the key is unknown, or anything was changed.
    pub(super) fn decrypt(
        &self,
        id: &str,
        nonce: &CipherNonce,
        bound: &[u8],
        payload: &[u8],
    ) -> Option<Vec<u8>> {
        let payload = Payload { msg: payload, aad: bound };
        self.cipher(id)?.decrypt(&XNonce::from(nonce.0), payload).ok()
    }
}

/// Prints ids, which are not secret and help to find mistakes, but never the secrets.
impl fmt::Debug for EncryptionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let may = |key: &EncryptionKey| if key.encrypts { "encrypt" } else { "decrypt" };
        f.debug_map().entries(self.keys.iter().map(|key| (&key.id, may(key)))).finish()
    }
}

/// Reads one key. An error repeats no word of the input, which may be the secret.
fn read(line: &str) -> Result<EncryptionKey, &'static str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (id, encrypts, secret) = match words[..] {
        [NONE, "encrypt"] => {
            return Ok(EncryptionKey { id: NONE.to_owned(), encrypts: true, secret: None });
        }
        [NONE, ..] => return Err("the id none has no secret: expected `none encrypt`"),
        [id, "encrypt", secret] => (id, true, secret),
        [id, "decrypt", secret] => (id, false, secret),
        _ => return Err("expected `ID encrypt|decrypt HEX`"),
    };
    let (id, secret) = id_and_secret(id, secret)?;
    let secret = Key::try_from(&secret[..]).map_err(|_| "its secret is not 32 bytes long")?;
    Ok(EncryptionKey { id, encrypts, secret: Some(secret) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::Code;

    const HEX: &str = "5ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7";

    fn parse(text: &str) -> StoreResult<EncryptionKeys> {
        EncryptionKeys::parse(&text.replace("HEX", HEX), || 7)
    }

    #[test]
    fn one_key_encrypts_and_all_decrypt() {
        let keys = parse("# new\nb encrypt HEX\n\na decrypt HEX, c decrypt HEX").unwrap();
        assert_eq!(keys.encryptor(), Some("b"));
        assert_eq!(["a", "b", "c", "d"].map(|id| keys.knows(id)), [true, true, true, false]);
        let shown = format!("{keys:?}");
        assert!(shown.contains("\"a\": \"decrypt\"") && !shown.contains("5ec7e7"), "{shown}");
        let none = parse("none encrypt\na decrypt HEX").unwrap();
        assert_eq!((none.encryptor(), none.knows("none")), (None, false));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        for (text, says) in [
            ("", "no encryption key is marked encrypt"),
            ("a decrypt HEX", "no encryption key is marked encrypt"),
            ("a encrypt HEX,b encrypt HEX", "more than one"),
            ("a encrypt HEX,none encrypt", "more than one"),
            ("a encrypt HEX\na decrypt HEX", "encryption key 2: its id appears twice"),
            ("a sign HEX", "expected `ID encrypt|decrypt HEX`"),
            ("a HEX", "expected `ID encrypt|decrypt HEX`"),
            ("HEX", "expected `ID encrypt|decrypt HEX`"),
            ("none encrypt HEX", "none has no secret"),
            ("none decrypt HEX", "none has no secret"),
            ("a/b encrypt HEX", "an id has 1 to 64 characters"),
            ("a encrypt HEXe7", "not 32 bytes"),
            ("a encrypt 5ec7e7", "not 32 bytes"),
            ("a encrypt HEXzz", "not hexadecimal"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.code(), Code::BadKeys, "{text}");
            let shown = error.to_string();
            assert!(shown.contains(says) && !shown.contains("5ec7e7"), "{text}: {shown}");
        }
    }

    #[test]
    fn a_nonce_takes_all_random_bits() {
        let keys = EncryptionKeys::parse(&format!("k encrypt {HEX}"), || u128::MAX / 255).unwrap();
        assert_eq!(keys.nonce(), CipherNonce([1; 24]));
    }
}
