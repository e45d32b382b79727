//! The survey of a server that does not answer.

use tenure_core::{Code, Store};

use super::kit::{keys, open, server};

/// A server that does not answer is an error, not a store with unreadable settings.
#[tokio::test]
async fn a_survey_of_a_dead_server_is_an_error() {
    let server = server();
    let store = open(&server).await;
    let before = keys(&server);
    store.survey().await.unwrap();
    assert_eq!(keys(&server), before);
    server.kill().unwrap();
    for _ in 0..3 {
        let error = store.survey().await.unwrap_err();
        assert!(matches!(error.code(), Code::Lost | Code::Unreachable), "{error}");
    }
}
