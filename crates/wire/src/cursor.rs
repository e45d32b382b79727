//! The cursor file: a checkpoint that a plain reader of JSON can still read.
//!
//! The payload stands in the file as it is. When it is a JSON object, one more member is put in
//! just before its closing brace, and cutting it out gives back every byte:
//!
//! ```text
//! {"last_update_id": 12345,"_tenure":{"duty":"file/cursor","epoch":3,"version":7,...}}
//! ```
//!
//! A reader that does not know `_tenure` finds its own keys where they were. A file without the
//! member is what such a reader has written. A payload that is no JSON object, or that has a
//! `_tenure` of its own, stands inside the member instead, as `payload_base64`.
//!
//! The member ends in a SHA-256 over itself and the payload. It is no signature: it tells a torn or
//! edited file from a whole one, and the fields of a [`Seal`] are what nobody can forge.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tenure_core::store::Checkpoint;
use tenure_core::{Document, DutyKey, Epoch, InstanceId, Seal, Version};

use crate::object::Members;

/// The member that is ours.
pub const MEMBER: &str = "_tenure";

/// No cursor file is larger: the largest document, its seal, both in base64, and the marks.
pub const MAX_CURSOR_FILE_BYTES: usize =
    (Document::MAX_DOCUMENT_BYTES + Seal::MAX_SEAL_BYTES) * 4 / 3 + 16 * 1024;

/// Content of a cursor file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CursorFile {
    /// A checkpoint that Tenure wrote, and of which duty.
    Ours(DutyKey, Checkpoint),
    /// A JSON object that somebody wrote who does not know Tenure.
    Plain(Document),
}

/// Why a file is not a cursor file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCursorFile(pub String);

fn broken(why: impl Into<String>) -> InvalidCursorFile {
    InvalidCursorFile(why.into())
}

/// The marks as they are written; `sha256` comes after them.
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
    fn field(&mut self, name: &str) -> Option<&mut Option<String>> {
        Some(match name {
            "key" => &mut self.key,
            "mac" => &mut self.mac,
            "prev" => &mut self.prev,
            "moved" => &mut self.moved,
            "moving" => &mut self.moving,
            "from" => &mut self.from,
            _ => return None,
        })
    }

    fn seal(&self) -> Option<Seal> {
        let fields = [
            ("key", &self.key),
            ("mac", &self.mac),
            ("prev", &self.prev),
            ("moved", &self.moved),
            ("moving", &self.moving),
            ("from", &self.from),
        ];
        let there = fields.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
        Seal::from_fields(there)
    }
}

/// The checksum over the marks, without it, and the payload.
fn checksum(marks: &str, payload: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update((marks.len() as u64).to_le_bytes());
    hash.update(marks);
    hash.update(payload);
    crate::folder::hex(&hash.finalize())
}

/// A cursor file with this checkpoint.
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
    for (name, value) in seal.fields() {
        if let Some(field) = marks.field(name) {
            *field = Some(value);
        }
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

/// The seal and the payload. What only looks like a seal, or is an empty one, is payload: joining
/// would not give it back.
fn taken_apart(document: &Document) -> (Seal, &[u8]) {
    let whole = (Seal::default(), document.as_bytes());
    match Seal::split(document) {
        Ok((seal, payload)) if seal != Seal::default() => (seal, payload),
        _ => whole,
    }
}

/// Position of the member in a payload: after the last value of a JSON object that has no such
/// member yet, and whether a comma comes first.
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
            true => broken("ends in the middle"),
            false => broken("is not a JSON object"),
        })?;
    let mut ours = members.0.iter().filter(|(name, _)| name == MEMBER);
    match (ours.next(), ours.next()) {
        // One damaged letter in the name must not make our file a plain one.
        (None, _) if members.0.iter().any(|(_, raw)| are_marks(raw)) => Err(edited()),
        (None, _) => plain(bytes),
        (Some((_, raw)), None) => marked(text, raw.get()),
        _ => Err(broken(format!("has {MEMBER} twice"))),
    }
}

/// Without our member: the whole file is the payload. One that could be taken for a seal later is
/// no JSON object, so it does not come here.
fn plain(bytes: &[u8]) -> Result<CursorFile, InvalidCursorFile> {
    let document = Document::new(bytes).map_err(|error| broken(error.problem().detail.clone()))?;
    Ok(CursorFile::Plain(document))
}

fn are_marks(raw: &RawValue) -> bool {
    serde_json::from_str::<Marks>(raw.get()).is_ok_and(|marks| marks.sha256.is_some())
}

fn edited() -> InvalidCursorFile {
    broken(format!(
        "was edited or torn: its checksum is wrong; without {MEMBER} it is taken as new"
    ))
}

fn marked(text: &str, raw: &str) -> Result<CursorFile, InvalidCursorFile> {
    // A raw value is a piece of the text, so its place is known by its address.
    let start = raw.as_ptr().addr() - text.as_ptr().addr();
    let (before, after) = (&text[..start], &text[start + raw.len()..]);
    let before = before.strip_suffix(&format!("\"{MEMBER}\":")).ok_or_else(edited)?;
    let marks: Marks = serde_json::from_str(raw).map_err(|_| edited())?;
    let sum = marks.sha256.as_deref().ok_or_else(edited)?;
    let open = raw.strip_suffix(&format!(",\"sha256\":\"{sum}\"}}")).ok_or_else(edited)?;
    let payload = match &marks.payload_base64 {
        Some(payload) => {
            let whole = before == "{" && after == "}\n" && checksum(open, &[]) == sum;
            whole.then(|| STANDARD.decode(payload).ok()).flatten().ok_or_else(edited)?
        }
        None => {
            let payload = format!("{}{after}", before.strip_suffix(',').unwrap_or(before));
            // What is put in is what is cut out, at the same place.
            let place = place_for_member(payload.as_bytes()).ok_or_else(edited)?;
            let same = place == (before.trim_end_matches(',').len(), before.ends_with(','));
            if !same || checksum(open, payload.as_bytes()) != sum {
                return Err(edited());
            }
            payload.into_bytes()
        }
    };
    checkpoint(&marks, payload).ok_or_else(edited)
}

fn checkpoint(marks: &Marks, payload: Vec<u8>) -> Option<CursorFile> {
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
    use tenure_core::{Mac, Moved};

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

        /// A byte that changed, a cut, anything appended: never taken for whole.
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
