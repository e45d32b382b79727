//! Identity of this process.
//!
//! An instance id is minted once per process and never reused: a process that starts again, on the
//! same host and under the same name, is another instance (R3).

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_core::{Instance, Nonce, PublicKey};
use uuid::Uuid;

/// The last part of every id of this process.
static TAG: OnceLock<u32> = OnceLock::new();

static IDENTITY: Identity = Identity(Mutex::new(None));

/// Returns the identity of this process: `hostname-bootUnixNanos-8hex` and a UUID, the same at
/// every call. A child made by fork(2) is another instance.
pub fn instance() -> &'static Instance {
    IDENTITY.of(std::process::id())
}

/// Lets the id of this process end in the first bytes of its public key. Returns false if the id is
/// in use already.
pub fn tag(key: &PublicKey) -> bool {
    let [a, b, c, d, ..] = key.0;
    let tag = *TAG.get_or_init(|| u32::from_be_bytes([a, b, c, d]));
    instance().id().as_str().ends_with(&format!("-{tag:08x}"))
}

/// Mints another identity, for a process that joins a group more than once.
pub fn another_instance() -> Instance {
    mint()
}

/// Returns a new nonce for one session.
pub fn fresh_nonce() -> Nonce {
    Nonce::from_entropy(entropy())
}

/// Returns 122 random bits from the operating system, as a version 4 UUID.
pub fn entropy() -> u128 {
    Uuid::new_v4().as_u128()
}

/// Returns the wall clock in milliseconds since 1970, for people; no expiry is judged by it.
pub fn unix_ms() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}

/// Returns the wall clock in microseconds since 1970, for people and for floors that must be above
/// every epoch that a store may have forgotten.
pub fn unix_micros() -> u64 {
    u64::try_from(since_1970().as_micros()).unwrap_or(u64::MAX)
}

/// Id of the process for which an instance was minted last, and the instance.
struct Identity(Mutex<Option<(u32, &'static Instance)>>);

impl Identity {
    // fork(2) copies memory, but not the process id.
    fn of(&self, pid: u32) -> &'static Instance {
        let mut minted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((owner, instance)) = *minted
            && owner == pid
        {
            return instance;
        }
        // Leaked once per process.
        let instance = Box::leak(Box::new(mint()));
        *minted = Some((pid, instance));
        instance
    }
}

fn mint() -> Instance {
    let name = rustix::system::uname();
    let (host, nanos) = (name.nodename().to_string_lossy(), since_1970().as_nanos());
    match TAG.get() {
        Some(tag) => Instance::mint_tagged(&host, nanos, *tag, entropy()),
        None => Instance::mint(&host, nanos, entropy()),
    }
}

/// Returns zero before 1970; the entropy is what makes an instance id unique.
#[expect(
    clippy::disallowed_methods,
    reason = "instance ids and floors take it; no expiry is judged by it"
)]
fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Set for a second process of this test, which then prints its instance id.
    const TELL: &str = "TENURE_TEST_TELL_INSTANCE";

    #[test]
    fn a_process_is_the_same_instance_every_time() {
        assert!(std::ptr::eq(instance(), instance()));
        assert_ne!(fresh_nonce(), fresh_nonce());
        assert_ne!(entropy(), entropy());
    }

    #[test]
    fn an_id_is_hostname_nanos_and_eight_hex_digits() {
        let id = instance().id().as_str();
        let mut parts = id.rsplitn(3, '-');
        let (random, nanos, host) = (parts.next(), parts.next(), parts.next());
        assert!(random.is_some_and(|hex| hex.len() == 8 && u32::from_str_radix(hex, 16).is_ok()));
        let after_2020 = 1_577_836_800_000_000_000;
        assert!(nanos.is_some_and(|n| n.parse::<u128>().is_ok_and(|n| n > after_2020)), "{id}");
        assert!(host.is_some_and(|host| !host.is_empty()));
    }

    #[test]
    fn a_forked_child_is_another_instance() {
        let identity = Identity(Mutex::new(None));
        let parent = identity.of(7);
        let child = identity.of(8);
        assert_ne!(parent.id(), child.id());
        assert_ne!(parent.uuid(), child.uuid());
        assert!(std::ptr::eq(child, identity.of(8)));
    }

    #[test]
    fn two_processes_are_two_instances() {
        if std::env::var_os(TELL).is_some() {
            println!("instance {}.", instance().id());
            return;
        }
        let tell = || {
            let name = "process::tests::two_processes_are_two_instances";
            let mut child = Command::new(std::env::current_exe().unwrap());
            let output = child.args(["--exact", name, "--nocapture"]).env(TELL, "1").output();
            let text = String::from_utf8(output.unwrap().stdout).unwrap();
            let (_, rest) = text.split_once("instance ").unwrap();
            rest.split_once(".\n").unwrap().0.to_owned()
        };
        let (first, second) = (tell(), tell());
        assert_ne!(first, second);
        assert_ne!(first, instance().id().as_str());
    }
}
