use super::*;

fn array(text: &str) -> Result<Vec<&str>, BadBatch> {
    let items = split_array(text.as_bytes(), 3)?;
    Ok(items.into_iter().map(|item| std::str::from_utf8(item).unwrap()).collect())
}

#[test]
fn an_array_is_taken_apart_as_it_is_written() {
    assert_eq!(array("[]"), Ok(vec![]));
    assert_eq!(array(" [ ] \n"), Ok(vec![]));
    let items = array("[ {\"a\": [1 , 2]} ,\"],[\\\"\",\n-1e5 ]");
    assert_eq!(items, Ok(vec!["{\"a\": [1 , 2]}", "\"],[\\\"\"", "-1e5"]));
}

#[test]
fn what_is_no_array_is_no_batch() {
    for text in ["", "{}", "1", "null", "\u{feff}[]", "\"[]\""] {
        assert_eq!(array(text), Err(BadBatch::NotAnArray), "{text}");
    }
    for (text, at) in [
        ("[", 1),
        ("[1", 2),
        ("[1,]", 3),
        ("[,1]", 1),
        ("[1 2]", 3),
        ("[{]", 2),
        ("[{\"a\":1]", 7),
        ("[1}", 2),
        ("[]]", 2),
        ("[] x", 3),
        ("[\"a", 3),
    ] {
        match array(text) {
            Err(BadBatch::Broken { at: found, .. }) => assert_eq!(found, at, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    assert_eq!(split_array(b"[\"\xff\"]", 3), Err(BadBatch::NotUtf8 { at: 2 }));
    assert_eq!(array("[1,2,3,4]"), Err(BadBatch::TooMany { most: 3 }));
    assert_eq!(array("[1,2,3]").map(|items| items.len()), Ok(3));
}

#[test]
fn an_item_that_is_too_deep_does_not_fail_its_neighbours() {
    for depth in [127, 128, 129, 255, 256, 257, 1_000, 1_000_000] {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let mixed = format!("{}1{}", "{\"a\":[".repeat(depth), "]}".repeat(depth));
        let text = format!("[{deep},{MINIMAL},{mixed}]");
        let items = array(&text).unwrap();
        assert_eq!(items, [deep.as_str(), MINIMAL, mixed.as_str()]);
        good(items[1]);
        let swapped = text.replacen("]}", "}]", 1);
        assert!(matches!(array(&swapped), Err(BadBatch::Broken { .. })));
    }
    let open = format!("[{}", "[".repeat(10_000_000));
    assert!(matches!(array(&open), Err(BadBatch::Broken { at: 10_000_001, .. })));
}

#[test]
fn lines_are_items() {
    let lines = |text: &'static str| {
        let items = split_lines(text.as_bytes(), 3)?;
        Ok::<_, BadBatch>(
            items.into_iter().map(|item| std::str::from_utf8(item).unwrap()).collect(),
        )
    };
    assert_eq!(lines(""), Ok(vec![]));
    assert_eq!(lines("\n \r\n\t\n"), Ok(vec![]));
    assert_eq!(lines("{}\r\n\n {broken\n1"), Ok(vec!["{}", "{broken", "1"]));
    assert_eq!(lines("1\n2\n3\n\n"), Ok(vec!["1", "2", "3"]));
    assert_eq!(lines("1\n2\n3\n4"), Err(BadBatch::TooMany { most: 3 }));
    assert_eq!(split_lines(b"\xff\n{}", 3), Ok(vec![&b"\xff"[..], b"{}"]));
}
