//! Endpoints: list, show and change connectors.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};

use super::inbox::{JsonPage, reserve};
use super::response::{ApiError, ApiResult, Rejection, ok};
use super::{ApiRequest, ServerState, query, time};
use crate::access::Principal;
use crate::storage::{ConnectorKey, ConnectorQuery, HistoryEntry, HistoryQuery};
use crate::view;

/// Default and maximum number of connectors in a page.
pub(crate) const DEFAULT_PAGE_ROWS: usize = 1_000;
pub(crate) const MAX_PAGE_ROWS: usize = 10_000;
/// Connectors read at a time: their names and messages may be long.
const READ_ROWS: usize = 1_000;
/// A page ends when it has more bytes than this.
const PAGE_BYTES: usize = 6 << 20;
/// Memory reserved for a page: the response, and the connectors that were read last.
const MAX_PAGE_MEMORY: usize = 14 << 20;
/// Default and maximum number of heartbeats in a page.
const DEFAULT_HEARTBEATS: usize = 100;
const MAX_HEARTBEATS: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArchiveRequest {
    archived: bool,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReasonRequest {
    reason: String,
}

impl ReasonRequest {
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }
}

impl ApiRequest<'_> {
    pub(super) async fn connectors(self, _: Incoming) -> ApiResult {
        let mut query = self.query()?;
        let after = query.text("after");
        let limit = query.number("limit", (1, MAX_PAGE_ROWS))?.unwrap_or(DEFAULT_PAGE_ROWS);
        let archived = query.flag("archived")?;
        query.end()?;
        list(self.state, self.caller, after.as_deref(), limit, archived).await?.response()
    }

    pub(super) async fn connector(self, _: Incoming) -> ApiResult {
        self.no_query()?;
        show(self.state, self.caller, &self.name()?).await?.response()
    }

    pub(super) async fn heartbeats(self, _: Incoming) -> ApiResult {
        let mut query = self.query()?;
        let asked = HistoryQuery {
            before: query.text("before").map(|text| parse_history_cursor(&text)).transpose()?,
            unhealthy: query.flag("unhealthy")?,
            limit: query.number("limit", (1, MAX_HEARTBEATS))?.unwrap_or(DEFAULT_HEARTBEATS),
        };
        query.end()?;
        let name = self.visible_name().await?;
        let page = reserve(self.state, MAX_PAGE_MEMORY).await?;
        let beats = self.state.storage.heartbeats(&name, &asked).await?;
        if beats.is_empty() && self.state.storage.connector(&name).await?.is_none() {
            return Err(not_found());
        }
        let next = beats.last().filter(|_| beats.len() == asked.limit);
        let next = next.map(|last| format!("{}.{}", last.received_at, last.id));
        let data: Vec<_> = beats.iter().map(heartbeat_json).collect();
        page.with(json!({ "data": data, "meta": { "next_before": next } })).response()
    }

    pub(super) async fn archive(self, body: Incoming) -> ApiResult {
        let command = self.command(body, "archive request", |it: &ArchiveRequest| &it.reason);
        let (ArchiveRequest { archived, .. }, decision) = command.await?;
        let done = self.state.storage.archive(&self.name()?, archived, &decision).await?;
        let changed = self.permitted(done)?.ok_or_else(not_found)?;
        ok(&json!({ "data": { "archived": archived, "changed": changed }, "meta": {} }))
    }

    pub(super) async fn recount(self, body: Incoming) -> ApiResult {
        let (_, decision) = self.command(body, "recount request", ReasonRequest::reason).await?;
        let since = self.state.storage.recount(&self.name()?, &decision).await?;
        let since = time(self.permitted(since)?.ok_or_else(not_found)?);
        ok(&json!({ "data": { "recounted": true, "since": since }, "meta": {} }))
    }

    pub(super) async fn delete_connector(self, body: Incoming) -> ApiResult {
        let (_, decision) = self.command(body, "delete request", ReasonRequest::reason).await?;
        let deleted = self.state.storage.delete(&self.name()?, &decision).await?;
        match self.permitted(deleted)? {
            true => ok(&json!({ "data": { "deleted": true }, "meta": {} })),
            false => Err(not_found()),
        }
    }

    /// Returns the connector in the path. Parts are decoded separately: a name may contain a `/`.
    fn name(self) -> ApiResult<ConnectorKey> {
        Ok(ConnectorKey {
            connector_type: query::part(self.parameters[0])?,
            endpoint_identity: query::part(self.parameters[1])?,
        })
    }

    /// Returns the connector in the path, or "not found" if the caller may not see it.
    pub(super) async fn visible_name(self) -> ApiResult<ConnectorKey> {
        let name = self.name()?;
        let rules = self.state.channels.current().await?;
        let seen = self.caller.may_see(&name.connector_type, &name.endpoint_identity, &rules);
        seen.then_some(name).ok_or_else(not_found)
    }
}

