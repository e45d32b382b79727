//! The same tools for clients that speak MCP.

use hyper::body::Incoming;

use super::Asked;
use super::answer::{Answer, Refusal, Refused};

impl Asked<'_> {
    /// `POST /mcp`.
    pub(super) async fn mcp(self, _body: Incoming) -> Result<Answer, Refused> {
        Err(Refusal::internal())
    }

    /// `GET` or `DELETE /mcp`.
    pub(super) async fn mcp_other(self) -> Result<Answer, Refused> {
        Err(Refusal::internal())
    }

    /// `GET /sse`.
    pub(super) async fn sse(self) -> Result<Answer, Refused> {
        Err(Refusal::internal())
    }

    /// `POST /messages`.
    pub(super) async fn sse_message(self, _body: Incoming) -> Result<Answer, Refused> {
        Err(Refusal::internal())
    }
}
