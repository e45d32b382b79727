//! Readers that follow the inbox.

use tenure_switchboard::storage::{Inbox as _, InboxQuery, InboxRead};
use tenure_wire::ingest::InboxCursor;

use super::convert::endpoint;
use super::{SwitchEvent, SwitchWorld};
use crate::switchboard::SwitchFault;
use crate::switchboard::story::{ReaderPage, SwitchStep};

/// A reader with its cursor.
#[derive(Clone, Debug)]
pub(super) struct InboxReader {
    cursor: InboxCursor,
    source: Option<usize>,
    limit: usize,
    /// Keeps positions without the tags of their messages.
    is_bare: bool,
}

impl SwitchWorld {
    pub(super) fn enlist_reader(&mut self) {
        let sources = self.scenario.sources as u64;
        let source = self.rng.chance(500).then(|| self.rng.below(sources) as usize);
        let limit = if self.rng.chance(300) { 100 } else { self.rng.between(1, 5) as usize };
        let is_bare = self.scenario.bare && self.rng.chance(250);
        let cursor = InboxCursor::default();
        self.readers.push(InboxReader { cursor, source, limit, is_bare });
    }

    pub(super) fn read(&mut self, number: usize) {
        let away = self.strikes(SwitchFault::ReaderAway, 60);
        let pause = if away { self.scenario.heal / 4 } else { self.gap() * 2 };
        self.soon(pause, SwitchEvent::Read(number));
        for _ in 0..self.rng.between(1, 4) {
            if self.read_page(number) {
                break;
            }
        }
    }

    /// Reads a page. Returns whether the reader stops for now.
    pub(super) fn read_page(&mut self, number: usize) -> bool {
        let InboxReader { cursor, source, limit, is_bare } = self.readers[number].clone();
        let after = if is_bare { cursor.position.into() } else { cursor };
        let endpoint_identity = source.map(endpoint);
        let query = InboxQuery { after, limit, endpoint_identity, ..InboxQuery::default() };
        let answer = self.runtime.block_on(self.storage.inbox(&query));
        let Some(read) = self.sound("inbox", answer) else { return true };
        let InboxRead::Page(page) = read else {
            self.reached("diverged");
            self.line(&format!("reader{number}"), || format!("reads after {after}: diverged"));
            self.history.push(SwitchStep::Diverged { reader: number });
            // It begins again.
            self.readers[number].cursor = InboxCursor::default();
            return false;
        };
        self.reached("page");
        if page.trimmed > after.position && after.position > 0 {
            self.reached("gap-told");
        }
        let is_answered = !self.strikes(SwitchFault::AnswerLost, 60);
        if is_answered {
            self.readers[number].cursor = page.next_after;
        }
        let rows: Vec<_> = page.messages.iter().map(|it| (it.position, it.request_id)).collect();
        self.line(&format!("reader{number}"), || {
            let of = source.map_or_else(String::new, |source| format!(" of e{source}"));
            let (next, trimmed) = (page.next_after, page.trimmed);
            let end = if page.at_end { ", the end" } else { "" };
            format!(
                "reads at most {limit}{of} after {after}: {} messages up to {next}{end}; \
                 trimmed {trimmed}",
                rows.len()
            )
        });
        let at_end = page.at_end;
        self.history.push(SwitchStep::Page(ReaderPage {
            reader: number,
            after: after.position,
            tagged: after.tag.is_some(),
            source,
            rows,
            next: page.next_after.position,
            is_answered,
            at_end,
            trimmed: page.trimmed,
        }));
        at_end
    }
}
