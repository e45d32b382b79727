//! One entry after the other, until the list is whole or there are too many.

use tenure_core::{Code, DutyId, Label, Listing, StoreError, Target};

use crate::bad;

/// A list that is being read. Whatever is wrong with one entry is wrong with the list.
#[derive(Debug)]
pub(crate) struct Collector {
    most: usize,
    targets: Vec<Target>,
}

impl Collector {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, targets: Vec::new() }
    }

    /// Takes the next entry.
    pub(crate) fn add(
        &mut self,
        id: &str,
        zone: Option<&str>,
        paused: bool,
    ) -> Result<(), StoreError> {
        let place = self.targets.len() + 1;
        if place > self.most {
            return Err(too_many(place, self.most));
        }
        let wrong = |error: StoreError| bad(format!("entry {place}: {}", error.problem().detail));
        let id = DutyId::new(id).map_err(wrong)?;
        let zone = zone.map(Label::new).transpose().map_err(wrong)?;
        self.targets.push(Target { id, zone, paused });
        Ok(())
    }

    /// An entry is no entry at all.
    pub(crate) fn wrong(&self, what: impl std::fmt::Display) -> StoreError {
        bad(format!("entry {}: {what}", self.targets.len() + 1))
    }

    /// The list has come to its end.
    pub(crate) fn finish(self) -> Listing {
        Listing::new(self.targets)
    }
}

/// Reading stops at the first one too many, so nobody knows how many there are.
pub(crate) fn too_many(found: usize, most: usize) -> StoreError {
    let detail = format!("at least {found} targets, and the limit is {most}");
    StoreError::refused(Code::TooManyTargets, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(error.problem().detail.starts_with("entry 2: "), "{error}");
        }
    }
}
