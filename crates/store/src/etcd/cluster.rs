//! Connections to the servers of a cluster. One server is used at a time; after a failure, all
//! callers switch to the next address.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::StoreError;
use tenure_etcd::{Client, Error, ResponseHeader, Txn, TxnResponse};
use tokio::time::{sleep, timeout};

use super::EtcdSettings;
use super::call::CallTracker;
use super::connect::EtcdConnector;
use super::error::{self, RequestError};

/// Time limit for connecting and signing in.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit for one server before the next one is tried.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time limit for one keep-alive request, which is urgent.
pub(super) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time limit for a whole call.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Pause between two attempts.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(25);

struct Endpoint {
    /// `host:port`.
    address: String,
    slot: Mutex<EndpointSlot>,
}

#[derive(Default)]
struct EndpointSlot {
    open: Option<Client>,
    /// Counts the clients, so that a late error drops only the client that it came from.
    generation: u64,
}

/// Response to a transaction that may have been sent more than once.
pub(super) struct TxnResult {
    pub(super) response: TxnResponse,
    /// Whether an earlier attempt may also have taken effect.
    pub(super) unsure: bool,
}

/// Why a transaction has no response.
pub(super) enum TxnFailure {
    Store(StoreError),
    /// One of its leases has ended. This attempt changed nothing.
    LeaseGone,
}

impl TxnFailure {
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::LeaseGone => RequestError::LeaseGone.into_error(),
        }
    }
}

/// All servers of one store.
pub(super) struct EtcdCluster {
    endpoints: Vec<Endpoint>,
    current: AtomicUsize,
    connector: Arc<EtcdConnector>,
    user: Option<(String, String)>,
    pub(super) is_encrypted: bool,
    /// Whether a server has accepted the user and password.
    pub(super) signed_in: AtomicBool,
    revision: AtomicI64,
    /// The newest term seen in a response to a read or write: its leader had been elected by then.
    term: AtomicU64,
}

/// Switches to the next server unless the request completed: if the caller stopped waiting, the
/// server may never answer, and the next call must not wait for it as well.
struct EndpointGuard<'a> {
    cluster: &'a EtcdCluster,
    at: usize,
    generation: u64,
    answered: bool,
}

impl Drop for EndpointGuard<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut slot = self.cluster.endpoints[self.at].slot();
        if slot.generation == self.generation {
            slot.open = None;
        }
        let next = (self.at + 1) % self.cluster.endpoints.len();
        // Does nothing if another call has already switched.
        let _ = self.cluster.current.compare_exchange(self.at, next, Relaxed, Relaxed);
    }
}

impl Endpoint {
    fn slot(&self) -> MutexGuard<'_, EndpointSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EtcdCluster {
    pub(super) fn new(settings: &EtcdSettings, connector: &Arc<EtcdConnector>) -> Self {
        let endpoint =
            |address: &String| Endpoint { address: address.clone(), slot: Mutex::default() };
        Self {
            endpoints: settings.hosts.iter().map(endpoint).collect(),
            current: AtomicUsize::new(0),
            connector: connector.clone(),
            user: settings.user.clone(),
            is_encrypted: settings.tls.is_some(),
            signed_in: AtomicBool::new(false),
            revision: AtomicI64::new(0),
            term: AtomicU64::new(0),
        }
    }

    /// Addresses of the servers, for messages.
    pub(super) fn address(&self) -> String {
        self.addresses().collect::<Vec<_>>().join(",")
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.endpoints.iter().map(|endpoint| endpoint.address.as_str())
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision.load(Relaxed)
    }

    pub(super) fn term(&self) -> u64 {
        self.term.load(Relaxed)
    }

    /// Records revision and term of a response. Not for keep-alives: a deposed leader may answer.
    pub(super) fn saw(&self, header: Option<&ResponseHeader>) {
        if let Some(header) = header {
            self.revision.fetch_max(header.revision, Relaxed);
            self.term.fetch_max(header.raft_term, Relaxed);
        }
    }

    /// Opens a new client for one address.
    pub(super) async fn connect(&self, address: &str) -> Result<Client, RequestError> {
        let late = |_| Err(RequestError::NotSent(error::unreachable(address)));
        timeout(CONNECT_TIMEOUT, self.signed_in(address)).await.unwrap_or_else(late)
    }

