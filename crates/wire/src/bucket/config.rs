//! The four bucket settings of a config.

use serde_json::Number;
use serde_json::value::RawValue;
use tenure_core::bucket::{
    Active, Field, Invalid, MAX_SHOWN_CHARS, Partition, Ranges, RangesBuilder, Total, short,
};

use super::Notice;
use crate::object::Object;

/// Bucket settings, validated and with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of buckets.
    pub total: Total,
    /// Bucket of this run, unless it rotates.
    pub id: u32,
    /// Whether the bucket is chosen by rotation.
    pub round_robin: bool,
    /// Buckets in the rotation; `None` if all are, or without rotation.
    pub ranges: Option<Ranges>,
    /// Notices for a log.
    pub notices: Vec<Notice>,
}

impl Config {
    /// Reads the settings. Missing and `null` members have their defaults.
    pub fn read(config: &Object) -> Result<Self, Invalid> {
        let field = |field: Field| config.get(field.as_str()).filter(|value| value.get() != "null");
        let total = match field(Field::Total) {
            Some(value) => {
                let total = whole(value.get()).and_then(|total| Total::new(total).ok());
                total.ok_or_else(|| Invalid::total(value))?
            }
            None => Total::ONE,
        };
        let id = match field(Field::Id) {
            Some(value) => {
                let id = whole(value.get()).and_then(|id| total.id(id).ok());
                id.ok_or_else(|| Invalid::id(value, total))?
            }
            None => 1,
        };
        let round_robin = match field(Field::RoundRobin).map(RawValue::get) {
            Some("true") => true,
            Some("false") | None => false,
            Some(value) => return Err(Invalid::round_robin(value)),
        };
        // An empty text counts as none.
        let given = field(Field::Ranges).filter(|value| value.get() != "\"\"");
        let mut read = Self { total, id, round_robin, ranges: None, notices: Vec::new() };
        match (given, round_robin) {
            (Some(given), true) => read.ranges = Some(ranges(given, total)?),
            (Some(given), false) => {
                read.notices.push(Notice::RangesIgnored { value: joined(given) });
                let unreadable = ranges(given, total).err();
                read.notices.extend(unreadable.map(Notice::RangesUnreadable));
            }
            (None, _) => {}
        }
        Ok(read)
    }

    /// Returns the entities of this run, under the connector's key.
    pub fn active(&self, key: &str) -> Result<Active, Invalid> {
        Partition::new(key, self.total).active(self.id.into())
    }
}

/// Reads a whole number that is not negative, in any notation: `5`, `5.0`, `5e0`.
pub(super) fn whole(text: &str) -> Option<u64> {
    let number: Number = serde_json::from_str(text).ok()?;
    number.as_u64().or_else(|| {
        let number = number.as_f64()?;
        // Up to 2^53 a float is exact.
        let exact = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
        exact.then_some(number as u64)
    })
}

/// Reads ranges: a text, or a list of texts and whole numbers.
fn ranges(given: &RawValue, total: Total) -> Result<Ranges, Invalid> {
    let mut builder = RangesBuilder::new(total);
    for part in parts(given).ok_or_else(|| Invalid::ranges(given, total))? {
        builder.add(&text(part).ok_or_else(|| Invalid::ranges(part, total))?)?;
    }
    builder.build(given)
}

/// Reads a text, or a whole number as text.
fn text(part: &RawValue) -> Option<String> {
    let text = serde_json::from_str::<String>(part.get()).ok();
    text.or_else(|| whole(part.get()).map(|number| number.to_string()))
}

/// Returns ranges for a log, separated by commas and shortened.
fn joined(given: &RawValue) -> String {
    let Some(parts) = parts(given) else { return short(given.get()) };
    let (mut shown, mut length) = (Vec::new(), 0);
    for part in parts {
        if length <= MAX_SHOWN_CHARS {
            shown.push(text(part).unwrap_or_else(|| part.get().to_owned()));
            length += shown.last().map_or(0, String::len) + 1;
        }
    }
    short(&shown.join(","))
}

/// Returns a text, or the parts of a list; `None` if it is neither.
fn parts(given: &RawValue) -> Option<Vec<&RawValue>> {
    match given.get().as_bytes().first() {
        Some(b'"') => Some(vec![given]),
        Some(b'[') => serde_json::from_str(given.get()).ok(),
        _ => None,
    }
}
