//! Lists in Redis.

use testkit::{Certificates, Proxy, RedisOptions, RedisServer};

use crate::{MOST, listed, refused, too_many};

fn server() -> RedisServer {
    RedisServer::start(RedisOptions::default()).unwrap()
}

#[tokio::test]
async fn sessions_are_found_by_their_keys() {
    let redis = server();
    for (key, value) in [
        ("session:a", r#"{"isPaused": false}"#),
        ("session:b", r#"{"IsPaused": true}"#),
        ("session:c", "no JSON"),
        ("session:d", r#"{"paused": true}"#),
        ("sessions:x", "1"),
        ("other", "1"),
        ("deleted-session:c", "1"),
    ] {
        redis.cli(&["SET", key, value]).unwrap();
    }
    redis.cli(&["HSET", "session:h", "isPaused", "true"]).unwrap();
    redis.cli(&["HSET", "deleted-session:d", "at", "1"]).unwrap();
    let url = |more: &str| format!("{}?pattern=session:*{more}", redis.url());
    assert_eq!(listed(&url("")).await, ["a", "b!", "c", "d!", "h"]);
    assert_eq!(listed(&url("&paused=no")).await, ["a", "b", "c", "d", "h"]);
    assert_eq!(listed(&url("&tombstone=deleted-session:")).await, ["a", "b!", "h"]);
    let letters = format!("{}?pattern=session:[ab]", redis.url());
    assert_eq!(listed(&letters).await, ["a", "b!"]);
    assert_eq!(listed(&format!("{}?pattern=nothing:*", redis.url())).await, [""; 0]);
    too_many(&url(""), 4).await;
    // A key that is only the prefix has no id.
    redis.cli(&["SET", "session:", "1"]).unwrap();
    refused(&url(""), "entry 1: a duty id is empty").await;
}

#[tokio::test]
async fn a_pattern_may_contain_its_own_signs() {
    let redis = server();
    redis.cli(&["SET", "a*b:one", "1"]).unwrap();
    redis.cli(&["SET", "axb:two", "1"]).unwrap();
    let url = format!("{}?pattern=a%5C*b:*", redis.url());
    assert_eq!(listed(&url).await, ["one"]);
}

#[tokio::test]
async fn members_of_a_set_are_targets() {
    let redis = server();
    redis.cli(&["SADD", "to do", "a", "b", "c"]).unwrap();
    redis.cli(&["SET", "gone:b", "1"]).unwrap();
    let url = |more: &str| format!("{}?set=to%20do{more}", redis.url());
    assert_eq!(listed(&url("")).await, ["a", "b", "c"]);
    assert_eq!(listed(&url("&tombstone=gone:")).await, ["a", "c"]);
    too_many(&url(""), 2).await;
    refused(&format!("{}?set=gone:b", redis.url()), "WRONGTYPE").await;
    assert_eq!(listed(&format!("{}?set=absent", redis.url())).await, [""; 0]);
    // Control characters in stored text are escaped in the error.
    redis.cli(&["EVAL", "return redis.call('SADD', 'to do', '\\255\\27')", "0"]).unwrap();
    refused(&url(""), "\\u{1b}\" is not UTF-8").await;
}

/// SCAN returns keys twice while a table grows or shrinks.
#[tokio::test]
async fn many_keys_are_each_there_once_and_a_million_are_refused() {
    let redis = server();
    let fill = |from: u32, to: u32| {
        let lua = format!("for i={from},{to} do redis.call('SET', 'session:' .. i, '1') end");
        redis.cli(&["EVAL", &lua, "0"]).unwrap();
    };
    fill(1, 5000);
    let url = format!("{}?pattern=session:*", redis.url());
    assert_eq!(listed(&url).await.len(), 5000);
    fill(5001, 1_000_000);
    too_many(&url, MOST).await;
}

#[tokio::test]
async fn a_server_that_cannot_name_everything_is_refused() {
    let cluster = RedisServer::start(RedisOptions { cluster: true, ..Default::default() }).unwrap();
    refused(&format!("{}?pattern=a*", cluster.url()), "Redis Cluster is not supported").await;

    let password = Some("s3cret".to_owned());
    let closed = RedisServer::start(RedisOptions { password, ..Default::default() }).unwrap();
    let open = closed.url().replace(":s3cret@", "");
    assert_ne!(open, closed.url());
    refused(&format!("{open}?pattern=a*"), "").await;
    assert_eq!(listed(&format!("{}?pattern=a*", closed.url())).await, [""; 0]);
    // A user who may list keys but not read `INFO`.
    closed.cli(&["ACL", "SETUSER", "me", "on", ">s3cret", "~*", "+scan", "+mget"]).unwrap();
    let limited = closed.url().replace(":s3cret@", "me:s3cret@");
    refused(&format!("{limited}?pattern=a*"), "NOPERM").await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let redis = server();
    let proxy = Proxy::start(redis.port()).unwrap();
    let url = format!("redis://127.0.0.1:{}/0?pattern=a*", proxy.port());
    assert_eq!(listed(&url).await, [""; 0]);
    proxy.swallow_replies();
    let short = std::time::Duration::from_millis(300);
    let targets = tenure_targets::TargetsUrl::parse(&url).unwrap().with_timeout(short).open();
    let error = targets.list(9).await.unwrap_err();
    assert!(error.to_string().contains("took longer than 300ms"), "{error}");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn an_encrypted_server_is_asked_like_the_store() {
    let certificates = Certificates::make("tenure").unwrap();
    let tls = Some(certificates.for_server(false));
    let redis = RedisServer::start(RedisOptions { tls, ..Default::default() }).unwrap();
    redis.cli(&["SET", "session:a", "1"]).unwrap();
    let url = format!("rediss://localhost:{}/0?pattern=session:*", redis.port());
    let trusted = format!("{url}&cacert={}", certificates.authority().display());
    assert_eq!(listed(&trusted).await, ["a"]);
    refused(&url, "not issued by a trusted authority").await;
}
