//! Runs the examples and checks their output.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::player::sqlite_url;

fn example(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let path: PathBuf = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(path.exists(), "{name} is not built; run `cargo test -p tenure`, or build --examples");
    Command::new(path)
}

fn told(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    text
}

#[test]
fn they_work_on_sqlite_again_and_again() {
    let folder = TempDir::new().unwrap();
    let url = sqlite_url(folder.path());
    let run = |name: &str| told(example(name).env("TENURE_STORE", &url));
    for round in 1..=2 {
        let text = run("standby");
        assert!(text.contains(&format!("leading   under epoch {round}\n")), "{text}");
        assert!(text.contains("step 3"), "{text}");
        let text = run("shards");
        assert_eq!(text.matches("assigned  shards-example/").count(), 8, "{text}");
        let text = run("work");
        assert_eq!(text.matches(&format!("counted {round},")).count(), 4, "{text}");
        let text = run("hold");
        assert!(text.contains(&format!("committed counter {round}")), "{text}");
    }
}

#[test]
fn targets_follow_their_file() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("targets.txt");
    std::fs::write(&file, "one\n").unwrap();
    let mut command = example("targets");
    command.env("TENURE_STORE", sqlite_url(folder.path())).env("TENURE_TARGETS", &file);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "polling   targets-example/one");
    std::fs::write(&file, "# none\n").unwrap();
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(rest.contains(&"stopped   targets-example/one (gone)".to_owned()), "{rest:?}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn fixed_partitions_come_from_the_environment() {
    let clean = |mut command: Command| {
        for name in ["PARTITIONS", "PARTITION_ID", "TOTAL_PARTITIONS"] {
            command.env_remove(format!("CONNECTOR_{name}"));
        }
        command
    };
    let text = told(clean(example("fixed")).env("CONNECTOR_PARTITIONS", "0,1"));
    assert!(text.contains("fixed-example/0") && text.contains("fixed-example/1"), "{text}");
    let mut bad = clean(example("fixed"));
    let output = bad.env("CONNECTOR_PARTITION_ID", "3").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("BadPartitions"), "{output:?}");
}

#[cfg(feature = "postgres")]
#[test]
fn fence_works_on_postgresql() {
    if let Some(url) = testkit::service(testkit::TEST_POSTGRES) {
        let text = told(example("fence").env("TENURE_STORE", url));
        assert!(text.contains("Some(Fenced)"), "{text}");
    }
}
