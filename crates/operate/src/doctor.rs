//! Store diagnosis: the guarantee that a store gives with its current settings.

use serde::{Serialize, Serializer};
use serde_json::json;
use tenure_core::guarantee::{Fact, Finding, Level, Survey, Verdict, has_setting, judge};
use tenure_core::{Clock, Code, GroupName, Store, StoreError};
use tenure_duty::process;
use tenure_store::BootClock;

use crate::error::OperateError;
use crate::serialize::{millis, text};

/// Reads per measurement; the median is the round trip.
const ROUND_TRIP_READS: usize = 5;

/// Guarantee of a store, with the settings that decide it.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// Kind of store.
    pub backend: &'static str,
    /// Guarantee with the current settings.
    #[serde(rename = "guarantee", serialize_with = "text")]
    pub level: Level,
    /// One finding per setting that matters.
    #[serde(serialize_with = "findings")]
    pub findings: Vec<Finding>,
    /// Median round trip in milliseconds.
    pub round_trip_ms: u64,
    /// Store's clock minus this host's, in milliseconds; `None` if the store has no clock.
    pub clock_difference_ms: Option<i64>,
}

fn findings<S: Serializer>(findings: &[Finding], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(findings.iter().map(|finding| {
        json!({
            "setting": finding.setting,
            "value": finding.value,
            "level": finding.level.as_str(),
            "attention": finding.attention(),
            "sentence": finding.sentence,
            "change": finding.change,
        })
    }))
}

/// Surveys a store and measures its round trip and clock.
pub async fn diagnose(store: &dyn Store) -> Result<Diagnosis, OperateError> {
    let before = process::unix_ms();
    let mut survey = store.survey().await?;
    let after = process::unix_ms();
    // The store read its clock at some time between the two.
    let middle = before.midpoint(after);
    let clock_difference_ms = survey.unix_ms.map(|theirs| theirs as i64 - middle as i64);
    let round_trip_ms = round_trip_ms(store).await?;
    add_fact(&mut survey, "clock_difference_ms", clock_difference_ms);
    add_fact(&mut survey, "round_trip_ms", Some(round_trip_ms));
    let Verdict { level, findings } = judge(&survey);
    let backend = survey.backend;
    Ok(Diagnosis { backend, level, findings, round_trip_ms, clock_difference_ms })
}

/// Returns the guarantee that the store gives with its current settings.
pub async fn level(store: &dyn Store) -> Result<Level, StoreError> {
    Ok(judge(&store.survey().await?).level)
}

/// Refuses a guarantee below the required one.
pub fn check(level: Level, required: Option<Level>) -> Result<(), StoreError> {
    match required {
        Some(required) if level < required => {
            let detail = format!("{required} is required, the store gives {level}");
            Err(StoreError::refused(Code::BelowLevel, detail))
        }
        _ => Ok(()),
    }
}

/// Adds a measured value, if the table of guarantees judges it for this backend.
fn add_fact(survey: &mut Survey, setting: &'static str, value: Option<impl ToString>) {
    if has_setting(survey.backend, setting) {
        let value = value.map(|value| value.to_string());
        survey.facts.push(Fact { setting, value });
    }
}

/// Measures a read that every store answers in one round trip, of a group that need not exist.
async fn round_trip_ms(store: &dyn Store) -> Result<u64, StoreError> {
    let group = GroupName::new("doctor")?;
    let mut times = Vec::with_capacity(ROUND_TRIP_READS);
    for _ in 0..ROUND_TRIP_READS {
        let began = BootClock.now();
        store.group_document(&group).await?;
        times.push(BootClock.now().since(began));
    }
    times.sort_unstable();
    Ok(millis(times[ROUND_TRIP_READS / 2]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tenure_store::Memory;

    #[test]
    fn a_guarantee_below_the_required_one_is_refused() {
        for &level in Level::ALL {
            assert!(check(level, None).is_ok());
            for &required in Level::ALL {
                assert_eq!(check(level, Some(required)).is_ok(), level >= required);
            }
        }
        let error = check(Level::AtLeastOnce, Some(Level::Fenced)).unwrap_err();
        assert_eq!(error.code(), Code::BelowLevel);
        assert_eq!(error.problem().detail, "fenced is required, the store gives at-least-once");
    }

    #[tokio::test]
    async fn a_store_in_memory_is_too_weak_for_a_lasting_effect() {
        let store = Memory::new(Arc::new(BootClock));
        let level = level(&store).await.unwrap();
        check(level, Some(Level::BestEffort)).unwrap();
        let error = check(level, Some(Level::AtLeastOnce)).unwrap_err();
        assert_eq!(error.code(), Code::BelowLevel);
        assert_eq!(diagnose(&store).await.unwrap().level, level);
    }
}
