//! Which paths and methods there are. The table is compared with the OpenAPI document.

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Ingest,
    Batch,
    IngestHealth,
    Inbox,
    Message,
    Letters,
    PostLetter,
    Letter,
    Replay,
    Discard,
    Fences,
    ResetFence,
    Heartbeat,
    Outcome,
    Connectors,
    ConnectorSummary,
    Fanout,
    Connector,
    ConnectorStats,
    Heartbeats,
    Archive,
    Recount,
    DeleteConnector,
    Mcp,
    McpOther,
    Sse,
    SseMessage,
    Health,
    Ready,
    Metrics,
    OpenApi,
    Echo,
}

impl Endpoint {
    pub(crate) const ALL: [Self; 32] = [
        Self::Ingest,
        Self::Batch,
        Self::IngestHealth,
        Self::Inbox,
        Self::Message,
        Self::Letters,
        Self::PostLetter,
        Self::Letter,
        Self::Replay,
        Self::Discard,
        Self::Fences,
        Self::ResetFence,
        Self::Heartbeat,
        Self::Outcome,
        Self::Connectors,
        Self::ConnectorSummary,
        Self::Fanout,
        Self::Connector,
        Self::ConnectorStats,
        Self::Heartbeats,
        Self::Archive,
        Self::Recount,
        Self::DeleteConnector,
        Self::Mcp,
        Self::McpOther,
        Self::Sse,
        Self::SseMessage,
        Self::Health,
        Self::Ready,
        Self::Metrics,
        Self::OpenApi,
        Self::Echo,
    ];

    /// Its name in metrics.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Batch => "ingest_batch",
            Self::IngestHealth => "ingest_health",
            Self::Inbox => "inbox",
            Self::Message => "inbox_message",
            Self::Letters => "dead_letters",
            Self::PostLetter => "dead_letters_post",
            Self::Letter => "dead_letter",
            Self::Replay => "dead_letter_replay",
            Self::Discard => "dead_letter_discard",
            Self::Fences => "fences",
            Self::ResetFence => "fences_reset",
            Self::Heartbeat => "heartbeat",
            Self::Outcome => "inbox_outcome",
            Self::Connectors => "connectors",
            Self::ConnectorSummary => "connector_summary",
            Self::Fanout => "connector_fanout",
            Self::Connector => "connector",
            Self::ConnectorStats => "connector_stats",
            Self::Heartbeats => "connector_heartbeats",
            Self::Archive => "connector_archive",
            Self::Recount => "connector_recount",
            Self::DeleteConnector => "connector_delete",
            Self::Mcp => "mcp",
            Self::McpOther => "mcp_other",
            Self::Sse => "sse",
            Self::SseMessage => "sse_message",
            Self::Health => "health",
            Self::Ready => "ready",
            Self::Metrics => "metrics",
            Self::OpenApi => "openapi",
            Self::Echo => "echo",
        }
    }

    /// Whether it is answered also when there are too many connections.
    pub(crate) const fn is_for_operators(self) -> bool {
        matches!(self, Self::Health | Self::Ready | Self::Metrics)
    }
}

/// The statuses that answers have.
pub(crate) const STATUSES: [u16; 16] =
    [200, 202, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 429, 500, 503];

/// For the benchmark only: what the server costs without the store.
pub(crate) const ECHO: &str = "/api/switchboard/echo";

/// A path, and what each method does there. Each `{}` stands for one part of a path.
pub(crate) struct Route {
    pub(crate) path: &'static str,
    pub(crate) methods: &'static [(&'static str, Endpoint)],
    /// For who used another method.
    pub(crate) allow: &'static str,
}

