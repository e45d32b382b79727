//! Names and values of keys.

use sha2::{Digest, Sha256};
use tenure_core::store::{Checkpoint, Retention};
use tenure_core::{
    Document, DutyId, DutyKey, Epoch, GroupName, Hold, InstanceId, Mutant, Nonce, Session,
    StoreError, StoreResult, Version,
};

use super::error;
use crate::packed;

/// The newest key layout that this version knows.
pub(super) const SCHEMA_VERSION: u64 = 1;

/// Builds the names of keys.
#[derive(Clone, Debug)]
pub(super) struct KeyNames {
    prefix: String,
}

impl KeyNames {
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    pub(super) fn store(&self) -> String {
        format!("{}store", self.prefix)
    }

    /// A key that no transaction writes.
    pub(super) fn never(&self) -> String {
        format!("{}never", self.prefix)
    }

    /// Folder of the index of groups.
    pub(super) fn index(&self) -> String {
        format!("{}index/", self.prefix)
    }

    pub(super) fn index_of(&self, group: &GroupName) -> String {
        format!("{}index/{}", self.prefix, group.escaped())
    }

    fn of_group(&self, group: &GroupName, path: &str) -> String {
        format!("{}group/{}/{path}", self.prefix, group.escaped())
    }

    pub(super) fn history(&self, duty: &DutyKey) -> String {
        self.of_group(&duty.group, &format!("kept/history/{}/", duty.id.escaped()))
    }

    /// Returns a key that sorts by version.
    pub(super) fn history_at(&self, duty: &DutyKey, version: u64) -> String {
        format!("{}{version:016x}", self.history(duty))
    }

    pub(super) fn spent(&self, group: &GroupName, nonce: Nonce) -> String {
        self.of_group(group, &format!("kept/spent/{nonce}"))
    }

    /// Returns the lease id of a session. It is derived from the session, so that any process that
    /// knows the session can keep it alive, and a grant whose answer was lost can be repeated.
    pub(super) fn lease(&self, session: &Session) -> i64 {
        let mut hash = Sha256::new();
        hash.update(self.session(&session.group, &session.instance));
        if !Mutant::R3Name.is_on() {
            hash.update(session.nonce.as_u128().to_be_bytes());
        }
        first_bits(hash)
    }
}

/// Defines keys of a group by path, and keys of an instance or a duty in a folder.
macro_rules! group_keys {
    (
        $($folder:ident $path:literal $(of instance $member:ident)? $(of duty $item:ident)?;)*
    ) => {
        impl KeyNames {$(
            pub(super) fn $folder(&self, group: &GroupName) -> String {
                self.of_group(group, $path)
            }
            $(pub(super) fn $member(&self, group: &GroupName, instance: &InstanceId) -> String {
                self.$folder(group) + &instance.escaped()
            })?
            $(pub(super) fn $item(&self, duty: &DutyKey) -> String {
                self.$folder(&duty.group) + &duty.id.escaped()
            })?
        )*}
    };
}

group_keys! {
    live "live/"; // Everything whose change is a hint.
    sessions "live/session/" of instance session;
    notes "live/note/" of instance note;
    fences "live/fence/" of duty fence;
    document "live/document";
    checkpoints "kept/checkpoint/" of duty checkpoint;
    reports "kept/report/" of duty report;
    audits "kept/audit/";
    barred_all "kept/barred/" of instance barred;
    floor "kept/floor";
}

/// Returns the first 63 bits with the lowest bit set: zero is not a valid lease id.
fn first_bits(hash: Sha256) -> i64 {
    let digest: [u8; 32] = hash.finalize().into();
    let bits = digest.iter().take(8).fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    ((bits >> 1) | 1) as i64
}

/// Returns a number that identifies this handle in the keys it writes.
pub(super) fn handle_number(parts: &[u128]) -> u64 {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part.to_be_bytes()));
    first_bits(hash) as u64
}

/// Returns the part of a key after `folder`.
pub(super) fn name<'a>(key: &'a [u8], folder: &str) -> StoreResult<&'a str> {
    let rest = std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix(folder));
    rest.ok_or_else(|| error::damaged("a key"))
}

