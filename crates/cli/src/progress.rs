//! Progress of commands that take long: one line on the terminal of standard error.

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{interval, sleep};

use crate::output::StatusLine;

/// Time after which a command shows its progress.
pub(crate) const PROGRESS_DELAY: Duration = Duration::from_secs(1);
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);

/// Current activity of this process, in words; empty if nothing is to be shown.
static ACTIVITY: Mutex<String> = Mutex::new(String::new());
/// Whether progress is shown at all.
static IS_ON: Mutex<bool> = Mutex::new(false);

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a command that may take long, in words.
pub(crate) fn begin(activity: &str) {
    *lock(&IS_ON) = !activity.is_empty();
    activity.clone_into(&mut lock(&ACTIVITY));
}

/// Describes what the command does now, with counts if they are known.
pub(crate) fn describe(activity: &str) {
    if *lock(&IS_ON) {
        activity.clone_into(&mut lock(&ACTIVITY));
    }
}

/// Runs work, and shows its activity from `delay` on until it ends.
pub(crate) async fn follow<T>(
    work: impl Future<Output = T>,
    delay: Duration,
    mut show: impl FnMut(&str),
) -> T {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = sleep(delay) => {}
    }
    let mut ticks = interval(REDRAW_INTERVAL);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = ticks.tick() => {
                let activity = lock(&ACTIVITY).clone();
                if !activity.is_empty() {
                    show(&activity);
                }
            }
        }
    }
}

/// Runs work, and shows its activity on the terminal of standard error, if there is one.
pub(crate) async fn on_terminal<T>(work: impl Future<Output = T>) -> T {
    if !*lock(&IS_ON) || !io::stderr().is_terminal() {
        return work.await;
    }
    let mut line = StatusLine::default();
    let show = |activity: &str| {
        line.show(&format!("{activity} ..."));
    };
    follow(work, PROGRESS_DELAY, show).await
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::sync::Notify;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn only_long_work_is_shown() {
        let (seen, drawn) = (RefCell::new(Vec::new()), Notify::new());
        let show = |text: &str| {
            seen.borrow_mut().push(text.to_owned());
            drawn.notify_one();
        };
        begin("working");
        let short = async {
            yield_now().await;
            7
        };
        assert_eq!(follow(short, Duration::from_secs(3600), show).await, 7);
        assert!(seen.borrow().is_empty(), "it ended before the delay");
        let long = async {
            drawn.notified().await;
            describe("step 2 of 2");
            drawn.notified().await;
            8
        };
        assert_eq!(follow(long, Duration::ZERO, show).await, 8);
        assert_eq!(seen.take(), ["working", "step 2 of 2"]);
        // A command that began without an activity, as with --json, describes nothing.
        begin("");
        describe("step 1 of 2");
        assert!(lock(&ACTIVITY).is_empty());
    }
}
