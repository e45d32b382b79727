//! Content of requests: format of the body, the hold in the headers, and checks of JSON fields.

use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_core::{DutyKey, Epoch, InstanceId};

use super::ingest::error;
use super::response::{ApiError, ApiResult};
use crate::storage::IngestFence;

pub(super) const MAX_REASON_BYTES: usize = 4096;
/// Maximum length of an error message, which may repeat what was sent.
const MAX_ERROR_CHARS: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    /// `application/json`.
    Json,
    /// `application/x-ndjson`: JSON by lines.
    Lines,
}

/// Checks that the body is plain JSON in UTF-8.
pub(crate) fn json(headers: &HeaderMap) -> ApiResult<()> {
    match form(headers) {
        Some(BodyFormat::Json) => Ok(()),
        _ => Err(ApiError::unsupported(
            "the body must be application/json in UTF-8, without Content-Encoding",
        )),
    }
}

/// Returns the format of a batch, which may also be JSON by lines.
pub(crate) fn batch(headers: &HeaderMap) -> ApiResult<BodyFormat> {
    let message = "the body must be application/json or application/x-ndjson in UTF-8, without \
                   Content-Encoding";
    form(headers).ok_or_else(|| ApiError::unsupported(message))
}

fn form(headers: &HeaderMap) -> Option<BodyFormat> {
    if let Some(encoding) = headers.get(CONTENT_ENCODING)
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return None;
    }
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    let text = lines.next()?.to_str().ok()?;
    if lines.next().is_some() {
        return None;
    }
    // Fast path for the usual value.
    if text == "application/json" {
        return Some(BodyFormat::Json);
    }
    let (kind, parameters) = text.split_once(';').unwrap_or((text, ""));
    let in_utf8 = parameters.split(';').all(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = value.trim().trim_matches('"');
        !name.trim().eq_ignore_ascii_case("charset") || value.eq_ignore_ascii_case("utf-8")
    });
    match kind.trim() {
        _ if !in_utf8 => None,
        kind if kind.eq_ignore_ascii_case("application/json") => Some(BodyFormat::Json),
        kind if kind.eq_ignore_ascii_case("application/x-ndjson") => Some(BodyFormat::Lines),
        _ => None,
    }
}

/// Reads the hold from the three headers, which come together or not at all.
pub(crate) fn fence(headers: &HeaderMap) -> ApiResult<Option<IngestFence>> {
    let duty = one(headers, "tenure-duty")?;
    let epoch = one(headers, "tenure-epoch")?;
    let instance = one(headers, "tenure-instance")?;
    let (duty, epoch, instance) = match (duty, epoch, instance) {
        (None, None, None) => return Ok(None),
        (Some(duty), Some(epoch), Some(instance)) => (duty, epoch, instance),
        _ => {
            let all = "send all of Tenure-Duty, Tenure-Epoch and Tenure-Instance, or none";
            return Err(ApiError::bad_request(all));
        }
    };
    let bad = |header: &str| ApiError::bad_request(format!("{header} cannot be read"));
    let duty: DutyKey = duty.parse().map_err(|_| bad("Tenure-Duty"))?;
    let digits = !epoch.is_empty() && epoch.bytes().all(|byte| byte.is_ascii_digit());
    let number = epoch.parse().ok().filter(|_| digits);
    let epoch = number.and_then(|number| Epoch::new(number).ok());
    let epoch = epoch.filter(|epoch| *epoch > Epoch::ZERO).ok_or_else(|| bad("Tenure-Epoch"))?;
    let instance = InstanceId::new(instance).map_err(|_| bad("Tenure-Instance"))?;
    Ok(Some(IngestFence { duty, epoch, instance }))
}

fn one<'a>(headers: &'a HeaderMap, name: &str) -> ApiResult<Option<&'a str>> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    // Not `to_str`: the name of an instance may have non-ASCII characters.
    match std::str::from_utf8(line.as_bytes()) {
        Ok(text) if lines.next().is_none() => Ok(Some(text)),
        _ => Err(ApiError::bad_request(format!("{name} occurs more than once, or is not UTF-8"))),
    }
}

