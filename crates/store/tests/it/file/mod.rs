//! A cursor file.

mod access;
mod damage;
mod disk;
mod plain;
mod power;
mod process;
mod restart;
mod script;

use std::path::Path;
use std::sync::Arc;

use tenure_core::store::Checkpoint;
use tenure_core::{Code, Store, StoreError};
use tenure_store::IfAbsent;
use tenure_store::file::{FileSettings, FileStore};

use crate::player::duty;

/// `cursor.json` in a folder, whose duty is `g/main`.
fn settings(folder: &Path) -> FileSettings {
    let path = folder.join("cursor.json");
    FileSettings { path, duty: Some(duty("main")), ..FileSettings::default() }
}

async fn try_open(folder: &Path) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(FileStore::open(settings(folder)).await?))
}

async fn open(folder: &Path) -> Arc<dyn Store> {
    try_open(folder).await.unwrap()
}

/// Opens the store as a read-only command does.
async fn look(folder: &Path) -> Result<Arc<dyn Store>, StoreError> {
    let settings = FileSettings { if_absent: IfAbsent::Refuse, ..settings(folder) };
    Ok(Arc::new(FileStore::open(settings).await?))
}

async fn load(store: &Arc<dyn Store>, id: &str) -> Option<Checkpoint> {
    store.load(&[duty(id)]).await.unwrap().remove(0)
}

#[track_caller]
fn refused(error: &StoreError, code: Code) {
    assert!(matches!(error, StoreError::Refused(_)), "{error}");
    assert_eq!(error.code(), code, "{error}");
}

/// Returns the names in a folder, recursively and sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            let below = self::names(&path);
            names.extend(below.into_iter().map(|below| format!("{name}/{below}")));
        } else {
            names.push(name);
        }
    }
    names.sort();
    names
}
