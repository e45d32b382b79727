//! Every environment variable that the command reads.

/// The store's URL, where `--store` is not given.
pub(crate) const STORE: &str = "TENURE_STORE";

/// Whether checkpoints are signed: `off`, `write` or `require`.
pub(crate) const SIGNING: &str = "TENURE_SIGNING";

/// The signing keys themselves.
pub(crate) const SIGNING_KEYS: &str = "TENURE_SIGNING_KEYS";

/// A file with the signing keys.
pub(crate) const SIGNING_KEYS_FILE: &str = "TENURE_SIGNING_KEYS_FILE";

/// Where a long-running command serves `/health` and `/metrics`, where `--listen` is not given.
pub(crate) const HEALTH_PORT: &str = "CONNECTOR_HEALTH_PORT";

/// Where the targets of `poll` come from, where `--targets` is not given.
pub(crate) const TARGETS: &str = "TENURE_TARGETS";

/// What commands that this one starts do not get: secrets that are tenure's own. The store's URL
/// is not among them, because a command may use the store, too.
pub(crate) const SECRETS: [&str; 3] = [SIGNING_KEYS, TARGETS, tenure_targets::TOKEN];
