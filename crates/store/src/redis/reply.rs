//! Replies of scripts.

use std::time::Duration;

use redis::Value;
use tenure_core::{Code, StoreError, StoreResult, Ttl};

use super::error::unexpected;

/// Iterator over the values of an array.
#[derive(Debug)]
pub(super) struct RedisReply(std::vec::IntoIter<Value>);

impl RedisReply {
    pub(super) fn of(value: Value) -> StoreResult<Self> {
        match value {
            Value::Array(values) => Ok(Self(values.into_iter())),
            _ => Err(unexpected("not an array")),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.0.len() == 0
    }

    fn value(&mut self) -> StoreResult<Value> {
        self.0.next().ok_or_else(|| unexpected("too short"))
    }

    pub(super) fn list(&mut self) -> StoreResult<Self> {
        Self::of(self.value()?)
    }

    pub(super) fn bytes(&mut self) -> StoreResult<Vec<u8>> {
        bytes(self.value()?)
    }

    pub(super) fn text(&mut self) -> StoreResult<String> {
        text(self.value()?)
    }

    pub(super) fn signed(&mut self) -> StoreResult<i64> {
        match self.value()? {
            Value::Int(number) => Ok(number),
            other => text(other)?.parse().map_err(|_| unexpected("not a number")),
        }
    }

    pub(super) fn number(&mut self) -> StoreResult<u64> {
        u64::try_from(self.signed()?).map_err(|_| unexpected("a negative number"))
    }

    pub(super) fn flag(&mut self) -> StoreResult<bool> {
        Ok(self.signed()? != 0)
    }

    /// Reads the remaining TTL of a key. A foreign key without one counts as a day.
    pub(super) fn remaining(&mut self) -> StoreResult<Duration> {
        let left = self.signed()?;
        Ok(u64::try_from(left).map_or(Ttl::MAX_TTL, Duration::from_millis))
    }

    pub(super) fn texts(self) -> StoreResult<Vec<String>> {
        self.0.map(text).collect()
    }
}

fn bytes(value: Value) -> StoreResult<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(unexpected("not a string")),
    }
}

pub(super) fn text(value: Value) -> StoreResult<String> {
    String::from_utf8(bytes(value)?)
        .map_err(|_| StoreError::refused(Code::Damaged, "a stored name is not UTF-8"))
}
