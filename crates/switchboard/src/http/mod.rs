//! HTTP API: routing, access control and handlers.
//!
//! [`route::ROUTES`] lists the endpoints. [`serve`] finds the row of a request, checks the token
//! that the row requires, and calls its handler.

mod batch;
pub(crate) mod body;
pub(crate) mod connectors;
pub(crate) mod content;
mod dead_letters;
pub(crate) mod fences;
pub(crate) mod heartbeat;
pub(crate) mod inbox;
pub(crate) mod ingest;
mod mcp;
mod openapi;
mod outcome;
mod query;
pub(crate) mod response;
pub(crate) mod route;
mod statistics;
mod status;

use std::future::poll_fn;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Version};
use serde::de::DeserializeOwned;
use tenure_core::{Clock, LocalInstant};
use tenure_store::BootClock;
use tokio::sync::{Mutex, Semaphore, watch};

use self::body::RequestBody;
use self::query::Query;
use self::response::{ApiError, ApiResponse, ApiResult, Rejection};
use self::route::{Route, RouteMatch};
use crate::ClientTimeouts;
use crate::access::{AccessControl, Principal, Requirement};
use crate::budget::Budget;
use crate::channels::Channels;
use crate::commit::Committer;
use crate::health::StoreHealth;
use crate::inbox_watch::InboxWatch;
use crate::liveness::Policy;
use crate::mcp::Mcp;
use crate::metrics::{Metrics, Overload};
use crate::notice::{NoticeSink, ServerNotice};
use crate::storage::{Decision, IngestFence, Storage, SubmissionRejection, TokenEnd};
use crate::view::time;

/// Pages that are built concurrently; further requests wait.
pub(crate) const MAX_CONCURRENT_PAGES: usize = 2;

/// Statuses of responses, for metrics.
pub(crate) const STATUSES: [u16; 16] =
    [200, 202, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 429, 500, 503];

pub(crate) struct ServerState {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) committer: Committer,
    pub(crate) access: AccessControl,
    pub(crate) budget: Arc<Budget>,
    pub(crate) channels: Channels,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) follow: InboxWatch,
    pub(crate) timeouts: ClientTimeouts,
    pub(crate) phase: watch::Sender<ServerPhase>,
    pub(crate) store: StoreHealth,
    pub(crate) pages: Semaphore,
    pub(crate) started: LocalInstant,
    pub(crate) echo: bool,
    pub(crate) liveness: Policy,
    pub(crate) log: NoticeSink,
    /// Throttle for the notice that the history cannot be written.
    pub(crate) history_notice: heartbeat::NoticeThrottle,
    /// Connectors by liveness, and when they were counted.
    pub(crate) liveness_counts: Mutex<Option<(LocalInstant, [u64; 4])>>,
    /// Time of the last statistics step and its lag then, in microseconds; `None`
    /// if another replica counts.
    pub(crate) counted: std::sync::Mutex<Option<(LocalInstant, i64)>>,
    pub(crate) mcp: Mcp,
}

/// Phase of the server: running, or a step of its shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerPhase {
    Running,
    /// Not ready, but still serving.
    LameDuck,
    /// No new connections; open ones close after their request.
    Draining,
    /// Open connections are closed.
    Over,
}

impl ServerState {
    pub(crate) fn is_leaving(&self) -> bool {
        *self.phase.borrow() != ServerPhase::Running
    }

    /// Counts a submission that was rejected, and returns its error.
    pub(crate) fn rejected(
        &self,
        caller: &Principal,
        fence: Option<&IngestFence>,
        why: &SubmissionRejection,
    ) -> Rejection {
        match why {
            SubmissionRejection::Fenced(_) => self.metrics.fenced.add(1),
            SubmissionRejection::TokenEnded(ended) => drop(self.token_ended(caller, *ended)),
            SubmissionRejection::BadFence(_) => {}
        }
        ApiError::rejected(fence, why)
    }

    /// Handles a token that ended before the request was stored.
    pub(crate) fn token_ended(&self, caller: &Principal, ended: TokenEnd) -> Rejection {
        self.access.ended(caller.token_id());
        self.metrics.auth_failures.add(1);
        ApiError::token_ended(ended)
    }

