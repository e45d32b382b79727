//! Checker *follow*.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{HistoryJudge, ReaderPage, SwitchStep, new_events};

/// The stored messages in the order of their submissions.
#[derive(Clone, Debug, Default)]
pub(super) struct FollowJudge {
    stored: Vec<StoredMessage>,
    positions: BTreeMap<Uuid, i64>,
}

#[derive(Clone, Copy, Debug)]
struct StoredMessage {
    id: Uuid,
    source: usize,
}

impl HistoryJudge for FollowJudge {
    const NAME: &'static str = "follow";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        match step {
            SwitchStep::Committed { sent, .. } => {
                for sent in sent {
                    let new = new_events(sent);
                    self.stored.extend(new.map(|(id, it)| StoredMessage { id, source: it.source }));
                }
            }
            SwitchStep::Observed(rows) => {
                self.positions.extend(rows.iter().map(|(position, id)| (*id, *position)));
            }
            SwitchStep::Pruned { trimmed, .. } => {
                let is_kept = |id: &Uuid| self.positions.get(id).is_none_or(|at| at > trimmed);
                self.stored.retain(|it| is_kept(&it.id));
            }
            SwitchStep::Page(page) => return self.page(page),
            _ => {}
        }
        Ok(())
    }
}

impl FollowJudge {
    /// Compares a page with the messages that belong on it. A message without a position was never
    /// seen by the observer; it belongs on every last page.
    fn page(&self, page: &ReaderPage) -> Result<(), String> {
        let ReaderPage { reader, after, source, rows, next, at_end, trimmed, .. } = page;
        if rows.last().is_some_and(|last| last.0 > *next) {
            return Err(format!("reader {reader} gets {:?} again after {next}", rows.last()));
        }
        let mut rows = rows.iter().peekable();
        for message in
            self.stored.iter().filter(|it| source.is_none_or(|wanted| it.source == wanted))
        {
            let position = self.positions.get(&message.id).copied();
            let belongs = match position {
                Some(position) => position > *after && (*at_end || position <= *next),
                None => *at_end,
            };
            if !belongs {
                continue;
            }
            let is_it = |row: &&(i64, Uuid)| {
                row.1 == message.id && position.is_none_or(|position| position == row.0)
            };
            if rows.next_if(is_it).is_some() {
                continue;
            }
            if position.is_none_or(|position| position > *trimmed) {
                let position = position.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
                return Err(format!(
                    "reader {reader} after {after} does not see {} at {position}, and is not told \
                     of a gap (trimmed {trimmed})",
                    message.id
                ));
            }
        }
        match rows.next() {
            Some((position, id)) => {
                Err(format!("reader {reader} after {after} sees {id} at {position} out of turn"))
            }
            None => Ok(()),
        }
    }
}
