//! Identities of instances: Ed25519 keys that sign sessions and checkpoints.
//!
//! A session's note ends in a line with the public key and its signature over group, instance and
//! nonce; the seal of a checkpoint has them over everything that a signature of the store's users
//! covers, and the instance. So a session or a checkpoint that somebody wrote into the store, or
//! copied to another place of it, is not valid.
//!
//! Why: docs/decisions/0055-instances-sign-with-their-own-keys.md

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use tenure_core::store::{Checkpoint, Member};
use tenure_core::{
    Code, DutyKey, GroupName, IdentitySignature, InstanceId, Mac, Nonce, Note, PublicKey, Seal,
    StoreError, StoreResult,
};

use super::bound;
use super::keys::{bad, id_of, read_all};
use super::protection::SealedPlace;

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";

/// DER of a private key, PKCS #8 version 1, before its 32 bytes.
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// Start of the last line of a note that is signed, with the end of the line before it.
const LINE: &str = "\nidentity=";

/// Private key of an instance. Prints only its public key.
pub struct IdentityKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl IdentityKey {
    /// Reads PKCS #8 in PEM, as `openssl genpkey -algorithm ed25519` writes it.
    pub fn from_pem(text: &str) -> StoreResult<Self> {
        let not_a_key = || bad("the identity key is not an Ed25519 private key in PEM (PKCS #8)");
        let (_, body) = text.split_once(BEGIN).ok_or_else(not_a_key)?;
        let (body, _) = body.split_once(END).ok_or_else(not_a_key)?;
        let body: String = body.split_whitespace().collect();
        let der = STANDARD.decode(body).map_err(|_| not_a_key())?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map_err(|_| not_a_key())?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| not_a_key())?;
        Ok(Self { pair, public: PublicKey(public) })
    }

    /// Returns the PEM of the private key with these random bytes.
    pub fn pem(seed: &[u8; 32]) -> String {
        format!("{BEGIN}\n{}\n{END}\n", STANDARD.encode([&PKCS8[..], seed].concat()))
    }

    /// Its public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    fn sign(&self, message: &[u8]) -> IdentitySignature {
        let mut bytes = [0; 64];
        bytes.copy_from_slice(self.pair.sign(message).as_ref());
        IdentitySignature(bytes)
    }

    /// Adds the line with the identity to the note of a session.
    pub(crate) fn sign_note(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        nonce: Nonce,
        note: &Note,
    ) -> StoreResult<Note> {
        let signature = self.sign(&session_bytes(&self.public, group, instance, nonce));
        Note::with_identity(format!("{}{LINE}{}.{signature}", note.as_str(), self.public))
    }

    /// Signs a checkpoint, whose seal has all its other fields.
    pub(super) fn sign_checkpoint(
        &self,
        place: &SealedPlace<'_>,
        seal: Seal,
        payload: &[u8],
    ) -> Seal {
        let signature = self.sign(&checkpoint_bytes(&self.public, place, &seal, payload));
        Seal { writer: Some((self.public, signature)), ..seal }
    }
}

impl fmt::Debug for IdentityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdentityKey({})", self.public)
    }
}

/// Called with the group, the instance and the reason for each member that is not trusted.
pub type OnUntrusted = Arc<dyn Fn(&GroupName, &InstanceId, &str) + Send + Sync>;

/// Public keys of the instances that this process trusts, by name.
#[derive(Clone)]
pub struct TrustedIdentities {
    keys: Vec<(String, PublicKey)>,
    on_untrusted: Option<OnUntrusted>,
}

impl TrustedIdentities {
    /// Reads `NAME KEY`, one per line or separated by commas; the key has 64 hexadecimal digits.
    /// Empty lines and lines that begin with `#` are ignored.
    pub fn parse(text: &str) -> StoreResult<Self> {
        let keys = read_all("trusted identity", text, read, |(name, _)| name)?;
        if keys.is_empty() {
            return Err(bad("no identity is trusted"));
        }
        Ok(Self { keys, on_untrusted: None })
    }

    /// Calls `tell` for each member that is not trusted, once per opened store.
    pub fn set_on_untrusted(&mut self, tell: OnUntrusted) {
        self.on_untrusted = Some(tell);
    }