    pub(crate) fn report_failure(&self, error: &ApiError) {
        if let Some(cause) = &error.cause
            && self.store.record_failure(cause.code())
        {
            (self.log)(ServerNotice::StoreFull(cause.clone()));
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionInfo {
    pub(crate) peer: IpAddr,
    /// Beyond the connection limit: only monitoring is served.
    pub(crate) surplus: bool,
    /// Its address exceeds its share of the connections.
    pub(crate) crowded: bool,
}

pub(crate) async fn serve(
    state: &Arc<ServerState>,
    connection: ConnectionInfo,
    request: Request<Incoming>,
) -> ApiResponse {
    let began = BootClock.now();
    let (head, body) = request.into_parts();
    let found = find(state, &head);
    let known = found.as_ref().ok().map(|(route, _)| *route);
    let served = match found {
        Ok((route, _)) if connection.surplus && !route.for_monitoring => {
            state.metrics.overloaded(Overload::Connections);
            Err(ApiError::too_many_connections(connection.crowded))
        }
        Ok((route, parameters)) => {
            catch_panic(async {
                let caller = &authorize(state, route.requires, connection, &head).await?;
                let request =
                    ApiRequest { state, route, connection, head: &head, parameters, caller };
                (route.handler)(request, body).await
            })
            .await
        }
        Err(error) => Err(error),
    };
    let mut response = served.unwrap_or_else(|error| {
        state.report_failure(&error);
        error.response(is_dashboard(head.uri.path()))
    });
    state.metrics.answered(known, response.status().as_u16(), BootClock.now().since(began));
    if connection.surplus || state.is_leaving() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Finds the endpoint of a request, and the values of its path parameters.
fn find<'a>(state: &ServerState, head: &'a Parts) -> ApiResult<(&'static Route, [&'a str; 2])> {
    if !has_one_host(head) {
        return Err(ApiError::bad_request("HTTP/1.1 requires exactly one Host header").closing());
    }
    match route::find(head.method.as_str(), head.uri.path()) {
        RouteMatch::Found(route, parameters) if route.path != route::ECHO || state.echo => {
            Ok((route, parameters))
        }
        RouteMatch::NotAllowed(allow) => Err(ApiError::method_not_allowed(&allow)),
        _ => Err(ApiError::not_found("this path does not exist")),
    }
}

/// Checks the credentials that an endpoint requires.
async fn authorize(
    state: &ServerState,
    requires: Requirement,
    connection: ConnectionInfo,
    head: &Parts,
) -> ApiResult<Principal> {
    if requires == Requirement::Nothing {
        return Ok(Principal::Open);
    }
    if requires == Requirement::RecentToken {
        state.mcp.hosts.check(&head.headers)?;
    }
    // Without tokens, the access control checks more than the origin.
    if !state.access.is_open() {
        state.mcp.hosts.check_origin(&head.headers)?;
    }
    state.access.check(&head.headers, connection.peer, requires).await
}

/// Returns whether errors of this path have the format that dashboards use.
fn is_dashboard(path: &str) -> bool {
    let rest = path.strip_prefix("/api/connectors");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether there is one `Host`, as HTTP/1.1 requires: proxies disagree about which counts.
fn has_one_host(head: &Parts) -> bool {
    let hosts = head.headers.get_all(HOST).iter().count();
    hosts == 1 || hosts == 0 && head.version == Version::HTTP_10
}

/// Turns a panic, which is a bug, into an error of its request.
pub(crate) async fn catch_panic<T>(work: impl Future<Output = ApiResult<T>>) -> ApiResult<T> {
    let mut work = pin!(work);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(ApiError::internal().closing())))
    })
    .await
}

#[derive(Clone, Copy)]
pub(crate) struct ApiRequest<'a> {
    state: &'a Arc<ServerState>,
    route: &'static Route,
    connection: ConnectionInfo,
    head: &'a Parts,
    parameters: [&'a str; 2],
    caller: &'a Principal,
}

impl ApiRequest<'_> {
    fn query(self) -> ApiResult<Query> {
        Query::read(self.head.uri.query())
    }

    /// Rejects query parameters: most endpoints have none.
    fn no_query(self) -> ApiResult<()> {
        self.query()?.end()
    }

    /// Reads the body, up to the limit of the endpoint.
    async fn body(self, body: Incoming) -> ApiResult<RequestBody> {
        let limit = self.route.body.map_or(0, |(max_bytes, _)| max_bytes);
        body::read(self.state, body, limit).await
    }

    /// Reads a JSON body of a request without query parameters.
    async fn json(self, body: Incoming) -> ApiResult<RequestBody> {
        self.no_query()?;
        content::json(&self.head.headers)?;
        self.body(body).await
    }

    /// Reads the command of an operator and its reason.
    async fn command<T: DeserializeOwned>(
        self,
        body: Incoming,
        what: &str,
        reason: impl FnOnce(&T) -> &str,
    ) -> ApiResult<(T, Decision)> {
        let command: T = content::parse(&self.json(body).await?.bytes, what)?;
        let reason = reason(&command);
        let mut wrong = Vec::new();
        content::check(&mut wrong, "reason", reason, content::MAX_REASON_BYTES);
        content::reject(what, wrong)?;
        let decision = self.caller.decision(reason);
        Ok((command, decision))
    }

    /// Returns the value, or the error of a token that ended before it was stored.
    fn permitted<T>(self, stored: Result<T, TokenEnd>) -> ApiResult<T> {
        stored.map_err(|ended| self.state.token_ended(self.caller, ended))
    }
}
