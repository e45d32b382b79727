//! Any bytes are a list of items or rejected; joined items split again into the same list.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_wire::ingest::{read, split_array, split_lines};

const MOST: usize = 100;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(items) = split_array(bytes, MOST) {
        assert!(items.len() <= MOST);
        let again = [&b"["[..], &items.join(&b", "[..]), b"]"].concat();
        assert_eq!(split_array(&again, MOST).as_ref(), Ok(&items));
        for item in items {
            // Items of an array are valid JSON, whatever other errors they have.
            if let Err(invalid) = read(item) {
                assert_ne!(invalid.issues[0].kind, "json_invalid", "{invalid}");
            }
        }
    }
    if let Ok(lines) = split_lines(bytes, MOST) {
        let again = [lines.join(&b"\r\n\n"[..]), b"\r\n".to_vec()].concat();
        assert_eq!(split_lines(&again, MOST).as_ref(), Ok(&lines));
        lines.into_iter().for_each(|line| _ = read(line));
    }
});
