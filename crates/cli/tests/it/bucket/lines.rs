//! `tenure bucket plan` and `tenure bucket filter`: many entities, one per line.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};
use std::sync::mpsc;

use serde_json::json;
use tenure_core::bucket::{Total, bucket};

use crate::running::LIMIT;
use crate::tenure::{Ran, Tenure};

/// Maximum length of a line, without its line feed.
const LONGEST: usize = 1024 * 1024;
const KEY: &str = "my/connector";
const TOTAL: u32 = 4;

/// Runs a command with a file as its standard input.
fn run_on(tenure: &Tenure, file: &str, words: &[&str]) -> Output {
    let input = File::open(tenure.path(file)).unwrap();
    tenure.command(words).stdin(input).output().unwrap()
}

/// Shell command of a filter that keeps everything.
const ALL: &str = "\"$TENURE\" bucket filter --key k --id 1 --total 1";

fn shell(tenure: &Tenure, script: &str) -> Ran {
    let mut command = tenure.command_of("sh", &["-c", script]);
    Ran::of(command.env("TENURE", env!("CARGO_BIN_EXE_tenure")).output().unwrap())
}

fn filter_words(id: &str) -> [&str; 8] {
    ["bucket", "filter", "--key", KEY, "--id", id, "--total", "4"]
}

/// Returns lines of all kinds, together longer than one read.
fn lines() -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for n in 0..20_000 {
        let end = ["\n", "\r\n", "\r\r\n"][n % 3];
        lines.push(format!("org-{}/repo-{n}{end}", n % 7).into());
        match n % 1000 {
            0 => lines.push(b"\n".to_vec()),
            1 => lines.push(b"\r\n".to_vec()),
            2 => lines.push(b" \t \n".to_vec()),
            3 => lines.push([b"\xff\xfe\0", n.to_string().as_bytes(), b"\n"].concat()),
            4 => lines.push("日本/リポ\n".into()),
            5 => lines.push([&vec![b'x'; n * 17][..], b"\n"].concat()),
            _ => {}
        }
    }
    lines.push([&vec![b'y'; LONGEST][..], b"\n"].concat());
    // The last line has no line feed, so its carriage return belongs to the name.
    lines.push(b"last\r".to_vec());
    lines
}

/// Returns the entity in a line; independent of the command's code.
fn name(line: &[u8]) -> &[u8] {
    let Some(line) = line.strip_suffix(b"\n") else { return line };
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[test]
fn filters_of_all_ids_share_the_input() {
    let tenure = Tenure::new();
    let lines = lines();
    fs::write(tenure.path("all"), lines.concat()).unwrap();
    let total = Total::new(TOTAL.into()).unwrap();
    let mut counts = Vec::new();
    for id in 1..=TOTAL {
        let expected: Vec<&[u8]> = lines.iter().map(|line| &line[..]).collect();
        let mine = |line: &&[u8]| bucket(KEY, name(line), total) == id;
        let expected: Vec<&[u8]> = expected.into_iter().filter(mine).collect();
        counts.push(expected.len());
        let ran = run_on(&tenure, "all", &filter_words(&id.to_string()));
        assert!(ran.status.success() && ran.stderr.is_empty(), "{:?}", ran.stderr);
        // Not `assert_eq`, which would print megabytes.
        assert!(ran.stdout == expected.concat(), "bucket {id} has other lines");
    }
    assert_eq!(counts.iter().sum::<usize>(), lines.len());
    assert!(counts.iter().all(|count| *count > 4000), "{counts:?}");

    // Read from a file, from standard input, and from a pipe.
    let plan = ["bucket", "plan", "--key", KEY, "--total", "4", "--json"];
    let of_file = tenure.run(&[&plan[..], &["all"]].concat()).json();
    assert_eq!(
        of_file,
        json!({
            "key": KEY, "total": 4, "entities": lines.len(), "blank": 40,
            "smallest": counts.iter().min(), "largest": counts.iter().max(), "empty": 0,
            "buckets": counts,
        })
    );
    assert_eq!(Ran::of(run_on(&tenure, "all", &plan)).json(), of_file);
    let words = [&plan[..], &["-"]].concat();
    let mut pipe = tenure.command(&words);
    let mut pipe = pipe.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    pipe.stdin.take().unwrap().write_all(&lines.concat()).unwrap();
    assert_eq!(Ran::of(pipe.wait_with_output().unwrap()).json(), of_file);
}

#[test]
fn a_line_that_is_too_long_is_refused() {
    let tenure = Tenure::new();
    let words = ["bucket", "filter", "--key", KEY, "--id", "1", "--total", "1"];
    for end in ["", "\n"] {
        let long = [b"a\n\n", &vec![b'x'; LONGEST + 1][..], end.as_bytes(), b"b\n"].concat();
        fs::write(tenure.path("long"), long).unwrap();
        let ran = Ran::of(run_on(&tenure, "long", &words));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "a\n\n"), "{}", ran.stderr);
        let told: Vec<&str> = ran.stderr.lines().collect();
        assert!(told[0].starts_with("BK004: a line is too long"), "{told:?}");
        let which = ": line 3 of standard input has more than 1048576 bytes";
        assert!(told[0].ends_with(which), "{told:?}");
        assert!(told[1].starts_with("kept: earlier lines of the bucket were written"), "{told:?}");

        let ran = tenure.run(&["bucket", "plan", "--key", KEY, "--total", "3", "long"]);
        ran.refused("BK004");
        assert!(ran.stderr.contains("line 3 of long has"), "{ran:?}");
    }
}

