//! Hints: the next step for each error code, printed below the error.

use tenure_core::Code;

macro_rules! hints {
    ($($name:ident $hint:literal)*) => {
        /// Returns the next step for an error of this code.
        pub(crate) const fn hint(code: Code) -> &'static str {
            match code { $(Code::$name => $hint,)* }
        }
    };
}

hints! {
    BadUrl
        "use file:PATH, sqlite:PATH, postgres://HOST/NAME, redis://HOST:PORT or etcd://HOST:PORT"
    Unreachable
        "check that the server runs, and host and port in the URL; for a file, its folder"
    Denied
        "check user, password and rights; secrets are not printed here"
    NewerSchema
        "run the newer version of tenure everywhere, or open another schema or prefix"
    NeedsMigration
        "run `tenure migrate`, or give an administrator the script of `tenure migrate --print`"
    ReadOnly
        "a server: connect to its primary; a file: make it and its folder writable for this user"
    Cluster
        "use a single Redis with append-only file, or PostgreSQL"
    Full
        "free disk or memory; sessions, holds and checkpoints stored before are untouched"
    Reset
        "stop all work, open the store again and claim with the last known epochs as floors"
    Lost
        "read the state again before deciding; it may have happened"
    BadInput
        "the page of this code has the limits; nothing was sent to the store"
    Busy
        "try again; if it lasts, look for long transactions on the store"
    OtherBoot
        "use SQLite from one host and one time namespace only; share PostgreSQL or Redis instead"
    Damaged
        "check that path, schema or prefix belong to Tenure; restore from a backup if it does"
    Absent
        "check the path; `tenure migrate` creates a new store"
    Failed
        "look at the server's log for the same moment"
    Exhausted
        "the largest epoch and version is 2^53 - 1; look for a floor that was set by mistake"
    NoTls
        "check certificates, the names in them, and whether the server speaks TLS at that port"
    NotBuilt
        "build with the cargo feature of that name"
    Fenced
        "stop this work: the duty may belong to somebody else; never retry under this hold"
    InUse
        "stop that process first; a cursor file has one user at a time"
    BadSignature
        "look at `tenure checkpoint verify`; go back to a good one with `tenure checkpoint rewind`"
    Replayed
        "after a restore run `tenure store adopt`; else `tenure checkpoint rewind` to a good one"
    BadKeys
        "a line is `ID sign|verify|retired HEX`, with at least 32 bytes; exactly one key signs"
    Held
        "wait until its holder gives it back or its lease expires; `tenure ls` shows who that is"
    Moved
        "use the store that it was moved to, or move it back with `tenure checkpoint move`"
    BelowLevel
        "run `tenure doctor`: it names each setting and what to change"
    Occupied
        "compare both with `tenure checkpoint get`; --force replaces the one in the other store"
    Unstorable
        "look at the detail; rows of others are not affected, and sending it again will not help"
    OtherName
        "`tenure checkpoint move STORE STORE GROUP/OLD --as GROUP/N` moves it to the right one"
    NoCheckpoint
        "check the name with `tenure ls`; a holder writes the first checkpoint when it commits"
    SettingsDiffer
        "start all members with the same TTL and layout; both values stand above"
    DuplicateInstance
        "an id belongs to one process from start to exit: start this one again to get its own"
    EvictedInstance
        "start the process again to join under a new id, if the reason for the eviction is gone"
    TooManyTargets
        "split the list into several groups, or raise the limit; the list of before stays in force"
    BadTargets
        "correct the source of the list; the last good list stays in force"
    CannotStart
        "check that the program exists and that this user may execute it"
    LastMember
        "start another member first; `tenure drain --force` lets the duties wait for the next"
    BadPartitions
        "set CONNECTOR_PARTITIONS=0,1 or CONNECTOR_PARTITION_ID with CONNECTOR_TOTAL_PARTITIONS"
    Machine
        "look at what stands above: a folder, a port, the limits or the memory of this process"
    NotThere
        "`tenure ls` shows what there is; names are given as it prints them"
    StillHeld
        "drain again to wait on, or take it back with --undo; `tenure ls` shows what is left"
    Conflict
        "look at `tenure ls GROUP` and take back first what stands in the way"
    StalePlan
        "make a new plan with `tenure plan`, and look at what it would move now"
    BadPlan
        "make a new one with `tenure plan --out FILE`, for this group and this store"
    NoRecord
        "ask for a time within the trail; `tenure store retention` says how much is kept"
    CannotIsolate
        "allow PID namespaces (see the page of this code), or start without --isolate"
    Failing
        "run the command by hand on this host, as the same user; see what poll_failed says"
    BadBucketing
        "correct the value above; `tenure bucket schema` prints the settings"
    BadBucketFile
        "give a JSON object; the file is left as it is"
    NoRotation
        "give the rotation a duty of its own: --duty GROUP/NAME"
    LongLine
        "give one entity on each line, with a line feed after it"
    OpenToAll
        "make a token first (`tenure token create --help`), or listen on 127.0.0.1"
    NoSuchToken
        "`tenure token list` and `tenure fence list` show what there is"
    TokenInUse
        "give whoever uses it another one first (`--replaces`), or revoke it with --force"
    NoSuchConnector
        "`tenure connectors ls` shows what there is, with --archived what was put away"
    NoSwitchboard
        "check that it runs, and that --url (SWITCHBOARD_API_BASE_URL) is right"
    NotTaken
        "look at its answer above; check the token, --url, --type and --endpoint"
    BadCounters
        "give a JSON object, or lines NAME=N, with the names that the page of this code has"
    CursorDiverged
        "ask with an older cursor, or with after=0, and skip every request_id that you have"
    NoSuchChannel
        "`tenure channel ls` shows what there is; `tenure channel add` adds one"
    ChannelConflict
        "look at `tenure channel ls`; the list is as it was"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_hint() {
        for code in Code::ALL {
            assert!(hint(*code).len() > 20 && !hint(*code).ends_with('.'), "{code}");
        }
    }
}
