//! Columns of a query by their meaning.

use crate::error::{TargetsError, bad};

/// Meaning of the columns of a query. The first column is the id; the others are found by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Columns {
    pub(crate) zone: Option<usize>,
    pub(crate) paused: Option<usize>,
    pub(crate) every: Option<usize>,
    pub(crate) timeout: Option<usize>,
}

impl Columns {
    /// Refuses columns of other names: ignoring `is_paused` would leave every target unpaused.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Result<Self, TargetsError> {
        let mut columns = Self::default();
        let mut names = names.enumerate();
        names.next().ok_or_else(|| bad("the query returns no columns"))?;
        for (at, name) in names {
            let known = match name.to_ascii_lowercase().as_str() {
                "zone" => &mut columns.zone,
                "paused" => &mut columns.paused,
                "every" => &mut columns.every,
                "timeout" => &mut columns.timeout,
                _ => {
                    let known = "zone, paused, every and timeout";
                    return Err(bad(format!("column {name:?} is none of {known}")));
                }
            };
            if known.replace(at).is_some() {
                return Err(bad(format!("the query has two columns {name:?}")));
            }
        }
        Ok(columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name() {
        let columns = |names: &[&str]| Columns::new(names.iter().copied());
        let found = columns(&["paused", "Paused", "zone", "timeout", "every"]).unwrap();
        let (zone, paused, every, timeout) = (Some(2), Some(1), Some(4), Some(3));
        assert_eq!(found, Columns { zone, paused, every, timeout });
        assert_eq!(columns(&["anything"]).unwrap(), Columns::default());
        for bad in [&[][..], &["id", "is_paused"], &["id", "zone", "zone"]] {
            assert!(columns(bad).is_err(), "{bad:?}");
        }
    }
}
