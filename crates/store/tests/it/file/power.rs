//! Power cuts at every step, with random outcomes.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use tenure_core::{Store, StoreError};
use tenure_store::conformance::faulty_disk::SimulatedDisk;
use tenure_store::file::FileStore;

use super::script::{self, Caller};
use super::settings;

const FOLDER: &str = "/d";

async fn open(disk: &Arc<SimulatedDisk>) -> Result<Arc<dyn Store>, StoreError> {
    let settings = settings(Path::new(FOLDER));
    Ok(Arc::new(FileStore::open_on(settings, disk.clone()).await?))
}

fn new_disk() -> Arc<SimulatedDisk> {
    Arc::new(SimulatedDisk::new(Path::new(FOLDER)))
}

/// Returns how many calls were answered before the disk failed, and how many were begun.
async fn play(disk: &Arc<SimulatedDisk>) -> (usize, usize) {
    let Ok(store) = open(disk).await else { return (0, 0) };
    let mut caller = Caller::new(store);
    let script = script::all();
    for (done, call) in script.iter().enumerate() {
        if caller.call(call).await.is_err() {
            return (done, done + 1);
        }
    }
    (script.len(), script.len())
}

async fn steps_of_a_life() -> u64 {
    let disk = new_disk();
    let script = script::all();
    assert_eq!(play(&disk).await, (script.len(), script.len()));
    disk.steps()
}

fn seeds() -> u64 {
    if std::env::var_os("TENURE_SOAK").is_some() { 100 } else { 8 }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_survives_a_power_cut_at_any_step() {
    let steps = steps_of_a_life().await;
    assert!(steps > 100, "{steps}");
    let script = script::all();
    for cut in 1..=steps + 1 {
        let disk = new_disk();
        disk.off_at(cut);
        let (done, begun) = play(&disk).await;
        for seed in 0..seeds() {
            let seed = cut << 32 | seed;
            let mut after = Arc::new(disk.after_power_cut(seed));
            if seed % 3 == 0 {
                // The power fails again while the store is being opened.
                after.off_at(after.steps() + 1 + seed % 5);
                let _ = open(&after).await;
                after = Arc::new(after.after_power_cut(seed));
            }
            let store = open(&after).await;
            let store = store.unwrap_or_else(|error| panic!("cut {cut} seed {seed}: {error}"));
            script::check(&store, &script, done, begun).await;
        }
    }
}

/// A failing step of the disk: refused calls have not happened, and later calls work.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_has_not_happened() {
    let steps = steps_of_a_life().await;
    let script = script::all();
    let mut unknown = 0;
    for failing in 1..=steps {
        let disk = new_disk();
        disk.fail_at(failing, ErrorKind::StorageFull);
        let store = match open(&disk).await {
            Ok(store) => store,
            Err(_) => open(&disk).await.unwrap(),
        };
        let mut caller = Caller::new(store);
        let (mut failed, mut gone) = (0, false);
        for (done, call) in script.iter().enumerate() {
            let Err(error) = caller.call(call).await else { continue };
            failed += 1;
            let copy = Arc::new(disk.copy());
            let begun = if error.is_unknown() { done + 1 } else { done };
            script::check(&open(&copy).await.unwrap(), &script, done, begun).await;
            if error.is_unknown() {
                (gone, unknown) = (true, unknown + 1);
                break;
            }
            assert_eq!(error.code(), tenure_core::Code::Full, "{error}");
            caller.call(call).await.unwrap_or_else(|error| panic!("{call:?} again: {error}"));
        }
        assert!(failed <= 1, "step {failing} failed {failed} times");
        if !gone {
            let copy = Arc::new(disk.copy());
            script::check(&open(&copy).await.unwrap(), &script, script.len(), script.len()).await;
        }
    }
    assert!(unknown > 0, "no step was ever uncertain");
}

/// Opening the store after a crash must not return data that a later power cut could take away.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_seen_after_a_crash_stays() {
    let steps = steps_of_a_life().await;
    let duties = [crate::player::duty("main"), crate::player::duty("p")];
    for cut in 1..=steps {
        let disk = new_disk();
        disk.off_at(cut);
        play(&disk).await;
        let disk = Arc::new(disk.copy());
        let seen = open(&disk).await.unwrap().load(&duties).await.unwrap();
        for seed in 0..4 {
            let after = Arc::new(disk.after_power_cut(cut << 32 | seed));
            let again = open(&after).await.unwrap().load(&duties).await.unwrap();
            assert_eq!(again, seen, "cut {cut} seed {seed}");
        }
    }
}
