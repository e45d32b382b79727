//! `tenure completions` and `tenure man`.

use crate::tenure::{Ran, Tenure};

#[test]
fn bash_loads_the_completions() {
    let tenure = Tenure::new();
    let script = tenure.run(&["completions", "bash"]).ok();
    std::fs::write(tenure.path("tenure.bash"), script).unwrap();
    let bash = |script: &str| {
        let mut command = tenure.command_of("bash", &["--norc", "-c", script]);
        Ran::of(command.output().unwrap())
    };
    bash("bash -n tenure.bash").ok();
    let text = bash(". ./tenure.bash && complete -p tenure").ok();
    assert!(text.contains("-F _tenure"), "{text}");
}

#[test]
fn other_shells_have_completions() {
    let tenure = Tenure::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = tenure.run(&["completions", shell]).ok();
        assert!(script.contains("TENURE_COMPLETE"), "{shell}");
        let json = tenure.run(&["completions", shell, "--json"]).json();
        assert_eq!((&json["shell"], &json["script"]), (&shell.into(), &script.into()));
    }
    assert_eq!(tenure.run(&["completions", "csh"]).code, Some(2));
    assert_eq!(tenure.run(&["completions"]).code, Some(2));
}

#[test]
fn the_manual_has_its_parts_and_no_secret() {
    let tenure = Tenure::new();
    let mut command = tenure.command(&["man"]);
    let ran = Ran::of(command.env("TENURE_STORE", "postgres://me:s3cret@h/db").output().unwrap());
    ran.hides("s3cret");
    let page = ran.ok();
    assert!(page.contains(".TH tenure 1"), "{page}");
    for part in ["NAME", "SYNOPSIS", "OPTIONS", "SUBCOMMANDS"] {
        assert!(page.contains(&format!("\n.SH {part}\n")), "{part} is not in\n{page}");
    }
    assert!(page.contains("tenure\\-drain(1)") && !page.contains("guard"), "{page}");
    assert_eq!(tenure.run(&["man", "--json"]).json()["page"], page);
    tenure.run(&["man", "--dir", "man/man1"]).ok();
    for page in ["tenure.1", "tenure-drain.1", "tenure-checkpoint-get.1"] {
        assert!(tenure.text(&format!("man/man1/{page}")).contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(!tenure.path("man/man1/tenure-guard.1").exists());
    let text = tenure.text("man/man1/tenure-drain.1");
    assert!(text.contains("\\-\\-timeout"), "{text}");
    std::fs::write(tenure.path("file"), "").unwrap();
    tenure.run(&["man", "--dir", "file/x"]).refused("DT009");
}
