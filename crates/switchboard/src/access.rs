//! Who may do what.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, ORIGIN};
use subtle::ConstantTimeEq;
use tenure_core::{Clock, LocalInstant};
use tenure_store::BootClock;
use tenure_wire::heartbeat::fits;
use tenure_wire::ingest::Rules;
use tokio::sync::Semaphore;

use crate::address;
use crate::http::answer::{Refusal, Refused};
use crate::metrics::Metrics;
use crate::storage::{Admission, Attempt, Decision, Ended, Scope, Storage, Token, Usage};
use crate::token::{self, Role};

/// How long a token that was good is taken for good without asking. Every commit asks again.
const KNOWN_FOR: Duration = Duration::from_secs(30);
/// How many tokens are remembered.
const MOST_KNOWN: usize = 4096;
/// How long an address that has failed too often is turned away without asking.
const LIMITED_FOR: Duration = Duration::from_secs(10);
/// How many of them are remembered.
const MOST_LIMITED: usize = 4096;

/// Tokens from such addresses that are looked up at a time.
const LOOKUPS_AT_ONCE: usize = 2;

/// How failures are limited, and where addresses come from.
#[derive(Clone, Copy, Debug)]
pub struct Limiter {
    /// How many failures an address has within a window.
    pub failures: u32,
    /// How long a window is, from its first failure.
    pub window: Duration,
    /// How many proxies stand before the switchboard and add to `X-Forwarded-For`.
    pub trusted_proxies: usize,
}

impl Default for Limiter {
    fn default() -> Self {
        Self { failures: 5, window: Duration::from_secs(15 * 60), trusted_proxies: 0 }
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// Somebody on this machine, while there are no tokens.
    Open,
    /// Somebody with a token.
    Token(Arc<Token>),
}

impl Caller {
    pub(crate) fn token(&self) -> Option<&Token> {
        match self {
            Self::Open => None,
            Self::Token(token) => Some(token),
        }
    }

    pub(crate) fn token_id(&self) -> Option<&str> {
        self.token().map(|token| token.token_id.as_str())
    }

    /// A decision of this caller, for the records.
    pub(crate) fn decides(&self, reason: &str) -> Decision {
        let token_id = self.token_id().map(str::to_owned);
        let by = token_id.clone().unwrap_or_else(|| "open".to_owned());
        Decision { by, reason: reason.to_owned(), token_id }
    }

    /// Whether events of this source may be submitted.
    pub(crate) fn permits(
        &self,
        channel: &str,
        provider: &str,
        endpoint: &str,
    ) -> Result<(), Refused> {
        let Some(token) = self.token() else { return Ok(()) };
        let fits = token.scope.as_ref().is_some_and(|scope| {
            scope.channel == channel
                && scope.provider == provider
                && scope.endpoint_identity == endpoint
        });
        if fits {
            return Ok(());
        }
        let message = format!("Token scope does not permit ingestion for endpoint '{endpoint}'");
        Err(Refusal::forbidden(message))
    }

    /// The one source that may be read of; `None` for those who may read everything.
    pub(crate) fn reads_only(&self) -> Option<&Scope> {
        let token = self.token()?;
        let reads_all =
            |role: &String| matches!(Role::parse(role), Some(Role::Admin | Role::Consume));
        token.scope.as_ref().filter(|_| !token.roles.iter().any(reads_all))
    }

    /// Whether what came from this source may be read.
    pub(crate) fn may_read(&self, channel: &str, provider: &str, endpoint: &str) -> bool {
        self.reads_only().is_none_or(|scope| {
            scope.channel == channel
                && scope.provider == provider
                && scope.endpoint_identity == endpoint
        })
    }

    /// Whether this connector may be looked at.
    pub(crate) fn may_see(&self, connector_type: &str, endpoint: &str, rules: &Rules) -> bool {
        self.reads_only().is_none_or(|scope| {
            scope.endpoint_identity == endpoint && belongs(connector_type, scope, rules)
        })
    }

