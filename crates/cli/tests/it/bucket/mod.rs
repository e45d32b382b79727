//! `tenure bucket`: the bucket of an entity.

mod held;
mod lines;
mod next;
mod python;

use serde_json::{Value, json};
use tenure_core::bucket::{Total, bucket};

use crate::tenure::Tenure;

const GITHUB: &str = "farosai/airbyte-github-source";

/// Key, entity, total, hash in hexadecimal, bucket.
const VECTORS: [(&str, &str, &str, &str, u32); 21] = [
    (GITHUB, "facebook/react", "12", "e81a29cc", 9),
    (GITHUB, "torvalds/linux", "12", "9eccdbf0", 9),
    (GITHUB, "openai/gpt", "7", "ac6a38c7", 3),
    (GITHUB, "openai/evals", "7", "297cf81c", 1),
    (GITHUB, "vercel/next.js", "12", "865d621a", 7),
    (GITHUB, "octo-org/hello-world", "10", "50768b7b", 6),
    (GITHUB, "octo-org/repo", "10", "7d07eab1", 4),
    (GITHUB, "myco/frontend", "10", "6731e24f", 8),
    (GITHUB, "myco/backend", "10", "89aeed6c", 7),
    ("test-key", "test-data", "5", "e2e8b980", 2),
    ("farosai/test", "alpha", "3", "c6bb1e56", 1),
    ("farosai/test", "beta", "3", "3e2725bb", 2),
    ("farosai/test", "gamma", "3", "d0cfa687", 3),
    ("farosai/test", "delta", "3", "bbba763f", 3),
    ("farosai/test", "alpha", "2", "c6bb1e56", 1),
    ("farosai/test", "beta", "2", "3e2725bb", 2),
    ("farosai/test", "gamma", "2", "d0cfa687", 2),
    ("", "", "10", "74e6f729", 10),
    (GITHUB, "", "10", "4f9a5eef", 2),
    (GITHUB, "héllo/wörld", "10", "6738673e", 5),
    (GITHUB, "日本/リポ", "10", "c9bc8cbb", 2),
];

#[test]
fn every_entity_is_where_others_find_it() {
    let tenure = Tenure::new();
    for (key, data, total, hash, bucket) in VECTORS {
        let text = tenure.run(&["bucket", key, data, total]).ok();
        assert_eq!(text, format!("{bucket}\n"), "{key} {data} {total}");
        let told = tenure.run(&["bucket", key, data, total, "--json"]).json();
        let total: u32 = total.parse().unwrap();
        assert_eq!(told, json!({ "bucket": bucket, "total": total, "hash": hash }));
    }
}

/// Names that look like subcommands or options come after `--`.
#[test]
fn any_name_can_be_given() {
    let tenure = Tenure::new();
    for key in ["next", "plan", "filter", "schema", "--json", "-k"] {
        let bucket = bucket(key, "--help", Total::new(97).unwrap());
        let told = tenure.run(&["bucket", "--", key, "--help", "97"]).ok();
        assert_eq!(told, format!("{bucket}\n"));
        let told = tenure.run(&["bucket", "--json", "--", key, "--help", "97"]).json();
        assert_eq!(told["bucket"], bucket);
    }
}

#[test]
fn a_bad_total_is_named() {
    let tenure = Tenure::new();
    for total in ["0", "1000001", "2.5", "-1", "+3", "x", "", "18446744073709551616"] {
        let ran = tenure.run(&["bucket", "key", "data", total]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        let allowed = "bucket_total is a whole number from 1 to 1000000";
        let told = format!("invalid value '{total}' for '<TOTAL>': {allowed}");
        assert!(ran.stderr.contains(&told), "{ran:?}");
    }
    let ran = tenure.run(&["bucket", "key", "data"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("<TOTAL>"), "{ran:?}");
}

/// Returns the fields that connectors have to offer.
fn fields() -> Value {
    json!({
        "type": "object",
        "properties": {
            "round_robin_bucket_execution": {
                "type": "boolean",
                "title": "Round Robin Bucket Execution",
                "description": "Enable round-robin execution of buckets. When enabled, the \
                    connector processes one bucket per run, automatically advancing the bucket \
                    between runs via state.",
                "default": false,
                "order": 10
            },
            "bucket_total": {
                "type": "integer",
                "title": "Total Number of Buckets",
                "description": "Total number of buckets to partition entities for parallel \
                    processing. bucket_id should be less than or equal to this number.",
                "minimum": 1,
                "default": 1,
                "order": 11
            },
            "bucket_id": {
                "type": "integer",
                "title": "Bucket Number",
                "description": "Bucket number for partitioning and parallel processing. Used to \
                    distribute entities across multiple sync instances.",
                "minimum": 1,
                "default": 1,
                "order": 12
            },
            "bucket_ranges": {
                "type": "array",
                "items": {"type": "string"},
                "title": "Bucket Ranges",
                "description": "Optional list of bucket ranges for round-robin execution (e.g., \
                    ['1-3', '5-7']). Only used when round_robin_bucket_execution is enabled.",
                "order": 13
            }
        }
    })
}

#[test]
fn the_schema_has_four_fields_in_order() {
    let tenure = Tenure::new();
    let printed = tenure.run(&["bucket", "schema"]).ok();
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), fields());
    let order = ["round_robin_bucket_execution", "bucket_total", "bucket_id", "bucket_ranges"];
    let places = order.map(|name| printed.find(&format!("\"{name}\":")).unwrap());
    assert!(places.is_sorted(), "{printed}");
    assert_eq!(tenure.run(&["bucket", "schema", "--json"]).ok(), printed);
}
