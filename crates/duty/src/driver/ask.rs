//! Asks the store what the engine wants to know.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::{Answer, Request, Ticket, View};
use tenure_core::{Clock, Code, Store, StoreError};

use crate::observe::Operation;

/// An answer, and what it took.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) ticket: Ticket,
    pub(super) answer: Answer,
    pub(super) operation: Operation,
    pub(super) took: Duration,
    pub(super) error: Option<StoreError>,
}

pub(super) async fn ask(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ticket: Ticket,
    request: Request,
    within: Duration,
) -> Asked {
    let sent = clock.now();
    let operation = operation(&request);
    let (answer, error) = answer(store, request, within).await;
    Asked { ticket, answer, operation, took: clock.now().since(sent), error }
}

fn operation(request: &Request) -> Operation {
    match request {
        Request::Open(_) | Request::Close { .. } => Operation::Session,
        Request::KeepAlive { .. } => Operation::Renew,
        Request::Claim { .. } => Operation::Acquire,
        Request::Release { .. } => Operation::Release,
        Request::Look { .. } | Request::Settle { .. } => Operation::Look,
    }
}

async fn answer(
    store: Arc<dyn Store>,
    request: Request,
    within: Duration,
) -> (Answer, Option<StoreError>) {
    macro_rules! bounded {
        ($kind:ident, $call:expr) => {{
            let result = bounded(within, async move { $call.await }).await;
            let error = result.as_ref().err().cloned();
            (Answer::$kind(result), error)
        }};
    }
    match request {
        Request::Open(open) => bounded!(Open, store.open_session(&open)),
        Request::KeepAlive { session, note, holds } => {
            bounded!(KeepAlive, store.keep_alive(&session, note.as_ref(), &holds))
        }
        Request::Claim { session, wants, reason } => {
            bounded!(Claim, store.claim(&session, &wants, &reason))
        }
        Request::Release { session, holds, reason } => {
            bounded!(Release, store.release(&session, &holds, &reason))
        }
        Request::Close { session, reason } => {
            bounded!(Close, store.close_session(&session, &reason))
        }
        Request::Look { group, holders } => bounded!(Look, look(&*store, &group, holders)),
        Request::Settle { group, expected, document } => {
            bounded!(Settle, store.replace_group_document(&group, expected, &document))
        }
    }
}

async fn look(
    store: &dyn Store,
    group: &tenure_core::GroupName,
    holders: bool,
) -> Result<View, StoreError> {
    let wanted = async {
        match holders {
            true => store.holders(group).await.map(Some),
            false => Ok(None),
        }
    };
    let (members, holders, document) =
        tokio::try_join!(store.members(group), wanted, store.group_document(group))?;
    Ok(View { members, holders, document })
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