    async fn signed_in(&self, address: &str) -> Result<Client, RequestError> {
        let mut client = self.connector.client(address).await?;
        if let Some((user, password)) = &self.user {
            match client.sign_in(user, password).await.map_err(|e| error::request_error(e, address))
            {
                Ok(()) => self.signed_in.store(true, Relaxed),
                Err(RequestError::NoAuth) => {}
                // Signing in changes nothing, so a lost answer counts as not sent.
                Err(RequestError::Lost(_)) => {
                    return Err(RequestError::NotSent(error::unreachable(address)));
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(client)
    }

    async fn open(&self, at: usize) -> Result<(Client, u64), RequestError> {
        let endpoint = &self.endpoints[at];
        {
            let slot = endpoint.slot();
            if let Some(open) = &slot.open {
                return Ok((open.clone(), slot.generation));
            }
        }
        let open = self.connect(&endpoint.address).await?;
        let mut slot = endpoint.slot();
        slot.generation += 1;
        slot.open = Some(open.clone());
        Ok((open, slot.generation))
    }

    /// Sends one request to the current server.
    pub(super) async fn attempt<T, F>(
        &self,
        limit: Duration,
        send: impl FnOnce(Client) -> F,
    ) -> Result<T, RequestError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let at = self.current.load(Relaxed) % self.endpoints.len();
        let mut suspect = EndpointGuard { cluster: self, at, generation: 0, answered: false };
        let opened = self.open(at).await;
        let address = &self.endpoints[at].address;
        let (open, generation) = match opened {
            Ok(opened) => opened,
            Err(trouble) => {
                suspect.answered = matches!(trouble, RequestError::Refused(_));
                return Err(trouble);
            }
        };
        suspect.generation = generation;
        let answer = match timeout(limit, send(open)).await {
            Ok(answer) => answer.map_err(|error| error::request_error(error, address)),
            Err(_) => Err(RequestError::Lost(error::lost(address))),
        };
        let in_vain = matches!(
            answer,
            Err(RequestError::Lost(_) | RequestError::NotSent(_) | RequestError::OldToken)
        );
        suspect.answered = !in_vain;
        answer
    }

    /// Sends a read or an idempotent request until a server answers.
    pub(super) async fn repeat<T, F>(
        &self,
        limit: Duration,
        send: impl Fn(Client) -> F,
    ) -> Result<T, RequestError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut unsent = 0;
        loop {
            match self.attempt(limit, &send).await {
                Err(RequestError::NotSent(error)) => {
                    unsent += 1;
                    if unsent >= 2 * self.endpoints.len() {
                        return Err(RequestError::NotSent(error));
                    }
                }
                Err(RequestError::Lost(_) | RequestError::OldToken) => {}
                answer => return answer,
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Sends a transaction until a server answers; `open` unwraps its response.
    pub(super) async fn send(
        &self,
        call: &CallTracker,
        txn: Txn,
        open: impl Fn(TxnResponse) -> Option<TxnResponse>,
    ) -> Result<TxnResult, TxnFailure> {
        let (mut unsure, mut unsent) = (false, 0);
        loop {
            call.sends();
            let txn = &txn;
            let sent = |client: Client| async move { client.txn(txn).await };
            match self.attempt(ATTEMPT_TIMEOUT, sent).await {
                Ok(response) => {
                    self.saw(response.header.as_ref());
                    let unopened = || TxnFailure::Store(error::unexpected("a part is missing"));
                    let response = open(response).ok_or_else(unopened)?;
                    if !response.succeeded {
                        call.takes_back();
                    }
                    return Ok(TxnResult { response, unsure });
                }
                Err(RequestError::NotSent(error)) => {
                    call.takes_back();
                    unsent += 1;
                    if unsent >= 2 * self.endpoints.len() {
                        return Err(TxnFailure::Store(error));
                    }
                }
                Err(RequestError::Lost(_)) => unsure = true,
                Err(RequestError::OldToken) => call.takes_back(),
                Err(RequestError::LeaseGone) => {
                    call.takes_back();
                    return Err(TxnFailure::LeaseGone);
                }
                Err(trouble) => {
                    call.takes_back();
                    return Err(TxnFailure::Store(trouble.into_error()));
                }
            }
            sleep(RETRY_PAUSE).await;
        }
    }
}
