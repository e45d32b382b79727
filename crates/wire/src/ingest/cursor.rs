//! Cursors of the inbox: `POSITION.TAG`, as in `5.0f5d3c1a2b4e`.

use std::fmt::{self, Display};
use std::str::FromStr;

use uuid::Uuid;

/// Position of a reader of the inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InboxCursor {
    /// Position of the last message that was read; 0 before the first.
    pub position: i64,
    /// Identifies that message; `None` if only its position is known.
    pub tag: Option<Tag>,
}

/// Identifies a message: the last twelve hexadecimal digits of its `request_id`. At least 32 bits
/// are random, so a message that gets the same position after a restore has another tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(u64);

const TAG_DIGITS: usize = 12;
const TAG_BITS: u32 = 48;

impl Tag {
    /// Returns the tag of a message.
    pub fn of(request_id: Uuid) -> Self {
        Self(request_id.as_u64_pair().1 & ((1 << TAG_BITS) - 1))
    }
}

impl InboxCursor {
    /// Returns the cursor of a position, and of its message if that is known.
    pub fn new(position: i64, request_id: Option<Uuid>) -> Self {
        Self { position, tag: request_id.map(Tag::of) }
    }
}

impl From<i64> for InboxCursor {
    fn from(position: i64) -> Self {
        Self { position, tag: None }
    }
}

impl Display for InboxCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.position)?;
        match self.tag {
            Some(Tag(tag)) => write!(f, ".{tag:0TAG_DIGITS$x}"),
            None => Ok(()),
        }
    }
}

/// Error of a text that is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a cursor: POSITION.TAG, as next_after has it, or a number from 0 to {}", i64::MAX)]
pub struct NoCursor;

impl FromStr for InboxCursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let tag = text.split_once('.').map(|(_, tag)| tag);
        let position = text.split('.').next().unwrap_or_default();
        // `parse` would also accept a sign.
        let digits = position.bytes().all(|byte| byte.is_ascii_digit());
        let position = position.parse().ok().filter(|_| digits).ok_or(NoCursor)?;
        let read = |tag: &str| {
            let digits = tag.bytes().all(|byte| byte.is_ascii_hexdigit());
            let tag = u64::from_str_radix(tag, 16).ok().filter(|_| tag.len() == TAG_DIGITS);
            tag.filter(|_| digits).map(Tag).ok_or(NoCursor)
        };
        Ok(Self { position, tag: tag.map(read).transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let id = Uuid::parse_str("019c60f3-8d5a-7c31-9d0c-0f5d3c1a2b4e").unwrap();
        let small = Uuid::parse_str("019c60f3-8d5a-7c31-9d0c-00000000000a").unwrap();
        for (cursor, text) in [
            (InboxCursor::new(5, Some(id)), "5.0f5d3c1a2b4e"),
            (InboxCursor::new(i64::MAX, Some(small)), "9223372036854775807.00000000000a"),
            (InboxCursor::new(0, None), "0"),
            (InboxCursor::from(1_790_000_000_000_001), "1790000000000001"),
        ] {
            assert_eq!(cursor.to_string(), text);
            assert_eq!(text.parse(), Ok(cursor));
        }
        assert_eq!("5.0F5D3C1A2B4E".parse(), Ok(InboxCursor::new(5, Some(id))));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            ".",
            "5.",
            "5.0",
            ".0f5d3c1a2b4e",
            "+5",
            "-5",
            "5.+f5d3c1a2b4e",
            "5.0f5d3c1a2b4e0",
            "5.0f5d3c1a2b4g",
            "5.0f5d3c1a2b4e.1",
            "9223372036854775808",
            " 5",
        ] {
            assert_eq!(text.parse::<InboxCursor>(), Err(NoCursor), "{text}");
        }
    }
}
