//! The tools that only look.

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

use super::result::{self, Told};
use super::tools::said;
use super::{Call, take};
use crate::error::SwitchboardError;
use crate::http::answer::{Refusal, Refused};
use crate::http::inbox::Page;
use crate::http::{connectors, inbox};
use crate::metrics::Overload;
use crate::storage::Name;

/// How many duties are listed at most.
pub(super) const MOST_DUTIES: usize = 1_000;
const USUAL_DUTIES: usize = 100;
/// The most bytes of arguments: whoever only looks has little to say.
const MOST_ARGUMENTS: usize = 16 << 10;
/// How long the store may take to list duties.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was called with, if it can be read.
fn arguments<'a, T: Deserialize<'a>>(call: &'a Call) -> Result<T, Refused> {
    let text = call.arguments.as_deref().unwrap_or(b"{}");
    if text.len() > MOST_ARGUMENTS {
        return Err(invalid(&format!("they have more than {MOST_ARGUMENTS} bytes")));
    }
    serde_json::from_slice(text).map_err(|error| invalid(&error.to_string()))
}

fn invalid(says: &str) -> Refused {
    // What a reader says may repeat much of what was sent.
    let says: String = says.chars().take(300).collect();
    Refusal::bad_request(format!("Invalid arguments: {says}"))
}

/// A page that was put together. It goes out twice, as text and as it is.
fn paged(call: &Call, page: Page<'_>) -> Result<Told, Refused> {
    let overloaded = || {
        call.state.metrics.overloaded(Overload::Memory);
        Refusal::overloaded("too much is being read; ask for less at a time")
    };
    let (text, mut share) = page.parted();
    if !share.grow(text.len() * 2) {
        return Err(overloaded());
    }
    // What was sent is small, and was read.
    drop(take(&call.share));
    Ok(Told::new(result::readable(text), Some(share)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    limit: Option<usize>,
    after: Option<String>,
    #[serde(default)]
    archived: bool,
}

pub(super) async fn connectors(call: &Call) -> Result<Told, Refused> {
    let which: Which = arguments(call)?;
    let limit = limited(which.limit, connectors::USUAL, connectors::MOST)?;
    let after = which.after.as_deref();
    paged(call, connectors::list(&call.state, &call.caller, after, limit, which.archived).await?)
}

fn limited(asked: Option<usize>, usual: usize, most: usize) -> Result<usize, Refused> {
    let limit = asked.unwrap_or(usual);
    let wrong = || invalid(&format!("limit is not a number from 1 to {most}"));
    (1..=most).contains(&limit).then_some(limit).ok_or_else(wrong)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    connector_type: String,
    endpoint_identity: String,
}

pub(super) async fn connector(call: &Call) -> Result<Told, Refused> {
    let One { connector_type, endpoint_identity } = arguments(call)?;
    let name = Name { connector_type, endpoint_identity };
    paged(call, connectors::show(&call.state, &call.caller, &name).await?)
}

/// The same words as in the query of the inbox, and the same rules.
pub(super) async fn inbox(call: &Call) -> Result<Told, Refused> {
    let words: Map<String, Value> = arguments(call)?;
    let mut query = String::new();
    for (name, value) in &words {
        let value = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err(invalid(&format!("{name} is neither a text nor a number"))),
        };
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        query.push_str(&format!("&{}={}", encoded(name), encoded(&value)));
    }
    let asked = inbox::asked(&query).map_err(|refusal| invalid(refusal.message()));
    let (mut query, wait) = asked?;
    inbox::narrow(&mut query, &call.caller)?;
    paged(call, inbox::page(&call.state, query, wait).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Id {
    request_id: String,
}

pub(super) async fn message(call: &Call) -> Result<Told, Refused> {
    let Id { request_id } = arguments(call)?;
    paged(call, inbox::message(&call.state, &call.caller, &request_id).await?)
}

/// The store of holds, opened when somebody asks first.
#[derive(Debug)]
pub(super) struct Duties {
    url: Option<StoreUrl>,
    store: OnceCell<Arc<dyn Store>>,
}

impl Duties {
    pub(super) fn new(url: Option<StoreUrl>) -> Self {
        Self { url, store: OnceCell::new() }
    }

    async fn store(&self) -> Result<&Arc<dyn Store>, Refused> {
        let Some(url) = &self.url else {
            return Err(Refusal::not_found("this switchboard has no store of duties"));
        };
        let opened = self.store.get_or_try_init(|| url.open(IfAbsent::Refuse, process::entropy()));
        Ok(opened.await?)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whose {
    group: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn duties(call: &Call) -> Result<Told, Refused> {
    // Duties belong to no endpoint.
    call.caller.permits_overview()?;
    let Whose { group, limit } = arguments(call)?;
    let limit = limited(limit, USUAL_DUTIES, MOST_DUTIES)?;
    let only = group.map(|group| GroupName::unescape(&group)).transpose();
    let only = only.map_err(|_| invalid("group is not the name of a group"))?;
    let late = |_| SwitchboardError::refused(Code::Lost, "duties were not listed in time");
    timeout(PATIENCE, listed(&call.state.mcp.duties, only, limit)).await.map_err(late)?
}

async fn listed(duties: &Duties, only: Option<GroupName>, limit: usize) -> Result<Told, Refused> {
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
        more |= found.len() > limit - data.len();
        let left = limit - data.len();
        data.extend(found.iter().take(left).map(|duty| duty_value(&group, duty)));
    }
    Ok(said(&json!({ "data": data, "meta": { "more": more } })))
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
