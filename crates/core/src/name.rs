//! Names: groups, duties, instances.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{Code, StoreError, escape};

fn check(word: &str, raw: &str, most: usize) -> Result<(), StoreError> {
    let problem = if raw.is_empty() {
        "is empty".to_owned()
    } else if raw.len() > most {
        format!("has {} bytes; the limit is {most}", raw.len())
    } else if raw.chars().any(char::is_control) {
        "contains a control character".to_owned()
    } else {
        return Ok(());
    };
    let article = if word.starts_with('i') { "an" } else { "a" };
    Err(StoreError::refused(Code::BadInput, format!("{article} {word} {problem}")))
}

/// Names are shared, not copied: a hold has three of them, and an instance up to 10 000 holds.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $word:literal, $most:literal, $escape:path) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest name, in bytes before escaping.
            pub const MAX_NAME_BYTES: usize = $most;

            /// Creates a name: 1 to [`Self::MAX_NAME_BYTES`] bytes without control characters.
            pub fn new(raw: impl Into<String>) -> Result<Self, StoreError> {
                let raw = raw.into();
                check($word, &raw, $most)?;
                Ok(Self(raw.into()))
            }

            /// Returns the unescaped name.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the name as used in keys and in `group/id`: percent-escaped where needed.
            pub fn escaped(&self) -> std::borrow::Cow<'_, str> {
                $escape(&self.0)
            }

            /// Parses the escaped form.
            pub fn unescape(escaped: &str) -> Result<Self, StoreError> {
                let Some(raw) = escape::undo(escaped) else {
                    let detail = format!("{escaped:?} is not a percent-escaped {}", $word);
                    return Err(StoreError::refused(Code::BadInput, detail));
                };
                Self::new(raw)
            }
        }

        /// Displays the escaped form.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.escaped())
            }
        }
    };
}

name!(
    /// The name of a group of duties that the same members share.
    GroupName, "group name", 128, escape::group
);
name!(
    /// The name of a duty inside its group.
    DutyId, "duty id", 512, escape::id
);
name!(
    /// The readable id of one process from start to exit: `hostname-bootUnixNanos-8hex`. Foreign
    /// members may use other formats, so any text is accepted.
    InstanceId, "instance id", 512, escape::id
);

name!(
    /// A word that an operator assigns to members: a zone, a stable name, a revision.
    Label, "label", 128, escape::id
);

/// A duty's full name, written `group/id` with each part percent-escaped.
///
/// ```
/// # use tenure_core::DutyKey;
/// let key = DutyKey::new("telegram", "bot/42 %").unwrap();
/// assert_eq!(key.to_string(), "telegram/bot%2F42%20%25");
/// assert_eq!(key.to_string().parse::<DutyKey>().unwrap(), key);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DutyKey {
    /// The group it belongs to.
    pub group: GroupName,
    /// Its id within the group.
    pub id: DutyId,
}

impl DutyKey {
    /// Creates the key of duty `id` in `group`, both unescaped.
    pub fn new(group: impl Into<String>, id: impl Into<String>) -> Result<Self, StoreError> {
        Ok(Self { group: GroupName::new(group)?, id: DutyId::new(id)? })
    }
}

impl fmt::Display for DutyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.id)
    }
}

impl FromStr for DutyKey {
    type Err = StoreError;

    /// Splits at the first `/`; characters that need no escape may be given unescaped.
    fn from_str(text: &str) -> Result<Self, StoreError> {
        let (group, id) = text.split_once('/').ok_or_else(|| {
            StoreError::refused(Code::BadInput, format!("{text:?} is not GROUP/DUTY"))
        })?;
        Ok(Self { group: GroupName::unescape(group)?, id: DutyId::unescape(id)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn poll_lease_ids_stay_as_they_are() {
        let plain = "Az09._:@-";
        assert_eq!(DutyId::new(plain).unwrap().escaped(), plain);
        assert_eq!(
            InstanceId::new("api-7f-1736598400000000000-a1b2c3d4").unwrap().to_string().len(),
            35
        );
    }

    #[test]
    fn what_acts_as_syntax_is_escaped() {
        assert_eq!(DutyId::new("{a}/b %").unwrap().to_string(), "%7Ba%7D%2Fb%20%25");
        assert_eq!(GroupName::new("a:b").unwrap().to_string(), "a%3Ab");
        assert_eq!(DutyId::new("🦀").unwrap().to_string(), "%F0%9F%A6%80");
    }

    #[test]
    fn names_outside_the_limits_are_refused() {
        for bad in ["", "a\0b", "a\nb", &"x".repeat(513)] {
            assert_eq!(DutyId::new(bad).unwrap_err().code(), Code::BadInput, "{bad:?}");
        }
        assert!(DutyId::new("x".repeat(512)).is_ok());
        assert!(GroupName::new("x".repeat(129)).is_err());
    }

    #[test]
    fn text_that_is_no_key_is_refused() {
        for bad in ["poll", "/x", "poll/", "poll/%", "poll/%4", "poll/%zz", "poll/%FF"] {
            assert_eq!(bad.parse::<DutyKey>().unwrap_err().code(), Code::BadInput, "{bad}");
        }
    }

    proptest! {
        /// Every key can be parsed from its text, and different keys have different texts.
        #[test]
        fn keys_round_trip(group in "\\PC{1,30}", id in "\\PC{1,120}", other in "\\PC{1,30}") {
            let key = DutyKey::new(group, id.clone()).unwrap();
            prop_assert_eq!(key.to_string().parse::<DutyKey>().unwrap(), key.clone());
            let neighbour = DutyKey::new(other, id).unwrap();
            prop_assert_eq!(neighbour == key, neighbour.to_string() == key.to_string());
        }
    }
}
