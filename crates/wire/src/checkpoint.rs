//! Checkpoint documents of connectors: of a single instance, with its lease, and of shards.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tenure_core::{Code, StoreError};

/// Cursor and the lease under which it is written.
#[derive(Debug, Serialize, Deserialize)]
pub struct WithLease {
    /// The cursor, unchanged.
    pub checkpoint: Box<RawValue>,
    /// Lease of the duty's holder, if there is one.
    pub lease: Option<Lease>,
}

/// Lease for display. No decision depends on it, because its times are wall clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The holder.
    pub holder_instance_id: String,
    /// Time of the grant, if that is still known.
    pub acquired_at: Option<String>,
    /// Time at which it expires unless it is renewed.
    pub expires_at: String,
}

/// Cursors of all shards of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shards {
    /// Metadata of all shards.
    pub global_metadata: GlobalMetadata,
    /// By id, `0` to `total_shards - 1`.
    pub shards: BTreeMap<String, Shard>,
}

/// Metadata of all shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobalMetadata {
    /// Number of shards.
    pub total_shards: u64,
    /// Time at which a shard last changed its holder, if that is still known.
    pub last_rebalance_at: Option<String>,
}

/// Cursor of one shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// A number, or a string of digits.
    pub offset: Value,
    /// Time of its last write.
    pub last_updated_at: Option<String>,
    /// Holder.
    pub holder_instance_id: Option<String>,
}

fn bad(what: &str) -> StoreError {
    StoreError::refused(Code::BadInput, what)
}

impl WithLease {
    /// Combines a cursor, which must be JSON, with its lease.
    pub fn new(cursor: &[u8], lease: Option<Lease>) -> Result<Self, StoreError> {
        let text = std::str::from_utf8(cursor).ok().map(str::to_owned);
        let checkpoint = text.and_then(|text| RawValue::from_string(text).ok());
        let checkpoint = checkpoint.ok_or_else(|| bad("the checkpoint is not JSON"))?;
        Ok(Self { checkpoint, lease })
    }

    /// Reads a document.
    pub fn parse(document: &[u8]) -> Result<Self, StoreError> {
        let why = "the document is not {\"checkpoint\": ..., \"lease\": ...}";
        serde_json::from_slice(document).map_err(|_| bad(why))
    }
}

impl Shards {
    /// Reads a document and checks that no shard is missing: each shard has other events if their
    /// number differs.
    pub fn parse(document: &[u8]) -> Result<Self, StoreError> {
        let why = "the document is not {\"global_metadata\": ..., \"shards\": ...}";
        let shards: Self = serde_json::from_slice(document).map_err(|_| bad(why))?;
        let (total, there) = (shards.global_metadata.total_shards, shards.shards.len() as u64);
        if total != there {
            return Err(bad(&format!(
                "total_shards is {total}, but the document has {there} shards"
            )));
        }
        for (id, shard) in &shards.shards {
            let named = id.parse::<u64>().is_ok_and(|n| n < total && n.to_string() == *id);
            if !named {
                return Err(bad(&format!("shard id {id:?} is not a number below {total}")));
            }
            if number(&shard.offset).is_none() {
                return Err(bad(&format!("the offset of shard {id} is not a whole number")));
            }
        }
        Ok(shards)
    }
}

/// Members with the position of a cursor.
const CURSORS: [&str; 3] = ["last_update_id", "history_id", "offset"];

fn number(value: &Value) -> Option<i128> {
    match value {
        Value::Number(number) => number.to_string().parse().ok(),
        Value::String(digits) => digits.parse().ok(),
        _ => None,
    }
}

/// Returns the position of a cursor: the number under `last_update_id`, `history_id` or `offset`,
/// as it is written; `None` if there is not exactly one.
pub fn offset(cursor: &[u8]) -> Option<Value> {
    named_offset(cursor).map(|(_, offset)| offset)
}

fn named_offset(cursor: &[u8]) -> Option<(&'static str, Value)> {
    let value: Value = serde_json::from_slice(cursor).ok()?;
    let mut found = CURSORS.iter().filter_map(|name| Some((*name, value.get(name)?)));
    let (name, offset) = found.next().filter(|(_, value)| number(value).is_some())?;
    found.next().is_none().then(|| (name, offset.clone()))
}

