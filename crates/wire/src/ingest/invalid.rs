//! What is wrong with an envelope.

use std::fmt::{self, Display};

use super::json::{Broken, Why};

/// Why an envelope was refused. It shows as one line that names each field, what was given and what
/// is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The first things that are wrong, at most [`Invalid::MOST`]; never empty.
    pub issues: Vec<Issue>,
    /// How many more there are.
    pub more: usize,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// For programs: `missing`, `extra_forbidden`, `timezone_required` and so on.
    pub kind: &'static str,
    /// The field, as in `source.channel` or `payload.attachments.0.width`; empty for the whole.
    pub at: String,
    /// For people.
    pub says: String,
}

impl Invalid {
    /// So many issues are told; of more only the number.
    pub const MOST: usize = 20;

    pub(super) fn json(kind: &'static str, says: String) -> Self {
        Self { issues: vec![Issue { kind, at: String::new(), says }], more: 0 }
    }
}

impl From<Broken> for Invalid {
    fn from(Broken { at, why }: Broken) -> Self {
        match why {
            Why::Expected(what) => {
                Self::json("json_invalid", format!("not JSON at byte {at}, where {what} should be"))
            }
            Why::TooDeep => {
                let says = format!("nested deeper than {} at byte {at}", super::MAX_DEPTH);
                Self::json("recursion_limit", says)
            }
        }
    }
}

impl Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Invalid ingest.v1 envelope: ")?;
        for (n, issue) in self.issues.iter().enumerate() {
            let separator = if n == 0 { "" } else { "; " };
            write!(f, "{separator}{issue}")?;
        }
        if self.more > 0 {
            write!(f, "; and {} more", self.more)?;
        }
        Ok(())
    }
}

impl Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.at.is_empty() {
            write!(f, "{}: ", self.at)?;
        }
        f.write_str(&self.says)
    }
}

impl std::error::Error for Invalid {}
