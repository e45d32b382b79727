use super::*;
use proptest::prelude::*;
use tenure_core::{Document, InstanceId, Moved};

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

fn verdicts(all: &[(Checkpoint, Inspected)]) -> Vec<Verdict> {
    all.iter().map(|(_, inspected)| inspected.verdict.clone()).collect()
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

#[test]
fn a_ring_is_verified_as_a_whole() {
    let keys = keys("k sign HEX");
    let ring = ring(&keys, &duty("d"), &["one", "two", "three"]);
    let good = [Verdict::Good, Verdict::Good, Verdict::Good];
    assert_eq!(verdicts(&verify(&keys, &duty("d"), Some(&ring[0]), &ring)), good);
    // An older one put in the newest's place.
    let replayed = verify(&keys, &duty("d"), Some(&ring[1]), &ring);
    assert_eq!(replayed[0].1.verdict, Verdict::Replayed);
    // One of the same number from another life of the duty, well signed by itself.
    let other = self::ring(&keys, &duty("d"), &["one", "zwei"]);
    let mixed = [ring[0].clone(), other[0].clone(), ring[2].clone()];
    let verdicts = verdicts(&verify(&keys, &duty("d"), Some(&mixed[0]), &mixed));
    assert_eq!(verdicts, [Verdict::OtherPredecessor, Verdict::Good, Verdict::Good]);
}

#[test]
fn keys_are_trusted_by_what_they_may() {
    let old = keys("a sign HEX");
    let signed = &ring(&old, &duty("d"), &["one"])[0];
    let verdict = |text: &str| inspect(Some(&keys(text)), &duty("d"), signed).verdict;
    assert_eq!(verdict("b sign OTHER,a verify HEX"), Verdict::Good);
    assert_eq!(verdict("b sign OTHER,a retired HEX"), Verdict::RetiredKey);
    assert_eq!(verdict("b sign OTHER"), Verdict::UnknownKey);
    assert_eq!(verdict("a sign OTHER"), Verdict::Wrong);
    assert_eq!(inspect(None, &duty("d"), signed).verdict, Verdict::UnknownKey);
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
    assert_eq!(verdict(&seal), Verdict::Good);
    assert_eq!(verdict(&Seal { moved: None, ..seal.clone() }), Verdict::Wrong);
    let elsewhere = Moved { to: "redis://x".to_owned(), done: true };
    assert_eq!(verdict(&Seal { moved: Some(elsewhere), ..seal }), Verdict::Wrong);
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
        prop_assert_eq!(inspect(Some(&keys), &duty("d"), &checkpoint).verdict, Verdict::Good);
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
        prop_assert_ne!(inspect(Some(&keys), &under, &checkpoint).verdict, Verdict::Good);
    }
}
