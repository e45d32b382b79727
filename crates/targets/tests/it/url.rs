//! Parsing and printing of list URLs.

use tenure_core::Code;
use tenure_targets::TargetsUrl;

use crate::{listed, refused, too_many};

#[test]
fn a_url_prints_without_its_secrets() {
    for (url, expected) in [
        ("list:a,b", "list:a,b"),
        ("file:targets.txt", "file:targets.txt"),
        ("file:///d/t.json", "file:/d/t.json"),
        ("sqlite:t.db?query=SELECT 's3cret'", "sqlite:t.db (query)"),
        ("redis://:s3cret@h:1/0?pattern=session:*", "redis://@h:1/0?pattern=session:*"),
        ("rediss://me:s3cret@h/0?set=a%0Ab&cacert=/c", "rediss://me@h/0?set=a\\nb"),
        ("postgres://me:s3cret@h/db?query=SELECT 1&sslmode=require", "postgres://me@h/db (query)"),
        ("http://h:1/list?token=s3cret", "http://h:1/list"),
        ("https://h/list#cacert=/s3cret", "https://h/list"),
    ] {
        let parsed = TargetsUrl::parse(url).unwrap();
        assert_eq!(parsed.to_string(), expected);
        assert_eq!(format!("{parsed:?}"), format!("TargetsUrl({expected})"));
        let open = format!("{:?}", parsed.open_with_token(Some("s3cret".to_owned())));
        assert!(!open.contains("s3cret"), "{open}");
    }
}

#[test]
fn what_is_no_url_of_a_list_is_refused_without_being_shown() {
    for url in [
        "",
        "targets.txt",
        "mysql://me:s3cret@h/db",
        "me%40x,s3cret:h",
        "list:",
        "list:a,,b",
        "list:%FF",
        "file:",
        "file:folder/",
        "file://host/s3cret",
        "sqlite:t.db",
        "sqlite:?query=SELECT 1",
        "sqlite::memory:?query=SELECT 1",
        "sqlite:t.db?query=LIKE '%FF'",
        "redis://me:s3cret@h/0",
        "redis://h/0?pattern=",
        "redis://h/0?pattern=a*&set=s3cret",
        "redis://h/0?pattern=a*&prefix=s3cret",
        "redis://h/0?pattern=a*&paused=s3cret",
        "redis://h/0?pattern=a*&colour=s3cret",
        "redis://h/0?set=a&paused=json",
        "redis://me:s3@s3cret@h/0?pattern=a*",
        "postgres://me:s3cret@h/db",
        "postgres://me:s3cret/x@h/db?query=SELECT 1",
        "postgres://h/db?query=SELECT '@s3cret'",
        "http://",
        "http:///list",
        "http://me:s3cret@h/list",
        "http://h/s3cret list",
        "http://h/list#cacert=s3cret",
        "https://h/list#cert=s3cret",
        "https://h/list#token=s3cret",
    ] {
        let error = TargetsUrl::parse(url).unwrap_err();
        assert_eq!(error.code(), Code::BadTargets, "{url}: {error}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn a_fixed_list_is_what_was_written() {
    assert_eq!(listed("list:b,a,a%2Cb,b").await, ["a", "a,b", "b"]);
    too_many("list:a,b,c", 2).await;
}

#[tokio::test]
async fn nobody_there_is_an_error() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    refused(&format!("redis://:s3cret@{nobody}/0?pattern=a*"), "no connection").await;
    refused(&format!("postgres://me:s3cret@{nobody}/db?query=SELECT 1"), "refused").await;
    refused(&format!("http://{nobody}/s3cret"), "no connection").await;
}
