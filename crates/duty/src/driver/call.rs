//! Store calls of the engine.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::{GroupView, StoreRequest, StoreResponse, Ticket};
use tenure_core::{Clock, Code, GroupName, Store, StoreError};

use crate::observe::Operation;

#[derive(Debug)]
pub(super) struct CallResult {
    pub(super) ticket: Ticket,
    pub(super) response: StoreResponse,
    pub(super) operation: Operation,
    pub(super) took: Duration,
    pub(super) error: Option<StoreError>,
}

pub(super) async fn call(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ticket: Ticket,
    request: StoreRequest,
    within: Duration,
) -> CallResult {
    let sent = clock.now();
    let (response, operation, error) = respond(store, request, within).await;
    CallResult { ticket, response, operation, took: clock.now().since(sent), error }
}

async fn respond(
    store: Arc<dyn Store>,
    request: StoreRequest,
    within: Duration,
) -> (StoreResponse, Operation, Option<StoreError>) {
    macro_rules! bounded {
        ($operation:ident $response:ident $call:expr) => {{
            let result = bounded(within, async move { $call.await }).await;
            let error = result.as_ref().err().cloned();
            (StoreResponse::$response(result), Operation::$operation, error)
        }};
    }
    match request {
        StoreRequest::Open(open) => bounded!(Session Open store.open_session(&open)),
        StoreRequest::KeepAlive { session, note, holds } => {
            bounded!(Renew KeepAlive store.keep_alive(&session, note.as_ref(), &holds))
        }
        StoreRequest::Claim { session, wants, reason } => {
            bounded!(Acquire Claim store.claim(&session, &wants, &reason))
        }
        StoreRequest::Release { session, holds, reason } => {
            bounded!(Release Release store.release(&session, &holds, &reason))
        }
        StoreRequest::Close { session, reason } => {
            bounded!(Session Close store.close_session(&session, &reason))
        }
        StoreRequest::Look { group, holders } => {
            bounded!(Look Look look(&*store, &group, holders))
        }
        StoreRequest::Settle { group, expected, document } => {
            bounded!(Look Settle store.replace_group_document(&group, expected, &document))
        }
    }
}

async fn look(
    store: &dyn Store,
    group: &GroupName,
    holders: bool,
) -> Result<GroupView, StoreError> {
    let wanted = async { if holders { store.holders(group).await.map(Some) } else { Ok(None) } };
    let (members, holders, document) =
        tokio::try_join!(store.members(group), wanted, store.group_document(group))?;
    Ok(GroupView { members, holders, document })
}

/// Limits the duration of a call. The call is a task of its own, so that a panic becomes an error.
async fn bounded<T: Send + 'static>(
    within: Duration,
    call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::spawn(tokio::time::timeout(within, call)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(StoreError::unknown(Code::Lost, format!("no answer within {within:?}"))),
        Err(_) => Err(StoreError::unknown(Code::Failed, "the call panicked")),
    }
}
