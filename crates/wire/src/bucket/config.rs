//! The four settings of a config.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{SeqAccess, Visitor};
use serde_json::Number;
use serde_json::value::RawValue;
use tenure_core::bucket::{
    Active, Field, Invalid, MAX_SHOWN_CHARS, Partition, Ranges, RangesBuilder, Total, short,
};

use super::Notice;
use crate::object::Object;

/// The settings of bucketing, checked, and with their defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of buckets.
    pub total: Total,
    /// The bucket of this run, unless it rotates.
    pub id: u32,
    /// Whether the bucket is chosen by rotation.
    pub round_robin: bool,
    /// The buckets that take part in the rotation; `None` when all do, or when there is none.
    pub ranges: Option<Ranges>,
    /// Notices for a log.
    pub notices: Vec<Notice>,
}

impl Config {
    /// Reads the settings. What is missing or `null` has its default.
    pub fn read(config: &Object) -> Result<Self, Invalid> {
        let field = |field: Field| config.get(field.name()).filter(|value| value.get() != "null");
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
        // An empty text is as good as nothing.
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

    /// The entities of this run, under the connector's key.
    pub fn active(&self, key: &str) -> Result<Active, Invalid> {
        Partition::new(key, self.total).active(self.id.into())
    }
}

/// A whole number that is not negative, however it is written: `5`, `5.0`, `5e0`.
pub(super) fn whole(text: &str) -> Option<u64> {
    let number: Number = serde_json::from_str(text).ok()?;
    number.as_u64().or_else(|| {
        let number = number.as_f64()?;
        // Up to here every whole number is itself.
        let exact = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
        exact.then_some(number as u64)
    })
}

/// Reads ranges: a text, or a list of texts and whole numbers.
fn ranges(given: &RawValue, total: Total) -> Result<Ranges, Invalid> {
    let mut builder = RangesBuilder::new(total);
    let taken = each(given, |part| match text(part) {
        Some(text) => builder.add(&text),
        None => Err(Invalid::ranges(part, total)),
    });
    taken.unwrap_or_else(|| Err(Invalid::ranges(given, total)))?;
    builder.build(given)
}

/// A text, or a whole number as text.
fn text(part: &RawValue) -> Option<String> {
    let text = serde_json::from_str::<String>(part.get()).ok();
    text.or_else(|| whole(part.get()).map(|number| number.to_string()))
}

/// Ranges as a log shows them: parts with commas between, cut short if they are long.
fn joined(given: &RawValue) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut long = 0;
    let _ = each(given, |part| {
        if long <= MAX_SHOWN_CHARS {
            parts.push(text(part).unwrap_or_else(|| part.get().to_owned()));
            long += parts.last().map_or(0, String::len) + 1;
        }
        Ok(())
    });
    if parts.is_empty() && !given.get().starts_with('[') {
        parts.push(given.get().to_owned());
    }
    short(&parts.join(","))
}

/// Hands on a text, or each part of a list; `None` when it is neither. It is read from first to
/// last: a long list takes no room.
fn each<'a>(
    given: &'a RawValue,
    mut take: impl FnMut(&'a RawValue) -> Result<(), Invalid>,
) -> Option<Result<(), Invalid>> {
    match given.get().as_bytes().first() {
        Some(b'"') => Some(take(given)),
        Some(b'[') => {
            serde_json::Deserializer::from_str(given.get()).deserialize_seq(Each(take)).ok()
        }
        _ => None,
    }
}

/// Hands on each part of a list, up to the first that is refused.
struct Each<F>(F);

impl<'de, F: FnMut(&'de RawValue) -> Result<(), Invalid>> Visitor<'de> for Each<F> {
    type Value = Result<(), Invalid>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut taken = Ok(());
        while let Some(part) = list.next_element()? {
            if taken.is_ok() {
                taken = (self.0)(part);
            }
        }
        Ok(taken)
    }
}
