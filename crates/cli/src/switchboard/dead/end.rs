//! `tenure dead replay` and `tenure dead discard`.

use std::process::ExitCode;

use serde_json::{Value, json};
use tenure_core::StoreError;
use tenure_core::text::counted;
use tenure_switchboard::replay::{ReplayOutcome, replay};
use tenure_switchboard::storage::{
    LetterQuery, LetterResolution, ResolveOutcome, Storage, StoredLetter,
};
use tenure_wire::ingest::Rules;
use uuid::Uuid;

use super::super::{check_text, decision, open};
use super::{DiscardArgs, LetterPages, LetterSelection, MAX_LETTERS, ReplayArgs, find, letter_id};
use crate::args::Global;
use crate::failure::Failure;
use crate::limits::check_count;
use crate::output::{note_dry_run, shown, to_stderr, to_stdout};
use crate::progress;
use crate::table::{or_dash, table};

/// Exit code if a letter was refused again.
const REFUSED_AGAIN: u8 = 1;

/// Outcome for one letter.
struct LetterOutcome {
    id: Uuid,
    outcome: &'static str,
    request_id: Option<Uuid>,
    detail: String,
}

impl LetterOutcome {
    fn of(id: Uuid, outcome: &'static str) -> Self {
        Self { id, outcome, request_id: None, detail: String::new() }
    }

    fn value(&self) -> Value {
        json!({
            "id": self.id.to_string(),
            "outcome": self.outcome,
            "request_id": self.request_id.map(|id| id.to_string()),
            "detail": self.detail,
        })
    }

    fn row(&self) -> [String; 4] {
        let detail = Some(shown(&self.detail)).filter(|detail| !detail.is_empty());
        [self.id.to_string(), self.outcome.to_owned(), or_dash(self.request_id), or_dash(detail)]
    }
}

/// Way to end each selected letter.
trait EndLetter {
    const DOING: &'static str;
    async fn end(
        &self,
        storage: &dyn Storage,
        kept: &StoredLetter,
    ) -> Result<LetterOutcome, StoreError>;
}

impl LetterSelection {
    /// Ends the letters one after the other. A named letter must exist before any is changed.
    async fn run(&self, global: &Global, end: &impl EndLetter) -> Result<ExitCode, Failure> {
        check_count("--limit", self.limit, 1, MAX_LETTERS)?;
        if !self.all && !self.filter.is_empty() {
            return Err(Failure::Usage("filters select letters for --all, not ids".to_owned()));
        }
        let ids = self.ids.iter().map(|id| letter_id(id)).collect::<Result<Vec<_>, _>>()?;
        let query = LetterQuery { state: Some("pending".to_owned()), ..self.filter.query()? };
        let storage = &*open(global).await?;
        for id in &ids {
            find(storage, *id).await?;
        }
        let mut done = Vec::new();
        let mut pages = LetterPages::new(storage, query, if self.all { self.limit } else { 0 });
        let ended = self.end_all(storage, &ids, &mut pages, end, &mut done).await;
        let cut = if self.all && ended.is_ok() { pages.is_cut().await? } else { false };
        let text = self.report(global, &done, cut);
        if let Err(failure) = ended {
            let kept = "the letters above; all others are unchanged: run the same command again";
            return Err(Failure::partly(text, failure, kept));
        }
        to_stdout(text)?;
        let refused = done.iter().any(|letter| letter.outcome == REFUSED);
        Ok(if refused { ExitCode::from(REFUSED_AGAIN) } else { ExitCode::SUCCESS })
    }

    async fn end_all<T: EndLetter>(
        &self,
        storage: &dyn Storage,
        ids: &[Uuid],
        pages: &mut LetterPages<'_>,
        end: &T,
        done: &mut Vec<LetterOutcome>,
    ) -> Result<(), StoreError> {
        for id in ids {
            progress::describe(&format!("{} {} of {}", T::DOING, done.len() + 1, ids.len()));
            match storage.letter(*id).await? {
                Some(kept) => done.push(end.end(storage, &kept).await?),
                None => done.push(LetterOutcome::of(*id, "absent")),
            }
        }
        loop {
            let page = pages.next().await?;
            if page.is_empty() {
                return Ok(());
            }
            for kept in &page {
                progress::describe(&format!("{} {}", T::DOING, done.len() + 1));
                done.push(end.end(storage, kept).await?);
            }
        }
    }

