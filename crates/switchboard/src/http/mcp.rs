//! MCP: one message and its answer, or a stream of answers and messages that are posted beside it.

use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};

use super::answer::{Answer, Refusal, Refused, json_text, typed};
use super::outgoing::Outgoing;
use super::{Asked, body, content};
use crate::access::{Caller, Need};
use crate::mcp::{self, From, Reply, Way};

impl Asked<'_> {
    /// `POST /mcp`.
    pub(super) async fn mcp(self, body: Incoming) -> Result<Answer, Refused> {
        let caller = self.client().await?;
        self.no_query()?;
        content::json(&self.head.headers)?;
        let whole = body::read(self.state, body, mcp::LARGEST).await?;
        Ok(written(mcp::answer(self.state, self.said_by(caller), whole).await?))
    }

    /// `GET` or `DELETE /mcp`: there is no session to listen to, and none to end.
    pub(super) async fn mcp_other(self) -> Result<Answer, Refused> {
        self.client().await?;
        Err(Refusal::method_not_allowed("POST"))
    }

    /// `GET /sse`.
    pub(super) async fn sse(self) -> Result<Answer, Refused> {
        let caller = self.client().await?;
        self.no_query()?;
        let stream = mcp::open(self.state, &caller)?;
        let mut answer = Response::new(Outgoing::Stream(Box::new(stream)));
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // A proxy that collects answers before it gives them on would never give on this one.
        let collect = HeaderName::from_static("x-accel-buffering");
        headers.insert(collect, HeaderValue::from_static("no"));
        Ok(answer)
    }

    /// `POST /messages`.
    pub(super) async fn sse_message(self, body: Incoming) -> Result<Answer, Refused> {
        let caller = self.client().await?;
        let mut query = self.query()?;
        let session = query.text("session_id").unwrap_or_default();
        query.end()?;
        content::json(&self.head.headers)?;
        let way = mcp::way(self.state, &session)?;
        let whole = body::read(self.state, body, mcp::LARGEST).await?;
        let reply = match way {
            Way::Here(number) => mcp::post(self.state, number, self.said_by(caller), whole).await?,
            Way::There(replica) => {
                mcp::forward(self.state, replica, self.head, whole.bytes).await?
            }
        };
        Ok(written(reply))
    }

    async fn client(self) -> Result<Caller, Refused> {
        self.state.mcp.check_host(&self.head.headers)?;
        self.caller(Need::Recent).await
    }

    fn said_by(&self, caller: Caller) -> From<'_> {
        From { caller, headers: &self.head.headers, peer: self.visit.peer }
    }
}

fn written(reply: Reply) -> Answer {
    match reply.body.is_empty() {
        true => typed(reply.status, "text/plain", Bytes::new()),
        false => json_text(reply.status, reply.body),
    }
}
