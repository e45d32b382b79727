//! Endpoints: health, readiness, metrics and the OpenAPI document.

use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Incoming;
use serde_json::json;
use tenure_core::{Clock, Code};
use tenure_store::BootClock;
use tenure_wire::exposition;
use tokio::time::timeout;

use super::response::{ApiResult, json_text, json_value, typed};
use super::{ApiRequest, openapi, statistics};
use crate::access::Principal;
use crate::metrics::Gauges;

/// Timeout for the store's part of the metrics.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

impl ApiRequest<'_> {
    /// `GET /health`: the process lives.
    pub(super) async fn health(self) -> ApiResult {
        self.no_query()?;
        let uptime = BootClock.now().since(self.state.started).as_secs();
        let answer = json!({
            "status": "healthy",
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_seconds": uptime,
        });
        Ok(json_value(StatusCode::OK, &answer))
    }

    /// `GET /ready`: requests may be sent here.
    pub(super) async fn ready(self) -> ApiResult {
        self.no_query()?;
        let trouble = self.state.store.trouble();
        let (code, answer) = match trouble {
            _ if self.state.is_leaving() => (503, json!({ "status": "draining" })),
            None => (200, json!({ "status": "ready" })),
            Some(code) => {
                let status = if code == Code::Full { "store_full" } else { "store_unavailable" };
                (503, json!({ "status": status, "code": code.as_str() }))
            }
        };
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        Ok(json_value(code, &answer))
    }

    /// `GET /metrics`.
    pub(super) async fn metrics(self) -> ApiResult {
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

    /// `GET /api/openapi.json`.
    pub(super) async fn openapi(self) -> ApiResult {
        self.no_query()?;
        Ok(json_text(StatusCode::OK, openapi::document()))
    }

    /// `GET` or `POST /api/switchboard/ingest/health`: the token is good.
    pub(super) async fn ingest_health(self) -> ApiResult {
        let caller = self.caller;
        self.no_query()?;
        let scope = caller.token().and_then(|token| token.scope.as_ref()).map(|scope| {
            json!({
                "channel": scope.channel,
                "provider": scope.provider,
                "endpoint_identity": scope.endpoint_identity,
            })
        });
        let answer = json!({
            "status": "healthy",
            "authenticated": matches!(caller, Principal::Token(_)),
            "scope": scope,
        });
        Ok(json_value(StatusCode::OK, &answer))
    }

    /// For the benchmark: all that comes before the store, and nothing else.
    pub(super) async fn echo(self, body: Incoming) -> ApiResult {
        let whole = self.body(body).await?;
        Ok(json_text(StatusCode::OK, whole.bytes))
    }
}
