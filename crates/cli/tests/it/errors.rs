//! Errors, and `tenure errors`.

use serde_json::Value;

use crate::tenure::{Ran, Tenure};

#[test]
fn help_lists_commands_options_and_exit_codes() {
    let help = Tenure::new().run(&["--help"]).ok();
    let words = ["ls", "migrate", "doctor", "errors", "--store", "--json", "TENURE_STORE"];
    for word in words.into_iter().chain(["Exit codes:"]) {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
}

#[test]
fn bad_usage_has_a_code_of_its_own() {
    let tenure = Tenure::new();
    for words in [&[][..], &["lss"], &["ls", "--no"], &["errors", "ST999"]] {
        let ran = tenure.run(words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(!ran.stderr.is_empty());
    }
}

#[test]
fn every_code_is_listed_and_explained() {
    let tenure = Tenure::new();
    let list = tenure.run(&["errors"]).ok();
    assert!(list.contains("ST002  the store cannot be reached\n"));
    for line in list.lines() {
        let code = &line[..5];
        let page = tenure.run(&["errors", &code.to_lowercase()]).ok();
        assert!(page.starts_with(&format!("# {code}: ")), "{page}");
    }
    let json = tenure.run(&["errors", "--json"]).json();
    assert_eq!(json["errors"].as_array().unwrap().len(), list.lines().count());
    let json = tenure.run(&["errors", "ST002", "--json"]).json();
    assert!(json["page"].as_str().unwrap().starts_with("# ST002: "));
    // No store is needed, not even a valid URL.
    let mut command = tenure.command(&["errors", "ST001"]);
    Ran::of(command.env("TENURE_STORE", "nonsense").output().unwrap()).ok();
}

#[test]
fn a_url_of_no_store_is_refused() {
    let tenure = Tenure::new();
    for url in ["mysql://me:s3cret@h/db", "tenure.db", "", "me:s3cret@h"] {
        let ran = tenure.run(&["ls", "--store", url]);
        ran.refused("ST001");
        ran.hides("s3cret");
    }
    let ran = tenure.run(&["ls", "--store", "rediss://:s3cret@h?cacert=/none.pem"]);
    ran.refused("ST018");
    ran.hides("s3cret");
    tenure.run(&["ls", "a\nb"]).refused("ST011");
}

#[test]
fn nobody_at_that_port_is_unreachable() {
    let tenure = Tenure::new();
    let ran = tenure.run(&["ls", "--store", "postgres://me:s3cret@127.0.0.1:1/db"]);
    ran.refused("ST002");
    ran.hides("s3cret");
}

#[test]
fn what_is_no_sqlite_file_is_refused_and_left_alone() {
    let tenure = Tenure::new();
    std::fs::create_dir(tenure.path("folder")).unwrap();
    tenure.run(&["ls", "--store", "sqlite:folder"]).refused("ST002");
    let text = "nothing that SQLite wrote\n".repeat(100);
    std::fs::write(tenure.path("text"), &text).unwrap();
    for command in ["ls", "migrate"] {
        tenure.run(&[command, "--store", "sqlite:text"]).refused("ST014");
    }
    assert_eq!(std::fs::read_to_string(tenure.path("text")).unwrap(), text);
}

#[test]
fn programs_get_errors_as_json() {
    let tenure = Tenure::new();
    let ran = tenure.run(&["ls", "--json"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    let document: Value = serde_json::from_str(&ran.stderr).unwrap();
    let error = document["error"].as_object().unwrap();
    let keys: Vec<&str> = error.keys().map(String::as_str).collect();
    assert_eq!(keys, ["code", "detail", "hint", "kept", "sentence"]);
    assert_eq!(error["code"], "ST015");
    assert_eq!(error["kept"], "nothing was changed");
}

#[test]
fn help_does_not_show_the_store_of_the_environment() {
    let tenure = Tenure::new();
    for words in [&["--help"][..], &["-h"], &["ls", "--help"], &["nonsense"], &[]] {
        let mut command = tenure.command(words);
        let url = "postgres://me:s3cret@h/db";
        let ran = Ran::of(command.env("TENURE_STORE", url).output().unwrap());
        ran.hides("s3cret");
        ran.hides("me:");
    }
}

#[test]
fn a_url_in_the_wrong_place_is_not_repeated() {
    let tenure = Tenure::new();
    let ran = tenure.run(&["migrate", "postgres://me:s3cret@h/db"]);
    assert_eq!(ran.code, Some(2));
    ran.hides("s3cret");
}
