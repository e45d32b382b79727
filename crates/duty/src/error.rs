//! Error of this crate.

use std::io;

use tenure_core::{Code, Problem, StoreError};

/// Reason why a membership did not begin, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum DutyError {
    /// A store call failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A setting, the group or the environment does not allow it. Nothing was changed.
    #[error(transparent)]
    Refused(Problem),
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
}

impl DutyError {
    pub(crate) fn refused(code: Code, detail: impl Into<String>) -> Self {
        Self::Refused(Problem::new(code, detail))
    }

    /// Stable error code.
    pub fn code(&self) -> Code {
        self.problem().code
    }

    pub(crate) fn problem(&self) -> Problem {
        match self {
            Self::Store(error) => error.problem().clone(),
            Self::Refused(problem) => problem.clone(),
            Self::Thread(error) => Problem::new(Code::Failed, format!("{self}: {error}")),
        }
    }
}

impl From<DutyError> for StoreError {
    fn from(error: DutyError) -> Self {
        match error {
            DutyError::Store(error) => error,
            error => Self::Refused(error.problem()),
        }
    }
}
