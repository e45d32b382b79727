//! Seal before a checkpoint's payload: its signature, its encryption, its writer, and the store
//! that it was moved to.
//!
//! The seal is one line of text, so that a person who looks into the store can read it:
//!
//! ```text
//! tenure-seal:1 key=2026-11 mac=<64 hex> prev=<64 hex> enc=2026-11 nonce=<48 hex>\n<payload>
//! ```
//!
//! A payload without such a line has an empty seal. A payload that begins like a seal cannot be
//! stored: later it could be mistaken for one.

use std::fmt;
use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{Code, Document, StoreError};

const MAGIC: &str = "tenure-seal:1";

/// Characters that a field keeps unescaped.
const FIELD: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b':').remove(b'/').remove(b'@');

/// A message authentication code: HMAC-SHA-256.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mac(pub [u8; 32]);

impl Mac {
    /// Placeholder before the first signature.
    pub const NONE: Self = Self([0; 32]);

    /// Parses 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        bytes(text).map(Self)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        digits(&self.0, f)
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mac({self})")
    }
}

/// Random number of one encryption: XChaCha20-Poly1305 takes 192 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CipherNonce(pub [u8; 24]);

impl CipherNonce {
    /// Parses 48 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        bytes(text).map(Self)
    }
}

impl fmt::Display for CipherNonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        digits(&self.0, f)
    }
}

/// Public key of an instance: Ed25519.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// Parses 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        bytes(text).map(Self)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        digits(&self.0, f)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// Signature by an instance: Ed25519.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentitySignature(pub [u8; 64]);

impl IdentitySignature {
    /// Parses 128 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        bytes(text).map(Self)
    }
}

impl fmt::Display for IdentitySignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        digits(&self.0, f)
    }
}

/// Parses lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 2 * N || !text.bytes().all(digit) {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..text.len()).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

fn digits(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Destination of a moved checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The other store, without a password.
    pub to: String,
    /// False while the move is in progress: neither side may continue before it is finished.
    pub done: bool,
}

/// Parsed seal line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seal {
    /// The key and the signature.
    pub signed: Option<(String, Mac)>,
    /// The signature of the previous version; [`Mac::NONE`] if there is none.
    pub prev: Option<Mac>,
    /// The key and the nonce of an encrypted payload.
    pub encrypted: Option<(String, CipherNonce)>,
    /// The identity of the instance that wrote it, and its signature.
    pub writer: Option<(PublicKey, IdentitySignature)>,
    /// Destination of a move: the checkpoint must no longer be used here.
    pub moved: Option<Moved>,
    /// Source store and version of a move; set only on the version that the move wrote.
    pub origin: Option<String>,
}

impl Seal {
    /// The longest line, together with the tag of an encrypted payload.
    pub const MAX_SEAL_BYTES: usize = 2048;

    /// Bytes by which an encrypted payload is longer: the tag of Poly1305.
    pub const TAG_BYTES: usize = 16;

