//! Tokens, their audit trail and usage.

use async_trait::async_trait;
use tenure_core::Code;
use tokio_postgres::Row;

use super::fence::parts;
use super::row::{column, count, from_row, missing};
use super::{PostgresStorage, parameters, sql};
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::{
    Admission, Attempt, NewToken, Token, TokenAudit, TokenEnd, TokenUsage, Tokens,
};

/// Parses the reason why a token has ended, as SQL functions name it.
pub(super) fn ended(verdict: &str) -> Option<TokenEnd> {
    match verdict {
        "gone" => Some(TokenEnd::Gone),
        "revoked" => Some(TokenEnd::Revoked),
        "expired" => Some(TokenEnd::Expired),
        _ => None,
    }
}

fn odd(verdict: &str) -> SwitchboardError {
    SwitchboardError::unknown(Code::Damaged, format!("a token has the unknown state {verdict:?}"))
}

/// Reads the reason why a token has ended from a column, if there is one.
pub(super) fn refusal(row: &Row, index: usize) -> StorageResult<Option<TokenEnd>> {
    let verdict: Option<&str> = column(row, index)?;
    verdict.map(|verdict| ended(verdict).ok_or_else(|| odd(verdict))).transpose()
}

#[async_trait]
impl Tokens for PostgresStorage {
    async fn admit(&self, attempt: &Attempt) -> StorageResult<Admission> {
        let Attempt { hash, address, limit, window } = attempt;
        let hash = hash.as_ref().map(<[u8; 32]>::as_slice);
        let parameters = parameters! { hash, address, limit, window };
        let rows = self.query(sql!("token/admit"), &parameters).await?;
        let row = rows.first().ok_or_else(missing)?;
        if let Some(retry_after) = column::<Option<i64>>(row, 0)? {
            return Ok(Admission::Limited { retry_after: retry_after.max(1) });
        }
        match column(row, 1)? {
            "good" => Ok(Admission::Token(Box::new(from_row(row, 2)?))),
            "unknown" => Ok(Admission::Unknown),
            other => ended(other).map(Admission::Ended).ok_or_else(|| odd(other)),
        }
    }

    async fn has_tokens(&self) -> StorageResult<bool> {
        self.one(sql!("token/any"), &[]).await
    }

    async fn create_token(&self, token: &NewToken) -> StorageResult<bool> {
        let (hash, roles) = (token.hash.as_slice(), token.roles.join(","));
        let (channel, provider, endpoint) = parts(token.scope.as_ref());
        let parameters = parameters! {
            token.token_id, hash, token.environment, roles, channel, provider, endpoint,
            token.lifetime, token.by, token.description, token.replaces
        };
        Ok(!self.query(sql!("token/create"), &parameters).await?.is_empty())
    }

    async fn tokens(&self) -> StorageResult<Vec<Token>> {
        self.all(sql!("token/list"), &[]).await
    }

    async fn revoke_token(
        &self,
        token_id: &str,
        by: &str,
        reason: &str,
    ) -> StorageResult<Option<bool>> {
        let parameters = parameters! { token_id, by, reason };
        let (done, is_there): (bool, bool) = self.one(sql!("token/revoke"), &parameters).await?;
        Ok(is_there.then_some(done))
    }

    async fn add_usage(&self, usage: &[TokenUsage]) -> StorageResult<()> {
        let tokens: Vec<&str> = usage.iter().map(|used| used.token_id.as_str()).collect();
        let days: Vec<&str> = usage.iter().map(|used| used.day.as_str()).collect();
        let counts = |of: fn(&TokenUsage) -> i64| usage.iter().map(of).collect::<Vec<_>>();
        let (requests, accepted) = (counts(|used| used.requests), counts(|used| used.accepted));
        let (duplicates, refused) = (counts(|used| used.duplicates), counts(|used| used.refused));
        let parameters = parameters! { tokens, days, requests, accepted, duplicates, refused };
        self.query(sql!("usage/add"), &parameters).await.map(drop)
    }

    async fn usage(
        &self,
        token_id: Option<&str>,
        since_day: &str,
    ) -> StorageResult<Vec<TokenUsage>> {
        self.all(sql!("usage/list"), &parameters! { token_id, since_day }).await
    }

    async fn audit(&self, token_id: Option<&str>, limit: usize) -> StorageResult<Vec<TokenAudit>> {
        let limit = count(limit);
        self.all(sql!("audit/list"), &parameters! { token_id, limit }).await
    }
}
