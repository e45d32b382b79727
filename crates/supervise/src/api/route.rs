//! Requests of the local API, and their answers.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH,
    RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde::Serialize;
use tenure_core::store::Checkpoint;
use tenure_core::{Clock as _, Code, Document, DutyKey, StoreError, Version};
use tenure_duty::{Guard, HoldLost, PutOutcome, process};
use tenure_operate::millis;
use tenure_store::BootClock;
use tenure_wire::hold_api::{
    EPOCH_HEADER, HoldAnswer, HoldPhase, HoldProblem, HoldResult, HoldView, INSTANCE_HEADER,
    ProgressReport, WRITTEN_MS_HEADER,
};
use tokio::sync::mpsc;

use super::HoldGrant;
use super::body::ApiBody;
use crate::observe::SourceEndpoint;

pub(super) type HoldResponse = Response<ApiBody>;

/// Limit on receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Events that wait for a reader; there are at most three.
const MAX_QUEUED_EVENTS: usize = 4;
/// The longest effect that can be asked about.
const MAX_EFFECT_SECONDS: f64 = 86_400.0;

const PATHS: [(&str, &str); 6] = [
    ("/hold", "GET"),
    ("/checkpoint", "GET, PUT"),
    ("/check", "POST"),
    ("/progress", "POST"),
    ("/release", "POST"),
    ("/events", "GET"),
];

const UNCHANGED: &str = "nothing was changed";
const SEE_PAGE: &str = "see the page \"Local API\" of the documentation";
const STOP: &str = "stop this work: another instance may hold the duty";

pub(super) async fn respond(request: Request<Incoming>, grant: &Arc<HoldGrant>) -> HoldResponse {
    let (head, body) = request.into_parts();
    match (head.method.as_str(), head.uri.path()) {
        ("GET", "/hold") => json(StatusCode::OK, &view(grant)),
        ("GET", "/checkpoint") => get(&grant.hold).await,
        ("PUT", "/checkpoint") => put(&grant.hold, &head.headers, body).await,
        ("POST", "/check") => check(&grant.hold, head.uri.query()),
        ("POST", "/progress") => progress(grant, body).await,
        ("POST", "/release") => release(grant),
        ("GET", "/events") => events(grant),
        (_, path) => not_found(&head.method, path),
    }
}

fn view(grant: &HoldGrant) -> HoldView {
    let hold = &grant.hold;
    let DutyKey { group, id } = hold.duty();
    let released = *grant.released.borrow();
    let draining = hold.draining() || released;
    // Checked last, so that a pause of this process counts.
    let checked = hold.check();
    let state = match checked {
        Err(HoldLost::Unconfirmed) => HoldPhase::Suspended,
        Err(_) => HoldPhase::Lost,
        Ok(_) if draining => HoldPhase::Draining,
        Ok(_) => HoldPhase::Held,
    };
    let until_deadline = hold.deadline().since(BootClock.now());
    HoldView {
        duty: hold.duty().to_string(),
        group: group.as_str().to_owned(),
        id: id.as_str().to_owned(),
        epoch: hold.epoch().get(),
        instance: hold.instance().as_str().to_owned(),
        state,
        draining,
        remaining_ms: checked.map_or(0, millis),
        deadline_unix_ms: process::unix_ms().saturating_add(millis(until_deadline)),
        deadline_boottime_ns: hold.deadline().as_nanos(),
        shard: grant.shard.map(|(shard, _)| shard),
        shards: grant.shard.and_then(|(_, shards)| shards),
    }
}

async fn get(hold: &Guard) -> HoldResponse {
    if let Err(response) = usable(hold).await {
        return response;
    }
    match hold.load().await {
        Ok(Some(checkpoint)) => document(&checkpoint),
        Ok(None) => {
            let what = hold.duty().to_string();
            let hint = "begin from the start, and store the first one with If-None-Match: *";
            let error = Some(problem(Some(Code::NoCheckpoint), what, UNCHANGED, hint));
            let answer = HoldAnswer { version: Some(0), error, ..plain(HoldResult::Absent) };
            tagged(json(StatusCode::NOT_FOUND, &answer), Version::ZERO)
        }
        Err(error) => failed(&error.of_read()),
    }
}