pub(super) fn not_found() -> Rejection {
    ApiError::not_found("there is no connector of this type and identity")
}

/// Returns a page of connectors: `{"data":[..],"meta":{"next_after":..}}`. `after` is the
/// `next_after` of the previous page.
pub(crate) async fn list<'a>(
    state: &'a ServerState,
    caller: &Principal,
    after: Option<&str>,
    limit: usize,
    archived: bool,
) -> ApiResult<JsonPage<'a>> {
    let endpoint_identity = caller.reads_only().map(|scope| scope.endpoint_identity.clone());
    let after = after.map(parse_cursor).transpose()?;
    let mut query = ConnectorQuery { after, limit: 0, archived, endpoint_identity };
    let rules = state.channels.current().await?;
    let mut page = reserve(state, MAX_PAGE_MEMORY).await?;
    let (mut listed, mut more) = (0, true);
    while more && listed < limit && page.text.len() < PAGE_BYTES {
        query.limit = READ_ROWS.min(limit - listed);
        let found = state.storage.connectors(&query).await?;
        more = found.connectors.len() == query.limit;
        for connector in found.connectors {
            let (kind, endpoint) = (&connector.connector_type, &connector.endpoint_identity);
            if caller.may_see(kind, endpoint, &rules) {
                let summary = view::summary(&connector, found.now, state.liveness);
                page.item().push_str(&summary.to_string());
                listed += 1;
            }
            query.after = Some((connector.connector_type, connector.endpoint_identity));
        }
    }
    let next = query.after.filter(|_| more).map(|(kind, identity)| cursor(&kind, &identity));
    Ok(page.end(json!({ "next_after": next })))
}

/// Returns the details of a connector: `{"data":{..},"meta":{}}`.
pub(crate) async fn show<'a>(
    state: &'a ServerState,
    caller: &Principal,
    name: &ConnectorKey,
) -> ApiResult<JsonPage<'a>> {
    let rules = state.channels.current().await?;
    let seen = caller.may_see(&name.connector_type, &name.endpoint_identity, &rules);
    let page = reserve(state, MAX_PAGE_MEMORY / 4).await?;
    let shown = state.storage.connector(name).await?.filter(|_| seen).ok_or_else(not_found)?;
    Ok(page.data(view::detail(&shown, state.liveness)))
}

/// Encodes a position in the list. Names contain no NUL.
fn cursor(connector_type: &str, endpoint_identity: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{connector_type}\0{endpoint_identity}"))
}

fn parse_cursor(cursor: &str) -> ApiResult<(String, String)> {
    let bad =
        || ApiError::bad_request("query parameter after: is not a cursor from a previous page");
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| bad())?;
    let text = String::from_utf8(bytes).map_err(|_| bad())?;
    let (connector_type, identity) = text.split_once('\0').ok_or_else(bad)?;
    if identity.contains('\0') {
        return Err(bad());
    }
    Ok((connector_type.to_owned(), identity.to_owned()))
}

/// Reads a position in the history: a time and an id.
fn parse_history_cursor(cursor: &str) -> ApiResult<(i64, i64)> {
    let bad =
        || ApiError::bad_request("query parameter before: is not a cursor from a previous page");
    let (at, id) = cursor.split_once('.').ok_or_else(bad)?;
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse::<i64>().ok(),
        false => None,
    };
    let at = number(at).filter(|at| jiff::Timestamp::from_microsecond(*at).is_ok());
    Ok((at.ok_or_else(bad)?, number(id).ok_or_else(bad)?))
}

fn heartbeat_json(beat: &HistoryEntry) -> Value {
    json!({
        "instance_id": beat.instance_id.to_string(),
        "state": beat.state,
        "error_message": beat.error_message,
        "uptime_s": beat.uptime_s,
        "counters": view::counters(&beat.counters),
        "deltas": view::counters(&beat.deltas),
        "late": beat.late,
        "received_at": time(beat.received_at),
        "sent_at": time(beat.sent_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_lead_back() {
        for (kind, identity) in [("telegram_bot", "a/b:c@d"), ("x", ""), ("ä", "<b>\n")] {
            let found = parse_cursor(&cursor(kind, identity)).unwrap();
            assert_eq!(found, (kind.to_owned(), identity.to_owned()));
        }
        for bad in ["", "!", "YQ", "YQBiAGM", "_w"] {
            assert_eq!(parse_cursor(bad).unwrap_err().status, 400, "{bad}");
        }
        assert_eq!(parse_history_cursor("1771151400123456.7").unwrap(), (1_771_151_400_123_456, 7));
        for bad in ["", "1", "1.", ".1", "-1.1", "1.1.1", "9223372036854775807.1", "1.+1"] {
            assert_eq!(parse_history_cursor(bad).unwrap_err().status, 400, "{bad}");
        }
    }
}
