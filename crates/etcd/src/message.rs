//! Messages of etcd's `rpc.proto` and `kv.proto`, with their numbers: those that are used here, and
//! of them the fields that are. Fields that are not named are skipped when they are read.
#![allow(missing_docs, reason = "the fields are etcd's, and documented there")]

use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub struct ResponseHeader {
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    #[prost(int64, tag = "3")]
    pub revision: i64,
    /// The term of the last entry that the member has applied.
    #[prost(uint64, tag = "4")]
    pub raft_term: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub version: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Range {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// Excluded; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub limit: i64,
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// 0 for none, 1 for ascending, 2 for descending.
    #[prost(int32, tag = "5")]
    pub sort_order: i32,
    /// 0 for the key, 2 for the revision of its creation.
    #[prost(int32, tag = "6")]
    pub sort_target: i32,
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
    #[prost(bool, tag = "9")]
    pub count_only: bool,
    #[prost(int64, tag = "12")]
    pub min_create_revision: i64,
}

impl Range {
    /// One key.
    pub fn of(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    /// Keys from the first to before the second.
    pub fn between(key: impl Into<Vec<u8>>, range_end: impl Into<Vec<u8>>) -> Self {
        Self { range_end: range_end.into(), ..Self::of(key) }
    }

    /// The oldest first.
    pub fn by_creation(self) -> Self {
        Self { sort_order: 1, sort_target: 2, ..self }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub more: bool,
    #[prost(int64, tag = "4")]
    pub count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub lease: i64,
    #[prost(bool, tag = "5")]
    pub ignore_value: bool,
    #[prost(bool, tag = "6")]
    pub ignore_lease: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct PutResponse {}

#[derive(Clone, PartialEq, Message)]
pub struct DeleteRange {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// Excluded; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
}

impl DeleteRange {
    /// Keys from the first to before the second.
    pub fn between(key: impl Into<Vec<u8>>, range_end: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), range_end: range_end.into() }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct DeleteRangeResponse {
    #[prost(int64, tag = "2")]
    pub deleted: i64,
}

/// A part of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct TxnOp {
    #[prost(oneof = "TxnAction", tags = "1, 2, 3, 4")]
    pub action: Option<TxnAction>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum TxnAction {
    #[prost(message, tag = "1")]
    Get(Range),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(DeleteRange),
    #[prost(message, tag = "4")]
    Txn(Txn),
}

impl TxnOp {
    pub fn get(range: Range) -> Self {
        Self { action: Some(TxnAction::Get(range)) }
    }

    /// Writes a key that hangs on no lease.
    pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::put_leased(key, value, 0)
    }

    /// Writes a key that goes with its lease.
    pub fn put_leased(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>, lease: i64) -> Self {
        Put { key: key.into(), value: value.into(), lease, ..Put::default() }.into()
    }

    /// Deletes one key.
    pub fn delete(key: impl Into<Vec<u8>>) -> Self {
        DeleteRange { key: key.into(), range_end: Vec::new() }.into()
    }

    pub fn txn(txn: Txn) -> Self {
        Self { action: Some(TxnAction::Txn(txn)) }
    }
}

impl From<Put> for TxnOp {
    fn from(put: Put) -> Self {
        Self { action: Some(TxnAction::Put(put)) }
    }
}

impl From<DeleteRange> for TxnOp {
    fn from(delete: DeleteRange) -> Self {
        Self { action: Some(TxnAction::Delete(delete)) }
    }
}

/// Result of one operation of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct TxnOpResponse {
    #[prost(oneof = "TxnOutcome", tags = "1, 2, 3, 4")]
    pub outcome: Option<TxnOutcome>,
}

impl TxnOpResponse {
    /// Whether it is a nested transaction whose compares were true.
    pub fn succeeded(&self) -> bool {
        matches!(&self.outcome, Some(TxnOutcome::Txn(txn)) if txn.succeeded)
    }
}

#[derive(Clone, PartialEq, Oneof)]
pub enum TxnOutcome {
    #[prost(message, tag = "1")]
    Get(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeResponse),
    #[prost(message, tag = "4")]
    Txn(TxnResponse),
}

/// True when a key has, as it is now, what is given.
#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    /// 0 for equal.
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(oneof = "CompareTarget", tags = "4, 6, 7")]
    given: Option<CompareTarget>,
}

