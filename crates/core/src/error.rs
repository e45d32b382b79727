//! Error codes, and errors classified by how the caller may react.

use std::error::Error;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

crate::text_enum! {
    /// Stable name of an error; each has a page under `docs/errors/`.
    pub enum Code {
        BadUrl "ST001" "the store URL cannot be used"
        Unreachable "ST002" "the store cannot be reached"
        Denied "ST003" "the store refused the credentials or the rights"
        NewerSchema "ST004" "the store was changed by a newer version that this one cannot read"
        NeedsMigration "ST005" "the store lacks tables that this version needs"
        ReadOnly "ST006" "the store is read-only"
        Cluster "ST007" "this Redis is a cluster, which cannot keep a lease and its fence together"
        Full "ST008" "the store is full"
        Reset "ST009" "the store has lost its state since this process opened it"
        Lost "ST010" "the connection broke or timed out"
        BadInput "ST011" "a name, a value or a batch is outside the limits"
        Busy "ST012" "the store is locked by others"
        OtherBoot "ST013" "another boot or time namespace is using this SQLite file"
        Damaged "ST014" "the store contains data that Tenure did not write"
        Absent "ST015" "there is no store at this address yet"
        Failed "ST016" "the store returned an unexpected error"
        Exhausted "ST017" "a counter has reached its maximum"
        NoTls "ST018" "the TLS connection failed"
        NotBuilt "ST019" "this build has no support for that kind of store"
        Fenced "ST020" "the hold is no longer valid"
        InUse "ST021" "another process has this store open"
        BadSignature "ST022" "a checkpoint's signature is missing, wrong or not trusted"
        Replayed "ST023" "a checkpoint is older than one that was seen before"
        BadKeys "ST024" "a file of keys cannot be used"
        Held "ST025" "the duty is held by another instance"
        Moved "ST026" "this checkpoint was moved to another store"
        BelowLevel "ST027" "the store does not give the required guarantee"
        Occupied "ST028" "the other store already has a checkpoint of this duty"
        Unstorable "ST029" "the store refuses the content of a row"
        OtherName "ST030" "the checkpoint of a shard is stored under another name"
        NoCheckpoint "ST031" "the duty has no checkpoint yet"
        CannotDecrypt "ST032" "a checkpoint cannot be decrypted"
        Untrusted "ST033" "the writer of a checkpoint is not trusted"
        BadBackup "ST034" "the backup cannot be made or used"
        SettingsDiffer "DT001" "the settings of this instance differ from its group's"
        DuplicateInstance "DT002" "another process runs under this instance id"
        EvictedInstance "DT003" "this instance was evicted from its group"
        TooManyTargets "DT004" "there are more targets than the limit"
        BadTargets "DT005" "the list of targets cannot be read"
        CannotStart "DT006" "the command cannot be started"
        LastMember "DT007" "no member would be left to take the duties"
        BadPartitions "DT008" "the partition settings in the environment are invalid"
        Machine "DT009" "the operating system refused a request"
        NotThere "DT010" "there is no group, duty or instance of that name"
        StillHeld "DT011" "the timeout expired before all duties were handed over"
        Conflict "DT012" "this conflicts with the current state of the group"
        StalePlan "DT013" "the group has changed since the plan was made"
        BadPlan "DT014" "the plan cannot be used"
        NoRecord "DT015" "the audit trail does not cover that time"
        CannotIsolate "DT016" "commands cannot be isolated on this machine"
        Failing "DT017" "every poll on this instance fails"
        BadStateFile "DT018" "the state file cannot be used"
        StateNotImported "DT019" "the state file has content that the store does not know"
        OtherVersion "DT020" "another version of the checkpoint is stored"
        Ambiguous "DT021" "the name fits more than one instance"
        BadBucketing "BK001" "a bucketing setting is invalid"
        BadBucketFile "BK002" "a config or state file cannot be used"
        NoRotation "BK003" "the checkpoint of the duty is not a rotation"
        LongLine "BK004" "a line is too long to be the name of an entity"
        OpenToAll "SW001" "the switchboard would be reachable without a token"
        NoSuchToken "SW002" "there is no such token or fence"
        TokenInUse "SW003" "the token is in use"
        NoSuchConnector "SW004" "there is no connector of that name"
        NoSwitchboard "SW005" "the switchboard cannot be reached"
        NotTaken "SW006" "the switchboard did not accept the heartbeat"
        BadCounters "SW007" "the counters cannot be read"
        CursorDiverged "SW008" "the cursor is not from this inbox"
        NoSuchChannel "SW009" "there is no channel of that name"
        ChannelConflict "SW010" "the channel cannot be changed this way"
        NoSuchLetter "SW011" "there is no such dead letter"
        BadConfig "CF001" "the configuration file cannot be used"
        BadVariable "CF002" "an environment variable cannot be used"
        BadSchedule "SC001" "the schedule is invalid"
    }
}

