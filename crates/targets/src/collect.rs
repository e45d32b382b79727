//! Collector of target lists.

use tenure_core::{DutyId, Label, Listing, StoreError, Target};

use crate::error::{TargetsError, bad, too_many};

/// A list being read. An invalid entry fails the whole list.
#[derive(Debug)]
pub(crate) struct Collector {
    most: usize,
    targets: Vec<Target>,
}

impl Collector {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, targets: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        id: &str,
        zone: Option<&str>,
        paused: bool,
    ) -> Result<(), TargetsError> {
        if self.targets.len() >= self.most {
            return Err(too_many(self.targets.len() + 1, self.most));
        }
        let wrong = |error: StoreError| self.wrong(&error.problem().detail);
        let id = DutyId::new(id).map_err(wrong)?;
        let zone = zone.map(Label::new).transpose().map_err(wrong)?;
        self.targets.push(Target { id, zone, paused });
        Ok(())
    }

    /// Error for an invalid next entry.
    pub(crate) fn wrong(&self, what: impl std::fmt::Display) -> TargetsError {
        bad(format!("entry {}: {what}", self.targets.len() + 1))
    }

    pub(crate) fn finish(self) -> Listing {
        Listing::new(self.targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::Code;

    #[test]
    fn the_first_one_too_many_ends_it() {
        let mut list = Collector::new(2);
        list.add("a", None, false).unwrap();
        list.add("b", Some("eu"), true).unwrap();
        let error = list.add("c", None, false).unwrap_err();
        assert_eq!(error.code(), Code::TooManyTargets);
        assert!(error.to_string().contains("at least 3 targets, and the limit is 2"), "{error}");
        assert_eq!(Collector::new(0).add("a", None, false).unwrap_err().code(), error.code());
    }

    #[test]
    fn a_bad_entry_is_named_by_its_place() {
        for (id, zone) in [("", None), ("a\nb", None), (&*"x".repeat(513), None), ("a", Some(""))] {
            let mut list = Collector::new(9);
            list.add("fine", None, false).unwrap();
            let error = list.add(id, zone, false).unwrap_err();
            assert_eq!(error.code(), Code::BadTargets, "{id}");
            assert!(error.to_string().contains(": entry 2: "), "{error}");
        }
    }
}
