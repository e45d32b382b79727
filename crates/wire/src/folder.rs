//! Files beside a cursor file: the other durable state of a single instance.
//!
//! Each is one JSON object `{"sha256":"...","body":{...}}`, so that a torn file is detected. Audit
//! entries are lines of JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::cursor::InvalidCursorFile;

/// Newest known format.
pub const FORMAT: u64 = 1;

/// State of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreFile {
    /// Format of these files.
    pub format: u64,
    /// Duty whose checkpoint is the cursor file itself, `group/id`.
    pub duty: String,
    /// Id of the store.
    pub incarnation: String,
    /// Epochs up to this one are granted in no group.
    pub floor: u64,
    /// Readable checkpoints per duty.
    pub history_slots: u64,
    /// Audit entries kept per group, approximately.
    pub audit_kept: u64,
}

/// Durable state of a group. Sessions end with the process and are not part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupFile {
    /// Its name, unescaped.
    pub group: String,
    /// Newest epoch of forgotten duties.
    pub floor: u64,
    /// The last grant of each duty.
    pub duties: Vec<Grant>,
    /// Newest known version of each duty's checkpoint.
    pub versions: Vec<(String, u64)>,
    /// Nonces of opened sessions, with their times.
    pub spent: Vec<(String, u64)>,
    /// Instances that were evicted.
    pub evicted: Vec<String>,
    /// The version of the group's document.
    pub document_version: u64,
    /// The group's document.
    pub document_base64: String,
    /// The newest report on each duty; files of earlier versions have none.
    #[serde(default)]
    pub reports: Vec<ReportRow>,
    /// Forgotten duties, whose files may still exist.
    pub forgotten: Vec<String>,
    /// Duties whose cursor file was put aside, with its new name.
    pub aside: Vec<(String, String)>,
    /// Number of the newest audit entry.
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
    /// The instance.
    pub instance: String,
    /// The session.
    pub nonce: String,
    /// Whether it was not released.
    pub held: bool,
}

/// The newest report on a duty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportRow {
    /// The duty, unescaped.
    pub id: String,
    /// The epoch under which it was written.
    pub epoch: u64,
    /// Its number under that epoch.
    pub number: u64,
    /// The writer.
    pub instance: String,
    /// The document.
    pub document_base64: String,
    /// Wall clock at the write.
    pub unix_ms: u64,
}

/// One audit entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// Number of the entry in its group.
    pub seq: u64,
    /// Wall clock, for display.
    pub unix_ms: u64,
    /// Kind of event.
    pub kind: String,
    /// The instance.
    pub instance: String,
    /// The duty, unescaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duty: Option<String>,
    /// The epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The reason.
    pub reason: String,
}

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    sha256: String,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// Returns bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the SHA-256 of a text in hexadecimal digits.
pub fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// Encodes bytes as base64.
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64.
pub fn from_base64(text: &str) -> Result<Vec<u8>, InvalidCursorFile> {
    STANDARD.decode(text).map_err(|_| InvalidCursorFile("is not base64".to_owned()))
}

/// Returns a file with this body.
pub fn write(body: &impl Serialize) -> Vec<u8> {
    // Strings, numbers and lists of them always have a JSON form.
    let body = serde_json::to_string(body).unwrap_or_default();
    format!("{{\"sha256\":\"{}\",\"body\":{body}}}\n", sha256(&body)).into_bytes()
}

/// Reads the body of a file.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, InvalidCursorFile> {
    let torn =
        || InvalidCursorFile("was edited or partly written: its checksum is wrong".to_owned());
    let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(|_| torn())?;
    let body = envelope.body.get();
    if sha256(body) != envelope.sha256 {
        return Err(torn());
    }
    serde_json::from_str(body)
        .map_err(|error| InvalidCursorFile(format!("has an unknown format: {error}")))
}

/// Returns audit entries as lines.
pub fn write_lines<'a>(entries: impl IntoIterator<Item = &'a AuditLine>) -> Vec<u8> {
    let mut lines = Vec::new();
    for entry in entries {
        // Strings and numbers always have a JSON form.
        lines.extend(serde_json::to_vec(entry).unwrap_or_default());
        lines.push(b'\n');
    }
    lines
}

/// Reads audit entries, and returns the length of their lines: a torn write may follow them.
pub fn read_lines(bytes: &[u8]) -> (Vec<AuditLine>, usize) {
    let (mut entries, mut at) = (Vec::new(), 0);
    while let Some(len) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        match serde_json::from_slice(&bytes[at..at + len]) {
            Ok(entry) => entries.push(entry),
            // Pages of one write can reach the disk in any order: a torn line ends the file.
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
