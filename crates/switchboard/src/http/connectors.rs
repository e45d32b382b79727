//! Endpoints: list, show and change connectors.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::StatusCode;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};

use super::inbox::{JsonPage, reserve};
use super::response::{ApiError, ApiResult, Rejection, json_value};
use super::{ApiRequest, ServerState, query, time};
use crate::access::Principal;
use crate::storage::{ConnectorKey, ConnectorQuery, HistoryEntry, HistoryQuery};
use crate::view::{self, Summary};

/// Default and maximum number of connectors in a page.
pub(crate) const DEFAULT_PAGE_ROWS: usize = 1_000;
pub(crate) const MAX_PAGE_ROWS: usize = 10_000;
/// Connectors read at a time: their names and messages may be long.
const READ_ROWS: usize = 1_000;
/// A page ends when it has more bytes than this.
const PAGE_BYTES: usize = 6 << 20;
/// Memory reserved for a page: itself, and the connectors that were read last.
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
struct ReasonRequest {
    reason: String,
}

impl ApiRequest<'_> {
    /// `GET /api/connectors`.
    pub(super) async fn connectors(self) -> ApiResult {
        let mut query = self.query()?;
        let after = query.text("after");
        let limit = query.number("limit", (1, MAX_PAGE_ROWS))?.unwrap_or(DEFAULT_PAGE_ROWS);
        let archived = query.flag("archived")?;
        query.end()?;
        Ok(list(self.state, self.caller, after.as_deref(), limit, archived).await?.response())
    }

    /// `GET /api/connectors/{type}/{identity}`.
    pub(super) async fn connector(self) -> ApiResult {
        self.no_query()?;
        Ok(show(self.state, self.caller, &self.name()?).await?.response())
    }

    /// `GET /api/connectors/{type}/{identity}/heartbeats`.
    pub(super) async fn heartbeats(self) -> ApiResult {
        let mut query = self.query()?;
        let asked = HistoryQuery {
            before: query.text("before").map(|text| parse_history_cursor(&text)).transpose()?,
            unhealthy: query.flag("unhealthy")?,
            limit: query.number("limit", (1, MAX_HEARTBEATS))?.unwrap_or(DEFAULT_HEARTBEATS),
        };
        query.end()?;
        let name = self.visible_name().await?;
        let room = reserve(self.state, MAX_PAGE_MEMORY).await?;
        let beats = self.state.storage.heartbeats(&name, &asked).await?;
        if beats.is_empty() && self.state.storage.connector(&name).await?.is_none() {
            return Err(not_found());
        }
        let next = beats.last().filter(|_| beats.len() == asked.limit);
        let next = next.map(|last| format!("{}.{}", last.received_at, last.id));
        let data: Vec<_> = beats.iter().map(heartbeat_json).collect();
        let answer = json!({ "data": data, "meta": { "next_before": next } });
        Ok(room.response(answer.to_string()))
    }

    /// `POST /api/connectors/{type}/{identity}/archive`.
    pub(super) async fn archive(self, body: Incoming) -> ApiResult {
        let asked = self.command(body, "archive request", |it: &ArchiveRequest| &it.reason).await?;
        let (archived, decision) = (asked.archived, self.caller.decision(&asked.reason));
        let done = self.state.storage.archive(&self.name()?, archived, &decision).await?;
        let done = done.map_err(|ended| self.state.token_ended(self.caller, ended))?;
        let changed = done.ok_or_else(not_found)?;
        let answer = json!({ "data": { "archived": archived, "changed": changed }, "meta": {} });
        Ok(json_value(StatusCode::OK, &answer))
    }

    /// `POST /api/connectors/{type}/{identity}/recount`.
    pub(super) async fn recount(self, body: Incoming) -> ApiResult {
        let asked = self.command(body, "recount request", |it: &ReasonRequest| &it.reason).await?;
        let decision = self.caller.decision(&asked.reason);
        let since = self.state.storage.recount(&self.name()?, &decision).await?;
        let since = since.map_err(|ended| self.state.token_ended(self.caller, ended))?;
        let since = time(since.ok_or_else(not_found)?);
        let answer = json!({ "data": { "recounted": true, "since": since }, "meta": {} });
        Ok(json_value(StatusCode::OK, &answer))
    }

    /// `DELETE /api/connectors/{type}/{identity}`.
    pub(super) async fn delete_connector(self, body: Incoming) -> ApiResult {
        let asked = self.command(body, "delete request", |it: &ReasonRequest| &it.reason).await?;
        let decision = self.caller.decision(&asked.reason);
        let deleted = self.state.storage.delete(&self.name()?, &decision).await?;
        match deleted.map_err(|ended| self.state.token_ended(self.caller, ended))? {
            true => {
                let answer = json!({ "data": { "deleted": true }, "meta": {} });
                Ok(json_value(StatusCode::OK, &answer))
            }
            false => Err(not_found()),
        }
    }

    /// Returns the connector in the path. Its parts are decoded one by one: a name may hold a `/`.
    pub(super) fn name(self) -> ApiResult<ConnectorKey> {
        Ok(ConnectorKey {
            connector_type: query::part(self.parameters[0])?,
            endpoint_identity: query::part(self.parameters[1])?,
        })
    }

    /// Returns the connector in the path if the caller may see it; else there is none of that name.
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
/// `next_after` of the page before.
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
    let room = reserve(state, MAX_PAGE_MEMORY).await?;
    let mut text = String::from("{\"data\":[");
    let mut listed = 0;
    let mut more = true;
    while more && listed < limit && text.len() < PAGE_BYTES {
        query.limit = READ_ROWS.min(limit - listed);
        let found = state.storage.connectors(&query).await?;
        more = found.connectors.len() == query.limit;
        for connector in found.connectors {
            let (kind, endpoint) = (&connector.connector_type, &connector.endpoint_identity);
            if caller.may_see(kind, endpoint, &rules) {
                text.push_str(if listed == 0 { "" } else { "," });
                let summary = Summary::of(&connector, found.now, state.liveness);
                text.push_str(&serde_json::to_string(&summary).unwrap_or_default());
                listed += 1;
            }
            query.after = Some((connector.connector_type, connector.endpoint_identity));
        }
    }
    let next = query.after.filter(|_| more).map(|(kind, identity)| cursor(&kind, &identity));
    text.push_str(&format!("],\"meta\":{}}}", json!({ "next_after": next })));
    Ok(room.with(text))
}

/// Returns the details of a connector: `{"data":{..},"meta":{}}`.
pub(crate) async fn show<'a>(
    state: &'a ServerState,
    caller: &Principal,
    name: &ConnectorKey,
) -> ApiResult<JsonPage<'a>> {
    let rules = state.channels.current().await?;
    let seen = caller.may_see(&name.connector_type, &name.endpoint_identity, &rules);
    let room = reserve(state, MAX_PAGE_MEMORY / 4).await?;
    let shown = state.storage.connector(name).await?.filter(|_| seen).ok_or_else(not_found)?;
    let answer = json!({ "data": view::detail(&shown, state.liveness), "meta": {} });
    Ok(room.with(answer.to_string()))
}

/// Encodes a position in the list. No name holds a NUL.
fn cursor(connector_type: &str, endpoint_identity: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{connector_type}\0{endpoint_identity}"))
}

fn parse_cursor(cursor: &str) -> ApiResult<(String, String)> {
    let bad = || ApiError::bad_request("query parameter after: is not what a list has told");
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
    let bad = || ApiError::bad_request("query parameter before: is not what a list has told");
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
