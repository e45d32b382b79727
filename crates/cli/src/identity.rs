//! `tenure identity`: keys with which instances sign.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;
use tenure_core::{Code, StoreError};
use tenure_store::signing::{IdentityKey, TrustedIdentities};

use crate::args::{Global, quoted};
use crate::failure::Failure;
use crate::signing::{check_private, read, shown_path};

#[derive(Subcommand)]
pub(crate) enum IdentityCommand {
    /// Create a private key for an instance, and print its public key
    New(IdentityArgs),
    /// Print the public key of a private key, as a line for --trusted-identities
    Show(IdentityArgs),
}

#[derive(clap::Args)]
pub(crate) struct IdentityArgs {
    /// File with the private key, in PEM
    file: PathBuf,
    /// Name of the instance or host, for people; by default the host name
    #[arg(long)]
    name: Option<String>,
}

pub(crate) fn run(command: &IdentityCommand, global: &Global) -> Result<String, Failure> {
    match command {
        IdentityCommand::New(args) => {
            let mut seed = [0; 32];
            let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut seed));
            random.map_err(|error| refused(format!("cannot read random bytes: {error}")))?;
            let pem = IdentityKey::pem(&seed);
            // Checked first: a key with a bad name is not written.
            let text = args.line(&pem, global)?;
            write(&args.file, &pem)?;
            Ok(text)
        }
        IdentityCommand::Show(args) => {
            let text = args.line(&read(&args.file)?, global)?;
            check_private(&args.file)?;
            Ok(text)
        }
    }
}

impl IdentityArgs {
    /// Returns the line that makes this key trusted.
    fn line(&self, pem: &str, global: &Global) -> Result<String, Failure> {
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = self.name.clone().unwrap_or_else(host);
        let key = IdentityKey::from_pem(pem)?.public().to_string();
        let line = format!("{name} {key}");
        if TrustedIdentities::parse(&line).is_err() {
            let what = "--name takes 1 to 64 characters of A-Z, a-z, 0-9 and -._:@";
            return Err(Failure::Usage(format!("{what}, not {}", quoted(&name))));
        }
        Ok(global.show(&json!({ "name": name, "key": key }), || format!("{line}\n")))
    }
}

/// Writes a file that only this user can read; an existing one is kept.
fn write(path: &Path, pem: &str) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(pem.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            let what = format!("{} exists, and is kept", shown_path(path));
            Failure::from(refused(what)).hinting("name another file")
        }
        _ => refused(format!("cannot write {}: {error}", shown_path(path))).into(),
    })
}

fn refused(what: String) -> StoreError {
    StoreError::refused(Code::BadKeys, what)
}
