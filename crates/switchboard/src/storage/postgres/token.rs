//! Tokens, their audit trail and usage.

use tenure_core::Code;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::row::{column, count, from_row, missing};
use super::{Parameter, PostgresStorage};
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::{
    Admission, Attempt, NewToken, Permitted, Token, TokenAudit, TokenEnd, TokenUsage,
};

/// Why a token has ended, as routines say it.
pub(super) fn ended(verdict: &str) -> Option<TokenEnd> {
    match verdict {
        "gone" => Some(TokenEnd::Gone),
        "revoked" => Some(TokenEnd::Revoked),
        "expired" => Some(TokenEnd::Expired),
        _ => None,
    }
}

fn odd(verdict: &str) -> SwitchboardError {
    SwitchboardError::unknown(Code::Damaged, format!("a token is {verdict:?}"))
}

/// Why a token has ended, if a column says that it has.
pub(super) fn refusal(row: &Row, index: usize) -> StorageResult<Option<TokenEnd>> {
    let verdict: Option<&str> = column(row, index)?;
    verdict.map(|verdict| ended(verdict).ok_or_else(|| odd(verdict))).transpose()
}

/// Reads the one row of a change, of which the first column says why its token has ended.
pub(super) fn permitted<T>(
    rows: &[Row],
    read: impl FnOnce(&Row) -> StorageResult<T>,
) -> Permitted<T> {
    let row = rows.first().ok_or_else(missing)?;
    match refusal(row, 0)? {
        Some(ended) => Ok(Err(ended)),
        None => read(row).map(Ok),
    }
}

impl PostgresStorage {
    pub(super) async fn judge(&self, attempt: &Attempt<'_>) -> StorageResult<Admission> {
        let hash = attempt.hash.as_ref().map(<[u8; 32]>::as_slice);
        let parameters: [Parameter<'_>; 4] = [
            (&hash, Type::BYTEA),
            (&attempt.address, Type::TEXT),
            (&attempt.limit, Type::INT8),
            (&attempt.window, Type::INT8),
        ];
        let rows = self.data.query(&self.statements.token_admit, &parameters).await?;
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

    pub(super) async fn make_token(&self, token: &NewToken) -> StorageResult<bool> {
        let (hash, roles) = (token.hash.as_slice(), token.roles.join(","));
        let scope = token.scope.as_ref();
        let channel = scope.map(|scope| scope.channel.as_str());
        let provider = scope.map(|scope| scope.provider.as_str());
        let endpoint = scope.map(|scope| scope.endpoint_identity.as_str());
        let parameters: [Parameter<'_>; 11] = [
            (&token.token_id, Type::TEXT),
            (&hash, Type::BYTEA),
            (&token.environment, Type::TEXT),
            (&roles, Type::TEXT),
            (&channel, Type::TEXT),
            (&provider, Type::TEXT),
            (&endpoint, Type::TEXT),
            (&token.lifetime, Type::INT8),
            (&token.by, Type::TEXT),
            (&token.description, Type::TEXT),
            (&token.replaces, Type::TEXT),
        ];
        let rows = self.data.query(&self.statements.token_create, &parameters).await?;
        Ok(!rows.is_empty())
    }

    pub(super) async fn list_tokens(&self) -> StorageResult<Vec<Token>> {
        self.rows(&self.statements.token_list, &[]).await
    }

    pub(super) async fn end_token(
        &self,
        token_id: &str,
        by: &str,
        reason: &str,
    ) -> StorageResult<Option<bool>> {
        let parameters: [Parameter<'_>; 3] =
            [(&token_id, Type::TEXT), (&by, Type::TEXT), (&reason, Type::TEXT)];
        let rows = self.data.query(&self.statements.token_revoke, &parameters).await?;
        let row = rows.first().ok_or_else(missing)?;
        let (done, is_there): (bool, bool) = (column(row, 0)?, column(row, 1)?);
        Ok(is_there.then_some(done))
    }

    pub(super) async fn count_usage(&self, usage: &[TokenUsage]) -> StorageResult<()> {
        let tokens: Vec<&str> = usage.iter().map(|used| used.token_id.as_str()).collect();
        let days: Vec<&str> = usage.iter().map(|used| used.day.as_str()).collect();
        let requests: Vec<i64> = usage.iter().map(|used| used.requests).collect();
        let accepted: Vec<i64> = usage.iter().map(|used| used.accepted).collect();
        let duplicates: Vec<i64> = usage.iter().map(|used| used.duplicates).collect();
        let refused: Vec<i64> = usage.iter().map(|used| used.refused).collect();
        let parameters: [Parameter<'_>; 6] = [
            (&tokens, Type::TEXT_ARRAY),
            (&days, Type::TEXT_ARRAY),
            (&requests, Type::INT8_ARRAY),
            (&accepted, Type::INT8_ARRAY),
            (&duplicates, Type::INT8_ARRAY),
            (&refused, Type::INT8_ARRAY),
        ];
        self.data.query(&self.statements.usage_add, &parameters).await?;
        Ok(())
    }

    pub(super) async fn read_usage(
        &self,
        token_id: Option<&str>,
        since_day: &str,
    ) -> StorageResult<Vec<TokenUsage>> {
        let parameters: [Parameter<'_>; 2] = [(&token_id, Type::TEXT), (&since_day, Type::TEXT)];
        self.rows(&self.statements.usage_list, &parameters).await
    }

    pub(super) async fn read_audit(
        &self,
        token_id: Option<&str>,
        limit: usize,
    ) -> StorageResult<Vec<TokenAudit>> {
        let limit = count(limit);
        let parameters: [Parameter<'_>; 2] = [(&token_id, Type::TEXT), (&limit, Type::INT8)];
        self.rows(&self.statements.audit_list, &parameters).await
    }
}
