#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::getpid;
use tenure_core::store::Checkpoint;
use tenure_core::{GroupName, InstanceId, Store, Ttl};
use tenure_duty::{Duties, Join, MembershipEvent, opener};
use tenure_store::conformance::wrap::{Fault, Flaky, Op};
use tenure_store::{BootClock, Memory};

use super::*;
use crate::guard::ExitStatus;
use crate::observe::{self, ObserveSettings, ObservedInstance};

#[test]
fn a_file_is_named_after_its_duty() {
    let file = |pattern: &str, duty: &str| {
        let settings = StateSettings { path: pattern.into(), import: false };
        settings.path_of(&DutyId::new(duty).unwrap())
    };
    assert_eq!(file("cursor.json", "a"), Path::new("cursor.json"));
    assert_eq!(file("cursor-{}.json", "a:b"), Path::new("cursor-a:b.json"));
    // An id cannot lead to another folder.
    assert_eq!(file("state/{}", "../x y"), Path::new("state/..%2Fx%20y"));
    assert_eq!(file("state/{}", ".."), Path::new("state/%2E%2E"));
    assert_eq!(file("state/{}", "."), Path::new("state/%2E"));
    // `x.before` is what the file `x` was before.
    assert_eq!(file("state/{}", "x.before"), Path::new("state/x%2Ebefore"));
}

#[test]
fn one_file_is_told_from_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a"), "").unwrap();
    std::os::unix::fs::symlink("a", path("link")).unwrap();
    assert!(is_same_file(&path("a"), &path("../").join(path("link"))));
    assert!(is_same_file(&path("new"), &path("./new")));
    assert!(!is_same_file(&path("a"), &path("b")));
}

/// The response to the commit of B is lost, and the program returns to A.
#[tokio::test]
async fn a_commit_whose_outcome_is_unknown_does_not_hide_a_change() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new(Arc::new(BootClock)));
    let faults = [
        (Op::Commit, &[Fault::None, Fault::HappenedButLost][..]),
        // The second one reads what is stored, the third one begins another attempt.
        (Op::Load, &[Fault::None, Fault::Refused, Fault::Refused]),
    ];
    let flaky = faults.iter().flat_map(|(op, faults)| faults.iter().map(|fault| (*op, *fault)));
    let flaky =
        flaky.fold(Flaky::planned(Arc::clone(&memory)), |flaky, (op, fault)| flaky.on(op, fault));
    let flaky: Arc<dyn Store> = Arc::new(flaky);
    let open = opener(move || {
        let flaky = Arc::clone(&flaky);
        async { Ok(flaky) }
    });
    let (group, ttl) = (GroupName::new("g").unwrap(), Ttl::new(Duration::from_secs(60)).unwrap());
    let clock = Arc::new(BootClock);
    let join = Join::new(open, clock.clone(), group.clone(), ttl, Duties::Shards(1));
    let mut membership = join.start().await.unwrap();
    let hold = loop {
        if let Some(MembershipEvent::Assigned(hold)) = membership.next().await {
            break hold;
        }
    };
    let instance = InstanceId::new("me-1").unwrap();
    let observed = ObservedInstance { instance, group, ttl, clock };
    let observation = observe::start(&ObserveSettings::default(), observed).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let settings = StateSettings { path: path.clone(), import: true };
    let file = StateFiles::new(Some(&settings), &observation.recorder()).unwrap().unwrap();
    let file = file.of(&hold.duty().id);
    let replace = |content: &str| {
        fs::write(folder.path().join("new"), content).unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
    };
    let stored = async || {
        let found: Option<Checkpoint> =
            memory.load(&[hold.duty().clone()]).await.unwrap().remove(0);
        found.map(|found| String::from_utf8(found.document.as_bytes().to_vec()).unwrap())
    };
    replace("A");
    file.restore(&hold).await.unwrap();
    let task = file.follow(&hold, getpid()).unwrap();
    task.started(Some(getpid()));
    replace("B");
    while stored().await.as_deref() != Some("B") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    replace("A");
    task.finish(Some(ExitStatus::Code(0))).await;
    assert_eq!(stored().await.as_deref(), Some("A"));
}