#[derive(Clone, PartialEq, Oneof)]
enum CompareTarget {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

impl Compare {
    /// A key that does not exist has version zero.
    pub fn version(key: impl Into<Vec<u8>>, version: i64) -> Self {
        Self { result: 0, target: 0, key: key.into(), given: Some(CompareTarget::Version(version)) }
    }

    /// A key that does not exist has revision zero.
    pub fn mod_revision(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self {
            result: 0,
            target: 2,
            key: key.into(),
            given: Some(CompareTarget::ModRevision(revision)),
        }
    }

    pub fn value(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        let given = Some(CompareTarget::Value(value.into()));
        Self { result: 0, target: 3, key: key.into(), given }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct Txn {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<TxnOp>,
    #[prost(message, repeated, tag = "3")]
    failure: Vec<TxnOp>,
}

impl Txn {
    pub fn new() -> Self {
        Self::default()
    }

    /// Conditions, all of which must hold.
    pub fn when(self, compare: impl Into<Vec<Compare>>) -> Self {
        Self { compare: compare.into(), ..self }
    }

    /// Operations if all conditions hold.
    pub fn and_then(self, success: impl Into<Vec<TxnOp>>) -> Self {
        Self { success: success.into(), ..self }
    }

    /// Operations otherwise.
    pub fn or_else(self, failure: impl Into<Vec<TxnOp>>) -> Self {
        Self { failure: failure.into(), ..self }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<TxnOpResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub id: i64,
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct LeaseRevokeResponse {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct LeaseKeepAliveResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// In seconds; zero when there is no such lease.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

impl LeaseKeepAliveResponse {
    /// The term that the member had applied before it extended the lease, or passed that on.
    pub fn term(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.raft_term)
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
    #[prost(bool, tag = "2")]
    pub(crate) keys: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct LeaseTimeToLiveResponse {
    /// Remaining seconds; negative when there is no such lease.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
    #[prost(int64, tag = "4")]
    pub granted_ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(oneof = "WatchAction", tags = "1")]
    pub(crate) request: Option<WatchAction>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum WatchAction {
    #[prost(message, tag = "1")]
    Create(WatchCreate),
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// Excluded; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// Zero for what changes from now on.
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchResponse {
    #[prost(bool, tag = "3")]
    pub created: bool,
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<WatchEvent>,
}

/// A change of a key; the key itself is not read.
#[derive(Clone, PartialEq, Message)]
pub struct WatchEvent {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberListRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct MemberListResponse {
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<ClusterMember>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ClusterMember {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(string, repeated, tag = "4")]
    pub client_urls: Vec<String>,
    #[prost(bool, tag = "5")]
    pub is_learner: bool,
}

/// Asks which alarms there are.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AlarmRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct AlarmResponse {
    #[prost(message, repeated, tag = "2")]
    pub alarms: Vec<AlarmMember>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AlarmMember {
    /// [`NO_SPACE`], [`CORRUPT`], or one that is newer than this client.
    #[prost(int32, tag = "2")]
    pub alarm: i32,
}

/// The database is full.
pub const NO_SPACE: i32 = 1;

/// Members do not have the same keys.
pub const CORRUPT: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "3")]
    pub db_size: i64,
    /// Zero when it knows none.
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    /// Zero before version 3.6.
    #[prost(int64, tag = "12")]
    pub db_size_quota: i64,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `protoc` encodes the same text: a number off by one would go unnoticed by the server.
    #[test]
    fn a_transaction_has_the_bytes_of_the_published_protocol() {
        let txn = Txn::new()
            .when([Compare::value("a", "b"), Compare::mod_revision("a", 9)])
            .and_then([TxnOp::put_leased("k", "v", 300), TxnOp::delete("d")])
            .or_else([TxnOp::get(Range { keys_only: true, ..Range::between("f", "g") })]);
        let expected: &[&[u8]] = &[
            b"\x0a\x08\x10\x03\x1a\x01a\x3a\x01b",
            b"\x0a\x07\x10\x02\x1a\x01a\x30\x09",
            b"\x12\x0b\x12\x09\x0a\x01k\x12\x01v\x18\xac\x02",
            b"\x12\x05\x1a\x03\x0a\x01d",
            b"\x1a\x0a\x0a\x08\x0a\x01f\x12\x01g\x40\x01",
        ];
        assert_eq!(txn.encode_to_vec(), expected.concat());
    }
}
