//! Files that a user names. A device, a pipe or a file of /proc says that it has no bytes and may never end, so the bytes that are read count,
//! and not the length that the file has according to its directory.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The bytes of a file.
///
/// # Errors
/// [`ErrorKind::FileTooLarge`] if it has more than `limit` bytes, and whatever opening and reading it gives.
pub(crate) fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    take_at_most(File::open(path)?, limit)
}

/// The same for text.
pub(crate) fn read_text_at_most(path: &Path, limit: u64) -> io::Result<String> {
    text_of(read_at_most(path, limit)?)
}

/// What a source gives until its end.
pub(crate) fn take_at_most(source: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!("it has more than {limit} bytes, the limit for such a file"),
        ));
    }
    Ok(bytes)
}

/// Bytes as text.
pub(crate) fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_have_as_many_bytes_as_its_limit() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, "four").expect("written");
        assert_eq!(read_at_most(&path, 4).expect("short enough"), b"four");
        let error = read_text_at_most(&path, 3).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("more than 3 bytes"), "{error}");
        assert_eq!(read_text_at_most(&path, 4).expect("text"), "four");
        std::fs::write(&path, b"\xff").expect("written");
        assert_eq!(read_text_at_most(&path, 4).expect_err("no text").kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn an_endless_file_is_refused() {
        for endless in ["/dev/zero", "/dev/full"] {
            let error = read_at_most(Path::new(endless), 1 << 16).expect_err("it never ends");
            assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{endless}");
        }
    }
}