    fn report(&self, global: &Global, done: &[LetterOutcome], cut: bool) -> String {
        let letters: Vec<Value> = done.iter().map(LetterOutcome::value).collect();
        let value = json!({ "dry_run": self.dry_run, "letters": letters, "more": cut });
        global.show(&value, || {
            note_dry_run(self.dry_run);
            if done.is_empty() {
                to_stderr("no pending dead letter matches");
                return String::new();
            }
            if cut {
                to_stderr("more letters match: run the same command again");
            }
            let refused = done.iter().filter(|letter| letter.outcome == REFUSED).count();
            if refused > 0 {
                let letters = counted(refused, "letter", "letters");
                to_stderr(&format!("refused again and kept with the new reason: {letters}"));
            }
            table(["ID", "OUTCOME", "REQUEST_ID", "DETAIL"], done.iter().map(LetterOutcome::row))
        })
    }
}

const REFUSED: &str = "refused";

/// Replays letters.
struct Replay {
    rules: Rules,
    dry_run: bool,
}

impl EndLetter for Replay {
    const DOING: &'static str = "replaying dead letter";

    async fn end(
        &self,
        storage: &dyn Storage,
        kept: &StoredLetter,
    ) -> Result<LetterOutcome, StoreError> {
        let by = decision("replayed unchanged");
        let of = |outcome| LetterOutcome::of(kept.letter.id, outcome);
        Ok(match replay(storage, &self.rules, kept, &by, self.dry_run).await? {
            ReplayOutcome::Replayed { request_id, duplicate } => {
                let outcome = if duplicate { "duplicate" } else { "replayed" };
                LetterOutcome { request_id, ..of(outcome) }
            }
            ReplayOutcome::Refused(detail) => LetterOutcome { detail, ..of(REFUSED) },
            ReplayOutcome::Ended(state) => already(kept, &state),
        })
    }
}

/// Outcome for a letter that was ended before.
fn already(kept: &StoredLetter, state: &str) -> LetterOutcome {
    let mut before = LetterOutcome::of(kept.letter.id, "unchanged");
    before.request_id = kept.request_id;
    before.detail = format!("already {state}");
    before
}

/// Discards letters.
struct Discard {
    reason: String,
    dry_run: bool,
}

impl EndLetter for Discard {
    const DOING: &'static str = "discarding dead letter";

    async fn end(
        &self,
        storage: &dyn Storage,
        kept: &StoredLetter,
    ) -> Result<LetterOutcome, StoreError> {
        let id = kept.letter.id;
        if kept.state != "pending" {
            return Ok(already(kept, &kept.state));
        }
        if self.dry_run {
            return Ok(LetterOutcome::of(id, "discarded"));
        }
        let decision = decision(&self.reason);
        let resolution = LetterResolution { id, state: "discarded", decision, request_id: None };
        Ok(match storage.resolve_letter(&resolution).await? {
            Ok(ResolveOutcome::Done) => LetterOutcome::of(id, "discarded"),
            _ => already(kept, "ended by another operator"),
        })
    }
}

impl ReplayArgs {
    pub(super) async fn run(&self, global: &Global) -> Result<ExitCode, Failure> {
        let channels = open(global).await?.channels().await?;
        let rules = Rules::new(channels, self.fields);
        let dry_run = self.selection.dry_run;
        self.selection.run(global, &Replay { rules, dry_run }).await
    }
}

impl DiscardArgs {
    pub(super) async fn run(&self, global: &Global) -> Result<ExitCode, Failure> {
        let reason = check_text("--reason", &self.reason)?;
        let LetterSelection { all, filter, dry_run, .. } = &self.selection;
        if *all && filter.is_empty() {
            let what = "--all needs a filter, such as --endpoint or --error";
            return Err(Failure::Usage(what.to_owned()));
        }
        self.selection.run(global, &Discard { reason, dry_run: *dry_run }).await
    }
}
