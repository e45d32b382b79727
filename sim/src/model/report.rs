//! Running the model checker, and its report.

use std::fmt;

use stateright::{Checker, HasDiscoveries, Model};

use super::{ModelBounds, Setup, What, Without};

/// Result of a run of the model checker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelReport {
    /// Number of distinct states.
    pub unique: usize,
    /// Number of actions tried.
    pub tried: usize,
    /// Length of the longest path from the first state.
    pub depth: usize,
    /// Number of occurrences of each kind.
    pub counts: Vec<(&'static str, u64)>,
    /// The rules that were broken, each with the actions that lead there.
    pub broken: Vec<(&'static str, Vec<String>)>,
    /// Expected occurrences that were never reached.
    pub missing: Vec<&'static str>,
}

impl ModelReport {
    /// Whether no rule was broken and everything was reached.
    pub fn is_sound(&self) -> bool {
        self.broken.is_empty() && self.missing.is_empty()
    }
}

impl fmt::Display for ModelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unique, tried, depth, .. } = self;
        writeln!(f, "{unique} states, {tried} actions, depth {depth}")?;
        for (name, count) in &self.counts {
            writeln!(f, "{count:>12} {name}")?;
        }
        for name in &self.missing {
            writeln!(f, "never reached: {name}")?;
        }
        for (rule, actions) in &self.broken {
            writeln!(f, "{rule} is broken after {} actions:", actions.len())?;
            for action in actions {
                writeln!(f, "  {action}")?;
            }
        }
        Ok(())
    }
}

/// Explores all states within the bounds, or until the first broken rule.
pub fn check(bounds: ModelBounds, without: Without) -> ModelReport {
    let mut builder = Setup::new(bounds, without).checker().threads(1);
    if bounds.depth > 0 {
        builder = builder.target_max_depth(bounds.depth);
    }
    let checker = builder.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let setup = checker.model();
    let (mut broken, mut missing) = (Vec::new(), Vec::new());
    for rule in setup.rules() {
        let found = checker.discovery(rule.name);
        match (rule.expectation.discovery_is_failure(), found) {
            (true, Some(path)) => {
                let actions = path.into_actions().into_iter().map(|action| action.to_string());
                broken.push((rule.name, actions.collect()));
            }
            (false, None) => missing.push(rule.name),
            _ => {}
        }
    }
    let names = What::EVENT_NAMES.into_iter();
    ModelReport {
        unique: checker.unique_state_count(),
        tried: checker.state_count(),
        depth: checker.max_depth(),
        counts: names.map(|name| (name, setup.counted(name))).collect(),
        broken,
        missing,
    }
}
