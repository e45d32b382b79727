//! Taking checkpoints from one store to another.

use tenure_core::{Code, DutyKey, Epoch, Hold, Moved, Seal, StoreError, Version};

use super::desk::{Desk, Stored};

/// What goes into the other store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its name there.
    pub duty: DutyKey,
    /// The source that it is signed upon, counted from zero.
    pub source: usize,
    /// The cursor.
    pub payload: Vec<u8>,
}

/// How the payloads of the sources become what arrives: one to one, many to their least, one to
/// many.
pub type Convert<'a> = &'a (dyn Fn(&[Vec<u8>]) -> Result<Vec<Arrival>, StoreError> + Sync);

/// What became of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the other store now.
    Moved,
    /// It was there already, by this move.
    AlreadyMoved,
    /// There was no checkpoint; the other store grants above the epoch of this one.
    OnlyEpoch,
}

/// One move: sources that go together, and what becomes of them.
pub struct Move<'a> {
    from: &'a mut Desk,
    to: &'a mut Desk,
}

/// A source under its hold.
struct Source {
    hold: Hold,
    stored: Stored,
}

/// A target under its hold.
struct Target {
    hold: Hold,
    arrival: Arrival,
    /// The version that is replaced.
    before: Version,
    /// It is there already.
    landed: bool,
}

impl<'a> Move<'a> {
    /// Between these two.
    pub fn new(from: &'a mut Desk, to: &'a mut Desk) -> Self {
        Self { from, to }
    }

    /// Moves `sources` together. `alone` names the only target when there is no checkpoint to
    /// convert.
    pub async fn run(
        &mut self,
        sources: &[DutyKey],
        alone: &DutyKey,
        convert: Convert<'_>,
    ) -> Result<Outcome, StoreError> {
        let mut holds = (Vec::new(), Vec::new());
        let outcome = self.under(sources, alone, convert, &mut holds).await;
        for hold in &holds.0 {
            self.from.release(hold).await;
        }
        for hold in &holds.1 {
            self.to.release(hold).await;
        }
        outcome
    }

    async fn under(
        &mut self,
        duties: &[DutyKey],
        alone: &DutyKey,
        convert: Convert<'_>,
        (from, to): &mut (Vec<Hold>, Vec<Hold>),
    ) -> Result<Outcome, StoreError> {
        let mut sources = Vec::with_capacity(duties.len());
        for duty in duties {
            let hold = self.from.claim(duty, Epoch::ZERO).await?;
            from.push(hold.clone());
            if let Some(stored) = self.from.load(duty).await? {
                self.check_source(duty, &stored)?;
                sources.push(Source { hold, stored });
            }
        }
        let floor = from.iter().map(|hold| hold.epoch).max().unwrap_or(Epoch::ZERO);
        if sources.is_empty() {
            to.push(self.to.claim(alone, floor).await?);
            return Ok(Outcome::OnlyEpoch);
        }
        if sources.len() < duties.len() {
            let detail = "some of the checkpoints to put together are missing";
            return Err(StoreError::refused(Code::BadInput, detail));
        }
        if sources.iter().all(|source| source.stored.is_moved()) {
            return Ok(Outcome::AlreadyMoved);
        }
        let payloads: Vec<_> = sources.iter().map(|source| source.stored.payload.clone()).collect();
        let mut targets = Vec::new();
        for arrival in convert(&payloads)? {
            let hold = self.to.claim(&arrival.duty, floor).await?;
            to.push(hold.clone());
            targets.push(self.target(hold, arrival, &sources).await?);
        }
        self.mark(&mut sources, false).await?;
        for target in targets.iter().filter(|target| !target.landed) {
            self.write(target, &sources).await?;
        }
        self.mark(&mut sources, true).await?;
        Ok(Outcome::Moved)
    }

    /// A source must be live, or on its way to this very store.
    fn check_source(&self, duty: &DutyKey, stored: &Stored) -> Result<(), StoreError> {
        match &stored.seal.moved {
            Some(moved) if moved.to != self.to.name() => {
                let state = if moved.done { "was moved" } else { "is being moved" };
                let detail = format!("{duty} {state} to {}", moved.to);
                Err(StoreError::refused(Code::Moved, detail))
            }
            _ => Ok(()),
        }
    }

    /// What the source at `at` is called where it arrives: the version before it was marked.
    fn origin(&self, sources: &[Source], at: usize) -> String {
        let Source { hold, stored } = &sources[at];
        format!("{}#{}@{}", self.from.name(), hold.duty, stored.live_version())
    }

