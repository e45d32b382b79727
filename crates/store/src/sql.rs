//! SQL access for crates that keep tables of their own in a store's SQLite file or PostgreSQL
//! schema: the same connections, timeouts, migrations and error codes.

use std::path::PathBuf;

pub use crate::migration::{Migration, MigrationHistory};

/// The database of a store. It does not implement `Debug`: the URL may carry a password.
pub enum Database {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// A schema of a PostgreSQL database.
    Postgres {
        /// URL for [`postgres::server_from_url`].
        url: String,
        /// Schema name that needs no quotes.
        schema: String,
    },
}

/// Threads that own connections to a SQLite file.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use crate::sqlite::boot::{BootLock, share};
    pub use crate::sqlite::connect::{connect, retry};
    pub use crate::sqlite::error::statement_error;
    pub use crate::sqlite::schema::{is_there, migrate, script};
    pub use crate::sqlite::worker::{PendingJob, SqliteConnection, Worker, WritePriority};
}

/// Pools of connections to PostgreSQL.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use crate::postgres::connect::{
        Parameter, PostgresConnectConfig, PostgresPool, is_direct, prefer_index_plans,
        primary_only, read_committed, server_from_url, with_timeout,
    };
    pub use crate::postgres::error::statement_error;
    pub use crate::postgres::schema::{check_name, in_schema, migrate, script};
}

/// Names the SQL files of PostgreSQL, each a path relative to the file that calls the macro. Each
/// name is a field, and `new` takes the schema. The files are written for the schema `tenure`;
/// `SWAPS` has the parts that mutants replace.
///
/// ```text
/// tenure_store::statements! {
///     /// Statements of holds.
///     pub(super) struct Statements swapped by SWAPS {
///         hold_find: "sql/hold/find.sql",
///     }
/// }
/// let statements = Statements::new("tenure");
/// ```
#[macro_export]
macro_rules! statements {
    ($(#[$meta:meta])* $vis:vis struct $type:ident swapped by $swaps:ident {
        $($name:ident: $file:literal,)*
    }) => {
        $(#[$meta])*
        $vis struct $type { $($vis $name: String,)* }

        impl $type {
            /// The statements for the tables of `schema`.
            $vis fn new(schema: &str) -> Self {
                let text = |sql| {
                    let sql = ::tenure_core::mutant::Swap::apply($swaps, sql);
                    $crate::sql::postgres::in_schema(sql, schema)
                };
                Self { $($name: text(include_str!($file)),)* }
            }
        }
    };
}
