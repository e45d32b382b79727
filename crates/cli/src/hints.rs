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
    BadUrl "use file:PATH, sqlite:PATH, postgres://HOST/NAME, redis://HOST:PORT or etcd://HOST:PORT"
    Unreachable "check that the server runs, and host and port in the URL; for a file, its folder"
    Denied "check user, password and rights; secrets are not printed here"
    NewerSchema "run the newer version of tenure on every host, or use another schema or prefix"
    NeedsMigration
        "run `tenure migrate`, or give an administrator the script of `tenure migrate --print`"
    ReadOnly
        "connect to the primary server; for a file, make it and its folder writable for this user"
    Cluster "use a single Redis server with an append-only file, or PostgreSQL"
    Full "free disk space or memory; stored sessions, holds and checkpoints are intact"
    Reset "stop all work, open the store again and claim with the last known epochs as floors"
    Lost "read the state before you repeat the command: the change may have happened"
    BadInput "see the limits on the page of this code; nothing was sent to the store"
    Busy "try again; if it persists, look for long transactions on the store"
    OtherBoot
        "use a SQLite file from one host and one time namespace; to share, use PostgreSQL or Redis"
    Damaged "check that path, schema or prefix belong to Tenure; if they do, restore a backup"
    Absent "check the path; `tenure migrate` creates a new store"
    Failed "check the server's log for errors at this time"
    Exhausted "epochs and versions end at 2^53 - 1; look for a floor that was set by mistake"
    NoTls "check the certificates, the names in them, and whether the server uses TLS on that port"
    NotBuilt "build tenure with the cargo feature of that name"
    Fenced "stop this work: another instance may hold the duty; never retry under this hold"
    InUse "stop that process first: only one process at a time can use a cursor file"
    BadSignature
        "run `tenure checkpoint verify`, then `tenure checkpoint rewind` to a valid version"
    Replayed "after a restore run `tenure store adopt`; otherwise rewind to a valid version"
    BadKeys
        "use lines `ID sign|verify|retired HEX` for signing keys, `ID encrypt|decrypt HEX` for \
         encryption keys, and `NAME KEY` for trusted identities"
    Held "wait until the holder releases it or its lease expires; `tenure ls` shows the holder"
    Moved "use the store that it was moved to, or move it back with `tenure checkpoint move`"
    BelowLevel "run `tenure doctor`: it lists the settings to change"
    Occupied
        "compare both with `tenure checkpoint get`; --force overwrites the one in the destination"
    Unstorable
        "see the detail; sending the same content again will not help; other rows are not affected"
    OtherName "`tenure checkpoint move STORE STORE GROUP/OLD --as GROUP/N` gives it the right name"
    NoCheckpoint "check the name with `tenure ls`; the first commit of a holder writes a checkpoint"
    CannotDecrypt
        "add the key that the message names to --encryption-keys-file; nothing can be read without"
    Untrusted
        "find out who wrote it, then rewind to a version of a trusted instance, with --identity-key"
    SettingsDiffer "start all members with the same TTL and layout; the message has both values"
    DuplicateInstance "restart this process to get an id of its own: an id belongs to one process"
    EvictedInstance
        "restart the process to join under a new id, once the reason for the eviction is gone"
    TooManyTargets
        "split the list into several groups, or raise the limit; the previous list stays in force"
    BadTargets "correct the source of the list; the last valid list stays in force"
    CannotStart "check that the program exists and that this user may execute it"
    LastMember
        "start another member first; `--force`, if available, leaves the duties free until then"
    BadPartitions
        "set CONNECTOR_PARTITIONS=0,1 or CONNECTOR_PARTITION_ID with CONNECTOR_TOTAL_PARTITIONS"
    Machine "check what the message names: a folder, a port, or a limit of this process"
    NotThere "`tenure ls` lists groups, duties and instances; give names as it prints them"
    StillHeld
        "run the command again to continue waiting, or add --undo; `tenure ls` shows what is left"
    Conflict "see `tenure ls GROUP`, and undo the operation that is in the way"
    StalePlan "make a new plan with `tenure plan`, and review its moves"
    BadPlan "make a new plan with `tenure plan --out FILE`, for this group and this store"
    NoRecord "ask for a time within the trail; `tenure store retention` shows how much is kept"
    CannotIsolate "allow PID namespaces (see the page of this code), or run without --isolate"
    Failing "run the command by hand on this host, as the same user; see poll_failed in the log"
    BadStateFile "name a regular file in a folder that exists and is writable for this user"
    StateNotImported
        "add --state-import to store it as the first checkpoint, or move the file away"
    OtherVersion "read the checkpoint again, and decide which one is right"
    BadBucketing "correct the value; `tenure bucket schema` prints the settings"
    BadBucketFile "give a file with a JSON object; the file was left unchanged"
    NoRotation "use a separate duty for the rotation: --duty GROUP/NAME"
    LongLine "give one entity per line, each with a line feed at its end"
    OpenToAll "create a token first (`tenure token create --help`), or listen on 127.0.0.1"
    NoSuchToken "`tenure token list` and `tenure fence list` show the existing ones"
    TokenInUse "create a successor first (`tenure token create --replaces ID`), or add --force"
    NoSuchConnector "`tenure connectors ls` lists connectors; with --archived, the archived ones"
    NoSwitchboard
        "check that the switchboard runs, and the URL in --url or SWITCHBOARD_API_BASE_URL"
    NotTaken "see the switchboard's response above; check the token, --url, --type and --endpoint"
    BadCounters "give a JSON object or lines NAME=N; the page of this code lists the names"
    CursorDiverged
        "use an older cursor or after=0, and skip every request_id that you have processed"
    NoSuchChannel "`tenure channel ls` lists channels; `tenure channel add` adds one"
    ChannelConflict "see `tenure channel ls`; the channels were left unchanged"
    BadConfig
        "correct the file; `tenure config check FILE` lists all problems; --config '' reads none"
    BadVariable "correct or unset the variable; an option on the command line overrides it"
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
