//! Mutants: switches that break one rule each, to check that a test notices.
//!
//! Without the feature `mutants` every switch is off at compile time. With it, one switch can be
//! turned on per process. `cargo xtask kill-table` turns on each and records which test noticed.
//! Where a rule is kept by SQL or Lua, a mutant swaps a part of that file: see [`Swap`].

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!("the feature `mutants` breaks rules on purpose: no release build may have it");

#[cfg(feature = "mutants")]
static ON: std::sync::OnceLock<Mutant> = std::sync::OnceLock::new();

crate::text_enum! {
    /// A way to break a rule; its name begins with the rule's number.
    pub enum Mutant {
        R2Same "r2-same" "A grant reuses the previous epoch."
        R2Forget "r2-forget" "A release deletes the record of the grant, and its epoch with it."
        R3Name "r3-name" "A session is identified by its instance alone, without the nonce."
        R4Asker "r4-asker" "Expiry is judged by the caller's clock."
        R4Early "r4-early" "The clock is read before the wait for a lock, not after it."
        R5Answer "r5-answer" "Deadlines are counted from the arrival of the response."
        R5Margin "r5-margin" "A deadline is a whole TTL, without a margin."
        R6Work "r6-work" "Work is not cancelled at its deadline."
        R6Guard "r6-guard" "Effects may begin after the deadline."
        R7Pause "r7-pause" "A pause of the process is not detected."
        R7Renew "r7-renew" "Renewals are sent at two thirds of the TTL."
        R8Whole "r8-whole" "A keep-alive reports the fate of the first hold for all holds."
        R9Revive "r9-revive" "A keep-alive revives an expired session."
        R9Release "r9-release"
            "A release frees the session's current hold without comparing the epoch."
        R9Report "r9-report" "A report checks neither the epoch nor whether the hold is valid."
        R10Early "r10-early" "A duty is released while its work is still stopping."
        R11Fence "r11-fence" "The resource accepts effects under any epoch."
        R11Nonce "r11-nonce" "The resource compares epochs but not their holders."
        R12Unlocked "r12-unlocked" "The fence reads the hold without locking it."
        R14Version "r14-version" "A commit does not compare the version."
        R14Fence "r14-fence" "A commit checks neither the epoch nor whether the hold is valid."
        R14Batch "r14-batch" "A batch of commits compares neither versions nor epochs."
        R14Back "r14-back" "The first commit under a new epoch starts the version again at 1."
        R15Again "r15-again" "The simulated resource does not deduplicate events."
        R16Early "r16-early"
            "The simulated work moves its cursor over events that are not acknowledged."
        R17Already "r17-already"
            "A repeated claim whose first response was lost counts as a new grant."
        R17Orphan "r17-orphan" "A grant whose response was lost is never looked up."
        R18Cancel "r18-cancel" "Work is cancelled for a move instead of being asked to stop."
        R19Window "r19-window" "A moved duty may move again within the window."
        R19Swap "r19-swap" "A duty moves to the member with the highest score, whatever the shares."
        R20Views "r20-views" "Duties are shed although members see different groups."
        R21Wait "r21-wait" "Claims are sent at once after the store was unreachable or reset."
        R21Own "r21-own" "The wait after a reset ignores the TTLs of other members."
        R21Look "r21-look" "A look after a reset makes the wait for forgotten sessions shorter."
        R21Early "r21-early" "Claims are sent before other members know of a longer TTL."
        R22Evict "r22-evict" "An evicted instance can still renew its session."
        R22Progress "r22-progress" "Work without progress is not stopped."
        R23Open "r23-open" "A failed renewal counts as successful."
        R24Audit "r24-audit" "Nothing is recorded in the audit trail."
        R25All "r25-all" "All planned moves happen at once."
        R26Group "r26-group" "Descendants of a command may outlive it."
        R26Orphan "r26-orphan" "A command outlives its guard."
        R26Late "r26-late" "A command is stopped seconds after its deadline."
        S2Dedupe "s2-dedupe" "A known key is stored again."
        S2Prune "s2-prune" "A commit does not lock the keys that it finds against retention."
        S3Fence "s3-fence" "Submissions under an older epoch are stored."
        S3Owner "s3-owner" "Submissions of another instance under the same epoch are stored."
        S3Level "s3-level" "A commit accepts any isolation level."
        S4Token "s4-token" "A commit does not check its token again in its transaction."
        S4Decide "s4-decide" "A decision does not check its token again in its transaction."
        S4Meanwhile "s4-meanwhile" "Revoking a token does not wait for commits under way."
        S5Order "s5-order" "A page of the inbox is not in the order of positions."
        S5Reuse "s5-reuse" "Positions of deleted messages are assigned again."
        S6Stamp "s6-stamp" "Arrivals get the time of a wall clock that is behind."
        S7Unlocked "s7-unlocked" "Commits do not wait for each other."
        S8Clock "s8-clock" "Retention follows the wall clock."
        S9Ahead "s9-ahead" "A heartbeat from a clock that was ahead keeps its time."
        S10Tag "s10-tag" "The tag of a cursor is not compared."
        S10Adopt "s10-adopt" "Adopting an inbox leaves positions where they were."
        S11Epoch "s11-epoch" "A replica counts statistics under an older epoch."
        S11Bound "s11-bound" "Heartbeats are counted without waiting for those under way."
    }
}

