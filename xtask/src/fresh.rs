//! `cargo xtask fresh`: the README's commands on a minimal machine.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use testkit::packages::{self, FRESH_DEBIAN};

use crate::run::output;
use crate::servers;

/// Debian mirror if this machine's own sources name none.
const MIRROR: &str = "http://deb.debian.org/debian";

/// Prefixes of the environment variables that configure access to the registries.
const KEPT: &[&str] = &["PIP_", "SSL_CERT", "REQUESTS_CA", "CURL_CA", "CARGO_HTTP", "CARGO_NET"];
const PROXIES: &[&str] = &["http_proxy", "https_proxy", "no_proxy"];

/// Part of the run that can be selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FreshPart {
    /// The release build, and a server that responds.
    Build,
    /// The test command.
    Test,
}

/// Parses the words after `fresh`; `None` if they are not valid.
pub(crate) fn parse(words: &[String]) -> Option<Option<FreshPart>> {
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Some(None),
        ["--only", "build"] => Some(Some(FreshPart::Build)),
        ["--only", "test"] => Some(Some(FreshPart::Test)),
        _ => None,
    }
}

/// Clones HEAD into a minimal Debian in a temporary folder, and runs the commands there.
pub(crate) fn run(only: Option<FreshPart>) -> Result<()> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        bail!("run this as root: debootstrap and mounts require it");
    }
    servers::install_all(&packages::missing_of(FRESH_DEBIAN))?;
    let changed = output(Command::new("git").args(["status", "--porcelain"]))?;
    if !changed.is_empty() {
        eprintln!("fresh: uncommitted changes are ignored");
    }
    let folder = tempfile::Builder::new().prefix("tenure-fresh-").tempdir()?;
    let root = folder.path().join("debian");
    let readme = output(Command::new("git").args(["show", "HEAD:README.md"]))?;
    let [build, serve, ingest, test] = commands(&readme)?;
    let wanted = |part, command: String| match only {
        Some(only) if only != part => String::new(),
        _ => command,
    };
    let ended = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c"])
        .arg(include_str!("fresh.sh"))
        .env_clear()
        .envs(env::vars_os().filter(|(name, _)| is_kept(name)))
        .env("PATH", "/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/srv")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("LC_ALL", "C.UTF-8")
        .env("ROOT", &root)
        .env("MIRROR", mirror())
        .env("REPOSITORY", env::current_dir()?)
        .env("TOOLCHAIN", output(Command::new("rustc").args(["--print", "sysroot"]))?.trim())
        .env("CARGO_HOME_HERE", cargo_home())
        .env("BUILD", wanted(FreshPart::Build, build))
        .env("SERVE", serve)
        .env("INGEST", ingest)
        .env("TEST", wanted(FreshPart::Test, test))
        .status()?;
    // Folders mounted below belong to this machine: they must not be deleted with the folder.
    let mounted = fs::read_to_string("/proc/self/mountinfo")?;
    if mounted.contains(&*folder.path().to_string_lossy()) {
        bail!("something is still mounted below {}", folder.keep().display());
    }
    ensure!(ended.success(), "the last step above failed");
    Ok(())
}

/// Commands of the README: build, start the server, submit an event, test.
fn commands(readme: &str) -> Result<[String; 4]> {
    let command = |heading, n| {
        let commands = section(readme, heading)?;
        commands
            .into_iter()
            .nth(n)
            .with_context(|| format!("{heading} in the README lacks a command"))
    };
    let event = "## Events, exactly once";
    let ingest = command(event, 1)?;
    ensure!(ingest.starts_with("curl "), "{event} in the README has no event to submit");
    // The block continues with a second request.
    let ingest = ingest.split("\ncurl ").next().unwrap_or_default().to_owned();
    Ok([command("## Try it", 0)?, command(event, 0)?, ingest, command("## Tests", 0)?])
}

/// Returns the shell commands of a section, block by block.
fn section(readme: &str, heading: &str) -> Result<Vec<String>> {
    let (_, rest) = readme
        .split_once(&format!("\n{heading}\n"))
        .with_context(|| format!("the README has no {heading}"))?;
    let section = rest.split("\n## ").next().unwrap_or(rest);
    let blocks = section.split("\n```sh\n").skip(1);
    Ok(blocks.filter_map(|block| Some(block.split_once("\n```")?.0.to_owned())).collect())
}

fn is_kept(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    KEPT.iter().any(|start| name.starts_with(start))
        || PROXIES.contains(&name.to_lowercase().as_str())
}

fn cargo_home() -> OsString {
    let home = || env::home_dir().unwrap_or_default().join(".cargo").into_os_string();
    env::var_os("CARGO_HOME").unwrap_or_else(home)
}

/// Returns the Debian mirror of this machine, if it runs the same Debian.
fn mirror() -> String {
    let format =
        ["indextargets", "--format", "$(REPO_URI)", "Codename: bookworm", "Origin: Debian"];
    let listed = output(Command::new("apt-get").args(format)).unwrap_or_default();
    listed.lines().next().map_or(MIRROR, |line| line.trim_end_matches('/')).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_the_commands() {
        let readme = fs::read_to_string("../README.md").unwrap();
        let [build, serve, ingest, test] = commands(&readme).unwrap();
        assert_eq!(build, "cargo build --release");
        assert_eq!(serve, "target/release/tenure serve");
        assert!(ingest.contains("/api/switchboard/ingest") && !ingest.contains("/inbox"));
        assert_eq!(test, "cargo xtask test");
    }

    #[test]
    fn a_part_is_named_or_none() {
        let parse =
            |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse(""), Some(None));
        assert_eq!(parse("--only build"), Some(Some(FreshPart::Build)));
        assert_eq!(parse("--only tests"), None);
    }

    #[test]
    fn only_the_ways_to_registries_go_along() {
        let kept = |name: &str| is_kept(&OsString::from(name));
        assert!(kept("PIP_CERT") && kept("HTTPS_PROXY") && kept("SSL_CERT_FILE"));
        assert!(
            !kept("CARGO_HOME") && !kept("RUSTUP_HOME") && !kept("TENURE_STORE") && !kept("CI")
        );
    }
}