    /// Narrows the channel, provider and endpoint that are asked for to those that may be read.
    pub(crate) fn narrow(&self, asked: [&mut Option<String>; 3]) -> Result<(), Refused> {
        let Some(scope) = self.reads_only() else { return Ok(()) };
        let own = [&scope.channel, &scope.provider, &scope.endpoint_identity];
        for (asked, own) in asked.into_iter().zip(own) {
            if asked.as_ref().is_some_and(|asked| asked != own) {
                self.permits_overview()?;
            }
            *asked = Some(own.clone());
        }
        Ok(())
    }

    /// Whether what tells of all endpoints together may be read.
    pub(crate) fn permits_overview(&self) -> Result<(), Refused> {
        match self.reads_only() {
            None => Ok(()),
            Some(scope) => {
                let endpoint = &scope.endpoint_identity;
                let message = format!("Token scope permits reading of endpoint '{endpoint}' only");
                Err(Refusal::forbidden(message))
            }
        }
    }

    /// Whether heartbeats of this connector may be sent.
    pub(crate) fn permits_heartbeat(
        &self,
        connector_type: &str,
        endpoint: &str,
        rules: &Rules,
    ) -> Result<(), Refused> {
        let Some(token) = self.token() else { return Ok(()) };
        let scope = token.scope.as_ref().filter(|scope| scope.endpoint_identity == endpoint);
        let about = match scope {
            None => format!("endpoint '{endpoint}'"),
            Some(scope) if belongs(connector_type, scope, rules) => return Ok(()),
            Some(_) => format!("connector type '{connector_type}' of endpoint '{endpoint}'"),
        };
        let message = format!("Token scope does not permit heartbeats for {about}");
        Err(Refusal::forbidden(message))
    }
}

/// What a request has to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Any token.
    Any,
    /// Any token; one that was good a moment ago is not judged again. For what is judged once more
    /// when it is known what is asked for.
    Recent,
    /// A token with this role.
    Role(Role),
}

/// Judges requests by their tokens.
#[derive(Debug)]
pub(crate) struct Access {
    storage: Arc<dyn Storage>,
    metrics: Arc<Metrics>,
    limiter: Limiter,
    /// Whether tokens are in force. Once they are, they stay.
    required: AtomicBool,
    known: Mutex<BTreeMap<[u8; 8], Known>>,
    limited: Mutex<BTreeMap<String, Limited>>,
    usage: Mutex<BTreeMap<String, Usage>>,
    /// Turns of tokens that come from addresses that have failed too often.
    lookups: Semaphore,
}

/// A token that was good.
#[derive(Clone, Debug)]
struct Known {
    digest: [u8; 32],
    token: Arc<Token>,
    seen: LocalInstant,
}

/// An address that has failed too often.
#[derive(Clone, Copy, Debug)]
struct Limited {
    /// Until then the store is not asked. Not for long: it may be told to forget.
    unasked: LocalInstant,
    /// When its window ends.
    ends: LocalInstant,
}

