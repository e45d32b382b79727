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

/// One endpoint.
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
    /// Description in the OpenAPI document; `None` for what is not described there.
    pub(super) operation: Option<OpenApiOperation>,
    /// Served on surplus connections, too.
    pub(super) for_monitoring: bool,
}

/// Description of an endpoint. Texts, parameters and examples are in `openapi/operations.json`.
pub(super) struct OpenApiOperation {
    pub(super) id: &'static str,
    pub(super) status: &'static str,
    /// Schema of the response.
    pub(super) response: &'static str,
}

const fn get(
    path: &'static str,
    requires: Requirement,
    label: &'static str,
    handler: Handler,
) -> Route {
    let (body, operation) = (None, None);
    Route { method: "GET", path, requires, label, handler, body, operation, for_monitoring: false }
}

const fn post(
    path: &'static str,
    requires: Requirement,
    label: &'static str,
    handler: Handler,
) -> Route {
    Route { method: "POST", ..get(path, requires, label, handler) }
}

const fn delete(
    path: &'static str,
    requires: Requirement,
    label: &'static str,
    handler: Handler,
) -> Route {
    Route { method: "DELETE", ..get(path, requires, label, handler) }
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

/// Maximum size of the body of a command.
const MAX_COMMAND_BYTES: usize = 64 << 10;
/// For benchmarks: the cost of the server without the store.
pub(crate) const ECHO: &str = "/api/switchboard/echo";
const CONNECTOR: &str = "/api/connectors/{connector_type}/{endpoint_identity}";

/// All endpoints, the busiest first.
pub(crate) const ROUTES: &[Route] = &[
    post("/api/switchboard/ingest", Role(Ingest), "ingest", |r, b| Box::pin(r.ingest(b)))
        .body(ingest::MAX_EVENT_BYTES, "Envelope")
        .doc("ingest", "202", "Accepted"),
    post("/api/switchboard/ingest/batch", Role(Ingest), "ingest_batch", |r, b| {
        Box::pin(r.batch(b))
    })
    .body(batch::MAX_BATCH_BYTES, "Batch")
    .doc("ingestBatch", "202", "BatchOutcome"),
    get("/api/switchboard/ingest/health", Token, "ingest_health", |r, _| {
        Box::pin(r.ingest_health())
    })
    .doc("ingestHealthGet", "200", "TokenHealth"),
    post("/api/switchboard/ingest/health", Token, "ingest_health", |r, _| {
        Box::pin(r.ingest_health())
    })
    .doc("ingestHealthPost", "200", "TokenHealth"),
    get("/api/switchboard/inbox", Role(Read), "inbox", |r, _| Box::pin(r.inbox())).doc(
        "inbox",
        "200",
        "InboxPage",
    ),
    get("/api/switchboard/inbox/{request_id}", Role(Read), "inbox_message", |r, _| {
        Box::pin(r.message())
    })
    .doc("message", "200", "MessageResponse"),
    get("/api/switchboard/dead-letters", Role(Read), "dead_letters", |r, _| Box::pin(r.letters()))
        .doc("deadLetters", "200", "LetterPage"),
    post("/api/switchboard/dead-letters", Role(Ingest), "dead_letters_post", |r, b| {
        Box::pin(r.post_letter(b))
    })
    .body(dead_letters::MAX_LETTER_BYTES, "NewLetter")
    .doc("postDeadLetter", "202", "Kept"),
    get("/api/switchboard/dead-letters/{id}", Role(Read), "dead_letter", |r, _| {
        Box::pin(r.letter())
    })
    .doc("deadLetter", "200", "LetterResponse"),
    post("/api/switchboard/dead-letters/{id}/replay", Role(Admin), "dead_letter_replay", |r, b| {
        Box::pin(r.replay(b))
    })
    .body(dead_letters::MAX_LETTER_BYTES, "ReplayRequest")
    .doc("replay", "202", "Replayed"),
    post(
        "/api/switchboard/dead-letters/{id}/discard",
        Role(Admin),
        "dead_letter_discard",
        |r, b| Box::pin(r.discard(b)),
    )
    .body(MAX_COMMAND_BYTES, "DiscardRequest")
    .doc("discard", "200", "Discarded"),
    get("/api/switchboard/fences", Role(Read), "fences", |r, _| Box::pin(r.fences())).doc(
        "fences",
        "200",
        "FencePage",
    ),
    post("/api/switchboard/fences/reset", Role(Admin), "fences_reset", |r, b| {
        Box::pin(r.reset_fence(b))
    })
    .body(MAX_COMMAND_BYTES, "ResetRequest")
    .doc("resetFence", "200", "ResetResponse"),
    post("/api/switchboard/heartbeat", Role(Ingest), "heartbeat", |r, b| Box::pin(r.heartbeat(b)))
        .body(heartbeat::MAX_HEARTBEAT_BYTES, "Heartbeat")
        .doc("heartbeat", "200", "HeartbeatResponse"),
    post("/api/switchboard/inbox/{request_id}/outcome", Role(Consume), "inbox_outcome", |r, b| {
        Box::pin(r.outcome(b))
    })
    .body(MAX_COMMAND_BYTES, "OutcomeReport")
    .doc("outcome", "200", "OutcomeResponse"),
    get("/api/connectors", Role(Read), "connectors", |r, _| Box::pin(r.connectors())).doc(
        "connectors",
        "200",
        "ConnectorPage",
    ),
    get("/api/connectors/summary", Role(Read), "connector_summary", |r, _| {
        Box::pin(r.connector_summary())
    })
    .doc("connectorSummary", "200", "SummaryResponse"),
    get("/api/connectors/fanout", Role(Read), "connector_fanout", |r, _| Box::pin(r.fanout())).doc(
        "fanout",
        "200",
        "FanoutResponse",
    ),
    get(CONNECTOR, Role(Read), "connector", |r, _| Box::pin(r.connector())).doc(
        "connector",
        "200",
        "ConnectorResponse",
    ),
    delete(CONNECTOR, Role(Admin), "connector_delete", |r, b| Box::pin(r.delete_connector(b)))
        .body(MAX_COMMAND_BYTES, "ReasonRequest")
        .doc("deleteConnector", "200", "Deleted"),
    get(
        "/api/connectors/{connector_type}/{endpoint_identity}/stats",
        Role(Read),
        "connector_stats",
        |r, _| Box::pin(r.connector_stats()),
    )
    .doc("connectorStats", "200", "StatsResponse"),
    get(
        "/api/connectors/{connector_type}/{endpoint_identity}/heartbeats",
        Role(Read),
        "connector_heartbeats",
        |r, _| Box::pin(r.heartbeats()),
    )
    .doc("heartbeats", "200", "HistoryPage"),
    post(
        "/api/connectors/{connector_type}/{endpoint_identity}/archive",
        Role(Admin),
        "connector_archive",
        |r, b| Box::pin(r.archive(b)),
    )
    .body(MAX_COMMAND_BYTES, "ArchiveRequest")
    .doc("archiveConnector", "200", "Archived"),
    post(
        "/api/connectors/{connector_type}/{endpoint_identity}/recount",
        Role(Admin),
        "connector_recount",
        |r, b| Box::pin(r.recount(b)),
    )
    .body(MAX_COMMAND_BYTES, "ReasonRequest")
    .doc("recountConnector", "200", "Recounted"),
    post("/mcp", RecentToken, "mcp", |r, b| Box::pin(r.mcp(b)))
        .body(mcp::MAX_MESSAGE_BYTES, "Message"),
    get("/mcp", RecentToken, "mcp_other", |r, _| Box::pin(r.mcp_other())),
    delete("/mcp", RecentToken, "mcp_other", |r, _| Box::pin(r.mcp_other())),
    get("/sse", RecentToken, "sse", |r, _| Box::pin(r.sse())),
    post("/messages", RecentToken, "sse_message", |r, b| Box::pin(r.sse_message(b)))
        .body(mcp::MAX_MESSAGE_BYTES, "Message"),
    get("/health", Nothing, "health", |r, _| Box::pin(r.health()))
        .doc("health", "200", "Health")
        .for_monitoring(),
    get("/ready", Nothing, "ready", |r, _| Box::pin(r.ready()))
        .doc("ready", "200", "Ready")
        .for_monitoring(),
    get("/metrics", Role(Read), "metrics", |r, _| Box::pin(r.metrics()))
        .doc("metrics", "200", "Metrics")
        .for_monitoring(),
    get("/api/openapi.json", Nothing, "openapi", |r, _| Box::pin(r.openapi()))
        .doc("openapi", "200", "Document"),
    post(ECHO, Role(Ingest), "echo", |r, b| Box::pin(r.echo(b)))
        .body(batch::MAX_BATCH_BYTES, "Batch"),
];

/// Result of routing.
pub(crate) enum RouteMatch<'a> {
    /// The endpoint, and the values of its path parameters.
    Found(&'static Route, [&'a str; 2]),
    /// The path exists, with these methods.
    NotAllowed(String),
    NotFound,
}

/// Finds the endpoint of a request.
pub(crate) fn find<'a>(method: &str, path: &'a str) -> RouteMatch<'a> {
    // HEAD works wherever GET does; hyper leaves the body away.
    let method = if method == "HEAD" { "GET" } else { method };
    let mut allowed = Vec::new();
    for route in ROUTES {
        let Some(parameters) = parameters(route.path, path) else { continue };
        if route.method == method {
            return RouteMatch::Found(route, parameters);
        }
        allowed.push(if route.method == "GET" { "GET, HEAD" } else { route.method });
    }
    match allowed.is_empty() {
        true => RouteMatch::NotFound,
        false => {
            let order = |method: &&str| ["GET, HEAD", "POST"].iter().position(|it| it == method);
            allowed.sort_by_key(|method| order(method).unwrap_or(usize::MAX));
            RouteMatch::NotAllowed(allowed.join(", "))
        }
    }
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
