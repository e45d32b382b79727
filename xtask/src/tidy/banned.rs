//! Calls that caused errors before, each with an alternative.

use super::source::{Rust, find_words, line_of};
use super::{File, TidyFinding};

/// Text that must not occur in some files.
struct Ban {
    needle: &'static str,
    instead: &'static str,
    applies: fn(&File) -> bool,
    /// Whether `#[cfg(test)]` items are checked, too.
    in_tests: bool,
}

const fn product(needle: &'static str, instead: &'static str) -> Ban {
    Ban { needle, instead, applies: File::is_product, in_tests: false }
}

const fn in_core(needle: &'static str, instead: &'static str) -> Ban {
    let applies = |file: &File| file.is_product() && file.path.starts_with("crates/core/");
    Ban { needle, instead, applies, in_tests: false }
}

const fn not_in_cli(needle: &'static str, instead: &'static str) -> Ban {
    let applies = |file: &File| file.is_product() && !file.path.starts_with("crates/cli/");
    Ban { needle, instead, applies, in_tests: false }
}

const BANS: &[Ban] = &[
    product("SystemTime::now", "take the time as an argument; the store's clock judges expiry"),
    product("Instant::now", "use a tenure_core::Clock; an Instant stands still in suspend"),
    product("thread_rng", "take the randomness as an argument"),
    product("thread::sleep", "wait for a signal"),
    product("todo!", "write it, or open an issue"),
    product("unimplemented!", "write it, or return an error"),
    product("dbg!", "remove it"),
    not_in_cli("println!", "return the value; only crates/cli prints"),
    not_in_cli("eprintln!", "return the value or trace it; only crates/cli prints"),
    in_core("HashMap", "use a BTreeMap, whose order is the same in every run"),
    in_core("HashSet", "use a BTreeSet, whose order is the same in every run"),
    Ban {
        needle: "sleep(",
        instead: "wait for a signal, not for a duration",
        applies: |file| {
            file.path.split('/').any(|name| name == "tests") && !file.path.contains("chaos")
        },
        in_tests: true,
    },
    Ban {
        needle: "#[ignore",
        instead: "make the test pass, or delete it",
        applies: |_| true,
        in_tests: true,
    },
];

/// PostgreSQL clocks that do not advance within a transaction.
const STANDING_CLOCKS: &[&str] =
    &["now()", "current_timestamp", "transaction_timestamp()", "statement_timestamp()"];

pub(crate) fn check(file: &File) -> Vec<TidyFinding> {
    let mut findings = standing_clocks(file);
    if let Some(rust) = &file.rust {
        findings.extend(BANS.iter().flat_map(|ban| occurrences(ban, file, rust)));
        findings.extend(bare_unwraps(file, rust));
    }
    if file.extension() == "lua" {
        findings.extend(expiring_checkpoints(file));
    }
    findings
}

fn occurrences(ban: &Ban, file: &File, rust: &Rust) -> Vec<TidyFinding> {
    if !(ban.applies)(file) {
        return Vec::new();
    }
    find_words(&rust.code, ban.needle)
        .map(|offset| line_of(&rust.code, offset))
        .filter(|line| ban.in_tests || !rust.is_test(*line))
        .map(|line| banned(file, line, ban.needle, ban.instead))
        .collect()
}

/// Finds panics without a justification: in a library each is an outage of another process.
fn bare_unwraps(file: &File, rust: &Rust) -> Vec<TidyFinding> {
    if !file.is_product() {
        return Vec::new();
    }
    let lines: Vec<&str> = file.text.lines().collect();
    let says_why = |line: usize| {
        (line.saturating_sub(2).max(1)..=line)
            .any(|near| rust.comments.contains(&near) || lines[near - 1].contains("reason = "))
    };
    [".unwrap()", ".expect("]
        .into_iter()
        .flat_map(|call| find_words(&rust.code, call).map(move |offset| (call, offset)))
        .map(|(call, offset)| (call, line_of(&rust.code, offset)))
        .filter(|(_, line)| !rust.is_test(*line) && !says_why(*line))
        .map(|(call, line)| {
            let instead = "return the error, or say in a comment why it cannot fail";
            banned(file, line, call, instead)
        })
        .collect()
}

fn standing_clocks(file: &File) -> Vec<TidyFinding> {
    if !file.path.starts_with("crates/store/src/postgres") {
        return Vec::new();
    }
    let sql = match (&file.rust, file.extension()) {
        (Some(rust), _) => rust.strings.to_lowercase(),
        (None, "sql") => without_dash_comments(&file.text).to_lowercase(),
        _ => return Vec::new(),
    };
    let is_product = |line: &usize| file.rust.as_ref().is_none_or(|rust| !rust.is_test(*line));
    STANDING_CLOCKS
        .iter()
        .flat_map(|clock| find_words(&sql, clock).map(|offset| (*clock, line_of(&sql, offset))))
        .filter(|(_, line)| is_product(line))
        .map(|(clock, line)| {
            let instead = "use clock_timestamp(), which moves inside a transaction";
            banned(file, line, clock, instead)
        })
        .collect()
}

