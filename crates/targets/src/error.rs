//! The error of this crate.

use std::time::Duration;

use tenure_core::text::span;
use tenure_core::{Code, Problem, StoreError};

/// Reason why a list of targets cannot be read. Reading changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct TargetsError(Problem);

impl TargetsError {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Problem::new(code, detail))
    }

    /// Stable error code: [`Code::BadTargets`], [`Code::TooManyTargets`] or [`Code::NotBuilt`].
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Adds the place of the error to the message.
    pub(crate) fn at(mut self, place: impl std::fmt::Display) -> Self {
        self.0.detail = format!("{place}: {}", self.0.detail);
        self
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn with_source(
        self,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self(self.0.with_source(source))
    }
}

impl From<TargetsError> for StoreError {
    fn from(error: TargetsError) -> Self {
        Self::Refused(error.0)
    }
}

/// Converts a connection error, which concerns the list, not a store.
impl From<StoreError> for TargetsError {
    fn from(error: StoreError) -> Self {
        let mut problem = error.problem().clone();
        if !matches!(problem.code, Code::TooManyTargets | Code::NotBuilt) {
            problem.code = Code::BadTargets;
        }
        Self(problem)
    }
}

/// Error for a list that cannot be read, or an invalid URL.
pub(crate) fn bad(detail: impl Into<String>) -> TargetsError {
    TargetsError::new(Code::BadTargets, detail)
}

pub(crate) fn late(limit: Duration) -> TargetsError {
    bad(format!("reading the list took longer than {}", span(limit)))
}

/// Error for a list that is too long. Reading stops early, so the number of targets is unknown.
pub(crate) fn too_many(found: usize, most: usize) -> TargetsError {
    let detail = format!("at least {found} targets, and the limit is {most}");
    TargetsError::new(Code::TooManyTargets, detail)
}
