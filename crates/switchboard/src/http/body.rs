//! Request bodies, read within limits on size, time and memory.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};
use tenure_core::Clock;
use tenure_store::BootClock;
use tokio::time::timeout;

use super::ServerState;
use super::response::{ApiError, ApiResult, Rejection};
use crate::budget::MemoryShare;
use crate::metrics::Overload;

/// Memory for a body, as a multiple of its size: itself, the parsed event, and the stored row.
const MEMORY_FACTOR: usize = 3;
/// Memory reserved ahead for a body of unknown length.
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct RequestBody {
    pub(crate) bytes: Bytes,
    pub(crate) share: MemoryShare,
}

/// Reads a body of at most `limit` bytes. Memory is reserved before anything is read.
pub(crate) async fn read(
    state: &ServerState,
    mut body: Incoming,
    limit: usize,
) -> ApiResult<RequestBody> {
    let declared =
        body.size_hint().exact().map(|declared| usize::try_from(declared).unwrap_or(usize::MAX));
    if declared.is_some_and(|declared| declared > limit) {
        return Err(ApiError::too_large(limit));
    }
    let mut paid = declared.unwrap_or(CHUNK_BYTES.min(limit));
    let Some(mut share) = state.budget.take(paid * MEMORY_FACTOR) else { return Err(full(state)) };
    let ends = BootClock.now().plus(state.timeouts.body);
    let mut first = Bytes::new();
    let mut rest = Vec::new();
    loop {
        let left = ends.since(BootClock.now()).min(state.timeouts.body_stall);
        let data = match next(&mut body, left).await? {
            Some(data) if first.is_empty() => {
                first = data;
                &first
            }
            Some(data) => {
                if rest.is_empty() {
                    rest.reserve_exact(declared.unwrap_or(first.len() + data.len()));
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&data);
                &first
            }
            None => break,
        };
        let length = rest.len().max(data.len());
        if length > limit {
            return Err(ApiError::too_large(limit));
        }
        if declared == Some(length) {
            break;
        }
        // Needed only for a body without a declared length.
        while declared.is_none() && length + CHUNK_BYTES > paid && paid < limit {
            if !share.grow(CHUNK_BYTES * MEMORY_FACTOR) {
                return Err(full(state));
            }
            paid += CHUNK_BYTES;
        }
    }
    let bytes = if rest.is_empty() { first } else { rest.into() };
    share.shrink(bytes.len() * MEMORY_FACTOR);
    Ok(RequestBody { bytes, share })
}

fn full(state: &ServerState) -> Rejection {
    state.metrics.overloaded(Overload::Memory);
    ApiError::overloaded("the memory budget is used up; nothing was read").closing()
}

/// Returns the next part; `None` at the end.
async fn next(body: &mut Incoming, left: Duration) -> ApiResult<Option<Bytes>> {
    let data = async {
        while let Some(frame) = body.frame().await {
            // Skips trailers and empty frames.
            let Ok(data) = frame?.into_data() else { continue };
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
        Ok::<_, hyper::Error>(None)
    };
    match timeout(left, data).await {
        Ok(Ok(data)) => Ok(data),
        Ok(Err(_)) => {
            Err(ApiError::bad_request("the connection ended before the end of the body").closing())
        }
        Err(_) => Err(ApiError::timeout()),
    }
}
