//! Contracts between pairs: operations that end something, and anomalies that are allowed.

use crate::operations::{Answer, Kind, TestedOperation};

/// After the answer of the first operation, the others have no effect any more (and if they are
/// answered later, they say so). Names end in `*` for all operations that begin so.
const FINAL: &[(&str, &[&str])] = &[
    (
        "revoke",
        &[
            "commit-token*",
            "announce-token*",
            "post-fence*",
            "resolve-token",
            "reset-token",
            "beat-token",
            "beat-connector",
            "archive-token",
            "delete-token",
            "recount-token",
            "report-token",
        ],
    ),
    ("revoke-other", &["beat-connector-too"]),
    ("announce-8", &["commit-fence-7", "commit-token-fence-7", "announce-7", "post-fence-7"]),
    (
        "announce-9",
        &[
            "commit-fence-*",
            "commit-token-fence-7",
            "announce-7",
            "announce-8",
            "announce-token-8",
            "post-fence-7",
        ],
    ),
    ("announce-token-8", &["commit-token-fence-7", "post-fence-7"]),
    ("commit-fence-8", &["commit-fence-7", "commit-token-fence-7", "announce-7", "post-fence-7"]),
    ("roll-up-newer", &["roll-up"]),
    (
        "evict-a",
        &[
            "keep-a",
            "claim-own",
            "claim-expired-a",
            "claim-new-a",
            "release*",
            "checkpoint-next",
            "checkpoint-first",
            "checkpoint-many",
            "effect",
            "open-again",
        ],
    ),
    ("evict-b", &["keep-b", "claim-expired-b", "claim-free", "claim-new-b", "claim-many"]),
    (
        "close-a",
        &[
            "keep-a",
            "claim-own",
            "claim-expired-a",
            "claim-new-a",
            "release*",
            "checkpoint-next",
            "checkpoint-first",
            "checkpoint-many",
            "effect",
            "open-again",
        ],
    ),
    ("close-b", &["keep-b", "claim-expired-b", "claim-free", "claim-new-b", "claim-many"]),
    ("release-one", &["checkpoint-next", "effect"]),
    ("release-many", &["checkpoint-*", "effect"]),
    ("claim-expired-a", &["checkpoint-expired", "keep-c"]),
    ("claim-expired-b", &["checkpoint-expired", "keep-c"]),
    ("forget-expired", &["checkpoint-expired", "keep-c"]),
    ("adopt-store", &["keep-*", "claim-*", "release*", "checkpoint-*", "effect"]),
];

/// An operation whose result may differ from both serial orders, and why.
pub(crate) struct Anomaly {
    operation: &'static str,
    /// Part of its answer if it lost against the other operation.
    lost: &'static str,
    /// Parts that its answer does not have then.
    but_not: &'static [&'static str],
    #[allow(dead_code, reason = "for readers")]
    reason: &'static str,
}

/// Operations that may lose against the other one: this answer is accepted if everything else is as
/// if they had not run.
const LOSES: &[Anomaly] = &[
    Anomaly {
        operation: "claim*",
        lost: "HeldBy",
        but_not: &["Granted", "Already"],
        reason: "a claim does not wait for a duty that is in use, and is granted nothing if its \
                 session ends meanwhile: the duty counts as held (sentence 7 of the contract)",
    },
    Anomaly {
        operation: "archive*",
        lost: "Some(false)",
        but_not: &[],
        reason: "nothing changed: whether the connector exists is read when the call begins",
    },
];

/// Operations that skip rows which others have locked, as if they were not there. A result is
/// accepted if an order gives it in which that row is locked.
const SKIPS: &[(&str, &str)] = &[
    ("claim-many", "a duty that is in use counts as held, and delays no other (sentence 7)"),
    ("prune*", "retention deletes a locked row a minute later"),
    ("open-*", "old sessions and nonces that are locked are deleted by a later call"),
    ("replica-*", "a replica that is locked is deleted by a later call"),
];

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// Whether nothing that `a` does may take effect once `b` was answered.
pub(crate) fn is_final(b: &TestedOperation, a: &TestedOperation) -> bool {
    let of = FINAL.iter().filter(|(name, _)| *name == b.name);
    of.flat_map(|(_, ended)| *ended).any(|pattern| fits(pattern, a.name))
}

/// Whether an operation may skip locked rows.
pub(crate) fn skips(operation: &TestedOperation) -> bool {
    SKIPS.iter().any(|(pattern, _)| fits(pattern, operation.name))
}

/// Whether an answer only counts what the transactions of an operation did. Those of another one
/// may come between them and take a part of the work.
pub(crate) fn counts(operation: &TestedOperation, answer: &Answer) -> bool {
    operation.kind == Kind::Steps && matches!(answer, Answer::Done(_))
}

/// Whether an answer says that the operation lost against the other one.
pub(crate) fn has_lost(operation: &TestedOperation, answer: &Answer) -> bool {
    let Answer::Done(text) = answer else { return false };
    let is_lost = |it: &&Anomaly| {
        text.contains(it.lost) && !it.but_not.iter().any(|other| text.contains(other))
    };
    LOSES.iter().filter(|it| fits(it.operation, operation.name)).any(|it| is_lost(&it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations;

    #[test]
    fn every_pattern_names_an_operation() {
        let all = operations::all();
        let is_known = |pattern: &str| all.iter().any(|it| fits(pattern, it.name));
        let unknown = FINAL.iter().flat_map(|(name, ended)| ended.iter().chain([name]));
        let unknown: Vec<_> = unknown.filter(|pattern| !is_known(pattern)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        assert!(SKIPS.iter().all(|it| is_known(it.0)));
        assert!(LOSES.iter().all(|it| is_known(it.operation)));
    }
}
