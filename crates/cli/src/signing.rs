//! Signing and encryption keys of checkpoints, from files or a variable.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tenure_core::{Code, StoreError};
use tenure_duty::process;
use tenure_store::signing::{
    EncryptionKeys, IdentityKey, Keyring, Protection, Signing, TrustedIdentities,
};

use crate::args::{self, NOT_SHOWN, SigningMode, may_be_key};
use crate::env;

const MAX_KEYS_BYTES: u64 = 1 << 20;

/// Signing mode, with the keys as text: each store gets keys of its own.
pub(crate) struct SigningSettings {
    mode: SigningMode,
    /// `None` if no keys were given.
    keys: Option<String>,
    encryption_keys: Option<String>,
    identity_key: Option<String>,
    trusted: Option<TrustedIdentities>,
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
            Some(path) => Some(read(path)?),
            None => std::env::var(env::SIGNING_KEYS).ok().filter(|keys| !keys.is_empty()),
        };
        let optional = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
        let settings = Self {
            mode: args.signing,
            keys,
            encryption_keys: optional(&args.encryption_keys_file)?,
            identity_key: optional(&args.identity_key)?,
            trusted: args.trust.trusted()?,
        };
        let protection = settings.protection()?;
        let private = [&args.encryption_keys_file, &args.identity_key];
        private.into_iter().flatten().try_for_each(|path| check_private(path))?;
        if let Some(key) = protection.identity.map(|key| key.public()) {
            if settings.trusted.as_ref().is_some_and(|trusted| !trusted.trusts(&key)) {
                let what = "the identity key of this instance is not among the trusted ones";
                return Err(StoreError::refused(Code::BadKeys, what));
            }
            if !process::tag(&key) {
                let what = "the id of this instance was made before its key was read";
                return Err(StoreError::refused(Code::BadKeys, what));
            }
        }
        Ok(settings)
    }

    /// Returns the keys for a store, as the options say.
    pub(crate) fn protection(&self) -> Result<Protection, StoreError> {
        let signing = match self.mode {
            SigningMode::Off => Signing::Off,
            SigningMode::Write => Signing::Write(self.keys()?),
            SigningMode::Require => Signing::Require(self.keys()?),
        };
        self.with(signing)
    }

    fn with(&self, signing: Signing) -> Result<Protection, StoreError> {
        let encryption = self.encryption_keys.as_ref();
        let encryption = encryption.map(|text| EncryptionKeys::parse(text, process::entropy));
        let identity = self.identity_key.as_deref().map(IdentityKey::from_pem);
        let (encryption, identity) = (encryption.transpose()?, identity.transpose()?);
        Ok(Protection { signing, encryption, identity, trusted: self.trusted.clone() })
    }

    /// Returns the keys for verifying signatures, in any mode; encryption keys or trusted
    /// identities alone are enough.
    pub(crate) fn verifying(&self) -> Result<Protection, StoreError> {
        let signing = match self.mode {
            SigningMode::Require => Signing::Require(self.keys()?),
            SigningMode::Off if self.keys.is_none() && self.has_other_keys() => Signing::Off,
            SigningMode::Off | SigningMode::Write => Signing::Write(self.keys()?),
        };
        self.with(signing)
    }

    fn has_other_keys(&self) -> bool {
        self.encryption_keys.is_some() || self.trusted.is_some()
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
}

impl args::TrustArgs {
    /// Reads the trusted identities.
    pub(crate) fn trusted(&self) -> Result<Option<TrustedIdentities>, StoreError> {
        let text = self.trusted_identities.as_deref().map(read).transpose()?;
        text.map(|text| TrustedIdentities::parse(&text)).transpose()
    }
}

/// Reads a file with keys.
pub(crate) fn read(path: &Path) -> Result<String, StoreError> {
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(MAX_KEYS_BYTES).read_to_string(&mut text));
    read.map_err(|error| unreadable(path, &error))?;
    Ok(text)
}

/// Checks that other users have no access to a file with private keys. Its content is checked
/// before: the mode of another file is not to be changed.
pub(crate) fn check_private(path: &Path) -> Result<(), StoreError> {
    let found = path.metadata().map_err(|error| unreadable(path, &error))?;
    if found.permissions().mode() & 0o007 == 0 {
        return Ok(());
    }
    let file = shown_path(path);
    let what = format!("every user has access to {file}: run chmod o= {file}");
    Err(StoreError::refused(Code::BadKeys, what))
}

fn unreadable(path: &Path, error: &io::Error) -> StoreError {
    let what = format!("cannot read {}: {error}", shown_path(path));
    StoreError::refused(Code::BadKeys, what)
}

/// Returns a path, unless it may be keys that the user has given in its place.
pub(crate) fn shown_path(path: &Path) -> String {
    let shown = path.display().to_string();
    let may_be_keys = shown.contains(char::is_whitespace) || may_be_key(&shown);
    if may_be_keys { NOT_SHOWN.to_owned() } else { shown }
}
