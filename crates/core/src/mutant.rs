//! Mutants: switches that break one rule each, to see which test notices.
//!
//! Without the feature `mutants` every switch is off at compile time. With it, one can be turned on
//! for the whole process. `cargo xtask kill-table` turns on each and records which test noticed.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!("the feature `mutants` breaks rules on purpose: no release build may have it");

#[cfg(feature = "mutants")]
static ON: std::sync::OnceLock<Mutant> = std::sync::OnceLock::new();

crate::text_enum! {
    /// A way to break a rule; its name begins with that rule.
    pub enum Mutant {
        R2Same "r2-same" "A grant has the epoch of the one before."
        R2Forget "r2-forget" "A release deletes the record of the grant, and its epoch with it."
        R3Name "r3-name" "A session is known by its instance, whatever the nonce."
        R4Asker "r4-asker" "Expiry is judged by the clock of whoever asks."
        R5Answer "r5-answer" "Deadlines are counted from when the answer came."
        R5Margin "r5-margin" "A deadline is a whole TTL, with nothing kept back."
        R6Work "r6-work" "Work is not cancelled at its deadline."
        R6Guard "r6-guard" "Effects may begin after the deadline."
        R7Pause "r7-pause" "Nobody notices that the process stood still."
        R7Renew "r7-renew" "Renewals come at two thirds of the TTL."
        R8Whole "r8-whole" "A keep-alive says of all holds what is true of the first."
        R9Revive "r9-revive" "A keep-alive brings back a session that has expired."
        R9Release "r9-release" "A release frees what its session holds now, under whatever epoch."
        R10Early "r10-early" "A duty is given back while its work comes to its end."
        R11Fence "r11-fence" "The resource takes effects under any epoch."
        R11Nonce "r11-nonce" "The resource compares epochs, and not whose they are."
        R12Unlocked "r12-unlocked" "The fence looks at the hold and does not lock it."
        R14Version "r14-version" "A commit does not compare the version."
        R14Fence "r14-fence" "A commit does not compare the epoch, nor ask whether the hold stands."
        R17Already "r17-already" "A claim whose answer was lost counts as granted when asked again."
        R17Orphan "r17-orphan" "A grant whose answer was lost is never looked for."
        R18Cancel "r18-cancel" "Work that is to move is cancelled, not asked to end."
        R19Window "r19-window" "A duty that has just been moved may be moved again."
        R19Swap "r19-swap" "A duty moves to whoever scores higher, however the shares are."
        R20Views "r20-views" "Duties are shed although members see different groups."
        R21Wait "r21-wait" "After the store was away or reset, claims are sent at once."
        R22Evict "r22-evict" "An evicted instance may go on keeping its session alive."
        R22Progress "r22-progress" "Work without progress is left alone."
        R23Open "r23-open" "A renewal that failed counts as one that succeeded."
        R24Audit "r24-audit" "Nothing is written into the audit."
        R25All "r25-all" "Everything that is to move is moved at once."
        R26Group "r26-group" "What a command has started may outlive it."
        R26Orphan "r26-orphan" "A command outlives its guard."
        R26Late "r26-late" "A command is ended some seconds after its deadline."
    }
}

impl Mutant {
    /// The variable by which tests, and commands that tests start, are told which one to turn on.
    pub const VARIABLE: &str = "TENURE_TEST_MUTANT";

    /// The rule that it breaks, as `R5`.
    pub fn rule(self) -> String {
        let number = self.as_str().split('-').next().unwrap_or_default();
        number.to_uppercase()
    }

    /// Whether the rule is to be broken.
    #[cfg(not(feature = "mutants"))]
    pub const fn is_on(self) -> bool {
        false
    }

    /// Whether the rule is to be broken.
    #[cfg(feature = "mutants")]
    pub fn is_on(self) -> bool {
        ON.get() == Some(&self)
    }

    /// Breaks the rule for as long as this process runs; another one cannot be broken after that.
    #[cfg(feature = "mutants")]
    pub fn turn_on(name: &str) -> Result<(), String> {
        let mutant = Self::parse(name).ok_or_else(|| format!("there is no mutant {name:?}"))?;
        let on = ON.get_or_init(|| mutant);
        if *on == mutant { Ok(()) } else { Err(format!("{} is on already", on.as_str())) }
    }

    /// Breaks no rule: this build cannot.
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

    /// What breaks rules is chosen, never there by default.
    #[test]
    fn none_is_on_by_itself() {
        if std::env::var_os(Mutant::VARIABLE).is_none() {
            assert_eq!(Mutant::ALL.iter().find(|mutant| mutant.is_on()), None);
        }
    }
}
