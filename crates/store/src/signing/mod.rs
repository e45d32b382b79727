//! Signed and encrypted checkpoints.
//!
//! A signature is HMAC-SHA-256 over the id of the key, the duty, epoch, version, the signature of
//! the previous version, the source or target of a move, and the payload (R14). So a document
//! cannot be changed, put under another duty, version or epoch, or reordered. A signature cannot
//! show that a *newer* document is missing. For that, [`Sealed`] remembers the newest one that this
//! process has seen and compares with the ring, and [`verify`] reads the whole ring.
//!
//! An encrypted payload is signed as it is stored: a signature is verified without the encryption
//! keys.

mod encryption;
mod identity;
mod keys;
mod protection;
mod sealed;

use std::cmp::Reverse;

use tenure_core::store::Checkpoint;
use tenure_core::{Code, DutyKey, Epoch, Mac, Seal, StoreError, StoreResult, Version};

pub use encryption::EncryptionKeys;
pub use identity::{IdentityKey, OnUntrusted, TrustedIdentities, split_note};
pub use keys::{KeyUse, Keyring};
pub use protection::Protection;
pub(crate) use protection::SealedPlace;
pub use sealed::Sealed;

/// Whether checkpoints are signed. `Write` is for a store with unsigned checkpoints, until each has
/// been written once.
#[derive(Debug, Default)]
pub enum Signing {
    /// Nothing is signed, and no signature is verified.
    #[default]
    Off,
    /// Writes are signed; reads accept unsigned checkpoints.
    Write(Keyring),
    /// Writes are signed; reads refuse a checkpoint without a valid signature.
    Require(Keyring),
}

impl Signing {
    /// The keys, unless signing is off.
    pub fn keys(&self) -> Option<&Keyring> {
        match self {
            Self::Off => None,
            Self::Write(keys) | Self::Require(keys) => Some(keys),
        }
    }
}

tenure_core::text_enum! {
    /// Result of verifying a signature.
    pub enum SignatureVerdict {
        Good "good" "Signed by a trusted key."
        Unsigned "not signed" "Not signed."
        Wrong "the signature does not fit"
            "The signature does not match the document, its duty, epoch, version or predecessor."
        UnknownKey "signed with a key that is not known here" "The key is not in the keyring."
        RetiredKey "signed with a retired key" "The key is no longer trusted."
        Damaged "the seal cannot be read" "The seal itself cannot be read."
        OtherPredecessor "does not follow the version before it"
            "Signed, but over another predecessor than the one in the ring."
        Replayed "older than the newest version in the history"
            "There is a newer version in the ring."
        Gap "the version before it is missing"
            "The version before it is not in the ring, although older ones are."
        NotInHistory "the newest one, but not in the history"
            "The newest checkpoint, but not in the ring."
        NewestMissing "the newest checkpoint is missing"
            "The newest entry of a ring whose checkpoint is missing."
    }
}

impl SignatureVerdict {
    /// Whether the checkpoint is valid by itself, so that its position can be judged.
    fn may_stand(&self) -> bool {
        matches!(self, Self::Good | Self::Unsigned)
    }
}

/// A checkpoint split into seal and payload, with its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// Its seal; empty when there is none or it cannot be read.
    pub seal: Seal,
    /// The document without the seal, encrypted if the seal says so.
    pub payload: Vec<u8>,
    /// Result of the verification.
    pub verdict: SignatureVerdict,
}

