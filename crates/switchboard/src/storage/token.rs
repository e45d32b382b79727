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
    /// For which source it may submit; each part equals that of the envelope.
    pub scope: Option<SourceScope>,
    /// In Unix microseconds.
    pub created_at: i64,
    /// By whom.
    pub created_by: String,
    /// In Unix microseconds.
    pub expires_at: i64,
    /// In Unix microseconds.
    pub revoked_at: Option<i64>,
    /// By whom.
    pub revoked_by: Option<String>,
    /// Why.
    pub revoked_reason: Option<String>,
    /// For people.
    pub description: String,
    /// The token that it takes over from.
    pub replaces_token_id: Option<String>,
    /// To the minute, in Unix microseconds.
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
    /// For people.
    pub description: String,
    /// The token that it takes over from; both are good meanwhile.
    pub replaces: Option<String>,
}

/// An entry of the audit trail of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAudit {
    /// Which token.
    pub token_id: String,
    /// `create`, `rotate`, `revoke`, `fence_reset` (then the id is the duty).
    pub action_type: String,
    /// By whom.
    pub operator_identity: String,
    /// Why.
    pub reason: String,
    /// In Unix microseconds.
    pub performed_at: i64,
    /// JSON text.
    pub metadata: String,
}

/// Usage of a token on a day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Which token.
    pub token_id: String,
    /// `2026-02-15`, UTC.
    pub day: String,
    /// Requests that were let in.
    pub requests: i64,
    /// Events that were new.
    pub accepted: i64,
    /// Events that were not.
    pub duplicates: i64,
    /// Events and requests that were refused.
    pub refused: i64,
}

/// An attempt to use the API.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// SHA-256 of what was shown; `None` when nothing was, or nothing that could be a token.
    pub hash: Option<[u8; 32]>,
    /// Address without port, or the first half of one (IPv6).
    pub address: String,
    /// Maximum number of failures of an address within a window.
    pub limit: i64,
    /// Length of a window in microseconds, from its first failure.
    pub window: i64,
}

/// Outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// With this token.
    Token(Box<Token>),
    /// The token is known and does not count any more. Not a failure: nobody guesses those.
    Ended(TokenEnd),
    /// No such token; the failure was counted.
    Unknown,
    /// Too many failures from this address.
    Limited {
        /// Until the window ends, in microseconds.
        retry_after: i64,
    },
}

/// Storage of tokens, their usage and audit trail.
#[async_trait]
pub trait Tokens {
    /// Judges an attempt in one atomic statement and counts it if it failed.
    async fn admit(&self, attempt: &Attempt) -> StorageResult<Admission>;
    /// Whether a token was ever created, even if all have ended.
    async fn has_tokens(&self) -> StorageResult<bool>;
    /// Creates a token. Returns `false` if the token that it replaces does not exist.
    async fn create_token(&self, token: &NewToken) -> StorageResult<bool>;
    /// All tokens, oldest first.
    async fn tokens(&self) -> StorageResult<Vec<Token>>;
    /// Ends a token at once. Returns `None` if there is none of that id, `false` if it had ended.
    async fn revoke_token(
        &self,
        token_id: &str,
        by: &str,
        reason: &str,
    ) -> StorageResult<Option<bool>>;
    /// Adds to the usage of tokens and records the time of their use.
    async fn add_usage(&self, usage: &[TokenUsage]) -> StorageResult<()>;
    /// Usage of a token, or of all, since a day.
    async fn usage(
        &self,
        token_id: Option<&str>,
        since_day: &str,
    ) -> StorageResult<Vec<TokenUsage>>;
    /// The audit trail, newest first, of a token or of all.
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

/// Splits names that are stored with commas.
pub(super) fn split(names: &str) -> Vec<String> {
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
