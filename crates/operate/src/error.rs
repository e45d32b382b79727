//! Errors of operations.

use std::io;
use std::path::PathBuf;

use tenure_core::{Code, StoreError};

/// Reason why an operation did not complete.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    /// A store call failed, or a value exceeds the store's limits.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A rule of the operation refused it. Nothing was changed.
    #[error("{code}: {}: {detail}", code.sentence())]
    Refused {
        /// Stable error code.
        code: Code,
        /// Details of this case, without secrets.
        detail: String,
    },
    /// The operation failed after a part of it was done.
    #[error("failed; {kept}")]
    Kept {
        /// Failure.
        #[source]
        error: StoreError,
        /// State that is left.
        kept: &'static str,
    },
    /// A file could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// File that was to be written.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl OperateError {
    pub(crate) fn refused(code: Code, detail: impl Into<String>) -> Self {
        Self::Refused { code, detail: detail.into() }
    }

    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::refused(Code::Conflict, detail)
    }

    pub(crate) fn not_there(detail: impl Into<String>) -> Self {
        Self::refused(Code::NotThere, detail)
    }

    /// Adds the state that is left after a part was done.
    pub(crate) fn keeping(self, kept: &'static str) -> Self {
        let error = match self {
            Self::Store(error) => error,
            Self::Refused { code, detail } => StoreError::refused(code, detail),
            Self::Write { path, source } => {
                let detail = format!("cannot write {}: {source}", path.display());
                StoreError::refused(Code::Machine, detail)
            }
            kept @ Self::Kept { .. } => return kept,
        };
        Self::Kept { error, kept }
    }

    /// Stable error code.
    pub fn code(&self) -> Code {
        match self {
            Self::Store(error) | Self::Kept { error, .. } => error.code(),
            Self::Refused { code, .. } => *code,
            Self::Write { .. } => Code::Machine,
        }
    }
}

/// Turns the error of a read into a refusal: a read changes nothing, whether or not it happened.
pub fn nothing_happened(error: StoreError) -> StoreError {
    StoreError::Refused(error.problem().clone())
}
