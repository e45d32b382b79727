//! Targets that come and go.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure::targets::FileTargets;
use tenure::{Change, Code, Duties, Guard, Listing, StoreError, Targets};

use super::player::*;

fn listed(source: impl Targets) -> Duties {
    Duties::Targets { source: Arc::new(source), every: Duration::from_millis(50) }
}

/// Replaces the file atomically.
fn replace(path: &Path, text: &str) {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(fresh, path).unwrap();
}

async fn until_asked(guard: Guard) -> Result<(), std::convert::Infallible> {
    guard.stopping().await;
    Ok(())
}

#[tokio::test]
async fn targets_come_and_go_and_a_list_that_cannot_be_read_changes_nothing() {
    everywhere(|place| async move {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("targets");
        replace(&path, "a\nb\n");
        let witness = Witness::new();
        let join = join(&place, &group(), listed(FileTargets::new(&path)));
        let membership = join.observer(witness.clone()).start().await.unwrap();
        let leaver = membership.leaver();
        let running = tokio::spawn(membership.run(until_asked));
        witness.holds(&["a", "b"]).await;
        replace(&path, "b\nc\nc\n");
        witness.holds(&["b", "c"]).await;

        let before = witness.count();
        std::fs::remove_file(&path).unwrap();
        let failed = witness.saw(Change::ListFailed, before).await;
        assert!(failed.reason.contains(Code::BadTargets.as_str()), "{failed:?}");
        replace(&path, "b\nc\td\u{7}\n");
        let before = witness.count();
        witness.saw(Change::ListFailed, before).await;
        let epochs = || witness.held.borrow().iter().map(|hold| hold.epoch).collect::<Vec<_>>();
        let held = epochs();
        replace(&path, "b\nc\n# as before\n");
        // The unchanged list is reported again after an error, and nothing moved.
        let before = witness.count();
        replace(&path, "b\nc\nd\n");
        witness.saw(Change::Listed, before).await;
        witness.holds(&["b", "c", "d"]).await;
        assert_eq!(epochs()[..2], held[..], "{}", place.name);

        replace(&path, r#"["b", {"id": "c", "paused": true}, "d"]"#);
        witness.holds(&["b", "d"]).await;
        leaver.leave();
        soon("the end", running).await.unwrap().unwrap();
    })
    .await;
}

#[derive(Debug)]
struct Broken;

#[async_trait::async_trait]
impl Targets for Broken {
    async fn list(&self, _: usize) -> Result<Listing, StoreError> {
        panic!("on purpose")
    }
}

#[tokio::test]
async fn a_source_that_panics_is_one_that_cannot_be_read() {
    let (place, witness) = (Place::memory(), Witness::new());
    let join = join(&place, &group(), listed(Broken)).observer(witness.clone());
    let membership = join.start().await.unwrap();
    let failed = witness.saw(Change::ListFailed, 0).await;
    assert!(failed.reason.contains("panicked"), "{failed:?}");
    membership.leave().await.unwrap();
}