    pub(super) fn tell(&self, group: &GroupName, instance: &InstanceId, why: &str) {
        if let Some(tell) = &self.on_untrusted {
            tell(group, instance, why);
        }
    }

    /// Whether this key is trusted.
    pub fn trusts(&self, key: &PublicKey) -> bool {
        self.name(key).is_some()
    }

    fn name(&self, key: &PublicKey) -> Option<&str> {
        self.keys.iter().find(|(_, known)| known == key).map(|(name, _)| name.as_str())
    }

    /// Returns the name of a member's identity, or why it is not trusted. The note must be as it
    /// is stored.
    pub fn member(&self, group: &GroupName, member: &Member) -> Result<&str, &'static str> {
        let (_, identity) = split_note(&member.note);
        let (Some((key, signature)), Some(nonce)) = (identity, member.nonce) else {
            return Err("its session has no signature");
        };
        let bytes = session_bytes(&key, group, &member.instance, nonce);
        self.verified(&key, &signature, &bytes)
    }

    /// Returns the name of the identity that wrote a checkpoint, or why it is not trusted.
    pub(super) fn writer(
        &self,
        duty: &DutyKey,
        stored: &Checkpoint,
        seal: &Seal,
        payload: &[u8],
    ) -> Result<&str, &'static str> {
        let Some((key, signature)) = &seal.writer else { return Err("it has no signature") };
        let at = (stored.epoch, stored.version);
        let place = SealedPlace { duty, at, instance: &stored.instance };
        self.verified(key, signature, &checkpoint_bytes(key, &place, seal, payload))
    }

    fn verified(
        &self,
        key: &PublicKey,
        signature: &IdentitySignature,
        message: &[u8],
    ) -> Result<&str, &'static str> {
        let name = self.name(key).ok_or("its key is not among the trusted identities")?;
        let fits = UnparsedPublicKey::new(&ED25519, key.0).verify(message, &signature.0);
        fits.map(|()| name).map_err(|_| "its signature does not fit")
    }

    /// Refuses a checkpoint whose writer is not trusted.
    pub(super) fn check(
        &self,
        duty: &DutyKey,
        stored: &Checkpoint,
        seal: &Seal,
        payload: &[u8],
    ) -> StoreResult<()> {
        let checked = self.writer(duty, stored, seal, payload).map(drop);
        checked.map_err(|why| {
            let Checkpoint { version, instance, .. } = stored;
            let detail = format!("version {version} of {duty} by {instance}: {why}");
            StoreError::refused(Code::Untrusted, detail)
        })
    }
}

impl fmt::Debug for TrustedIdentities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.keys.iter().map(|(name, key)| (name, key))).finish()
    }
}

/// Splits a note into what the member said, and its identity.
pub fn split_note(note: &Note) -> (&str, Option<(PublicKey, IdentitySignature)>) {
    let text = note.as_str();
    let split = text.rsplit_once(LINE).and_then(|(said, line)| {
        let (key, signature) = line.split_once('.')?;
        Some((said, (PublicKey::parse(key)?, IdentitySignature::parse(signature)?)))
    });
    split.map_or((text, None), |(said, identity)| (said, Some(identity)))
}

