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
