//! What is asked over HTTP, and what is answered.
//!
//! hyper and a table of routes: the table is what the OpenAPI document is compared with, every
//! answer is JSON of one form, and nothing is boxed on the way of an event.

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
mod outcome;
mod query;
pub(crate) mod response;
mod response_body;
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
use tenure_core::{Clock, LocalInstant};
use tenure_store::BootClock;
use tokio::sync::{Mutex, Semaphore, watch};

use self::query::Query;
use self::response::{ApiError, ApiResponse, Rejection};
pub(crate) use self::response_body::ResponseBody;
use self::route::{Endpoint, Found};
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
use crate::notice::ServerNotice;
use crate::server::NoticeSink;
use crate::storage::{Ended, Storage};
use crate::token::Role;
use crate::view::time;

/// Pages of the inbox and of dead letters that are put together at a time; others wait.
pub(crate) const MAX_CONCURRENT_PAGES: usize = 2;

/// What all requests share.
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
    /// When it was said that the history cannot be written.
    pub(crate) history_said: heartbeat::NoticeThrottle,
    /// How many connectors live, as it was found last, and when.
    pub(crate) lively: Mutex<Option<(LocalInstant, [u64; 4])>>,
    /// When this replica counted last, and how far behind it was then, in microseconds; `None`
    /// while it does not count.
    pub(crate) counted: std::sync::Mutex<Option<(LocalInstant, i64)>>,
    pub(crate) mcp: Mcp,
}

/// How far the server is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerPhase {
    /// It is not.
    Running,
    /// It says so, and serves whoever comes.
    LameDuck,
    /// Nobody new is let in; connections close after their request.
    Draining,
    /// What is still open is closed.
    Over,
}

impl ServerState {
    pub(crate) fn is_leaving(&self) -> bool {
        *self.phase.borrow() != ServerPhase::Running
    }

    /// A token ended before what came with it was stored.
    pub(crate) fn token_ended(&self, caller: &Principal, ended: Ended) -> Rejection {
        self.access.ended(caller.token_id());
        self.metrics.auth_failures.add(1);
        ApiError::token_ended(ended)
    }

    /// A request was refused: if the store has no room, operators are to know.
    pub(crate) fn heard(&self, refusal: &ApiError) {
        if let Some(cause) = &refusal.cause
            && self.store.refused(cause.code())
        {
            (self.log)(ServerNotice::StoreFull(cause.clone()));
        }
    }
}

/// The connection that a request came on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionInfo {
    pub(crate) peer: IpAddr,
    /// One too many: only operators are answered.
    pub(crate) surplus: bool,
    /// Its address has more than its share.
    pub(crate) crowded: bool,
}

/// Answers a request, whatever it is.
pub(crate) async fn serve(
    state: &Arc<ServerState>,
    visit: ConnectionInfo,
    request: Request<Incoming>,
) -> ApiResponse {
    let began = BootClock.now();
    let (head, body) = request.into_parts();
    let (endpoint, parts) = match route::find(head.method.as_str(), head.uri.path()) {
        _ if !has_one_host(&head) => {
            (Err(ApiError::bad_request("HTTP/1.1 wants one Host header").closing()), ["", ""])
        }
        Found::Endpoint(endpoint, parts) => (Ok(endpoint), parts),
        Found::NotAllowed(allow) => (Err(ApiError::method_not_allowed(allow)), ["", ""]),
        Found::Nothing => (Err(ApiError::not_found("there is nothing at this path")), ["", ""]),
    };
    let known = endpoint.as_ref().ok().copied();
    let answered = match endpoint {
        Ok(Endpoint::Echo) if !state.echo => {
            Err(ApiError::not_found("there is nothing at this path"))
        }
        Ok(endpoint) if visit.surplus && !endpoint.is_for_operators() => {
            state.metrics.overloaded(Overload::Connections);
            Err(ApiError::too_many_connections(visit.crowded))
        }
        Ok(endpoint) => {
            let asked = ApiRequest { state, visit, head: &head, parts };
            catch_panic(asked.answer(endpoint, body)).await
        }
        Err(refusal) => Err(refusal),
    };
    let mut answer = answered.unwrap_or_else(|refusal| {
        state.heard(&refusal);
        match is_of_connectors(head.uri.path()) {
            true => refusal.wrapped(),
            false => refusal.answer(),
        }
    });
    state.metrics.answered(known, answer.status().as_u16(), BootClock.now().since(began));
    if visit.surplus || state.is_leaving() {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// Whether errors have the form that dashboards know.
fn is_of_connectors(path: &str) -> bool {
    let rest = path.strip_prefix("/api/connectors");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// HTTP/1.1 asks for exactly one; two are read differently by whoever stands in between.
fn has_one_host(head: &Parts) -> bool {
    let hosts = head.headers.get_all(HOST).iter().count();
    hosts == 1 || hosts == 0 && head.version == Version::HTTP_10
}

/// A panic is a bug, and ends nothing but its request.
pub(crate) async fn catch_panic<T>(
    work: impl Future<Output = Result<T, Rejection>>,
) -> Result<T, Rejection> {
    let mut work = pin!(work);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(ApiError::internal().closing())))
    })
    .await
}

