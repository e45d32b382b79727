//! rmcp server handler: lists and calls the tools.

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

use super::result::ToolResult;
use super::{ToolCall, tools};
use crate::http::catch_panic;
use crate::http::response::ApiError;
use crate::lock;

/// Maximum length of an unknown tool name in an error.
const MAX_ECHOED_CHARS: usize = 100;

/// The tools, and the marker that stands for their results inside rmcp.
#[derive(Clone, Debug)]
pub(super) struct ToolServer {
    all: Arc<Vec<Tool>>,
    mark: Arc<str>,
}

impl ToolServer {
    pub(super) fn new(mark: Arc<str>) -> Self {
        Self { all: Arc::new(tools::all()), mark }
    }

    fn put(&self, call: &ToolCall, result: ToolResult) -> CallToolResult {
        *lock(&call.result) = Some(result);
        let mut result = CallToolResult::success(vec![ContentBlock::text(&*self.mark)]);
        result.structured_content = Some((*self.mark).into());
        result
    }

    /// Invalid input is a normal result, so that clients read it. A forbidden or failed call is an
    /// error.
    fn error_result(&self, call: &ToolCall, error: &ApiError) -> CallToolResult {
        call.state.report_failure(error);
        let says = error.message();
        match error.error {
            "validation_error" | "bad_request" | "too_large" => {
                self.put(call, tools::small_result(&json!({ "status": "error", "error": says })))
            }
            error => CallToolResult::error(vec![ContentBlock::text(format!("{error}: {says}"))]),
        }
    }
}

impl ServerHandler for ToolServer {
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
        let call = call.and_then(|parts| parts.extensions.get::<Arc<ToolCall>>()).cloned();
        let Some(call) = call else {
            return Err(ErrorData::internal_error(
                "internal error: the message has no context",
                None,
            ));
        };
        let Some(tool) = tools::find(&request.name) else {
            let name: String = request.name.chars().take(MAX_ECHOED_CHARS).collect();
            return Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None));
        };
        // Boxed without its type: rmcp nests it so deeply that the compiler would give up.
        let work: Pin<Box<dyn Future<Output = _> + Send + '_>> = Box::pin(tools::run(&call, tool));
        // rmcp would keep a tool running after its client left, and never answer after a panic.
        let done = tokio::select! {
            done = catch_panic(work) => done,
            () = context.ct.cancelled() => {
                return Err(ErrorData::internal_error("the request was cancelled", None));
            }
        };
        let result = match done {
            Ok(result) => self.put(&call, result),
            Err(error) => self.error_result(&call, &error),
        };
        Ok(result.into())
    }
}
