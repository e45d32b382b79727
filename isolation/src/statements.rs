//! Each SQL file is run by an operation, or the page on isolation says why not.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::bench::Bench;
use crate::level::IsolationLevel;
use crate::operations;
use crate::server::{PreparedServer, Side};

const FOLDERS: &[&str] =
    &["../crates/store/src/postgres", "../crates/switchboard/src/storage/postgres"];
const ISOLATION_PAGE: &str = "../docs/explanation/isolation.md";
const HEADING: &str = "## Statements without an operation";

/// The server's log, which it writes beside its data.
const LOG: &str = "SELECT convert_from(pg_read_binary_file(
    regexp_replace(current_setting('data_directory'), '[^/]+$', 'log')), 'UTF8')";
const LOG_STATEMENTS: &str = "ALTER DATABASE iso_0 SET log_statement = 'all';
    ALTER DATABASE iso_0 SET log_min_messages = 'log'";
const MARK: &str = "SELECT 'the operations begin'";

const FUNCTION: &str = "CREATE OR REPLACE FUNCTION ";

/// A statement, or a function that statements call.
#[derive(Clone, Debug)]
struct SqlPart {
    /// Name of its file without `sql/`.
    file: String,
    /// Name with `(`.
    function: Option<String>,
    text: String,
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Divides a file at its functions. Comments call nothing.
fn parts(file: &str, text: &str) -> Vec<SqlPart> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
    let code = words(&lines.collect::<Vec<_>>().join("\n"));
    let part = |function, text| SqlPart { file: file.to_owned(), function, text };
    match code.split_once(FUNCTION) {
        None => vec![part(None, words(text))],
        Some((_, functions)) => functions
            .split(FUNCTION)
            .map(|text| {
                let (name, body) = text.split_once('(').unwrap();
                part(Some(format!("{name}(")), body.to_owned())
            })
            .collect(),
    }
}

/// Adds the parts of the files in a folder.
fn read(folder: &Path, prefix: &str, found: &mut Vec<SqlPart>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            let prefix = if name == "sql" { String::new() } else { format!("{prefix}{name}/") };
            read(&path, &prefix, found);
        } else if path.extension().is_some_and(|it| it == "sql") {
            let text = fs::read_to_string(&path).unwrap();
            found.extend(parts(&format!("{prefix}{name}"), &text));
        }
    }
}

/// Returns the names in the first column of the page's table.
fn exceptions() -> BTreeSet<String> {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(ISOLATION_PAGE)).unwrap();
    let table = page.split_once(HEADING).unwrap().1.split("\n## ").next().unwrap();
    let cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let names = cells.flat_map(|cell| cell.split(['`', ','])).map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Runs each operation alone and returns the statements that the server logged meanwhile.
async fn logged() -> String {
    let server = PreparedServer::start().await.unwrap();
    server.create("iso_0").unwrap();
    let client = server.connect("iso_0").await.unwrap();
    client.batch_execute(LOG_STATEMENTS).await.unwrap();
    let bench = Bench::open(&server, "iso_0", IsolationLevel::READ_COMMITTED).await.unwrap();
    bench.watcher.batch_execute(MARK).await.unwrap();
    for operation in operations::all() {
        bench.alone(&operation, Side::A, false).await.unwrap();
    }
    let log: String = client.query_one(LOG, &[]).await.unwrap().get(0);
    words(log.split_once(MARK).unwrap().1)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_statement_is_run_or_is_an_exception() {
    let mut left = Vec::new();
    for folder in FOLDERS {
        read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), "", &mut left);
    }
    let mut run = vec![logged().await];
    // A function is run if what was run calls it.
    loop {
        let is_run = |part: &SqlPart| match &part.function {
            None => run[0].contains(&part.text),
            Some(name) => run.iter().any(|it| it.contains(name)),
        };
        let (found, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_run);
        left = others;
        if found.is_empty() {
            break;
        }
        run.extend(found.into_iter().map(|it| it.text));
    }
    let exceptions = exceptions();
    let folder = |name: &str| name.split_once('/').map(|(folder, _)| format!("{folder}/*"));
    let is_of = |exception: &String, name: &String| {
        exception == name || folder(name).as_ref() == Some(exception)
    };
    let is_missing = |it: &&SqlPart| !exceptions.iter().any(|name| is_of(name, &it.file));
    let missing = left.iter().filter(is_missing).map(|it| (&it.file, &it.function));
    let missing: Vec<_> = missing.collect();
    assert!(
        missing.is_empty(),
        "no operation runs these, and {ISOLATION_PAGE} does not say why: {missing:?}"
    );
    let is_unneeded = |it: &&String| !left.iter().any(|part| is_of(it, &part.file));
    let unneeded: Vec<&String> = exceptions.iter().filter(is_unneeded).collect();
    assert!(unneeded.is_empty(), "remove these from {ISOLATION_PAGE}: {unneeded:?}");
}
