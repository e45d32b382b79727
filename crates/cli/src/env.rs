//! Environment variables.

/// Default of `--store`.
pub(crate) const STORE: &str = "TENURE_STORE";

/// Default of `--config`.
pub(crate) const CONFIG: &str = "TENURE_CONFIG";

/// Whether checkpoints are signed: `off`, `write` or `require`.
pub(crate) const SIGNING: &str = "TENURE_SIGNING";

/// Signing keys, read if no file is given.
pub(crate) const SIGNING_KEYS: &str = "TENURE_SIGNING_KEYS";

/// File with the signing keys.
pub(crate) const SIGNING_KEYS_FILE: &str = "TENURE_SIGNING_KEYS_FILE";

/// File with the encryption keys.
pub(crate) const ENCRYPTION_KEYS_FILE: &str = "TENURE_ENCRYPTION_KEYS_FILE";

/// File with the private key of this instance, and file with the public keys of trusted ones.
pub(crate) const IDENTITY_KEY: &str = "TENURE_IDENTITY_KEY";
pub(crate) const TRUSTED_IDENTITIES: &str = "TENURE_TRUSTED_IDENTITIES";

/// Default of `--listen` of long-running commands.
pub(crate) const HEALTH_PORT: &str = "CONNECTOR_HEALTH_PORT";

/// Default of `--targets` of `poll`.
pub(crate) const TARGETS: &str = "TENURE_TARGETS";

/// Switchboard and connector of `beat`: connectors read the same variables.
pub(crate) const SWITCHBOARD_URL: &str = "SWITCHBOARD_API_BASE_URL";
pub(crate) const CONNECTOR_TYPE: &str = "CONNECTOR_PROVIDER";
pub(crate) const CONNECTOR_ENDPOINT: &str = "CONNECTOR_ENDPOINT_IDENTITY";
pub(crate) const CONNECTOR_INSTANCE: &str = "CONNECTOR_INSTANCE_ID";

/// Variables of options of `beat`.
pub(crate) const BEAT: [&str; 4] =
    [SWITCHBOARD_URL, CONNECTOR_TYPE, CONNECTOR_ENDPOINT, CONNECTOR_INSTANCE];

/// Token of a connector. Commands that Tenure starts inherit it: they may be connectors.
pub(crate) const SWITCHBOARD_TOKEN: &str = "SWITCHBOARD_API_TOKEN";

/// Interval of `beat --every` in seconds, and whether `beat` sends anything.
pub(crate) const HEARTBEAT_INTERVAL: &str = "CONNECTOR_HEARTBEAT_INTERVAL_S";
pub(crate) const HEARTBEAT_ENABLED: &str = "CONNECTOR_HEARTBEAT_ENABLED";

/// Bucket of a run and number of buckets; `bucket next` sets them for the command it runs.
pub(crate) const BUCKET_ID: &str = "TENURE_BUCKET_ID";
pub(crate) const BUCKET_TOTAL: &str = "TENURE_BUCKET_TOTAL";
/// Files with the config and the state of that run.
pub(crate) const BUCKET_CONFIG: &str = "TENURE_BUCKET_CONFIG";
pub(crate) const BUCKET_STATE: &str = "TENURE_BUCKET_STATE";
/// Variables of options of `bucket`.
pub(crate) const BUCKET: [&str; 2] = [BUCKET_ID, BUCKET_TOTAL];

/// Name of the operator in audit trails; by default user and host.
pub(crate) const OPERATOR: &str = "TENURE_OPERATOR";

/// Default of `--liveness` of `serve` and `connectors`.
pub(crate) const LIVENESS: &str = "TENURE_LIVENESS";

/// Variables of `serve`: `TENURE_` and the name of a field of its arguments.
pub(crate) const SERVE: [&str; 18] = [
    "TENURE_LISTEN",
    "TENURE_TLS_CERT",
    "TENURE_TLS_KEY",
    "TENURE_TRUSTED_PROXIES",
    "TENURE_ADVERTISE",
    "TENURE_ALLOWED_HOSTS",
    "TENURE_KEEP_BODIES",
    "TENURE_KEEP_KEYS",
    "TENURE_AUTH_FAILURES",
    "TENURE_AUTH_WINDOW",
    "TENURE_MAX_CONNECTIONS",
    "TENURE_MAX_CONNECTIONS_PER_ADDRESS",
    "TENURE_MEMORY_BUDGET",
    "TENURE_CLIENT_TIMEOUT",
    "TENURE_DRAIN",
    LIVENESS,
    "TENURE_STATISTICS_EVERY",
    "TENURE_FIELDS",
];

/// Returns the variable of an option of `serve`.
pub(crate) fn of_serve(id: &str) -> Option<&'static str> {
    let name = format!("TENURE_{}", id.to_ascii_uppercase());
    SERVE.into_iter().find(|variable| *variable == name)
}

/// Kind of the shared store, if neither `--store` nor [`STORE`] is given. The variables below say
/// where it is.
pub(crate) const BACKEND: &str = "CONNECTOR_COORDINATION_BACKEND";
pub(crate) const REDIS_URL: &str = "REDIS_URL";
pub(crate) const REDIS_HOST: &str = "REDIS_HOST";
pub(crate) const REDIS_PORT: &str = "REDIS_PORT";
pub(crate) const REDIS_USERNAME: &str = "REDIS_USERNAME";
pub(crate) const REDIS_PASSWORD: &str = "REDIS_PASSWORD";
pub(crate) const REDIS_DB: &str = "REDIS_DB";
pub(crate) const DATABASE_URL: &str = "DATABASE_URL";
pub(crate) const ETCD_ENDPOINTS: &str = "ETCD_ENDPOINTS";

/// Published variables that are the default of an option: the command (empty for every command),
/// the option, and the variable. A variable of Tenure's own comes first.
pub(crate) const PUBLISHED: [(&str, &str, &str); 6] = [
    ("", "ttl", LEASE_TTL),
    ("", "log", LOG_FORMAT),
    ("", "log-level", LOG_LEVEL),
    ("poll", "every", POLL_INTERVAL),
    ("run", "state", CURSOR_PATH),
    ("serve", "listen", PORT),
];
/// TTL of a lease and interval of polls, in seconds.
pub(crate) const LEASE_TTL: &str = "CONNECTOR_LEASE_TTL_S";
pub(crate) const POLL_INTERVAL: &str = "CONNECTOR_POLL_INTERVAL_S";
/// File with the cursor of a connector.
pub(crate) const CURSOR_PATH: &str = "CONNECTOR_CURSOR_PATH";
/// Port of a server, on all addresses.
pub(crate) const PORT: &str = "PORT";
pub(crate) const LOG_FORMAT: &str = "LOG_FORMAT";
pub(crate) const LOG_LEVEL: &str = "LOG_LEVEL";

/// Secrets that are removed from the environment of started commands. The store's URL is not one of
/// them: a command may use the store, too.
pub(crate) const SECRETS: [&str; 3] = [SIGNING_KEYS, TARGETS, tenure_targets::TOKEN];
