//! Instance: a separate process that joins the group, acts, and records its actions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tenure::observe::Observer;
use tenure::store::{Checkpoint, Commit, Committed, IfAbsent, StoreUrl};
use tenure::{
    Code, Document, Duties, DutyId, GroupName, Guard, HoldLost, Label, Record, Session, Store,
    StoreError, Ttl, Version, process,
};
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::OnceCell;

use crate::record::{CommitResult, Diary, InstanceRecord, Under, now};

/// Arguments of an instance.
#[derive(Clone, Debug, clap::Args)]
pub struct InstanceSettings {
    /// Store, through the proxy if there is one.
    #[arg(long)]
    pub url: String,
    /// The group.
    #[arg(long)]
    pub group: String,
    /// Number of duties of the group.
    #[arg(long)]
    pub duties: u32,
    /// The TTL.
    #[arg(long)]
    pub ttl_ms: u64,
    /// Pause between two events of a duty.
    #[arg(long)]
    pub pace_ms: u64,
    /// File for its records.
    #[arg(long)]
    pub file: PathBuf,
    /// Revision that it was deployed as.
    #[arg(long)]
    pub revision: Option<String>,
    /// Act without checking the guard or the store: the checkers must notice.
    #[arg(long)]
    pub careless: bool,
}

#[derive(Debug)]
struct Player {
    settings: InstanceSettings,
    diary: Diary,
    /// Store for commits without a guard; opened at the first one.
    store: OnceCell<Arc<dyn Store>>,
}

/// Runs an instance until it is asked to leave, or its starter is gone.
pub async fn play(settings: InstanceSettings) -> Result<()> {
    // Before the first record: from then on the instance leaves in order when asked.
    let mut asked = signal(SignalKind::terminate())?;
    let diary = Diary::open(&settings.file)?;
    diary.write(&InstanceRecord::Hello { instance: process::instance().id().to_string() });
    let ttl = Duration::from_millis(settings.ttl_ms);
    let duties = Duties::Shards(settings.duties);
    let player = Arc::new(Player { settings, diary, store: OnceCell::new() });
    let told = &player.settings;
    let mut join = tenure::join(&told.url, &told.group, ttl, duties)?
        .observer(Arc::clone(&player) as Arc<dyn Observer>);
    if let Some(revision) = &told.revision {
        join = join.revision(Label::new(revision.clone())?);
    }
    let membership = tokio::select! {
        joined = join.start() => joined?,
        _ = asked.recv() => return Ok(()),
        () = abandoned() => return Ok(()),
    };
    let leaver = membership.leaver();
    tokio::spawn(async move {
        tokio::select! {
            _ = asked.recv() => leaver.leave(),
            // The starter is gone, so nothing judges this run.
            () = abandoned() => std::process::exit(0),
        }
    });
    let work = move |guard: Guard| {
        let player = Arc::clone(&player);
        async move {
            tokio::spawn(Arc::clone(&player).watch(guard.clone()));
            match player.settings.careless {
                true => Arc::clone(&player).act_carelessly(guard).await,
                false => player.act(guard).await,
            }
        }
    };
    Ok(membership.run(work).await?)
}

/// Waits until the starter, which holds the other end of standard input, is gone.
async fn abandoned() {
    // An error also counts as the end.
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
}

impl Player {
    /// Acts until it has to stop: a plain effect per event, and a commit that the store fences.
    async fn act(&self, guard: Guard) -> Result<(), StoreError> {
        let under = under(&guard);
        let mut event = self.next_event(&guard).await?;
        while !guard.draining() {
            let before = now();
            if guard.check().is_ok() {
                // Only a fence can catch a pause of the process here, between check and effect.
                let after = now();
                self.diary.write(&InstanceRecord::Plain { under: under.clone(), before, after });
            }
            let before = now();
            let answer = guard.commit(document(event)?).await;
            let (after, under) = (now(), under.clone());
            let outcome = match &answer {
                Ok(version) => CommitResult::Saved(version.get()),
                Err(StoreError::Unknown(_)) => CommitResult::Unknown,
                Err(_) => CommitResult::Held,
            };
            self.diary.write(&InstanceRecord::Commit { under, event, before, after, outcome });
            match answer {
                Ok(_) => event += 1,
                // Only the checkpoint shows the outcome.
                Err(StoreError::Unknown(_)) => event = self.next_event(&guard).await?,
                Err(StoreError::Refused(_)) if guard.check() == Err(HoldLost::Unconfirmed) => {
                    guard.confirmed().await?;
                }
                Err(error) if error.code() == Code::Fenced => return Err(error),
                // Nothing was written: the store is unreachable or busy.
                Err(_) => {}
            }
            pause(&guard, self.settings.pace_ms).await;
        }
        self.diary.write(&InstanceRecord::Stands { under, at: now(), until: 0 });
        Ok(())
    }

    /// Returns the event after the one in the checkpoint.
    async fn next_event(&self, guard: &Guard) -> Result<u64, StoreError> {
        loop {
            guard.check()?;
            match guard.load().await {
                Ok(found) => return self.found(guard.duty().id.as_str(), found.as_ref()),
                // A read changes nothing: it may be retried while the hold is valid.
                Err(_) => pause(guard, self.settings.pace_ms).await,
            }
        }
    }