/// A request that has found its endpoint.
#[derive(Clone, Copy)]
struct ApiRequest<'a> {
    state: &'a Arc<ServerState>,
    visit: ConnectionInfo,
    head: &'a Parts,
    /// What stands for each `{}` of the path.
    parts: [&'a str; 2],
}

impl ApiRequest<'_> {
    async fn answer(self, endpoint: Endpoint, body: Incoming) -> Result<ApiResponse, Rejection> {
        match endpoint {
            Endpoint::Ingest => self.ingest(body).await,
            Endpoint::Batch => Box::pin(self.batch(body)).await,
            Endpoint::Echo => self.echo(body).await,
            other => Box::pin(self.answer_rare(other, body)).await,
        }
    }

    /// Boxed, so that an event's way stays small.
    async fn answer_rare(
        self,
        endpoint: Endpoint,
        body: Incoming,
    ) -> Result<ApiResponse, Rejection> {
        match endpoint {
            Endpoint::Ingest | Endpoint::Batch | Endpoint::Echo => Err(ApiError::internal()),
            Endpoint::IngestHealth => self.ingest_health().await,
            Endpoint::Inbox => self.inbox().await,
            Endpoint::Message => self.message().await,
            Endpoint::Letters => self.letters().await,
            Endpoint::PostLetter => self.post_letter(body).await,
            Endpoint::Letter => self.letter().await,
            Endpoint::Replay => self.replay(body).await,
            Endpoint::Discard => self.discard(body).await,
            Endpoint::Fences => self.fences().await,
            Endpoint::ResetFence => self.reset_fence(body).await,
            Endpoint::Heartbeat => self.heartbeat(body).await,
            Endpoint::Outcome => self.outcome(body).await,
            Endpoint::Connectors => self.connectors().await,
            Endpoint::ConnectorSummary => self.connector_summary().await,
            Endpoint::Fanout => self.fanout().await,
            Endpoint::Connector => self.connector().await,
            Endpoint::ConnectorStats => self.connector_stats().await,
            Endpoint::Heartbeats => self.heartbeats().await,
            Endpoint::Archive => self.archive(body).await,
            Endpoint::Recount => self.recount(body).await,
            Endpoint::DeleteConnector => self.delete_connector(body).await,
            Endpoint::Mcp => self.mcp(body).await,
            Endpoint::McpOther => self.mcp_other().await,
            Endpoint::Sse => self.sse().await,
            Endpoint::SseMessage => self.sse_message(body).await,
            Endpoint::Health => self.health(),
            Endpoint::Ready => self.ready(),
            Endpoint::Metrics => self.metrics().await,
            Endpoint::OpenApi => self.openapi(),
        }
    }

    async fn caller(self, need: Requirement) -> Result<Principal, Rejection> {
        // Without tokens, who is let in is judged by more than that.
        if !self.state.access.is_open() {
            self.state.mcp.check_origin(&self.head.headers)?;
        }
        self.state.access.check(&self.head.headers, self.visit.peer, need).await
    }

    async fn reader(self) -> Result<Principal, Rejection> {
        self.caller(Requirement::Role(Role::Read)).await
    }

    async fn admin(self) -> Result<Principal, Rejection> {
        self.caller(Requirement::Role(Role::Admin)).await
    }

    fn query(self) -> Result<Query, Rejection> {
        Query::read(self.head.uri.query())
    }

    /// Most endpoints have no parameters.
    fn no_query(self) -> Result<(), Rejection> {
        match self.head.uri.query() {
            None => Ok(()),
            Some(_) => self.query()?.end(),
        }
    }
}
