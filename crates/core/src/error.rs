//! Error codes, and errors sorted by what the caller may do next.

use std::error::Error;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

macro_rules! codes {
    ($($name:ident $text:literal $sentence:literal)*) => {
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

            /// One sentence that says what happened.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }
        }
    };
}

codes! {
    BadUrl "ST001" "the store URL cannot be used"
    Unreachable "ST002" "the store cannot be reached"
    Denied "ST003" "the store refused the credentials or the rights"
    NewerSchema "ST004" "the store was changed by a newer version that this one cannot read"
    NeedsMigration "ST005" "the store lacks tables that this version needs"
    ReadOnly "ST006" "the store does not take writes"
    Cluster "ST007" "this Redis is a cluster, which cannot keep a lease and its fence together"
    Full "ST008" "the store has no room left"
    Reset "ST009" "the store has lost its state since this process opened it"
    Lost "ST010" "the connection broke or the answer did not come in time"
    BadInput "ST011" "a name, a value or a batch is outside the limits"
    Busy "ST012" "the store stayed locked by others"
    OtherBoot "ST013" "another boot or time namespace is using this SQLite file"
    Damaged "ST014" "the store holds something that Tenure did not write"
    Absent "ST015" "there is no store at this place yet"
    Failed "ST016" "the store answered with an error that Tenure does not know"
    Exhausted "ST017" "a counter has reached its end"
    NoTls "ST018" "the encrypted connection could not be made"
    NotBuilt "ST019" "this build has no support for that kind of store"
    Fenced "ST020" "the hold does not stand any more"
    InUse "ST021" "another process has this store open"
    BadSignature "ST022" "a checkpoint's signature is missing, wrong or not trusted"
    Replayed "ST023" "a checkpoint is older than one that was seen before"
    BadKeys "ST024" "the signing keys cannot be used"
    Held "ST025" "somebody holds the duty"
    Moved "ST026" "this checkpoint was moved to another store"
    BelowLevel "ST027" "the store cannot give the guarantee that is required"
    Occupied "ST028" "the other store already has a checkpoint of this duty"
    Unstorable "ST029" "the store refuses the content of a row"
    OtherName "ST030" "the checkpoint of a shard is stored under another name"
    NoCheckpoint "ST031" "the duty has no checkpoint yet"
    SettingsDiffer "DT001" "this instance has other settings than its group"
    DuplicateInstance "DT002" "another process runs under this instance id"
    EvictedInstance "DT003" "this instance was evicted from its group"
    TooManyTargets "DT004" "there are more targets than the limit"
    BadTargets "DT005" "the list of targets cannot be read"
    CannotStart "DT006" "the command cannot be started"
    LastMember "DT007" "nobody would be left to take the duties"
    BadPartitions "DT008" "the partitions in the environment make no sense"
    Machine "DT009" "this machine refused something that tenure needs, or took it away"
    NotThere "DT010" "there is no group, duty or instance of that name"
    StillHeld "DT011" "the time was over before everything was handed over"
    Conflict "DT012" "this does not go together with what is in force"
    StalePlan "DT013" "the group is not as it was when the plan was made"
    BadPlan "DT014" "the plan cannot be used"
    NoRecord "DT015" "the audit trail does not tell of that time"
    CannotIsolate "DT016" "commands cannot be isolated on this machine"
    Failing "DT017" "every poll fails on this instance, whatever the target"
    BadBucketing "BK001" "a setting of bucketing is refused"
    BadBucketFile "BK002" "a config or a state cannot be used"
    NoRotation "BK003" "the duty keeps something else than a rotation"
    LongLine "BK004" "a line is too long to be the name of an entity"
    OpenToAll "SW001" "the switchboard would be open to others"
    NoSuchToken "SW002" "there is no token, or no fence, of that name"
    TokenInUse "SW003" "the token is in use"
    NoSuchConnector "SW004" "there is no connector of that name"
    NoSwitchboard "SW005" "the switchboard cannot be reached"
    NotTaken "SW006" "the switchboard did not take the heartbeat"
    BadCounters "SW007" "the counters cannot be read"
    CursorDiverged "SW008" "the inbox is not the one that the cursor comes from"
    NoSuchChannel "SW009" "there is no channel of that name"
    ChannelConflict "SW010" "the channel cannot be changed like that"
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A code and the details of this case. Never contains a secret. Comparisons and hashes ignore the
/// underlying error.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The kind of trouble.
    pub code: Code,
    /// This case of it.
    pub detail: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Problem {
    /// A problem without an underlying error.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), source: None }
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

/// Why a store call gave no answer, sorted by what the caller may do next (R17).
///
/// Losing a race is not among them: that is an `Ok` value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreError {
    /// It did not happen; nothing was changed. It may be tried again, with a pause.
    Refused(Problem),
    /// It may have happened. Read again before deciding; never repeat it blindly.
    Unknown(Problem),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(problem) => write!(f, "{problem} (nothing was changed)"),
            Self::Unknown(problem) => write!(f, "{problem} (it may have happened)"),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.problem().source()
    }
}

impl StoreError {
    /// It surely did not happen.
    pub fn refused(code: Code, detail: impl Into<String>) -> Self {
        Self::Refused(Problem::new(code, detail))
    }

    /// It may have happened.
    pub fn unknown(code: Code, detail: impl Into<String>) -> Self {
        Self::Unknown(Problem::new(code, detail))
    }

    /// The same error with the one that caused it, for [`Error::source`].
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        let (Self::Refused(problem) | Self::Unknown(problem)) = &mut self;
        problem.source = Some(Arc::new(source));
        self
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
        assert_eq!(text, "ST008: the store has no room left: disk (nothing was changed)");
        assert!(
            StoreError::unknown(Code::Lost, "x").to_string().ends_with("(it may have happened)")
        );
    }
}