    fn found(&self, duty: &str, found: Option<&Checkpoint>) -> Result<u64, StoreError> {
        let Some(found) = found else { return Ok(1) };
        let event = event_of(&found.document)?;
        let (version, instance) = (found.version.get(), found.instance.to_string());
        let under = Under { duty: duty.to_owned(), epoch: found.epoch.get() };
        self.diary.write(&InstanceRecord::Found { under, version, instance, event });
        Ok(event + 1)
    }

    /// Acts under the hold as if nothing could end it.
    async fn act_carelessly(self: Arc<Self>, guard: Guard) -> Result<(), StoreError> {
        let (under, mut event) = (under(&guard), 1 + now());
        let acts = async move {
            loop {
                let before = now();
                let outcome = CommitResult::Unfenced;
                let (after, under) = (before, under.clone());
                self.diary.write(&InstanceRecord::Commit { under, event, before, after, outcome });
                event += 1;
                tokio::time::sleep(Duration::from_millis(self.settings.pace_ms)).await;
            }
        };
        // In a separate task, which is not dropped with the hold.
        tokio::spawn(acts);
        guard.stopping().await;
        Ok(())
    }

    /// Records until when the hold is valid, and tests the fence after it has ended.
    async fn watch(self: Arc<Self>, guard: Guard) {
        let under = under(&guard);
        let hold = guard.hold().clone();
        let mut changes = guard.changes();
        drop(guard);
        let mut lost = false;
        while !lost {
            let standing = *changes.borrow_and_update();
            lost = standing.lost;
            let acts = !lost && !standing.suspended;
            let until = if acts { standing.deadline.as_nanos() } else { 0 };
            self.diary.write(&InstanceRecord::Stands { under: under.clone(), at: now(), until });
            if changes.changed().await.is_err() {
                break;
            }
        }
        for _ in 0..LATE_TRIES {
            tokio::time::sleep(Duration::from_millis(self.settings.ttl_ms / 5)).await;
            // An error is ignored: a later attempt may succeed.
            let _ = self.commit_late(&hold, &under).await;
        }
    }

    /// Commits without a guard under a hold that has ended. The store must refuse it, unless the
    /// duty was not granted again since.
    async fn commit_late(&self, hold: &tenure::Hold, under: &Under) -> Result<(), StoreError> {
        let store = self.store.get_or_try_init(|| async {
            let url = StoreUrl::parse(&self.settings.url)?;
            url.open(IfAbsent::Refuse, process::entropy()).await
        });
        let store = store.await?;
        let group = GroupName::new(self.settings.group.clone())?;
        let members = store.members(&group).await?;
        let own = members.iter().find(|member| member.instance == hold.instance);
        // A later session of the same instance is no more valid.
        let Some(nonce) = own.and_then(|own| own.nonce) else { return Ok(()) };
        let ttl = Ttl::new(Duration::from_millis(self.settings.ttl_ms))?;
        let session = Session { group, instance: hold.instance.clone(), nonce, ttl };
        let stored = store.load(std::slice::from_ref(&hold.duty)).await?.pop().flatten();
        let event = self.found(under.duty.as_str(), stored.as_ref())?;
        let expected = stored.map_or(Version::ZERO, |stored| stored.version);
        let commit = Commit { hold: hold.clone(), expected, document: document(event)? };
        let before = now();
        let answer = store.commit(&session, &[commit]).await;
        let outcome = match answer.map(|mut answers| answers.pop()) {
            Ok(Some(Committed::Saved(version))) => CommitResult::Saved(version.get()),
            Ok(Some(Committed::Fenced { .. })) => CommitResult::Refused,
            Ok(_) | Err(StoreError::Refused(_)) => CommitResult::Held,
            Err(StoreError::Unknown(_)) => CommitResult::Unknown,
        };
        let (after, under) = (now(), under.clone());
        self.diary.write(&InstanceRecord::Commit { under, event, before, after, outcome });
        Ok(())
    }
}

/// Attempts to commit under a hold that has ended.
const LATE_TRIES: usize = 3;

impl Observer for Player {
    fn recorded(&self, _: &GroupName, record: &Record, _: u64) {
        let under = |(duty, epoch): (&DutyId, tenure::Epoch)| Under {
            duty: duty.to_string(),
            epoch: epoch.get(),
        };
        self.diary.write(&InstanceRecord::Record {
            at: now(),
            change: record.change.as_str().to_owned(),
            under: record.duty.as_ref().zip(record.epoch).map(under),
            reason: record.reason.replace('\n', " "),
        });
    }
}

fn under(guard: &Guard) -> Under {
    Under { duty: guard.duty().id.to_string(), epoch: guard.epoch().get() }
}

fn document(event: u64) -> Result<Document, StoreError> {
    Document::new(event.to_string())
}

/// Returns the number of the event in a checkpoint.
pub(crate) fn event_of(document: &Document) -> Result<u64, StoreError> {
    let text = String::from_utf8_lossy(document.as_bytes());
    text.parse().map_err(|_| StoreError::refused(Code::Damaged, format!("not an event: {text:?}")))
}

async fn pause(guard: &Guard, ms: u64) {
    tokio::select! {
        () = guard.stopping() => {}
        () = tokio::time::sleep(Duration::from_millis(ms)) => {}
    }
}
