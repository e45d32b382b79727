//! Environment variables.

/// Default of `--store`.
pub(crate) const STORE: &str = "TENURE_STORE";

/// Whether checkpoints are signed: `off`, `write` or `require`.
pub(crate) const SIGNING: &str = "TENURE_SIGNING";

/// The signing keys themselves.
pub(crate) const SIGNING_KEYS: &str = "TENURE_SIGNING_KEYS";

/// A file with the signing keys.
pub(crate) const SIGNING_KEYS_FILE: &str = "TENURE_SIGNING_KEYS_FILE";

/// Default of `--listen` of long-running commands.
pub(crate) const HEALTH_PORT: &str = "CONNECTOR_HEALTH_PORT";

/// Default of `--targets` of `poll`.
pub(crate) const TARGETS: &str = "TENURE_TARGETS";

/// Switchboard and connector of `beat`: connectors read the same variables.
pub(crate) const SWITCHBOARD_URL: &str = "SWITCHBOARD_API_BASE_URL";
pub(crate) const CONNECTOR_TYPE: &str = "CONNECTOR_PROVIDER";
pub(crate) const CONNECTOR_ENDPOINT: &str = "CONNECTOR_ENDPOINT_IDENTITY";
pub(crate) const CONNECTOR_INSTANCE: &str = "CONNECTOR_INSTANCE_ID";

/// Variables that stand for options of `beat`.
pub(crate) const BEAT: [&str; 4] =
    [SWITCHBOARD_URL, CONNECTOR_TYPE, CONNECTOR_ENDPOINT, CONNECTOR_INSTANCE];

/// Token of a connector. Commands that Tenure starts get it: they are connectors.
pub(crate) const SWITCHBOARD_TOKEN: &str = "SWITCHBOARD_API_TOKEN";

/// Interval of `beat --every` in seconds, and whether `beat` sends anything.
pub(crate) const HEARTBEAT_INTERVAL: &str = "CONNECTOR_HEARTBEAT_INTERVAL_S";
pub(crate) const HEARTBEAT_ENABLED: &str = "CONNECTOR_HEARTBEAT_ENABLED";

/// The bucket of a run, and how many there are: `bucket next` sets them for the command it runs.
pub(crate) const BUCKET_ID: &str = "TENURE_BUCKET_ID";
pub(crate) const BUCKET_TOTAL: &str = "TENURE_BUCKET_TOTAL";
/// Files with the config and the state of that run.
pub(crate) const BUCKET_CONFIG: &str = "TENURE_BUCKET_CONFIG";
pub(crate) const BUCKET_STATE: &str = "TENURE_BUCKET_STATE";
/// Variables that stand for options of `bucket`.
pub(crate) const BUCKET: [&str; 2] = [BUCKET_ID, BUCKET_TOTAL];

/// Name of the operator in audit trails; by default user and host.
pub(crate) const OPERATOR: &str = "TENURE_OPERATOR";

/// Defaults of the options of `serve`.
pub(crate) const LISTEN: &str = "TENURE_LISTEN";
pub(crate) const TLS_CERT: &str = "TENURE_TLS_CERT";
pub(crate) const TLS_KEY: &str = "TENURE_TLS_KEY";
pub(crate) const TRUSTED_PROXIES: &str = "TENURE_TRUSTED_PROXIES";
pub(crate) const ADVERTISE: &str = "TENURE_ADVERTISE";
pub(crate) const ALLOWED_HOSTS: &str = "TENURE_ALLOWED_HOSTS";
pub(crate) const KEEP_BODIES: &str = "TENURE_KEEP_BODIES";
pub(crate) const KEEP_KEYS: &str = "TENURE_KEEP_KEYS";
pub(crate) const AUTH_FAILURES: &str = "TENURE_AUTH_FAILURES";
pub(crate) const AUTH_WINDOW: &str = "TENURE_AUTH_WINDOW";
pub(crate) const MAX_CONNECTIONS: &str = "TENURE_MAX_CONNECTIONS";
pub(crate) const MAX_CONNECTIONS_PER_ADDRESS: &str = "TENURE_MAX_CONNECTIONS_PER_ADDRESS";
pub(crate) const MEMORY_BUDGET: &str = "TENURE_MEMORY_BUDGET";
pub(crate) const CLIENT_TIMEOUT: &str = "TENURE_CLIENT_TIMEOUT";
pub(crate) const DRAIN: &str = "TENURE_DRAIN";
/// Default of `--liveness` of `serve` and `connectors`.
pub(crate) const LIVENESS: &str = "TENURE_LIVENESS";
pub(crate) const STATISTICS_EVERY: &str = "TENURE_STATISTICS_EVERY";
pub(crate) const FIELDS: &str = "TENURE_FIELDS";

/// All variables of `serve`.
pub(crate) const SERVE: [&str; 18] = [
    LISTEN,
    TLS_CERT,
    TLS_KEY,
    TRUSTED_PROXIES,
    ADVERTISE,
    ALLOWED_HOSTS,
    KEEP_BODIES,
    KEEP_KEYS,
    AUTH_FAILURES,
    AUTH_WINDOW,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    MEMORY_BUDGET,
    CLIENT_TIMEOUT,
    DRAIN,
    LIVENESS,
    STATISTICS_EVERY,
    FIELDS,
];

/// Secrets of Tenure that the commands it starts do not get. The store's URL is not among them: a
/// command may use the store, too.
pub(crate) const SECRETS: [&str; 3] = [SIGNING_KEYS, TARGETS, tenure_targets::TOKEN];
