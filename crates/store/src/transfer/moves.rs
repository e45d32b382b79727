//! Moves of checkpoints from one store to another.

use sha2::{Digest, Sha256};
use tenure_core::{Code, DutyKey, Epoch, Hold, Mac, Moved, Seal, StoreError, StoreResult, Version};

use super::operator::{OperatorSession, StoredCheckpoint};

/// Payload for the other store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Duty in the other store.
    pub duty: DutyKey,
    /// Index of the source whose signature it continues.
    pub source: usize,
    /// The cursor.
    pub payload: Vec<u8>,
}

/// Conversion of the sources' payloads: one to one, many to their minimum, or one to many.
pub type Convert<'a> = &'a (dyn Fn(&[Vec<u8>]) -> StoreResult<Vec<Arrival>> + Sync);

/// Result of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveOutcome {
    /// The checkpoint is now in the other store.
    Moved,
    /// This move had been completed before.
    AlreadyMoved,
    /// There was no checkpoint; the other store grants above the epoch of this one.
    OnlyEpoch,
}

/// One move, of one or several sources together.
pub struct Move<'a> {
    from: &'a mut OperatorSession,
    to: &'a mut OperatorSession,
    /// Whether something was committed, so that an error no longer means that nothing happened.
    changed: bool,
}

/// A source under its hold.
struct MoveSource {
    hold: Hold,
    stored: StoredCheckpoint,
}

/// A target under its hold.
struct MoveTarget {
    hold: Hold,
    arrival: Arrival,
    /// Checkpoint of the target, and whether the move replaces it.
    there: Option<StoredCheckpoint>,
    gives_way: bool,
    /// Whether this move has already written it.
    landed: bool,
}

impl<'a> Move<'a> {
    /// Creates a move between two stores.
    pub fn new(from: &'a mut OperatorSession, to: &'a mut OperatorSession) -> Self {
        Self { from, to, changed: false }
    }

    /// Moves `sources` together. `alone` names the only target when there is no checkpoint to
    /// convert.
    pub async fn run(
        &mut self,
        sources: &[DutyKey],
        alone: &DutyKey,
        convert: Convert<'_>,
    ) -> StoreResult<MoveOutcome> {
        let mut holds = (Vec::new(), Vec::new());
        let outcome = self.under(sources, alone, convert, &mut holds).await;
        for hold in &holds.0 {
            self.from.release(hold).await;
        }
        for hold in &holds.1 {
            self.to.release(hold).await;
        }
        outcome.map_err(|error| if self.changed { error.or_happened() } else { error })
    }

    async fn under(
        &mut self,
        duties: &[DutyKey],
        alone: &DutyKey,
        convert: Convert<'_>,
        (from, to): &mut (Vec<Hold>, Vec<Hold>),
    ) -> StoreResult<MoveOutcome> {
        let mut sources = Vec::with_capacity(duties.len());
        for duty in duties {
            let hold = self.from.claim(duty, Epoch::ZERO).await?;
            from.push(hold.clone());
            if let Some(stored) = self.from.load(duty).await? {
                sources.push(MoveSource { hold, stored });
            }
        }
        let floor = from.iter().map(|hold| hold.epoch).max().unwrap_or(Epoch::ZERO);
        if sources.is_empty() {
            let hold = self.to.claim(alone, floor).await?;
            to.push(hold.clone());
            self.copy_report(from, &[&hold]).await?;
            return Ok(MoveOutcome::OnlyEpoch);
        }
        if sources.len() < duties.len() {
            let detail = "some of the checkpoints to merge are missing";
            return Err(StoreError::refused(Code::BadInput, detail));
        }
        let payloads = sources.iter().map(|source| source.stored.payload().cloned());
        let arrivals = convert(&payloads.collect::<StoreResult<Vec<_>>>()?)?;
        if arrivals.is_empty() {
            return Err(StoreError::refused(Code::BadInput, "the conversion yields no checkpoint"));
        }
        let mark = self.mark_of(&sources, &arrivals);
        self.check_sources(&sources, &mark)?;
        if sources.iter().all(|source| source.stored.is_moved()) {
            return Ok(MoveOutcome::AlreadyMoved);
        }
        self.check_seals(&sources, &arrivals, &mark)?;
        let mut targets = Vec::new();
        for arrival in arrivals {
            let hold = self.to.claim(&arrival.duty, floor).await?;
            to.push(hold.clone());
            targets.push(self.target(hold, arrival, &sources).await?);
        }
        self.carry(&mut sources, &mut targets, &mark).await
    }

