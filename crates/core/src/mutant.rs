//! Mutants: switches that break one rule each, to check that a test notices.
//!
//! Without the feature `mutants` every switch is off at compile time. With it, one switch can be
//! turned on per process. `cargo xtask kill-table` turns on each and records which test noticed.

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
        R10Early "r10-early" "A duty is released while its work is still stopping."
        R11Fence "r11-fence" "The resource accepts effects under any epoch."
        R11Nonce "r11-nonce" "The resource compares epochs but not their holders."
        R12Unlocked "r12-unlocked" "The fence reads the hold without locking it."
        R14Version "r14-version" "A commit does not compare the version."
        R14Fence "r14-fence" "A commit checks neither the epoch nor whether the hold is valid."
        R17Already "r17-already"
            "A repeated claim whose first response was lost counts as a new grant."
        R17Orphan "r17-orphan" "A grant whose response was lost is never looked up."
        R18Cancel "r18-cancel" "Work is cancelled for a move instead of being asked to stop."
        R19Window "r19-window" "A moved duty may move again within the window."
        R19Swap "r19-swap" "A duty moves to the member with the highest score, whatever the shares."
        R20Views "r20-views" "Duties are shed although members see different groups."
        R21Wait "r21-wait" "Claims are sent at once after the store was unreachable or reset."
        R22Evict "r22-evict" "An evicted instance can still renew its session."
        R22Progress "r22-progress" "Work without progress is not stopped."
        R23Open "r23-open" "A failed renewal counts as successful."
        R24Audit "r24-audit" "Nothing is recorded in the audit trail."
        R25All "r25-all" "All planned moves happen at once."
        R26Group "r26-group" "Descendants of a command may outlive it."
        R26Orphan "r26-orphan" "A command outlives its guard."
        R26Late "r26-late" "A command is stopped seconds after its deadline."
    }
}

impl Mutant {
    /// Environment variable with the mutant to turn on, for tests and commands that they start.
    pub const VARIABLE: &str = "TENURE_TEST_MUTANT";

    /// Returns the rule that it breaks, such as `R5`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_has_a_name_of_its_own_and_a_rule() {
        for mutant in Mutant::ALL {
            assert_eq!(Mutant::parse(mutant.as_str()), Some(*mutant));
            let number: u32 = mutant.rule().strip_prefix('R').unwrap().parse().unwrap();
            assert!((1..=26).contains(&number), "{mutant:?}");
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
