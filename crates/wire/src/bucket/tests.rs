use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn object(text: impl ToString) -> Object {
    Object::read(text.to_string()).unwrap()
}

fn refused(config: &Value) -> String {
    validate(&object(config)).unwrap_err().to_string()
}

fn said(notices: &[Notice]) -> Vec<String> {
    notices.iter().map(ToString::to_string).collect()
}

#[test]
fn settings_have_defaults() {
    for text in ["{}", r#"{"bucket_total":null,"bucket_id":null,"bucket_ranges":null}"#] {
        let read = Config::read(&object(text)).unwrap();
        assert_eq!((read.total.get(), read.id, read.round_robin), (1, 1, false));
        assert_eq!((read.ranges, read.notices), (None, vec![]));
    }
    // With one bucket all entities belong to it; the defaults are applied in one place.
    let active = Config::read(&object("{}")).unwrap().active("any").unwrap();
    assert!(active.contains("all"));
    let read = Config::read(&object(r#"{"bucket_total":1e1,"bucket_id":7.0}"#)).unwrap();
    assert_eq!((read.total.get(), read.id), (10, 7));
}

#[test]
fn bad_settings_are_refused_in_the_order_of_connectors() {
    for total in [json!(0), json!(-1), json!(2.5), json!("3"), json!([]), json!(1_000_001)] {
        let config = json!({ "bucket_id": 9, "bucket_total": total });
        assert_eq!(refused(&config), "bucket_total must be a positive integer", "{total}");
    }
    for id in [json!(0), json!(4), json!(-1), json!(1.5), json!("1"), json!(true)] {
        let config = json!({
            "bucket_total": 3, "bucket_id": id, "bucket_ranges": "x",
            "round_robin_bucket_execution": true,
        });
        assert_eq!(refused(&config), "bucket_id must be between 1 and 3", "{id}");
    }
    for on in [json!("true"), json!(1), json!({})] {
        let config = json!({ "round_robin_bucket_execution": on });
        let expected = "round_robin_bucket_execution must be true or false";
        assert_eq!(refused(&config), expected);
    }
    // No number type can hold 1e400.
    let huge = object(r#"{"bucket_total":1e400}"#);
    assert_eq!(
        validate(&huge).unwrap_err().details(),
        "bucket_total must be a positive integer (bucket_total is 1e400; allowed is a whole number \
         from 1 to 1000000)"
    );
}

fn rotating(ranges: &Value, total: u64) -> Object {
    object(json!({
        "bucket_total": total, "bucket_ranges": ranges, "round_robin_bucket_execution": true,
    }))
}

#[test]
fn ranges_are_text_or_a_list_or_a_list_of_unions() {
    let members = |ranges: Value| -> Result<Vec<u32>, String> {
        let read = Config::read(&rotating(&ranges, 10)).map_err(|invalid| invalid.to_string())?;
        Ok(read.ranges.unwrap().iter().collect())
    };
    for ranges in [
        json!("1-3,5,7-9"),
        json!(["1-3", "5", "7-9"]),
        json!(["1-3,5", "7-9"]),
        json!(["1-3", 5, "", " 7 - 9 ,"]),
        json!([3, 5.0, "1-3,7-9"]),
    ] {
        assert_eq!(members(ranges.clone()).unwrap(), [1, 2, 3, 5, 7, 8, 9], "{ranges}");
    }
    for ranges in [json!([]), json!([""]), json!([" ", ",,"]), json!(",,"), json!("  ")] {
        let expected = "bucket_ranges cannot be empty";
        assert_eq!(members(ranges.clone()).unwrap_err(), expected, "{ranges}");
    }
    for ranges in [json!(7), json!(true), json!(0), json!({"a": 1}), json!([["1"]]), json!([1.5])] {
        let expected = "bucket_ranges must be text or a list of texts";
        assert_eq!(members(ranges.clone()).unwrap_err(), expected, "{ranges}");
    }
    assert_eq!(members(json!(["1", "x", 1.5])).unwrap_err(), "Invalid number in range: x");
    // An empty text counts as missing.
    assert_eq!(Config::read(&rotating(&json!(""), 10)).unwrap().ranges, None);
}

#[test]
fn ranges_without_a_rotation_are_ignored_and_that_is_said() {
    let said_of = |ranges: Value| {
        said(&validate(&object(json!({ "bucket_total": 10, "bucket_ranges": ranges }))).unwrap())
    };
    let ignored = "ignored because round_robin_bucket_execution is not enabled";
    for (ranges, shown) in [(json!("1-3"), "1-3"), (json!(["1-3", "5", 7]), "1-3,5,7")] {
        assert_eq!(said_of(ranges), [format!("bucket_ranges {shown} {ignored}")]);
    }
    let both = said_of(json!(["x"]));
    assert_eq!(both[0], format!("bucket_ranges x {ignored}"));
    assert!(both[1].starts_with("bucket_ranges would be refused: Invalid number in range: x ("));
    for (ranges, shown) in [(json!(7), "7"), (json!([]), ""), (json!([{}]), "{}")] {
        let both = said_of(ranges);
        assert_eq!((both.len(), &both[0]), (2, &format!("bucket_ranges {shown} {ignored}")));
    }
    let long = said_of(json!(vec!["1-10"; 100_000]));
    assert_eq!(long.len(), 1);
    assert!(long[0].len() < 300, "{}", long[0].len());
    assert!(said_of(json!("")).is_empty());
}

#[test]
fn a_rotation_goes_on_from_its_state() {
    let config = object(json!({ "bucket_total": 3, "round_robin_bucket_execution": true }));
    let mut state = None;
    for expected in [1, 2, 3, 1] {
        assert_eq!(next(&config, state.as_ref()).unwrap(), expected);
        let applied = apply(config.clone(), state, CommitTiming::AtStart).unwrap();
        let read = Config::read(&applied.config).unwrap();
        assert_eq!((read.id, applied.executed.unwrap().bucket), (expected, expected));
        let line = format!("Using round robin bucket execution. Bucket id: {expected}");
        assert_eq!(said(&applied.notices), [line]);
        state = applied.state;
    }
    assert_eq!(
        state.unwrap().as_str(),
        "{\"__bucket_execution_state\":{\"last_executed_bucket_id\":1},\
         \"__tenure_bucket_state\":{\"bucket_total\":3}}"
    );
    for (ranges, total, last, expected) in
        [("2-3,5", 6, 3, 5), ("2-3,5", 6, 6, 2), ("3", 5, 3, 3), ("2-4,7-8", 10, 5, 7)]
    {
        let state = object(json!({ STATE: { "last_executed_bucket_id": last } }));
        assert_eq!(next(&rotating(&json!(ranges), total), Some(&state)).unwrap(), expected);
    }
    // Without rotation the ranges are ignored.
    let config = object(json!({ "bucket_total": 9, "bucket_ranges": "5" }));
    let state = object(json!({ STATE: { "last_executed_bucket_id": 1 } }));
    assert_eq!(next(&config, Some(&state)).unwrap(), 2);
}

#[test]
fn everything_else_stays_as_it_was() {
    let config = "{ \"z\": 1e400,\n  \"bucket_id\" : 1,\n  \"bucket_total\": 3, \
                  \"a\": [ 12345678901234567890123, {\"b\":  null} ],\n  \
                  \"round_robin_bucket_execution\": true }\n";
    let state = "{\n  \"streams\": {\"x\":  1.50},\n  \"__bucket_execution_state\": \
                 {\"last_executed_bucket_id\": 1, \"more\": 2},\n  \"é\\u00e9\": \"\\/\"\n}\n";
    let applied = apply(object(config), Some(object(state)), CommitTiming::AtStart).unwrap();
    let expected = config.replace("\"bucket_id\" : 1", "\"bucket_id\" : 2");
    assert_eq!(applied.config.as_str(), expected);
    // The reserved member is replaced as a whole.
    let expected = state
        .replace("{\"last_executed_bucket_id\": 1, \"more\": 2}", "{\"last_executed_bucket_id\":2}")
        .replace("\"\\/\"\n}", "\"\\/\",\n  \"__tenure_bucket_state\": {\"bucket_total\":3}\n}");
    assert_eq!(applied.state.unwrap().as_str(), expected);
}

#[test]
fn without_a_rotation_nothing_changes() {
    let state = object(json!({ STATE: { "last_executed_bucket_id": 7 }, "x": 1 }));
    let config = object(json!({ "bucket_total": 3, "bucket_id": 2, "y": 1 }));
    for commit in [CommitTiming::AtStart, CommitTiming::OnSuccess] {
        let applied = apply(config.clone(), Some(state.clone()), commit).unwrap();
        assert_eq!((applied.config, applied.state), (config.clone(), Some(state.clone())));
        assert_eq!((applied.executed, applied.notices), (None, vec![]));
        let applied = apply(config.clone(), None, commit).unwrap();
        assert_eq!(applied.state, None);
    }
}

#[test]
fn a_damaged_state_selects_the_first_bucket_and_is_said() {
    let none = json!(null);
    for ranges in [&none, &json!("2-4")] {
        let first = if ranges.is_null() { 1 } else { 2 };
        for last in ["-1", "0", "5", "9", "1.5", "1e400", "\"x\"", "\"-1\"", "null", "[2]", "{}"] {
            let text = format!("{{\"{STATE}\":{{\"last_executed_bucket_id\":{last}}}}}");
            let config = rotating(ranges, 4);
            let applied = apply(config, Some(object(text)), CommitTiming::AtStart).unwrap();
            assert_eq!(applied.executed.unwrap().bucket, first, "{last}");
            assert_eq!(
                said(&applied.notices)[0],
                format!(
                    "__bucket_execution_state is {{\"last_executed_bucket_id\":{last}}}, which \
                     is not a bucket from 1 to 4; the rotation starts over"
                )
            );
            assert!(applied.notices[0].is_warning());
        }
        for whole in ["7", "[]", "\"x\"", "{\"other\":1}"] {
            let text = format!("{{\"{STATE}\":{whole}}}");
            let applied =
                apply(rotating(ranges, 4), Some(object(text)), CommitTiming::AtStart).unwrap();
            assert_eq!((applied.executed.unwrap().bucket, applied.notices.len()), (first, 2));
            let told = format!("__bucket_execution_state is {whole}, which is not a bucket from");
            assert!(said(&applied.notices)[0].starts_with(&told), "{whole}");
        }
        for absent in ["{}".to_owned(), format!("{{\"{STATE}\":null}}")] {
            let applied =
                apply(rotating(ranges, 4), Some(object(absent)), CommitTiming::AtStart).unwrap();
            assert_eq!((applied.executed.unwrap().bucket, applied.notices.len()), (first, 1));
        }
    }
    // Any notation of a whole number is accepted.
    for last in ["2", "2.0", "2e0", "\"2\"", "\" 2 \""] {
        let text = format!("{{\"{STATE}\":{{\"last_executed_bucket_id\":{last}}}}}");
        assert_eq!(next(&rotating(&none, 4), Some(&object(text))).unwrap(), 3, "{last}");
    }
}

#[test]
fn on_success_keeps_the_state_until_then() {
    let config = rotating(&json!(null), 3);
    let state = object(json!({ STATE: { "last_executed_bucket_id": 1 }, "stream": 5 }));
    let applied = apply(config, Some(state.clone()), CommitTiming::OnSuccess).unwrap();
    assert_eq!(applied.state, Some(state));
    assert_eq!(Config::read(&applied.config).unwrap().id, 2);
    // The run has changed the state meanwhile.
    let written = object(r#"{"stream":6,"new":[1]}"#);
    let state = applied.executed.unwrap().record(Some(written));
    assert_eq!(
        state.as_str(),
        "{\"stream\":6,\"new\":[1],\"__bucket_execution_state\":{\"last_executed_bucket_id\":2},\
         \"__tenure_bucket_state\":{\"bucket_total\":3}}"
    );
}

#[test]
fn another_total_is_noticed() {
    let run =
        |total: u64, state| apply(rotating(&json!(null), total), state, CommitTiming::AtStart);
    let state = run(12, None).unwrap().state;
    let applied = run(10, state.clone()).unwrap();
    assert_eq!(
        said(&applied.notices)[0],
        "bucket_total was 12 and is 10: almost every entity is in another bucket now; all workers \
         must have the same total"
    );
    assert!(applied.notices[0].is_warning());
    // Reported once, because the new total is recorded.
    assert_eq!(run(10, applied.state).unwrap().notices.len(), 1);
    assert_eq!(run(12, state.clone()).unwrap().notices.len(), 1);
    let fixed = object(json!({ "bucket_total": 10 }));
    assert_eq!(apply(fixed, state, CommitTiming::AtStart).unwrap().notices.len(), 1);
    let odd = object(json!({ OWN_STATE: { "bucket_total": "x" } }));
    assert_eq!(run(12, Some(odd)).unwrap().notices.len(), 1);
}

#[test]
fn a_state_takes_over_what_another_says_of_the_rotation() {
    let record = object(json!({
        STATE: { "last_executed_bucket_id": 2 }, OWN_STATE: { "bucket_total": 9 }, "x": 0,
    }));
    let state = object(format!("{{\"x\":1, \"{STATE}\":null, \"y\":2}}"));
    assert_eq!(
        carry_over(&record, Some(state)).as_str(),
        "{\"x\":1, \"__bucket_execution_state\":{\"last_executed_bucket_id\":2}, \"y\":2, \
         \"__tenure_bucket_state\":{\"bucket_total\":9}}"
    );
    let only = carry_over(&object(format!("{{\"{STATE}\":{{}}}}")), None);
    assert_eq!(only.as_str(), "{\"__bucket_execution_state\":{}}");
}

#[test]
fn the_schema_is_simple_and_in_order() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let order = |name: &str| schema["properties"][name]["order"].as_u64().unwrap();
    let names = ["round_robin_bucket_execution", "bucket_total", "bucket_id", "bucket_ranges"];
    assert_eq!(names.map(order), [10, 11, 12, 13]);
    assert_eq!(schema["properties"].as_object().unwrap().len(), 4);
    for word in ["oneOf", "allOf", "anyOf", "dependentRequired", "$data", "if"] {
        assert!(!SCHEMA.contains(&format!("\"{word}\"")), "{word}");
    }
    for (name, kind, least, default) in [
        ("round_robin_bucket_execution", "boolean", Value::Null, json!(false)),
        ("bucket_total", "integer", json!(1), json!(1)),
        ("bucket_id", "integer", json!(1), json!(1)),
        ("bucket_ranges", "array", Value::Null, Value::Null),
    ] {
        let field = &schema["properties"][name];
        assert_eq!((&field["type"], &field["minimum"]), (&json!(kind), &least), "{name}");
        assert_eq!(field["default"], default, "{name}");
    }
}

#[test]
fn a_million_ranges_are_read_one_by_one() {
    let list = format!("[{}\"1-1000000\"]", "\"1-1000000\",".repeat(999_999));
    let config = format!(
        "{{\"bucket_total\":1000000,\"round_robin_bucket_execution\":true,\
         \"bucket_ranges\":{list}}}"
    );
    let read = Config::read(&object(config)).unwrap();
    assert_eq!(read.ranges.unwrap().count(), 1_000_000);
    let refused = Config::read(&rotating(&json!("1-4294967295"), 10)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Invalid bucket range 1-4294967295: values must be between 1 and 10"
    );
}

proptest! {
    /// Whatever the state is, an existing bucket is chosen, and the next state is valid.
    #[test]
    fn no_state_selects_a_bucket_that_is_not_there(
        last in "-?[0-9]{1,4}(\\.[0-9])?|\"[^\"\\\\\\p{C}]{0,4}\"|null|\\[\\]",
        total in 1_u64..50,
    ) {
        prop_assume!(serde_json::from_str::<Value>(&last).is_ok());
        let text = format!("{{\"{STATE}\":{{\"last_executed_bucket_id\":{last}}}}}");
        let config = rotating(&json!(null), total);
        let applied = apply(config.clone(), Some(object(text)), CommitTiming::AtStart).unwrap();
        let bucket = applied.executed.unwrap().bucket;
        prop_assert!((1..=total).contains(&bucket.into()));
        let next = next(&config, applied.state.as_ref()).unwrap();
        prop_assert_eq!(u64::from(next), u64::from(bucket) % total + 1);
    }
}