impl Access {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        metrics: Arc<Metrics>,
        limiter: Limiter,
        required: bool,
    ) -> Self {
        Self {
            storage,
            metrics,
            limiter,
            required: AtomicBool::new(required),
            known: Mutex::default(),
            limited: Mutex::default(),
            usage: Mutex::default(),
            lookups: Semaphore::new(LOOKUPS_AT_ONCE),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.required.load(Ordering::Relaxed)
    }

    /// From now on tokens are required.
    pub(crate) fn require(&self) {
        self.required.store(true, Ordering::Relaxed);
    }

    /// Who asks, if that is somebody who may.
    pub(crate) async fn check(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
        need: Need,
    ) -> Result<Caller, Refused> {
        if self.is_open() {
            only_from_here(headers)?;
            return Ok(Caller::Open);
        }
        let digest = shown(headers);
        // Whatever is submitted is judged once more when it is committed; the rest is not.
        let known = match need {
            Need::Recent | Need::Role(Role::Ingest) => {
                digest.and_then(|digest| self.recall(&digest))
            }
            _ => None,
        };
        let token = match known {
            Some(token) => token,
            None => self.admit(digest, headers, peer).await?,
        };
        self.used(&token.token_id, |usage| usage.requests += 1);
        let caller = Caller::Token(token);
        if let Need::Role(role) = need {
            self.check_role(&caller, role)?;
        }
        Ok(caller)
    }

    /// Whether somebody who was let in may do this.
    pub(crate) fn check_role(&self, caller: &Caller, role: Role) -> Result<(), Refused> {
        let Some(token) = caller.token() else { return Ok(()) };
        if token::allowed(&token.roles, role) {
            return Ok(());
        }
        self.used(&token.token_id, |usage| usage.refused += 1);
        let message = format!("Token does not have the role '{}'", role.as_str());
        Err(Refusal::forbidden(message))
    }

    /// Judges somebody again who was let in as one that was good a moment ago.
    pub(crate) async fn check_again(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<(), Refused> {
        match caller {
            Caller::Open => Ok(()),
            Caller::Token(_) => self.admit(shown(headers), headers, peer).await.map(drop),
        }
    }

    async fn admit(
        &self,
        digest: Option<[u8; 32]>,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<Arc<Token>, Refused> {
        let address = address::of_client(peer, headers, self.limiter.trusted_proxies);
        let limited = self.limited_for(&address);
        if digest.is_none()
            && let Some(left) = limited
        {
            self.metrics.auth_failures.add(1);
            return Err(Refusal::too_many_attempts(whole_seconds(left)));
        }
        // What may be a token is looked up, however often its address has failed: many share one.
        // Those that nobody has seen to be good wait for each other, so that guesses of one
        // address take no more than a few lookups at a time from all others.
        let known = digest.is_some_and(|digest| self.is_recognised(&digest));
        let _turn = match limited {
            Some(_) if !known => self.lookups.acquire().await.ok(),
            _ => None,
        };
        let attempt = Attempt {
            hash: digest,
            address: &address,
            limit: i64::from(self.limiter.failures),
            window: i64::try_from(self.limiter.window.as_micros()).unwrap_or(i64::MAX),
        };
        let admission = self.storage.admit(&attempt).await?;
        if !matches!(admission, Admission::Token(_)) {
            self.metrics.auth_failures.add(1);
        }
        match (admission, digest) {
            (Admission::Token(token), Some(digest)) => Ok(self.remember(digest, *token)),
            (Admission::Ended(ended), digest) => {
                digest.inspect(|digest| self.forget(digest));
                Err(Refusal::token_ended(ended))
            }
            (Admission::Limited { retry_after }, _) => {
                let left = Duration::from_micros(u64::try_from(retry_after).unwrap_or(0));
                self.limit(address, left);
                Err(Refusal::too_many_attempts(whole_seconds(left)))
            }
            (_, None) => Err(Refusal::invalid_token(
                "a token is required: send it as Authorization: Bearer sw_...",
            )),
            (Admission::Unknown, Some(_)) => Err(Refusal::token_ended(Ended::Gone)),
        }
    }

    /// A token that was good a moment ago.
    fn recall(&self, digest: &[u8; 32]) -> Option<Arc<Token>> {
        let known = lock(&self.known);
        let found = known.get(&prefix(digest)).filter(|found| is_same(&found.digest, digest))?;
        let age = BootClock.now().since(found.seen);
        (age < KNOWN_FOR).then(|| Arc::clone(&found.token))
    }

    /// Whether this replica has seen it to be good, however long ago.
    fn is_recognised(&self, digest: &[u8; 32]) -> bool {
        let known = lock(&self.known);
        known.get(&prefix(digest)).is_some_and(|found| is_same(&found.digest, digest))
    }

    fn remember(&self, digest: [u8; 32], token: Token) -> Arc<Token> {
        let token = Arc::new(token);
        let mut known = lock(&self.known);
        if known.len() >= MOST_KNOWN && !known.contains_key(&prefix(&digest)) {
            let oldest = known.iter().min_by_key(|(_, found)| found.seen).map(|(key, _)| *key);
            oldest.and_then(|key| known.remove(&key));
        }
        let seen = BootClock.now();
        known.insert(prefix(&digest), Known { digest, token: Arc::clone(&token), seen });
        token
    }

    fn forget(&self, digest: &[u8; 32]) {
        lock(&self.known).remove(&prefix(digest));
    }

    /// A commit found that the token has ended.
    pub(crate) fn ended(&self, token_id: Option<&str>) {
        lock(&self.known).retain(|_, found| Some(found.token.token_id.as_str()) != token_id);
    }

    /// How long its window still is, if the store need not be asked.
    fn limited_for(&self, address: &str) -> Option<Duration> {
        let now = BootClock.now();
        let limited = lock(&self.limited).get(address).copied()?;
        (limited.unasked > now).then(|| limited.ends.since(now))
    }

    fn limit(&self, address: String, left: Duration) {
        let now = BootClock.now();
        let mut limited = lock(&self.limited);
        if limited.len() >= MOST_LIMITED {
            limited.retain(|_, it| it.unasked > now);
        }
        if limited.len() < MOST_LIMITED {
            let unasked = now.plus(left.min(LIMITED_FOR));
            limited.insert(address, Limited { unasked, ends: now.plus(left) });
        }
    }

    /// Counts what was done with a token.
    pub(crate) fn used(&self, token_id: &str, count: impl FnOnce(&mut Usage)) {
        let mut usage = lock(&self.usage);
        match usage.get_mut(token_id) {
            Some(usage) => count(usage),
            None => count(usage.entry(token_id.to_owned()).or_default()),
        }
    }

    /// What was counted since this was asked last, as done on `day`.
    pub(crate) fn take_usage(&self, day: &str) -> Vec<Usage> {
        let taken = std::mem::take(&mut *lock(&self.usage));
        let usages = taken.into_iter();
        usages.map(|(token_id, it)| Usage { token_id, day: day.to_owned(), ..it }).collect()
    }

    /// Puts back what could not be stored.
    pub(crate) fn put_back(&self, usages: Vec<Usage>) {
        for it in usages {
            self.used(&it.token_id, |usage| {
                usage.requests += it.requests;
                usage.accepted += it.accepted;
                usage.duplicates += it.duplicates;
                usage.refused += it.refused;
            });
        }
    }
}

/// Without tokens only this machine is let in. A proxy on it makes everybody look like that, so
/// what shows signs of one is refused; and so is a page that a browser has from somewhere else.
fn only_from_here(headers: &HeaderMap) -> Result<(), Refused> {
    let through_proxy = ["forwarded", "x-forwarded-for", "x-real-ip"];
    if through_proxy.iter().any(|name| headers.contains_key(*name)) {
        let message = "there are no tokens, and this came through a proxy: make a token";
        return Err(Refusal::invalid_token(message));
    }
    let mut named = headers.get_all(HOST).iter().chain(headers.get_all(ORIGIN));
    let here =
        |name: &hyper::header::HeaderValue| name.to_str().is_ok_and(address::is_this_machine);
    match named.all(here) {
        true => Ok(()),
        false => {
            let message =
                "there are no tokens, and Host or Origin is not of this machine: make a token";
            Err(Refusal::invalid_token(message))
        }
    }
}

/// The digest of the token that was shown, if that could be one: as a bearer token, or as the
/// password of a client that can only be given a URL. The user name there means nothing.
fn shown(headers: &HeaderMap) -> Option<[u8; 32]> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let line = lines.next()?.to_str().ok()?;
    if lines.next().is_some() {
        return None;
    }
    let (scheme, text) = line.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return token::digest(text.trim());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(text.trim()).ok()?;
    let (_, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    token::digest(password)
}

/// Whether connectors of this type belong to a source; also by the channel that its own stands for.
fn belongs(connector_type: &str, Scope { channel, provider, .. }: &Scope, rules: &Rules) -> bool {
    [channel, rules.keyed(channel)].iter().any(|channel| fits(connector_type, channel, provider))
}

fn prefix(digest: &[u8; 32]) -> [u8; 8] {
    std::array::from_fn(|n| digest[n])
}

fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.ct_eq(other).into()
}

fn whole_seconds(left: Duration) -> u64 {
    left.as_secs() + u64::from(left.subsec_nanos() > 0)
}

/// Nothing that is done under these locks can be done by half: a panic elsewhere spoils nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
