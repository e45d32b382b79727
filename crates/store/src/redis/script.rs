//! The scripts, each in a file of its own.

use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs};
use tenure_core::Session;
use tenure_core::mutant::Swap;
use tenure_core::store::Retention;

use super::mutants::SWAPS;

macro_rules! scripts {
    ($($name:ident $file:literal)*) => {
        /// A script by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Script { $($name,)* }

        impl Script {
            const ALL: &[Self] = &[$(Self::$name,)*];

            const fn body(self) -> &'static str {
                match self { $(Self::$name => include_str!(concat!("lua/", $file, ".lua")),)* }
            }
        }
    };
}

scripts! {
    AuditRead "audit_read"
    CheckpointCommit "checkpoint_commit"
    CheckpointHistory "checkpoint_history"
    CheckpointLoad "checkpoint_load"
    DocumentRead "document_read"
    DocumentReplace "document_replace"
    DutyForget "duty_forget"
    GroupDuties "group_duties"
    GroupList "group_list"
    GroupMembers "group_members"
    HistoryTrim "history_trim"
    HoldClaim "hold_claim"
    HoldList "hold_list"
    HoldRelease "hold_release"
    InstanceEvict "session_evict"
    ReportLoad "report_load"
    ReportStore "report_store"
    SessionClose "session_close"
    SessionFree "session_free"
    SessionKeep "session_keep_alive"
    SessionOpen "session_open"
    StoreAdopt "store_adopt"
    StoreOpen "store_open"
    StoreRetain "store_retain"
    StoreRetention "store_retention"
}

/// A script's code, and the hash by which the server identifies it.
struct LoadedScript {
    code: String,
    hash: String,
}

/// In the order of [`Script::ALL`].
static SENT: LazyLock<Vec<LoadedScript>> = LazyLock::new(|| {
    let Retention { history_slots, audit_kept } = Retention::default();
    let limits = format!("local AUDIT_KEPT, HISTORY_SLOTS = {audit_kept}, {history_slots}\n");
    let sent = |script: &Script| {
        let opens = *script == Script::StoreOpen;
        let opened = match opens {
            true => "",
            false => Swap::apply(SWAPS, include_str!("lua/opened.lua")),
        };
        let common = Swap::apply(SWAPS, include_str!("lua/common.lua"));
        let code = [&limits, common, opened, Swap::apply(SWAPS, script.body())].concat();
        let hash = redis::Script::new(&code).get_hash().to_owned();
        LoadedScript { code, hash }
    };
    Script::ALL.iter().map(sent).collect()
});

impl Script {
    /// Starts a call with this number of keys; keys and arguments follow.
    pub(super) fn call(self, keys: usize) -> ScriptCall {
        ScriptCall(redis::cmd("EVALSHA")).arg(&SENT[self as usize].hash).arg(keys)
    }

    /// Returns the commands that load every script.
    pub(super) fn load_all() -> Vec<Cmd> {
        SENT.iter().map(|sent| command(&["SCRIPT", "LOAD", &sent.code])).collect()
    }
}

/// A call of a script; its keys and arguments are added in turn.
pub(super) struct ScriptCall(pub(super) Cmd);

impl ScriptCall {
    pub(super) fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.0.arg(argument);
        self
    }

    pub(super) fn args<A: ToRedisArgs>(self, arguments: impl IntoIterator<Item = A>) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    /// Adds the instance, the escaped instance, and the nonce.
    pub(super) fn session(self, session: &Session) -> Self {
        let Session { instance, nonce, .. } = session;
        self.arg(instance.as_str()).arg(&*instance.escaped()).arg(nonce.to_string())
    }
}

pub(super) fn command(words: &[&str]) -> Cmd {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command
}
