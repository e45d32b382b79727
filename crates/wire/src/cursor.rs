//! Cursor file: a checkpoint that any JSON reader can read.
//!
//! The file has the payload unchanged. If that is a JSON object, one more member is inserted before
//! its closing brace, and removing it restores every byte:
//!
//! ```text
//! {"last_update_id": 12345,"_tenure":{"duty":"file/cursor","epoch":3,"version":7,...}}
//! ```
//!
//! Other readers find their own keys, and write files without the member. A payload that is not a
//! JSON object, or has its own `_tenure`, is inside the member instead, as `payload_base64`; so is
//! an encrypted one.
//!
//! The member ends in a SHA-256 of itself and the payload. It detects torn and edited files; the
//! fields of a [`Seal`] protect against forgery.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tenure_core::store::Checkpoint;
use tenure_core::{Document, DutyKey, Epoch, InstanceId, Seal, Version};

use crate::object::Members;

/// Name of the member.
pub const MEMBER: &str = "_tenure";

/// Maximum size of a cursor file: the largest document and its seal in base64, and the marks.
pub const MAX_CURSOR_FILE_BYTES: usize =
    (Document::MAX_DOCUMENT_BYTES + Seal::MAX_SEAL_BYTES) * 4 / 3 + 16 * 1024;

/// Content of a cursor file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CursorFile {
    /// A checkpoint that Tenure wrote, and its duty.
    Ours(DutyKey, Checkpoint),
    /// A JSON object that another program wrote.
    Plain(Document),
}

/// Reason why a file is not a cursor file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCursorFile(pub String);

fn broken(why: impl Into<String>) -> InvalidCursorFile {
    InvalidCursorFile(why.into())
}

/// Content of the member; `sha256` is written last.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Marks {
    duty: String,
    epoch: u64,
    version: u64,
    instance: String,
    unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prev: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enc: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nonce: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sig: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moved: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moving: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

