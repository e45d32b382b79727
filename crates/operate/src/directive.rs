//! Directives: operators' orders that are in force in a group.

use serde::Serialize;
use tenure_core::engine::GroupConfig;
use tenure_core::{DutyId, GroupName};

/// One directive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Directive {
    /// Kind: `pause-all`, `pause`, `pin`, `drain`, `cordon` or `weight`.
    pub what: &'static str,
    /// Group, duty or instance that it applies to.
    pub on: String,
    /// Pin, drain mode or weight.
    pub how: Option<String>,
}

/// Lists the directives in a group's document.
pub fn directives(name: &GroupName, document: &GroupConfig) -> Vec<Directive> {
    let duty = |id: &DutyId| format!("{name}/{id}");
    let line = |what, on, how| Directive { what, on, how };
    let mut all = Vec::new();
    all.extend(document.all_paused.then(|| line("pause-all", name.to_string(), None)));
    all.extend(document.paused.iter().map(|id| line("pause", duty(id), None)));
    all.extend(document.pins.iter().map(|(id, pin)| line("pin", duty(id), Some(pin.to_string()))));
    let drains = document.drained.iter();
    all.extend(drains.map(|(who, how)| line("drain", who.to_string(), Some(how.as_str().into()))));
    all.extend(document.cordoned.iter().map(|who| line("cordon", who.to_string(), None)));
    let weights = document.weights.iter();
    all.extend(weights.map(|(who, n)| line("weight", who.to_string(), Some(n.to_string()))));
    all
}
