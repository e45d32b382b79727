//! What is done beside requests: retention, what tokens were used for, and watching the store.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Clock, Code, LocalInstant};
use tenure_duty::process;
use tenure_store::BootClock;
use tokio::time::{sleep, timeout};

use crate::error::SwitchboardError;
use crate::http::State;
use crate::notice::Notice;
use crate::server::Log;
use crate::storage::{Keep, Measured, Tick, When};
use crate::tls::Tls;

/// How often the store is asked how it is, and whether there are tokens now.
const LOOK: Duration = Duration::from_secs(2);
/// How long the store may take for that.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often there is something to tidy up.
const ROUND: Duration = Duration::from_secs(60);
/// Replicas do not do it at the same moment.
const SPREAD: u64 = 10_000;
/// Between two steps of retention submissions have their turn.
const BREATH: Duration = Duration::from_millis(50);
/// One round takes so many steps; what is left is for the next.
const MOST_STEPS: usize = 1_000;

/// Looks whether the store answers and whether tokens have come.
pub(crate) async fn watch(state: Arc<State>, tls: Option<Arc<Tls>>, log: Log) {
    let mut told = None;
    loop {
        sleep(LOOK).await;
        let answer = timeout(PATIENCE, state.storage.ping()).await;
        let late = |_| Err(SwitchboardError::refused(Code::Lost, "it did not answer in 5 seconds"));
        let answer = answer.unwrap_or_else(late);
        let (before, now) = state.store.looked(answer.as_ref().err().map(SwitchboardError::code));
        if let Some(news) = news(before, now, answer) {
            log(news);
        }
        if state.access.is_open()
            && let Ok(Ok(true)) = timeout(PATIENCE, state.storage.has_tokens()).await
        {
            state.access.require();
            log(Notice::TokensRequired);
        }
        if let Some(tls) = &tls {
            reload(tls, &mut told, &log).await;
        }
    }
}

/// What is new of the store, by what was wrong with it before and what it answers now.
fn news(
    before: Option<Code>,
    now: Option<Code>,
    answer: Result<(), SwitchboardError>,
) -> Option<Notice> {
    match answer {
        Ok(()) => (before.is_some() && now.is_none()).then_some(Notice::StoreFound),
        Err(error) if error.code() == Code::Full => {
            (before != Some(Code::Full)).then_some(Notice::StoreFull(error))
        }
        // One that was full still answered.
        Err(error) => matches!(before, None | Some(Code::Full)).then_some(Notice::StoreLost(error)),
    }
}

/// Takes in new certificates; says once what is wrong with them.
async fn reload(tls: &Arc<Tls>, told: &mut Option<SwitchboardError>, log: &Log) {
    let files = Arc::clone(tls);
    let Ok(loaded) = tokio::task::spawn_blocking(move || files.reload()).await else { return };
    match loaded {
        Ok(new) => {
            *told = None;
            if new {
                log(Notice::CertificateChanged);
            }
        }
        Err(error) if told.as_ref() != Some(&error) => {
            *told = Some(error.clone());
            log(Notice::CertificateUnusable(error));
        }
        Err(_) => {}
    }
}

/// Takes away what is past its retention and notes what tokens were used for.
pub(crate) async fn tidy(state: Arc<State>, keep: Keep, log: Log) {
    let mut failed = false;
    let mut ticked = None;
    loop {
        let done = match flush(&state).await {
            Ok(()) => match tick(&state, &mut ticked).await {
                Ok(()) => prune(&state, keep).await,
                error => error,
            },
            error => error,
        };
        match done {
            Err(error) if !failed => {
                failed = true;
                log(Notice::UpkeepFailed(error));
            }
            Err(_) => {}
            Ok(()) => failed = false,
        }
        let spread = uuid::Uuid::new_v4().as_u128() as u64 % SPREAD;
        sleep(ROUND + Duration::from_millis(spread)).await;
    }
}

/// Moves the clock of retention by what was measured here since the last answer came.
async fn tick(
    state: &State,
    ticked: &mut Option<(Tick, LocalInstant)>,
) -> Result<(), SwitchboardError> {
    let since = ticked.map(|(tick, at)| {
        let elapsed = BootClock.now().since(at).as_micros();
        let elapsed = i64::try_from(elapsed).unwrap_or(i64::MAX);
        Measured { turn: tick.turn, wall: tick.wall, elapsed }
    });
    // What may have moved it meanwhile is learned by the next turn.
    let tick = state.storage.tick(since, When::Now).await?;
    *ticked = Some((tick, BootClock.now()));
    Ok(())
}

async fn prune(state: &State, keep: Keep) -> Result<(), SwitchboardError> {
    for _ in 0..MOST_STEPS {
        if !state.storage.prune(keep).await?.more {
            break;
        }
        sleep(BREATH).await;
    }
    Ok(())
}

/// Stores what tokens were used for since the last time.
pub(crate) async fn flush(state: &State) -> Result<(), SwitchboardError> {
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
        // What may have been stored is not counted twice.
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
        let found = Some(Notice::StoreFound);
        let is_full = Some(Notice::StoreFull(error(Code::Full)));
        let is_lost = Some(Notice::StoreLost(error(Code::Lost)));
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
            assert_eq!(news(before, now, answer), expected, "{before:?} {now:?}");
        }
        // It answers, but has just refused something for want of room.
        assert_eq!(news(full, full, Ok(())), None);
    }
}
