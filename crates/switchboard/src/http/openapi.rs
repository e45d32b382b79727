//! OpenAPI document, generated from the table of endpoints.
//!
//! The table has paths, methods, roles, limits and the names of schemas. The schemas are in
//! `openapi/schemas.json`; texts, parameters and examples of each operation are a JSON merge patch
//! (RFC 7396) in `openapi/operations.json`. Responses are written as text, so their types could not
//! derive a schema.

use std::sync::LazyLock;

use hyper::body::Bytes;
use serde_json::{Map, Value, json};
use tenure_wire::heartbeat::{COUNTER_NAMES, LABEL_NAMES, MAX_LABEL_BYTES, REQUIRED_COUNTERS};

use super::is_dashboard;
use super::route::{OpenApiOperation, ROUTES, Route};
use crate::access::Requirement;
use crate::storage::MAX_SUM;

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| build().to_string().into());

pub(super) fn document() -> Bytes {
    DOCUMENT.clone()
}

fn build() -> Value {
    let mut document = parse(include_str!("openapi/base.json"));
    let patches = parse(include_str!("openapi/operations.json"));
    let mut paths = Map::new();
    for route in ROUTES {
        let Some(operation) = &route.operation else { continue };
        let path = paths.entry(route.path).or_insert_with(|| path_item(route.path, &document));
        let id = operation.id.strip_suffix("Get").or(operation.id.strip_suffix("Post"));
        let mut described = describe(route, operation);
        merge(&mut described, &patches[id.unwrap_or(operation.id)]);
        if let Requirement::Role(role) = route.requires {
            let summary = described["summary"].as_str().unwrap_or_default();
            described["summary"] = format!("{summary} (role {})", role.as_str()).into();
        }
        path[route.method.to_lowercase()] = described;
    }
    document["paths"] = paths.into();
    let mut schemas = parse(include_str!("openapi/schemas.json"));
    add_heartbeat_fields(&mut schemas);
    document["components"]["schemas"] = schemas;
    document
}

/// Adds the counters and labels of heartbeats, which have one list each.
fn add_heartbeat_fields(schemas: &mut Value) {
    let counters = &mut schemas["Counters"];
    counters["required"] = json!(COUNTER_NAMES);
    for name in COUNTER_NAMES {
        counters["properties"][name] = json!({"type": "integer", "minimum": 0, "maximum": MAX_SUM});
    }
    let properties = counters["properties"].clone();
    let sent = &mut schemas["Heartbeat"]["properties"]["counters"];
    sent["required"] = json!(COUNTER_NAMES[..REQUIRED_COUNTERS]);
    sent["properties"] = properties;
    let cut = format!("Cut, with a mark at its end, if it has more than {MAX_LABEL_BYTES} bytes.");
    for name in LABEL_NAMES {
        schemas["Heartbeat"]["properties"]["connector"]["properties"][name] =
            json!({"type": ["string", "null"], "description": cut});
        let detail = "/ConnectorDetail/allOf/1/properties/instances/items";
        for pointer in ["/ConnectorSummary", detail] {
            let Some(schema) = schemas.pointer_mut(pointer) else { continue };
            schema["properties"][name] = json!({"type": ["string", "null"]});
            if let Some(required) = schema["required"].as_array_mut() {
                required.push(name.into());
            }
        }
    }
}

/// Parses a file of this crate; a test reads them all.
fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

/// Returns the entry of a path, with its parameters.
fn path_item(path: &str, document: &Value) -> Value {
    let known = document["components"]["parameters"].as_object();
    let named = |part: &str| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        let mut known = known.into_iter().flatten();
        known.find(|(_, it)| it["in"] == "path" && it["name"] == name).map(|(key, _)| key)
    };
    let parameters = path.split('/').filter_map(named).map(|key| reference("parameters", key));
    match parameters.collect::<Vec<_>>() {
        none if none.is_empty() => json!({}),
        parameters => json!({ "parameters": parameters }),
    }
}