/// Filters 150 MB within 120 MB of memory, and refuses a line that is too long.
#[test]
fn memory_does_not_grow_with_the_input() {
    let tenure = Tenure::new();
    let small = |script: String| shell(&tenure, &format!("ulimit -v 120000; {script}"));
    let line = "\"$(printf %0999d 0)\"";
    let ran = small(format!("yes {line} | head -n 150000 | {ALL} | wc -c"));
    assert_eq!(ran.ok().trim(), "150000000");
    for long in ["head -c 3145728 /dev/zero", "cat /dev/zero"] {
        let ran = small(format!("{long} | {ALL}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        assert!(ran.stderr.starts_with("BK004: "), "{ran:?}");
    }
}

/// Each line is written before the next one is read.
#[test]
fn nothing_is_held_back() {
    let tenure = Tenure::new();
    let mut command = tenure.command(&["bucket", "filter", "--key", "k", "--id=1", "--total=1"]);
    let mut filter = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = filter.stdin.take().unwrap();
    let output = BufReader::new(filter.stdout.take().unwrap());
    let (line, lines) = mpsc::channel();
    std::thread::spawn(move || output.split(b'\n').try_for_each(|it| line.send(it.unwrap())));
    for name in ["alpha", "beta", "gamma"] {
        writeln!(input, "{name}").unwrap();
        assert_eq!(lines.recv_timeout(LIMIT).unwrap(), name.as_bytes());
    }
    input.write_all(b"delta").unwrap();
    drop(input);
    assert_eq!(lines.recv_timeout(LIMIT).unwrap(), b"delta");
    assert!(filter.wait().unwrap().success());
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let tenure = Tenure::new();
    let ran = shell(&tenure, &format!("yes | {{ {ALL}; echo code $? >&2; }} | head -n 2"));
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("y\ny\n", "code 0\n"));
}

#[test]
fn what_cannot_be_read_or_written_is_told() {
    let tenure = Tenure::new();
    fs::write(tenure.path("all"), "alpha").unwrap();
    let folder = File::open(tenure.path(".")).unwrap();
    let filter = filter_words("1");
    let ran = Ran::of(tenure.command(&filter).stdin(folder).output().unwrap());
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.stderr.starts_with("DT009: "), "{ran:?}");
    assert!(ran.stderr.contains("cannot read standard input: Is a directory"), "{ran:?}");

    let plan = ["bucket", "plan", "--key", KEY, "--total", "1"];
    for words in [["bucket", "filter", "--key", KEY, "--id=1", "--total=1"], plan] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let input = File::open(tenure.path("all")).unwrap();
        let ran = tenure.command(&words).stdin(input).stdout(full).output().unwrap();
        let ran = Ran::of(ran);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.starts_with("DT009: "), "{ran:?}");
        assert!(ran.stderr.contains("cannot write to standard output: No space"), "{ran:?}");
    }

    for (file, why) in [(".", "cannot read .: Is a"), ("no\u{1b}[1m", "cannot read no\\u{1b}[1m: ")]
    {
        let ran = tenure.run(&[&plan[..], &[file]].concat());
        ran.refused("DT009");
        assert!(ran.stderr.contains(why), "{ran:?}");
    }
    let ran = tenure.run(&[&plan[..], &["postgres://me:s3cret@h/db"]].concat());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    ran.hides("s3cret");
}

#[test]
fn a_bad_bucket_is_named() {
    let tenure = Tenure::new();
    let filter = |id: &str, total: &str| {
        let words = ["bucket", "filter", "--key", KEY, "--id", id, "--total", total];
        Ran::of(tenure.command(&words).stdin(Stdio::null()).output().unwrap())
    };
    for (id, total, told) in [
        ("0", "3", "--id: bucket_id must be between 1 and 3 (bucket_id is 0; allowed is a whole"),
        ("5", "3", "--id: bucket_id must be between 1 and 3 (bucket_id is 5; allowed is a whole"),
        ("x", "3", "invalid value 'x' for '--id <I>': bucket_id is a whole number from 1 to"),
        ("-1", "3", "invalid value '-1' for '--id <I>': bucket_id is a whole number from 1 to"),
        ("1", "0", "invalid value '0' for '--total <N>': bucket_total is a whole number from 1 to"),
        ("1", "1000001", "invalid value '1000001' for '--total <N>': bucket_total is a whole"),
        ("1", "2.5", "invalid value '2.5' for '--total <N>': bucket_total is a whole number"),
        ("1", "-1", "invalid value '-1' for '--total <N>': bucket_total is a whole number"),
    ] {
        let ran = filter(id, total);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains(told), "{ran:?}");
        if id == "1" {
            let words = ["bucket", "plan", "--key", KEY, "--total", total];
            let ran = tenure.run(&words);
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
            assert!(ran.stderr.contains(told), "{ran:?}");
        }
    }
    assert_eq!(filter("1000000", "1000000").ok(), "");
}