/// An error code with details. Never contains a secret. Comparisons and hashes ignore the
/// underlying error.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The error code.
    pub code: Code,
    /// Details of this case.
    pub detail: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Problem {
    /// Creates a problem without an underlying error.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), source: None }
    }

    /// Adds the underlying error, for [`Error::source`].
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.code, self.code.sentence(), self.detail)
    }
}

impl Error for Problem {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

impl PartialEq for Problem {
    fn eq(&self, other: &Self) -> bool {
        (self.code, &self.detail) == (other.code, &other.detail)
    }
}

impl Eq for Problem {}

impl Hash for Problem {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.code, &self.detail).hash(state);
    }
}

/// Failure of a store call, classified by how the caller may react (R17).
///
/// Losing a race is not an error: that is an `Ok` value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreError {
    /// It did not happen; nothing was changed. It may be retried after a pause.
    Refused(Problem),
    /// It may have happened. Read before deciding; never repeat it blindly.
    Unknown(Problem),
}

/// Result of a store call.
pub type StoreResult<T> = Result<T, StoreError>;

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(problem) => write!(f, "{problem} (nothing was changed)"),
            Self::Unknown(problem) => write!(f, "{problem} (outcome unknown)"),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.problem().source()
    }
}

impl StoreError {
    /// Creates an error for a call that certainly did not happen.
    pub fn refused(code: Code, detail: impl Into<String>) -> Self {
        Self::Refused(Problem::new(code, detail))
    }

    /// Creates an error for a call that may have happened.
    pub fn unknown(code: Code, detail: impl Into<String>) -> Self {
        Self::Unknown(Problem::new(code, detail))
    }

    /// The error of a read, which changes nothing, whatever became of it.
    #[must_use]
    pub fn of_read(self) -> Self {
        match self {
            Self::Unknown(problem) | Self::Refused(problem) => Self::Refused(problem),
        }
    }

    /// Whether the same call may succeed later, without anybody doing something about it.
    pub fn may_pass(&self) -> bool {
        matches!(
            self.code(),
            Code::Unreachable | Code::Lost | Code::Busy | Code::Reset | Code::Full | Code::Failed
        )
    }

    /// Adds the underlying error, for [`Error::source`].
    #[must_use]
    pub fn with_source(self, source: impl Error + Send + Sync + 'static) -> Self {
        match self {
            Self::Refused(problem) => Self::Refused(problem.with_source(source)),
            Self::Unknown(problem) => Self::Unknown(problem.with_source(source)),
        }
    }

    /// Returns the code.
    pub fn code(&self) -> Code {
        self.problem().code
    }

    /// Returns the code and the details.
    pub fn problem(&self) -> &Problem {
        match self {
            Self::Refused(problem) | Self::Unknown(problem) => problem,
        }
    }

    /// Makes a refusal `Unknown`: the problem was found after the call was executed.
    #[must_use]
    pub fn or_happened(self) -> Self {
        match self {
            Self::Refused(problem) | Self::Unknown(problem) => Self::Unknown(problem),
        }
    }

    /// Whether the call may have happened.
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
    fn the_underlying_error_is_kept_and_not_compared() {
        let plain = StoreError::unknown(Code::Lost, "x");
        let error = plain.clone().with_source(fmt::Error);
        assert_eq!(error, plain);
        assert!(error.source().is_some_and(<dyn Error>::is::<fmt::Error>));
        assert!(error.or_happened().problem().source().is_some());
        assert!(plain.source().is_none());
    }

    #[test]
    fn an_error_says_what_became_of_the_call() {
        let text = StoreError::refused(Code::Full, "disk").to_string();
        assert_eq!(text, "ST008: the store is full: disk (nothing was changed)");
        assert!(StoreError::unknown(Code::Lost, "x").to_string().ends_with("(outcome unknown)"));
    }
}
