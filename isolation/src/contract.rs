//! Contracts between pairs: operations that end something, and anomalies that are allowed.

use crate::operations::{Answer, TestedOperation};

/// After the answer of one of the first operations, the others have no effect any more (and if they
/// are answered later, they say so). A `*` at one end of a name stands for any text.
const FINAL: &[(&[&str], &[&str])] = &[
    (
        &["revoke"],
        &[
            "commit-token*",
            "announce-token*",
            "post-fence*",
            "resolve-token",
            "fence-reset-token",
            "beat-token",
            "beat-connector",
            "archive-token",
            "delete-token",
            "recount-token",
            "report-token",
        ],
    ),
    (&["revoke-other"], &["beat-connector-too"]),
    (
        &["announce-8", "commit-fence-8"],
        &["commit-fence-7", "commit-token-fence-7", "announce-7", "post-fence-7"],
    ),
    (
        &["announce-9"],
        &[
            "commit-fence-*",
            "commit-token-fence-7",
            "announce-7",
            "announce-8",
            "announce-token-8",
            "post-fence-7",
        ],
    ),
    (&["announce-token-8"], &["commit-token-fence-7", "post-fence-7"]),
    (&["roll-up-newer"], &["roll-up"]),
    (&["adopt-inbox"], &["commit-*"]),
    (
        &["evict-a", "close-a"],
        &[
            "keep-a",
            "keep-stale",
            "claim-own",
            "claim-expired-a",
            "claim-new-a",
            "release*",
            "checkpoint-next",
            "checkpoint-first",
            "checkpoint-many",
            "result-next",
            "result-first",
            "result-many",
            "effect",
            "open-again",
        ],
    ),
    (&["evict-a-later"], &["keep-a", "keep-stale", "claim-expired-a", "claim-new-a", "open-again"]),
    (
        &["evict-b", "close-b"],
        &["keep-b", "claim-expired-b", "claim-free", "claim-new-b", "claim-many"],
    ),
    (
        &["release-one"],
        &["checkpoint-next", "checkpoint-many", "result-next", "result-many", "effect"],
    ),
    (&["release-many"], &["checkpoint-*", "result-*", "effect"]),
    (&["claim-lapsed", "forget-lapsed"], &["*-lapsing"]),
    (&["open-lapsed"], &["keep-lapsing"]),
    (
        &["adopt-store"],
        &["keep-*", "claim-*", "close-*", "release*", "checkpoint-*", "result-*", "effect*"],
    ),
];

/// An operation whose result may differ from both serial orders, beside which others, and why.
type Anomaly = (&'static str, &'static [&'static str], &'static str);

/// Claims that are answered that the duty is held, and have no effect.
const LOSES: &[Anomaly] = &[(
    "claim*",
    &[
        "adopt-store",
        "checkpoint-*",
        "claim-*",
        "close-*",
        "effect*",
        "evict-*",
        "forget-*",
        "release-*",
        "result-*",
    ],
    "a claim does not wait for a duty in use, and is granted nothing if its session ends \
     meanwhile: the duty counts as held (sentence 7 of the contract)",
)];

/// Changes that are answered that nothing changed.
const UNCHANGED: &[Anomaly] =
    &[("archive*", &["delete*"], "whether the connector exists is read when the call begins")];

/// Operations whose answers may have other numbers.
const COUNTS: &[Anomaly] = &[
    ("prune*", &["prune*"], "several transactions: each does a part of the work"),
    ("prune-history", &["delete*", "recount*"], "several transactions: the other does a part"),
];

/// Claims whose answer may have an older mark.
const MARKS: &[Anomaly] = &[(
    "claim-own",
    &["release*"],
    "the mark is read when the call begins, and a stale one only costs a lookup",
)];

/// Reads that are answered that only the key of an event is left.
const TRIMMED: &[Anomaly] =
    &[("message", &["prune"], "retention deletes events and their keys in two transactions")];

/// Operations that are answered that a hold was lost which ended after they took effect.
const LATER: &[Anomaly] = &[(
    "keep-stale",
    &["adopt-store", "claim-own", "close-a", "evict-a", "release-*"],
    "holds whose mark is not the current one are looked up after the session was kept alive",
)];

/// Tables of which an operation skips rows that others have locked, and why.
type Skip = (&'static str, &'static [&'static str], &'static str);

/// Operations that skip locked rows, as if they were not there. A result is accepted if an order
/// gives it in which such a row is locked.
const SKIPS: &[Skip] = &[
    ("claim-many", &["hold"], "a duty in use counts as held, and delays no other (sentence 7)"),
    (
        "prune-history",
        &[
            "connector_fanout_daily",
            "connector_heartbeat_log",
            "connector_instances",
            "connector_stats_daily",
            "connector_stats_hourly",
            "inbox_outcome",
        ],
        "retention deletes a locked row a minute later",
    ),
    (
        "prune*",
        &["auth_failure", "dead_letter", "ingest_dedupe"],
        "retention deletes a locked row a minute later",
    ),
    ("open-*", &["session", "spent"], "what is locked is deleted by a later call"),
    ("replica-*", &["switchboard_replica"], "what is locked is deleted by a later call"),
];

fn fits(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (_, Some(start)) => name.starts_with(start),
        _ => name == pattern,
    }
}

/// Whether nothing that `a` does may take effect once `b` was answered.
pub(crate) fn is_final(b: &TestedOperation, a: &TestedOperation) -> bool {
    let of = FINAL.iter().filter(|(names, _)| names.contains(&b.name));
    of.flat_map(|(_, ended)| *ended).any(|pattern| fits(pattern, a.name))
}

/// Returns the tables whose locked rows an operation skips.
pub(crate) fn skips(operation: &TestedOperation) -> &'static [&'static str] {
    let row = SKIPS.iter().find(|(pattern, ..)| fits(pattern, operation.name));
    row.map_or(&[], |(_, tables, _)| tables)
}