impl Mutant {
    /// Environment variable with the mutant to turn on, for tests and commands that they start.
    pub const VARIABLE: &str = "TENURE_TEST_MUTANT";

    /// Returns the rule that it breaks, such as `R5`, or `S3` for a rule of the switchboard.
    pub fn rule(self) -> String {
        let number = self.as_str().split('-').next().unwrap_or_default();
        number.to_uppercase()
    }

    /// Whether to break the rule.
    #[cfg(not(feature = "mutants"))]
    pub const fn is_on(self) -> bool {
        false
    }

    /// Whether to break the rule.
    #[cfg(feature = "mutants")]
    pub fn is_on(self) -> bool {
        ON.get() == Some(&self)
    }

    /// Breaks the rule until this process exits; no other rule can be broken after that.
    #[cfg(feature = "mutants")]
    pub fn turn_on(name: &str) -> Result<(), String> {
        let mutant = Self::parse(name).ok_or_else(|| format!("there is no mutant {name:?}"))?;
        let on = ON.get_or_init(|| mutant);
        if *on == mutant { Ok(()) } else { Err(format!("{} is already on", on.as_str())) }
    }

    /// Fails, because this build has no mutants.
    #[cfg(not(feature = "mutants"))]
    pub fn turn_on(name: &str) -> Result<(), String> {
        Err(format!("{name}: this was built without the feature `mutants`"))
    }
}

/// A part of an SQL or Lua file that a mutant replaces, as a row of a table that
/// [`swaps`](crate::swaps) makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// The mutant.
    pub mutant: Mutant,
    /// The file, relative to the table.
    pub file: &'static str,
    /// Text of the file.
    pub text: &'static str,
    /// The part, which the file contains once.
    pub from: &'static str,
    /// Its replacement.
    pub to: &'static str,
}

impl Swap {
    /// Whether the part is in its file, once.
    pub fn fits(&self) -> bool {
        self.text.matches(self.from).count() == 1
    }

    /// Returns a text with the swaps of the mutant that is on.
    #[cfg(not(feature = "mutants"))]
    pub const fn apply(_: &'static [Self], text: &'static str) -> &'static str {
        text
    }

    /// Returns a text with the swaps of the mutant that is on: of one file, or of several files one
    /// after another.
    #[cfg(feature = "mutants")]
    pub fn apply(swaps: &'static [Self], text: &'static str) -> &'static str {
        use std::collections::BTreeMap;
        use std::sync::{Mutex, PoisonError};
        /// Texts made so far: each is leaked once.
        static MADE: Mutex<BTreeMap<&str, &str>> = Mutex::new(BTreeMap::new());

        let Some(on) = ON.get() else { return text };
        let is_used = |swap: &&Self| swap.mutant == *on && text.contains(swap.text);
        if !swaps.iter().any(|swap| is_used(&swap)) {
            return text;
        }
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        made.entry(text).or_insert_with(|| {
            let mut files: BTreeMap<&str, String> = BTreeMap::new();
            for swap in swaps.iter().filter(is_used) {
                assert!(swap.fits(), "{:?} of {} does not fit", swap.from, swap.file);
                let file = files.entry(swap.text).or_insert_with(|| swap.text.to_owned());
                *file = file.replacen(swap.from, swap.to, 1);
            }
            let swap = |text: String, (old, new): (&&str, &String)| text.replace(*old, new);
            files.iter().fold(text.to_owned(), swap).leak()
        })
    }
}

/// Makes a table of [`Swap`]s; an empty one without the feature `mutants`, so that no release build
/// contains the replacements. A row is the mutant, the file, a part of it, and its replacement:
///
/// ```
/// tenure_core::swaps! {
///     SWAPS
///     // R9Revive "sql/session/keep_alive.sql" "AND expires_ns > ?4" => "";
/// }
/// ```
#[cfg(feature = "mutants")]
#[macro_export]
macro_rules! swaps {
    ($table:ident $($mutant:ident $file:literal $from:literal => $to:literal;)*) => {
        pub(super) const $table: &[$crate::mutant::Swap] = &[$($crate::mutant::Swap {
            mutant: $crate::Mutant::$mutant,
            file: $file,
            text: include_str!($file),
            from: $from,
            to: $to,
        },)*];

        #[cfg(test)]
        #[test]
        fn every_swap_fits_its_file() {
            assert_eq!($table.iter().find(|swap| !swap.fits()), None);
        }
    };
}

/// Makes an empty table: this build has no mutants.
#[cfg(not(feature = "mutants"))]
#[macro_export]
macro_rules! swaps {
    ($table:ident $($rest:tt)*) => {
        pub(super) const $table: &[$crate::mutant::Swap] = &[];
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_has_a_name_of_its_own_and_a_rule() {
        for mutant in Mutant::ALL {
            assert_eq!(Mutant::parse(mutant.as_str()), Some(*mutant));
            let rule = mutant.rule();
            let (kind, number) = rule.split_at(1);
            let last = match kind {
                "R" => 26,
                "S" => 11,
                _ => 0,
            };
            assert!((1..=last).contains(&number.parse().unwrap()), "{mutant:?}");
        }
        assert_eq!(Mutant::parse("r0-nothing"), None);
    }

    /// Rules are broken only on request.
    #[test]
    fn none_is_on_by_itself() {
        if std::env::var_os(Mutant::VARIABLE).is_none() {
            assert_eq!(Mutant::ALL.iter().find(|mutant| mutant.is_on()), None);
        }
    }
}
