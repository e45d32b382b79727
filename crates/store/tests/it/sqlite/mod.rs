//! SQLite.

mod boot;
mod clock;
mod file;
mod nonce;
mod starvation;
mod upkeep;

use std::path::Path;
use std::sync::Arc;

use tenure_core::{Store, StoreError};
use tenure_store::sqlite::{Sqlite, SqliteSettings};

async fn try_open(path: &Path) -> Result<Arc<dyn Store>, StoreError> {
    let settings = SqliteSettings { path: path.to_owned(), ..SqliteSettings::default() };
    Ok(Arc::new(Sqlite::open(settings).await?))
}

async fn open(path: &Path) -> Arc<dyn Store> {
    try_open(path).await.unwrap()
}
