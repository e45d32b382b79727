//! Access control: tokens, roles, and limits on failed attempts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
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

use crate::http::response::{ApiError, ApiResult};
use crate::metrics::Metrics;
use crate::storage::{
    Admission, Attempt, Decision, SourceScope, Storage, Token, TokenEnd, TokenUsage,
};
use crate::token::{self, Role};
use crate::{address, lock};

/// Maximum age of a cached token. Every commit checks the token in the store again.
const TOKEN_CACHE_AGE: Duration = Duration::from_secs(30);
const MAX_CACHED_TOKENS: usize = 4096;
/// Time for which an address that failed too often is rejected without querying the store.
const LIMIT_CACHE_AGE: Duration = Duration::from_secs(10);
const MAX_LIMITED_ADDRESSES: usize = 4096;

/// Maximum number of concurrent token lookups from addresses that failed too often.
const MAX_CONCURRENT_LOOKUPS: usize = 2;

/// Limits on failed attempts, and the source of client addresses.
#[derive(Clone, Copy, Debug)]
pub struct Limiter {
    /// Failures that an address may have within a window.
    pub failures: u32,
    /// Length of a window, from its first failure.
    pub window: Duration,
    /// Number of proxies in front of the switchboard that append to `X-Forwarded-For`.
    pub trusted_proxies: usize,
}

