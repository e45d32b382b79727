//! Errors that say what the caller may do next.

use std::fmt;

macro_rules! codes {
    ($($name:ident $text:literal $sentence:literal $hint:literal)*) => {
        /// A stable name for a kind of trouble; each has a page under `docs/errors/`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $(#[doc = $sentence] $name,)* }

        impl Code {
            /// Every code there is.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code as it is printed, e.g. `ST002`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What happened, in one sentence.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }

            /// What to do next.
            pub const fn hint(self) -> &'static str {
                match self { $(Self::$name => $hint,)* }
            }
        }
    };
}

codes! {
    BadUrl "ST001" "the store URL cannot be used"
        "use file:PATH, sqlite:PATH, postgres://HOST/NAME, redis://HOST:PORT or etcd://HOST:PORT"
    Unreachable "ST002" "the store cannot be reached"
        "check that the server runs, and host and port in the URL; for a file, its folder"
    Denied "ST003" "the store refused the credentials or the rights"
        "check user, password and rights; secrets are not printed here"
    NewerSchema "ST004" "the store was changed by a newer version that this one cannot read"
        "run the newer version of tenure everywhere, or open another schema or prefix"
    NeedsMigration "ST005" "the store lacks tables that this version needs"
        "run `tenure migrate`, or give an administrator the script of `tenure migrate --print`"
    ReadOnly "ST006" "the store does not take writes"
        "a server: connect to its primary; a file: make it and its folder writable for this user"
    Cluster "ST007" "this Redis is a cluster, which cannot keep a lease and its fence together"
        "use a single Redis with append-only file, or PostgreSQL"
    Full "ST008" "the store has no room left"
        "free disk or memory; sessions, holds and checkpoints stored before are untouched"
    Reset "ST009" "the store has lost its state since this process opened it"
        "stop all work, open the store again and claim with the last known epochs as floors"
    Lost "ST010" "the connection broke or the answer did not come in time"
        "read the state again before deciding; it may have happened"
    BadInput "ST011" "a name, a value or a batch is outside the limits"
        "the page of this code has the limits; nothing was sent to the store"
    Busy "ST012" "the store stayed locked by others"
        "try again; if it lasts, look for long transactions on the store"
    OtherBoot "ST013" "another boot or time namespace is using this SQLite file"
        "use SQLite from one host and one time namespace only; share PostgreSQL or Redis instead"
    Damaged "ST014" "the store holds something that Tenure did not write"
        "check that path, schema or prefix belong to Tenure; restore from a backup if it does"
    Absent "ST015" "there is no store at this place yet"
        "check the path; `tenure migrate` creates a new store"
    Failed "ST016" "the store answered with an error that Tenure does not know"
        "look at the server's log for the same moment"
    Exhausted "ST017" "a counter has reached its end"
        "the largest epoch and version is 2^53 - 1; look for a floor that was set by mistake"
    NoTls "ST018" "the encrypted connection could not be made"
        "check certificates, the names in them, and whether the server speaks TLS at that port"
    NotBuilt "ST019" "this build has no support for that kind of store"
        "build with the cargo feature of that name"
    Fenced "ST020" "the hold does not stand any more"
        "stop this work: the duty may belong to somebody else; never retry under this hold"
    InUse "ST021" "another process has this store open"
        "stop that process first; a cursor file has one user at a time"
    BadSignature "ST022" "a checkpoint's signature is missing, wrong or not trusted"
        "look at `tenure checkpoint verify`; go back to a good one with `tenure checkpoint rewind`"
    Replayed "ST023" "a checkpoint is older than one that was seen before"
        "after a restore run `tenure store adopt`; else `tenure checkpoint rewind` to a good one"
    BadKeys "ST024" "the signing keys cannot be used"
        "a line is `ID sign|verify|retired HEX`, with at least 32 bytes; exactly one key signs"
    Held "ST025" "somebody holds the duty"
        "wait until its holder gives it back or its lease expires; `tenure ls` shows who that is"
    Moved "ST026" "this checkpoint was moved to another store"
        "use the store that it was moved to, or move it back with `tenure checkpoint move`"
    BelowLevel "ST027" "the store cannot give the guarantee that is required"
        "run `tenure doctor`: it names each setting and what to change"
    Occupied "ST028" "the other store already has a checkpoint of this duty"
        "compare both with `tenure checkpoint get`; --force replaces the one in the other store"
    Unstorable "ST029" "the store refuses the content of a row"
        "look at the detail; rows of others are not affected, and sending it again will not help"
    OtherName "ST030" "the checkpoint of a shard is stored under another name"
        "`tenure checkpoint move STORE STORE GROUP/OLD --as GROUP/N` moves it to the right one"
    NoCheckpoint "ST031" "the duty has no checkpoint yet"
        "check the name with `tenure ls`; a holder writes the first checkpoint when it commits"
    SettingsDiffer "DT001" "this instance has other settings than its group"
        "start all members with the same TTL and layout; both values stand above"
    DuplicateInstance "DT002" "another process runs under this instance id"
        "an id belongs to one process from start to exit: start this one again to get its own"
    EvictedInstance "DT003" "this instance was evicted from its group"
        "start the process again to join under a new id, if the reason for the eviction is gone"
    TooManyTargets "DT004" "there are more targets than the limit"
        "split the list into several groups, or raise the limit; the list of before stays in force"
    BadTargets "DT005" "the list of targets cannot be read"
        "correct the source of the list; the last good list stays in force"
    CannotStart "DT006" "the command cannot be started"
        "check that the program exists and that this user may execute it"
    LastMember "DT007" "nobody would be left to take the duties"
        "start another member first; `tenure drain --force` lets the duties wait for the next"
    BadPartitions "DT008" "the partitions in the environment make no sense"
        "set CONNECTOR_PARTITIONS=0,1 or CONNECTOR_PARTITION_ID with CONNECTOR_TOTAL_PARTITIONS"
    Machine "DT009" "this machine refused something that tenure needs, or took it away"
        "look at what stands above: a folder, a port, the limits or the memory of this process"
    NotThere "DT010" "there is no group, duty or instance of that name"
        "`tenure ls` shows what there is; names are given as it prints them"
    StillHeld "DT011" "the time was over before everything was handed over"
        "drain again to wait on, or take it back with --undo; `tenure ls` shows what is left"
    Conflict "DT012" "this does not go together with what is in force"
        "look at `tenure ls GROUP` and take back first what stands in the way"
    StalePlan "DT013" "the group is not as it was when the plan was made"
        "make a new plan with `tenure plan`, and look at what it would move now"
    BadPlan "DT014" "the plan cannot be used"
        "make a new one with `tenure plan --out FILE`, for this group and this store"
    NoRecord "DT015" "the audit trail does not tell of that time"
        "ask for a time within the trail; `tenure store retention` says how much is kept"
    CannotIsolate "DT016" "commands cannot be isolated on this machine"
        "allow PID namespaces (see the page of this code), or start without --isolate"
    Failing "DT017" "every poll fails on this instance, whatever the target"
        "run the command by hand on this host, as the same user; see what poll_failed says"
    BadBucketing "BK001" "a setting of bucketing is refused"
        "correct the value above; `tenure bucket schema` prints the settings"
    BadBucketFile "BK002" "a config or a state cannot be used"
        "give a JSON object; the file is left as it is"
    NoRotation "BK003" "the duty keeps something else than a rotation"
        "give the rotation a duty of its own: --duty GROUP/NAME"
    LongLine "BK004" "a line is too long to be the name of an entity"
        "give one entity on each line, with a line feed after it"
    OpenToAll "SW001" "the switchboard would be open to others"
        "make a token first (`tenure token create --help`), or listen on 127.0.0.1"
    NoSuchToken "SW002" "there is no token, or no fence, of that name"
        "`tenure token list` and `tenure fence list` show what there is"
    TokenInUse "SW003" "the token is in use"
        "give whoever uses it another one first (`--replaces`), or revoke it with --force"
    NoSuchConnector "SW004" "there is no connector of that name"
        "`tenure connectors ls` shows what there is, with --archived what was put away"
    NoSwitchboard "SW005" "the switchboard cannot be reached"
        "check that it runs, and that --url (SWITCHBOARD_API_BASE_URL) is right"
    NotTaken "SW006" "the switchboard did not take the heartbeat"
        "look at its answer above; check the token, --url, --type and --endpoint"
    BadCounters "SW007" "the counters cannot be read"
        "give a JSON object, or lines NAME=N, with the names that the page of this code has"
    CursorDiverged "SW008" "the inbox is not the one that the cursor comes from"
        "ask with an older cursor, or with after=0, and skip every request_id that you have"
    NoSuchChannel "SW009" "there is no channel of that name"
        "`tenure channel ls` shows what there is; `tenure channel add` adds one"
    ChannelConflict "SW010" "the channel cannot be changed like that"
        "look at `tenure channel ls`; the list is as it was"
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What went wrong: a code and the details of this case. Never contains a secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// The kind of trouble.
    pub code: Code,
    /// This case of it.
    pub detail: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.code, self.code.sentence(), self.detail)
    }
}

