//! What rmcp asks of a server.

use std::pin::Pin;
use std::sync::Arc;

use hyper::http::request::Parts;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::json;

use super::result::Told;
use super::{Call, tools};
use crate::http::answer::Refusal;
use crate::http::unpanicked;

/// How much of a name that nobody knows is repeated.
const SHOWN: usize = 100;

/// The tools, and what stands for their results on the way.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    all: Arc<Vec<Tool>>,
    mark: Arc<str>,
}

impl Tools {
    pub(super) fn new(mark: Arc<str>) -> Self {
        Self { all: Arc::new(tools::all()), mark }
    }

    fn result(&self, call: &Call, text: String) -> CallToolResult {
        self.put(call, Told::new(text, None))
    }

    fn put(&self, call: &Call, told: Told) -> CallToolResult {
        *call.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(told);
        let mut result = CallToolResult::success(vec![ContentBlock::text(&*self.mark)]);
        result.structured_content = Some((*self.mark).into());
        result
    }

    /// What is wrong with what was sent is a result like others: clients are to read it. That
    /// something may not be or could not be done is an error.
    fn refused(&self, call: &Call, refusal: &Refusal) -> CallToolResult {
        call.state.heard(refusal);
        let says = refusal.message();
        match refusal.error {
            "validation_error" | "bad_request" | "too_large" => {
                self.result(call, json!({ "status": "error", "error": says }).to_string())
            }
            error => CallToolResult::error(vec![ContentBlock::text(format!("{error}: {says}"))]),
        }
    }
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        let name = Implementation::new("tenure-switchboard", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(name)
            .with_instructions(tools::INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.all.to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.all.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = context.extensions.get::<Parts>();
        let call = call.and_then(|parts| parts.extensions.get::<Arc<Call>>()).cloned();
        let Some(call) = call else {
            return Err(ErrorData::internal_error("the message was lost", None));
        };
        let Some(tool) = tools::find(&request.name) else {
            let name: String = request.name.chars().take(SHOWN).collect();
            return Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None));
        };
        // Without its type: rmcp wraps it so often that the compiler would give up on it.
        let work: Pin<Box<dyn Future<Output = _> + Send + '_>> = Box::pin(tools::run(&call, tool));
        // rmcp would let a tool run on whose client has gone, and never answer for one that panics.
        let done = tokio::select! {
            done = unpanicked(work) => done,
            () = context.ct.cancelled() => {
                return Err(ErrorData::internal_error("nobody waits for this any more", None));
            }
        };
        let result = match done {
            Ok(told) => self.put(&call, told),
            Err(refusal) => self.refused(&call, &refusal),
        };
        Ok(result.into())
    }
}
