//! Table of endpoints. It drives routing, access control, body limits, metrics and the OpenAPI
//! document: a new endpoint is one row here and one handler.

use std::pin::Pin;

use hyper::body::Incoming;

use super::response::ApiResult;
use super::{ApiRequest, batch, dead_letters, heartbeat, ingest};
use crate::access::Requirement::{self, Nothing, RecentToken, Role, Token};
use crate::mcp;
use crate::token::Role::{Admin, Consume, Ingest, Read};

/// Boxed, so that one table holds all handlers.
pub(super) type HandlerFuture<'a> = Pin<Box<dyn Future<Output = ApiResult> + Send + 'a>>;
type Handler = for<'a> fn(ApiRequest<'a>, Incoming) -> HandlerFuture<'a>;

pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// Path with a `{name}` for each parameter.
    pub(crate) path: &'static str,
    pub(crate) requires: Requirement,
    /// Value of the label `route` in metrics.
    pub(crate) label: &'static str,
    pub(super) handler: Handler,
    /// Limit on the body, and its schema.
    pub(super) body: Option<(usize, &'static str)>,
    /// Description in the OpenAPI document; `None` for endpoints that are not described there.
    pub(super) operation: Option<OpenApiOperation>,
    /// Whether it is served on surplus connections, too.
    pub(super) for_monitoring: bool,
}

/// Description of an endpoint. Texts, parameters and examples are in `openapi/operations.json`.
pub(super) struct OpenApiOperation {
    pub(super) id: &'static str,
    pub(super) status: &'static str,
    pub(super) response: &'static str,
}

impl Route {
    const fn body(self, max_bytes: usize, schema: &'static str) -> Self {
        Self { body: Some((max_bytes, schema)), ..self }
    }

    const fn doc(self, id: &'static str, status: &'static str, response: &'static str) -> Self {
        Self { operation: Some(OpenApiOperation { id, status, response }), ..self }
    }

    const fn for_monitoring(self) -> Self {
        Self { for_monitoring: true, ..self }
    }
}

const MAX_COMMAND_BYTES: usize = 64 << 10;
/// Benchmark endpoint: the cost of the server without the store.
pub(crate) const ECHO: &str = "/api/switchboard/echo";

/// Rows of the table: method, path, credentials, label in metrics, handler; then the limit and the
/// schema of the body, and the operation id, status and response schema for the OpenAPI document.
macro_rules! routes {
    ($($method:ident $path:expr, $requires:expr, $label:literal => $handler:ident
        $(.$step:ident($($value:expr),*))*;)*) => {
        &[$(Route {
            method: stringify!($method),
            path: $path,
            requires: $requires,
            label: $label,
            handler: |request, body| Box::pin(request.$handler(body)),
            body: None,
            operation: None,
            for_monitoring: false,
        }$(.$step($($value),*))*),*]
    };
}

