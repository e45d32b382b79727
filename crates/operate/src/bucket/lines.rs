//! Entity names, one per line, read in blocks.

use std::io::{self, ErrorKind, Read};

use memchr::{memchr_iter, memrchr};
use tenure_core::{Code, StoreError};

/// Longest line, without its line feed.
const MAX_LINE_BYTES: usize = 1024 * 1024;
/// Initial size of the buffer; a longer line makes it grow.
const BLOCK_BYTES: usize = 256 * 1024;

/// Line reader that returns blocks of lines and needs no more memory than the longest line.
pub struct EntityLines<R> {
    input: R,
    /// Name of the input in messages.
    name: String,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were returned, all whole lines.
    given: usize,
    /// Bytes of the buffer that were read; those after `given` begin the next line.
    filled: usize,
    /// Number of lines that were returned.
    count: u64,
    ended: bool,
}

impl<R: Read> EntityLines<R> {
    /// Reads from an input; `name` is its name in messages.
    pub fn new(input: R, name: String) -> Self {
        let buffer = vec![0; BLOCK_BYTES];
        Self { input, name, buffer, given: 0, filled: 0, count: 0, ended: false }
    }

    /// Returns the whole lines that are available without waiting; `None` at the end. The last line
    /// may have no line feed.
    pub fn block(&mut self) -> Result<Option<&[u8]>, StoreError> {
        self.buffer.copy_within(self.given..self.filled, 0);
        self.filled -= self.given;
        self.given = 0;
        while self.given == 0 && !self.ended {
            self.make_room()?;
            let new = self.read()?;
            // The bytes before `filled` contain no line feed.
            self.given = match memrchr(b'\n', &self.buffer[self.filled..self.filled + new]) {
                Some(at) => self.filled + at + 1,
                None if self.ended => self.filled,
                None => 0,
            };
            self.filled += new;
        }
        let block = &self.buffer[..self.given];
        self.count += memchr_iter(b'\n', block).count() as u64;
        Ok(Some(block).filter(|block| !block.is_empty()))
    }

    fn make_room(&mut self) -> Result<(), StoreError> {
        let room = self.buffer.len();
        if self.filled < room {
            return Ok(());
        }
        // A full buffer contains a single unfinished line.
        if room > MAX_LINE_BYTES {
            let (name, number) = (&self.name, self.count + 1);
            let detail = format!("line {number} of {name} has more than {MAX_LINE_BYTES} bytes");
            return Err(StoreError::refused(Code::LongLine, detail));
        }
        self.buffer.resize((2 * room).min(MAX_LINE_BYTES + 1), 0);
        Ok(())
    }

    fn read(&mut self) -> Result<usize, StoreError> {
        let read = loop {
            match self.input.read(&mut self.buffer[self.filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let new = read.map_err(|error| unreadable(&self.name, &error))?;
        self.ended = new == 0;
        Ok(new)
    }
}

/// Error for an input that cannot be read.
pub fn unreadable(name: &str, error: &io::Error) -> StoreError {
    StoreError::refused(Code::Machine, format!("cannot read {name}: {error}"))
}

/// Splits a block into lines, each with its line feed.
pub fn each(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let rest = Some(block.len()).filter(|_| !block.ends_with(b"\n"));
    let mut begin = 0;
    memchr_iter(b'\n', block).map(|at| at + 1).chain(rest).map(move |end| {
        let line = &block[begin..end];
        begin = end;
        line
    })
}

/// Returns the name on a line, without its line feed or CRLF.
pub fn entity(line: &[u8]) -> &[u8] {
    match line {
        [name @ .., b'\r', b'\n'] | [name @ .., b'\n'] | name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reader that returns at most `most` bytes at a time and is interrupted before each read.
    struct Drops<'a> {
        left: &'a [u8],
        most: usize,
        interrupted: bool,
    }

    impl Read for Drops<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.interrupted = !self.interrupted;
            if self.interrupted {
                return Err(ErrorKind::Interrupted.into());
            }
            assert!(!into.is_empty());
            let most = self.most.min(into.len());
            self.left.read(&mut into[..most])
        }
    }

    fn lines(text: &[u8], most: usize) -> EntityLines<Drops<'_>> {
        EntityLines::new(Drops { left: text, most, interrupted: false }, "it".to_owned())
    }

    /// Returns the lines, and the error that ended them.
    fn all(text: &[u8], most: usize) -> (Vec<Vec<u8>>, Option<String>) {
        let (mut lines, mut all) = (lines(text, most), Vec::new());
        loop {
            match lines.block() {
                Ok(Some(block)) => all.extend(each(block).map(<[u8]>::to_vec)),
                Ok(None) => return (all, None),
                Err(error) => return (all, Some(error.problem().detail.clone())),
            }
            assert!(lines.buffer.len() <= MAX_LINE_BYTES + 1);
        }
    }

    #[test]
    fn lines_are_the_input_however_it_comes() {
        let long =
            [vec![b'x'; BLOCK_BYTES - 1], b"\n\r\n".to_vec(), vec![b'y'; 2 * BLOCK_BYTES]].concat();
        for text in [&b""[..], b"\n", b"a", b"a\n", b"\n\na\r\n\r\rb\n\xff\n\0", &long] {
            let expected: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').collect();
            for most in [1, 2, 3, 7, BLOCK_BYTES - 1, BLOCK_BYTES, MAX_LINE_BYTES] {
                // Reading a long text byte by byte is slow.
                if most > 1000 || text.len() < 1000 {
                    assert_eq!(
                        all(text, most),
                        (expected.iter().map(|&it| it.into()).collect(), None)
                    );
                }
            }
        }
    }

    #[test]
    fn a_line_has_a_limit_and_a_number() {
        let line = |bytes: usize, end: &str| [&vec![b'x'; bytes][..], end.as_bytes()].concat();
        for most in [1000, BLOCK_BYTES, 2 * MAX_LINE_BYTES] {
            for (end, bytes) in
                [("", MAX_LINE_BYTES), ("\n", MAX_LINE_BYTES), ("\r\n", MAX_LINE_BYTES - 1)]
            {
                let fits = [line(bytes, end)];
                assert_eq!(all(&fits[0], most), (fits.to_vec(), None));
                let text = [b"a\n\nb\n".to_vec(), line(bytes + 1, end)].concat();
                let before = [&b"a\n"[..], b"\n", b"b\n"].map(<[u8]>::to_vec).to_vec();
                let why = "line 4 of it has more than 1048576 bytes".to_owned();
                assert_eq!(all(&text, most), (before, Some(why)));
            }
        }
    }

    /// A terminal can deliver more input after an end of file.
    #[test]
    fn after_the_end_nothing_is_read() {
        let mut lines = lines(b"a", 1);
        assert_eq!(lines.block().unwrap(), Some(&b"a"[..]));
        lines.input.left = b"b";
        assert_eq!(lines.block().unwrap(), None);
    }

    #[test]
    fn one_line_end_is_no_part_of_the_name() {
        for (line, name) in [
            (&b"a\n"[..], &b"a"[..]),
            (b"a\r\n", b"a"),
            (b"a\r\r\n", b"a\r"),
            (b"a\r", b"a\r"),
            (b"a", b"a"),
            (b" a \n", b" a "),
            (b"\n", b""),
            (b"\r\n", b""),
        ] {
            assert_eq!(entity(line), name);
        }
    }
}
