use super::*;
use proptest::prelude::*;
use tenure_core::{CipherNonce, Document, InstanceId, Moved};

fn keys(text: &str) -> Keyring {
    Keyring::parse(&text.replace("HEX", &"5e".repeat(32)).replace("OTHER", &"07".repeat(32)))
        .unwrap()
}

fn ring(keys: &Keyring, duty: &DutyKey, payloads: &[&str]) -> Vec<Checkpoint> {
    let mut prev = Mac::NONE;
    let mut ring = Vec::new();
    for (n, payload) in payloads.iter().enumerate() {
        let at = (Epoch::new(3).unwrap(), Version::new(n as u64 + 1).unwrap());
        let seal = sign(keys, duty, at, prev, Seal::default(), payload.as_bytes());
        prev = seal.signed.as_ref().unwrap().1;
        ring.insert(
            0,
            Checkpoint {
                version: at.1,
                epoch: at.0,
                instance: InstanceId::new("i").unwrap(),
                document: seal.join(payload.as_bytes()).unwrap(),
                unix_ms: 0,
            },
        );
    }
    ring
}

fn verdicts(all: &[(Checkpoint, Inspected)]) -> Vec<SignatureVerdict> {
    all.iter().map(|(_, inspected)| inspected.verdict).collect()
}

fn duty(id: &str) -> DutyKey {
    DutyKey::new("g", id).unwrap()
}

#[test]
fn a_signature_is_hmac_sha_256_over_these_bytes() {
    // Computed with Python's hmac module, so that others can verify what we sign.
    let at = (Epoch::new(19).unwrap(), Version::new(7).unwrap());
    let payload = br#"{"last_update_id":12345}"#;
    let duty = DutyKey::new("telegram", "bot-42").unwrap();
    let seal = sign(&keys("k1 sign HEX"), &duty, at, Mac([1; 32]), Seal::default(), payload);
    let expected = "e407451f4f953e9c5bde5398f1e623240b84be035193997edb01315ddd09fbd1";
    assert_eq!(seal.signed.unwrap().1.to_string(), expected);
}

const PAYLOAD: &[u8] = br#"{"last_update_id":12345}"#;

/// Encrypts and signs as version 7 of epoch 19.
fn sealed(protection: &Protection, duty: &DutyKey) -> Checkpoint {
    let (epoch, version) = (Epoch::new(19).unwrap(), Version::new(7).unwrap());
    let instance = InstanceId::new("host-1-0a0b0c0d").unwrap();
    let place = SealedPlace { duty, at: (epoch, version), instance: &instance };
    let (document, _) = protection.seal(&place, Mac([1; 32]), Seal::default(), PAYLOAD).unwrap();
    Checkpoint { version, epoch, instance, document, unix_ms: 0 }
}

