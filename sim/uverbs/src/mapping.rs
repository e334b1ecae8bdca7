//! What a program can map from the device file, and at which offsets.

use crate::uapi::Mlx5ClockInfo;
use bareverbs_prm::ids::UarIndex;
use bareverbs_prm::time::Time;
use zerocopy::IntoBytes;

/// Bytes of a page that can be mapped.
const PAGE: u64 = 4096;
/// Command in a mapping's offset for a page from UAR_OBJ_ALLOC; lower ones name the kernel's own pages.
const HANDED_OUT: u64 = 9;
/// Command in a mapping's offset for the clock, in its first version.
const CLOCK_INFO: u64 = 7;
/// `clock_info_versions`: the first.
pub(crate) const CLOCK_INFO_VERSIONS: u8 = 1;

/// What an `mmap` of the device file yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// A page of doorbells.
    Doorbells(UarIndex),
    /// A page that starts with these bytes (`mlx5_ib_clock_info`) and is read-only for the program.
    Clock([u8; size_of::<Mlx5ClockInfo>()]),
}

/// The target of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapTarget {
    Doorbells(UarIndex),
    Clock,
}

/// The clock page. Device timestamps count nanoseconds, so it never needs an update. `wall_clock` is the time when the
/// device's clock shows `device_time`.
pub(crate) fn clock(wall_clock: u64, device_time: Time) -> Mapping {
    let info = Mlx5ClockInfo {
        sign: 0,
        resv: 0,
        nsec: wall_clock,
        cycles: device_time.as_nanos(),
        frac: 0,
        mult: 1,
        shift: 0,
        mask: u64::MAX,
        overflow_period: u64::MAX,
    };
    let mut bytes = [0; size_of::<Mlx5ClockInfo>()];
    bytes.copy_from_slice(info.as_bytes());
    Mapping::Clock(bytes)
}

impl MapTarget {
    /// What an offset names; `None` if the kernel has nothing there.
    pub(crate) fn find(offset: u64, length: u64) -> Option<Self> {
        let number = offset / PAGE;
        let (command, index) = (number >> 8 & 0xff, number & 0xff | number >> 16 << 8);
        let page = u32::try_from(index).ok().and_then(UarIndex::new)?;
        let whole = offset.is_multiple_of(PAGE) && length == PAGE;
        match (command, index) {
            (HANDED_OUT, _) if whole => Some(Self::Doorbells(page)),
            (CLOCK_INFO, 0) if whole => Some(Self::Clock),
            _ => None,
        }
    }
}

/// The offset under which a program maps a page of doorbells.
pub(crate) const fn doorbell_offset(page: UarIndex) -> u64 {
    let index = page.value() as u64;
    (index & 0xff | HANDED_OUT << 8 | index >> 8 << 16) * PAGE
}
