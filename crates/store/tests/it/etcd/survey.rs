//! Survey of a cluster.

use testkit::EtcdOptions;

use super::kit::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_survey_counts_members_and_revisions() {
    let server = start(EtcdOptions { members: 3, ..EtcdOptions::default() });
    // One address suffices to find the other members.
    let store = try_open(&format!("etcd://127.0.0.1:{}", server.port(0))).await.unwrap();
    let facts = || async {
        let survey = store.survey().await.unwrap();
        assert_eq!((survey.backend, survey.unix_ms), ("etcd", None));
        move |name: &str| {
            let fact = survey.facts.iter().find(|fact| fact.setting == name).unwrap();
            fact.value.clone().unwrap_or_default()
        }
    };
    let fact = facts().await;
    assert_eq!((fact("members"), fact("healthy_members")), ("3".to_owned(), "3".to_owned()));
    assert_eq!((fact("alarms"), fact("quota_percent")), ("none".to_owned(), "0".to_owned()));
    assert_eq!((fact("auth"), fact("tls")), ("off".to_owned(), "off".to_owned()));
    assert!(fact("database_bytes").parse::<u64>().unwrap() > 0);
    let number = |text: String| text.parse::<i64>().unwrap();
    let before = number(fact("uncompacted_revisions"));
    for _ in 0..30 {
        server.etcdctl(&["put", "elsewhere", "x"]).unwrap();
    }
    join(&*store, "a").await;
    assert!(number(facts().await("uncompacted_revisions")) >= before + 30);
    server.etcdctl(&["compaction", "30"]).unwrap();
    assert!(number(facts().await("uncompacted_revisions")) <= before + 10);
    server.kill(2).unwrap();
    let fact = facts().await;
    assert_eq!((fact("members"), fact("healthy_members")), ("3".to_owned(), "2".to_owned()));
}
