use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn total(total: u64) -> Total {
    Total::new(total).unwrap()
}

const GITHUB: &str = "farosai/airbyte-github-source";

/// Key, data, total, the first eight hex digits, the bucket.
const VECTORS: &[(&str, &str, u64, u32, u32)] = &[
    (GITHUB, "facebook/react", 12, 0xe81a_29cc, 9),
    (GITHUB, "torvalds/linux", 12, 0x9ecc_dbf0, 9),
    (GITHUB, "openai/gpt", 7, 0xac6a_38c7, 3),
    (GITHUB, "openai/evals", 7, 0x297c_f81c, 1),
    (GITHUB, "vercel/next.js", 12, 0x865d_621a, 7),
    (GITHUB, "octo-org/hello-world", 10, 0x5076_8b7b, 6),
    (GITHUB, "octo-org/repo", 10, 0x7d07_eab1, 4),
    (GITHUB, "myco/frontend", 10, 0x6731_e24f, 8),
    (GITHUB, "myco/backend", 10, 0x89ae_ed6c, 7),
    ("test-key", "test-data", 5, 0xe2e8_b980, 2),
    ("farosai/test", "alpha", 3, 0xc6bb_1e56, 1),
    ("farosai/test", "beta", 3, 0x3e27_25bb, 2),
    ("farosai/test", "gamma", 3, 0xd0cf_a687, 3),
    ("farosai/test", "delta", 3, 0xbbba_763f, 3),
    ("farosai/test", "alpha", 2, 0xc6bb_1e56, 1),
    ("farosai/test", "beta", 2, 0x3e27_25bb, 2),
    ("farosai/test", "gamma", 2, 0xd0cf_a687, 2),
    ("", "", 10, 0x74e6_f729, 10),
    (GITHUB, "", 10, 0x4f9a_5eef, 2),
    (GITHUB, "héllo/wörld", 10, 0x6738_673e, 5),
    (GITHUB, "日本/リポ", 10, 0xc9bc_8cbb, 2),
];

#[test]
fn entities_are_where_they_have_always_been() {
    for &(key, data, of, hash, id) in VECTORS {
        assert_eq!(bucket(key, data, total(of)), id, "{data}");
        let partition = Partition::new(key, total(of));
        assert_eq!(partition.hash(data), hash, "{data}");
        assert!(partition.active(id.into()).unwrap().contains(data));
    }
    // The whole hash counts as an unsigned number.
    assert_eq!(bucket(GITHUB, "facebook/react", total(1_000_000)), 0xe81a_29cc % 1_000_000 + 1);
}

#[test]
fn a_key_is_a_namespace() {
    let (one, other) = (Partition::new(GITHUB, total(12)), Partition::new("other", total(12)));
    let moved = (0..1_000).filter(|n| one.bucket(n.to_string()) != other.bucket(n.to_string()));
    assert!(moved.count() > 800);
}

#[test]
fn a_list_is_selected_and_said() {
    let partition = || Partition::new("farosai/test", total(3));
    let names = || vec!["alpha", "beta", "gamma", "delta"];
    let mut said = Vec::new();
    let active = partition().active(3).unwrap();
    let kept =
        active.select_and_say(names(), |name| (*name).into(), "repos", |line| said.push(line));
    assert_eq!(kept, ["gamma", "delta"]);
    let nothing: Vec<&str> = Vec::new();
    active.select_and_say(nothing, |name| (*name).into(), "repos", |line| said.push(line));
    assert_eq!(
        said,
        [
            "Bucketing (farosai/test bucket 3/3): visible repos (4) -> alpha, beta, gamma, delta",
            "Bucketing (farosai/test bucket 3/3): selected repos (2) -> gamma, delta",
            "Bucketing (farosai/test bucket 3/3): visible repos (0) -> <none>",
            "Bucketing (farosai/test bucket 3/3): selected repos (0) -> <none>",
        ]
    );
    // Each entity is in one bucket.
    let all = (1..=3).flat_map(|id| {
        let active = partition().active(id).unwrap();
        active.select(names(), |name| (*name).into()).collect::<Vec<_>>()
    });
    assert_eq!(all.collect::<BTreeSet<_>>(), names().into_iter().collect());
}

