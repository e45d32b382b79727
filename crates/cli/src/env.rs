//! Every environment variable that the command reads.

/// The store's URL, where `--store` is not given.
pub(crate) const STORE: &str = "TENURE_STORE";
