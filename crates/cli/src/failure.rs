//! Failures of commands: messages, hints and exit codes.

use std::process::ExitCode;

use serde_json::json;
use tenure_core::{Code, StoreError};
use tenure_operate::OperateError;
use tenure_switchboard::SwitchboardError;

use crate::args::UsageError;
use crate::hints;
use crate::output::{document, shown, to_stderr, to_stdout};

const REFUSED: u8 = 1;
const BAD_USAGE: u8 = 2;
const UNKNOWN: u8 = 3;
const NO_CHECKPOINT: u8 = 5;

/// Reason why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Bad arguments.
    Usage(String),
    /// An error with a code and a page.
    Store(StoreError),
    /// An error after a part was done; `kept` is the state that is left.
    Kept { error: StoreError, kept: &'static str },
    /// A part was refused; the whole report is printed first.
    Partly { shown: String, error: StoreError, kept: &'static str },
    /// The command needs `--yes`; a preview is printed first.
    Unconfirmed { shown: String },
    /// A failure with an exit code of its own, which differs from that of the user's command.
    Around { failure: Box<Failure>, code: u8 },
    /// An error whose hint depends on the command.
    Hinted { error: StoreError, hint: &'static str },
    /// The operating system failed: no thread, no room for the output.
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
            OperateError::Kept { error, kept } => Self::Kept { error, kept },
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
    /// Adds the state that is left after a part was done.
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

    /// Prints the failure to standard error and returns the exit code.
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
                to_stderr("nothing was changed; add --yes to confirm");
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
        true => "the change may have happened: read the state before you decide",
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

/// Prints help and version to standard output, usage errors to standard error.
pub(crate) fn of_usage(usage: &UsageError) -> ExitCode {
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
        assert!(
            text.contains(
                "\nkept: the change may have happened: read the state before you decide\n"
            )
        );
        assert_eq!(exit_code(&unknown), 3);
        let codes = [Code::Lost, Code::BadUrl, Code::BadInput, Code::BadKeys, Code::NoCheckpoint];
        let exits = codes.map(|code| exit_code(&StoreError::refused(code, "x")));
        assert_eq!(exits, [1, 2, 2, 2, 5]);
    }
}