/// The last grant of a duty. Only `forget` deletes the key, so the epoch stays (R2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FenceRecord {
    pub(super) epoch: Epoch,
    pub(super) nonce: Nonce,
    pub(super) held: bool,
    pub(super) instance: InstanceId,
}

impl FenceRecord {
    pub(super) fn of(hold: &Hold) -> Self {
        let (nonce, instance) = (hold.nonce, hold.instance.clone());
        Self { epoch: hold.epoch, nonce, held: true, instance }
    }

    pub(super) fn freed(&self) -> Self {
        Self { held: false, ..self.clone() }
    }

    /// Whether the duty was granted to that session.
    pub(super) fn is_of(&self, session: &Session) -> bool {
        self.nonce == session.nonce && self.instance == session.instance
    }

    /// Formats the record in its only form, so that a transaction can compare it.
    pub(super) fn text(&self) -> String {
        let held = if self.held { "held" } else { "free" };
        format!("{} {} {held} {}", self.epoch, self.nonce, self.instance.as_str())
    }

    pub(super) fn parse(value: &[u8]) -> StoreResult<Self> {
        let damaged = || error::damaged("a fence");
        let text = std::str::from_utf8(value).map_err(|_| damaged())?;
        let mut parts = text.splitn(4, ' ');
        let mut next = || parts.next().ok_or_else(damaged);
        let epoch = next()?.parse().map_err(|_| damaged())?;
        Ok(Self {
            epoch: Epoch::new(epoch)?,
            nonce: Nonce::parse(next()?)?,
            held: match next()? {
                "held" => true,
                "free" => false,
                _ => return Err(damaged()),
            },
            instance: InstanceId::new(next()?)?,
        })
    }
}

/// Record of the store as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreMarker {
    pub(super) incarnation: String,
    /// The incarnation that this one replaced by adoption.
    pub(super) after: String,
    pub(super) floor: Epoch,
    pub(super) retention: Retention,
}

impl StoreMarker {
    /// Gives the store a new incarnation. Repeating the same adoption changes nothing, even if
    /// another process has adopted the store in between.
    pub(super) fn adopt(&mut self, incarnation: &str, floor: Epoch) {
        self.floor = self.floor.max(floor);
        if self.incarnation != incarnation && self.after != incarnation {
            self.after = std::mem::replace(&mut self.incarnation, incarnation.to_owned());
        }
    }

    pub(super) fn text(&self) -> String {
        let Self { incarnation, after, floor, retention } = self;
        let Retention { history_slots, audit_kept } = retention;
        format!(
            "schema={SCHEMA_VERSION} incarnation={incarnation} after={after} floor={floor} \
             history={history_slots} audit={audit_kept}"
        )
    }

    pub(super) fn parse(value: &[u8]) -> StoreResult<Self> {
        let damaged = || error::damaged("the record of the store");
        let text = std::str::from_utf8(value).map_err(|_| damaged())?;
        let field = |name: &str| {
            let mut words = text.split(' ').filter_map(|word| word.split_once('='));
            words.find(|(given, _)| *given == name).map(|(_, value)| value).ok_or_else(damaged)
        };
        let number =
            |name: &str| -> StoreResult<u64> { field(name)?.parse().map_err(|_| damaged()) };
        let schema = number("schema")?;
        if schema > SCHEMA_VERSION {
            let detail = format!(
                "the store has schema {schema}; this version supports up to {SCHEMA_VERSION}"
            );
            return Err(StoreError::refused(tenure_core::Code::NewerSchema, detail));
        }
        let retention = Retention {
            history_slots: number("history")? as usize,
            audit_kept: number("audit")? as usize,
        };
        Ok(Self {
            incarnation: field("incarnation")?.to_owned(),
            after: field("after")?.to_owned(),
            floor: Epoch::new(number("floor")?)?,
            retention: retention.check()?,
        })
    }
}