    /// Makes all commits of the move, after its checks have passed.
    async fn carry(
        &mut self,
        sources: &mut [MoveSource],
        targets: &mut [MoveTarget],
        mark: &str,
    ) -> StoreResult<MoveOutcome> {
        // If a moved source is no longer in its target's history, work has continued from there.
        if let Some(gone) = sources.iter().find(|source| source.stored.is_moved())
            && !targets.iter().all(|target| target.landed)
        {
            return Err(moved(&gone.hold.duty, &gone.stored));
        }
        // Done before the sources are marked, so that no target is live once they are.
        for target in targets.iter_mut().filter(|target| target.gives_way) {
            self.give_way(target).await?;
        }
        self.mark(sources, mark, false).await?;
        for target in targets.iter_mut().filter(|target| !target.landed) {
            self.write(target, sources).await?;
        }
        let holds: Vec<Hold> = sources.iter().map(|source| source.hold.clone()).collect();
        let to: Vec<&Hold> = targets.iter().map(|target| &target.hold).collect();
        self.copy_report(&holds, &to).await?;
        if let Err(error) = self.mark(sources, mark, true).await {
            // Somebody has taken a source back by force, so it is valid there and must not be here.
            // But if some sources are already marked as moved, their only valid checkpoint is here.
            let none_moved = !sources.iter().any(|source| source.stored.is_moved());
            if error.code() == Code::Fenced && none_moved {
                for target in targets.iter_mut().filter(|target| !target.landed) {
                    self.give_way(target).await?;
                }
            }
            return Err(error);
        }
        Ok(MoveOutcome::Moved)
    }

    /// Copies the report of a duty that is moved as it is. Several that become one, or one that
    /// becomes several, have none.
    async fn copy_report(&mut self, from: &[Hold], to: &[&Hold]) -> StoreResult<()> {
        if let ([from], [to]) = (from, to)
            && let Some(report) = self.from.report(&from.duty).await?
        {
            self.to.store_report(to, report.document).await?;
            self.changed = true;
        }
        Ok(())
    }

    /// Returns the mark of a source: the other store, the first target, and a hash of all sources,
    /// targets and payloads.
    fn mark_of(&self, sources: &[MoveSource], arrivals: &[Arrival]) -> String {
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        sources.iter().for_each(|source| add(source.hold.duty.to_string().as_bytes()));
        for Arrival { duty, payload, .. } in arrivals {
            add(duty.to_string().as_bytes());
            add(payload);
        }
        let number = hex::encode(&hash.finalize()[..8]);
        format!("{}#{}~{number}", self.to.name(), arrivals[0].duty)
    }

    /// Checks that each source is live, or marked by this same move.
    fn check_sources(&self, sources: &[MoveSource], mark: &str) -> StoreResult<()> {
        let other = |source: &&MoveSource| {
            source.stored.seal.moved.as_ref().is_some_and(|moved| moved.to != mark)
        };
        match sources.iter().find(other) {
            Some(source) => Err(moved(&source.hold.duty, &source.stored)),
            None => Ok(()),
        }
    }

