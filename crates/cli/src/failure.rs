//! What went wrong, told to people or to programs.

use std::process::ExitCode;

use serde_json::json;
use tenure_core::{Code, StoreError};
use tenure_operate::OperateError;
use tenure_switchboard::SwitchboardError;

use crate::args::Usage;
use crate::hints;
use crate::output::{document, shown, to_stderr, to_stdout};

const REFUSED: u8 = 1;
const BAD_USAGE: u8 = 2;
const UNKNOWN: u8 = 3;
const NO_CHECKPOINT: u8 = 5;

/// Why a command did not come to its end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was typed makes no sense.
    Usage(String),
    /// It has a code and a page.
    Store(StoreError),
    /// The same, where more was done before than nothing.
    Kept { error: StoreError, kept: &'static str },
    /// A part of it was refused: what became of all of it is shown first.
    Partly { shown: String, error: StoreError, kept: &'static str },
    /// It would change much and was not confirmed: what it would do is shown first.
    Unconfirmed { shown: String },
    /// It went wrong around a command whose exit codes are passed on: it has one of its own.
    Around { failure: Box<Failure>, code: u8 },
    /// The next step depends on the command that was typed.
    Hinted { error: StoreError, hint: &'static str },
    /// This machine did not play along: no thread, no room for the output.
    Machine(anyhow::Error),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<SwitchboardError> for Failure {
    fn from(error: SwitchboardError) -> Self {
        Self::Store(error.into())
    }
}

impl From<OperateError> for Failure {
    fn from(error: OperateError) -> Self {
        match error {
            OperateError::Store(error) => Self::Store(error),
            OperateError::Refused { code, detail } => {
                Self::Store(StoreError::refused(code, detail))
            }
            error @ OperateError::Write { .. } => Self::Machine(error.into()),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Machine(error)
    }
}

impl Failure {
    /// The same, where more was done before than nothing.
    pub(crate) fn keeping(self, kept: &'static str) -> Self {
        match self {
            Self::Store(error) => Self::Kept { error, kept },
            Self::Machine(error) => {
                let error = StoreError::refused(Code::Machine, format!("{error:#}"));
                Self::Kept { error, kept }
            }
            other => other,
        }
    }

    /// Tells standard error, and the shell.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        let mut hint = None;
        let (error, kept) = match self {
            Self::Hinted { error, hint: this } => {
                hint = Some(*this);
                (error, kept(error))
            }
            Self::Store(error) => (error, kept(error)),
            Self::Kept { error, kept } => (error, *kept),
            Self::Partly { shown, error, kept } => {
                if let Err(error) = to_stdout(shown) {
                    return Self::Machine(error.into()).report(json);
                }
                (error, *kept)
            }
            Self::Unconfirmed { shown } => {
                if let Err(error) = to_stdout(shown) {
                    return Self::Machine(error.into()).report(json);
                }
                to_stderr("nothing was changed: add --yes to do it");
                return ExitCode::from(REFUSED);
            }
            Self::Around { failure, code } => {
                failure.report(json);
                return ExitCode::from(*code);
            }
            Self::Usage(what) => {
                to_stderr(&format!("error: {what}"));
                return ExitCode::from(BAD_USAGE);
            }
            Self::Machine(error) => {
                let error = StoreError::refused(Code::Machine, format!("{error:#}"));
                return Self::Store(error).report(json);
            }
        };
        let hint = hint.unwrap_or(hints::hint(error.code()));
        to_stderr(&match json {
            true => for_programs(error, kept, hint),
            false => for_people(error, kept, hint),
        });
        ExitCode::from(exit_code(error))
    }
}

fn exit_code(error: &StoreError) -> u8 {
    match error.code() {
        _ if error.is_unknown() => UNKNOWN,
        Code::BadUrl | Code::BadInput | Code::BadKeys => BAD_USAGE,
        Code::NoCheckpoint => NO_CHECKPOINT,
        _ => REFUSED,
    }
}

fn kept(error: &StoreError) -> &'static str {
    match error.is_unknown() {
        true => "it may have happened; read again before deciding",
        false => "nothing was changed",
    }
}

fn for_people(error: &StoreError, kept: &str, hint: &str) -> String {
    let code = error.code();
    let problem = shown(&error.problem().to_string());
    format!("{problem}\nkept: {kept}\nhint: {hint}; see `tenure errors {code}`")
}

fn for_programs(error: &StoreError, kept: &str, hint: &str) -> String {
    let code = error.code();
    document(&json!({ "error": {
        "code": code.as_str(),
        "sentence": code.sentence(),
        "detail": error.problem().detail,
        "kept": kept,
        "hint": hint,
    }}))
}

/// Help and version go to standard output, complaints to standard error.
pub(crate) fn of_usage(usage: &Usage) -> ExitCode {
    if usage.is_error {
        to_stderr(&usage.text);
        return ExitCode::from(BAD_USAGE);
    }
    match to_stdout(&usage.text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Failure::Machine(error.into()).report(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_was_kept_and_what_to_do() {
        let refused = StoreError::refused(Code::Unreachable, "no\x1b[1m route");
        let text = for_people(&refused, kept(&refused), hints::hint(refused.code()));
        assert_eq!(
            text,
            "ST002: the store cannot be reached: no\\u{1b}[1m route\n\
             kept: nothing was changed\n\
             hint: check that the server runs, and host and port in the URL; \
             for a file, its folder; see `tenure errors ST002`"
        );
        let unknown = StoreError::unknown(Code::Lost, "x");
        let text = for_people(&unknown, kept(&unknown), hints::hint(unknown.code()));
        assert!(text.contains("\nkept: it may have happened; read again before deciding\n"));
        assert_eq!(exit_code(&unknown), 3);
        let codes = [Code::Lost, Code::BadUrl, Code::BadInput, Code::BadKeys, Code::NoCheckpoint];
        let exits = codes.map(|code| exit_code(&StoreError::refused(code, "x")));
        assert_eq!(exits, [1, 2, 2, 2, 5]);
    }
}