/// Returns what a signature or an encryption is bound to, beside the payload. Each text is preceded
/// by its length, so that different checkpoints never give the same bytes.
fn bound(
    purpose: &[u8; 19],
    key: &str,
    duty: &DutyKey,
    (epoch, version): (Epoch, Version),
    prev: Mac,
    seal: &Seal,
) -> Vec<u8> {
    let mut bytes = purpose.to_vec();
    let moved = seal.moved.as_ref();
    let texts = [
        key,
        duty.group.as_str(),
        duty.id.as_str(),
        moved.map_or("", |moved| &moved.to),
        moved.map_or("", |moved| if moved.done { "moved" } else { "moving" }),
        seal.origin.as_deref().unwrap_or_default(),
    ];
    for text in texts {
        bytes.extend((text.len() as u64).to_be_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes.extend(epoch.get().to_be_bytes());
    bytes.extend(version.get().to_be_bytes());
    bytes.extend(prev.0);
    bytes
}

/// Returns what a signature covers before the payload as it is stored.
fn signed_bytes(
    key: &str,
    duty: &DutyKey,
    at: (Epoch, Version),
    prev: Mac,
    seal: &Seal,
) -> Vec<u8> {
    let Some((cipher_key, nonce)) = &seal.encrypted else {
        return bound(b"tenure checkpoint 1", key, duty, at, prev, seal);
    };
    // Another purpose: a ciphertext must not pass for a document that is not encrypted.
    let mut bytes = bound(b"tenure checkpoint 2", key, duty, at, prev, seal);
    bytes.extend(nonce.0);
    bytes.extend((cipher_key.len() as u64).to_be_bytes());
    bytes.extend(cipher_key.as_bytes());
    bytes
}

/// Adds key, signature and predecessor to a seal. The payload is that which is stored.
pub fn sign(
    keys: &Keyring,
    duty: &DutyKey,
    at: (Epoch, Version),
    prev: Mac,
    seal: Seal,
    payload: &[u8],
) -> Seal {
    let message = signed_bytes(keys.signer(), duty, at, prev, &seal);
    let mac = keys.sign(&[&message, payload]);
    Seal { signed: Some((keys.signer().to_owned(), mac)), prev: Some(prev), ..seal }
}

/// Splits a stored checkpoint and verifies it by itself.
pub fn inspect(keys: Option<&Keyring>, duty: &DutyKey, checkpoint: &Checkpoint) -> Inspected {
    let Ok((seal, payload)) = Seal::split(&checkpoint.document) else {
        let payload = checkpoint.document.as_bytes().to_vec();
        return Inspected { seal: Seal::default(), payload, verdict: SignatureVerdict::Damaged };
    };
    let verdict = judge(keys, duty, checkpoint, &seal, payload);
    Inspected { payload: payload.to_vec(), seal, verdict }
}

fn judge(
    keys: Option<&Keyring>,
    duty: &DutyKey,
    checkpoint: &Checkpoint,
    seal: &Seal,
    payload: &[u8],
) -> SignatureVerdict {
    let (key, mac, prev) = match (&seal.signed, seal.prev) {
        (None, None) => return SignatureVerdict::Unsigned,
        (Some((key, mac)), Some(prev)) => (key, mac, prev),
        _ => return SignatureVerdict::Damaged,
    };
    let Some(keys) = keys else { return SignatureVerdict::UnknownKey };
    match keys.find(key) {
        None => return SignatureVerdict::UnknownKey,
        Some(KeyUse::Retired) => return SignatureVerdict::RetiredKey,
        Some(KeyUse::Sign | KeyUse::Verify) => {}
    }
    let message = signed_bytes(key, duty, place(checkpoint), prev, seal);
    let fits = keys.verifies(key, &[&message, payload], mac);
    if fits { SignatureVerdict::Good } else { SignatureVerdict::Wrong }
}

/// Verifies the newest checkpoint and the ring together: each signature must cover its
/// predecessor's, none may be missing between two, and the newest is the first of the ring. The
/// ring may end anywhere, since its size is limited. The result has the newest first, then the ring
/// from later to earlier.
pub fn verify<'a>(
    keys: impl Into<Option<&'a Keyring>>,
    duty: &DutyKey,
    newest: Option<&Checkpoint>,
    ring: &[Checkpoint],
) -> Vec<(Checkpoint, Inspected)> {
    let keys = keys.into();
    let mut ring: Vec<&Checkpoint> = ring.iter().collect();
    ring.sort_by_key(|checkpoint| Reverse(place(checkpoint)));
    let head = ring.first().copied();
    let apart = newest.filter(|newest| head != Some(*newest));
    let mut all: Vec<(Checkpoint, Inspected)> = apart
        .into_iter()
        .chain(ring)
        .map(|checkpoint| (checkpoint.clone(), inspect(keys, duty, checkpoint)))
        .collect();
    let verdict = match (newest, apart, head) {
        (None, _, Some(_)) => Some(SignatureVerdict::NewestMissing),
        (_, Some(apart), Some(head)) if place(apart) <= place(head) => {
            Some(SignatureVerdict::Replayed)
        }
        (_, Some(_), Some(_)) => Some(SignatureVerdict::NotInHistory),
        // A first version without a ring may come from a writer that keeps no ring.
        (_, Some(apart), None) if apart.version.get() > 1 => Some(SignatureVerdict::NotInHistory),
        _ => None,
    };
    if let (Some(verdict), Some((_, first))) = (verdict, all.first_mut())
        && first.verdict.may_stand()
    {
        first.verdict = verdict;
    }
    judge_order(&mut all[usize::from(apart.is_some())..]);
    all
}

/// Returns the position of a checkpoint: later ones have a larger one. The epoch comes first,
/// because a duty that begins again counts its versions anew.
fn place(checkpoint: &Checkpoint) -> (Epoch, Version) {
    (checkpoint.epoch, checkpoint.version)
}

/// Refuses a validly signed checkpoint if the ring has a validly signed one that is later, or
/// another one at the same position: an old one was put back. Entries without a valid signature are
/// ignored, since anybody could have added them.
pub(crate) fn check_ring(
    keys: Option<&Keyring>,
    duty: &DutyKey,
    stored: &Checkpoint,
    ring: &[Checkpoint],
) -> StoreResult<()> {
    let (at, document) = (place(stored), &stored.document);
    let later = |old: &&Checkpoint| {
        (place(old) > at || (place(old) == at && old.document != *document))
            && inspect(keys, duty, old).verdict == SignatureVerdict::Good
    };
    let Some(later) = ring.iter().filter(later).max_by_key(|old| place(old)) else { return Ok(()) };
    let detail = match place(later) == at {
        true => format!("version {} of {duty} is not the one in its history", stored.version),
        false => format!(
            "{duty} is at version {} of epoch {}, but its history has version {} of epoch {}",
            stored.version, stored.epoch, later.version, later.epoch
        ),
    };
    Err(StoreError::refused(Code::Replayed, detail))
}

/// Refuses a missing checkpoint while its ring exists: forgetting a duty would remove both.
pub(crate) fn check_missing(duty: &DutyKey, ring: &[Checkpoint]) -> StoreResult<()> {
    if ring.is_empty() {
        return Ok(());
    }
    let detail = format!("{duty} has a history but no newest checkpoint");
    Err(StoreError::refused(Code::Replayed, detail))
}

/// Judges each checkpoint of a ring by its predecessor.
fn judge_order(ring: &mut [(Checkpoint, Inspected)]) {
    // Entries before a first version are left from an earlier life of the duty. The later one has
    // overwritten some of them, so gaps among them are normal.
    let mut earlier_life = false;
    for at in 0..ring.len().saturating_sub(1) {
        let (now, before) = (&ring[at], &ring[at + 1]);
        earlier_life |= now.0.version.get() == 1;
        let follows = Ok(now.0.version) == before.0.version.next();
        let mac = before.1.seal.signed.as_ref().map_or(Mac::NONE, |(_, mac)| *mac);
        // The signature of a moved checkpoint covers its predecessor's in the other store.
        let came_back = before.1.seal.moved.is_some();
        let other = follows && !came_back && now.1.seal.prev != Some(mac);
        let verdict = match now.1.verdict {
            SignatureVerdict::Good if other => SignatureVerdict::OtherPredecessor,
            SignatureVerdict::Good | SignatureVerdict::Unsigned if !follows && !earlier_life => {
                SignatureVerdict::Gap
            }
            _ => continue,
        };
        ring[at].1.verdict = verdict;
    }
}

#[cfg(test)]
mod tests;
