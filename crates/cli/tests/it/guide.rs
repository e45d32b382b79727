//! Every command on the pages that say so, in its order, as a reader would type it.

use std::path::Path;
use std::process::Command;

use testkit::{TEST_POSTGRES, service};
use uuid::Uuid;

use crate::tenure::{Ran, Tenure};

const GUIDE: &str = include_str!("../../../../docs/guide.md");
const BUCKETING: &str = include_str!("../../../../docs/reference/bucketing.md");

/// Stands on a page where a reader puts a server.
const PLACEHOLDER: &str = "postgres://USER:PASSWORD@HOST/DATABASE";

/// Commands, and what must be in their output.
#[derive(Debug, Default)]
struct Block {
    commands: String,
    shown: Vec<String>,
}

/// The fenced blocks of a page: `sh` is run, `text` after it is looked for.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = None;
    for line in page.lines() {
        let text = line.trim_start();
        match (inside, text) {
            (None, "```sh") => {
                blocks.push(Block::default());
                inside = Some("sh");
            }
            (None, "```text") => inside = Some("text"),
            // Only shown.
            (None, "```" | "```json" | "```rust") => inside = Some("other"),
            (None, other) => assert!(!other.starts_with("```"), "what is {other}?"),
            (Some(_), "```") => inside = None,
            (Some("sh"), command) => {
                let block = blocks.last_mut().unwrap();
                block.commands.push_str(command);
                block.commands.push('\n');
            }
            (Some("other"), _) => {}
            (Some(_), shown) => blocks.last_mut().unwrap().shown.push(shown.to_owned()),
        }
    }
    blocks
}

#[test]
fn every_command_in_the_guide_works() {
    follow(GUIDE, 10);
}

#[test]
fn the_deployments_of_buckets_work() {
    follow(BUCKETING, 7);
}

/// Types the commands of a page, which has at least so many blocks of them.
fn follow(page: &str, least: usize) {
    let Some(server) = service(TEST_POSTGRES) else { return };
    let shared = format!("{server}?schema=page_{}", Uuid::new_v4().simple());
    let tenure = Tenure::new();
    let binary = Path::new(env!("CARGO_BIN_EXE_tenure"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    assert!(page.contains(PLACEHOLDER));
    let blocks = blocks(page);
    assert!(blocks.len() >= least, "only {} blocks", blocks.len());
    // What one block exports the next ones need.
    let mut before = String::new();
    for block in blocks {
        let commands = block.commands.replace(PLACEHOLDER, &shared);
        let script = format!("set -eu\n{before}{commands}");
        let mut shell: Command = tenure.command_of("sh", &["-c", &script]);
        let ran = Ran::of(shell.env("PATH", &path).output().unwrap());
        assert_eq!(ran.code, Some(0), "{commands}\n{ran:?}");
        for shown in &block.shown {
            assert!(ran.stdout.contains(shown), "{shown:?} is not in\n{ran:?}");
        }
        let exports = commands.lines().filter(|line| line.starts_with("export "));
        before.extend(exports.flat_map(|line| [line, "\n"]));
    }
}