fn session_bytes(
    key: &PublicKey,
    group: &GroupName,
    instance: &InstanceId,
    nonce: Nonce,
) -> Vec<u8> {
    let mut bytes = b"tenure identity session 1".to_vec();
    bytes.extend(key.0);
    for text in [group.as_str(), instance.as_str()] {
        bytes.extend((text.len() as u64).to_be_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes.extend(nonce.as_u128().to_be_bytes());
    bytes
}

fn checkpoint_bytes(
    key: &PublicKey,
    place: &SealedPlace<'_>,
    seal: &Seal,
    payload: &[u8],
) -> Vec<u8> {
    let prev = seal.prev.unwrap_or(Mac::NONE);
    let by = key.to_string();
    let mut bytes = bound(b"tenure by identity ", &by, place.duty, place.at, prev, seal);
    let cipher = seal.encrypted.as_ref();
    let nonce = cipher.map_or(String::new(), |(_, nonce)| nonce.to_string());
    let cipher_key = cipher.map_or("", |(key, _)| key);
    for text in [place.instance.as_str(), &nonce, cipher_key] {
        bytes.extend((text.len() as u64).to_be_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes.extend(payload);
    bytes
}

/// Reads one identity.
fn read(line: &str) -> Result<(String, PublicKey), &'static str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, key] = words[..] else { return Err("expected `NAME KEY`") };
    let key = PublicKey::parse(&key.to_ascii_lowercase());
    let key = key.ok_or("a public key has 64 hexadecimal digits")?;
    Ok((id_of(name)?, key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tenure_core::{CipherNonce, Document, Epoch, Moved, Version};

    /// Written by `openssl genpkey -algorithm ed25519`; the public key by `openssl pkey -pubout`.
    const OPENSSL: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIMQ5XGaLIEZXGqufMd0CFHNbGvcmDvaqULDCx/4Pdcm1
-----END PRIVATE KEY-----
";
    const OPENSSL_PUBLIC: &str = "4ec5b9ad0bfc036e113738fdf07fc8aa4ed4e1543a1b8725f191383a5d7afa4b";

    // Computed with the Python package `cryptography`, so that others can verify what we sign.
    const PUBLIC: &str = "8146640f02493af4fbc54fe33388e75dc2c937ae0b7727cc2b2afb1b75199a3e";
    const SESSION: &str = "\
2ff1f2a577c0980f6f86e7ccce2988b3f76c82571f0f2c448ba0ef6b21160111\
208bb38eee25ae0ba7006bfc0acd56715fee5f673184e51cd650c00e0454d306";
    const CHECKPOINT: &str = "\
1546a78545e983293ab338db04e6e005c0cc55256a8dfe8dbc2617e89c7201b0\
a855051ee96ff87447c2601391c7c8cb14e7f0a828d8d5df4ea471f7c4ed0d03";

    fn key(byte: u8) -> IdentityKey {
        IdentityKey::from_pem(&IdentityKey::pem(&[byte; 32])).unwrap()
    }

    fn trusted() -> TrustedIdentities {
        TrustedIdentities::parse(&format!("host {PUBLIC}")).unwrap()
    }

    #[test]
    fn keys_of_openssl_are_read_and_written_alike() {
        assert_eq!(IdentityKey::from_pem(OPENSSL).unwrap().public().to_string(), OPENSSL_PUBLIC);
        let seed: [u8; 32] =
            STANDARD.decode(OPENSSL.lines().nth(1).unwrap()).unwrap()[16..].try_into().unwrap();
        assert_eq!(IdentityKey::pem(&seed), OPENSSL);
        assert_eq!(format!("{:?}", key(0x5e)), format!("IdentityKey({PUBLIC})"));
        let short = OPENSSL.replace("MC4C", "MC4D");
        for bad in ["", "x", &OPENSSL.replace("PRIVATE", "PUBLIC"), &short, &OPENSSL[..90]] {
            let error = IdentityKey::from_pem(bad).unwrap_err();
            assert_eq!(error.code(), Code::BadKeys, "{bad}");
            assert!(!error.to_string().contains("QQ5XGaLI"), "{error}");
        }
    }

    #[test]
    fn trusted_identities_are_read_from_lines() {
        let text = format!("# ours\na {PUBLIC}\n\nb {}\n", OPENSSL_PUBLIC.to_uppercase());
        let trusted = TrustedIdentities::parse(&text).unwrap();
        assert!(trusted.trusts(&key(0x5e).public()) && !trusted.trusts(&key(1).public()));
        for (text, says) in [
            (String::new(), "no identity is trusted"),
            (PUBLIC.to_owned(), "expected `NAME KEY`"),
            (format!("a {PUBLIC}00"), "64 hexadecimal digits"),
            (format!("a/b {PUBLIC}"), "1 to 64 characters"),
            (format!("a {PUBLIC}\na {OPENSSL_PUBLIC}"), "its id appears twice"),
        ] {
            let error = TrustedIdentities::parse(&text).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn a_session_is_signed_for_its_group_instance_and_nonce() {
        let group = GroupName::new("telegram").unwrap();
        let instance = InstanceId::new("host-1-0a0b0c0d").unwrap();
        let nonce = Nonce::parse(&"07".repeat(16)).unwrap();
        let note = Note::new("tenure=1\nweight=2").unwrap();
        let signed = key(0x5e).sign_note(&group, &instance, nonce, &note).unwrap();
        assert_eq!(signed.as_str(), format!("tenure=1\nweight=2\nidentity={PUBLIC}.{SESSION}"));
        assert_eq!(split_note(&signed).0, note.as_str());
        assert_eq!(split_note(&note), (note.as_str(), None));
        let remaining = Duration::ZERO;
        let member =
            Member { instance, nonce: Some(nonce), note: signed, remaining, evicted: false };
        assert_eq!(trusted().member(&group, &member), Ok("host"));
        let refused = |group: &str, member: Member| {
            trusted().member(&GroupName::new(group).unwrap(), &member).unwrap_err()
        };
        let does_not_fit = "its signature does not fit";
        assert_eq!(refused("other", member.clone()), does_not_fit);
        let instance = InstanceId::new("host-1-0a0b0c0e").unwrap();
        assert_eq!(refused("telegram", Member { instance, ..member.clone() }), does_not_fit);
        let other = Some(Nonce::from_entropy(8));
        assert_eq!(refused("telegram", Member { nonce: other, ..member.clone() }), does_not_fit);
        let none = "its session has no signature";
        assert_eq!(refused("telegram", Member { nonce: None, ..member.clone() }), none);
        assert_eq!(refused("telegram", Member { note, ..member.clone() }), none);
        let stranger = key(1).sign_note(&group, &member.instance, nonce, &Note::default()).unwrap();
        let unknown = "its key is not among the trusted identities";
        assert_eq!(refused("telegram", Member { note: stranger, ..member }), unknown);
    }

    #[test]
    fn a_checkpoint_is_signed_for_its_place() {
        let duty = DutyKey::new("telegram", "bot-42").unwrap();
        let (epoch, version) = (Epoch::new(19).unwrap(), Version::new(7).unwrap());
        let instance = InstanceId::new("host-1-0a0b0c0d").unwrap();
        let payload = br#"{"last_update_id":12345}"#;
        let place = SealedPlace { duty: &duty, at: (epoch, version), instance: &instance };
        let seal = key(0x5e).sign_checkpoint(&place, Seal::default(), payload);
        assert_eq!(seal.writer.unwrap().1.to_string(), CHECKPOINT);
        let stored = Checkpoint {
            version,
            epoch,
            instance: instance.clone(),
            document: Document::default(),
            unix_ms: 0,
        };
        let check = |duty: &DutyKey, stored: &Checkpoint, seal: &Seal, payload: &[u8]| {
            trusted().check(duty, stored, seal, payload).map_err(|error| error.code())
        };
        assert_eq!(check(&duty, &stored, &seal, payload), Ok(()));
        let refused = Err(Code::Untrusted);
        assert_eq!(check(&duty, &stored, &seal, b"{}"), refused);
        let other = DutyKey::new("telegram", "bot-43").unwrap();
        assert_eq!(check(&other, &stored, &seal, payload), refused);
        for changed in [
            Checkpoint { version: version.next().unwrap(), ..stored.clone() },
            Checkpoint { epoch: epoch.next().unwrap(), ..stored.clone() },
            Checkpoint { instance: InstanceId::new("i").unwrap(), ..stored.clone() },
        ] {
            assert_eq!(check(&duty, &changed, &seal, payload), refused, "{changed:?}");
        }
        let (public, signature) = seal.writer.unwrap();
        let mut other = signature;
        other.0[9] ^= 1;
        for changed in [
            Seal { writer: None, ..seal.clone() },
            Seal { writer: Some((public, other)), ..seal.clone() },
            Seal { writer: Some((key(1).public(), signature)), ..seal.clone() },
            Seal { prev: Some(Mac([1; 32])), ..seal.clone() },
            Seal { origin: Some("x".to_owned()), ..seal.clone() },
            Seal { moved: Some(Moved { to: "x".to_owned(), done: true }), ..seal.clone() },
            Seal { encrypted: Some(("e".to_owned(), CipherNonce([1; 24]))), ..seal.clone() },
        ] {
            assert_eq!(check(&duty, &stored, &changed, payload), refused, "{changed:?}");
        }
        let strange = key(1).sign_checkpoint(&place, Seal::default(), payload);
        assert_eq!(check(&duty, &stored, &strange, payload), refused);
    }
}