/// All endpoints, the busiest first.
pub(crate) const ROUTES: &[Route] = routes! {
    POST "/api/switchboard/ingest", Role(Ingest), "ingest" => ingest
        .body(ingest::MAX_EVENT_BYTES, "Envelope").doc("ingest", "202", "Accepted");
    POST "/api/switchboard/ingest/batch", Role(Ingest), "ingest_batch" => batch
        .body(batch::MAX_BATCH_BYTES, "Batch").doc("ingestBatch", "202", "BatchOutcome");
    GET "/api/switchboard/ingest/health", Token, "ingest_health" => ingest_health
        .doc("ingestHealthGet", "200", "TokenHealth");
    POST "/api/switchboard/ingest/health", Token, "ingest_health" => ingest_health
        .doc("ingestHealthPost", "200", "TokenHealth");
    GET "/api/switchboard/inbox", Role(Read), "inbox" => inbox
        .doc("inbox", "200", "InboxPage");
    GET "/api/switchboard/inbox/{request_id}", Role(Read), "inbox_message" => message
        .doc("message", "200", "MessageResponse");
    GET "/api/switchboard/dead-letters", Role(Read), "dead_letters" => letters
        .doc("deadLetters", "200", "LetterPage");
    POST "/api/switchboard/dead-letters", Role(Ingest), "dead_letters_post" => post_letter
        .body(dead_letters::MAX_LETTER_BYTES, "NewLetter").doc("postDeadLetter", "202", "Kept");
    GET "/api/switchboard/dead-letters/{id}", Role(Read), "dead_letter" => letter
        .doc("deadLetter", "200", "LetterResponse");
    POST "/api/switchboard/dead-letters/{id}/replay", Role(Admin), "dead_letter_replay" => replay
        .body(dead_letters::MAX_LETTER_BYTES, "ReplayRequest").doc("replay", "202", "Replayed");
    POST "/api/switchboard/dead-letters/{id}/discard", Role(Admin), "dead_letter_discard" => discard
        .body(MAX_COMMAND_BYTES, "DiscardRequest").doc("discard", "200", "Discarded");
    GET "/api/switchboard/fences", Role(Read), "fences" => fences
        .doc("fences", "200", "FencePage");
    POST "/api/switchboard/fences/reset", Role(Admin), "fences_reset" => reset_fence
        .body(MAX_COMMAND_BYTES, "ResetRequest").doc("resetFence", "200", "ResetResponse");
    POST "/api/switchboard/heartbeat", Role(Ingest), "heartbeat" => heartbeat
        .body(heartbeat::MAX_HEARTBEAT_BYTES, "Heartbeat")
        .doc("heartbeat", "200", "HeartbeatResponse");
    POST "/api/switchboard/inbox/{request_id}/outcome", Role(Consume), "inbox_outcome" => outcome
        .body(MAX_COMMAND_BYTES, "OutcomeReport").doc("outcome", "200", "OutcomeResponse");
    GET "/api/connectors", Role(Read), "connectors" => connectors
        .doc("connectors", "200", "ConnectorPage");
    GET "/api/connectors/summary", Role(Read), "connector_summary" => connector_summary
        .doc("connectorSummary", "200", "SummaryResponse");
    GET "/api/connectors/fanout", Role(Read), "connector_fanout" => fanout
        .doc("fanout", "200", "FanoutResponse");
    GET "/api/connectors/{connector_type}/{endpoint_identity}", Role(Read), "connector" => connector
        .doc("connector", "200", "ConnectorResponse");
    DELETE "/api/connectors/{connector_type}/{endpoint_identity}", Role(Admin), "connector_delete"
        => delete_connector
        .body(MAX_COMMAND_BYTES, "ReasonRequest").doc("deleteConnector", "200", "Deleted");
    GET "/api/connectors/{connector_type}/{endpoint_identity}/stats", Role(Read), "connector_stats"
        => connector_stats
        .doc("connectorStats", "200", "StatsResponse");
    GET "/api/connectors/{connector_type}/{endpoint_identity}/heartbeats", Role(Read),
        "connector_heartbeats" => heartbeats
        .doc("heartbeats", "200", "HistoryPage");
    POST "/api/connectors/{connector_type}/{endpoint_identity}/archive", Role(Admin),
        "connector_archive" => archive
        .body(MAX_COMMAND_BYTES, "ArchiveRequest").doc("archiveConnector", "200", "Archived");
    POST "/api/connectors/{connector_type}/{endpoint_identity}/recount", Role(Admin),
        "connector_recount" => recount
        .body(MAX_COMMAND_BYTES, "ReasonRequest").doc("recountConnector", "200", "Recounted");
    POST "/mcp", RecentToken, "mcp" => mcp .body(mcp::MAX_MESSAGE_BYTES, "Message");
    GET "/mcp", RecentToken, "mcp_other" => mcp_other;
    DELETE "/mcp", RecentToken, "mcp_other" => mcp_other;
    GET "/sse", RecentToken, "sse" => sse;
    POST "/messages", RecentToken, "sse_message" => sse_message
        .body(mcp::MAX_MESSAGE_BYTES, "Message");
    GET "/health", Nothing, "health" => health .doc("health", "200", "Health").for_monitoring();
    GET "/ready", Nothing, "ready" => ready .doc("ready", "200", "Ready").for_monitoring();
    GET "/metrics", Role(Read), "metrics" => metrics
        .doc("metrics", "200", "Metrics").for_monitoring();
    GET "/api/openapi.json", Nothing, "openapi" => openapi .doc("openapi", "200", "Document");
    POST ECHO, Role(Ingest), "echo" => echo .body(batch::MAX_BATCH_BYTES, "Batch");
};

