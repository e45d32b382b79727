//! Endpoints: MCP over one request, or over an event stream and posted messages.

use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};

use super::response::{ApiError, ApiResponse, ApiResult, json_text, typed};
use super::response_body::ResponseBody;
use super::{ApiRequest, content};
use crate::mcp::{self, McpReply, MessageOrigin, SessionRoute};

impl ApiRequest<'_> {
    /// `POST /mcp`.
    pub(super) async fn mcp(self, body: Incoming) -> ApiResult {
        let whole = self.json(body).await?;
        Ok(response(mcp::answer(self.state, self.origin(), whole).await?))
    }

    /// `GET` or `DELETE /mcp`: not allowed, because the transport has no sessions.
    pub(super) async fn mcp_other(self) -> ApiResult {
        Err(ApiError::method_not_allowed("POST"))
    }

    /// `GET /sse`.
    pub(super) async fn sse(self) -> ApiResult {
        self.no_query()?;
        let stream = mcp::open(self.state, self.caller)?;
        let mut answer = Response::new(ResponseBody::Stream(Box::new(stream)));
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // A proxy that collects answers before it gives them on would never give on this one.
        let collect = HeaderName::from_static("x-accel-buffering");
        headers.insert(collect, HeaderValue::from_static("no"));
        Ok(answer)
    }

    /// `POST /messages`.
    pub(super) async fn sse_message(self, body: Incoming) -> ApiResult {
        let mut query = self.query()?;
        let session = query.text("session_id").unwrap_or_default();
        query.end()?;
        content::json(&self.head.headers)?;
        let route = mcp::session_route(self.state, &session)?;
        let whole = self.body(body).await?;
        let reply = match route {
            SessionRoute::Here(number) => {
                mcp::post(self.state, number, self.origin(), whole).await?
            }
            SessionRoute::There(replica) => {
                mcp::forward(self.state, replica, self.head, whole.bytes).await?
            }
        };
        Ok(response(reply))
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
