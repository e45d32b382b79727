//! Error of this crate.

use std::io;

use tenure_core::{Code, StoreError};
use tenure_duty::DutyError;

/// Reason why a supervised program did not run, or was not supervised to its end.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// A setting is outside its limits, or contradicts another one.
    #[error("{setting} {problem}")]
    Setting {
        /// Name of the setting, as the command line spells it: `ttl` for `--ttl`.
        setting: &'static str,
        /// The value and its limits.
        problem: String,
    },
    /// The store or the group refused; nothing was changed, or the outcome is unknown.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The process could not become a member of the group, or must not stay one.
    #[error(transparent)]
    Duty(#[from] DutyError),
    /// The operation failed after a part of it was done; `kept` describes the state that is left.
    #[error("failed; {kept}")]
    Kept {
        /// The failure.
        #[source]
        error: StoreError,
        /// The state that is left.
        kept: &'static str,
    },
    /// Another instance holds the duty, and this one does not wait.
    #[error(transparent)]
    Held(StoreError),
    /// The command cannot be started. The duty was given back.
    #[error("the command cannot be started")]
    CannotStart {
        /// The failure.
        #[source]
        error: StoreError,
        /// Whether the program does not exist.
        not_found: bool,
    },
    /// A call of the operating system failed.
    #[error("{what}")]
    System {
        /// The step that failed.
        what: String,
        /// Error of the operating system.
        #[source]
        error: io::Error,
    },
}

impl SuperviseError {
    /// Returns the error code, if there is one.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Store(error)
            | Self::Held(error)
            | Self::Kept { error, .. }
            | Self::CannotStart { error, .. } => Some(error.code()),
            Self::Duty(error) => Some(error.code()),
            Self::Setting { .. } | Self::System { .. } => None,
        }
    }
}

/// Adds the failed step to an error of the operating system.
pub(crate) trait SystemContext<T> {
    fn context(self, what: &str) -> Result<T, SuperviseError>;
}

impl<T, E: Into<io::Error>> SystemContext<T> for Result<T, E> {
    fn context(self, what: &str) -> Result<T, SuperviseError> {
        self.map_err(|error| SuperviseError::System { what: what.to_owned(), error: error.into() })
    }
}
