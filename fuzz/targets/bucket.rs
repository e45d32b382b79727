//! Any text before and after `|` is a config and a state, or rejected. The chosen bucket exists,
//! and all other members stay unchanged.
#![no_main]

use std::fmt;

use libfuzzer_sys::fuzz_target;
use peak_alloc::PeakAlloc;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use tenure_core::bucket::{Invalid, Ranges, Total};
use tenure_wire::bucket::{
    AppliedBucket, CommitTiming, Config, OWN_STATE, STATE, apply, next, validate,
};
use tenure_wire::object::Object;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

fuzz_target!(|text: &str| {
    let (config, state) = match text.split_once('|') {
        Some((config, state)) => (config, Some(state)),
        None => (text, None),
    };
    for total in [1, 10, 200] {
        ranges(config, total);
    }
    within_bounds(config, || _ = Ranges::parse(config, total(Total::MAX_BUCKETS)));
    let (config, state) = (object(config), state.map(object));
    if let (Some(config), None | Some(Some(_))) = (config, &state) {
        choose(&config, state.flatten().as_ref());
    }
});

fn total(total: u32) -> Total {
    Total::new(total.into()).unwrap()
}

/// Asserts that memory use depends on the length of the text, not on the size of its numbers.
fn within_bounds<T>(text: &str, read: impl FnOnce() -> T) -> T {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let read = read();
    let taken = MEMORY.peak_usage() - before;
    assert!(taken <= 64 * text.len() + (64 << 10), "{taken} bytes for {}", text.len());
    read
}

fn ranges(text: &str, of: u32) {
    match Ranges::parse(text, total(of)) {
        Ok(ranges) => {
            let all: Vec<u32> = ranges.iter().collect();
            assert!(!all.is_empty() && all.is_sorted_by(|one, next| one < next));
            assert_eq!(all.len(), ranges.count() as usize);
            assert!(all[0] >= 1 && all[all.len() - 1] <= of);
            for id in 0..=of + 1 {
                assert_eq!(ranges.contains(id), all.contains(&id));
                let above = all.iter().find(|member| **member > id);
                assert_eq!(ranges.after(id), *above.unwrap_or(&all[0]));
            }
        }
        Err(invalid) => refused(&invalid),
    }
}

fn refused(invalid: &Invalid) {
    assert_eq!(invalid.details().find(&invalid.to_string()), Some(0));
    assert!(invalid.details().len() < 2_000);
}

fn object(text: &str) -> Option<Object> {
    match Object::read(text) {
        Ok(object) => {
            assert_eq!(object.as_str(), text);
            Some(object)
        }
        Err(broken) => {
            assert!(broken.to_string().len() < 200);
            None
        }
    }
}

fn choose(config: &Object, state: Option<&Object>) {
    let text = config.as_str();
    let read = match within_bounds(text, || Config::read(config)) {
        Ok(read) => read,
        Err(invalid) => {
            refused(&invalid);
            assert_eq!(validate(config), Err(invalid.clone()));
            assert_eq!(next(config, state), Err(invalid.clone()));
            for commit in [CommitTiming::AtStart, CommitTiming::OnSuccess] {
                let applied = apply(config.clone(), state.cloned(), commit);
                assert_eq!(applied.unwrap_err(), invalid);
            }
            return;
        }
    };
    assert_eq!(validate(config).as_ref(), Ok(&read.notices));
    let [at_start, on_success] = [CommitTiming::AtStart, CommitTiming::OnSuccess]
        .map(|commit| apply(config.clone(), state.cloned(), commit).unwrap());
    assert!(at_start.notices.iter().all(|notice| notice.to_string().len() < 2_000));
    assert_eq!(at_start.notices, on_success.notices);
    assert_eq!((&at_start.config, at_start.executed), (&on_success.config, on_success.executed));
    assert_eq!(on_success.state.as_ref(), state);
    if !read.round_robin {
        assert_eq!((&at_start.config, at_start.state.as_ref()), (config, state));
        assert_eq!(at_start.executed, None);
        return;
    }
    let executed = on_success.executed.unwrap();
    assert_eq!(Ok(executed.bucket), next(config, state));
    assert_eq!(at_start.state, Some(executed.record(state.cloned())));
    rotate(&read, config, state, at_start);
}

/// Checks a rotation: the bucket is valid, the next one follows it, and nothing else has changed.
fn rotate(read: &Config, config: &Object, state: Option<&Object>, applied: AppliedBucket) {
    let bucket = applied.executed.unwrap().bucket;
    assert!((1..=read.total.get()).contains(&bucket));
    assert!(read.ranges.as_ref().is_none_or(|ranges| ranges.contains(bucket)));
    let now = Config::read(&applied.config).unwrap();
    assert_eq!((now.id, now.total, &now.ranges), (bucket, read.total, &read.ranges));
    let new_state = applied.state.unwrap();
    assert_eq!(others(config, &["bucket_id"]), others(&applied.config, &["bucket_id"]));
    let empty = Object::default();
    let ours = [STATE, OWN_STATE];
    assert_eq!(others(state.unwrap_or(&empty), &ours), others(&new_state, &ours));
    // The other members and the text between them have not moved.
    let again =
        apply(applied.config.clone(), Some(new_state.clone()), CommitTiming::AtStart).unwrap();
    let expected = match &read.ranges {
        Some(ranges) => ranges.after(bucket),
        None => bucket % read.total.get() + 1,
    };
    assert_eq!(again.executed.unwrap().bucket, expected);
    // A state written by Tenure is never damaged, and has the current total.
    assert_eq!(again.notices.len(), 1);
    assert_eq!(around(&applied.config, &["bucket_id"]), around(&again.config, &["bucket_id"]));
    assert_eq!(around(&new_state, &ours), around(&again.state.unwrap(), &ours));
}

/// Members with other names than these, in order and as written.
fn others<'a>(object: &'a Object, names: &[&str]) -> Vec<(String, &'a str)> {
    let mut members = members(object);
    members.retain(|(name, _)| !names.contains(&name.as_str()));
    members
}

/// The text without the values of members with these names.
fn around(object: &Object, names: &[&str]) -> String {
    let text = object.as_str();
    let (mut around, mut copied) = (String::new(), 0);
    for (_, value) in members(object).iter().filter(|(name, _)| names.contains(&name.as_str())) {
        let start = value.as_ptr().addr() - text.as_ptr().addr();
        around.push_str(&text[copied..start]);
        copied = start + value.len();
    }
    around + &text[copied..]
}

fn members(object: &Object) -> Vec<(String, &str)> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, &'de str)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                members.push((name, value.get()));
            }
            Ok(members)
        }
    }
    serde_json::Deserializer::from_str(object.as_str()).deserialize_map(Members).unwrap()
}