    /// Checks that all that will be written has room for its seal, so that no move stops halfway.
    fn check_seals(
        &self,
        sources: &[MoveSource],
        arrivals: &[Arrival],
        mark: &str,
    ) -> StoreResult<()> {
        let moved = Some(Moved { to: mark.to_owned(), done: false });
        for source in sources {
            let origin = Some(source.stored.live_at());
            let seal = Seal { moved: moved.clone(), origin, ..self.from.largest_seal() };
            seal.join(source.stored.payload()?)?;
        }
        for arrival in arrivals {
            let origin = Some(self.origin(sources, arrival.source));
            let away = Some(Moved { to: self.away(&arrival.duty), done: true });
            Seal { moved: away, origin, ..self.to.largest_seal() }.join(&arrival.payload)?;
        }
        Ok(())
    }

    /// Returns the origin recorded in a target: store, duty, and version and epoch before the mark.
    fn origin(&self, sources: &[MoveSource], at: usize) -> String {
        let MoveSource { hold, stored } = &sources[at];
        format!("{}#{}{}", self.from.name(), hold.duty, stored.live_at())
    }

    /// Returns the mark of a target that a move from the old store replaces.
    fn away(&self, duty: &DutyKey) -> String {
        format!("{}#{duty}~0", self.from.name())
    }

    /// Inspects the target in the other store; changes nothing.
    async fn target(
        &mut self,
        hold: Hold,
        arrival: Arrival,
        sources: &[MoveSource],
    ) -> StoreResult<MoveTarget> {
        let duty = arrival.duty.clone();
        let origin = self.origin(sources, arrival.source);
        // It is replaced or left alone, never trusted, so its signature does not matter.
        let there = self.to.newest(&duty).await?;
        let mut target = MoveTarget { hold, arrival, there, gives_way: false, landed: false };
        let Some(there) = &target.there else { return Ok(target) };
        let on_the_way = sources.iter().all(|source| source.stored.seal.moved.is_some());
        if on_the_way {
            let ring = self.to.ring(&duty).await?;
            if ring.iter().any(|old| old.seal.origin.as_ref() == Some(&origin)) {
                target.landed = true;
                return Ok(target);
            }
        }
        match &there.seal.moved {
            // It was moved to the store that it now comes from.
            Some(moved) if moved.done && self.from.is_named_by(&moved.to) => return Ok(target),
            Some(moved) if !moved.done => {
                let detail =
                    format!("{duty} is being moved from {} to {}", self.to.name(), moved.to);
                return Err(StoreError::refused(Code::Moved, detail));
            }
            Some(_) | None if !self.to.force() => {
                let StoredCheckpoint { version, epoch, .. } = there;
                let detail =
                    format!("{duty} in {}: version {version}, epoch {epoch}", self.to.name());
                return Err(StoreError::refused(Code::Occupied, detail));
            }
            Some(_) | None => {}
        }
        target.gives_way = true;
        Ok(target)
    }

    /// Marks the existing checkpoint of a target as moved to the old store.
    async fn give_way(&mut self, target: &mut MoveTarget) -> StoreResult<()> {
        let Some(there) = &target.there else { return Ok(()) };
        let away = Moved { to: self.away(&target.arrival.duty), done: true };
        let at = (there.mac(), Seal { moved: Some(away), ..Seal::default() });
        let (version, payload) = (there.version, there.payload()?.clone());
        target.there = Some(self.to.commit(&target.hold, version, at, &payload).await?);
        self.changed = true;
        Ok(())
    }

    /// Marks the sources as moving or moved, unless they already are.
    async fn mark(
        &mut self,
        sources: &mut [MoveSource],
        mark: &str,
        done: bool,
    ) -> StoreResult<()> {
        for source in sources {
            let marked = source.stored.seal.moved.as_ref();
            if marked.is_some_and(|moved| moved.done || !done) {
                continue;
            }
            self.to.keep().await?;
            let MoveSource { hold, stored } = source;
            let moved = Some(Moved { to: mark.to_owned(), done });
            // The origin keeps version and epoch before the mark, to resume a half-done move.
            let at =
                (stored.mac(), Seal { moved, origin: Some(stored.live_at()), ..Seal::default() });
            let payload = stored.payload()?.clone();
            *stored = self.from.commit(hold, stored.version, at, &payload).await?;
            self.changed = true;
        }
        Ok(())
    }

