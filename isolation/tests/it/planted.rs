//! The tester itself can fail: a planted race is found, and what is never stopped is reported.

use std::sync::Arc;

use tenure_core::{Code, StoreError};
use tenure_isolation::operations::{Kind, Part, TestedOperation, show};
use tenure_isolation::{Handles, IsolationLevel, IsolationOptions, PreparedServer, run};

/// Runs a statement of a scratch table.
async fn scratch(on: Handles, sql: &str) -> Result<Option<i32>, StoreError> {
    let lost = |error: tokio_postgres::Error| {
        let is_refused = error.as_db_error().is_some();
        let failed = if is_refused { StoreError::refused } else { StoreError::unknown };
        failed(Code::Busy, error.to_string())
    };
    let (client, connection) =
        tokio_postgres::connect(&on.url, tokio_postgres::NoTls).await.map_err(lost)?;
    tokio::spawn(connection);
    Ok(client.query(sql, &[]).await.map_err(lost)?.first().map(|row| row.get(0)))
}

macro_rules! planted {
    ($name:literal, $kind:ident, $sql:literal) => {
        TestedOperation {
            name: $name,
            part: Part::Planted,
            kind: Kind::$kind,
            run: |on| Box::pin(async move { show(scratch(on, $sql).await) }),
        }
    };
}

const PLANTED: &[TestedOperation] = &[
    planted!("careless", Change, "SELECT tenure.iso_add_careless()"),
    planted!("careful", Change, "SELECT tenure.iso_add_careful()"),
    planted!(
        "other-row",
        Change,
        "UPDATE tenure.iso_planted SET value = 7 WHERE id = 2 RETURNING value"
    ),
    planted!("no-lock", Change, "SELECT value FROM tenure.iso_planted WHERE id = 2"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_planted_race_is_found_and_what_never_waits_is_reported() {
    let server = Arc::new(PreparedServer::start().await.unwrap());
    let options = IsolationOptions {
        levels: vec![IsolationLevel::READ_COMMITTED],
        jobs: 1,
        ..IsolationOptions::default()
    };
    let report = run(server, PLANTED, &options, |_| {}).await.unwrap();
    println!("{report}");
    let found = |a: &str, b: &str| report.findings.iter().any(|it| it.pair == [a, b]);
    assert!(found("careless", "careless") && found("careless", "careful"), "{report}");
    let others = |it: &&str| *it != "careless";
    let names = PLANTED.iter().map(|it| it.name).filter(others);
    for (a, b) in names.clone().flat_map(|a| names.clone().map(move |b| (a, b))) {
        assert!(!found(a, b), "{a} {b}: {report}");
    }
    assert_eq!(report.never_blocked.iter().collect::<Vec<_>>(), [&"no-lock"], "{report}");
    let text = report.to_string();
    assert!(text.contains("repeat it: cargo xtask isolation --pairs careless,careless"), "{text}");
}
