//! `tenure migrate`.

use crate::ls;
use crate::tenure::Tenure;

#[test]
fn a_store_is_made_once_and_then_up_to_date() {
    let tenure = Tenure::new();
    assert_eq!(tenure.run(&["migrate"]).ok(), "sqlite:tenure.db is a new store\n");
    assert!(tenure.path("tenure.db").exists());
    assert_eq!(tenure.run(&["migrate"]).ok(), "sqlite:tenure.db is up to date\n");
    let json = tenure.run(&["migrate", "--json"]).json();
    assert_eq!(json, serde_json::json!({ "store": "sqlite:tenure.db", "created": false }));
}

#[test]
fn printing_the_script_touches_nothing() {
    let tenure = Tenure::new();
    let script = tenure.run(&["migrate", "--print"]).ok();
    assert!(script.contains("CREATE TABLE session"));
    assert!(script.contains("CREATE TABLE message_inbox"), "the switchboard's, too");
    let json = tenure.run(&["migrate", "--print", "--json"]).json();
    assert_eq!(json, serde_json::json!({ "store": "sqlite:tenure.db", "script": script }));
    // No server listens there: none is needed.
    let url = "postgres://me:s3cret@127.0.0.1:1/db?schema=lease";
    let ran = tenure.run(&["migrate", "--print", "--store", url]);
    ran.hides("s3cret");
    assert!(ran.ok().contains("CREATE TABLE lease.session"));
    assert_eq!(std::fs::read_dir(tenure.path(".")).unwrap().count(), 0);
}

#[test]
fn the_printed_script_makes_a_store() {
    let tenure = Tenure::new();
    let script = tenure.run(&["migrate", "--print"]).ok();
    let connection = rusqlite::Connection::open(tenure.path("tenure.db")).unwrap();
    connection.execute_batch(&script).unwrap();
    drop(connection);
    assert_eq!(tenure.run(&["ls", "--json"]).json(), serde_json::json!({ "groups": [] }));
    assert_eq!(tenure.run(&["migrate"]).ok(), "sqlite:tenure.db is up to date\n");
    ls::prepare(&tenure.sqlite("tenure.db"));
    ls::check_json(&tenure.run(&["ls", "--json"]).json(), true);
    assert_eq!(
        tenure.run(&["token", "list", "--json"]).json(),
        serde_json::json!({ "tokens": [] })
    );
}
