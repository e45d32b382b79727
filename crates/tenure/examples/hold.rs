//! Holds one duty for a moment and counts how often that happened.
//!
//! Run it twice: epoch and counter grow, because both outlive the process. The store is
//! `TENURE_STORE`, or `sqlite:tenure.db` in the current folder.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use tenure::store::{
    ClaimRequest, Claimed, Closed, Commit, Committed, IfAbsent, KeptAlive, OpenSession, Opened,
    Released, StoreUrl,
};
use tenure::{
    Clock, Document, DutyKey, Hold, Note, Reason, Session, Store, Ttl, Version, process, store,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let url = std::env::var("TENURE_STORE").unwrap_or_else(|_| "sqlite:tenure.db".to_owned());
    let url = StoreUrl::parse(&url)?;
    let store = url.open(IfAbsent::Create, process::entropy()).await?;
    println!("opened    {url}");

    let duty = DutyKey::new("demo", "one")?;
    let session = join(&*store, &duty).await?;
    let Some(hold) = claim(&*store, &session, &duty).await? else {
        return Ok(());
    };
    count(&*store, &session, &hold).await?;
    keep_alive(&*store, &session, &hold).await?;

    let done = Reason::new("example done")?;
    let released = store.release(&session, &[hold], &done).await?;
    println!("released  {}", released == [Released::Freed]);
    let closed = store.close_session(&session, &done).await?;
    println!("closed    {}", closed == Closed::Closed);
    Ok(())
}

async fn join(store: &dyn Store, duty: &DutyKey) -> Outcome<Session> {
    let open = OpenSession {
        group: duty.group.clone(),
        instance: process::instance().id().clone(),
        nonce: process::fresh_nonce(),
        ttl: Ttl::new(Duration::from_secs(30))?,
        note: Note::new("example")?,
    };
    match store.open_session(&open).await? {
        Opened::Open(session) => {
            println!("joined    group {} as {}", session.group, session.instance);
            Ok(session)
        }
        other => Err(format!("cannot join: {other:?}").into()),
    }
}

async fn claim(store: &dyn Store, session: &Session, duty: &DutyKey) -> Outcome<Option<Hold>> {
    let wants = [ClaimRequest::new(duty.clone())];
    match store.claim(session, &wants, &Reason::new("example")?).await?.remove(0) {
        Claimed::Granted(hold) | Claimed::Already(hold) => {
            println!("claimed   {duty} under epoch {}", hold.epoch);
            Ok(Some(hold))
        }
        Claimed::HeldBy(holder) => {
            println!("not free  {duty} is held by {holder:?}");
            Ok(None)
        }
        Claimed::SessionEnded => Err("the session has ended".into()),
    }
}

/// The work: reads the counter that the last holder left, and commits the next one.
async fn count(store: &dyn Store, session: &Session, hold: &Hold) -> Outcome<()> {
    let last = store.load(std::slice::from_ref(&hold.duty)).await?.remove(0);
    let (expected, counter) = match &last {
        None => (Version::ZERO, 0),
        Some(last) => (last.version, std::str::from_utf8(last.document.as_bytes())?.parse()?),
    };
    println!("loaded    counter {counter}, version {expected}");
    let counter: u64 = counter + 1;
    let document = Document::new(counter.to_string())?;
    let commit = Commit { hold: hold.clone(), expected, document };
    match store.commit(session, &[commit]).await?.remove(0) {
        Committed::Saved(version) => println!("committed counter {counter}, version {version}"),
        // Either way another instance has, or had, the duty: stop.
        other => return Err(format!("not committed: {other:?}").into()),
    }
    Ok(())
}

async fn keep_alive(store: &dyn Store, session: &Session, hold: &Hold) -> Outcome<()> {
    let clock = store::BootClock;
    // Before the request is sent: the store may start to count at any moment after that (R5).
    let sent = clock.now();
    match store.keep_alive(session, None, std::slice::from_ref(hold)).await? {
        KeptAlive::Kept { holds, .. } => {
            let left = session.ttl.deadline(sent).remaining(clock.now());
            println!("renewed   {:?}: may act for {} s", holds[0], left.as_secs());
            Ok(())
        }
        KeptAlive::Ended => Err("the session has ended".into()),
    }
}
