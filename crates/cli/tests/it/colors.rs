//! Colours of output that is not on a terminal, by bytes.

use crate::tenure::{Ran, Tenure};

const BOLD: &str = "\u{1b}[1m";

#[test]
fn only_a_terminal_has_colours_by_itself() {
    let tenure = Tenure::new();
    crate::operate::prepare(&tenure.sqlite("tenure.db"));
    let run = |words: &[&str], variables: &[(&str, &str)]| {
        let variables = variables.iter().copied();
        Ran::of(tenure.command(words).envs(variables).output().unwrap())
    };
    let has_colors = |words: &[&str], variables: &[(&str, &str)]| {
        let ran = run(words, variables);
        ran.stdout.contains('\u{1b}') || ran.stderr.contains('\u{1b}')
    };
    for (words, variables, expected) in [
        (&["ls"][..], &[][..], false),
        (&["ls", "--color", "auto"], &[], false),
        (&["ls", "--color", "always"], &[], true),
        (&["--color=always", "ls"], &[], true),
        (&["ls", "--color", "always", "--json"], &[], false),
        (&["ls"], &[("CLICOLOR_FORCE", "1")], true),
        (&["ls"], &[("CLICOLOR_FORCE", "0")], false),
        (&["ls"], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
        (&["ls", "--color", "never"], &[("CLICOLOR_FORCE", "1")], false),
        (&["ls", "--help"], &[], false),
        (&["ls", "--help", "--color", "always"], &[], true),
        (&["ls", "--nope"], &[], false),
        (&["ls", "--nope"], &[("CLICOLOR_FORCE", "1")], true),
        (&["ls", "--nope", "--json"], &[("CLICOLOR_FORCE", "1")], false),
        (&["ls", "typo"], &[("CLICOLOR_FORCE", "1")], true),
        (&["ls", "typo", "--json"], &[("CLICOLOR_FORCE", "1")], false),
        // Words of the user's command are not options.
        (&["run", "--duty", "g/d", "--ttl", "3s", "--", "echo", "--color=always"], &[], false),
    ] {
        assert_eq!(has_colors(words, variables), expected, "{words:?} {variables:?}");
    }
    // Columns line up as without colours, and the text is the same.
    let (plain, painted) = (run(&["ls"], &[]).ok(), run(&["ls", "--color", "always"], &[]).ok());
    assert!(painted.contains(&format!("{BOLD}DUTY\u{1b}[0m    ")), "{painted}");
    let mut stripped = painted;
    for style in [BOLD, "\u{1b}[0m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m"] {
        stripped = stripped.replace(style, "");
    }
    let stable = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "0");
    assert_eq!(stable(&stripped), stable(&plain));
    // A configuration file decides as well.
    std::fs::write(tenure.path("tenure.toml"), "color = \"always\"\n").unwrap();
    assert!(has_colors(&["ls"], &[]));
    assert!(has_colors(&["explain"], &[]), "a usage error");
    assert!(!has_colors(&["ls", "--color", "never"], &[]));
}

/// A value that may be a secret is hidden in colours, too.
#[test]
fn a_coloured_error_hides_what_a_plain_one_hides() {
    let tenure = Tenure::new();
    let url = "--stor=postgres://me:s3cret@h/db";
    let ran = tenure.run(&["ls", url, "--color", "always"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    ran.hides("s3cret");
    let mut command = tenure.command(&["ls", "--color", "always"]);
    let ran = Ran::of(command.env("TENURE_SIGNING", "s3cret").output().unwrap());
    ran.hides("s3cret");
}
