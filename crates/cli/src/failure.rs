//! Failures of commands: messages, hints and exit codes.

use std::process::ExitCode;

use serde_json::json;
use tenure_core::{Code, StoreError};
use tenure_operate::OperateError;
use tenure_switchboard::SwitchboardError;

use crate::args::UsageError;
use crate::hints;
use crate::output::{document, shown, to_stderr, to_stdout};
use crate::paint::Paint;

const REFUSED: u8 = 1;
const BAD_USAGE: u8 = 2;
const UNKNOWN: u8 = 3;
const NO_CHECKPOINT: u8 = 5;

/// Reason why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Bad arguments.
    Usage(String),
    /// The command needs `--yes`; a preview is printed first.
    Unconfirmed { shown: String },
    /// An error with a code and a page.
    Error(Box<ErrorReport>),
}

/// Error report, as printed.
#[derive(Debug)]
pub(crate) struct ErrorReport {
    pub(crate) error: StoreError,
    /// Report that is printed first, if a part was done.
    shown: String,
    /// State after the failure; by default, derived from the error.
    pub(crate) kept: Option<&'static str>,
    /// Next step that depends on the command; by default, the hint of the code.
    hint: Option<&'static str>,
    /// Exit code that differs from those of the user's command; by default, that of the error.
    exit: Option<u8>,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let (shown, kept, hint, exit) = (String::new(), None, None, None);
        Self::Error(Box::new(ErrorReport { error, shown, kept, hint, exit }))
    }
}

impl From<UsageError> for Failure {
    fn from(usage: UsageError) -> Self {
        Self::Usage(usage.text.trim_start_matches("error: ").to_owned())
    }
}

impl From<SwitchboardError> for Failure {
    fn from(error: SwitchboardError) -> Self {
        StoreError::from(error).into()
    }
}

impl From<OperateError> for Failure {
    fn from(error: OperateError) -> Self {
        match error {
            OperateError::Store(error) => error.into(),
            OperateError::Kept { error, kept } => Self::from(error).keeping(kept),
            OperateError::Refused { code, detail } => StoreError::refused(code, detail).into(),
            error @ OperateError::Write { .. } => anyhow::Error::from(error).into(),
        }
    }
}

/// Errors of the operating system, such as no thread or no space for the output.
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        StoreError::refused(Code::Machine, format!("{error:#}")).into()
    }
}

impl Failure {
    /// Creates a failure of a part of the work; the whole report is printed first.
    pub(crate) fn partly(shown: String, error: StoreError, kept: &'static str) -> Self {
        let (kept, hint, exit) = (Some(kept), None, None);
        Self::Error(Box::new(ErrorReport { error, shown, kept, hint, exit }))
    }

    /// Sets the report that is printed first.
    pub(crate) fn showing(mut self, shown: String) -> Self {
        if let Self::Error(report) = &mut self {
            report.shown = shown;
        }
        self
    }

    /// Sets the state after the failure, unless it is set.
    pub(crate) fn keeping(mut self, kept: &'static str) -> Self {
        if let Self::Error(report) = &mut self {
            report.kept.get_or_insert(kept);
        }
        self
    }

    /// Sets a next step that depends on the command.
    pub(crate) fn hinting(mut self, hint: &'static str) -> Self {
        if let Self::Error(report) = &mut self {
            report.hint = Some(hint);
        }
        self
    }

    /// Sets the exit code of an error, unless it is set.
    pub(crate) fn exiting(mut self, code: u8) -> Self {
        if let Self::Error(report) = &mut self {
            report.exit.get_or_insert(code);
        }
        self
    }

    /// Prints the failure to standard error and returns the exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        let shown = match self {
            Self::Usage(what) => {
                to_stderr(&format!("{} {what}", Paint::Bad.err("error:")));
                return ExitCode::from(BAD_USAGE);
            }
            Self::Unconfirmed { shown } => shown,
            Self::Error(report) => &report.shown,
        };
        // Write only if there is a report: standard output itself may have failed.
        if !shown.is_empty()
            && let Err(failure) = to_stdout(shown)
        {
            let exit = if let Self::Error(report) = self { report.exit } else { None };
            return exit.into_iter().fold(failure, Self::exiting).report(json);
        }
        let Self::Error(report) = self else {
            to_stderr("nothing was changed; add --yes to confirm");
            return ExitCode::from(REFUSED);
        };
        let error = &report.error;
        let kept = report.kept.unwrap_or(kept(error));
        let hint = report.hint.unwrap_or(hints::hint(error.code()));
        to_stderr(&match json {
            true => for_programs(error, kept, hint),
            false => for_people(error, kept, hint),
        });
        ExitCode::from(report.exit.unwrap_or(exit_code(error)))
    }
}

fn exit_code(error: &StoreError) -> u8 {
    match error.code() {
        _ if error.is_unknown() => UNKNOWN,
        Code::BadUrl
        | Code::BadInput
        | Code::BadKeys
        | Code::BadConfig
        | Code::BadVariable
        | Code::BadSchedule => BAD_USAGE,
        Code::NoCheckpoint => NO_CHECKPOINT,
        _ => REFUSED,
    }
}

fn kept(error: &StoreError) -> &'static str {
    match error.is_unknown() {
        true => "unknown; the change may have happened",
        false => "nothing was changed",
    }
}

fn for_people(error: &StoreError, kept: &str, hint: &str) -> String {
    let code = error.code();
    let problem = shown(&error.problem().to_string());
    let problem = problem.strip_prefix(code.as_str()).unwrap_or(&problem);
    let code_painted = Paint::Bad.err(code.as_str());
    format!("{code_painted}{problem}\nkept: {kept}\nhint: {hint}; see `tenure errors {code}`")
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
    to_stdout(&usage.text).map_or_else(|failure| failure.report(false), |_| ExitCode::SUCCESS)
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
        assert!(text.contains("\nkept: unknown; the change may have happened\n"));
        assert_eq!(exit_code(&unknown), 3);
        let codes = [Code::Lost, Code::BadUrl, Code::BadInput, Code::BadKeys, Code::NoCheckpoint];
        let exits = codes.map(|code| exit_code(&StoreError::refused(code, "x")));
        assert_eq!(exits, [1, 2, 2, 2, 5]);
    }
}