/// Reads the bucket from the environment, as the command of `bucket next` does.
#[test]
fn the_environment_stands_in_for_options() {
    let tenure = Tenure::new();
    fs::write(tenure.path("all"), "alpha\nbeta\ngamma\ndelta\n").unwrap();
    let run = |words: &[&str], id: &str, total: &str| {
        let mut command = tenure.command(&[&["bucket"], words].concat());
        command.stdin(File::open(tenure.path("all")).unwrap());
        command.env("TENURE_BUCKET_ID", id).env("TENURE_BUCKET_TOTAL", total);
        Ran::of(command.output().unwrap())
    };
    let (filter, plan) = (["filter", "--key=farosai/test"], ["plan", "--key=farosai/test"]);
    assert_eq!(run(&filter, "3", "3").ok(), "gamma\ndelta\n");
    assert_eq!(run(&[&filter[..], &["--id=1"]].concat(), "3", "3").ok(), "alpha\n");
    assert_eq!(run(&[&filter[..], &["--total=2"]].concat(), "2", "3").ok(), "beta\ngamma\ndelta\n");
    assert!(run(&plan, "", "3").ok().starts_with("4 entities in 3 buckets of farosai/test\n"));

    for ran in [run(&filter, "hugo", "3"), run(&filter, "1", "hugo"), run(&plan, "1", "hugo")] {
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains("is a whole number from 1 to"), "{ran:?}");
        ran.hides("hugo");
    }
}

#[test]
fn a_plan_says_what_there_is() {
    let tenure = Tenure::new();
    fs::write(tenure.path("all"), "alpha\nbeta\n\ngamma\ndelta\n\r\n").unwrap();
    let plan = ["bucket", "plan", "--key", "farosai/test", "--total", "3"];
    let ran = tenure.run(&[&plan[..], &["all"]].concat());
    assert_eq!(ran.stderr, "2 lines are blank: an entity with an empty name\n");
    let told = ran.ok();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "6 entities in 3 buckets of farosai/test");
    assert!(lines[1].starts_with("mean 2.0, smallest 1, largest "), "{told}");
    assert_eq!(lines[3].split_whitespace().collect::<Vec<_>>(), ["BUCKET", "ENTITIES", "SHARE"]);
    assert_eq!(lines.len(), 7);

    fs::write(tenure.path("none"), "").unwrap();
    let ran = tenure.run(&[&plan[..], &["none"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_eq!(ran.stdout, "no entities for 3 buckets of farosai/test\n");
    let told = tenure.run(&[&plan[..], &["none", "--json"]].concat()).json();
    assert_eq!((&told["entities"], &told["buckets"]), (&json!(0), &json!([0, 0, 0])));
}

/// Missing members of a config have their defaults; contradicting variables are refused.
#[test]
fn a_config_says_which_bucket() {
    let tenure = Tenure::new();
    fs::write(tenure.path("all"), "alpha\nbeta\ngamma\ndelta\n").unwrap();
    let words = ["bucket", "filter", "--key=farosai/test", "--config=config.json"];
    let run = |config: &str| {
        fs::write(tenure.path("config.json"), config).unwrap();
        Ran::of(run_on(&tenure, "all", &words))
    };
    assert_eq!(run("{\"token\": \"x\"}").ok(), "alpha\nbeta\ngamma\ndelta\n");
    assert_eq!(run("{\"bucket_total\": 3}").ok(), "alpha\n");
    assert_eq!(run("{\"bucket_total\": 3, \"bucket_id\": 3}").ok(), "gamma\ndelta\n");
    run("{\"bucket_total\": 3, \"bucket_id\": 4}").refused("BK001");
    run("{\"bucket_total\": 3").refused("BK002");
    // A rotation without a chosen bucket is refused.
    let rotates = "{\"bucket_total\": 3, \"round_robin_bucket_execution\": true}";
    run(rotates).refused("BK001");
    assert_eq!(run(&rotates.replace('}', ", \"bucket_id\": 2}")).ok(), "beta\n");
    // Variables, as set for the run of a rotation, have to agree with the config.
    fs::write(tenure.path("config.json"), "{\"bucket_total\": 3, \"bucket_id\": 2}").unwrap();
    let run = |id: &str, total: &str| {
        let mut command = tenure.command(&words);
        command.env("TENURE_BUCKET_ID", id).env("TENURE_BUCKET_TOTAL", total);
        Ran::of(command.stdin(File::open(tenure.path("all")).unwrap()).output().unwrap())
    };
    assert_eq!(run("2", "3").ok(), "beta\n");
    for (id, total) in [("1", "3"), ("2", "4")] {
        let ran = run(id, total);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("--config sets bucket 2 of 3;"), "{ran:?}");
    }
}
