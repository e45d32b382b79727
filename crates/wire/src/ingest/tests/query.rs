use super::*;

fn bad(query: &str) -> String {
    inbox_query(query).expect_err(query).to_string()
}

#[test]
fn nothing_asks_for_the_start() {
    for query in ["", "&", "&&"] {
        let start = InboxQuery { after: InboxCursor::from(0), limit: 100, ..InboxQuery::default() };
        assert_eq!(inbox_query(query), Ok((start, 0)));
    }
}

#[test]
fn every_word_is_read() {
    let query = "after=7.0f5d3c1a2b4e&limit=1000&channel=email&provider=gmail\
        &endpoint=gmail%3Auser%3Aa%40b&sender=a+b%2Bc&thread=%E2%82%ac=&wait=30\
        &since=2026-02-15T10:30:00Z&un%74il=2026-02-15T10%3A30%3A00.5%2B01:00";
    let (read, wait) = inbox_query(query).unwrap();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        read,
        InboxQuery {
            after: "7.0f5d3c1a2b4e".parse().unwrap(),
            limit: 1_000,
            channel: text("email"),
            provider: text("gmail"),
            endpoint_identity: text("gmail:user:a@b"),
            sender_identity: text("a b+c"),
            thread_identity: text("€="),
            since: Some(1_771_151_400_000_000),
            until: Some(1_771_147_800_500_000),
        }
    );
    assert_eq!(wait, 30);
    assert_eq!(inbox_query("since=1969-12-31T23:59:59Z").unwrap().0.since, Some(0));
}

#[test]
fn what_cannot_be_read_is_named() {
    for (query, says) in [
        ("aftr=1", "query parameter aftr: is unknown; known parameters: after, limit,"),
        ("AFTER=1", "query parameter AFTER: is unknown"),
        ("%zz=1", "query parameter %zz: is unknown"),
        ("%0a=1", "query parameter \\n: is unknown"),
        ("=1", "query parameter : is unknown"),
        ("limit=1&limit=1", "query parameter limit: is given twice"),
        ("limit=1&lim%69t=1", "query parameter limit: is given twice"),
        ("limit=0", "query parameter limit: \"0\" is not a number from 1 to 1000"),
        ("limit=1001", "query parameter limit: \"1001\" is not"),
        ("limit", "query parameter limit: \"\" is not"),
        ("after=-1", "query parameter after: \"-1\" is not"),
        ("after=%2B1", "query parameter after: \"+1\" is not"),
        ("after=9223372036854775808", "query parameter after: \"9223372036854775808\" is not"),
        ("after=1.0", "query parameter after: \"1.0\" is not"),
        ("wait=31", "query parameter wait: \"31\" is not a number from 0 to 30"),
        (
            "channel=Fax",
            "query parameter channel: \"Fax\" is not 1 to 64 characters of a-z, 0-9 and _",
        ),
        ("provider=", "query parameter provider: \"\" is not 1 to 64 characters of"),
        ("endpoint=", "query parameter endpoint: is empty"),
        (
            "sender=%00",
            "query parameter sender: \"\\0\" is longer than 1024 bytes or contains a NUL",
        ),
        ("thread=%ff", "query parameter thread: is not valid percent-encoded UTF-8"),
        ("thread=%2", "query parameter thread: is not valid percent-encoded UTF-8"),
        ("thread=%+1", "query parameter thread: is not valid percent-encoded UTF-8"),
        ("since=yesterday", "query parameter since: \"yesterday\" is not a time like"),
        ("until=2026-02-15T10:30:00", "query parameter until: \"2026-02-15T10:30:00\" is not"),
    ] {
        assert!(bad(query).starts_with(says), "{query}: {}", bad(query));
    }
    assert!(bad("since=2026-02-15T10:30:00+01:00").ends_with("+ means a space here; write %2B"));
    assert!(bad(&format!("sender={}", "x".repeat(1_025))).contains("longer than 1024 bytes"));
    assert!(bad(&"x".repeat(1_000_000)).len() < 200);
}
