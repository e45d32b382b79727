//! Background work: retention, token usage and store health.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Clock, Code, LocalInstant};
use tenure_duty::process;
use tenure_store::BootClock;
use tokio::time::{sleep, timeout};

use crate::error::SwitchboardError;
use crate::http::ServerState;
use crate::notice::{NoticeSink, ServerNotice};
use crate::storage::{ClockMeasurement, ClockReading, InboxRetention, TimeSource};
use crate::tls::ServerCertificate;

/// Interval of the checks of store, tokens and certificates.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
const UPKEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Random delay, so that replicas do not run at the same moment.
const MAX_JITTER_MILLIS: u64 = 10_000;
/// Pause between two retention steps, for submissions.
const STEP_PAUSE: Duration = Duration::from_millis(50);
const MAX_RETENTION_STEPS: usize = 1_000;

/// Checks whether the store answers, whether tokens exist, and whether certificates changed.
pub(crate) async fn watch(
    state: Arc<ServerState>,
    tls: Option<Arc<ServerCertificate>>,
    log: NoticeSink,
) {
    let mut reported = None;
    loop {
        sleep(WATCH_INTERVAL).await;
        let answer = timeout(STORE_TIMEOUT, state.storage.ping()).await;
        let late = |_| {
            Err(SwitchboardError::refused(Code::Lost, "the store did not answer within 5 seconds"))
        };
        let answer = answer.unwrap_or_else(late);
        let (before, now) =
            state.store.record_check(answer.as_ref().err().map(SwitchboardError::code));
        if let Some(notice) = health_notice(before, now, answer) {
            log(notice);
        }
        if state.access.is_open()
            && let Ok(Ok(true)) = timeout(STORE_TIMEOUT, state.storage.has_tokens()).await
        {
            state.access.require();
            log(ServerNotice::TokensRequired);
        }
        if let Some(tls) = &tls {
            reload(tls, &mut reported, &log).await;
        }
    }
}

fn health_notice(
    before: Option<Code>,
    now: Option<Code>,
    answer: Result<(), SwitchboardError>,
) -> Option<ServerNotice> {
    match answer {
        Ok(()) => (before.is_some() && now.is_none()).then_some(ServerNotice::StoreFound),
        Err(error) if error.code() == Code::Full => {
            (before != Some(Code::Full)).then_some(ServerNotice::StoreFull(error))
        }
        // A full store still answered, so its loss is new.
        Err(error) => {
            matches!(before, None | Some(Code::Full)).then_some(ServerNotice::StoreLost(error))
        }
    }
}

/// Reloads certificates; reports an error once.
async fn reload(
    tls: &Arc<ServerCertificate>,
    reported: &mut Option<SwitchboardError>,
    log: &NoticeSink,
) {
    let files = Arc::clone(tls);
    let Ok(loaded) = tokio::task::spawn_blocking(move || files.reload()).await else { return };
    match loaded {
        Ok(new) => {
            *reported = None;
            if new {
                log(ServerNotice::CertificateChanged);
            }
        }
        Err(error) if reported.as_ref() != Some(&error) => {
            *reported = Some(error.clone());
            log(ServerNotice::CertificateUnusable(error));
        }
        Err(_) => {}
    }
}

/// Deletes data past its retention and stores token usage.
pub(crate) async fn tidy(state: Arc<ServerState>, keep: InboxRetention, log: NoticeSink) {
    let mut failed = false;
    let mut ticked = None;
    loop {
        let done = async {
            flush(&state).await?;
            tick(&state, &mut ticked).await?;
            prune(&state, keep).await
        };
        let done = done.await;
        let is_new = !std::mem::replace(&mut failed, done.is_err());
        if let (Err(error), true) = (done, is_new) {
            log(ServerNotice::UpkeepFailed(error));
        }
        let spread = uuid::Uuid::new_v4().as_u128() as u64 % MAX_JITTER_MILLIS;
        sleep(UPKEEP_INTERVAL + Duration::from_millis(spread)).await;
    }
}

/// Advances the clock of retention by the time measured here since the last answer.
async fn tick(
    state: &ServerState,
    ticked: &mut Option<(ClockReading, LocalInstant)>,
) -> Result<(), SwitchboardError> {
    let since = ticked.map(|(tick, at)| {
        let elapsed = BootClock.now().since(at).as_micros();
        let elapsed = i64::try_from(elapsed).unwrap_or(i64::MAX);
        ClockMeasurement { turn: tick.turn, wall: tick.wall, elapsed }
    });
    // The next turn sees changes by other replicas.
    let tick = state.storage.tick(since, TimeSource::Now).await?;
    *ticked = Some((tick, BootClock.now()));
    Ok(())
}

async fn prune(state: &ServerState, keep: InboxRetention) -> Result<(), SwitchboardError> {
    for _ in 0..MAX_RETENTION_STEPS {
        if !state.storage.prune(keep).await?.more {
            break;
        }
        sleep(STEP_PAUSE).await;
    }
    Ok(())
}

/// Stores the token usage since the last call.
pub(crate) async fn flush(state: &ServerState) -> Result<(), SwitchboardError> {
    let millis = i64::try_from(process::unix_ms()).unwrap_or(0);
    let now = jiff::Timestamp::from_millisecond(millis).unwrap_or_default();
    let day = now.strftime("%Y-%m-%d").to_string();
    let usage = state.access.take_usage(&day);
    if usage.is_empty() {
        return Ok(());
    }
    let stored = state.storage.add_usage(&usage).await;
    if let Err(error) = &stored
        && !error.is_unknown()
    {
        // Usage that may have been stored is dropped, so that it is not counted twice.
        state.access.put_back(usage);
    }
    stored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_of_the_store_is_told_once() {
        let error = |code| SwitchboardError::refused(code, "x");
        let (full, lost) = (Some(Code::Full), Some(Code::Lost));
        let found = Some(ServerNotice::StoreFound);
        let is_full = Some(ServerNotice::StoreFull(error(Code::Full)));
        let is_lost = Some(ServerNotice::StoreLost(error(Code::Lost)));
        for (before, now, expected) in [
            (None, None, None),
            (None, full, is_full.clone()),
            (None, lost, is_lost.clone()),
            (full, full, None),
            (full, lost, is_lost),
            (full, None, found.clone()),
            (lost, lost, None),
            (lost, full, is_full),
            (lost, None, found),
        ] {
            let answer = now.map_or(Ok(()), |code| Err(error(code)));
            assert_eq!(health_notice(before, now, answer), expected, "{before:?} {now:?}");
        }
        // The store answers, but has just rejected a write for lack of space.
        assert_eq!(health_notice(full, full, Ok(())), None);
    }
}
