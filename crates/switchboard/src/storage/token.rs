//! Tokens and attempts to use them.

use serde::{Deserialize, Serialize};

use async_trait::async_trait;

use super::TokenEnd;
use super::row::from_row;
use crate::error::StorageResult;

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// `tok_...`.
    pub token_id: String,
    /// `live`, `staging` or `dev`.
    pub environment: String,
    /// Its roles.
    pub roles: Vec<String>,
    /// Source that it may submit for; each part equals that of the envelope.
    pub scope: Option<SourceScope>,
    /// Time of creation, in Unix microseconds.
    pub created_at: i64,
    /// Operator who created it.
    pub created_by: String,
    /// Time of expiry, in Unix microseconds.
    pub expires_at: i64,
    /// Time of revocation, in Unix microseconds.
    pub revoked_at: Option<i64>,
    /// Operator who revoked it.
    pub revoked_by: Option<String>,
    /// Reason for the revocation.
    pub revoked_reason: Option<String>,
    /// Description for operators.
    pub description: String,
    /// Id of the token that it replaces.
    pub replaces_token_id: Option<String>,
    /// Time of the last use, to the minute, in Unix microseconds.
    pub last_used_at: Option<i64>,
}

/// A source: channel, provider and endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceScope {
    /// `source.channel`.
    pub channel: String,
    /// `source.provider`.
    pub provider: String,
    /// `source.endpoint_identity`.
    pub endpoint_identity: String,
}

/// A token to be created.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// `tok_...`.
    pub token_id: String,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    /// As in [`Token`].
    pub environment: String,
    /// As in [`Token`].
    pub roles: Vec<String>,
    /// As in [`Token`].
    pub scope: Option<SourceScope>,
    /// Lifetime in microseconds from now.
    pub lifetime: i64,
    /// The operator who creates it.
    pub by: String,
    /// Description for operators.
    pub description: String,
    /// Id of the token that it replaces; both are valid until that one is revoked or expires.
    pub replaces: Option<String>,
}

/// An entry of the audit trail of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAudit {
    /// Id of the token.
    pub token_id: String,
    /// `create`, `rotate`, `revoke`, or `fence_reset` with the duty as id.
    pub action_type: String,
    /// Author of the change.
    pub operator_identity: String,
    /// Reason.
    pub reason: String,
    /// Time of the change, in Unix microseconds.
    pub performed_at: i64,
    /// JSON object.
    pub metadata: String,
}

/// Usage of a token on a day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Id of the token.
    pub token_id: String,
    /// Day (UTC), as in `2026-02-15`.
    pub day: String,
    /// Admitted requests.
    pub requests: i64,
    /// New events.
    pub accepted: i64,
    /// Duplicate events.
    pub duplicates: i64,
    /// Rejected events and requests.
    pub refused: i64,
}

/// An attempt to use the API.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// SHA-256 of the presented token; `None` if there was none or it was malformed.
    pub hash: Option<[u8; 32]>,
    /// Address without port; for IPv6 the /64 network.
    pub address: String,
    /// Maximum number of failures of an address within a window.
    pub limit: i64,
    /// Length of a window in microseconds, from its first failure.
    pub window: i64,
}

/// Outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Admitted with this token.
    Token(Box<Token>),
    /// The token is known but no longer valid. Not a failure, because it was not guessed.
    Ended(TokenEnd),
    /// No such token; the failure was counted.
    Unknown,
    /// Too many failures from this address.
    Limited {
        /// Time until the window ends, in microseconds.
        retry_after: i64,
    },
}

/// Storage of tokens, their usage and audit trail.
#[async_trait]
pub trait Tokens {
    /// Judges an attempt in one atomic statement and counts it if it failed.
    async fn admit(&self, attempt: &Attempt) -> StorageResult<Admission>;
    /// Returns whether a token was ever created, even if all have ended.
    async fn has_tokens(&self) -> StorageResult<bool>;
    /// Creates a token. Returns `false` if the token that it replaces does not exist.
    async fn create_token(&self, token: &NewToken) -> StorageResult<bool>;
    /// Returns all tokens, oldest first.
    async fn tokens(&self) -> StorageResult<Vec<Token>>;
    /// Revokes a token at once, even an expired one: the store's clock may be set back. Returns
    /// `None` if no token has this id, `false` if it was revoked before.
    async fn revoke_token(
        &self,
        token_id: &str,
        by: &str,
        reason: &str,
    ) -> StorageResult<Option<bool>>;
    /// Adds to the usage of tokens and records the time of their use.
    async fn add_usage(&self, usage: &[TokenUsage]) -> StorageResult<()>;
    /// Returns the usage of a token, or of all, since a day.
    async fn usage(
        &self,
        token_id: Option<&str>,
        since_day: &str,
    ) -> StorageResult<Vec<TokenUsage>>;
    /// Returns the audit trail of a token or of all, newest first.
    async fn audit(&self, token_id: Option<&str>, limit: usize) -> StorageResult<Vec<TokenAudit>>;
}

from_row! { Token, |row|
    token_id, environment, roles = split(&row.get::<String>()?),
    scope = match (row.get()?, row.get()?, row.get()?) {
        (Some(channel), Some(provider), Some(endpoint_identity)) => {
            Some(SourceScope { channel, provider, endpoint_identity })
        }
        _ => None,
    },
    created_at, created_by, expires_at, revoked_at, revoked_by, revoked_reason, description,
    replaces_token_id, last_used_at,
}
from_row! { SourceScope, |row| channel, provider, endpoint_identity }
from_row! { TokenAudit, |row|
    token_id, action_type, operator_identity, reason, performed_at, metadata,
}
from_row! { TokenUsage, |row| token_id, day, requests, accepted, duplicates, refused }

/// Splits names that are stored separated by commas.
pub(super) fn split(names: &str) -> Vec<String> {
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
