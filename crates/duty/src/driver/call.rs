//! Asks the store what the engine wants to know.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::{GroupView, StoreRequest, StoreResponse, Ticket};
use tenure_core::{Clock, Code, Store, StoreError};

use crate::observe::Operation;

/// An answer, and what it took.
#[derive(Debug)]
pub(super) struct CallResult {
    pub(super) ticket: Ticket,
    pub(super) answer: StoreResponse,
    pub(super) operation: Operation,
    pub(super) took: Duration,
    pub(super) error: Option<StoreError>,
}

pub(super) async fn ask(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ticket: Ticket,
    request: StoreRequest,
    within: Duration,
) -> CallResult {
    let sent = clock.now();
    let operation = operation(&request);
    let (answer, error) = answer(store, request, within).await;
    CallResult { ticket, answer, operation, took: clock.now().since(sent), error }
}

fn operation(request: &StoreRequest) -> Operation {
    match request {
        StoreRequest::Open(_) | StoreRequest::Close { .. } => Operation::Session,
        StoreRequest::KeepAlive { .. } => Operation::Renew,
        StoreRequest::Claim { .. } => Operation::Acquire,
        StoreRequest::Release { .. } => Operation::Release,
        StoreRequest::Look { .. } | StoreRequest::Settle { .. } => Operation::Look,
    }
}

async fn answer(
    store: Arc<dyn Store>,
    request: StoreRequest,
    within: Duration,
) -> (StoreResponse, Option<StoreError>) {
    macro_rules! bounded {
        ($kind:ident, $call:expr) => {{
            let result = bounded(within, async move { $call.await }).await;
            let error = result.as_ref().err().cloned();
            (StoreResponse::$kind(result), error)
        }};
    }
    match request {
        StoreRequest::Open(open) => bounded!(Open, store.open_session(&open)),
        StoreRequest::KeepAlive { session, note, holds } => {
            bounded!(KeepAlive, store.keep_alive(&session, note.as_ref(), &holds))
        }
        StoreRequest::Claim { session, wants, reason } => {
            bounded!(Claim, store.claim(&session, &wants, &reason))
        }
        StoreRequest::Release { session, holds, reason } => {
            bounded!(Release, store.release(&session, &holds, &reason))
        }
        StoreRequest::Close { session, reason } => {
            bounded!(Close, store.close_session(&session, &reason))
        }
        StoreRequest::Look { group, holders } => bounded!(Look, look(&*store, &group, holders)),
        StoreRequest::Settle { group, expected, document } => {
            bounded!(Settle, store.replace_group_document(&group, expected, &document))
        }
    }
}

async fn look(
    store: &dyn Store,
    group: &tenure_core::GroupName,
    holders: bool,
) -> Result<GroupView, StoreError> {
    let wanted = async {
        match holders {
            true => store.holders(group).await.map(Some),
            false => Ok(None),
        }
    };
    let (members, holders, document) =
        tokio::try_join!(store.members(group), wanted, store.group_document(group))?;
    Ok(GroupView { members, holders, document })
}

/// An answer in time, whatever the store does. A call that panics is a task of its own that fails.
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