const fn get(path: &'static str, methods: &'static [(&'static str, Endpoint)]) -> Route {
    Route { path, methods, allow: "GET, HEAD" }
}

const fn post(path: &'static str, methods: &'static [(&'static str, Endpoint)]) -> Route {
    Route { path, methods, allow: "POST" }
}

const fn both(path: &'static str, methods: &'static [(&'static str, Endpoint)]) -> Route {
    Route { path, methods, allow: "GET, HEAD, POST" }
}

/// All of them; the busiest first.
pub(crate) const ROUTES: &[Route] = &[
    post("/api/switchboard/ingest", &[("POST", Endpoint::Ingest)]),
    post("/api/switchboard/ingest/batch", &[("POST", Endpoint::Batch)]),
    both(
        "/api/switchboard/ingest/health",
        &[("GET", Endpoint::IngestHealth), ("POST", Endpoint::IngestHealth)],
    ),
    get("/api/switchboard/inbox", &[("GET", Endpoint::Inbox)]),
    get("/api/switchboard/inbox/{}", &[("GET", Endpoint::Message)]),
    both(
        "/api/switchboard/dead-letters",
        &[("GET", Endpoint::Letters), ("POST", Endpoint::PostLetter)],
    ),
    get("/api/switchboard/dead-letters/{}", &[("GET", Endpoint::Letter)]),
    post("/api/switchboard/dead-letters/{}/replay", &[("POST", Endpoint::Replay)]),
    post("/api/switchboard/dead-letters/{}/discard", &[("POST", Endpoint::Discard)]),
    get("/api/switchboard/fences", &[("GET", Endpoint::Fences)]),
    post("/api/switchboard/fences/reset", &[("POST", Endpoint::ResetFence)]),
    post("/api/switchboard/heartbeat", &[("POST", Endpoint::Heartbeat)]),
    post("/api/switchboard/inbox/{}/outcome", &[("POST", Endpoint::Outcome)]),
    get("/api/connectors", &[("GET", Endpoint::Connectors)]),
    get("/api/connectors/summary", &[("GET", Endpoint::ConnectorSummary)]),
    get("/api/connectors/fanout", &[("GET", Endpoint::Fanout)]),
    Route {
        path: "/api/connectors/{}/{}",
        methods: &[("GET", Endpoint::Connector), ("DELETE", Endpoint::DeleteConnector)],
        allow: "GET, HEAD, DELETE",
    },
    get("/api/connectors/{}/{}/stats", &[("GET", Endpoint::ConnectorStats)]),
    get("/api/connectors/{}/{}/heartbeats", &[("GET", Endpoint::Heartbeats)]),
    post("/api/connectors/{}/{}/archive", &[("POST", Endpoint::Archive)]),
    post("/api/connectors/{}/{}/recount", &[("POST", Endpoint::Recount)]),
    Route {
        path: "/mcp",
        methods: &[
            ("GET", Endpoint::McpOther),
            ("POST", Endpoint::Mcp),
            ("DELETE", Endpoint::McpOther),
        ],
        allow: "GET, HEAD, POST, DELETE",
    },
    get("/sse", &[("GET", Endpoint::Sse)]),
    post("/messages", &[("POST", Endpoint::SseMessage)]),
    get("/health", &[("GET", Endpoint::Health)]),
    get("/ready", &[("GET", Endpoint::Ready)]),
    get("/metrics", &[("GET", Endpoint::Metrics)]),
    get("/api/openapi.json", &[("GET", Endpoint::OpenApi)]),
    post(ECHO, &[("POST", Endpoint::Echo)]),
];

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// The parts of the path that stand for `{}`, or nothing.
    Endpoint(Endpoint, [&'a str; 2]),
    /// The path is there; these methods are.
    NotAllowed(&'static str),
    Nothing,
}

pub(crate) fn find<'a>(method: &str, path: &'a str) -> Found<'a> {
    // What can be had with GET can be had with HEAD; hyper leaves the body away.
    let method = if method == "HEAD" { "GET" } else { method };
    for route in ROUTES {
        let Some(parts) = fits(route.path, path) else { continue };
        let endpoint = route.methods.iter().find(|(known, _)| *known == method);
        return match endpoint {
            Some((_, endpoint)) => Found::Endpoint(*endpoint, parts),
            None => Found::NotAllowed(route.allow),
        };
    }
    Found::Nothing
}

/// What stands for each `{}`, if the path is of that form.
fn fits<'a>(template: &str, path: &'a str) -> Option<[&'a str; 2]> {
    let mut found = ["", ""];
    let mut free = found.iter_mut();
    let (mut forms, mut parts) = (template.split('/'), path.split('/'));
    loop {
        match (forms.next(), parts.next()) {
            (None, None) => return Some(found),
            (Some("{}"), Some(part)) if !part.is_empty() => *free.next()? = part,
            (Some(form), Some(part)) if form == part => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn paths_are_told_apart() {
        let letters = "/api/switchboard/dead-letters";
        let cases = [
            (
                "POST",
                "/api/switchboard/ingest".to_owned(),
                Found::Endpoint(Endpoint::Ingest, ["", ""]),
            ),
            ("GET", "/api/switchboard/ingest".to_owned(), Found::NotAllowed("POST")),
            ("HEAD", "/health".to_owned(), Found::Endpoint(Endpoint::Health, ["", ""])),
            ("get", "/health".to_owned(), Found::NotAllowed("GET, HEAD")),
            ("GET", "/health/".to_owned(), Found::Nothing),
            ("GET", format!("{letters}/x"), Found::Endpoint(Endpoint::Letter, ["x", ""])),
            ("POST", format!("{letters}/x/replay"), Found::Endpoint(Endpoint::Replay, ["x", ""])),
            ("POST", format!("{letters}//replay"), Found::Nothing),
            ("GET", format!("{letters}/"), Found::Nothing),
            ("GET", format!("{letters}/x/y"), Found::Nothing),
            ("DELETE", letters.to_owned(), Found::NotAllowed("GET, HEAD, POST")),
            ("GET", "*".to_owned(), Found::Nothing),
            ("GET", String::new(), Found::Nothing),
        ];
        for (method, path, expected) in cases {
            assert_eq!(find(method, &path), expected, "{method} {path}");
        }
    }

    #[test]
    fn every_route_says_what_it_allows() {
        for route in ROUTES {
            let mut allow: Vec<_> = route.methods.iter().map(|(method, _)| *method).collect();
            if let Some(at) = allow.iter().position(|method| *method == "GET") {
                allow.insert(at + 1, "HEAD");
            }
            assert_eq!(route.allow, allow.join(", "), "{}", route.path);
        }
        for (n, endpoint) in Endpoint::ALL.iter().enumerate() {
            assert_eq!(*endpoint as usize, n);
            let routes = ROUTES.iter().flat_map(|route| route.methods);
            assert!(routes.clone().any(|(_, known)| known == endpoint), "{endpoint:?}");
        }
    }

    /// The document tells of every route and of no other, and of no status that is not counted.
    #[test]
    fn the_document_has_the_routes() {
        let document: Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
        let mut told = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                if method == "parameters" {
                    continue;
                }
                told.push((method.to_uppercase(), unnamed(path)));
                let id = operation["operationId"].as_str().unwrap();
                assert!(!id.is_empty(), "{path}");
                for status in operation["responses"].as_object().unwrap().keys() {
                    let status: u16 = status.parse().unwrap();
                    assert!(STATUSES.contains(&status), "{method} {path} {status}");
                }
            }
        }
        let mut known: Vec<_> = ROUTES
            .iter()
            .filter(|route| !UNTOLD.contains(&route.path))
            .flat_map(|route| route.methods.iter().map(move |(method, _)| (method, route.path)))
            .map(|(method, path)| ((*method).to_owned(), path.to_owned()))
            .collect();
        told.sort();
        known.sort();
        assert_eq!(told, known);
    }

    /// What is for benchmarks, and what speaks another language than the document.
    const UNTOLD: [&str; 4] = [ECHO, "/mcp", "/sse", "/messages"];

    /// A path as it is in the table: its parts have no names there.
    fn unnamed(path: &str) -> String {
        let parts = path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part });
        parts.collect::<Vec<_>>().join("/")
    }

    /// Every `$ref` of the document leads somewhere.
    #[test]
    fn the_document_holds_together() {
        let document: Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
        let mut left = vec![&document];
        let mut references = 0;
        while let Some(value) = left.pop() {
            if let Some(to) = value.get("$ref").and_then(Value::as_str) {
                let pointer = to.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{to}");
                references += 1;
            }
            match value {
                Value::Array(parts) => left.extend(parts),
                Value::Object(parts) => left.extend(parts.values()),
                _ => {}
            }
        }
        assert!(references > 20);
    }
}
