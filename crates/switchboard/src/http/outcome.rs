//! Endpoint: outcomes of a message, reported by a consumer.

use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;
use tenure_wire::heartbeat::connector_type_of;
use uuid::Uuid;

use super::content::{check, parse, reject};
use super::inbox::not_found;
use super::response::{ApiError, ApiResult, ok};
use super::{ApiRequest, time};
use crate::storage::{MessageLookup, MessageOutcomes, TimeSource};

const MAX_TARGET_BYTES: usize = 128;
const MAX_TARGETS: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutcomeReport {
    #[serde(default)]
    acked: Vec<String>,
    #[serde(default)]
    failed: Vec<String>,
}

impl ApiRequest<'_> {
    pub(super) async fn outcome(self, body: Incoming) -> ApiResult {
        let whole = self.json(body).await?;
        let OutcomeReport { acked, failed } = read(&whole.bytes)?;
        let request_id = Uuid::try_parse(self.parameters[0]).map_err(|_| not_found())?;
        let storage = &self.state.storage;
        let (channel, provider, endpoint_identity) = match storage.message(request_id).await? {
            // The envelope may be large and no memory is reserved for it: drop it at once.
            MessageLookup::Message(it) => (it.channel, it.provider, it.endpoint_identity),
            MessageLookup::Trimmed { first_seen_at } => {
                return Err(ApiError::gone(&time(first_seen_at)));
            }
            MessageLookup::Nothing => return Err(not_found()),
        };
        let known = storage.connector_types(&endpoint_identity).await?;
        let rules = self.state.channels.current().await?;
        let outcomes = MessageOutcomes {
            request_id,
            connector_type: connector_type_of(rules.keyed(&channel), &provider, &known),
            endpoint_identity,
            acked,
            failed,
            token_id: self.caller.token_id().map(str::to_owned),
        };
        let reported = self.permitted(storage.report(&outcomes, TimeSource::Now).await?)?;
        if !reported.found {
            return Err(not_found());
        }
        let (acked, failed) = storage.outcomes(request_id).await?;
        ok(&json!({
            "request_id": request_id.to_string(),
            "acked": acked,
            "failed": failed,
            "changed": reported.changed,
        }))
    }
}

fn read(bytes: &[u8]) -> ApiResult<OutcomeReport> {
    let mut report: OutcomeReport = parse(bytes, "outcome")?;
    let mut wrong = Vec::new();
    for (at, names) in [("acked", &mut report.acked), ("failed", &mut report.failed)] {
        for name in names.iter_mut() {
            *name = name.trim().to_owned();
            check(&mut wrong, at, name, MAX_TARGET_BYTES);
        }
        names.sort();
        names.dedup();
    }
    let (acked, failed) = (&report.acked, &report.failed);
    if acked.is_empty() && failed.is_empty() {
        wrong.push(("acked", "is empty; give at least one target in acked or failed".to_owned()));
    }
    if acked.len() + failed.len() > MAX_TARGETS {
        wrong.push(("acked", format!("has more than {MAX_TARGETS} targets, together with failed")));
    }
    if failed.iter().any(|name| acked.contains(name)) {
        wrong.push(("failed", "has a target that is also in acked".to_owned()));
    }
    // Reports each kind of error once.
    wrong.dedup();
    reject("outcome", wrong)?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_each_target_once() {
        let report = read(br#"{"acked":[" health ","health"],"failed":["general"]}"#).unwrap();
        assert_eq!((report.acked, report.failed), (vec!["health".into()], vec!["general".into()]));
        let long = format!(r#"{{"acked":["{}"]}}"#, "x".repeat(129));
        let names: Vec<_> = (0..101).map(|n| format!("\"{n}\"")).collect();
        let many = format!(r#"{{"acked":[{}]}}"#, names.join(","));
        for bad in [
            "{}",
            r#"{"acked":[]}"#,
            r#"{"acked":[""]}"#,
            r#"{"acked":["a\u0000"]}"#,
            r#"{"acked":["a"],"failed":["a"]}"#,
            r#"{"acked":["a"],"more":1}"#,
            r#"{"acked":"a"}"#,
            long.as_str(),
            many.as_str(),
        ] {
            assert_eq!(read(bad.as_bytes()).err().unwrap().status, 422, "{bad}");
        }
    }
}