pub(crate) enum RouteMatch<'a> {
    /// The endpoint, and the values of its path parameters.
    Found(&'static Route, [&'a str; 2]),
    /// The path exists, with these methods.
    NotAllowed(String),
    NotFound,
}

pub(crate) fn find<'a>(method: &str, path: &'a str) -> RouteMatch<'a> {
    // HEAD works wherever GET does; hyper omits the body.
    let method = if method == "HEAD" { "GET" } else { method };
    let mut allowed = Vec::new();
    for route in ROUTES {
        let Some(parameters) = parameters(route.path, path) else { continue };
        if route.method == method {
            return RouteMatch::Found(route, parameters);
        }
        allowed.push(if route.method == "GET" { "GET, HEAD" } else { route.method });
    }
    if allowed.is_empty() {
        return RouteMatch::NotFound;
    }
    let order = |method: &&str| ["GET, HEAD", "POST"].iter().position(|it| it == method);
    allowed.sort_by_key(|method| order(method).unwrap_or(usize::MAX));
    RouteMatch::NotAllowed(allowed.join(", "))
}

/// Returns the values of the path parameters, if the path matches.
fn parameters<'a>(template: &str, path: &'a str) -> Option<[&'a str; 2]> {
    let mut found = ["", ""];
    let mut free = found.iter_mut();
    let (mut names, mut parts) = (template.split('/'), path.split('/'));
    loop {
        match (names.next(), parts.next()) {
            (None, None) => return Some(found),
            (Some(name), Some(part)) if name.starts_with('{') && !part.is_empty() => {
                *free.next()? = part;
            }
            (Some(name), Some(part)) if name == part => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_apart() {
        let letters = "/api/switchboard/dead-letters";
        let cases = [
            ("POST", "/api/switchboard/ingest".to_owned(), "ingest  "),
            ("GET", "/api/switchboard/ingest".to_owned(), "405 POST"),
            ("HEAD", "/health".to_owned(), "health  "),
            ("get", "/health".to_owned(), "405 GET, HEAD"),
            ("GET", "/health/".to_owned(), "404"),
            ("GET", format!("{letters}/x"), "dead_letter x "),
            ("POST", format!("{letters}/x/replay"), "dead_letter_replay x "),
            ("POST", format!("{letters}//replay"), "404"),
            ("GET", format!("{letters}/"), "404"),
            ("GET", format!("{letters}/x/y"), "404"),
            ("DELETE", letters.to_owned(), "405 GET, HEAD, POST"),
            ("POST", "/api/connectors/a/b".to_owned(), "405 GET, HEAD, DELETE"),
            ("DELETE", "/api/connectors/a/b".to_owned(), "connector_delete a b"),
            ("PUT", "/mcp".to_owned(), "405 GET, HEAD, POST, DELETE"),
            ("GET", "*".to_owned(), "404"),
            ("GET", String::new(), "404"),
        ];
        for (method, path, expected) in cases {
            let found = match find(method, &path) {
                RouteMatch::Found(route, [a, b]) => format!("{} {a} {b}", route.label),
                RouteMatch::NotAllowed(allow) => format!("405 {allow}"),
                RouteMatch::NotFound => "404".to_owned(),
            };
            assert_eq!(found, expected, "{method} {path}");
        }
    }

    /// Endpoints that are open to everybody are few, and known.
    #[test]
    fn every_other_endpoint_requires_a_token() {
        let open: Vec<_> =
            ROUTES.iter().filter(|it| it.requires == Nothing).map(|it| it.label).collect();
        assert_eq!(open, ["health", "ready", "openapi"]);
    }
}