impl Marks {
    /// Fields of the seal.
    fn seal_fields(&mut self) -> [(&'static str, &mut Option<String>); 10] {
        [
            ("key", &mut self.key),
            ("mac", &mut self.mac),
            ("prev", &mut self.prev),
            ("enc", &mut self.enc),
            ("nonce", &mut self.nonce),
            ("by", &mut self.by),
            ("sig", &mut self.sig),
            ("moved", &mut self.moved),
            ("moving", &mut self.moving),
            ("from", &mut self.from),
        ]
    }

    fn seal(&mut self) -> Option<Seal> {
        let fields = self.seal_fields().map(|(name, value)| Some((name, value.as_deref()?)));
        Seal::from_fields(fields.into_iter().flatten())
    }
}

/// Returns the checksum of the marks before it, and of the payload.
fn checksum(marks: &str, payload: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update((marks.len() as u64).to_le_bytes());
    hash.update(marks);
    hash.update(payload);
    crate::folder::hex(&hash.finalize())
}

/// Returns a cursor file with this checkpoint.
pub fn write(duty: &DutyKey, checkpoint: &Checkpoint) -> Vec<u8> {
    let (seal, payload) = taken_apart(&checkpoint.document);
    let mut marks = Marks {
        duty: duty.to_string(),
        epoch: checkpoint.epoch.get(),
        version: checkpoint.version.get(),
        instance: checkpoint.instance.as_str().to_owned(),
        unix_ms: checkpoint.unix_ms,
        ..Marks::default()
    };
    let mut values: BTreeMap<_, _> = seal.fields().into_iter().collect();
    for (name, field) in marks.seal_fields() {
        *field = values.remove(name);
    }
    let place = place_for_member(payload);
    if place.is_none() {
        marks.payload_base64 = Some(STANDARD.encode(payload));
    }
    // Strings and numbers always have a JSON form.
    let text = serde_json::to_string(&marks).unwrap_or_default();
    let open = text.strip_suffix('}').unwrap_or_default();
    let covered = if place.is_some() { payload } else { &[] };
    let member = format!("\"{MEMBER}\":{open},\"sha256\":\"{}\"}}", checksum(open, covered));
    match place {
        Some((at, comma)) => {
            let comma: &[u8] = if comma { b"," } else { b"" };
            [&payload[..at], comma, member.as_bytes(), &payload[at..]].concat()
        }
        None => format!("{{{member}}}\n").into_bytes(),
    }
}

/// Splits a document into seal and payload. An invalid or empty seal is part of the payload:
/// joining would not restore it.
fn taken_apart(document: &Document) -> (Seal, &[u8]) {
    let split = Seal::split(document).ok().filter(|(seal, _)| *seal != Seal::default());
    split.unwrap_or_else(|| (Seal::default(), document.as_bytes()))
}

/// Returns the position of the member in a payload, after the last value of a JSON object without
/// such a member, and whether it needs a comma.
fn place_for_member(payload: &[u8]) -> Option<(usize, bool)> {
    let text = std::str::from_utf8(payload).ok()?;
    let members = serde_json::from_str::<Members<'_>>(text).ok()?.0;
    if members.iter().any(|(name, _)| name == MEMBER) {
        return None;
    }
    let brace = text.rfind('}')?;
    Some((text[..brace].trim_end().len(), !members.is_empty()))
}

/// Reads a cursor file.
pub fn read(bytes: &[u8]) -> Result<CursorFile, InvalidCursorFile> {
    if bytes.is_empty() {
        return Err(broken("is empty"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| broken("is not UTF-8"))?;
    let members: Members<'_> =
        serde_json::from_str(text).map_err(|error| match error.is_eof() {
            true => broken("is truncated"),
            false => broken("is not a JSON object"),
        })?;
    let are_marks = |raw: &RawValue| {
        serde_json::from_str::<Marks>(raw.get()).is_ok_and(|marks| marks.sha256.is_some())
    };
    let mut ours = members.0.iter().filter(|(name, _)| name == MEMBER);
    match (ours.next(), ours.next()) {
        // A damaged name must not make it a plain file.
        (None, _) if members.0.iter().any(|(_, raw)| are_marks(raw)) => Err(edited()),
        // A JSON object never looks like a seal.
        (None, _) => match Document::new(bytes) {
            Ok(document) => Ok(CursorFile::Plain(document)),
            Err(error) => Err(broken(error.problem().detail.clone())),
        },
        (Some((_, raw)), None) => marked(text, raw.get()),
        _ => Err(broken(format!("has {MEMBER} twice"))),
    }
}

fn edited() -> InvalidCursorFile {
    broken(format!(
        "was edited or partly written: its checksum is wrong; remove {MEMBER} to take it as new"
    ))
}

fn marked(text: &str, raw: &str) -> Result<CursorFile, InvalidCursorFile> {
    // A raw value is a slice of the text, so its address gives its position.
    let start = raw.as_ptr().addr() - text.as_ptr().addr();
    let (before, after) = (&text[..start], &text[start + raw.len()..]);
    let before = before.strip_suffix(&format!("\"{MEMBER}\":")).ok_or_else(edited)?;
    let mut marks: Marks = serde_json::from_str(raw).map_err(|_| edited())?;
    let sum = marks.sha256.as_deref().ok_or_else(edited)?;
    let open = raw.strip_suffix(&format!(",\"sha256\":\"{sum}\"}}")).ok_or_else(edited)?;
    let payload = match &marks.payload_base64 {
        Some(payload) => {
            let whole = before == "{" && after == "}\n" && checksum(open, &[]) == sum;
            whole.then(|| STANDARD.decode(payload).ok()).flatten().ok_or_else(edited)?
        }
        None => {
            let payload = format!("{}{after}", before.strip_suffix(',').unwrap_or(before));
            // The member must be where it would be inserted.
            let place = place_for_member(payload.as_bytes()).ok_or_else(edited)?;
            let same = place == (before.trim_end_matches(',').len(), before.ends_with(','));
            if !same || checksum(open, payload.as_bytes()) != sum {
                return Err(edited());
            }
            payload.into_bytes()
        }
    };
    checkpoint(&mut marks, payload).ok_or_else(edited)
}

fn checkpoint(marks: &mut Marks, payload: Vec<u8>) -> Option<CursorFile> {
    let seal = marks.seal()?;
    let document = match seal == Seal::default() {
        true => Document::from_store(payload),
        false => seal.join(&payload),
    };
    let checkpoint = Checkpoint {
        version: Version::new(marks.version).ok()?,
        epoch: Epoch::new(marks.epoch).ok()?,
        instance: InstanceId::new(marks.instance.clone()).ok()?,
        document: document.ok()?,
        unix_ms: marks.unix_ms,
    };
    Some(CursorFile::Ours(marks.duty.parse().ok()?, checkpoint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;
    use tenure_core::{CipherNonce, IdentitySignature, Mac, Moved, PublicKey};

    fn duty() -> DutyKey {
        DutyKey::new("telegram", "bot/42").unwrap()
    }

    fn checkpoint(document: Document) -> Checkpoint {
        Checkpoint {
            version: Version::new(7).unwrap(),
            epoch: Epoch::new(3).unwrap(),
            instance: InstanceId::new("host \"a\"-1-b").unwrap(),
            document,
            unix_ms: 1_700_000_000_000,
        }
    }

    fn of(payload: impl Into<Vec<u8>>) -> Checkpoint {
        checkpoint(Document::new(payload).unwrap())
    }

    fn seal() -> Seal {
        Seal {
            signed: Some(("2026-11".to_owned(), Mac([7; 32]))),
            prev: Some(Mac::NONE),
            encrypted: None,
            writer: None,
            moved: Some(Moved { to: "postgres://h/db".to_owned(), done: true }),
            origin: Some("redis://h#g/d@7".to_owned()),
        }
    }

    const TELEGRAM: &str =
        "{\"last_update_id\": 12345, \"last_updated_at\": \"2026-02-15T10:00:00Z\"}";
    const GMAIL: &str = "{\n  \"history_id\": \"123\",\n  \"last_updated_at\": \"x\"\n}\n";

    #[test]
    fn a_plain_reader_still_finds_its_keys() {
        for (payload, key) in [(TELEGRAM, "last_update_id"), (GMAIL, "history_id")] {
            let bytes = write(&duty(), &of(payload));
            let seen: Value = serde_json::from_slice(&bytes).unwrap();
            let own: Value = serde_json::from_str(payload).unwrap();
            assert_eq!(seen[key], own[key]);
            assert_eq!(seen["_tenure"]["duty"], "telegram/bot%2F42");
            assert_eq!(seen["_tenure"]["version"], 7);
            assert_eq!(read(&bytes), Ok(CursorFile::Ours(duty(), of(payload))));
        }
        assert_eq!(
            read(TELEGRAM.as_bytes()),
            Ok(CursorFile::Plain(Document::new(TELEGRAM).unwrap()))
        );
    }

    #[test]
    fn a_seal_stands_in_the_member() {
        let stored = checkpoint(seal().join(TELEGRAM.as_bytes()).unwrap());
        let bytes = write(&duty(), &stored);
        let seen: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(seen["last_update_id"], 12345);
        assert_eq!(seen["_tenure"]["key"], "2026-11");
        assert_eq!(seen["_tenure"]["moved"], "postgres://h/db");
        assert_eq!(read(&bytes), Ok(CursorFile::Ours(duty(), stored)));
    }

    #[test]
    fn an_encrypted_payload_stands_in_the_member() {
        let encrypted = Some(("2026-11".to_owned(), CipherNonce([7; 24])));
        let writer = Some((PublicKey([1; 32]), IdentitySignature([2; 64])));
        let seal = Seal { encrypted, writer, ..seal() };
        let stored = checkpoint(seal.join(&[0xff; 20]).unwrap());
        let bytes = write(&duty(), &stored);
        let seen: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(seen.as_object().unwrap().len(), 1, "{seen}");
        assert_eq!(seen["_tenure"]["enc"], "2026-11");
        assert_eq!(seen["_tenure"]["payload_base64"], STANDARD.encode([0xff; 20]));
        assert_eq!(read(&bytes), Ok(CursorFile::Ours(duty(), stored)));
    }

    #[test]
    fn odd_payloads_come_back() {
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        for payload in [
            "",
            "{}",
            "{ }",
            " {\n}\n",
            "[]",
            "1",
            "{\"_tenure\":1}",
            "{\"\\u005ftenure\":1}",
            "{\"a\":{\"_tenure\":{}}}",
            "tenure-seal:1\n{}",
            "tenure-seal:1 x\n",
            "{\"a\":1,}",
            "{\"a\":\"}\"}",
            "{\"a\":1} ",
            "\u{feff}{}",
            "{\"a\":1,\"a\":2}",
            "{\"a\":1}}",
            &deep,
        ] {
            let stored = checkpoint(Document::from_store(payload.into()).unwrap());
            let bytes = write(&duty(), &stored);
            assert_eq!(read(&bytes), Ok(CursorFile::Ours(duty(), stored)), "{payload:?}");
            serde_json::from_slice::<Value>(&bytes).unwrap();
        }
    }

    #[test]
    fn what_is_no_cursor_file_is_told() {
        let whole = String::from_utf8(write(&duty(), &of(TELEGRAM))).unwrap();
        let twice = whole.replace("{\"last", "{\"_tenure\":{},\"last");
        let moved = whole.replace(",\"_tenure\"", " ,\"_tenure\"");
        for bytes in ["", " ", "[]", "{\"a\":", "hello", &twice, &moved] {
            assert!(read(bytes.as_bytes()).is_err(), "{bytes:?}");
        }
        let by_hand = whole.replace("12345", "12346");
        assert!(read(by_hand.as_bytes()).unwrap_err().0.contains("edited"));
    }

    proptest! {
        #[test]
        fn any_payload_comes_back(payload: Vec<u8>, sealed: bool) {
            let document = match sealed && !payload.starts_with(b"tenure-seal:1") {
                true => seal().join(&payload).unwrap(),
                false => Document::new(payload).unwrap(),
            };
            let stored = checkpoint(document);
            prop_assert_eq!(read(&write(&duty(), &stored)), Ok(CursorFile::Ours(duty(), stored)));
        }

        #[test]
        fn any_object_comes_back_and_stays_readable(
            members in proptest::collection::btree_map("\\PC{0,9}", "\\PC{0,9}", 0..5),
            pretty: bool,
            (before, after) in ("[ \n\t]{0,3}", "[ \n\t]{0,3}"),
        ) {
            let text = match pretty {
                true => serde_json::to_string_pretty(&members),
                false => serde_json::to_string(&members),
            };
            let stored = of(format!("{before}{}{after}", text.unwrap()));
            let bytes = write(&duty(), &stored);
            let mut seen: Value = serde_json::from_slice(&bytes).unwrap();
            if !members.contains_key(MEMBER) {
                seen.as_object_mut().unwrap().remove(MEMBER);
                prop_assert_eq!(seen, serde_json::to_value(&members).unwrap());
            }
            prop_assert_eq!(read(&bytes), Ok(CursorFile::Ours(duty(), stored)));
        }

        /// A changed byte, a cut or an appended byte is always detected.
        #[test]
        fn damage_is_noticed(at: prop::sample::Index, flip in 1_u8..=255, cut: bool, object: bool) {
            let stored = of(if object { TELEGRAM } else { "any bytes" });
            let whole = write(&duty(), &stored);
            let mut bytes = whole.clone();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] ^= flip }
            prop_assert!(read(&bytes).is_err(), "{:?}", String::from_utf8(bytes));
        }
    }
}
