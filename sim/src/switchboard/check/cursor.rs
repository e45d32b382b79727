//! Checker *cursor*.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{HistoryJudge, SwitchStep};

/// The messages by position, also deleted ones, and the cursors of the readers.
#[derive(Clone, Debug, Default)]
pub(super) struct CursorJudge {
    messages: BTreeMap<i64, Uuid>,
    readers: BTreeMap<usize, (i64, Option<Uuid>)>,
}

impl CursorJudge {
    /// Whether a reader's cursor names a message that a restore has lost.
    fn is_lost(&self, reader: usize) -> bool {
        let (position, id) = self.readers.get(&reader).copied().unwrap_or_default();
        position > 0 && self.messages.get(&position).copied() != id
    }
}

impl HistoryJudge for CursorJudge {
    const NAME: &'static str = "cursor";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        match step {
            SwitchStep::Observed(rows) => self.messages.extend(rows.iter().copied()),
            SwitchStep::Page(page) => {
                let is_told = page.trimmed > page.after;
                if page.tagged && !is_told && self.is_lost(page.reader) {
                    return Err(format!(
                        "reader {} goes on after {}, which a restore has lost",
                        page.reader, page.after
                    ));
                }
                if page.is_answered {
                    let id = self.messages.get(&page.next).copied();
                    self.readers.insert(page.reader, (page.next, id));
                }
            }
            SwitchStep::Diverged { reader } => {
                if !self.is_lost(*reader) {
                    return Err(format!("reader {reader} at {:?}", self.readers.get(reader)));
                }
                self.readers.remove(reader);
            }
            _ => {}
        }
        Ok(())
    }

    fn survive(&mut self, lost: Self) {
        self.readers = lost.readers;
    }
}
