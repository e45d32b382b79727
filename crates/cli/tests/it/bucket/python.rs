//! Comparison of the buckets with those of Python's HMAC-MD5.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::{BuildHasher, Hasher};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;

use tenure_core::bucket::{Partition, Total, bucket};

/// Reads key and data in hexadecimal, and a total; prints hash and bucket.
const SCRIPT: &str = "
import hmac, sys
for line in sys.stdin:
    key, data, total = line.rstrip('\\n').split(',')
    hash = hmac.new(bytes.fromhex(key), bytes.fromhex(data), 'md5').hexdigest()[:8]
    print(hash, int(hash, 16) % int(total) + 1)
";

const CASES: usize = 5_000;

/// Lengths at which the padding changes: of the hash (blocks of 64 bytes, at least nine bytes of
/// padding) and of the key (hashed first if longer than a block).
const BORDERS: &[usize] = &[0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, 1_000];

/// One line of input.
#[derive(Debug)]
struct Case {
    key: String,
    data: String,
    total: u32,
}

/// Random numbers from a seed, so that a failure can be reproduced.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns a text of this many bytes, with characters of any length.
    fn text(&mut self, bytes: usize) -> String {
        let mut text = String::new();
        while text.len() < bytes {
            let limit = [0x80, 0x800, 0x1_0000, 0x11_0000][self.below(4)];
            let any = char::from_u32(self.below(limit) as u32).unwrap_or('-');
            text.push(if text.len() + any.len_utf8() <= bytes { any } else { 'x' });
        }
        text
    }

    fn length(&mut self) -> usize {
        match self.below(2) {
            0 => BORDERS[self.below(BORDERS.len())],
            _ => self.below(200),
        }
    }

    fn case(&mut self) -> Case {
        let (key, data) = (self.length(), self.length());
        let total = match self.below(3) {
            0 => [1, 2, 3, 12, 65_536, 999_983, Total::MAX_BUCKETS][self.below(7)],
            _ => 1 + self.below(Total::MAX_BUCKETS as usize) as u32,
        };
        Case { key: self.text(key), data: self.text(data), total }
    }
}

#[test]
fn buckets_are_those_of_pythons_hmac() {
    let seed = RandomState::new().build_hasher().finish();
    let mut numbers = Numbers(seed);
    let mut cases: Vec<Case> = (0..CASES).map(|_| numbers.case()).collect();
    for (key, data) in BORDERS.iter().flat_map(|key| BORDERS.iter().map(move |data| (key, data))) {
        cases.push(Case {
            key: numbers.text(*key),
            data: numbers.text(*data),
            total: Total::MAX_BUCKETS,
        });
    }
    let answers = python(&cases);
    assert_eq!(answers.lines().count(), cases.len());
    for (case, answer) in cases.iter().zip(answers.lines()) {
        let Case { key, data, total } = case;
        let total = Total::new(u64::from(*total)).unwrap();
        let partition = Partition::new(key, total);
        let ours = format!("{:08x} {}", partition.hash(data), partition.bucket(data));
        assert_eq!(ours, answer, "seed {seed:#x}: {case:?}");
        assert_eq!(bucket(key, data, total), partition.bucket(data), "seed {seed:#x}: {case:?}");
    }
}

/// Computes all cases in one process.
fn python(cases: &[Case]) -> String {
    let mut python = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("the test needs python3: {error}"));
    let mut stdin = python.stdin.take().unwrap();
    let mut questions = String::new();
    for Case { key, data, total } in cases {
        writeln!(questions, "{},{},{total}", hex(key), hex(data)).unwrap();
    }
    // Write on another thread: Python answers while it reads, so writing first would deadlock.
    let writer = thread::spawn(move || stdin.write_all(questions.as_bytes()));
    let answered = python.wait_with_output().unwrap();
    assert!(answered.status.success(), "{}", answered.status);
    writer.join().unwrap().unwrap();
    String::from_utf8(answered.stdout).unwrap()
}

fn hex(text: &str) -> String {
    text.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}
