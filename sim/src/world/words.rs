//! Events and effects as lines that can be read.

use std::fmt::Write as _;

use tenure_core::engine::{Answer, Effect, Event, Request, View};
use tenure_core::store::{Claimed, KeptAlive};
use tenure_core::{Deadline, Hold, LocalInstant, Note, StoreError};

/// What an engine is told.
pub(super) fn event(event: &Event) -> String {
    match event {
        Event::Answered(ticket, answer) => format!("#{} {}", ticket.0, self::answer(answer)),
        Event::Listed(listing) => {
            let mut text = "listed".to_owned();
            for target in listing.targets() {
                let paused = if target.paused { "(paused)" } else { "" };
                // Writing to a string never fails.
                let _ = write!(text, " {}{paused}", target.id);
            }
            text
        }
        Event::Unlisted(error) => format!("unlisted: {}", error.code()),
        Event::Stopped { duty, epoch, how } => format!("stopped {duty}@{epoch} {how:?}"),
        Event::Progress { duty, epoch } => format!("progress {duty}@{epoch}"),
        Event::Fenced { duty, epoch, newest } => format!("fenced {duty}@{epoch} by {newest}"),
        Event::Failing { rest } => format!("failing for {rest:?}"),
        Event::Tick | Event::Hint | Event::Doubted | Event::Drain | Event::Leave => {
            format!("{event:?}").to_lowercase()
        }
    }
}

/// What an engine wants done at a local instant.
pub(super) fn effect(effect: &Effect, now: LocalInstant) -> String {
    let left = |deadline: &Deadline| format!("{:.3}s", deadline.remaining(now).as_secs_f64());
    match effect {
        Effect::Ask { ticket, request, within } => {
            format!("#{} {} within {within:?}", ticket.0, self::request(request))
        }
        Effect::Assign { hold, deadline } => {
            format!("assign {} for {}", name(hold), left(deadline))
        }
        Effect::Extend { duty, epoch, deadline } => {
            format!("extend {duty}@{epoch} for {}", left(deadline))
        }
        Effect::Suspend => "suspend".to_owned(),
        Effect::Drain { duty, epoch, why, until } => {
            format!("drain {duty}@{epoch} ({why}) within {:?}", until.since(now))
        }
        Effect::Revoke { duty, epoch, why } => format!("revoke {duty}@{epoch} ({why})"),
        Effect::Record(record) => {
            let mut text = format!("record {}", record.change.as_str());
            if let Some(duty) = &record.duty {
                let _ = write!(text, " {duty}");
            }
            if let Some(epoch) = record.epoch {
                let _ = write!(text, "@{epoch}");
            }
            if let Some(other) = &record.other {
                let _ = write!(text, " {other}");
            }
            let _ = write!(text, " ({})", record.reason);
            text
        }
        Effect::Refuse(problem) => format!("refuse {problem}"),
        Effect::End(end) => format!("end {end:?}"),
    }
}

/// What the store is asked.
pub(super) fn request(request: &Request) -> String {
    match request {
        Request::Open(open) => format!("open {} {}", short(&open.nonce), note(&open.note)),
        Request::KeepAlive { note, holds, .. } => {
            let said = note.as_ref().map(self::note).unwrap_or_default();
            format!("keep-alive [{}] {said}", names(holds))
        }
        Request::Claim { wants, .. } => {
            let want = |want: &tenure_core::store::Want| format!("{}>{}", want.duty.id, want.floor);
            format!("claim [{}]", wants.iter().map(want).collect::<Vec<_>>().join(" "))
        }
        Request::Release { holds, reason, .. } => {
            format!("release [{}] ({})", names(holds), reason.as_str())
        }
        Request::Close { .. } => "close".to_owned(),
        Request::Look { holders, .. } => {
            format!("look at members{}", if *holders { " and holders" } else { "" })
        }
        Request::Settle { expected, document, .. } => {
            format!("settle over {expected}: {} bytes", document.as_bytes().len())
        }
    }
}

/// What the store answers.
pub(super) fn answer(answer: &Answer) -> String {
    fn told<T>(result: &Result<T, StoreError>, ok: impl FnOnce(&T) -> String) -> String {
        match result {
            Ok(value) => ok(value),
            Err(StoreError::Refused(problem)) => format!("refused {}", problem.code),
            Err(StoreError::Unknown(problem)) => format!("unknown {}", problem.code),
        }
    }
    match answer {
        Answer::Open(result) => told(result, |opened| {
            let text = format!("{opened:?}");
            text.split('(').next().unwrap_or_default().to_owned()
        }),
        Answer::KeepAlive(result) => told(result, |kept| match kept {
            KeptAlive::Kept { mark, holds } => format!("kept {holds:?} mark {}", mark.0),
            KeptAlive::Ended => "ended".to_owned(),
        }),
        Answer::Claim(result) => {
            told(result, |claims| claims.iter().map(claimed).collect::<Vec<_>>().join(" "))
        }
        Answer::Release(result) => told(result, |released| format!("{released:?}")),
        Answer::Close(result) => told(result, |closed| format!("{closed:?}")),
        Answer::Look(result) => told(result, view),
        Answer::Settle(result) => told(result, |replaced| format!("{replaced:?}")),
    }
}

fn claimed(claimed: &Claimed) -> String {
    match claimed {
        Claimed::Granted(hold) => format!("granted {}", name(hold)),
        Claimed::Already(hold) => format!("already {}", name(hold)),
        Claimed::HeldBy(Some(now)) => format!("held by {}", now.instance),
        Claimed::HeldBy(None) => "held".to_owned(),
        Claimed::SessionEnded => "session ended".to_owned(),
    }
}

fn view(view: &View) -> String {
    let mut text = "view".to_owned();
    for member in &view.members {
        let evicted = if member.evicted { " evicted" } else { "" };
        let _ = write!(text, " {}[{}{evicted}]", member.instance, note(&member.note));
    }
    let _ = write!(text, " document {}", view.document.version);
    for holder in view.holders.iter().flatten() {
        let who = holder.holder.as_ref().map_or("-", |now| now.instance.as_str());
        let epoch = holder.epoch.map_or(0, tenure_core::Epoch::get);
        let _ = write!(text, " {}@{epoch}={who}", holder.duty.id);
    }
    text
}

fn note(note: &Note) -> String {
    let lines =
        note.as_str().lines().filter(|line| !["tenure=1", "weight=1", "room=10000"].contains(line));
    lines.collect::<Vec<_>>().join(" ")
}

fn short(nonce: &tenure_core::Nonce) -> String {
    nonce.to_string().chars().take(8).collect()
}

fn name(hold: &Hold) -> String {
    format!("{}@{}", hold.duty.id, hold.epoch)
}

fn names(holds: &[Hold]) -> String {
    holds.iter().map(name).collect::<Vec<_>>().join(" ")
}