/// Returns the time at which a cursor was written, if it has one.
pub fn last_updated_at(cursor: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(cursor).ok()?;
    Some(value.get("last_updated_at")?.as_str()?.to_owned())
}

/// Returns the index of the cursor with the least position: one reader of the whole stream may
/// resume there without missing events of the slowest shard. All must be of the same kind.
pub fn least(cursors: &[Vec<u8>]) -> Result<usize, StoreError> {
    let mut least: Option<(usize, i128)> = None;
    let mut kind = None;
    for (n, cursor) in cursors.iter().enumerate() {
        let named = named_offset(cursor);
        let Some((name, offset)) = named.and_then(|(name, it)| Some((name, number(&it)?))) else {
            let names = CURSORS.join(", ");
            let detail = format!("cursor {} must have exactly one number among {names}", n + 1);
            return Err(bad(&detail));
        };
        if *kind.get_or_insert(name) != name {
            return Err(bad("the cursors are of different kinds and cannot be compared"));
        }
        if least.is_none_or(|(_, least)| offset < least) {
            least = Some((n, offset));
        }
    }
    least.map(|(n, _)| n).ok_or_else(|| bad("there is no cursor to compare"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_document_keeps_the_cursor_s_bytes() {
        let cursor = br#"{ "last_update_id": 12345,  "x": 1.50 }"#;
        let lease = Lease {
            holder_instance_id: "instance-abc123".to_owned(),
            acquired_at: Some("2026-02-15T09:55:00Z".to_owned()),
            expires_at: "2026-02-15T10:00:30Z".to_owned(),
        };
        let document = WithLease::new(cursor, Some(lease.clone())).unwrap();
        let text = serde_json::to_vec(&document).unwrap();
        let read = WithLease::parse(&text).unwrap();
        assert_eq!(read.checkpoint.get().as_bytes(), cursor);
        assert_eq!(read.lease, Some(lease));
        assert!(WithLease::parse(b"{}").is_err());
        assert!(WithLease::new(b"\xff", None).is_err());
    }

    #[test]
    fn a_shard_document_with_a_shard_missing_is_refused() {
        let text = |total| {
            format!(
                r#"{{"global_metadata":{{"total_shards":{total},"last_rebalance_at":null}},
                "shards":{{"0":{{"offset":1000,"last_updated_at":"2026-02-15T10:00:00Z",
                "holder_instance_id":"instance-A"}}}}}}"#
            )
        };
        // No member would claim a shard with another name.
        for name in ["1", "shard-0", "00", ""] {
            let other = text(1).replace("\"0\"", &format!("{name:?}"));
            let error = Shards::parse(other.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("is not a number below 1"), "{error}");
        }
        let read = Shards::parse(text(1).as_bytes()).unwrap();
        assert_eq!(read.shards["0"].offset, 1000);
        let error = Shards::parse(text(4).as_bytes()).unwrap_err();
        assert!(
            error.to_string().contains("total_shards is 4, but the document has 1 shards"),
            "{error}"
        );
    }

    #[test]
    fn the_least_cursor_is_found_by_number() {
        let cursors = |all: &[&str]| all.iter().map(|c| c.as_bytes().to_vec()).collect::<Vec<_>>();
        let least = |all: &[&str]| least(&cursors(all));
        let telegram = [r#"{"last_update_id":100}"#, r#"{"last_update_id":99}"#];
        assert_eq!(least(&telegram), Ok(1));
        // As text "99" sorts after "100".
        assert_eq!(least(&[r#"{"history_id":"100"}"#, r#"{"history_id":"99"}"#]), Ok(1));
        for bad in [
            &[r#"{"last_update_id":1}"#, r#"{"offset":1}"#][..],
            &[r#"{"last_update_id":1,"offset":1}"#],
            &[r#"{"cursor":1}"#],
            &["x"],
            &[],
        ] {
            assert_eq!(least(bad).unwrap_err().code(), Code::BadInput, "{bad:?}");
        }
    }
}