/// Returns the exact bytes of a checkpoint.
fn document(checkpoint: &Checkpoint) -> HoldResponse {
    let bytes = checkpoint.document.as_bytes();
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
    let kind = if is_json { "application/json" } else { "application/octet-stream" };
    let mut response = response(StatusCode::OK, kind, bytes.to_vec());
    for (name, value) in [
        (EPOCH_HEADER, checkpoint.epoch.to_string()),
        (INSTANCE_HEADER, checkpoint.instance.to_string()),
        (WRITTEN_MS_HEADER, checkpoint.unix_ms.to_string()),
    ] {
        // Numbers, and escaped names: always valid.
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    tagged(response, checkpoint.version)
}

async fn put(hold: &Guard, headers: &HeaderMap, body: Incoming) -> HoldResponse {
    let over = match expected(headers) {
        Ok(over) => over,
        Err(detail) => return invalid(StatusCode::BAD_REQUEST, detail),
    };
    let bytes = match read(body).await {
        Ok(bytes) => bytes,
        Err(response) => return response,
    };
    // A read cannot have a longer document than a write.
    let document = match Document::new(bytes.to_vec()) {
        Ok(document) => document,
        Err(error) => return failed(&error),
    };
    if let Err(response) = usable(hold).await {
        return response;
    }
    match hold.put(document, over).await {
        Ok(PutOutcome::Stored(version)) => {
            let answer = HoldAnswer { version: Some(version.get()), ..plain(HoldResult::Stored) };
            tagged(json(StatusCode::OK, &answer), version)
        }
        Ok(PutOutcome::Conflict { newest }) => {
            let what = format!("version {newest} of {} is stored", hold.duty());
            let hint = "read the checkpoint again, and decide which one is right";
            let error = Some(problem(Some(Code::OtherVersion), what, UNCHANGED, hint));
            let answer =
                HoldAnswer { version: Some(newest.get()), error, ..plain(HoldResult::Conflict) };
            tagged(json(StatusCode::PRECONDITION_FAILED, &answer), newest)
        }
        Err(error) => failed(&error),
    }
}

/// Returns the version that a write replaces; `None` for the newest one.
fn expected(headers: &HeaderMap) -> Result<Option<Version>, String> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default().trim());
    match (text(IF_MATCH), text(IF_NONE_MATCH)) {
        (None, None) => Ok(None),
        (None, Some("*")) => Ok(Some(Version::ZERO)),
        (None, Some(_)) => Err("If-None-Match must be *".to_owned()),
        (Some(_), Some(_)) => Err("use If-Match or If-None-Match, not both".to_owned()),
        (Some(tag), None) => {
            let number = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            let version = number.unwrap_or(tag).parse().ok().map(Version::new);
            match version {
                Some(Ok(version)) => Ok(Some(version)),
                _ => Err("If-Match must be the ETag of a checkpoint, as in \"7\"".to_owned()),
            }
        }
    }
}

/// Waits until the store has confirmed the hold, if this process was paused. An error is the
/// response when the hold is lost.
async fn usable(hold: &Guard) -> Result<(), HoldResponse> {
    let checked = match hold.check() {
        Err(HoldLost::Unconfirmed) => hold.confirmed().await,
        checked => checked.map(|_| ()),
    };
    checked.map_err(|lost| failed(&lost.into()))
}

async fn read(body: Incoming) -> Result<Bytes, HoldResponse> {
    let limited = Limited::new(body, Document::MAX_DOCUMENT_BYTES);
    match tokio::time::timeout(BODY_TIMEOUT, limited.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let detail = format!("the limit is {} bytes", Document::MAX_DOCUMENT_BYTES);
            Err(invalid(StatusCode::PAYLOAD_TOO_LARGE, detail))
        }
        Ok(Err(_)) => Err(invalid(StatusCode::BAD_REQUEST, "the body ended early".to_owned())),
        Err(_) => Err(invalid(StatusCode::REQUEST_TIMEOUT, "the body took too long".to_owned())),
    }
}

