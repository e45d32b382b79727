//! `tenure doctor`: what the store can promise with the settings that it has now.

use serde_json::{Value, json};
use tenure_core::guarantee::{Fact, Finding, Level, Survey, Verdict, has_setting, judge};
use tenure_core::{Clock, Code, GroupName, Store, StoreError};
use tenure_duty::process;
use tenure_store::{BootClock, IfAbsent, StoreUrl};

use crate::failure::Failure;
use crate::output::{document, shown, to_stderr, to_stdout};
use crate::table::{Align, Column, lay_out};

/// The middle of so many reads is the round trip.
const READS: usize = 5;

/// Below `--require` the report is printed all the same, and then it is an error.
pub(crate) async fn run(
    url: &StoreUrl,
    require: Option<Level>,
    json: bool,
) -> Result<String, Failure> {
    let store = url.open(IfAbsent::Refuse, process::entropy()).await?;
    let report = Report::of(&*store).await?;
    let text = match json {
        true => document(&report.for_programs(&url.to_string(), require)),
        false => report.for_people(),
    };
    if let Err(refusal) = check(report.verdict.level, require) {
        to_stdout(&text).map_err(anyhow::Error::from)?;
        return Err(refusal.into());
    }
    Ok(text)
}

/// The same look in one line, before a command begins its work; refused below `require`.
pub(crate) async fn at_start(store: &dyn Store, require: Option<Level>) -> Result<(), StoreError> {
    let level = level(store).await?;
    to_stderr(&format!("guarantee: {level} (tenure doctor says why)"));
    check(level, require)
}

/// What the store can promise with its settings of now.
pub(crate) async fn level(store: &dyn Store) -> Result<Level, StoreError> {
    Ok(judge(&store.survey().await?).level)
}

/// Refuses what is below the least that will do.
pub(crate) fn check(level: Level, require: Option<Level>) -> Result<(), StoreError> {
    match require {
        Some(required) if level < required => {
            let detail = format!("required is {required}, and the store gives {level}");
            Err(StoreError::refused(Code::BelowLevel, detail))
        }
        _ => Ok(()),
    }
}

/// What was found out about a store.
struct Report {
    backend: &'static str,
    verdict: Verdict,
    round_trip_ms: u64,
    clock_difference_ms: Option<i64>,
}

impl Report {
    async fn of(store: &dyn Store) -> Result<Self, Failure> {
        let before = process::unix_ms();
        let mut survey = store.survey().await?;
        let after = process::unix_ms();
        // The store's clock was read somewhere between.
        let middle = before.midpoint(after);
        let clock_difference_ms = survey.unix_ms.map(|theirs| theirs as i64 - middle as i64);
        let round_trip_ms = round_trip_ms(store).await?;
        measured(&mut survey, "clock_difference_ms", clock_difference_ms);
        measured(&mut survey, "round_trip_ms", Some(round_trip_ms));
        let (backend, verdict) = (survey.backend, judge(&survey));
        Ok(Self { backend, verdict, round_trip_ms, clock_difference_ms })
    }

    fn for_people(&self) -> String {
        let Verdict { level, findings } = &self.verdict;
        let rows: Vec<_> = findings.iter().map(row).collect();
        format!("guarantee: {level} ({})\n\n{}", level.sentence(), lay_out(&COLUMNS, &rows))
    }

    fn for_programs(&self, store: &str, require: Option<Level>) -> Value {
        let Verdict { level, findings } = &self.verdict;
        json!({
            "store": store,
            "backend": self.backend,
            "guarantee": level.as_str(),
            "required": require.map(Level::as_str),
            "satisfied": check(*level, require).is_ok(),
            "findings": findings.iter().map(value).collect::<Vec<_>>(),
            "round_trip_ms": self.round_trip_ms,
            "clock_difference_ms": self.clock_difference_ms,
        })
    }
}

/// Adds what we measured ourselves, where the table asks for it.
fn measured(survey: &mut Survey, setting: &'static str, value: Option<impl ToString>) {
    if has_setting(survey.backend, setting) {
        let value = value.map(|value| value.to_string());
        survey.facts.push(Fact { setting, value });
    }
}

/// A read that every store answers in one round trip, of a group that need not exist.
async fn round_trip_ms(store: &dyn Store) -> Result<u64, StoreError> {
    let group = GroupName::new("doctor")?;
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        let began = BootClock.now();
        store.group_document(&group).await?;
        times.push(BootClock.now().since(began));
    }
    times.sort_unstable();
    Ok(u64::try_from(times[READS / 2].as_millis()).unwrap_or(u64::MAX))
}

const COLUMNS: [Column; 5] = [
    Column("SETTING", Align::Left),
    Column("VALUE", Align::Left),
    Column("STATE", Align::Left),
    Column("AT_MOST", Align::Left),
    Column("MEANING", Align::Left),
];

fn row(finding: &Finding) -> [String; 5] {
    let state = match finding {
        finding if finding.lowers => "lowers",
        finding if finding.attention() => "look",
        _ => "ok",
    };
    let change = finding.change.map(|change| format!("; change: {change}")).unwrap_or_default();
    [
        finding.setting.to_owned(),
        finding.value.as_deref().map_or_else(|| "-".to_owned(), shown),
        state.to_owned(),
        finding.level.to_string(),
        format!("{}{change}", finding.sentence),
    ]
}

fn value(finding: &Finding) -> Value {
    json!({
        "setting": finding.setting,
        "value": finding.value,
        "level": finding.level.as_str(),
        "attention": finding.attention(),
        "sentence": finding.sentence,
        "change": finding.change,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tenure_store::Memory;

    #[test]
    fn what_is_required_is_the_least_that_is_taken() {
        for level in Level::ALL {
            assert!(check(level, None).is_ok());
            for required in Level::ALL {
                assert_eq!(check(level, Some(required)).is_ok(), level >= required);
            }
        }
        let error = check(Level::AtLeastOnce, Some(Level::Fenced)).unwrap_err();
        assert_eq!(error.code(), Code::BelowLevel);
        assert_eq!(error.problem().detail, "required is fenced, and the store gives at-least-once");
    }

    #[tokio::test]
    async fn a_command_does_not_start_on_a_store_that_is_too_weak() {
        let store = Memory::new(Arc::new(BootClock));
        at_start(&store, None).await.unwrap();
        at_start(&store, Some(Level::BestEffort)).await.unwrap();
        let error = at_start(&store, Some(Level::AtLeastOnce)).await.unwrap_err();
        assert_eq!(error.code(), Code::BelowLevel);
    }
}