fn describe(route: &Route, operation: &OpenApiOperation) -> Value {
    let content =
        |schema| json!({ "application/json": { "schema": reference("schemas", schema) } });
    let mut responses = Map::new();
    responses
        .insert(operation.status.to_owned(), json!({ "content": content(operation.response) }));
    for (status, name) in errors(route) {
        let name = if is_dashboard(route.path) { "Dashboard" } else { name };
        responses.insert(status.to_owned(), reference("responses", name));
    }
    let mut described = json!({ "operationId": operation.id, "responses": responses });
    if route.requires == Requirement::Nothing {
        described["security"] = json!([]);
    }
    if let Some((_, schema)) = route.body {
        described["requestBody"] = json!({ "required": true, "content": content(schema) });
    }
    described
}

/// Returns the errors that every endpoint of this kind may return.
fn errors(route: &Route) -> Vec<(&'static str, &'static str)> {
    let mut errors = vec![("400", "BadRequest")];
    if route.requires != Requirement::Nothing {
        errors.extend([("401", "Unauthorized"), ("429", "TooMany")]);
    }
    if matches!(route.requires, Requirement::Role(_)) {
        errors.push(("403", "Forbidden"));
    }
    if route.body.is_some() {
        errors.extend([("408", "Timeout"), ("413", "TooLarge"), ("415", "Unsupported")]);
        errors.push(("422", "Invalid"));
    }
    // Liveness and readiness use nothing that could fail, and no connection limit applies.
    if route.requires != Requirement::Nothing || !route.for_monitoring {
        errors.extend([("500", "Internal"), ("503", "Unavailable")]);
    }
    errors
}

/// Applies a JSON merge patch: `null` removes a field.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        match value {
            Value::Null => drop(target.as_object_mut().and_then(|target| target.remove(name))),
            value => merge(&mut target[name.as_str()], value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::STATUSES;
    use crate::http::route::ECHO;

    const SNAPSHOT: &str = include_str!("../../tests/openapi.json");

    /// The snapshot shows reviewers how the document changes. `UPDATE_SNAPSHOTS=1` writes it.
    #[test]
    fn the_document_is_the_snapshot() {
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openapi.json");
            let text = serde_json::to_string_pretty(&build()).unwrap();
            std::fs::write(file, text + "\n").unwrap();
            return;
        }
        assert!(build() == parse(SNAPSHOT), "run this test with UPDATE_SNAPSHOTS=1, and look");
    }

    /// Other protocols, and the endpoint for benchmarks, are not in the document.
    #[test]
    fn only_other_protocols_are_not_described() {
        let missing = ROUTES.iter().filter(|route| route.operation.is_none());
        let missing: Vec<_> = missing.map(|route| route.path).collect();
        assert_eq!(missing, ["/mcp", "/mcp", "/mcp", "/sse", "/messages", ECHO]);
    }

    #[test]
    fn every_operation_has_texts_and_counted_statuses() {
        let document = build();
        let mut seen = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                if method == "parameters" {
                    continue;
                }
                seen += 1;
                let summary = operation["summary"].as_str().unwrap();
                assert!(!summary.starts_with(" ("), "{method} {path}");
                for (status, response) in operation["responses"].as_object().unwrap() {
                    assert!(STATUSES.contains(&status.parse().unwrap()), "{path} {status}");
                    let described = response["description"].is_string();
                    assert!(described || response["$ref"].is_string(), "{path} {status}");
                }
            }
        }
        assert_eq!(seen, ROUTES.iter().filter(|route| route.operation.is_some()).count());
        let patches = parse(include_str!("openapi/operations.json"));
        // Two operations share one patch.
        assert_eq!(patches.as_object().unwrap().len(), seen - 1);
    }

    /// Every `$ref` of the document resolves.
    #[test]
    fn the_document_holds_together() {
        let document = build();
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
