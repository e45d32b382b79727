//! Endpoints: health, readiness, metrics and the OpenAPI document.

use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Incoming;
use serde_json::json;
use tenure_core::{Clock, Code};
use tenure_store::BootClock;
use tenure_wire::exposition;
use tokio::time::timeout;

use super::response::{ApiResult, json_text, json_value, ok, typed};
use super::{ApiRequest, openapi, statistics};
use crate::metrics::Gauges;

/// Timeout for the store's part of the metrics.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

impl ApiRequest<'_> {
    /// Reports that the process is alive.
    pub(super) async fn health(self, _: Incoming) -> ApiResult {
        self.no_query()?;
        let uptime = BootClock.now().since(self.state.started).as_secs();
        ok(&json!({
            "status": "healthy",
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_seconds": uptime,
        }))
    }

    /// Reports whether the server accepts requests.
    pub(super) async fn ready(self, _: Incoming) -> ApiResult {
        self.no_query()?;
        let answer = match self.state.store.trouble() {
            _ if self.state.is_leaving() => json!({ "status": "draining" }),
            None => return ok(&json!({ "status": "ready" })),
            Some(code) => {
                let status = if code == Code::Full { "store_full" } else { "store_unavailable" };
                json!({ "status": status, "code": code.as_str() })
            }
        };
        Ok(json_value(StatusCode::SERVICE_UNAVAILABLE, &answer))
    }

    pub(super) async fn metrics(self, _: Incoming) -> ApiResult {
        self.no_query()?;
        let pending = timeout(STORE_TIMEOUT, self.state.storage.pending_letters()).await;
        let text = self.state.metrics.text(Gauges {
            queue: self.state.committer.waiting(),
            budget: self.state.budget.taken(),
            budget_size: self.state.budget.size(),
            pending_letters: pending.ok().and_then(Result::ok),
            connectors: timeout(STORE_TIMEOUT, statistics::liveness_counts(self.state))
                .await
                .ok()
                .flatten(),
            lag: statistics::lag(self.state),
            sse_sessions: self.state.mcp.sessions.count(),
        });
        Ok(typed(StatusCode::OK, exposition::CONTENT_TYPE, text.into()))
    }

    pub(super) async fn openapi(self, _: Incoming) -> ApiResult {
        self.no_query()?;
        Ok(json_text(StatusCode::OK, openapi::document()))
    }

    /// Reports that the token is valid.
    pub(super) async fn ingest_health(self, _: Incoming) -> ApiResult {
        self.no_query()?;
        let token = self.caller.token();
        ok(&json!({
            "status": "healthy",
            "authenticated": token.is_some(),
            "scope": token.map(|token| &token.scope),
        }))
    }

    /// Returns the body, for benchmarks of everything but the store.
    pub(super) async fn echo(self, body: Incoming) -> ApiResult {
        let whole = self.body(body).await?;
        Ok(json_text(StatusCode::OK, whole.bytes))
    }
}
