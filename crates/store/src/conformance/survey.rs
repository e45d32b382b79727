//! Contract 24: a store reports exactly the settings that the guarantee table lists.

use std::collections::BTreeSet;

use tenure_core::guarantee::{Backend, Level, TABLE};

use super::kit::Kit;

super::cases! { "survey":
    a_survey_has_the_settings_of_the_table,
}

/// Facts that the command measures itself.
const MEASURED: [&str; 2] = ["clock_difference_ms", "round_trip_ms"];

async fn a_survey_has_the_settings_of_the_table(kit: Kit) {
    let survey = kit.store.survey().await.unwrap();
    let backend = Backend::named(survey.backend).expect("the table has this kind of store");
    let told: BTreeSet<&str> = survey.facts.iter().map(|fact| fact.setting).collect();
    assert_eq!(told.len(), survey.facts.len(), "a setting is told twice: {survey:?}");
    let asked = TABLE.iter().filter(|row| row.is_of(backend.name)).map(|row| row.setting);
    let asked: BTreeSet<&str> = asked.filter(|setting| !MEASURED.contains(setting)).collect();
    assert_eq!(told, asked);
    let abilities = kit.store.abilities();
    assert_eq!(abilities.exclusive_effects, backend.best == Level::ExclusiveEffects);
    assert_eq!(abilities.durable, backend.best > Level::BestEffort);
}