/// Why a store call gave no answer, sorted by what the caller may do next (R17).
///
/// Losing a race is not among them: that is an `Ok` value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StoreError {
    /// It did not happen; nothing was changed. It may be tried again, with a pause.
    #[error("{0} (nothing was changed)")]
    Refused(Problem),
    /// It may have happened. Read again before deciding; never repeat it blindly.
    #[error("{0} (it may have happened)")]
    Unknown(Problem),
}

impl StoreError {
    /// It surely did not happen.
    pub fn refused(code: Code, detail: impl Into<String>) -> Self {
        Self::Refused(Problem { code, detail: detail.into() })
    }

    /// It may have happened.
    pub fn unknown(code: Code, detail: impl Into<String>) -> Self {
        Self::Unknown(Problem { code, detail: detail.into() })
    }

    /// The code, whatever became of the call.
    pub fn code(&self) -> Code {
        self.problem().code
    }

    /// The code and the details.
    pub fn problem(&self) -> &Problem {
        match self {
            Self::Refused(problem) | Self::Unknown(problem) => problem,
        }
    }

    /// The same problem, found in the answer to a call that has happened.
    #[must_use]
    pub fn or_happened(self) -> Self {
        match self {
            Self::Refused(problem) | Self::Unknown(problem) => Self::Unknown(problem),
        }
    }

    /// Whether it may have happened.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_told_apart() {
        let texts: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), Code::ALL.len());
    }

    #[test]
    fn an_error_says_what_became_of_the_call() {
        let text = StoreError::refused(Code::Full, "disk").to_string();
        assert_eq!(text, "ST008: the store has no room left: disk (nothing was changed)");
        assert!(
            StoreError::unknown(Code::Lost, "x").to_string().ends_with("(it may have happened)")
        );
    }
}
