//! A full database refuses writes, but must not end any session.

use tenure_core::Code;
use tenure_core::store::Closed;
use testkit::EtcdOptions;

use super::kit::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_database_refuses_commits_and_keeps_sessions() {
    let quota_bytes = Some(16 << 20);
    let server = start(EtcdOptions { quota_bytes, ..EtcdOptions::default() });
    let store = open(&server).await;
    let a = join(&*store, "a").await;
    let held = hold(&*store, &a, "d").await;
    let mut stored = 0;
    let error = loop {
        assert!(stored < 1_000, "the quota was never met");
        match commit_bytes(&*store, &a, &held, stored, vec![stored as u8; 200 << 10]).await {
            Ok(committed) => assert_eq!(committed, saved(stored + 1)),
            Err(error) => break error,
        }
        stored += 1;
    };
    assert_eq!(error.code(), Code::Full, "{error}");
    assert_eq!(error.code().as_str(), "ST008");
    assert!(error.is_unknown(), "the server may notice only after it has written");

    assert!(is_kept(&keep(&*store, &a, &held).await));
    let checkpoint = load(&*store, "d").await.unwrap();
    let version = checkpoint.version.get();
    assert!(version == stored || version == stored + 1, "{version}, {stored}");
    assert_eq!(checkpoint.document.as_bytes(), vec![version as u8 - 1; 200 << 10]);
    let survey = store.survey().await.unwrap();
    let fact = |name| {
        let fact = survey.facts.iter().find(|fact| fact.setting == name).unwrap();
        fact.value.clone().unwrap()
    };
    assert_eq!((fact("alarms").as_str(), fact("quota_percent").as_str()), ("nospace", "100"));

    // A session can be closed, too: deleting needs no space.
    assert_eq!(store.close_session(&a, &reason()).await.unwrap(), Closed::Closed);
    assert!(store.members(&group()).await.unwrap().is_empty());
}
