//! Protection of checkpoints on their way to a store and back: encryption, then a signature.

use tenure_core::store::Checkpoint;
use tenure_core::{
    CipherNonce, Code, Document, DutyKey, Epoch, IdentitySignature, InstanceId, Mac, Note, Seal,
    Session, StoreError, StoreResult, Version,
};

use super::encryption::EncryptionKeys;
use super::identity::{IdentityKey, TrustedIdentities};
use super::{Inspected, Keyring, Signing, bound, sign};

/// Signing and encryption of checkpoints.
#[derive(Debug, Default)]
pub struct Protection {
    /// Signatures.
    pub signing: Signing,
    /// Encryption; `None` if encrypted checkpoints cannot be read.
    pub encryption: Option<EncryptionKeys>,
    /// Key of this instance, which signs its sessions and checkpoints.
    pub identity: Option<IdentityKey>,
    /// Instances whose checkpoints are accepted; `None` accepts those of every instance.
    pub trusted: Option<TrustedIdentities>,
}

/// No encryption, and no identities.
impl From<Signing> for Protection {
    fn from(signing: Signing) -> Self {
        Self { signing, ..Self::default() }
    }
}

/// Place of a checkpoint: a ciphertext can be decrypted nowhere else.
pub(crate) struct SealedPlace<'a> {
    pub(crate) duty: &'a DutyKey,
    pub(crate) at: (Epoch, Version),
    pub(crate) instance: &'a InstanceId,
}

impl Protection {
    /// Whether a checkpoint without a valid signature is refused.
    pub fn is_signature_required(&self) -> bool {
        matches!(self.signing, Signing::Require(_))
    }

    /// Whether writing adds nothing to a payload.
    pub(super) fn is_plain(&self) -> bool {
        self.signing.keys().is_none() && self.encryptor().is_none() && self.identity.is_none()
    }

    /// Refuses a checkpoint whose writer is not trusted.
    pub fn check_writer(
        &self,
        duty: &DutyKey,
        stored: &Checkpoint,
        inspected: &Inspected,
    ) -> StoreResult<()> {
        let Inspected { seal, payload, .. } = inspected;
        let mut trusted = self.trusted.iter();
        trusted.try_for_each(|trusted| trusted.check(duty, stored, seal, payload))
    }

    /// Signs the note of a session. An instance that trusts identities needs one of its own: it
    /// would refuse the checkpoints that it writes itself.
    pub(crate) fn session_note(&self, session: &Session, note: &Note) -> StoreResult<Note> {
        let Session { group, instance, nonce, .. } = session;
        match (&self.identity, &self.trusted) {
            (Some(key), _) => key.sign_note(group, instance, *nonce, note),
            (None, None) => Ok(note.clone()),
            (None, Some(_)) => {
                let what = "an instance with trusted identities needs a key of its own, by which \
                            its checkpoints are known: give --identity-key";
                Err(StoreError::refused(Code::BadKeys, what))
            }
        }
    }

    /// Returns the largest seal that this process writes.
    pub(crate) fn largest_seal(&self) -> Seal {
        let encrypted = self.encryptor().map(|key| (key.to_owned(), CipherNonce([0; 24])));
        let signature = IdentitySignature([0; 64]);
        let writer = self.identity.as_ref().map(|identity| (identity.public(), signature));
        let signed = Some(("k".repeat(Keyring::MAX_ID), Mac::NONE));
        Seal { signed, prev: Some(Mac::NONE), encrypted, writer, ..Seal::default() }
    }

    /// The id of the key that encrypts.
    pub(super) fn encryptor(&self) -> Option<&str> {
        self.encryption.as_ref().and_then(EncryptionKeys::encryptor)
    }

    /// Encrypts and signs a payload. `prev` is the signature of the previous version. Returns the
    /// document to store, and its seal.
    pub(crate) fn seal(
        &self,
        place: &SealedPlace<'_>,
        prev: Mac,
        seal: Seal,
        payload: &[u8],
    ) -> StoreResult<(Document, Seal)> {
        // The limits of a payload are the same with and without encryption.
        Seal::default().join(payload)?;
        let keys = self.signing.keys();
        let prev = keys.map_or(Mac::NONE, |_| prev);
        let (seal, payload) = self.encrypt(place, prev, seal, payload)?;
        let seal = match keys {
            Some(keys) => sign(keys, place.duty, place.at, prev, seal, &payload),
            None => seal,
        };
        let seal = match &self.identity {
            Some(identity) => identity.sign_checkpoint(place, seal, &payload),
            None => seal,
        };
        Ok((seal.join(&payload)?, seal))
    }

    fn encrypt(
        &self,
        place: &SealedPlace<'_>,
        prev: Mac,
        seal: Seal,
        payload: &[u8],
    ) -> StoreResult<(Seal, Vec<u8>)> {
        let (Some(keys), Some(id)) = (&self.encryption, self.encryptor()) else {
            return Ok((seal, payload.to_vec()));
        };
        let nonce = keys.nonce();
        let covered = place.covered(id, prev, &seal);
        let Some(payload) = keys.encrypt(id, &nonce, &covered, payload) else {
            return Err(StoreError::refused(Code::BadInput, "the document cannot be encrypted"));
        };
        Ok((Seal { encrypted: Some((id.to_owned(), nonce)), ..seal }, payload))
    }

    /// Returns the payload of a checkpoint, decrypted if it is encrypted.
    pub fn payload(
        &self,
        duty: &DutyKey,
        stored: &Checkpoint,
        inspected: &Inspected,
    ) -> StoreResult<Vec<u8>> {
        self.decrypt(duty, stored, &inspected.seal, &inspected.payload)
    }

    /// Removes the seal of a checkpoint, without looking at its signature.
    pub(super) fn open(&self, duty: &DutyKey, stored: Checkpoint) -> StoreResult<Checkpoint> {
        let (seal, payload) = Seal::split(&stored.document)?;
        let payload = self.decrypt(duty, &stored, &seal, payload)?;
        Ok(Checkpoint { document: Document::from_store(payload)?, ..stored })
    }

    fn decrypt(
        &self,
        duty: &DutyKey,
        stored: &Checkpoint,
        seal: &Seal,
        payload: &[u8],
    ) -> StoreResult<Vec<u8>> {
        let Some((id, nonce)) = &seal.encrypted else { return Ok(payload.to_vec()) };
        let Checkpoint { version, epoch, instance, .. } = stored;
        let place = SealedPlace { duty, at: (*epoch, *version), instance };
        let covered = place.covered(id, seal.prev.unwrap_or(Mac::NONE), seal);
        let why = match &self.encryption {
            None => "no encryption keys were given",
            Some(keys) if !keys.knows(id) => "this key is not among the encryption keys",
            Some(keys) => match keys.decrypt(id, nonce, &covered, payload) {
                Some(plain) => return Ok(plain),
                None => "it was changed, or another key has this id",
            },
        };
        let detail = format!("version {version} of {duty}, encrypted with key {id}: {why}");
        Err(StoreError::refused(Code::CannotDecrypt, detail))
    }
}

impl SealedPlace<'_> {
    /// Returns the bytes that the tag covers beside the payload.
    fn covered(&self, key: &str, prev: Mac, seal: &Seal) -> Vec<u8> {
        let mut bytes = bound(b"tenure encryption 1", key, self.duty, self.at, prev, seal);
        bytes.extend(self.instance.as_str().as_bytes());
        bytes
    }
}