fn protection(signing: Signing, text: &str) -> Protection {
    let text = text.replace("HEX", &"5e".repeat(32)).replace("OTHER", &"07".repeat(32));
    let encryption = EncryptionKeys::parse(&text, || 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
    Protection { signing, encryption: Some(encryption.unwrap()), ..Protection::default() }
}

#[test]
fn a_ciphertext_is_xchacha20_poly1305_over_these_bytes() {
    // Computed with a second implementation (in Python), so that others can decrypt what we store.
    let duty = DutyKey::new("telegram", "bot-42").unwrap();
    for (signing, prev, seal) in [
        (
            Signing::Off,
            "",
            "5a1434c013391650e961dd6d3ce1c08ccf21a202606952902a16af0e454eb3171da6562507561abc",
        ),
        (
            Signing::Write(keys("k1 sign HEX")),
            "01",
            "5a1434c013391650e961dd6d3ce1c08ccf21a20260695290ae91d5bcd88e627122058f28106b282b",
        ),
    ] {
        let protection = protection(signing, "e1 encrypt OTHER");
        let stored = sealed(&protection, &duty);
        let (found, payload) = Seal::split(&stored.document).unwrap();
        let nonce = "0102030405060708090a0b0c0d0e0f10090a0b0c0d0e0f10";
        let prev = (!prev.is_empty()).then(|| Mac::parse(&prev.repeat(32)).unwrap());
        assert_eq!(found.encrypted.as_ref().unwrap().1.to_string(), nonce);
        assert_eq!((found.prev, hex::encode(payload).as_str()), (prev, seal));
    }
}

#[test]
fn a_ciphertext_is_bound_to_its_place() {
    let duty = duty("d");
    let protection = protection(Signing::Off, "e1 encrypt OTHER,e2 decrypt OTHER");
    let stored = sealed(&protection, &duty);
    let open = |duty: &DutyKey, stored: &Checkpoint| {
        let opened = protection.open(duty, stored.clone());
        opened.map(|opened| opened.document.as_bytes().to_vec()).map_err(|error| error.code())
    };
    assert_eq!(open(&duty, &stored), Ok(PAYLOAD.to_vec()));
    let refused = Err(Code::CannotDecrypt);
    assert_eq!(open(&DutyKey::new("g", "e").unwrap(), &stored), refused);
    assert_eq!(open(&DutyKey::new("h", "d").unwrap(), &stored), refused);
    let Checkpoint { version, epoch, .. } = stored;
    assert_eq!(
        open(&duty, &Checkpoint { version: version.next().unwrap(), ..stored.clone() }),
        refused
    );
    assert_eq!(
        open(&duty, &Checkpoint { epoch: epoch.next().unwrap(), ..stored.clone() }),
        refused
    );
    let instance = InstanceId::new("host-1-0a0b0c0e").unwrap();
    assert_eq!(open(&duty, &Checkpoint { instance, ..stored.clone() }), refused);
    // Every other field of the seal, too; a key with the same secret has another id.
    let (seal, payload) = Seal::split(&stored.document).unwrap();
    for at in 0..payload.len() {
        let mut payload = payload.to_vec();
        payload[at] ^= 1;
        let document = seal.join(&payload).unwrap();
        assert_eq!(open(&duty, &Checkpoint { document, ..stored.clone() }), refused, "{at}");
    }
    let nonce = seal.encrypted.as_ref().unwrap().1;
    let changed = [
        Seal { encrypted: Some(("e2".to_owned(), nonce)), ..seal.clone() },
        Seal { encrypted: Some(("e1".to_owned(), CipherNonce([9; 24]))), ..seal.clone() },
        Seal { moved: Some(Moved { to: "x".to_owned(), done: true }), ..seal.clone() },
        Seal { origin: Some("x".to_owned()), ..seal.clone() },
        Seal { prev: Some(Mac([1; 32])), ..seal.clone() },
    ];
    for changed in changed {
        let document = changed.join(payload).unwrap();
        assert_eq!(open(&duty, &Checkpoint { document, ..stored.clone() }), refused, "{changed:?}");
    }
}

#[test]
fn a_signature_covers_the_ciphertext_and_its_key() {
    let duty = duty("d");
    let signing = || Signing::Require(keys("k1 sign HEX"));
    let stored = sealed(&protection(signing(), "e1 encrypt OTHER"), &duty);
    let verdict = |stored: &Checkpoint| inspect(signing().keys(), &duty, stored).verdict;
    // Without the encryption key.
    assert_eq!(verdict(&stored), SignatureVerdict::Good);
    let (seal, payload) = Seal::split(&stored.document).unwrap();
    let nonce = seal.encrypted.as_ref().unwrap().1;
    for encrypted in [
        // The ciphertext must not pass for a document that is not encrypted.
        None,
        Some(("e2".to_owned(), nonce)),
        Some(("e1".to_owned(), CipherNonce([9; 24]))),
    ] {
        let document = Seal { encrypted, ..seal.clone() }.join(payload).unwrap();
        let changed = Checkpoint { document, ..stored.clone() };
        assert_eq!(verdict(&changed), SignatureVerdict::Wrong);
    }
}

#[test]
fn a_ring_is_verified_as_a_whole() {
    let keys = keys("k sign HEX");
    let ring = ring(&keys, &duty("d"), &["one", "two", "three"]);
    let good = [SignatureVerdict::Good, SignatureVerdict::Good, SignatureVerdict::Good];
    assert_eq!(verdicts(&verify(&keys, &duty("d"), Some(&ring[0]), &ring)), good);
    // An older one put in the newest's place.
    let replayed = verify(&keys, &duty("d"), Some(&ring[1]), &ring);
    assert_eq!(replayed[0].1.verdict, SignatureVerdict::Replayed);
    // One of the same number from another life of the duty, validly signed by itself.
    let other = self::ring(&keys, &duty("d"), &["one", "zwei"]);
    let mixed = [ring[0].clone(), other[0].clone(), ring[2].clone()];
    let verdicts = verdicts(&verify(&keys, &duty("d"), Some(&mixed[0]), &mixed));
    assert_eq!(
        verdicts,
        [SignatureVerdict::OtherPredecessor, SignatureVerdict::Good, SignatureVerdict::Good]
    );
}

/// Returns the verdicts on these versions of a ring; `newest` is the one in the store.
fn with_versions(
    ring: &[Checkpoint],
    newest: Option<u64>,
    versions: &[u64],
) -> Vec<SignatureVerdict> {
    let find = |n: u64| ring.iter().find(|old| old.version.get() == n).unwrap().clone();
    let left: Vec<Checkpoint> = versions.iter().map(|n| find(*n)).collect();
    let newest = newest.map(find);
    verdicts(&verify(&keys("k sign HEX"), &duty("d"), newest.as_ref(), &left))
}

#[test]
fn what_was_taken_out_of_a_ring_is_noticed() {
    use SignatureVerdict::{Gap, Good, NewestMissing, NotInHistory};
    let ring = ring(&keys("k sign HEX"), &duty("d"), &["one", "two", "three", "four", "five"]);
    let look = |newest, versions: &[u64]| with_versions(&ring, newest, versions);
    assert_eq!(look(Some(5), &[5, 4, 3, 2, 1]), vec![Good; 5]);
    assert_eq!(look(Some(5), &[5, 4, 2, 1]), [Good, Gap, Good, Good]);
    assert_eq!(look(Some(5), &[5, 1]), [Gap, Good]);
    // A ring ends somewhere, with one entry at least.
    assert_eq!(look(Some(5), &[5, 4, 3]), vec![Good; 3]);
    assert_eq!(look(Some(5), &[5]), [Good]);
    assert_eq!(look(Some(5), &[]), [NotInHistory]);
    assert_eq!(look(Some(5), &[4, 3]), [NotInHistory, Good, Good]);
    assert_eq!(look(Some(1), &[]), [Good]);
    assert_eq!(look(None, &[5, 4]), [NewestMissing, Good]);
    assert_eq!(look(None, &[5, 3]), [NewestMissing, Good]);
    assert_eq!(look(None, &[]), []);
}

#[test]
fn a_gap_is_noticed_before_anything_is_signed() {
    let plain = |version: u64| Checkpoint {
        version: Version::new(version).unwrap(),
        document: Document::new(*b"x").unwrap(),
        ..ring(&keys("k sign HEX"), &duty("d"), &["x"]).remove(0)
    };
    let all: Vec<Checkpoint> = [4, 3, 2, 1].map(plain).to_vec();
    assert_eq!(with_versions(&all, Some(4), &[4, 3, 2, 1]), vec![SignatureVerdict::Unsigned; 4]);
    assert_eq!(
        with_versions(&all, Some(4), &[4, 2]),
        [SignatureVerdict::Gap, SignatureVerdict::Unsigned]
    );
    assert_eq!(with_versions(&all, Some(2), &[4, 3, 2])[0], SignatureVerdict::Replayed);
}

#[test]
fn what_is_left_of_an_earlier_life_is_no_fault() {
    let keys = keys("k sign HEX");
    let earlier = ring(&keys, &duty("d"), &["1", "2", "3", "4", "5", "6"]);
    // The later life counts from one again, under a larger epoch, and takes places of the ring.
    let (mut prev, mut later) = (Mac::NONE, Vec::new());
    for version in [1, 2] {
        let at = (Epoch::new(9).unwrap(), Version::new(version).unwrap());
        let seal = sign(&keys, &duty("d"), at, prev, Seal::default(), b"x");
        prev = seal.signed.as_ref().unwrap().1;
        let document = seal.join(b"x").unwrap();
        let (epoch, version) = at;
        later.push(Checkpoint { epoch, version, document, ..earlier[0].clone() });
    }
    let mut ring = [earlier[0].clone(), earlier[2].clone(), later[0].clone(), later[1].clone()];
    for _ in 0..2 {
        let found = verify(&keys, &duty("d"), Some(&later[1]), &ring);
        assert_eq!(verdicts(&found), vec![SignatureVerdict::Good; 4]);
        assert_eq!(found[0].0, later[1]);
        ring.reverse();
    }
    // An older life put in the newest's place.
    let found = verify(&keys, &duty("d"), Some(&earlier[0]), &ring);
    assert_eq!(found[0].1.verdict, SignatureVerdict::Replayed);
}

#[test]
fn keys_are_trusted_by_what_they_may() {
    let old = keys("a sign HEX");
    let signed = &ring(&old, &duty("d"), &["one"])[0];
    let verdict = |text: &str| inspect(Some(&keys(text)), &duty("d"), signed).verdict;
    assert_eq!(verdict("b sign OTHER,a verify HEX"), SignatureVerdict::Good);
    assert_eq!(verdict("b sign OTHER,a retired HEX"), SignatureVerdict::RetiredKey);
    assert_eq!(verdict("b sign OTHER"), SignatureVerdict::UnknownKey);
    assert_eq!(verdict("a sign OTHER"), SignatureVerdict::Wrong);
    assert_eq!(inspect(None, &duty("d"), signed).verdict, SignatureVerdict::UnknownKey);
}

#[test]
fn where_it_was_moved_to_is_signed_too() {
    let keys = keys("k sign HEX");
    let at = (Epoch::new(1).unwrap(), Version::new(1).unwrap());
    let moved =
        Seal { moved: Some(Moved { to: "redis://h".to_owned(), done: true }), ..Seal::default() };
    let seal = sign(&keys, &duty("d"), at, Mac::NONE, moved, b"x");
    let checkpoint = |seal: &Seal| Checkpoint {
        document: seal.join(b"x").unwrap(),
        ..ring(&keys, &duty("d"), &["x"]).remove(0)
    };
    let checkpoint = |seal: &Seal| Checkpoint { epoch: at.0, ..checkpoint(seal) };
    let verdict = |seal: &Seal| inspect(Some(&keys), &duty("d"), &checkpoint(seal)).verdict;
    assert_eq!(verdict(&seal), SignatureVerdict::Good);
    assert_eq!(verdict(&Seal { moved: None, ..seal.clone() }), SignatureVerdict::Wrong);
    let elsewhere = Moved { to: "redis://x".to_owned(), done: true };
    assert_eq!(verdict(&Seal { moved: Some(elsewhere), ..seal }), SignatureVerdict::Wrong);
}

proptest! {
    #[test]
    fn whatever_is_changed_is_noticed(
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        bit in 0_u8..8,
        what in 0..4,
    ) {
        let keys = keys("k sign HEX");
        let text = [&b"p"[..], &payload].concat();
        let at_one = (Epoch::new(3).unwrap(), Version::new(1).unwrap());
        let seal = sign(&keys, &duty("d"), at_one, Mac::NONE, Seal::default(), &text);
        let mut checkpoint = ring(&keys, &duty("d"), &["x"]).remove(0);
        checkpoint.document = seal.join(&text).unwrap();
        let verdict = inspect(Some(&keys), &duty("d"), &checkpoint).verdict;
        prop_assert_eq!(verdict, SignatureVerdict::Good);
        let mut under = duty("d");
        match what {
            0 => {
                let mut bytes = checkpoint.document.as_bytes().to_vec();
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
                checkpoint.document = Document::from_store(bytes).unwrap();
            }
            1 => under = duty("e"),
            2 => checkpoint.epoch = checkpoint.epoch.next().unwrap(),
            _ => checkpoint.version = checkpoint.version.next().unwrap(),
        }
        prop_assert_ne!(inspect(Some(&keys), &under, &checkpoint).verdict, SignatureVerdict::Good);
    }
}