    /// Returns the fields that are set, by name, in the order in which they are written.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = Vec::new();
        if let Some((key, mac)) = &self.signed {
            fields.extend([("key", key.clone()), ("mac", mac.to_string())]);
        }
        if let Some(prev) = &self.prev {
            fields.push(("prev", prev.to_string()));
        }
        if let Some((key, nonce)) = &self.encrypted {
            fields.extend([("enc", key.clone()), ("nonce", nonce.to_string())]);
        }
        if let Some((by, signature)) = &self.writer {
            fields.extend([("by", by.to_string()), ("sig", signature.to_string())]);
        }
        if let Some(moved) = &self.moved {
            fields.push((if moved.done { "moved" } else { "moving" }, moved.to.clone()));
        }
        if let Some(origin) = &self.origin {
            fields.push(("from", origin.clone()));
        }
        fields
    }

    /// Rebuilds a seal from [`Seal::fields`]; `None` when they are inconsistent. No value may be
    /// empty, because an empty value is signed like a missing one.
    pub fn from_fields<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<Self> {
        let (mut key, mut mac, mut seal) = (None, None, Self::default());
        let (mut cipher_key, mut nonce, mut by, mut signature) = (None, None, None, None);
        for (name, value) in fields {
            let moved = |done| Some(Moved { to: value.to_owned(), done });
            match name {
                _ if value.is_empty() => return None,
                "key" if key.is_none() => key = Some(value.to_owned()),
                "mac" if mac.is_none() => mac = Some(Mac::parse(value)?),
                "prev" if seal.prev.is_none() => seal.prev = Some(Mac::parse(value)?),
                "enc" if cipher_key.is_none() => cipher_key = Some(value.to_owned()),
                "nonce" if nonce.is_none() => nonce = Some(CipherNonce::parse(value)?),
                "by" if by.is_none() => by = Some(PublicKey::parse(value)?),
                "sig" if signature.is_none() => signature = Some(IdentitySignature::parse(value)?),
                "moved" if seal.moved.is_none() => seal.moved = moved(true),
                "moving" if seal.moved.is_none() => seal.moved = moved(false),
                "from" if seal.origin.is_none() => seal.origin = Some(value.to_owned()),
                _ => return None,
            }
        }
        seal.signed = both(key, mac)?;
        seal.encrypted = both(cipher_key, nonce)?;
        seal.writer = both(by, signature)?;
        Some(seal)
    }

    /// Splits a stored document into seal and payload.
    pub fn split(document: &Document) -> Result<(Self, &[u8]), StoreError> {
        let bytes = document.as_bytes();
        let Some(rest) = bytes.strip_prefix(MAGIC.as_bytes()) else {
            return Ok((Self::default(), bytes));
        };
        let damaged = || StoreError::refused(Code::Damaged, "a checkpoint's seal cannot be read");
        let end = rest.iter().take(Self::MAX_SEAL_BYTES).position(|byte| *byte == b'\n');
        let end = end.ok_or_else(damaged)?;
        let line = std::str::from_utf8(&rest[..end]).map_err(|_| damaged())?;
        let mut fields = Vec::new();
        for word in line.split(' ').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').ok_or_else(damaged)?;
            let value = percent_decode_str(value).decode_utf8().map_err(|_| damaged())?;
            fields.push((name, value.into_owned()));
        }
        let fields = fields.iter().map(|(name, value)| (*name, value.as_str()));
        let seal = Self::from_fields(fields).ok_or_else(damaged)?;
        // A seal has exactly one spelling; otherwise a byte of it could change unnoticed.
        if seal.line().as_bytes() != &bytes[..MAGIC.len() + end + 1] {
            return Err(damaged());
        }
        Ok((seal, &rest[end + 1..]))
    }

    /// Prepends the seal to a payload. An encrypted one may be longer by its tag.
    pub fn join(&self, payload: &[u8]) -> Result<Document, StoreError> {
        if payload.starts_with(MAGIC.as_bytes()) {
            let detail = format!("a document must not begin with {MAGIC}");
            return Err(StoreError::refused(Code::BadInput, detail));
        }
        let tag = self.encrypted.as_ref().map_or(0, |_| Self::TAG_BYTES);
        if *self == Self::default() || payload.len() > Document::MAX_DOCUMENT_BYTES + tag {
            return Document::new(payload);
        }
        if self.fields().iter().any(|(_, value)| value.is_empty()) {
            return Err(StoreError::refused(Code::BadInput, "a key id or URL is empty"));
        }
        let line = self.line();
        if line.len() + tag > Self::MAX_SEAL_BYTES {
            return Err(StoreError::refused(Code::BadInput, "a key id or URL is too long"));
        }
        Document::from_store([line.as_bytes(), payload].concat())
    }

    fn line(&self) -> String {
        let mut line = MAGIC.to_owned();
        for (name, value) in self.fields() {
            // Writing into a string cannot fail.
            let _ = write!(line, " {name}={}", utf8_percent_encode(&value, FIELD));
        }
        line.push('\n');
        line
    }
}

