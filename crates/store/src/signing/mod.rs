//! Signed checkpoints.
//!
//! A signature is HMAC-SHA-256 over the id of the key, the duty, epoch, version, the signature of
//! the version before, where it was moved to or from, and the payload (R14). So a document cannot
//! be changed, put under another duty, version or epoch, or taken out of its order. What a
//! signature cannot show is that a *newer* document is missing: for that [`Sealed`] remembers the
//! newest one that this process has seen, and [`verify`] reads the whole ring.

mod keys;
mod sealed;

use tenure_core::store::Checkpoint;
use tenure_core::{DutyKey, Epoch, Mac, Seal, Version};

pub use keys::{KeyUse, Keyring};
pub use sealed::Sealed;

/// Whether checkpoints are signed. Going through `Write` lets a store with unsigned checkpoints be
/// used until each has been written once.
#[derive(Debug, Default)]
pub enum Signing {
    /// Nothing is signed, and no signature is looked at.
    #[default]
    Off,
    /// What is written is signed; what is read need not be.
    Write(Keyring),
    /// What is written is signed, and what is read without a good signature is refused.
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

/// What a signature says of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Signed by a key that is trusted.
    Good,
    /// Not signed.
    Unsigned,
    /// The signature does not fit the document, its duty, epoch, version or predecessor.
    Wrong,
    /// The key is not known here.
    UnknownKey,
    /// The key is not trusted any more.
    RetiredKey,
    /// The seal itself cannot be read.
    Damaged,
    /// Signed, but not upon the version before it that is in the ring.
    OtherPredecessor,
    /// There is a newer version in the ring.
    Replayed,
}

impl Verdict {
    /// What it means, in a few words.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Unsigned => "not signed",
            Self::Wrong => "the signature does not fit",
            Self::UnknownKey => "signed with a key that is not known here",
            Self::RetiredKey => "signed with a retired key",
            Self::Damaged => "the seal cannot be read",
            Self::OtherPredecessor => "does not follow the version before it",
            Self::Replayed => "older than the newest version in the history",
        }
    }
}

/// A checkpoint taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// Its seal; empty when there is none or it cannot be read.
    pub seal: Seal,
    /// What was signed: the document without the seal.
    pub payload: Vec<u8>,
    /// What the signature says.
    pub verdict: Verdict,
}

/// What is signed, in parts. Each text has its length before it, so that no two different
/// checkpoints give the same bytes.
struct Message<'a> {
    key: &'a str,
    duty: &'a DutyKey,
    epoch: Epoch,
    version: Version,
    prev: Mac,
    seal: &'a Seal,
    payload: &'a [u8],
}

impl Message<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"tenure checkpoint 1".to_vec();
        let mut text = |text: &str| {
            bytes.extend((text.len() as u64).to_be_bytes());
            bytes.extend(text.as_bytes());
        };
        text(self.key);
        text(self.duty.group.as_str());
        text(self.duty.id.as_str());
        let moved = self.seal.moved.as_ref();
        text(moved.map_or("", |moved| &moved.to));
        text(moved.map_or("", |moved| if moved.done { "moved" } else { "moving" }));
        text(self.seal.origin.as_deref().unwrap_or_default());
        bytes.extend(self.epoch.get().to_be_bytes());
        bytes.extend(self.version.get().to_be_bytes());
        bytes.extend(self.prev.0);
        bytes
    }
}

/// Adds key, signature and predecessor to a seal.
pub fn sign(
    keys: &Keyring,
    duty: &DutyKey,
    (epoch, version): (Epoch, Version),
    prev: Mac,
    seal: Seal,
    payload: &[u8],
) -> Seal {
    let message = Message { key: keys.signer(), duty, epoch, version, prev, seal: &seal, payload };
    let mac = keys.sign(&[&message.bytes(), payload]);
    Seal { signed: Some((keys.signer().to_owned(), mac)), prev: Some(prev), ..seal }
}

/// Takes a stored checkpoint apart and judges it by itself.
pub fn inspect(keys: Option<&Keyring>, duty: &DutyKey, checkpoint: &Checkpoint) -> Inspected {
    let Ok((seal, payload)) = Seal::split(&checkpoint.document) else {
        let payload = checkpoint.document.as_bytes().to_vec();
        return Inspected { seal: Seal::default(), payload, verdict: Verdict::Damaged };
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
) -> Verdict {
    let Some((key, mac)) = &seal.signed else {
        return if seal.prev.is_some() { Verdict::Damaged } else { Verdict::Unsigned };
    };
    let (Some(keys), Some(prev)) = (keys, seal.prev) else {
        return if seal.prev.is_none() { Verdict::Damaged } else { Verdict::UnknownKey };
    };
    match keys.find(key) {
        None => return Verdict::UnknownKey,
        Some(KeyUse::Retired) => return Verdict::RetiredKey,
        Some(KeyUse::Sign | KeyUse::Verify) => {}
    }
    let Checkpoint { epoch, version, .. } = *checkpoint;
    let message = Message { key, duty, epoch, version, prev, seal, payload };
    match keys.made(key, &[&message.bytes(), message.payload], mac) {
        true => Verdict::Good,
        false => Verdict::Wrong,
    }
}

/// Judges the newest checkpoint and the ring together: each must be signed upon the one before it,
/// and nothing in the ring may be newer than the newest. `ring` is newest first and has the newest
/// in it, unless somebody changed one of the two.
pub fn verify(
    keys: &Keyring,
    duty: &DutyKey,
    newest: Option<&Checkpoint>,
    ring: &[Checkpoint],
) -> Vec<(Checkpoint, Inspected)> {
    let head = ring.first();
    let apart = newest.filter(|newest| head != Some(*newest));
    let mut all: Vec<(Checkpoint, Inspected)> = apart
        .into_iter()
        .chain(ring)
        .map(|checkpoint| (checkpoint.clone(), inspect(Some(keys), duty, checkpoint)))
        .collect();
    if let (Some(apart), Some(head)) = (apart, head) {
        let older = (apart.epoch, apart.version) <= (head.epoch, head.version);
        if older && all[0].1.verdict == Verdict::Good {
            all[0].1.verdict = Verdict::Replayed;
        }
    }
    for at in 0..all.len().saturating_sub(1) {
        let before = &all[at + 1];
        let follows = Ok(all[at].0.version) == before.0.version.next();
        let mac = before.1.seal.signed.as_ref().map_or(Mac::NONE, |(_, mac)| *mac);
        // What a move brings is signed upon what it was in the other store.
        let came_back = before.1.seal.moved.is_some();
        let (_, inspected) = &mut all[at];
        if follows
            && !came_back
            && inspected.verdict == Verdict::Good
            && inspected.seal.prev != Some(mac)
        {
            inspected.verdict = Verdict::OtherPredecessor;
        }
    }
    all
}

#[cfg(test)]
mod tests;
