//! Exceptions to rules, by name and with a reason. An unused exception is a finding.

use super::TidyFinding;

/// Excuses the findings about `subject` in one file.
pub(crate) struct Exception {
    /// File, or a folder if it ends in `/`.
    pub(crate) path: &'static str,
    /// Function name, banned call, or rule name, as in the finding.
    pub(crate) subject: &'static str,
    /// Reason for the exception.
    pub(crate) reason: &'static str,
}

/// Every exception of the workspace.
pub(crate) const EXCEPTIONS: &[Exception] = &[
    Exception {
        path: "clippy.toml",
        subject: "columns",
        reason: "an inline table of TOML is one line",
    },
    Exception {
        path: "crates/duty/src/process.rs",
        subject: "SystemTime::now",
        reason: "the time in an instance id is for people",
    },
    Exception {
        path: "crates/store/src/postgres/mutants.rs",
        subject: "statement_timestamp()",
        reason: "the mutant of R4: no release build has it",
    },
    Exception {
        path: "crates/store/src/clock.rs",
        subject: "SystemTime::now",
        reason: "the times of checkpoints and audit entries are for people",
    },
    Exception {
        path: "crates/store/src/conformance/",
        subject: ".unwrap()",
        reason: "a case of the suite fails by panicking",
    },
    Exception {
        path: "crates/store/src/conformance/",
        subject: ".expect(",
        reason: "a case of the suite fails by panicking",
    },
];

/// Removes excused findings, and adds a finding for each unused exception.
pub(crate) fn apply(findings: Vec<TidyFinding>, exceptions: &[Exception]) -> Vec<TidyFinding> {
    let unneeded = exceptions
        .iter()
        .filter(|exception| !findings.iter().any(|finding| exception.excuses(finding)))
        .map(|exception| {
            let Exception { path, subject, reason } = exception;
            let what = format!("the exception for `{subject}` in {path} ({reason}) is not needed");
            TidyFinding::new(file!(), 1, "exception", &what, "remove it")
        });
    let mut left: Vec<TidyFinding> = unneeded.collect();
    let excused = |finding: &TidyFinding| exceptions.iter().any(|given| given.excuses(finding));
    left.extend(findings.into_iter().filter(|finding| !excused(finding)));
    left
}

impl Exception {
    fn excuses(&self, finding: &TidyFinding) -> bool {
        let covers = finding.path == self.path
            || (self.path.ends_with('/') && finding.path.starts_with(self.path));
        covers && finding.subject == self.subject
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCEPTION: Exception = Exception { path: "a/", subject: "dbg!", reason: "a debugger" };

    #[test]
    fn excuses_its_subject_in_its_place_alone() {
        let finding = |path, subject| TidyFinding::new(path, 1, subject, "what", "instead");
        let findings = vec![finding("a/x.rs", "dbg!"), finding("b.rs", "dbg!")];
        let left = apply(findings, &[EXCEPTION]);
        assert_eq!(left, [finding("b.rs", "dbg!")]);
    }

    #[test]
    fn an_unneeded_exception_is_a_finding() {
        let left = apply(Vec::new(), &[EXCEPTION]);
        assert!(left[0].what.contains("`dbg!` in a/ (a debugger) is not needed"), "{left:?}");
    }
}