/// Returns two fields that belong together; `None` if one of them is missing.
fn both<A, B>(one: Option<A>, other: Option<B>) -> Option<Option<(A, B)>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(Some((one, other))),
        (None, None) => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seal() -> Seal {
        Seal {
            signed: Some(("k 1".to_owned(), Mac([7; 32]))),
            prev: Some(Mac::NONE),
            encrypted: None,
            writer: None,
            moved: Some(Moved { to: "postgres://h/db?schema=a b".to_owned(), done: false }),
            origin: None,
        }
    }

    #[test]
    fn a_seal_is_a_line_that_people_can_read() {
        let document = seal().join(b"{}").unwrap();
        let text = String::from_utf8(document.as_bytes().to_vec()).unwrap();
        let start = format!("tenure-seal:1 key=k%201 mac={} prev=0000", "07".repeat(32));
        assert!(text.starts_with(&start), "{text}");
        assert!(text.ends_with(" moving=postgres://h/db%3Fschema%3Da%20b\n{}"), "{text}");
        assert_eq!(Seal::split(&document).unwrap(), (seal(), &b"{}"[..]));
    }

    #[test]
    fn what_could_be_taken_for_a_seal_is_refused() {
        let error = Seal::default().join(b"tenure-seal:1 \nx").unwrap_err();
        assert_eq!(error.code(), Code::BadInput);
        let broken: &[&str] = &["", " x\n", " mac=00\n", " key=a\n", " moved=a moved=b\n", "  \n"];
        let nonce = format!(" nonce={}\n", "07".repeat(24));
        let broken =
            broken.iter().copied().chain([" enc=a\n", nonce.as_str(), " enc=a nonce=00\n"]);
        for broken in broken {
            let document = Document::new(format!("{MAGIC}{broken}")).unwrap();
            assert_eq!(Seal::split(&document).unwrap_err().code(), Code::Damaged, "{broken:?}");
        }
    }

    #[test]
    fn nothing_can_be_added_that_signs_like_nothing() {
        let signed = Seal { moved: None, ..seal() };
        let good = signed.join(b"{}").unwrap();
        let good = String::from_utf8(good.as_bytes().to_vec()).unwrap();
        for more in [" from=", " moved=", " moving=", " enc="] {
            let document = Document::new(good.replace("\n", &format!("{more}\n"))).unwrap();
            assert_eq!(Seal::split(&document).unwrap_err().code(), Code::Damaged, "{more}");
        }
        assert!(Seal::from_fields([("key", ""), ("mac", &*"07".repeat(32))]).is_none());
        let empty = Seal { origin: Some(String::new()), ..signed };
        assert_eq!(empty.join(b"{}").unwrap_err().code(), Code::BadInput);
    }

    #[test]
    fn a_payload_of_any_size_can_be_encrypted() {
        let encrypted = Some(("k".repeat(64), CipherNonce([7; 24])));
        let seal = Seal { encrypted, ..Seal::default() };
        let largest = vec![b'x'; Document::MAX_DOCUMENT_BYTES + Seal::TAG_BYTES];
        let stored = seal.join(&largest).unwrap();
        assert_eq!(Seal::split(&stored).unwrap(), (seal.clone(), &largest[..]));
        let error = seal.join(&[&largest[..], b"x"].concat()).unwrap_err();
        assert_eq!(error.code(), Code::BadInput);
        assert_eq!(Seal::default().join(&largest).unwrap_err().code(), Code::BadInput);
    }

    #[test]
    fn a_signature_has_one_spelling() {
        assert_eq!(Mac::parse(&"0f".repeat(32)), Some(Mac([15; 32])));
        for other in ["+f", "0F", "0g", "-1", " f"] {
            assert_eq!(Mac::parse(&other.repeat(32)), None, "{other}");
        }
        assert_eq!(Mac::parse(&"0".repeat(63)), None);
    }

    proptest! {
        #[test]
        fn a_seal_comes_back(key in ".{1,40}", to in ".{1,99}", done: bool, payload: Vec<u8>) {
            let seal = Seal {
                encrypted: (!done).then(|| (key.clone(), CipherNonce([8; 24]))),
                writer: done.then_some((PublicKey([3; 32]), IdentitySignature([4; 64]))),
                signed: Some((key, Mac([9; 32]))),
                prev: None,
                moved: Some(Moved { to: to.clone(), done }),
                origin: done.then_some(to),
            };
            let document = seal.join(&payload).unwrap();
            prop_assert_eq!(Seal::split(&document).unwrap(), (seal, &payload[..]));
        }
    }
}