/// Reads JSON without unknown fields.
pub(super) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8], what: &str) -> ApiResult<T> {
    serde_json::from_slice(bytes).map_err(|wrong| {
        let kind = match wrong.classify() {
            serde_json::error::Category::Data => "value_error",
            _ => "json_invalid",
        };
        let says: String = wrong.to_string().chars().take(MAX_ERROR_CHARS).collect();
        ApiError::invalid(&format!("Invalid {what}: {says}"), json!([error(kind, "", &says)]))
    })
}

pub(super) fn reject(what: &str, wrong: Vec<(&str, String)>) -> ApiResult<()> {
    if wrong.is_empty() {
        return Ok(());
    }
    let says: Vec<_> = wrong.iter().map(|(at, says)| format!("{at}: {says}")).collect();
    let errors = wrong.iter().map(|(at, says)| error("value_error", at, says));
    let errors = Value::Array(errors.collect());
    Err(ApiError::invalid(&format!("Invalid {what}: {}", says.join("; ")), errors))
}

/// Checks that every store can keep the text.
pub(super) fn check<'a>(wrong: &mut Vec<(&'a str, String)>, at: &'a str, text: &str, most: usize) {
    if text.trim().is_empty() {
        wrong.push((at, "is empty".to_owned()));
    } else if text.len() > most {
        wrong.push((at, format!("is longer than {most} bytes")));
    } else if text.contains('\0') {
        wrong.push((at, "contains a NUL".to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers
                .append(*name, hyper::header::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn only_json_in_utf8_is_taken() {
        let good = [
            "application/json",
            "APPLICATION/JSON; charset=UTF-8",
            "application/json;charset=\"utf-8\"",
            "application/json; profile=x",
        ];
        for text in good {
            assert!(json(&headers(&[("content-type", text)])).is_ok(), "{text}");
        }
        let bad = [
            "",
            "text/plain",
            "application/jsonx",
            "application/json; charset=latin1",
            "application/x-ndjson",
            "application/json, text/plain",
        ];
        for text in bad {
            assert!(json(&headers(&[("content-type", text)])).is_err(), "{text}");
        }
        assert!(json(&headers(&[])).is_err());
        let twice = [("content-type", "application/json"), ("content-type", "application/json")];
        assert!(json(&headers(&twice)).is_err());
        let packed = [("content-type", "application/json"), ("content-encoding", "gzip")];
        assert!(json(&headers(&packed)).is_err());
        let lines = headers(&[("content-type", "application/x-ndjson; charset=utf-8")]);
        assert_eq!(batch(&lines).unwrap(), BodyFormat::Lines);
    }

    #[test]
    fn a_hold_is_whole_or_absent() {
        let duty = ("tenure-duty", "poll/bot%2F1");
        let epoch = ("tenure-epoch", "19");
        let instance = ("tenure-instance", "höst-1");
        assert_eq!(fence(&headers(&[])).unwrap(), None);
        let found = fence(&headers(&[duty, epoch, instance])).unwrap().unwrap();
        assert_eq!(found.duty.to_string(), "poll/bot%2F1");
        assert_eq!((found.epoch.get(), found.instance.as_str()), (19, "höst-1"));
        for part in [&[duty, epoch][..], &[duty, instance], &[epoch, instance], &[instance]] {
            assert!(fence(&headers(part)).is_err());
        }
        for bad in ["", "0", "-1", "+1", "1.0", "x", "9007199254740992", "99999999999999999999"] {
            assert!(fence(&headers(&[duty, ("tenure-epoch", bad), instance])).is_err(), "{bad}");
        }
        for bad in ["", "poll", "poll/%zz"] {
            assert!(fence(&headers(&[("tenure-duty", bad), epoch, instance])).is_err(), "{bad}");
        }
        assert!(fence(&headers(&[duty, duty, epoch, instance])).is_err());
    }
}