fn has_row(table: &[Anomaly], operation: &TestedOperation, other: &TestedOperation) -> bool {
    let of = table.iter().filter(|(pattern, ..)| fits(pattern, operation.name));
    of.flat_map(|(_, beside, _)| *beside).any(|pattern| fits(pattern, other.name))
}

/// Whether an answer beside another operation is the expected one.
pub(crate) fn is_same(
    operation: &TestedOperation,
    other: &TestedOperation,
    given: &Answer,
    expected: &Answer,
) -> bool {
    match (given, expected) {
        (Answer::Done(given), Answer::Done(_))
            if given.starts_with("Trimmed") && has_row(TRIMMED, operation, other) =>
        {
            true
        }
        (Answer::Done(given), Answer::Done(expected)) if has_row(LATER, operation, other) => {
            *given == *expected || *given == expected.replace("[Kept]", "[Lost]")
        }
        (Answer::Done(given), Answer::Done(expected)) if has_row(COUNTS, operation, other) => {
            let text = |answer: &str| answer.replace(|c: char| c.is_ascii_digit(), "");
            text(given) == text(expected)
        }
        (Answer::Done(given), Answer::Done(expected)) if has_row(MARKS, operation, other) => {
            without_mark(given) == without_mark(expected)
        }
        _ => given == expected,
    }
}

/// Returns an answer without the number of its mark.
fn without_mark(answer: &str) -> String {
    let Some((start, rest)) = answer.split_once("Mark(") else { return answer.to_owned() };
    format!("{start}Mark({}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// Whether an answer says that the operation lost against the other one.
pub(crate) fn has_lost(
    operation: &TestedOperation,
    other: &TestedOperation,
    answer: &Answer,
) -> bool {
    let Answer::Done(text) = answer else { return false };
    let is_held = text.contains("HeldBy") && !text.contains("Granted") && !text.contains("Already");
    (is_held && has_row(LOSES, operation, other))
        || (text.contains("Some(false)") && has_row(UNCHANGED, operation, other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations;

    #[test]
    fn every_pattern_names_an_operation() {
        let known = operations::all();
        let is_known = |pattern: &str| known.iter().any(|it| fits(pattern, it.name));
        let of_final = FINAL.iter().flat_map(|(names, ended)| names.iter().chain(*ended));
        let of_others = [LOSES, UNCHANGED, COUNTS, MARKS, TRIMMED, LATER].into_iter().flatten();
        let of_others = of_others.flat_map(|(name, beside, _)| beside.iter().chain([name]));
        let all = of_final.chain(of_others).chain(SKIPS.iter().map(|(name, ..)| name));
        let unknown: Vec<_> = all.filter(|pattern| !is_known(pattern)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
