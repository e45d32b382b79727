//! Checkpoint encoded as one value, for stores that keep bytes under keys: `version epoch unix_ms
//! length\n`, then an instance of that length, then the document. The commit script of Redis writes
//! the same form.

use tenure_core::store::Checkpoint;
use tenure_core::{Document, Epoch, InstanceId, Version};

/// Decodes such a value; `None` when it has another form.
pub(crate) fn unpack(entry: &[u8]) -> Option<Checkpoint> {
    let end = entry.iter().position(|byte| *byte == b'\n')?;
    let (head, rest) = (std::str::from_utf8(&entry[..end]).ok()?, &entry[end + 1..]);
    let numbers: Vec<u64> =
        head.split(' ').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let [version, epoch, unix_ms, length] = numbers[..] else { return None };
    let (instance, document) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some(Checkpoint {
        version: Version::new(version).ok()?,
        epoch: Epoch::new(epoch).ok()?,
        instance: InstanceId::new(std::str::from_utf8(instance).ok()?).ok()?,
        document: Document::from_store(document.to_vec()).ok()?,
        unix_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_history_is_read_back_whatever_its_bytes() {
        let read = unpack(b"3 17 1700000000000 3\na bx\n\0\xff").unwrap();
        assert_eq!((read.version.get(), read.epoch.get()), (3, 17));
        assert_eq!(read.instance.as_str(), "a b");
        assert_eq!(read.document.as_bytes(), b"x\n\0\xff");
    }

    #[test]
    fn something_else_is_no_entry() {
        for bad in [
            &b""[..],
            b"\n",
            b"1 2 3\nx",
            b"1 2 3 9\nshort",
            b"1 2 3 x\ny",
            b"9007199254740992 1 1 1\ny",
        ] {
            assert_eq!(unpack(bad), None);
        }
    }
}
