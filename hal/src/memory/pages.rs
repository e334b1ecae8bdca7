//! Page sizes, and how many huge pages the system has.

use core::fmt;
use std::fs;
use std::path::Path;

/// A page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PageKind {
    /// Ordinary 4 KiB pages, locked in memory.
    Small,
    /// 2 MiB huge pages.
    Huge,
    /// 1 GiB huge pages.
    Gigantic,
}

impl PageKind {
    /// Page size in bytes.
    pub const fn bytes(self) -> usize {
        1 << self.log()
    }

    /// Log2 of the page size in bytes.
    pub const fn log(self) -> u8 {
        match self {
            Self::Small => 12,
            Self::Huge => 21,
            Self::Gigantic => 30,
        }
    }
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Small => "4 KiB pages",
            Self::Huge => "2 MiB pages",
            Self::Gigantic => "1 GiB pages",
        })
    }
}

/// The system's pool of huge pages of one size.
///
/// ```
/// use bareverbs_hal::memory::{HugePagePool, PageKind, huge_page_command};
/// use std::path::Path;
///
/// let pool = HugePagePool::read(Path::new("/"), PageKind::Huge);
/// if pool.free < 32 {
///     println!("{} pages of 2 MiB are free; to have 32: {}", pool.free, huge_page_command(64 << 20));
/// }
/// assert_eq!(HugePagePool::read(Path::new("/"), PageKind::Small), HugePagePool::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HugePagePool {
    /// Pages in the pool.
    pub total: u64,
    /// Unused pages.
    pub free: u64,
}

impl HugePagePool {
    /// Reads the pool of this page size under the file system `root`. Empty if the system has no such pages, and for
    /// [`PageKind::Small`].
    pub fn read(root: &Path, kind: PageKind) -> Self {
        if kind == PageKind::Small {
            return Self::default();
        }
        let name = format!("sys/kernel/mm/hugepages/hugepages-{}kB", kind.bytes() >> 10);
        let count = |file| {
            let text = fs::read_to_string(root.join(&name).join(file)).ok();
            text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
        };
        Self { total: count("nr_hugepages"), free: count("free_hugepages") }
    }
}

/// Log2 of the default huge page size, if the kernel has huge pages.
pub(super) fn default_huge_log(root: &Path) -> Option<u8> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    u8::try_from(kilobytes.checked_mul(1024)?.checked_ilog2()?).ok()
}

/// The command that reserves enough 2 MiB huge pages for `bytes`.
pub fn huge_page_command(bytes: usize) -> String {
    let pages = bytes.div_ceil(PageKind::Huge.bytes());
    format!("echo {pages} | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_read_from_a_tree() {
        let tree = tempfile::tempdir().unwrap();
        let pool = tree.path().join("sys/kernel/mm/hugepages/hugepages-2048kB");
        fs::create_dir_all(&pool).unwrap();
        fs::write(pool.join("nr_hugepages"), "64\n").unwrap();
        fs::write(pool.join("free_hugepages"), "60\n").unwrap();
        fs::create_dir_all(tree.path().join("proc")).unwrap();
        fs::write(tree.path().join("proc/meminfo"), "MemTotal: 1 kB\nHugepagesize:    2048 kB\n").unwrap();
        assert_eq!(HugePagePool::read(tree.path(), PageKind::Huge), HugePagePool { total: 64, free: 60 });
        assert_eq!(HugePagePool::read(tree.path(), PageKind::Gigantic), HugePagePool::default());
        assert_eq!(default_huge_log(tree.path()), Some(21));
        assert_eq!(default_huge_log(Path::new("/nowhere")), None);
    }
}
