//! The way to the servers: one of them at a time, the next one after trouble.
//!
//! The client's own balancing goes on asking a server that is down, so each address has a client of
//! its own here, and whoever meets trouble turns to the next address for everybody.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Identity, KvClient, ResponseHeader, TlsOptions, Txn,
    TxnOp, TxnOpResponse, TxnResponse,
};
use tenure_core::{Code, StoreError};
use tokio::time::{sleep, timeout};

use super::error::{self, Trouble};
use super::{Settings, Tls};

/// How long connecting may take, with signing in.
pub(super) const CONNECT: Duration = Duration::from_secs(2);

/// How long one server may take to answer before the next one is asked.
pub(super) const ATTEMPT: Duration = Duration::from_secs(3);

/// The same for keep-alives, which cannot wait so long.
pub(super) const QUICK: Duration = Duration::from_secs(1);

/// How long a whole call may take.
pub(super) const CALL: Duration = Duration::from_secs(15);

/// Between two tries.
pub(super) const PAUSE: Duration = Duration::from_millis(25);

/// A silent connection is asked after so long; servers do not like to be asked more often than
/// every five seconds.
const SILENCE: Duration = Duration::from_secs(6);

/// The largest answer: pages and read transactions stay far below.
const LARGEST: usize = 256 << 20;

/// A client of one server. What it knows of certificates and passwords is not copied for each call.
#[derive(Clone)]
pub(super) struct Open(Arc<(Client, KvClient)>);

impl Open {
    pub(super) fn client(&self) -> Client {
        self.0.0.clone()
    }

    pub(super) fn kv(&self) -> KvClient {
        self.0.1.clone()
    }
}

struct Door {
    /// `host:port`.
    address: String,
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    open: Option<Open>,
    /// Counts the clients, so that a late complaint hits the right one.
    generation: u64,
}

/// What a call may have changed so far.
#[derive(Default)]
pub(super) struct Call(AtomicUsize);

impl Call {
    pub(super) fn sends(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// What was sent has surely changed nothing.
    pub(super) fn takes_back(&self) {
        self.0.fetch_sub(1, Relaxed);
    }

    fn may_have_changed(&self) -> bool {
        self.0.load(Relaxed) > 0
    }
}

/// The answer to a transaction that may have been sent more than once.
pub(super) struct Done {
    pub(super) response: TxnResponse,
    /// An earlier try may have happened, too.
    pub(super) unsure: bool,
}

/// Why a transaction has no answer.
pub(super) enum Failed {
    Store(StoreError),
    /// One of its leases is gone. Nothing was changed by this try.
    LeaseGone,
}

impl Failed {
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::LeaseGone => Trouble::LeaseGone.into_error(),
        }
    }
}

/// All servers of one store.
pub(super) struct Link {
    doors: Vec<Door>,
    current: AtomicUsize,
    options: ConnectOptions,
    user: Option<(String, String)>,
    pub(super) is_encrypted: bool,
    /// Whether the server asked for the password.
    pub(super) signed_in: AtomicBool,
    /// The newest revision that was seen.
    revision: AtomicI64,
}

/// Turns away from a server unless the request came to its end: a caller that stopped waiting may
/// have met one that will never answer, and the next call must not wait for it, too.
struct Suspect<'a> {
    link: &'a Link,
    at: usize,
    generation: u64,
    answered: bool,
}

impl Drop for Suspect<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut slot = self.link.doors[self.at].slot();
        if slot.generation == self.generation {
            slot.open = None;
        }
        let next = (self.at + 1) % self.link.doors.len();
        // Whoever came first has turned already.
        let _ = self.link.current.compare_exchange(self.at, next, Relaxed, Relaxed);
    }
}

