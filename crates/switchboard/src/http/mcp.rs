//! Endpoints: MCP over one request, or over an event stream and posted messages.

use http_body_util::Either;
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};

use super::response::{ApiError, ApiResponse, ApiResult, json_text, typed};
use super::{ApiRequest, content};
use crate::mcp::{self, Mcp, McpReply, MessageOrigin};

impl ApiRequest<'_> {
    pub(super) async fn mcp(self, body: Incoming) -> ApiResult {
        let whole = self.json(body).await?;
        Ok(response(mcp::answer(self.state, self.origin(), whole).await?))
    }

    /// Rejects other methods, which would need sessions.
    pub(super) async fn mcp_other(self, _: Incoming) -> ApiResult {
        Err(ApiError::method_not_allowed("POST"))
    }

    pub(super) async fn sse(self, _: Incoming) -> ApiResult {
        self.no_query()?;
        let Mcp { sessions, replica, .. } = &self.state.mcp;
        let stream = sessions.open(*replica, self.caller, self.state.phase.subscribe());
        let stream = stream.ok_or_else(ApiError::too_many_sessions)?;
        let mut answer = Response::new(Either::Right(Box::new(stream)));
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // A proxy that buffers responses would never deliver this one.
        let buffering = HeaderName::from_static("x-accel-buffering");
        headers.insert(buffering, HeaderValue::from_static("no"));
        Ok(answer)
    }

    pub(super) async fn sse_message(self, body: Incoming) -> ApiResult {
        let mut query = self.query()?;
        let session = query.text("session_id").unwrap_or_default();
        query.end()?;
        content::json(&self.head.headers)?;
        let session = mcp::session_id(&session)?;
        let whole = self.body(body).await?;
        Ok(response(match session.replica == self.state.mcp.replica {
            true => mcp::post(self.state, session.number, self.origin(), whole).await?,
            false => mcp::forward(self.state, session.replica, self.head, whole.bytes).await?,
        }))
    }

    fn origin(&self) -> MessageOrigin<'_> {
        let (caller, headers) = (self.caller.clone(), &self.head.headers);
        MessageOrigin { caller, headers, peer: self.connection.peer }
    }
}

fn response(reply: McpReply) -> ApiResponse {
    match reply.body.is_empty() {
        true => typed(reply.status, "text/plain", Bytes::new()),
        false => json_text(reply.status, reply.body),
    }
}
