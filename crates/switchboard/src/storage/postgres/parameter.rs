//! Parameters of statements, with the types that they have in PostgreSQL.

use std::time::SystemTime;

use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::Parameter;
use super::row::from_micros;
use crate::storage::TimeSource;

/// PostgreSQL type of a value, alone and in an array.
pub(super) trait SqlType {
    const TYPE: Type;
    const ARRAY: Type;
}

macro_rules! sql_types {
    ($($type:ty: $name:ident, $array:ident;)*) => { $(
        impl SqlType for $type {
            const TYPE: Type = Type::$name;
            const ARRAY: Type = Type::$array;
        }
    )* };
}

sql_types! {
    str: TEXT, TEXT_ARRAY;
    String: TEXT, TEXT_ARRAY;
    i32: INT4, INT4_ARRAY;
    i64: INT8, INT8_ARRAY;
    bool: BOOL, BOOL_ARRAY;
    Uuid: UUID, UUID_ARRAY;
    [u8]: BYTEA, BYTEA_ARRAY;
    SystemTime: TIMESTAMPTZ, TIMESTAMPTZ_ARRAY;
}

impl<T: SqlType + ?Sized> SqlType for &T {
    const TYPE: Type = T::TYPE;
    const ARRAY: Type = T::ARRAY;
}

impl<T: SqlType> SqlType for Option<T> {
    const TYPE: Type = T::TYPE;
    const ARRAY: Type = T::ARRAY;
}

impl<T: SqlType> SqlType for Vec<T> {
    const TYPE: Type = T::ARRAY;
    const ARRAY: Type = T::ARRAY;
}

pub(super) fn parameter<T: SqlType + ToSql + Sync>(value: &T) -> Parameter<'_> {
    (value, T::TYPE)
}

/// Lists parameters in their order. They borrow from the statement that has this list.
macro_rules! parameters {
    ($($value:expr),* $(,)?) => {
        [$($crate::storage::postgres::parameter::parameter(&$value)),*]
    };
}
pub(super) use parameters;

/// Returns the given time; `None` makes the server use its own clock.
pub(super) fn arrival_time(when: TimeSource) -> Option<SystemTime> {
    match when {
        TimeSource::Now => None,
        TimeSource::At(at) => Some(from_micros(at)),
    }
}
