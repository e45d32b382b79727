//! Messages of etcd's `rpc.proto` and `kv.proto`, limited to the messages and fields that are used.
//! Other fields are skipped when a message is read.
#![allow(missing_docs, reason = "the fields are etcd's, and documented there")]

use prost::{Message, Oneof};

/// Declares messages: each field with its Rust type, its protocol type and its number.
macro_rules! messages {
    ($(
        $(#[$meta:meta])*
        $vis:vis $name:ident { $($(#[$doc:meta])* $field:ident: $kind:ty = [$($prost:tt)+];)* }
    )*) => {$(
        #[derive(Clone, PartialEq, Message)]
        $(#[$meta])*
        $vis struct $name { $($(#[$doc])* #[prost($($prost)+)] $vis $field: $kind,)* }
    )*};
}

messages! {
    pub ResponseHeader {
        member_id: u64 = [uint64, tag = 2];
        revision: i64 = [int64, tag = 3];
        /// Term of the last entry that the member has applied.
        raft_term: u64 = [uint64, tag = 4];
    }

    pub KeyValue {
        key: Vec<u8> = [bytes = "vec", tag = 1];
        create_revision: i64 = [int64, tag = 2];
        mod_revision: i64 = [int64, tag = 3];
        version: i64 = [int64, tag = 4];
        value: Vec<u8> = [bytes = "vec", tag = 5];
        lease: i64 = [int64, tag = 6];
    }

    pub Range {
        key: Vec<u8> = [bytes = "vec", tag = 1];
        /// End of the range, exclusive; empty for one key.
        range_end: Vec<u8> = [bytes = "vec", tag = 2];
        limit: i64 = [int64, tag = 3];
        revision: i64 = [int64, tag = 4];
        /// 0 for none, 1 for ascending, 2 for descending.
        sort_order: i32 = [int32, tag = 5];
        /// 0 for the key, 2 for the creation revision.
        sort_target: i32 = [int32, tag = 6];
        keys_only: bool = [bool, tag = 8];
        count_only: bool = [bool, tag = 9];
        min_create_revision: i64 = [int64, tag = 12];
    }

    pub RangeResponse {
        header: Option<ResponseHeader> = [message, optional, tag = 1];
        kvs: Vec<KeyValue> = [message, repeated, tag = 2];
        more: bool = [bool, tag = 3];
        count: i64 = [int64, tag = 4];
    }

    pub Put {
        key: Vec<u8> = [bytes = "vec", tag = 1];
        value: Vec<u8> = [bytes = "vec", tag = 2];
        lease: i64 = [int64, tag = 3];
        ignore_value: bool = [bool, tag = 5];
        ignore_lease: bool = [bool, tag = 6];
    }

    pub PutResponse {}

    pub DeleteRange {
        key: Vec<u8> = [bytes = "vec", tag = 1];
        /// End of the range, exclusive; empty for one key.
        range_end: Vec<u8> = [bytes = "vec", tag = 2];
    }

    pub DeleteRangeResponse {
        deleted: i64 = [int64, tag = 2];
    }

    /// An operation of a transaction.
    pub TxnOp {
        action: Option<TxnAction> = [oneof = "TxnAction", tags = "1, 2, 3, 4"];
    }

    /// Result of one operation of a transaction.
    pub TxnOpResponse {
        outcome: Option<TxnOutcome> = [oneof = "TxnOutcome", tags = "1, 2, 3, 4"];
    }

    pub TxnResponse {
        header: Option<ResponseHeader> = [message, optional, tag = 1];
        succeeded: bool = [bool, tag = 2];
        responses: Vec<TxnOpResponse> = [message, repeated, tag = 3];
    }

    pub(crate) LeaseGrantRequest {
        ttl: i64 = [int64, tag = 1];
        id: i64 = [int64, tag = 2];
    }

    pub LeaseGrantResponse {
        id: i64 = [int64, tag = 2];
        ttl: i64 = [int64, tag = 3];
    }

    pub(crate) LeaseRevokeRequest {
        id: i64 = [int64, tag = 1];
    }

    pub LeaseRevokeResponse {}

    pub(crate) LeaseKeepAliveRequest {
        id: i64 = [int64, tag = 1];
    }

    pub LeaseKeepAliveResponse {
        header: Option<ResponseHeader> = [message, optional, tag = 1];
        /// In seconds; zero if the lease does not exist.
        ttl: i64 = [int64, tag = 3];
    }

    pub(crate) LeaseTimeToLiveRequest {
        id: i64 = [int64, tag = 1];
        keys: bool = [bool, tag = 2];
    }

    pub LeaseTimeToLiveResponse {
        /// Remaining seconds; negative if the lease does not exist.
        ttl: i64 = [int64, tag = 3];
        granted_ttl: i64 = [int64, tag = 4];
    }

    pub(crate) WatchRequest {
        request: Option<WatchAction> = [oneof = "WatchAction", tags = "1"];
    }

    pub WatchCreate {
        key: Vec<u8> = [bytes = "vec", tag = 1];
        /// End of the range, exclusive; empty for one key.
        range_end: Vec<u8> = [bytes = "vec", tag = 2];
        /// Zero for changes from now on.
        start_revision: i64 = [int64, tag = 3];
    }

    pub WatchResponse {
        created: bool = [bool, tag = 3];
        canceled: bool = [bool, tag = 4];
        compact_revision: i64 = [int64, tag = 5];
        events: Vec<WatchEvent> = [message, repeated, tag = 11];
    }

    /// A change of a key; the key itself is not read.
    pub WatchEvent {}

    pub(crate) MemberListRequest {}

    pub MemberListResponse {
        members: Vec<ClusterMember> = [message, repeated, tag = 2];
    }

    pub ClusterMember {
        id: u64 = [uint64, tag = 1];
        client_urls: Vec<String> = [string, repeated, tag = 4];
        is_learner: bool = [bool, tag = 5];
    }

    /// Requests the active alarms.
    pub(crate) AlarmRequest {}

    pub AlarmResponse {
        alarms: Vec<AlarmMember> = [message, repeated, tag = 2];
    }

    pub AlarmMember {
        /// [`NO_SPACE`], [`CORRUPT`], or an alarm that this client does not know.
        alarm: i32 = [int32, tag = 2];
    }

    pub(crate) StatusRequest {}

    pub StatusResponse {
        header: Option<ResponseHeader> = [message, optional, tag = 1];
        db_size: i64 = [int64, tag = 3];
        /// Zero if the member knows no leader.
        leader: u64 = [uint64, tag = 4];
        /// Zero before version 3.6.
        db_size_quota: i64 = [int64, tag = 12];
    }

    #[prost(skip_debug)]
    pub(crate) AuthenticateRequest {
        name: String = [string, tag = 1];
        password: String = [string, tag = 2];
    }

    #[prost(skip_debug)]
    pub(crate) AuthenticateResponse {
        token: String = [string, tag = 2];
    }
}

impl Range {
    /// Selects one key.
    pub fn of(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    /// Selects keys from the first, inclusive, to the second, exclusive.
    pub fn between(key: impl Into<Vec<u8>>, range_end: impl Into<Vec<u8>>) -> Self {
        Self { range_end: range_end.into(), ..Self::of(key) }
    }

    /// Sorts by creation, oldest first.
    pub fn by_creation(self) -> Self {
        Self { sort_order: 1, sort_target: 2, ..self }
    }
}

impl DeleteRange {
    /// Selects keys from the first, inclusive, to the second, exclusive.
    pub fn between(key: impl Into<Vec<u8>>, range_end: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), range_end: range_end.into() }
    }
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

    /// Writes a key without a lease.
    pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::put_leased(key, value, 0)
    }

    /// Writes a key attached to a lease.
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

impl TxnOpResponse {
    /// Whether this is a nested transaction whose compares were true.
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

/// Condition on the current state of a key.
#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    /// 0 for equality.
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
    /// Compares the version; a missing key has version zero.
    pub fn version(key: impl Into<Vec<u8>>, version: i64) -> Self {
        Self { result: 0, target: 0, key: key.into(), given: Some(CompareTarget::Version(version)) }
    }

    /// Compares the modification revision; a missing key has revision zero.
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

    /// Sets the conditions, all of which must be true.
    pub fn when(self, compare: impl Into<Vec<Compare>>) -> Self {
        Self { compare: compare.into(), ..self }
    }

    /// Sets the operations to run if all conditions are true.
    pub fn and_then(self, success: impl Into<Vec<TxnOp>>) -> Self {
        Self { success: success.into(), ..self }
    }

    /// Sets the operations to run otherwise.
    pub fn or_else(self, failure: impl Into<Vec<TxnOp>>) -> Self {
        Self { failure: failure.into(), ..self }
    }
}

impl LeaseKeepAliveResponse {
    /// Returns the term that the member had applied before it extended or forwarded the lease.
    pub fn term(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.raft_term)
    }
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum WatchAction {
    #[prost(message, tag = "1")]
    Create(WatchCreate),
}

/// Alarm: the database is full.
pub const NO_SPACE: i32 = 1;

/// Alarm: members have different data.
pub const CORRUPT: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the output of `protoc`: the server would not notice a wrong field number.
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
