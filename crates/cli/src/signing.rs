//! Signing and encryption keys of checkpoints, from files or a variable.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tenure_core::{Code, StoreError};
use tenure_duty::process;
use tenure_store::signing::{EncryptionKeys, Keyring, Protection, Signing};

use crate::args::{self, NOT_SHOWN, SigningMode, may_be_key};
use crate::env;

const MAX_KEYS_BYTES: u64 = 1 << 20;

/// Signing mode, with the keys as text: each store gets keys of its own.
pub(crate) struct SigningSettings {
    mode: SigningMode,
    /// `None` if no keys were given.
    keys: Option<String>,
    encryption_keys: Option<String>,
}

/// The keys are not printed.
impl std::fmt::Debug for SigningSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningSettings")
    }
}

impl SigningSettings {
    /// Reads the keys from the files, or signing keys from the variable if no file is named.
    pub(crate) fn new(args: &args::SigningArgs) -> Result<Self, StoreError> {
        let keys = match &args.signing_keys_file {
            Some(path) => Some(read(path, false)?),
            None => std::env::var(env::SIGNING_KEYS).ok().filter(|keys| !keys.is_empty()),
        };
        let encryption_keys = args.encryption_keys_file.as_deref();
        let encryption_keys = encryption_keys.map(|path| read(path, true)).transpose()?;
        let settings = Self { mode: args.signing, keys, encryption_keys };
        settings.protection()?;
        Ok(settings)
    }

    /// Returns the keys for a store, as the options say.
    pub(crate) fn protection(&self) -> Result<Protection, StoreError> {
        let signing = match self.mode {
            SigningMode::Off => Signing::Off,
            SigningMode::Write => Signing::Write(self.keys()?),
            SigningMode::Require => Signing::Require(self.keys()?),
        };
        Ok(Protection { signing, encryption: self.encryption()? })
    }

    /// Returns the keys for verifying signatures, in any mode; encryption keys alone are enough.
    pub(crate) fn verifying(&self) -> Result<Protection, StoreError> {
        let signing = match self.mode {
            SigningMode::Require => Signing::Require(self.keys()?),
            SigningMode::Off if self.keys.is_none() && self.encryption_keys.is_some() => {
                Signing::Off
            }
            SigningMode::Off | SigningMode::Write => Signing::Write(self.keys()?),
        };
        Ok(Protection { signing, encryption: self.encryption()? })
    }

    /// Returns the keys that there are, for commands that only show checkpoints.
    pub(crate) fn showing(&self) -> Result<Protection, StoreError> {
        self.verifying().or_else(|_| self.protection())
    }

    /// Returns the signing keys, in any mode.
    fn keys(&self) -> Result<Keyring, StoreError> {
        let missing = || {
            let detail = format!("none in {} or {}", env::SIGNING_KEYS_FILE, env::SIGNING_KEYS);
            StoreError::refused(Code::BadKeys, detail)
        };
        Keyring::parse(self.keys.as_deref().ok_or_else(missing)?)
    }

    fn encryption(&self) -> Result<Option<EncryptionKeys>, StoreError> {
        let parse = |text: &String| EncryptionKeys::parse(text, process::entropy);
        self.encryption_keys.as_ref().map(parse).transpose()
    }
}

/// Reads a file with keys. If it `must_be_private`, other users must have no access.
fn read(path: &Path, must_be_private: bool) -> Result<String, StoreError> {
    let refused = |what: String| StoreError::refused(Code::BadKeys, what);
    let shown = || {
        // The user may have given the keys instead of the path.
        let shown = path.display().to_string();
        let may_be_keys = shown.contains(char::is_whitespace) || may_be_key(&shown);
        if may_be_keys { NOT_SHOWN.to_owned() } else { shown }
    };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| {
        let mode = file.metadata()?.permissions().mode();
        file.take(MAX_KEYS_BYTES).read_to_string(&mut text).map(|_| mode)
    });
    let mode = read.map_err(|error| refused(format!("cannot read {}: {error}", shown())))?;
    if must_be_private && mode & 0o007 != 0 {
        let file = shown();
        return Err(refused(format!("every user has access to {file}: run chmod o= {file}")));
    }
    Ok(text)
}
