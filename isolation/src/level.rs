//! Isolation levels, and the ways by which a transaction gets one.

use std::fmt;

use anyhow::{Result, bail};

/// An isolation level and the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IsolationLevel {
    /// The way to the server.
    pub path: ConnectionPath,
    /// Default of the role.
    pub default: &'static str,
}

/// The way of a connection to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionPath {
    /// Directly: the pools set the level of their sessions.
    Direct,
    /// Through a proxy, as through a pooler: statements have no names, and begin their own
    /// transactions where the default is another level.
    Pooled,
    /// Through a proxy, and the default changed after the pools were opened: the transactions of
    /// the pools really run at the other level.
    Raw,
}

const READ_COMMITTED: &str = "read committed";
const REPEATABLE_READ: &str = "repeatable read";
const SERIALIZABLE: &str = "serializable";

impl IsolationLevel {
    /// The level at which everything is stopped at every lock.
    pub const READ_COMMITTED: Self = Self { path: ConnectionPath::Direct, default: READ_COMMITTED };

    /// All levels, in the order in which they run.
    pub const ALL: [Self; 8] = [
        Self::READ_COMMITTED,
        Self { path: ConnectionPath::Direct, default: REPEATABLE_READ },
        Self { path: ConnectionPath::Direct, default: SERIALIZABLE },
        Self { path: ConnectionPath::Pooled, default: READ_COMMITTED },
        Self { path: ConnectionPath::Pooled, default: REPEATABLE_READ },
        Self { path: ConnectionPath::Pooled, default: SERIALIZABLE },
        Self { path: ConnectionPath::Raw, default: REPEATABLE_READ },
        Self { path: ConnectionPath::Raw, default: SERIALIZABLE },
    ];

    /// Parses a name.
    pub fn parse(name: &str) -> Result<Self> {
        match Self::ALL.iter().find(|level| level.to_string() == name) {
            Some(level) => Ok(*level),
            None => {
                bail!("{name:?} is not one of: {}", Self::ALL.map(|it| it.to_string()).join(", "))
            }
        }
    }

    /// Returns the role that connects at this level.
    pub(crate) fn role(self) -> String {
        format!("iso_{}", self.to_string().replace('-', "_"))
    }

    /// Whether a transaction of the pools may be refused for its level.
    pub(crate) fn may_refuse(self) -> bool {
        self.path == ConnectionPath::Raw
    }
}

impl fmt::Display for IsolationLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match self.path {
            ConnectionPath::Direct => "direct",
            ConnectionPath::Pooled => "pooled",
            ConnectionPath::Raw => "raw",
        };
        write!(f, "{path}-{}", self.default.replace(' ', "-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed() {
        for level in IsolationLevel::ALL {
            assert_eq!(IsolationLevel::parse(&level.to_string()).unwrap(), level);
        }
        assert!(IsolationLevel::parse("raw").is_err());
    }
}
