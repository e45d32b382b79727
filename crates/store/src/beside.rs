//! For crates that keep tables of their own beside a store's, in the same SQLite file or PostgreSQL
//! schema: the same connections, waiting, migrations and words for what goes wrong.

use std::path::PathBuf;

pub use crate::migration::{History, Migration};

/// Where tables beside a store's are. Nothing here prints: the URL may carry a password.
pub enum Place {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// A schema of a PostgreSQL database.
    Postgres {
        /// For [`postgres::target`].
        url: String,
        /// A plain name.
        schema: String,
    },
}

/// Threads that own connections to a SQLite file.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use crate::sqlite::schema::{is_there, migrate, script};
    pub use crate::sqlite::worker::{Begun, Line, Manners, Worker, connect, refused, retry};
}

/// Pools of connections to PostgreSQL.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use crate::postgres::connect::{
        Line, Parameter, Target, is_direct, keep_plans_keyed, primary_only, read_committed, target,
        within,
    };
    pub use crate::postgres::error::of_statement;
    pub use crate::postgres::schema::{check_name, in_schema, migrate, script};
}
