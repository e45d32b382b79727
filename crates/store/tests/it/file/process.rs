//! Two processes, one of which is killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use tenure_core::{Code, Store};
use tenure_store::conformance::faulty_disk::CrashingDisk;
use tenure_store::file::{FileSettings, FileStore};

use super::script::{self, Caller};
use super::{open, refused, settings, try_open};
use crate::player::{LONG, Player};

const FOLDER: &str = "TENURE_TEST_FILE_FOLDER";
const STEP: &str = "TENURE_TEST_FILE_STEP";

/// Starts this program as another process that runs `part`.
fn spawn(part: &str, folder: &Path, step: u64) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", part, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(STEP, step.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (child, stdout)
}

/// Returns the folder that this process was started for; `None` in the test process itself.
fn part() -> Option<(FileSettings, u64)> {
    let folder = std::env::var_os(FOLDER)?;
    let step = std::env::var(STEP).unwrap().parse().unwrap();
    Some((settings(Path::new(&folder)), step))
}

/// A part, not a test: opens the store, reports it, and keeps it open until standard input closes.
#[tokio::test(flavor = "multi_thread")]
async fn part_that_holds() {
    let Some((settings, _)) = part() else { return };
    let store: Arc<dyn Store> = Arc::new(FileStore::open(settings).await.unwrap());
    let player = Player::join(&store, "other", LONG).await;
    let hold = player.hold("main").await;
    player.commit(&hold, 0, "{\"last_update_id\": 1}").await;
    println!("\nready");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// A part, not a test: makes the calls of the script on a disk that kills the process.
#[tokio::test(flavor = "multi_thread")]
async fn part_that_is_killed() {
    let Some((settings, step)) = part() else { return };
    let disk = Arc::new(CrashingDisk::at(step));
    let store = FileStore::open_on(settings, disk.clone()).await.unwrap();
    let mut caller = Caller::new(Arc::new(store));
    for call in &script::all() {
        println!("\nbegun");
        caller.call(call).await.unwrap();
        println!("\ndone");
    }
    println!("\nsteps {}", disk.steps());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_refused_until_the_first_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, lines) = spawn("file::process::part_that_holds", folder.path(), 0);
    let ready = lines.lines().any(|line| line.unwrap() == "ready");
    assert!(ready);
    let error = try_open(folder.path()).await.unwrap_err();
    refused(&error, Code::InUse);
    assert!(error.to_string().contains("cursor.json.tenure/lock"), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    // No wait for a TTL: the lock proves that the process is dead.
    let store = open(folder.path()).await;
    let player = Player::join(&store, "b", LONG).await;
    let hold = player.hold("main").await;
    assert_eq!(hold.epoch.get(), 2);
    player.commit(&hold, 1, "{\"last_update_id\": 2}").await;
}

/// A second opening within one process counts as in use as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_opening_in_one_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    refused(&try_open(folder.path()).await.unwrap_err(), Code::InUse);
    drop(store);
    open(folder.path()).await;
}

/// A program started by the holder does not keep the lock after the holder has ended.
#[tokio::test(flavor = "multi_thread")]
async fn the_lock_is_not_inherited() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    drop(store);
    open(folder.path()).await;
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The process is killed at each step of the disk in turn, beginning with the first file.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_any_two_steps_loses_nothing() {
    let script = script::all();
    let mut steps = u64::MAX;
    let mut step = 0;
    while step <= steps {
        let folder = tempfile::tempdir().unwrap();
        let (mut child, lines) = spawn("file::process::part_that_is_killed", folder.path(), step);
        let lines: Vec<String> = lines.lines().map(Result::unwrap).collect();
        let status = child.wait().unwrap();
        let count = |word: &str| lines.iter().filter(|line| *line == word).count();
        let (done, begun) = (count("done"), count("begun"));
        if step == 0 {
            // The first process is not killed and reports the number of steps.
            let told = lines.iter().find_map(|line| line.strip_prefix("steps "));
            steps = told.unwrap().parse().unwrap();
            assert!(status.success() && steps > 100, "{steps}");
        } else {
            assert!(!status.success(), "step {step} did not kill");
        }
        let store = try_open(folder.path()).await;
        let store = store.unwrap_or_else(|error| panic!("step {step}: {error}"));
        script::check(&store, &script, done, begun).await;
        step += 1;
    }
}
