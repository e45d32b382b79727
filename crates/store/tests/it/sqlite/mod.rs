//! SQLite.

mod boot;
mod file;
mod nonce;
mod starvation;
mod upkeep;

use std::path::Path;
use std::sync::Arc;

use tenure_core::{Store, StoreError};
use tenure_store::sqlite::{Settings, Sqlite};

async fn try_open(path: &Path) -> Result<Arc<dyn Store>, StoreError> {
    let settings = Settings { path: path.to_owned(), ..Settings::default() };
    Ok(Arc::new(Sqlite::open(settings).await?))
}

async fn open(path: &Path) -> Arc<dyn Store> {
    try_open(path).await.unwrap()
}