#[test]
fn totals_and_ids_have_limits() {
    for bad in [0, 1_000_001, u64::from(u32::MAX) + 2, u64::MAX] {
        let refused = Total::new(bad).unwrap_err();
        assert_eq!(refused.to_string(), "bucket_total must be a positive integer");
        assert_eq!(
            refused.details(),
            format!(
                "bucket_total must be a positive integer (bucket_total is {bad}; allowed is a \
                 whole number from 1 to 1000000)"
            )
        );
    }
    assert_eq!(Total::new(1_000_000).unwrap().get(), Total::MAX_BUCKETS);
    for bad in [0, 4, u64::MAX, (1 << 32) + 1] {
        let refused = Partition::new("k", total(3)).active(bad).unwrap_err();
        assert_eq!(refused.to_string(), "bucket_id must be between 1 and 3");
        assert_eq!((refused.field(), refused.value()), (Field::Id, bad.to_string().as_str()));
        assert_eq!(refused.allowed(), "a whole number from 1 to 3");
    }
}

fn members(text: &str, of: u64) -> Result<Vec<u32>, String> {
    let ranges = Ranges::parse(text, total(of)).map_err(|refused| refused.to_string())?;
    Ok(ranges.iter().collect())
}

#[test]
fn ranges_are_read_strictly() {
    for (text, expected) in [
        ("7", &[7][..]),
        ("1-3,5,7-9", &[1, 2, 3, 5, 7, 8, 9]),
        (" 1 - 3 , 5 ", &[1, 2, 3, 5]),
        ("3,3,1-3", &[1, 2, 3]),
        ("5,1", &[1, 5]),
        ("2-5,4-8,10,9", &[2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (",5,,", &[5]),
        ("007", &[7]),
        ("10", &[10]),
    ] {
        assert_eq!(members(text, 10).unwrap(), expected, "{text:?}");
    }
    for (text, part) in [
        ("3abc", "3abc"),
        ("1.9", "1.9"),
        ("0x5", "0x5"),
        ("1e1", "1e1"),
        ("+2", "+2"),
        ("1–3", "1–3"),
        ("1-3;5", "3;5"),
        ("-3", ""),
        ("3-", ""),
        (" x - 3", "x"),
        ("٣", "٣"),
        ("1 2", "1 2"),
    ] {
        let expected = format!("Invalid number in range: {part}");
        assert_eq!(members(text, 10).unwrap_err(), expected, "{text:?}");
    }
    for (text, expected) in [
        (",,", "bucket_ranges cannot be empty"),
        ("  ", "bucket_ranges cannot be empty"),
        (
            "1--3",
            "Invalid range format: 1--3. Valid formats are: single number (e.g., '7') or number \
             range (e.g., '3-5')",
        ),
        ("5, 4-2 ", "Invalid range  4-2 : end cannot be less than start"),
        // The order is checked before the bounds.
        ("99-11", "Invalid range 99-11: end cannot be less than start"),
        ("10-11", "Invalid bucket range 10-11: values must be between 1 and 10"),
        ("0", "Invalid bucket range 0: values must be between 1 and 10"),
        ("1-4294967295", "Invalid bucket range 1-4294967295: values must be between 1 and 10"),
        (
            "99999999999999999999999",
            "Invalid bucket range 99999999999999999999999: values must be between 1 and 10",
        ),
    ] {
        assert_eq!(members(text, 10).unwrap_err(), expected, "{text:?}");
    }
}

#[test]
fn a_refused_range_says_what_is_allowed_and_is_cut_short() {
    let refused = Ranges::parse("1,2-x", total(10)).unwrap_err();
    assert_eq!(
        refused.details(),
        "Invalid number in range: x (bucket_ranges is \"2-x\"; allowed is numbers and ranges from \
         1 to 10, as in \"1-3,5,7-9\" or [\"1-3\", \"5\", \"7-9\"])"
    );
    let long = "é".repeat(1 << 20);
    let refused = Ranges::parse(&long, total(10)).unwrap_err();
    assert!(refused.details().len() < 1_000);
}

#[test]
fn the_next_bucket_is_the_one_above() {
    let sequence = |text: &str, of, lasts: &[u64]| -> Vec<u32> {
        let ranges = (!text.is_empty()).then(|| Ranges::parse(text, total(of)).unwrap());
        lasts.iter().map(|last| next(total(of), ranges.as_ref(), Some(*last))).collect()
    };
    assert_eq!(sequence("1-3,5,7-8", 10, &[1, 2, 3, 5, 7, 8]), [2, 3, 5, 7, 8, 1]);
    assert_eq!(sequence("3", 5, &[1, 3]), [3, 3]);
    assert_eq!(sequence("2,4,6,8", 10, &[2, 4, 6, 8, 9]), [4, 6, 8, 2, 2]);
    assert_eq!(sequence("2-4,7-8", 10, &[1, 5, 9]), [2, 7, 2]);
    assert_eq!(sequence("2-3,5", 6, &[1, 2, 3, 4, 5, 6]), [2, 3, 5, 5, 2, 2]);
    assert_eq!(sequence("", 3, &[1, 2, 3]), [2, 3, 1]);
    assert_eq!(next(total(3), None, None), 1);
    assert_eq!(next(total(9), Some(&Ranges::parse("4-5", total(9)).unwrap()), None), 4);
    // A `last` that is not a bucket is ignored.
    assert_eq!(sequence("", 4, &[0, 5, 9, u64::MAX, (1 << 32) + 2]), [1, 1, 1, 1, 1]);
    assert_eq!(sequence("2-3", 4, &[0, 9, u64::MAX, (1 << 32) + 2]), [2, 2, 2, 2]);
}

/// Any ranges of some buckets, as text.
fn any_ranges(of: u32) -> impl Strategy<Value = String> {
    let piece = (1..=of, 1..=of).prop_map(|(a, b)| match a == b {
        true => a.to_string(),
        false => format!("{}-{}", a.min(b), a.max(b)),
    });
    proptest::collection::vec(piece, 1..8).prop_map(|pieces| pieces.join(","))
}

proptest! {
    #[test]
    fn each_eligible_bucket_comes_once_in_a_cycle(
        (of, text) in (1_u32..200).prop_flat_map(|of| (Just(of), any_ranges(of))),
        without: bool,
        last: Option<u64>,
        near in 0_u64..220,
        cycles in 1_usize..3,
    ) {
        let total = total(of.into());
        let ranges = (!without).then(|| Ranges::parse(&text, total).unwrap());
        let eligible: BTreeSet<u32> = match &ranges {
            Some(ranges) => ranges.iter().collect(),
            None => (1..=of).collect(),
        };
        // Expected result, computed per bucket without intervals.
        if !without {
            let named = text.split(',').flat_map(|piece| {
                let (from, to) = piece.split_once('-').unwrap_or((piece, piece));
                from.parse::<u32>().unwrap()..=to.parse().unwrap()
            });
            prop_assert_eq!(&named.collect::<BTreeSet<_>>(), &eligible);
        }
        for start in [last, Some(near)] {
            let mut last = start;
            let mut visited = Vec::new();
            for _ in 0..eligible.len() * cycles {
                let bucket = next(total, ranges.as_ref(), last);
                visited.push(bucket);
                last = Some(bucket.into());
            }
            for cycle in visited.chunks(eligible.len()) {
                prop_assert_eq!(&cycle.iter().copied().collect::<BTreeSet<_>>(), &eligible);
            }
            if let Some(ranges) = &ranges {
                prop_assert_eq!(ranges.count() as usize, eligible.len());
                prop_assert!((0..=of + 1).all(|id| ranges.contains(id) == eligible.contains(&id)));
            }
        }
    }

    #[test]
    fn a_bucket_is_one_of_them(key: String, data: Vec<u8>, of in 1_u64..=1_000_000) {
        prop_assert!((1..=of).contains(&bucket(&key, data, total(of)).into()));
    }

    #[test]
    fn any_text_is_ranges_or_a_refusal(text in "[-0-9, x]{0,24}", of in 1_u64..40) {
        if let Ok(ranges) = Ranges::parse(&text, total(of)) {
            prop_assert!(ranges.count() >= 1);
            prop_assert!(ranges.iter().all(|id| (1..=of).contains(&id.into())));
        }
    }
}