fn check(hold: &Guard, query: Option<&str>) -> HoldResponse {
    let seconds = match query {
        None => Some(0.0),
        Some(query) => query.strip_prefix("seconds=").and_then(|text| text.parse::<f64>().ok()),
    };
    let seconds = seconds.filter(|seconds| (0.0..=MAX_EFFECT_SECONDS).contains(seconds));
    let Some(seconds) = seconds else {
        let detail = format!("give ?seconds=N with a number from 0 to {MAX_EFFECT_SECONDS}");
        return invalid(StatusCode::BAD_REQUEST, detail);
    };
    let left = match hold.check() {
        Ok(left) => left,
        Err(HoldLost::Unconfirmed) => Duration::ZERO,
        Err(lost) => return failed(&lost.into()),
    };
    let remaining_ms = Some(millis(left));
    if !left.is_zero() && hold.check_for(Duration::from_secs_f64(seconds)).is_ok() {
        return json(StatusCode::OK, &HoldAnswer { remaining_ms, ..plain(HoldResult::Ok) });
    }
    let what = "too little time is left until the deadline".to_owned();
    let hint = "wait for the next renewal and check again, or stop";
    let error = Some(problem(None, what, UNCHANGED, hint));
    json(StatusCode::CONFLICT, &HoldAnswer { remaining_ms, error, ..plain(HoldResult::Short) })
}

