//! Events and effects as readable text.

use std::fmt::Write as _;

use tenure_core::engine::{Effect, EngineEvent, GroupView, StoreRequest, StoreResponse};
use tenure_core::store::{Claimed, KeptAlive};
use tenure_core::{Deadline, Hold, LocalInstant, Note, StoreError};

/// Describes an engine event.
pub(super) fn event(event: &EngineEvent) -> String {
    match event {
        EngineEvent::Answered(ticket, answer) => format!("#{} {}", ticket.0, self::answer(answer)),
        EngineEvent::Listed(listing) => {
            let mut text = "listed".to_owned();
            for target in listing.targets() {
                let paused = if target.paused { "(paused)" } else { "" };
                // Writing to a string never fails.
                let _ = write!(text, " {}{paused}", target.id);
            }
            text
        }
        EngineEvent::Unlisted(error) => format!("unlisted: {}", error.code()),
        EngineEvent::Stopped { duty, epoch, how } => format!("stopped {duty}@{epoch} {how:?}"),
        EngineEvent::Progress { duty, epoch } => format!("progress {duty}@{epoch}"),
        EngineEvent::Fenced { duty, epoch, newest } => format!("fenced {duty}@{epoch} by {newest}"),
        EngineEvent::Failing { rest } => format!("failing for {rest:?}"),
        EngineEvent::Tick
        | EngineEvent::Hint
        | EngineEvent::Doubted
        | EngineEvent::Drain
        | EngineEvent::Leave => format!("{event:?}").to_lowercase(),
    }
}

/// Describes an effect at a local instant.
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

/// Describes a request to the store.
pub(super) fn request(request: &StoreRequest) -> String {
    match request {
        StoreRequest::Open(open) => format!("open {} {}", short(&open.nonce), note(&open.note)),
        StoreRequest::KeepAlive { note, holds, .. } => {
            let said = note.as_ref().map(self::note).unwrap_or_default();
            format!("keep-alive [{}] {said}", names(holds))
        }
        StoreRequest::Claim { wants, .. } => {
            let want = |want: &tenure_core::store::ClaimRequest| {
                format!("{}>{}", want.duty.id, want.floor)
            };
            format!("claim [{}]", wants.iter().map(want).collect::<Vec<_>>().join(" "))
        }
        StoreRequest::Release { holds, reason, .. } => {
            format!("release [{}] ({})", names(holds), reason.as_str())
        }
        StoreRequest::Close { .. } => "close".to_owned(),
        StoreRequest::Look { holders, .. } => {
            format!("look at members{}", if *holders { " and holders" } else { "" })
        }
        StoreRequest::Settle { expected, document, .. } => {
            format!("settle over {expected}: {} bytes", document.as_bytes().len())
        }
    }
}

/// Describes a response of the store.
pub(super) fn answer(answer: &StoreResponse) -> String {
    fn told<T>(result: &Result<T, StoreError>, ok: impl FnOnce(&T) -> String) -> String {
        match result {
            Ok(value) => ok(value),
            Err(StoreError::Refused(problem)) => format!("refused {}", problem.code),
            Err(StoreError::Unknown(problem)) => format!("unknown {}", problem.code),
        }
    }
    match answer {
        StoreResponse::Open(result) => told(result, |opened| {
            let text = format!("{opened:?}");
            text.split('(').next().unwrap_or_default().to_owned()
        }),
        StoreResponse::KeepAlive(result) => told(result, |kept| match kept {
            KeptAlive::Kept { mark, holds } => format!("kept {holds:?} mark {}", mark.0),
            KeptAlive::Ended => "ended".to_owned(),
        }),
        StoreResponse::Claim(result) => {
            told(result, |claims| claims.iter().map(claimed).collect::<Vec<_>>().join(" "))
        }
        StoreResponse::Release(result) => told(result, |released| format!("{released:?}")),
        StoreResponse::Close(result) => told(result, |closed| format!("{closed:?}")),
        StoreResponse::Look(result) => told(result, view),
        StoreResponse::Settle(result) => told(result, |replaced| format!("{replaced:?}")),
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

fn view(view: &GroupView) -> String {
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
