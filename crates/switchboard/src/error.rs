//! Error type of the switchboard and its storage.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use tenure_core::{Code, StoreError};

/// Failure of a switchboard operation. Never contains a secret.
///
/// Losing a race is not an error: that is an `Ok` value.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{code}: {}: {detail} ({effect})", .code.sentence())]
pub struct SwitchboardError {
    code: Code,
    detail: String,
    effect: Effect,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Effect of a failed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    Unknown,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "nothing was changed",
            Self::Unknown => "it may have happened",
        })
    }
}

impl SwitchboardError {
    /// The operation did not happen: it may be tried again.
    pub fn refused(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), effect: Effect::None, source: None }
    }

    /// The operation may have happened: read again before deciding, never repeat it blindly.
    pub fn unknown(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), effect: Effect::Unknown, source: None }
    }

    /// Attaches the error that caused this one.
    #[must_use]
    pub fn caused_by(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }

    /// The stable code; each has a page under `docs/errors/`.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The details of this case.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The same problem, found in the answer to an operation that has happened.
    #[must_use]
    pub fn or_happened(self) -> Self {
        Self { effect: Effect::Unknown, ..self }
    }

    /// Whether the operation may have happened.
    pub fn is_unknown(&self) -> bool {
        self.effect == Effect::Unknown
    }
}

/// The cause does not count: the same problem may have several.
impl PartialEq for SwitchboardError {
    fn eq(&self, other: &Self) -> bool {
        (self.code, &self.detail, self.effect) == (other.code, &other.detail, other.effect)
    }
}

impl Eq for SwitchboardError {}

impl From<StoreError> for SwitchboardError {
    fn from(error: StoreError) -> Self {
        let effect = if error.is_unknown() { Effect::Unknown } else { Effect::None };
        Self { code: error.code(), detail: error.problem().detail.clone(), effect, source: None }
    }
}

impl From<SwitchboardError> for StoreError {
    fn from(SwitchboardError { code, detail, effect, .. }: SwitchboardError) -> Self {
        match effect {
            Effect::None => Self::refused(code, detail),
            Effect::Unknown => Self::unknown(code, detail),
        }
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