async fn progress(grant: &HoldGrant, body: Incoming) -> HoldResponse {
    let body = match read(body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let report = ProgressReport::parse(&body).and_then(|report| {
        let pending = report.oldest_pending_ms()?;
        Ok((report, pending))
    });
    let (report, pending) = match report {
        Ok(report) => report,
        Err(detail) => return invalid(StatusCode::BAD_REQUEST, detail),
    };
    if let Err(lost) = grant.hold.check()
        && lost != HoldLost::Unconfirmed
    {
        return failed(&lost.into());
    }
    grant.hold.progress();
    if let Some(pending) = pending {
        let DutyKey { group, id } = grant.hold.duty();
        let (endpoint, shard) = match grant.shard {
            Some((shard, _)) => (group.as_str(), shard.to_string()),
            None => (id.as_str(), String::new()),
        };
        let endpoint = SourceEndpoint {
            connector_type: report.connector_type.unwrap_or_else(|| group.as_str().to_owned()),
            endpoint_identity: report.endpoint_identity.unwrap_or_else(|| endpoint.to_owned()),
            shard_id: report.shard_id.unwrap_or(shard),
        };
        let age = |at: u64| Duration::from_millis(process::unix_ms().saturating_sub(at));
        grant.recorder.set_lag(grant.hold.duty(), endpoint, pending.map(age));
    }
    json(StatusCode::OK, &plain(HoldResult::Ok))
}

fn release(grant: &HoldGrant) -> HoldResponse {
    if let Err(lost @ (HoldLost::Revoked | HoldLost::Deadline)) = grant.hold.check() {
        return failed(&lost.into());
    }
    grant.released.send_replace(true);
    json(StatusCode::ACCEPTED, &plain(HoldResult::Ok))
}

/// Streams the state of the hold now, when the program is asked to end, and when it is lost.
fn events(grant: &Arc<HoldGrant>) -> HoldResponse {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_EVENTS);
    let grant = Arc::clone(grant);
    tokio::spawn(async move {
        let send = async |name: &str| {
            let mut view = view(&grant);
            if name == "draining" && view.state == HoldPhase::Held {
                (view.draining, view.state) = (true, HoldPhase::Draining);
            }
            let data = serde_json::to_string(&view).unwrap_or_default();
            sender.send(format!("event: {name}\ndata: {data}\n\n").into()).await.is_ok()
        };
        let mut released = grant.released.subscribe();
        let ends = async {
            if !send("hold").await {
                return;
            }
            tokio::select! {
                () = grant.hold.stopping() => {}
                () = runs_out(&grant) => {}
                _ = released.wait_for(|released| *released) => {}
            }
            if view(&grant).state == HoldPhase::Lost || send("draining").await {
                grant.hold.lost().await;
                send("lost").await;
            }
        };
        tokio::select! {
            () = ends => {}
            () = sender.closed() => {}
        }
    });
    let mut response = Response::new(ApiBody::Events(receiver));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Waits until the command is told to end because the hold was not renewed.
async fn runs_out(grant: &HoldGrant) {
    loop {
        let left = grant.hold.deadline().since(BootClock.now()).saturating_sub(grant.grace);
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

/// Answer to a store error, by what the program may do next.
fn failed(error: &StoreError) -> HoldResponse {
    let code = error.code();
    let (status, result, kept, hint) = match code {
        Code::Fenced | Code::Held => (StatusCode::CONFLICT, HoldResult::Fenced, UNCHANGED, STOP),
        _ if error.is_unknown() => (
            StatusCode::GATEWAY_TIMEOUT,
            HoldResult::Unknown,
            "unknown; the checkpoint may be stored",
            "send the same request again: the same document over the same version is stored once",
        ),
        Code::BadInput => {
            let hint = "see the limits on the page of this code";
            (StatusCode::UNPROCESSABLE_ENTITY, HoldResult::Invalid, UNCHANGED, hint)
        }
        _ if error.may_pass() => {
            let hint = "try again, until the deadline of the hold";
            (StatusCode::SERVICE_UNAVAILABLE, HoldResult::Unavailable, UNCHANGED, hint)
        }
        _ => {
            let hint = "see `tenure errors CODE`; trying again will not help";
            (StatusCode::INTERNAL_SERVER_ERROR, HoldResult::Failed, UNCHANGED, hint)
        }
    };
    let error = Some(problem(Some(code), error.problem().detail.clone(), kept, hint));
    let mut response = json(status, &HoldAnswer { error, ..plain(result) });
    if result == HoldResult::Unavailable {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Answer to a request with the secret of a grant that has ended.
pub(super) fn ended_grant() -> HoldResponse {
    failed(&HoldLost::Revoked.into())
}

pub(super) fn unauthorized() -> HoldResponse {
    let detail = "send Authorization: Bearer with the value of TENURE_API_TOKEN".to_owned();
    let mut response = invalid(StatusCode::UNAUTHORIZED, detail);
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

pub(super) fn wrong_host() -> HoldResponse {
    let detail = "the Host header must be the address in TENURE_API".to_owned();
    invalid(StatusCode::MISDIRECTED_REQUEST, detail)
}

fn not_found(method: &Method, path: &str) -> HoldResponse {
    let Some((path, allowed)) = PATHS.iter().find(|(known, _)| *known == path) else {
        let paths: Vec<&str> = PATHS.iter().map(|(path, _)| *path).collect();
        return invalid(StatusCode::NOT_FOUND, format!("the paths are {}", paths.join(", ")));
    };
    let detail = format!("{path} does not accept {method}; use {allowed}");
    let mut response = invalid(StatusCode::METHOD_NOT_ALLOWED, detail);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn invalid(status: StatusCode, detail: String) -> HoldResponse {
    let error = Some(problem(None, detail, UNCHANGED, SEE_PAGE));
    json(status, &HoldAnswer { error, ..plain(HoldResult::Invalid) })
}

fn plain(result: HoldResult) -> HoldAnswer {
    HoldAnswer { result, version: None, remaining_ms: None, error: None }
}

fn problem(code: Option<Code>, detail: String, kept: &str, hint: &str) -> HoldProblem {
    let sentence = code.map(|code| code.sentence().to_owned());
    let code = code.map(|code| code.as_str().to_owned());
    HoldProblem { code, sentence, detail, kept: kept.to_owned(), hint: hint.to_owned() }
}

fn tagged(mut response: HoldResponse, version: Version) -> HoldResponse {
    // A number in quotes is always valid.
    if let Ok(tag) = HeaderValue::try_from(format!("\"{version}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

fn json(status: StatusCode, body: &impl Serialize) -> HoldResponse {
    // Text and numbers: this cannot fail.
    let text = serde_json::to_string(body).unwrap_or_default() + "\n";
    response(status, "application/json", text.into_bytes())
}

fn response(status: StatusCode, kind: &'static str, body: Vec<u8>) -> HoldResponse {
    let mut response = Response::new(ApiBody::Whole(Some(body.into())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