/// Finds checkpoints that expire. They are the only record of progress, so they must never expire.
fn expiring_checkpoints(file: &File) -> Vec<TidyFinding> {
    let expires = |line: &str| {
        line.contains("expire")
            || ["'ex'", "'px'", "\"ex\"", "\"px\""].iter().any(|option| line.contains(option))
    };
    without_dash_comments(&file.text)
        .to_lowercase()
        .lines()
        .enumerate()
        .filter(|(_, line)| line.contains("call(") && line.contains("checkpoint") && expires(line))
        .map(|(index, _)| banned(file, index + 1, "expiring checkpoint", "keep it for ever"))
        .collect()
}

/// Removes `--` comments from SQL and Lua text; line numbers stay the same.
fn without_dash_comments(text: &str) -> String {
    let code = |line| str::split_once(line, "--").map_or(line, |(code, _)| code);
    text.split('\n').map(code).collect::<Vec<_>>().join("\n")
}

fn banned(file: &File, line: usize, subject: &str, instead: &str) -> TidyFinding {
    TidyFinding::new(&file.path, line, subject, &format!("`{subject}` is banned here"), instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let findings = check(&File::new(path, text.to_owned()));
        findings
            .into_iter()
            .map(|finding| format!("{}:{}", finding.line, finding.subject))
            .collect()
    }

    #[test]
    fn every_product_ban_can_fail() {
        for ban in BANS.iter().filter(|ban| !ban.in_tests) {
            let text = format!("fn f() {{ x::{} }}", ban.needle);
            let found = found("crates/core/src/lib.rs", &text);
            assert!(found.contains(&format!("1:{}", ban.needle)), "{text}: {found:?}");
        }
    }

    #[test]
    fn strings_comments_and_tests_may_name_banned_calls() {
        let text =
            "// dbg!\nconst A: &str = \"dbg!\";\n#[cfg(test)]\nmod tests { fn f() { dbg!() } }";
        assert!(found("crates/core/src/lib.rs", text).is_empty());
    }

    #[test]
    fn scopes_are_kept() {
        assert!(found("crates/cli/src/main.rs", "println!()").is_empty());
        assert!(found("crates/store/src/lib.rs", "HashMap").is_empty());
        assert!(found("xtask/src/main.rs", "Instant::now()").is_empty());
    }

    #[test]
    fn tests_do_not_sleep_outside_chaos() {
        let text = "async fn f() { tokio::time::sleep(d).await }";
        assert_eq!(found("crates/store/tests/it/hold.rs", text), ["1:sleep("]);
        assert!(found("crates/store/tests/chaos/main.rs", text).is_empty());
        assert!(found("crates/store/src/lib.rs", text).is_empty());
    }

    #[test]
    fn no_test_is_ignored() {
        let text = "#[cfg(test)]\nmod tests {\n#[test]\n#[ignore = \"slow\"]\nfn f() {}\n}";
        assert_eq!(found("testkit/src/lib.rs", text), ["4:#[ignore"]);
    }

    #[test]
    fn an_unwrap_says_why() {
        let path = "crates/core/src/lib.rs";
        assert_eq!(found(path, "fn f() {\n    a.unwrap();\n}"), ["2:.unwrap()"]);
        assert_eq!(found(path, "/// doc\nfn f() { a.expect(\"b\") }"), ["2:.expect("]);
        assert!(found(path, "// why\nlet a =\n    b.unwrap();").is_empty());
        assert!(found(path, "#[expect(x, reason = \"why\")]\na.unwrap();").is_empty());
        assert!(found(path, "a.unwrap_or(b)").is_empty());
        assert_eq!(found(path, "// why\n\n\na.unwrap();"), ["4:.unwrap()"]);
    }

    #[test]
    fn postgres_reads_a_clock_that_moves() {
        let sql = "select NOW(); -- now()\nselect clock_timestamp()";
        assert_eq!(found("crates/store/src/postgres/sql/a.sql", sql), ["1:now()"]);
        let rust = "let a = clock.now(); query(\"select now()\")";
        assert_eq!(found("crates/store/src/postgres/mod.rs", rust), ["1:now()"]);
        assert!(found("crates/store/src/sqlite/a.sql", sql).is_empty());
    }

    #[test]
    fn a_checkpoint_never_expires() {
        let path = "crates/store/src/redis/lua/a.lua";
        let found = |text| found(path, text);
        assert_eq!(found("redis.call('PEXPIRE', checkpoint, 1)"), ["1:expiring checkpoint"]);
        assert_eq!(found("redis.call('SET', checkpoint, 1, 'PX', 2)"), ["1:expiring checkpoint"]);
        assert!(found("redis.call('PEXPIRE', hold, 1) -- not the checkpoint").is_empty());
        assert!(found("redis.call('SET', checkpoint, 1)").is_empty());
    }
}