/// Packs a checkpoint as stored in its key and its history; see [`packed`].
pub(super) fn pack(version: Version, hold: &Hold, document: &Document, unix_ms: u64) -> Vec<u8> {
    let instance = hold.instance.as_str();
    let head = format!("{version} {} {unix_ms} {}\n{instance}", hold.epoch, instance.len());
    [head.as_bytes(), document.as_bytes()].concat()
}

pub(super) fn unpack(value: &[u8]) -> StoreResult<Checkpoint> {
    packed::unpack(value).ok_or_else(|| error::damaged("a checkpoint"))
}

pub(super) fn parse_epoch(value: &[u8]) -> StoreResult<Epoch> {
    let text = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    Epoch::new(text.ok_or_else(|| error::damaged("a floor"))?)
}

pub(super) fn parse_nonce(value: &[u8]) -> StoreResult<Nonce> {
    Nonce::parse(std::str::from_utf8(value).map_err(|_| error::damaged("a session"))?)
}

pub(super) fn duty_at(group: &GroupName, key: &[u8], folder: &str) -> StoreResult<DutyKey> {
    Ok(DutyKey { group: group.clone(), id: DutyId::unescape(name(key, folder)?)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold() -> Hold {
        Hold {
            duty: DutyKey::new("g/h", "a/b c").unwrap(),
            epoch: Epoch::new(7).unwrap(),
            instance: InstanceId::new("i held 1").unwrap(),
            nonce: Nonce::from_entropy(9),
            mark: tenure_core::Mark(0),
        }
    }

    #[test]
    fn a_name_never_leaves_its_place() {
        let keys = KeyNames::new("t/".to_owned());
        assert_eq!(keys.fence(&hold().duty), "t/group/g%2Fh/live/fence/a%2Fb%20c");
        let fences = keys.fences(&hold().duty.group);
        let duty = duty_at(&hold().duty.group, keys.fence(&hold().duty).as_bytes(), &fences);
        assert_eq!(duty.unwrap(), hold().duty);
        assert!(keys.history_at(&hold().duty, 9) < keys.history_at(&hold().duty, 10));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let fence = FenceRecord::of(&hold());
        assert_eq!(FenceRecord::parse(fence.text().as_bytes()).unwrap(), fence);
        assert_eq!(FenceRecord::parse(fence.freed().text().as_bytes()).unwrap(), fence.freed());
        let record = StoreMarker {
            incarnation: "x".to_owned(),
            after: String::new(),
            floor: Epoch::ZERO,
            retention: Retention::default(),
        };
        assert_eq!(StoreMarker::parse(record.text().as_bytes()).unwrap(), record);
        let document = Document::new(*b"x\n\0\xff").unwrap();
        let read = unpack(&pack(Version::ZERO, &hold(), &document, 5)).unwrap();
        assert_eq!((read.epoch, read.instance, read.document), {
            (hold().epoch, hold().instance, document)
        });
    }

    #[test]
    fn an_adoption_that_is_repeated_does_not_take_back_a_later_one() {
        let mut record = StoreMarker {
            incarnation: "first".to_owned(),
            after: String::new(),
            floor: Epoch::ZERO,
            retention: Retention::default(),
        };
        record.adopt("ours", Epoch::new(7).unwrap());
        assert_eq!((&*record.incarnation, &*record.after), ("ours", "first"));
        record.adopt("theirs", Epoch::ZERO);
        record.adopt("ours", Epoch::ZERO);
        assert_eq!((&*record.incarnation, &*record.after), ("theirs", "ours"));
        assert_eq!(record.floor.get(), 7);
    }

    #[test]
    fn something_else_is_said_to_be_damaged() {
        for bad in [&b""[..], b"x", b"1 2 3 4", b"1 2 held i", b"\xff"] {
            assert!(FenceRecord::parse(bad).is_err());
            assert!(unpack(bad).is_err());
            assert!(StoreMarker::parse(bad).is_err());
        }
        let newer = "schema=2 incarnation= after= floor=0 history=1 audit=1000";
        let error = StoreMarker::parse(newer.as_bytes()).unwrap_err();
        assert_eq!(error.code(), tenure_core::Code::NewerSchema);
    }
}
