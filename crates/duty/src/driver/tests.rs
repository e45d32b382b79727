//! The end of a membership, on a store that answers late.

use tenure_core::store::Evict;
use tenure_core::{Document, DutyId, GroupName, Reason, Ttl, Version};
use tenure_store::conformance::wrap::{Fault, Flaky, Hooked, Op};
use tenure_store::{BootClock, Memory};

use super::*;
use crate::guard::{Guard, PutOutcome};
use crate::join::{Duties, opener};

/// Fails instead of hanging.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("waited in vain")
}

async fn assigned(membership: &mut Membership) -> Guard {
    loop {
        if let MembershipEvent::Assigned(guard) = soon(membership.next()).await.unwrap() {
            return guard;
        }
    }
}

/// The instance is evicted while the store has not yet answered a commit: the answer still counts,
/// and later calls are known not to have happened.
#[tokio::test]
async fn a_commit_under_way_gets_its_answer_after_the_membership_has_ended() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new(Arc::new(BootClock)));
    let (begun, begins) = oneshot::channel();
    let (go_on, goes_on) = oneshot::channel::<()>();
    let pause = Box::pin(async move {
        begun.send(()).unwrap();
        goes_on.await.unwrap();
    });
    let slow: Arc<dyn Store> = Arc::new(Hooked::new(Arc::clone(&memory), Op::Commit, pause));
    let open = opener(move || {
        let slow = Arc::clone(&slow);
        async { Ok(slow) }
    });
    let (group, ttl) = (GroupName::new("g").unwrap(), Ttl::new(Duration::from_secs(10)).unwrap());
    let duties = Duties::Standby(DutyId::new("d").unwrap());
    let join = Join::new(open, Arc::new(BootClock), group.clone(), ttl, duties);
    let mut membership = join.start().await.unwrap();
    let guard = assigned(&mut membership).await;

    let committing = guard.clone();
    let document = Document::new(*b"1").unwrap();
    let mut commit = tokio::spawn(async move { committing.commit(document).await });
    soon(begins).await.unwrap();
    let why = Reason::new("test").unwrap();
    memory.evict(&group, membership.instance(), Evict::Now, &why).await.unwrap();
    while !matches!(soon(membership.next()).await, Some(MembershipEvent::Ended(_))) {}
    let early = tokio::time::timeout(Duration::from_millis(200), &mut commit).await;
    assert!(early.is_err(), "answered before the store did: {early:?}");

    go_on.send(()).unwrap();
    let refused = soon(commit).await.unwrap().unwrap_err();
    assert!(refused.code() == Code::Fenced && !refused.is_unknown(), "{refused}");
    let refused = soon(guard.load()).await.unwrap_err();
    assert!(refused.code() == Code::Fenced && !refused.is_unknown(), "{refused}");
}

/// Joins as the only member, and gets its duty.
async fn alone(store: Arc<dyn Store>) -> (Membership, Guard) {
    let open = opener(move || {
        let store = Arc::clone(&store);
        async { Ok(store) }
    });
    let (group, ttl) = (GroupName::new("g").unwrap(), Ttl::new(Duration::from_secs(10)).unwrap());
    let duties = Duties::Standby(DutyId::new("d").unwrap());
    let mut membership =
        Join::new(open, Arc::new(BootClock), group, ttl, duties).start().await.unwrap();
    let guard = assigned(&mut membership).await;
    (membership, guard)
}

/// Plans what happens to the calls of a test.
fn flaky(op: Op, faults: &[Fault]) -> Arc<dyn Store> {
    let memory = Flaky::planned(Arc::new(Memory::new(Arc::new(BootClock))));
    Arc::new(faults.iter().fold(memory, |store, fault| store.on(op, *fault)))
}

#[tokio::test]
async fn a_lost_response_is_read_again() {
    let document = |text: &str| Document::new(text).unwrap();
    let [happened, not, none] = [Fault::HappenedButLost, Fault::LostBeforeItHappened, Fault::None];
    let (_membership, guard) =
        alone(flaky(Op::Commit, &[happened, none, not, none, not, not, not])).await;
    let one = Version::ZERO.next().unwrap();
    let stored = soon(guard.put(document("1"), Some(Version::ZERO))).await.unwrap();
    assert_eq!(stored, PutOutcome::Stored(one), "it had happened");
    let again = soon(guard.put(document("1"), Some(Version::ZERO))).await.unwrap();
    assert_eq!(again, stored, "the same again changes nothing");
    let two = one.next().unwrap();
    let stored = soon(guard.put(document("2"), Some(one))).await.unwrap();
    assert_eq!(stored, PutOutcome::Stored(two), "it had not happened and is tried again");
    let error = soon(guard.put(document("3"), None)).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!(soon(guard.load()).await.unwrap().unwrap().version, two);
}

#[tokio::test]
async fn a_document_over_another_version_is_a_conflict() {
    let document = |text: &str| Document::new(text).unwrap();
    let (_membership, guard) = alone(flaky(Op::Commit, &[])).await;
    let one = soon(guard.commit(document("1"))).await.unwrap();
    for over in [Version::ZERO, one.next().unwrap()] {
        let conflict = soon(guard.put(document("2"), Some(over))).await.unwrap();
        assert_eq!(conflict, PutOutcome::Conflict { newest: one });
    }
    let checkpoint = soon(guard.load()).await.unwrap().unwrap();
    assert_eq!(checkpoint.document, document("1"));
    assert_eq!(guard.check().map(|_| ()), Ok(()), "a conflict does not end the hold");
}

#[tokio::test]
async fn a_report_whose_response_was_lost_is_read_again() {
    let document = |text: &str| Document::new(text).unwrap();
    let [lost, not, none] = [Fault::HappenedButLost, Fault::LostBeforeItHappened, Fault::None];
    let refused = Fault::Refused;
    let faults = [lost, not, none, not, not, not, refused, refused];
    let (_membership, guard) = alone(flaky(Op::Report, &faults)).await;
    assert_eq!(soon(guard.reported()).await.unwrap(), None);
    for text in ["1", "2"] {
        soon(guard.report(document(text))).await.unwrap();
        let stored = soon(guard.reported()).await.unwrap().unwrap();
        assert_eq!((stored.document, stored.epoch), (document(text), guard.epoch()));
    }
    assert!(soon(guard.report(document("3"))).await.unwrap_err().is_unknown(), "lost twice");
    let unsure = soon(guard.report(document("4"))).await.unwrap_err();
    assert!(unsure.is_unknown(), "the first attempt may have happened: {unsure}");
    assert!(!soon(guard.report(document("5"))).await.unwrap_err().is_unknown());
    assert_eq!(soon(guard.load()).await.unwrap(), None, "a report is no checkpoint");
    assert_eq!(soon(guard.wall_clock()).await.unwrap(), None);
}