impl Default for Limiter {
    fn default() -> Self {
        Self { failures: 5, window: Duration::from_secs(15 * 60), trusted_proxies: 0 }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Principal {
    /// A caller without a token: no tokens exist yet, or the endpoint requires none.
    Open,
    Token(Arc<Token>),
}

impl Principal {
    pub(crate) fn token(&self) -> Option<&Token> {
        match self {
            Self::Open => None,
            Self::Token(token) => Some(token),
        }
    }

    pub(crate) fn token_id(&self) -> Option<&str> {
        self.token().map(|token| token.token_id.as_str())
    }

    /// Returns a decision of this caller, for the audit log.
    pub(crate) fn decision(&self, reason: &str) -> Decision {
        let token_id = self.token_id().map(str::to_owned);
        let by = token_id.clone().unwrap_or_else(|| "open".to_owned());
        Decision { by, reason: reason.to_owned(), token_id }
    }

    /// Checks that the caller may submit events of this source.
    pub(crate) fn permits(&self, channel: &str, provider: &str, endpoint: &str) -> ApiResult<()> {
        let Some(token) = self.token() else { return Ok(()) };
        if token.scope.as_ref().is_some_and(|scope| is_source(scope, channel, provider, endpoint)) {
            return Ok(());
        }
        let message = format!("Token scope does not permit ingestion for endpoint '{endpoint}'");
        Err(ApiError::forbidden(message))
    }

    /// Returns the only source that the caller may read; `None` if it may read everything.
    pub(crate) fn reads_only(&self) -> Option<&SourceScope> {
        let token = self.token()?;
        let reads_all =
            |role: &String| matches!(Role::parse(role), Some(Role::Admin | Role::Consume));
        token.scope.as_ref().filter(|_| !token.roles.iter().any(reads_all))
    }

    pub(crate) fn may_read(&self, channel: &str, provider: &str, endpoint: &str) -> bool {
        self.reads_only().is_none_or(|scope| is_source(scope, channel, provider, endpoint))
    }

    pub(crate) fn may_see(&self, connector_type: &str, endpoint: &str, rules: &Rules) -> bool {
        self.reads_only().is_none_or(|scope| {
            scope.endpoint_identity == endpoint && belongs(connector_type, scope, rules)
        })
    }

    /// Restricts a query to the channel, provider and endpoint that the caller may read.
    pub(crate) fn narrow(&self, asked: [&mut Option<String>; 3]) -> ApiResult<()> {
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

    /// Checks that the caller may read reports across all endpoints.
    pub(crate) fn permits_overview(&self) -> ApiResult<()> {
        let Some(SourceScope { endpoint_identity, .. }) = self.reads_only() else { return Ok(()) };
        Err(ApiError::forbidden(format!(
            "Token scope permits reading of endpoint '{endpoint_identity}' only"
        )))
    }

    /// Checks that the caller may send heartbeats of this connector.
    pub(crate) fn permits_heartbeat(
        &self,
        connector_type: &str,
        endpoint: &str,
        rules: &Rules,
    ) -> ApiResult<()> {
        let Some(token) = self.token() else { return Ok(()) };
        let scope = token.scope.as_ref().filter(|scope| scope.endpoint_identity == endpoint);
        let about = match scope {
            None => format!("endpoint '{endpoint}'"),
            Some(scope) if belongs(connector_type, scope, rules) => return Ok(()),
            Some(_) => format!("connector type '{connector_type}' of endpoint '{endpoint}'"),
        };
        let message = format!("Token scope does not permit heartbeats for {about}");
        Err(ApiError::forbidden(message))
    }
}

/// Credentials that an endpoint requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    Nothing,
    Token,
    /// Any token, possibly a cached one: for messages whose required role is known only after
    /// parsing.
    RecentToken,
    Role(Role),
}

#[derive(Debug)]
pub(crate) struct AccessControl {
    storage: Arc<dyn Storage>,
    metrics: Arc<Metrics>,
    limiter: Limiter,
    /// Whether tokens are required. It never becomes false again.
    required: AtomicBool,
    known: Mutex<BTreeMap<[u8; 8], CachedToken>>,
    limited: Mutex<BTreeMap<String, LimitedAddress>>,
    usage: Mutex<BTreeMap<String, TokenUsage>>,
    lookups: Semaphore,
}

/// A token that was valid when it was last looked up.
#[derive(Clone, Debug)]
struct CachedToken {
    digest: [u8; 32],
    token: Arc<Token>,
    seen: LocalInstant,
}

/// An address that failed too often.
#[derive(Clone, Copy, Debug)]
struct LimitedAddress {
    /// End of the period without store queries. Short, because an operator may reset the limit.
    unasked: LocalInstant,
    ends: LocalInstant,
}

impl AccessControl {
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
            lookups: Semaphore::new(MAX_CONCURRENT_LOOKUPS),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.required.load(Ordering::Relaxed)
    }

    pub(crate) fn require(&self) {
        self.required.store(true, Ordering::Relaxed);
    }

    /// Authenticates a request and checks that it meets the requirement.
    pub(crate) async fn check(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
        need: Requirement,
    ) -> ApiResult<Principal> {
        if self.is_open() {
            check_local(headers)?;
            return Ok(Principal::Open);
        }
        let digest = presented_digest(headers);
        // A commit checks the token of a submission again; nothing checks other requests again.
        let known = match need {
            Requirement::RecentToken | Requirement::Role(Role::Ingest) => {
                digest.and_then(|digest| self.cached(&digest))
            }
            _ => None,
        };
        let token = match known {
            Some(token) => token,
            None => self.admit(digest, headers, peer).await?,
        };
        self.used(&token.token_id, |usage| usage.requests += 1);
        let caller = Principal::Token(token);
        if let Requirement::Role(role) = need {
            self.check_role(&caller, role)?;
        }
        Ok(caller)
    }

    pub(crate) fn check_role(&self, caller: &Principal, role: Role) -> ApiResult<()> {
        let Some(token) = caller.token() else { return Ok(()) };
        if token::allowed(&token.roles, role) {
            return Ok(());
        }
        self.used(&token.token_id, |usage| usage.refused += 1);
        let message = format!("Token does not have the role '{}'", role.as_str());
        Err(ApiError::forbidden(message))
    }

    /// Looks up the token of a caller that the cache may have admitted.
    pub(crate) async fn check_again(
        &self,
        caller: &Principal,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> ApiResult<()> {
        if caller.token().is_some() {
            self.admit(presented_digest(headers), headers, peer).await?;
        }
        Ok(())
    }

    async fn admit(
        &self,
        digest: Option<[u8; 32]>,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> ApiResult<Arc<Token>> {
        let address = address::of_client(peer, headers, self.limiter.trusted_proxies);
        let limited = self.limited_for(&address);
        if digest.is_none()
            && let Some(left) = limited
        {
            self.metrics.auth_failures.add(1);
            return Err(ApiError::too_many_attempts(whole_seconds(left)));
        }
        // Well-formed tokens are looked up however often their address failed, because many clients
        // may share an address. Tokens that were never valid here share a few permits, so that
        // guesses from one address do not slow down all others.
        let known = digest.is_some_and(|digest| self.find(&digest).is_some());
        let _turn = match limited {
            Some(_) if !known => self.lookups.acquire().await.ok(),
            _ => None,
        };
        let attempt = Attempt {
            hash: digest,
            address: address.clone(),
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
                digest.and_then(|digest| lock(&self.known).remove(&prefix(&digest)));
                Err(ApiError::token_ended(ended))
            }
            (Admission::Limited { retry_after }, _) => {
                let left = Duration::from_micros(u64::try_from(retry_after).unwrap_or(0));
                self.limit(address, left);
                Err(ApiError::too_many_attempts(whole_seconds(left)))
            }
            (_, None) => Err(ApiError::invalid_token(
                "a token is required: send it as Authorization: Bearer sw_...",
            )),
            (Admission::Unknown, Some(_)) => Err(ApiError::token_ended(TokenEnd::Gone)),
        }
    }

    /// Returns a token that was valid when this replica last looked it up.
    fn find(&self, digest: &[u8; 32]) -> Option<CachedToken> {
        let found = lock(&self.known).get(&prefix(digest)).cloned();
        found.filter(|found| found.digest.ct_eq(digest).into())
    }

    /// Returns the token if it was valid recently.
    fn cached(&self, digest: &[u8; 32]) -> Option<Arc<Token>> {
        let found = self.find(digest)?;
        (BootClock.now().since(found.seen) < TOKEN_CACHE_AGE).then_some(found.token)
    }

    fn remember(&self, digest: [u8; 32], token: Token) -> Arc<Token> {
        let token = Arc::new(token);
        let mut known = lock(&self.known);
        if known.len() >= MAX_CACHED_TOKENS && !known.contains_key(&prefix(&digest)) {
            let oldest = known.iter().min_by_key(|(_, found)| found.seen).map(|(key, _)| *key);
            oldest.and_then(|key| known.remove(&key));
        }
        let seen = BootClock.now();
        known.insert(prefix(&digest), CachedToken { digest, token: Arc::clone(&token), seen });
        token
    }

    /// Removes a token that has ended from the cache.
    pub(crate) fn ended(&self, token_id: Option<&str>) {
        lock(&self.known).retain(|_, found| Some(found.token.token_id.as_str()) != token_id);
    }

    /// Returns the rest of the address's window, as long as no store query is needed.
    fn limited_for(&self, address: &str) -> Option<Duration> {
        let now = BootClock.now();
        let limited = lock(&self.limited).get(address).copied()?;
        (limited.unasked > now).then(|| limited.ends.since(now))
    }

    fn limit(&self, address: String, left: Duration) {
        let now = BootClock.now();
        let mut limited = lock(&self.limited);
        if limited.len() >= MAX_LIMITED_ADDRESSES {
            limited.retain(|_, it| it.unasked > now);
        }
        if limited.len() < MAX_LIMITED_ADDRESSES {
            let unasked = now.plus(left.min(LIMIT_CACHE_AGE));
            limited.insert(address, LimitedAddress { unasked, ends: now.plus(left) });
        }
    }

    pub(crate) fn used(&self, token_id: &str, count: impl FnOnce(&mut TokenUsage)) {
        let mut usage = lock(&self.usage);
        match usage.get_mut(token_id) {
            Some(usage) => count(usage),
            None => count(usage.entry(token_id.to_owned()).or_default()),
        }
    }

    /// Takes the uses counted since the last call, as uses on `day`.
    pub(crate) fn take_usage(&self, day: &str) -> Vec<TokenUsage> {
        let taken = std::mem::take(&mut *lock(&self.usage));
        let usages = taken.into_iter();
        usages.map(|(token_id, it)| TokenUsage { token_id, day: day.to_owned(), ..it }).collect()
    }

    /// Puts back uses that could not be stored.
    pub(crate) fn put_back(&self, usages: Vec<TokenUsage>) {
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

/// Rejects requests from other machines. A proxy here would make every client look local, so
/// requests through one are rejected, too, and so are those of web pages of other hosts.
fn check_local(headers: &HeaderMap) -> ApiResult<()> {
    let through_proxy = ["forwarded", "x-forwarded-for", "x-real-ip"];
    if through_proxy.iter().any(|name| headers.contains_key(*name)) {
        let message = "requests through a proxy need a token, and none exists: create one";
        return Err(ApiError::invalid_token(message));
    }
    let mut named = headers.get_all(HOST).iter().chain(headers.get_all(ORIGIN));
    if !named.all(|name| name.to_str().is_ok_and(address::is_this_machine)) {
        let message = "without tokens, Host and Origin must name this machine: create a token";
        return Err(ApiError::invalid_token(message));
    }
    Ok(())
}

/// Returns the digest of a well-formed token: a bearer token, or the password of a client that has
/// only a URL. The user name is ignored.
fn presented_digest(headers: &HeaderMap) -> Option<[u8; 32]> {
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

/// Returns whether connectors of this type belong to a source, directly or by its alias channel.
fn belongs(
    connector_type: &str,
    SourceScope { channel, provider, .. }: &SourceScope,
    rules: &Rules,
) -> bool {
    [channel, rules.keyed(channel)].iter().any(|channel| fits(connector_type, channel, provider))
}

fn prefix(digest: &[u8; 32]) -> [u8; 8] {
    std::array::from_fn(|n| digest[n])
}

fn is_source(scope: &SourceScope, channel: &str, provider: &str, endpoint: &str) -> bool {
    scope.channel == channel && scope.provider == provider && scope.endpoint_identity == endpoint
}

fn whole_seconds(left: Duration) -> u64 {
    left.as_secs() + u64::from(left.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests;