    /// Writes a target and reads it back.
    async fn write(&mut self, target: &mut MoveTarget, sources: &[MoveSource]) -> StoreResult<()> {
        self.from.keep().await?;
        let MoveTarget { hold, arrival, there, .. } = target;
        let before = there.as_ref().map_or(Version::ZERO, |there| there.version);
        let origin = Some(self.origin(sources, arrival.source));
        let prev = sources[arrival.source].stored.live_mac();
        let at = (prev, Seal { origin, ..Seal::default() });
        let saved = self.to.commit(hold, before, at, &arrival.payload).await?;
        self.changed = true;
        let read = self.to.load(&arrival.duty).await?;
        let same = read.is_some_and(|read| {
            read.version == saved.version
                && read.seal == saved.seal
                && read.payload().ok() == saved.payload().ok()
        });
        if !same {
            let (duty, name) = (&arrival.duty, self.to.name());
            let detail = format!("{duty} read back from {name} differs from what was written");
            return Err(StoreError::unknown(Code::Damaged, detail));
        }
        target.there = Some(saved);
        Ok(())
    }
}

/// Returns the error for a checkpoint that was moved, or is being moved by another command.
fn moved(duty: &DutyKey, stored: &StoredCheckpoint) -> StoreError {
    let (state, to) = match &stored.seal.moved {
        Some(Moved { to, done: true }) => ("was moved", to.as_str()),
        Some(Moved { to, done: false }) => ("is being moved by another command", to.as_str()),
        None => ("was moved", "another store"),
    };
    StoreError::refused(Code::Moved, format!("{duty} {state} to {to}"))
}

impl StoredCheckpoint {
    fn is_moved(&self) -> bool {
        self.seal.moved.as_ref().is_some_and(|moved| moved.done)
    }

    /// Returns version and epoch of this payload before a move marked it, as `@VERSION.EPOCH`.
    fn live_at(&self) -> String {
        let named = self.seal.moved.as_ref().and(self.seal.origin.as_deref());
        let named = named.filter(|origin| origin.starts_with('@'));
        named.map_or_else(|| format!("@{}.{}", self.version, self.epoch), str::to_owned)
    }

    /// Returns the signature before the mark, which is the predecessor of the first mark. A second
    /// mark is only written when everything has arrived.
    fn live_mac(&self) -> Mac {
        match &self.seal.moved {
            Some(_) => self.seal.prev.unwrap_or(Mac::NONE),
            None => self.mac(),
        }
    }
}

/// Preview of the move of one duty; nothing is claimed or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// Version and epoch of the source; `None` when it has no checkpoint.
    pub from: Option<(Version, Epoch)>,
    /// Version and epoch in the other store.
    pub to: Option<(Version, Epoch)>,
    /// Destination of an earlier move of the source.
    pub moved: Option<Moved>,
    /// Current holder of the source.
    pub holder: Option<String>,
}

/// Reads both sides of a move.
pub async fn preview(
    from: &OperatorSession,
    source: &DutyKey,
    to: &OperatorSession,
    target: &DutyKey,
) -> StoreResult<Preview> {
    let there = from.load(source).await?;
    let arrived = to.newest(target).await?;
    let holders = from.store().holders(&source.group).await?;
    let holder = holders.into_iter().find(|holder| &holder.duty == source);
    let place = |stored: &StoredCheckpoint| (stored.version, stored.epoch);
    Ok(Preview {
        from: there.as_ref().map(place),
        to: arrived.as_ref().map(place),
        moved: there.and_then(|stored| stored.seal.moved),
        holder: holder.and_then(|holder| holder.holder).map(|now| now.instance.to_string()),
    })
}
