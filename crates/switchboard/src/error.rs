//! Error type of the switchboard and its storage.

use std::error::Error;

use tenure_core::{Code, StoreError};

/// Failure of a switchboard operation: a code, a detail, whether it may have happened, and the
/// cause. Never contains a secret.
///
/// Losing a race is not an error: that is an `Ok` value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct SwitchboardError(#[from] StoreError);

/// Result of a storage operation.
pub type StorageResult<T> = Result<T, SwitchboardError>;

impl SwitchboardError {
    /// Returns an error for an operation that did not happen and may be retried.
    pub fn refused(code: Code, detail: impl Into<String>) -> Self {
        Self(StoreError::refused(code, detail))
    }

    /// Returns an error for an operation that may have happened: read again, never retry blindly.
    pub fn unknown(code: Code, detail: impl Into<String>) -> Self {
        Self(StoreError::unknown(code, detail))
    }

    /// Attaches the error that caused this one.
    #[must_use]
    pub fn caused_by(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self(self.0.with_source(source))
    }

    /// Returns the stable code; each has a page under `docs/errors/`.
    pub fn code(&self) -> Code {
        self.0.code()
    }

    /// Returns the details of this case.
    pub fn detail(&self) -> &str {
        &self.0.problem().detail
    }

    /// Returns the same problem as an unknown outcome, because the operation has happened.
    #[must_use]
    pub fn or_happened(self) -> Self {
        Self(self.0.or_happened())
    }

    /// Returns whether the operation may have happened.
    pub fn is_unknown(&self) -> bool {
        self.0.is_unknown()
    }
}

impl From<SwitchboardError> for StoreError {
    fn from(error: SwitchboardError) -> Self {
        error.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_store_keeps_its_text_code_and_effect() {
        for error in [
            StoreError::refused(Code::Full, "disk"),
            StoreError::unknown(Code::Lost, "no answer in time"),
        ] {
            let ours = SwitchboardError::from(error.clone());
            assert_eq!(ours.to_string(), error.to_string());
            assert_eq!((ours.code(), ours.is_unknown()), (error.code(), error.is_unknown()));
            assert_eq!(StoreError::from(ours), error);
        }
    }

    #[test]
    fn the_cause_is_kept() {
        let cause = std::io::Error::other("no route");
        let error = SwitchboardError::refused(Code::Machine, "cannot listen").caused_by(cause);
        assert_eq!(error.or_happened().source().map(ToString::to_string), Some("no route".into()));
    }
}