impl Door {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pem(path: &std::path::Path) -> Result<Vec<u8>, StoreError> {
    std::fs::read(path)
        .map_err(|error| StoreError::refused(Code::BadUrl, format!("{}: {error}", path.display())))
}

fn tls_options(tls: &Tls) -> Result<TlsOptions, StoreError> {
    let mut options = TlsOptions::new();
    options = match &tls.authority {
        Some(path) => options.ca_certificate(Certificate::from_pem(pem(path)?)),
        None => options.with_native_roots(),
    };
    if let Some((certificate, key)) = &tls.identity {
        options = options.identity(Identity::from_pem(pem(certificate)?, pem(key)?));
    }
    Ok(options)
}

impl Link {
    pub(super) fn new(settings: &Settings) -> Result<Self, StoreError> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT)
            .with_keep_alive(SILENCE, CONNECT)
            .with_keep_alive_while_idle(false)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some(tls) = &settings.tls {
            options = options.with_tls(tls_options(tls)?);
        }
        let door = |address: &String| Door { address: address.clone(), slot: Mutex::default() };
        Ok(Self {
            doors: settings.hosts.iter().map(door).collect(),
            current: AtomicUsize::new(0),
            options,
            user: settings.user.clone(),
            is_encrypted: settings.tls.is_some(),
            signed_in: AtomicBool::new(false),
            revision: AtomicI64::new(0),
        })
    }

    /// Where the store is, for people.
    pub(super) fn address(&self) -> String {
        let addresses: Vec<&str> = self.doors.iter().map(|door| door.address.as_str()).collect();
        addresses.join(",")
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.doors.iter().map(|door| door.address.as_str())
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision.load(Relaxed)
    }

    pub(super) fn saw(&self, header: Option<&ResponseHeader>) {
        if let Some(header) = header {
            self.revision.fetch_max(header.revision(), Relaxed);
        }
    }

    /// A client of one address; made anew for somebody who looks at a certain server.
    pub(super) async fn connect(&self, address: &str) -> Result<Open, Trouble> {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        let urls = [format!("{scheme}://{address}")];
        let options = match &self.user {
            Some((user, password)) => self.options.clone().with_user(user, password),
            None => self.options.clone(),
        };
        let late = |_| Trouble::NotSent(error::unreachable(address));
        let connected = timeout(CONNECT, Client::connect(&urls, Some(options))).await;
        let client = match connected.map_err(late)?.map_err(|e| error::of(&e, address)) {
            Err(Trouble::NoAuth) => {
                let plain = Client::connect(&urls, Some(self.options.clone()));
                let connected = timeout(CONNECT, plain).await.map_err(late)?;
                connected.map_err(|e| error::of(&e, address))?
            }
            // Signing in changes nothing, so its answer is not missed.
            Err(Trouble::Lost(_)) => return Err(Trouble::NotSent(error::unreachable(address))),
            Err(trouble) => return Err(trouble),
            Ok(client) => {
                self.signed_in.store(self.user.is_some(), Relaxed);
                client
            }
        };
        let kv = client.kv_client().max_decoding_message_size(LARGEST);
        Ok(Open(Arc::new((client, kv))))
    }

    async fn open(&self, at: usize) -> Result<(Open, u64), Trouble> {
        let door = &self.doors[at];
        {
            let slot = door.slot();
            if let Some(open) = &slot.open {
                return Ok((open.clone(), slot.generation));
            }
        }
        let open = self.connect(&door.address).await?;
        let mut slot = door.slot();
        slot.generation += 1;
        slot.open = Some(open.clone());
        Ok((open, slot.generation))
    }

    /// Sends one request to the server of the moment.
    pub(super) async fn attempt<T, F>(
        &self,
        limit: Duration,
        send: impl FnOnce(Open) -> F,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let at = self.current.load(Relaxed) % self.doors.len();
        let mut suspect = Suspect { link: self, at, generation: 0, answered: false };
        let opened = self.open(at).await;
        let address = &self.doors[at].address;
        let (open, generation) = match opened {
            Ok(opened) => opened,
            Err(trouble) => {
                suspect.answered = matches!(trouble, Trouble::Told(_));
                return Err(trouble);
            }
        };
        suspect.generation = generation;
        let answer = match timeout(limit, send(open)).await {
            Ok(answer) => answer.map_err(|error| error::of(&error, address)),
            Err(_) => Err(Trouble::Lost(error::lost(address))),
        };
        let in_vain =
            matches!(answer, Err(Trouble::Lost(_) | Trouble::NotSent(_) | Trouble::OldToken));
        suspect.answered = !in_vain;
        answer
    }

    /// Sends a request that changes nothing, or the same again, until somebody answers.
    pub(super) async fn repeat<T, F>(
        &self,
        limit: Duration,
        send: impl Fn(Open) -> F,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let mut unsent = 0;
        loop {
            match self.attempt(limit, &send).await {
                Err(Trouble::NotSent(error)) => {
                    unsent += 1;
                    if unsent >= 2 * self.doors.len() {
                        return Err(Trouble::NotSent(error));
                    }
                }
                Err(Trouble::Lost(_) | Trouble::OldToken) => {}
                answer => return answer,
            }
            sleep(PAUSE).await;
        }
    }

    /// Sends a transaction whose compares make sure that it takes effect once, until somebody
    /// answers.
    pub(super) async fn guarded(&self, call: &Call, txn: Txn) -> Result<Done, Failed> {
        self.send(call, txn, Some).await
    }

    async fn send(
        &self,
        call: &Call,
        txn: Txn,
        open: impl Fn(TxnResponse) -> Option<TxnResponse>,
    ) -> Result<Done, Failed> {
        let (mut unsure, mut unsent) = (false, 0);
        loop {
            call.sends();
            let sent = |open: Open| {
                let txn = txn.clone();
                async move { open.kv().txn(txn).await }
            };
            match self.attempt(ATTEMPT, sent).await {
                Ok(response) => {
                    self.saw(response.header());
                    let unopened = || Failed::Store(error::unexpected("a part is missing"));
                    let response = open(response).ok_or_else(unopened)?;
                    if !response.succeeded() {
                        call.takes_back();
                    }
                    return Ok(Done { response, unsure });
                }
                Err(Trouble::NotSent(error)) => {
                    call.takes_back();
                    unsent += 1;
                    if unsent >= 2 * self.doors.len() {
                        return Err(Failed::Store(error));
                    }
                }
                Err(Trouble::Lost(_)) => unsure = true,
                Err(Trouble::OldToken) => call.takes_back(),
                Err(Trouble::LeaseGone) => {
                    call.takes_back();
                    return Err(Failed::LeaseGone);
                }
                Err(trouble) => {
                    call.takes_back();
                    return Err(Failed::Store(trouble.into_error()));
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Sends a transaction that writes in nested ones only. etcd counts what a request would add to
    /// the database by the writes of its first level: one that it does not see there passes whether
    /// or not there is room. So the transaction is wrapped into one without compares, whose second
    /// branch, which is never taken, has a write that etcd sees.
    pub(super) async fn weighed(
        &self,
        call: &Call,
        txn: Txn,
        never_written: String,
    ) -> Result<Done, StoreError> {
        let seen = TxnOp::put(never_written, Vec::new(), None);
        let outer = Txn::new().and_then([TxnOp::txn(txn)]).or_else([seen]);
        let open = |response: TxnResponse| match response.op_responses().pop() {
            Some(TxnOpResponse::Txn(inner)) => Some(inner),
            _ => None,
        };
        self.send(call, outer, open).await.map_err(Failed::into_error)
    }

    /// The same for a transaction that names no lease.
    pub(super) async fn commit(&self, call: &Call, txn: Txn) -> Result<Done, StoreError> {
        self.guarded(call, txn).await.map_err(Failed::into_error)
    }

    /// Gives a call its end. Whatever was sent and not answered may have happened.
    pub(super) async fn bounded<T>(
        &self,
        call: &Call,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let ended = match timeout(CALL, work).await {
            Ok(ended) => ended,
            Err(_) => Err(error::unreachable(&self.address())),
        };
        ended.map_err(|error| match call.may_have_changed() {
            true if error.code() == Code::Unreachable => error::lost(&self.address()),
            true => error.or_happened(),
            false => error,
        })
    }
}
