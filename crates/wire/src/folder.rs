//! The files beside a cursor file: what a single instance must remember that is no cursor.
//!
//! Each is one JSON object `{"sha256":"...","body":{...}}`, so that a torn one is told from a whole
//! one. Audit entries are lines of their own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::cursor::InvalidCursorFile;

/// The newest format that is known here.
pub const FORMAT: u64 = 1;

/// The store as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreFile {
    /// Which version of these files.
    pub format: u64,
    /// The duty whose checkpoint is the cursor file itself, `group/id`.
    pub duty: String,
    /// Names the store.
    pub incarnation: String,
    /// No epoch up to this one is granted in any group.
    pub floor: u64,
    /// Readable checkpoints per duty.
    pub history_slots: u64,
    /// Audit entries kept per group, approximately.
    pub audit_kept: u64,
}

/// Durable state of a group. Sessions are not part of it: they end with the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupFile {
    /// Its name, unescaped.
    pub group: String,
    /// The newest epoch of the duties that were forgotten.
    pub floor: u64,
    /// The last grant of each duty.
    pub duties: Vec<Grant>,
    /// The newest version seen of each duty's checkpoint.
    pub versions: Vec<(String, u64)>,
    /// Nonces of sessions that were opened, and when.
    pub spent: Vec<(String, u64)>,
    /// Instances that were evicted.
    pub evicted: Vec<String>,
    /// The version of the group's document.
    pub document_version: u64,
    /// The group's document.
    pub document_base64: String,
    /// Duties that were forgotten; their files may still have to be removed.
    pub forgotten: Vec<String>,
    /// Duties whose cursor file was put aside, and under which name.
    pub aside: Vec<(String, String)>,
    /// The number of the newest audit entry.
    pub last_seq: u64,
    /// The newest audit entries, until they are in the audit file.
    pub audit: Vec<AuditLine>,
}

/// The last grant of a duty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The duty, unescaped.
    pub id: String,
    /// The epoch.
    pub epoch: u64,
    /// To whom.
    pub instance: String,
    /// To which session.
    pub nonce: String,
    /// Whether it was not given back.
    pub held: bool,
}

/// One audit entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// Grows with every entry of the group.
    pub seq: u64,
    /// The wall clock, for people.
    pub unix_ms: u64,
    /// Kind of event.
    pub kind: String,
    /// To whom.
    pub instance: String,
    /// To which duty of the group, unescaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duty: Option<String>,
    /// Under which epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Why.
    pub reason: String,
}

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    sha256: String,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of a text, in hexadecimal digits.
pub fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// Bytes as text.
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Bytes back from text.
pub fn from_base64(text: &str) -> Result<Vec<u8>, InvalidCursorFile> {
    STANDARD.decode(text).map_err(|_| InvalidCursorFile("is not base64".to_owned()))
}

/// The file with this body.
pub fn write(body: &impl Serialize) -> Vec<u8> {
    // Strings, numbers and lists of them always have a JSON form.
    let body = serde_json::to_string(body).unwrap_or_default();
    format!("{{\"sha256\":\"{}\",\"body\":{body}}}\n", sha256(&body)).into_bytes()
}

/// Reads the body back.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, InvalidCursorFile> {
    let torn = || InvalidCursorFile("was edited or torn: its checksum is wrong".to_owned());
    let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(|_| torn())?;
    let body = envelope.body.get();
    if sha256(body) != envelope.sha256 {
        return Err(torn());
    }
    serde_json::from_str(body)
        .map_err(|error| InvalidCursorFile(format!("has another form: {error}")))
}

/// Audit entries as lines.
pub fn write_lines<'a>(entries: impl IntoIterator<Item = &'a AuditLine>) -> Vec<u8> {
    let mut lines = Vec::new();
    for entry in entries {
        // Strings and numbers always have a JSON form.
        lines.extend(serde_json::to_vec(entry).unwrap_or_default());
        lines.push(b'\n');
    }
    lines
}

/// Reads lines back, and says how many bytes of whole lines there are: what follows them was torn
/// in the middle of writing.
pub fn read_lines(bytes: &[u8]) -> (Vec<AuditLine>, usize) {
    let (mut entries, mut at) = (Vec::new(), 0);
    while let Some(len) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        match serde_json::from_slice(&bytes[at..at + len]) {
            Ok(entry) => entries.push(entry),
            // Pages of one write can reach the disk in any order: what is torn ends the file.
            Err(_) => break,
        }
        at += len + 1;
    }
    (entries, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seq: u64) -> AuditLine {
        AuditLine {
            seq,
            unix_ms: 1,
            kind: "granted".to_owned(),
            instance: "a\n".to_owned(),
            duty: Some("d".to_owned()),
            epoch: Some(seq),
            reason: "why \"not\"".to_owned(),
        }
    }

    #[test]
    fn a_body_comes_back_or_is_told_broken() {
        let file = GroupFile { group: "g".to_owned(), audit: vec![line(1)], ..Default::default() };
        let bytes = write(&file);
        assert_eq!(read::<GroupFile>(&bytes), Ok(file));
        for at in 0..bytes.len() - 1 {
            assert!(read::<GroupFile>(&bytes[..at]).is_err(), "{at}");
            let mut edited = bytes.clone();
            edited[at] ^= 1;
            assert!(read::<GroupFile>(&edited).is_err(), "{at}");
        }
    }

    #[test]
    fn a_torn_line_ends_the_audit_trail() {
        let bytes = write_lines(&[line(1), line(2)]);
        let (entries, whole) = read_lines(&bytes);
        assert_eq!((entries, whole), (vec![line(1), line(2)], bytes.len()));
        let (entries, whole) = read_lines(&bytes[..bytes.len() - 3]);
        assert_eq!((entries, whole), (vec![line(1)], bytes.len() / 2));
    }
}
