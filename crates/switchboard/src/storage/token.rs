//! Tokens and attempts to use them.

use super::TokenEnd;
use super::row::{DatabaseRow, FromRow, RowReader};

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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
pub struct Attempt<'a> {
    /// SHA-256 of what was shown; `None` when nothing was, or nothing that could be a token.
    pub hash: Option<[u8; 32]>,
    /// Address without port, or the first half of one (IPv6).
    pub address: &'a str,
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

impl FromRow for Token {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        let (token_id, environment, roles): (_, _, String) = (row.get()?, row.get()?, row.get()?);
        let scope = match (row.maybe()?, row.maybe()?, row.maybe()?) {
            (Some(channel), Some(provider), Some(endpoint_identity)) => {
                Some(SourceScope { channel, provider, endpoint_identity })
            }
            _ => None,
        };
        Ok(Self {
            token_id,
            environment,
            roles: roles.split(',').filter(|role| !role.is_empty()).map(str::to_owned).collect(),
            scope,
            created_at: row.time()?,
            created_by: row.get()?,
            expires_at: row.time()?,
            revoked_at: row.maybe_time()?,
            revoked_by: row.maybe()?,
            revoked_reason: row.maybe()?,
            description: row.get()?,
            replaces_token_id: row.maybe()?,
            last_used_at: row.maybe_time()?,
        })
    }
}

impl FromRow for SourceScope {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Ok(Self { channel: row.get()?, provider: row.get()?, endpoint_identity: row.get()? })
    }
}

impl FromRow for TokenAudit {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Ok(Self {
            token_id: row.get()?,
            action_type: row.get()?,
            operator_identity: row.get()?,
            reason: row.get()?,
            performed_at: row.time()?,
            metadata: row.get()?,
        })
    }
}

impl FromRow for TokenUsage {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Ok(Self {
            token_id: row.get()?,
            day: row.get()?,
            requests: row.get()?,
            accepted: row.get()?,
            duplicates: row.get()?,
            refused: row.get()?,
        })
    }
}
