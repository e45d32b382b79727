//! Read-only tools.

use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tenure_core::store::Holder;
use tenure_core::{Code, Epoch, GroupName, Store};
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::result::{self, ToolResult};
use super::tools::small_result;
use super::{ToolCall, take};
use crate::error::SwitchboardError;
use crate::http::inbox::JsonPage;
use crate::http::response::{ApiError, ApiResult, Rejection};
use crate::http::{connectors, inbox};
use crate::metrics::Overload;
use crate::storage::ConnectorKey;

pub(super) const MAX_DUTIES: usize = 1_000;
const DEFAULT_DUTIES: usize = 100;
/// Maximum size of the arguments of a read-only tool.
const MAX_ARGUMENT_BYTES: usize = 16 << 10;
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

fn arguments<'a, T: Deserialize<'a>>(call: &'a ToolCall) -> ApiResult<T> {
    let text = call.arguments.as_deref().unwrap_or(b"{}");
    if text.len() > MAX_ARGUMENT_BYTES {
        return Err(invalid(&format!("more than {MAX_ARGUMENT_BYTES} bytes")));
    }
    serde_json::from_slice(text).map_err(|error| invalid(&error.to_string()))
}

fn invalid(says: &str) -> Rejection {
    // The parser's message may repeat much of the input.
    let says: String = says.chars().take(300).collect();
    ApiError::bad_request(format!("Invalid arguments: {says}"))
}

/// Returns a page as a result. It is sent twice: as text and as structured content.
fn page_result(call: &ToolCall, page: JsonPage<'_>) -> ApiResult<ToolResult> {
    let (text, mut share) = page.into_parts();
    if !share.grow(text.len() * 2) {
        call.state.metrics.overloaded(Overload::Memory);
        return Err(ApiError::overloaded("too many large reads at once; request a smaller page"));
    }
    // The arguments are small and no longer needed.
    drop(take(&call.share));
    Ok(ToolResult::new(result::readable(text), Some(share)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConnectorsArguments {
    limit: Option<usize>,
    after: Option<String>,
    #[serde(default)]
    archived: bool,
}

pub(super) async fn connectors(call: &ToolCall) -> ApiResult<ToolResult> {
    let which: ConnectorsArguments = arguments(call)?;
    let limit =
        checked_limit(which.limit, connectors::DEFAULT_PAGE_ROWS, connectors::MAX_PAGE_ROWS)?;
    let after = which.after.as_deref();
    page_result(
        call,
        connectors::list(&call.state, &call.caller, after, limit, which.archived).await?,
    )
}

fn checked_limit(asked: Option<usize>, usual: usize, most: usize) -> ApiResult<usize> {
    let limit = asked.unwrap_or(usual);
    let wrong = || invalid(&format!("limit is not a number from 1 to {most}"));
    (1..=most).contains(&limit).then_some(limit).ok_or_else(wrong)
}

pub(super) async fn connector(call: &ToolCall) -> ApiResult<ToolResult> {
    let name: ConnectorKey = arguments(call)?;
    page_result(call, connectors::show(&call.state, &call.caller, &name).await?)
}

/// Returns a page of the inbox. Takes the parameters of the HTTP query, with the same rules.
pub(super) async fn inbox(call: &ToolCall) -> ApiResult<ToolResult> {
    let words: Map<String, Value> = arguments(call)?;
    let mut query = String::new();
    for (name, value) in &words {
        let value = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err(invalid(&format!("{name} is neither a string nor a number"))),
        };
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        query.push_str(&format!("&{}={}", encoded(name), encoded(&value)));
    }
    let read = inbox::parse_query(&query, &call.caller);
    let (query, wait) = read.map_err(|error| match error.error {
        "bad_request" => invalid(error.message()),
        _ => error,
    })?;
    page_result(call, inbox::page(&call.state, query, wait).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageArguments {
    request_id: String,
}

pub(super) async fn message(call: &ToolCall) -> ApiResult<ToolResult> {
    let MessageArguments { request_id } = arguments(call)?;
    page_result(call, inbox::message(&call.state, &call.caller, &request_id).await?)
}

/// Store of duties, opened by the first call.
#[derive(Debug)]
pub(super) struct DutyStore {
    url: Option<StoreUrl>,
    store: OnceCell<Arc<dyn Store>>,
}

impl DutyStore {
    pub(super) fn new(url: Option<StoreUrl>) -> Self {
        Self { url, store: OnceCell::new() }
    }

    async fn store(&self) -> ApiResult<&Arc<dyn Store>> {
        let Some(url) = &self.url else {
            return Err(ApiError::not_found("this switchboard has no store for duties"));
        };
        let opened = self.store.get_or_try_init(|| url.open(IfAbsent::Refuse, process::entropy()));
        Ok(opened.await?)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DutiesArguments {
    group: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn duties(call: &ToolCall) -> ApiResult<ToolResult> {
    // Duties belong to no endpoint, so a caller restricted to one may not list them.
    call.caller.permits_overview()?;
    let DutiesArguments { group, limit } = arguments(call)?;
    let limit = checked_limit(limit, DEFAULT_DUTIES, MAX_DUTIES)?;
    let only = group.map(|group| GroupName::unescape(&group)).transpose();
    let only = only.map_err(|_| invalid("group is not a valid group name"))?;
    let late = |_| SwitchboardError::refused(Code::Lost, "duties were not listed in time");
    timeout(LIST_TIMEOUT, list_duties(&call.state.mcp.duties, only, limit)).await.map_err(late)?
}

async fn list_duties(
    duties: &DutyStore,
    only: Option<GroupName>,
    limit: usize,
) -> ApiResult<ToolResult> {
    let store = duties.store().await?;
    let groups = match only {
        Some(group) => vec![group],
        None => store.groups().await?,
    };
    let (mut data, mut more) = (Vec::new(), false);
    for group in groups {
        if data.len() == limit {
            more = true;
            break;
        }
        let found = store.holders(&group).await?;
        let left = limit - data.len();
        more |= found.len() > left;
        data.extend(found.iter().take(left).map(|duty| duty_value(&group, duty)));
    }
    Ok(small_result(&json!({ "data": data, "meta": { "more": more } })))
}

fn duty_value(group: &GroupName, duty: &Holder) -> Value {
    let holder = duty.holder.as_ref();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "group": group.to_string(),
        "duty": duty.duty.to_string(),
        "state": if holder.is_some() { "held" } else { "free" },
        "holder": holder.map(|holder| holder.instance.to_string()),
        "epoch": duty.epoch.map(Epoch::get),
        "remaining_ms": holder.map(|holder| millis(holder.remaining)),
    })
}