    /// Looks at what the other store has, and makes room for what arrives.
    async fn target(
        &mut self,
        hold: Hold,
        arrival: Arrival,
        sources: &[Source],
    ) -> Result<Target, StoreError> {
        let mut target = Target { hold, arrival, before: Version::ZERO, landed: false };
        let duty = target.arrival.duty.clone();
        // What is there is replaced or left alone, never trusted: its signature does not matter.
        let Some(there) = self.to.newest(&duty).await? else {
            return Ok(target);
        };
        target.before = there.version;
        match &there.seal.moved {
            // It went to where it now comes from.
            Some(moved) if moved.done && moved.to == self.from.name() => return Ok(target),
            Some(moved) if !moved.done => {
                let detail =
                    format!("{duty} is being moved from {} to {}", self.to.name(), moved.to);
                return Err(StoreError::refused(Code::Moved, detail));
            }
            Some(_) => {}
            None => {
                let origin = self.origin(sources, target.arrival.source);
                let on_the_way = sources.iter().all(|source| source.stored.seal.moved.is_some());
                let ring = self.to.ring(&duty).await?;
                if on_the_way && ring.iter().any(|old| old.seal.origin.as_ref() == Some(&origin)) {
                    target.landed = true;
                    return Ok(target);
                }
            }
        }
        if !self.to.force() {
            let Stored { version, epoch, .. } = there;
            let detail = format!("{duty} in {}: version {version}, epoch {epoch}", self.to.name());
            return Err(StoreError::refused(Code::Occupied, detail));
        }
        // Before the sources are marked: then a target is empty or given up whenever they are.
        let gave_way = Moved { to: self.from.name().to_owned(), done: true };
        let seal = Seal { moved: Some(gave_way), ..Seal::default() };
        let at = (there.mac(), seal);
        let saved = self.to.commit(&target.hold, there.version, at, &there.payload).await?;
        target.before = saved.version;
        Ok(target)
    }

    /// Marks the sources as moving or moved, those that are not yet.
    async fn mark(&mut self, sources: &mut [Source], done: bool) -> Result<(), StoreError> {
        let to = self.to.name().to_owned();
        for source in sources {
            let marked = source.stored.seal.moved.as_ref();
            if marked.is_some_and(|moved| moved.done || !done) {
                continue;
            }
            self.to.keep().await?;
            let Source { hold, stored } = source;
            let moved = Some(Moved { to: to.clone(), done });
            // The version before the mark stays named, for who comes back to a half-done move.
            let origin = Some(format!("@{}", stored.live_version()));
            let at = (stored.mac(), Seal { moved, origin, ..Seal::default() });
            let payload = stored.payload.clone();
            *stored = self.from.commit(hold, stored.version, at, &payload).await?;
        }
        Ok(())
    }

    /// Writes what arrives and reads it back.
    async fn write(&mut self, target: &Target, sources: &[Source]) -> Result<(), StoreError> {
        self.from.keep().await?;
        let Target { hold, arrival, before, .. } = target;
        let origin = Some(self.origin(sources, arrival.source));
        let prev = sources[arrival.source].stored.live_mac();
        let at = (prev, Seal { origin, ..Seal::default() });
        let saved = self.to.commit(hold, *before, at, &arrival.payload).await?;
        let read = self.to.load(&arrival.duty).await?;
        let same = read.is_some_and(|read| {
            read.version == saved.version
                && read.seal == saved.seal
                && read.payload == saved.payload
        });
        if same {
            return Ok(());
        }
        let (duty, name) = (&arrival.duty, self.to.name());
        let detail = format!("{duty} reads differently from what was written to {name}");
        Err(StoreError::unknown(Code::Damaged, detail))
    }
}

impl Stored {
    fn is_moved(&self) -> bool {
        self.seal.moved.as_ref().is_some_and(|moved| moved.done)
    }

    /// The version that had this payload before a move marked it.
    fn live_version(&self) -> String {
        let named = self.seal.moved.as_ref().and(self.seal.origin.as_deref());
        let named = named.and_then(|origin| origin.strip_prefix('@'));
        named.map_or_else(|| self.version.to_string(), str::to_owned)
    }

    /// The signature before the mark. A mark is signed upon it; a second mark is only written when
    /// everything has arrived.
    fn live_mac(&self) -> tenure_core::Mac {
        match &self.seal.moved {
            Some(_) => self.seal.prev.unwrap_or(tenure_core::Mac::NONE),
            None => self.mac(),
        }
    }
}

/// What a move of one duty would find; nothing is claimed and nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// Version and epoch of the source; `None` when it has no checkpoint.
    pub from: Option<(Version, Epoch)>,
    /// The same in the other store.
    pub to: Option<(Version, Epoch)>,
    /// Where the source went or is going.
    pub moved: Option<Moved>,
    /// Who holds the source now.
    pub holder: Option<String>,
}

/// Looks at both sides of a move.
pub async fn preview(
    from: &Desk,
    source: &DutyKey,
    to: &Desk,
    target: &DutyKey,
) -> Result<Preview, StoreError> {
    let there = from.load(source).await?;
    let arrived = to.newest(target).await?;
    let holders = from.store().holders(&source.group).await?;
    let holder = holders.into_iter().find(|holder| &holder.duty == source);
    let place = |stored: &Stored| (stored.version, stored.epoch);
    Ok(Preview {
        from: there.as_ref().map(place),
        to: arrived.as_ref().map(place),
        moved: there.and_then(|stored| stored.seal.moved),
        holder: holder.and_then(|holder| holder.holder).map(|now| now.instance.to_string()),
    })
}
