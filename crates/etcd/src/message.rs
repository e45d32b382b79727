//! Messages of etcd's `rpc.proto` and `kv.proto`, with their numbers: those that are used here, and
//! of them the fields that are. Fields that are not named are skipped when they are read.
#![allow(missing_docs, reason = "the fields are etcd's, and documented there")]

use prost::{Message, Oneof};

/// Declares messages: each field with its type here, its type in the protocol and its number.
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
        /// The term of the last entry that the member has applied.
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
        /// Excluded; empty for one key.
        range_end: Vec<u8> = [bytes = "vec", tag = 2];
        limit: i64 = [int64, tag = 3];
        revision: i64 = [int64, tag = 4];
        /// 0 for none, 1 for ascending, 2 for descending.
        sort_order: i32 = [int32, tag = 5];
        /// 0 for the key, 2 for the revision of its creation.
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
        /// Excluded; empty for one key.
        range_end: Vec<u8> = [bytes = "vec", tag = 2];
    }

    pub DeleteRangeResponse {
        deleted: i64 = [int64, tag = 2];
    }

    /// A part of a transaction.
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
        /// In seconds; zero when there is no such lease.
        ttl: i64 = [int64, tag = 3];
    }

    pub(crate) LeaseTimeToLiveRequest {
        id: i64 = [int64, tag = 1];
        keys: bool = [bool, tag = 2];
    }

    pub LeaseTimeToLiveResponse {
        /// Remaining seconds; negative when there is no such lease.
        ttl: i64 = [int64, tag = 3];
        granted_ttl: i64 = [int64, tag = 4];
    }

    pub(crate) WatchRequest {
        request: Option<WatchAction> = [oneof = "WatchAction", tags = "1"];
    }

    pub WatchCreate {
        key: Vec<u8> = [bytes = "vec", tag = 1];
        /// Excluded; empty for one key.
        range_end: Vec<u8> = [bytes = "vec", tag = 2];
        /// Zero for what changes from now on.
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

    /// Asks which alarms there are.
    pub(crate) AlarmRequest {}

    pub AlarmResponse {
        alarms: Vec<AlarmMember> = [message, repeated, tag = 2];
    }

    pub AlarmMember {
        /// [`NO_SPACE`], [`CORRUPT`], or one that is newer than this client.
        alarm: i32 = [int32, tag = 2];
    }

    pub(crate) StatusRequest {}

    pub StatusResponse {
        header: Option<ResponseHeader> = [message, optional, tag = 1];
        db_size: i64 = [int64, tag = 3];
        /// Zero when it knows none.
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

impl DeleteRange {
    /// Keys from the first to before the second.
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

impl LeaseKeepAliveResponse {
    /// The term that the member had applied before it extended the lease, or passed that on.
    pub fn term(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.raft_term)
    }
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum WatchAction {
    #[prost(message, tag = "1")]
    Create(WatchCreate),
}

/// The database is full.
pub const NO_SPACE: i32 = 1;

/// Members do not have the same keys.
pub const CORRUPT: i32 = 2;

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
