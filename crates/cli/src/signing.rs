//! Signing keys of checkpoints, from a file or a variable.

use std::path::Path;

use tenure_core::{Code, StoreError};
use tenure_store::signing::{Keyring, Signing};

use crate::args::{self, NOT_SHOWN, SigningMode, may_be_key};
use crate::env;

/// Signing mode, with the keys as text: each store gets a key ring of its own.
pub(crate) struct SigningSettings {
    mode: SigningMode,
    /// `None` if no keys were given.
    keys: Option<String>,
}

/// The keys are not printed.
impl std::fmt::Debug for SigningSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningSettings")
    }
}

impl SigningSettings {
    /// Reads the keys from the file, or from the variable if no file is named.
    pub(crate) fn new(args: &args::SigningArgs) -> Result<Self, StoreError> {
        let keys = match &args.signing_keys_file {
            Some(path) => Some(read(path)?),
            None => std::env::var(env::SIGNING_KEYS).ok().filter(|keys| !keys.is_empty()),
        };
        let settings = Self { mode: args.signing, keys };
        settings.signing()?;
        Ok(settings)
    }

    /// Returns the signing setting for a store.
    pub(crate) fn signing(&self) -> Result<Signing, StoreError> {
        Ok(match self.mode {
            SigningMode::Off => Signing::Off,
            SigningMode::Write => Signing::Write(self.keys()?),
            SigningMode::Require => Signing::Require(self.keys()?),
        })
    }

    /// Returns the keys, in any mode.
    pub(crate) fn keys(&self) -> Result<Keyring, StoreError> {
        let missing = || {
            let detail = format!("none in {} or {}", env::SIGNING_KEYS_FILE, env::SIGNING_KEYS);
            StoreError::refused(Code::BadKeys, detail)
        };
        Keyring::parse(self.keys.as_deref().ok_or_else(missing)?)
    }

    /// Whether a checkpoint without a signature is a fault.
    pub(crate) fn is_required(&self) -> bool {
        matches!(self.mode, SigningMode::Require)
    }
}

fn read(path: &Path) -> Result<String, StoreError> {
    std::fs::read_to_string(path).map_err(|error| {
        // The user may have given the keys instead of the path.
        let mut shown = path.display().to_string();
        if shown.contains(char::is_whitespace) || may_be_key(&shown) {
            NOT_SHOWN.clone_into(&mut shown);
        }
        let detail = format!("cannot read {shown}: {error}");
        StoreError::refused(Code::BadKeys, detail)
    })
}
