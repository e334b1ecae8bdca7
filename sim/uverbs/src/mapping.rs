//! What a program maps from the device file, and under which offsets.

use bareverbs_prm::ids::UarIndex;

/// Bytes of a page that can be mapped.
const PAGE: u64 = 4096;
/// Command of a mapping's offset that names a page which UAR_OBJ_ALLOC handed out; lower ones are the kernel's own.
const HANDED_OUT: u64 = 9;

/// What a program may map from the device file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// A page of doorbells.
    Doorbells(UarIndex),
}

impl Mapping {
    /// What an offset names; `None` if the kernel has nothing there.
    pub(crate) fn find(offset: u64, length: u64) -> Option<Self> {
        let number = offset / PAGE;
        let (command, index) = (number >> 8 & 0xff, number & 0xff | number >> 16 << 8);
        let page = u32::try_from(index).ok().and_then(UarIndex::new)?;
        let whole = offset.is_multiple_of(PAGE) && length == PAGE;
        (whole && command == HANDED_OUT).then_some(Self::Doorbells(page))
    }
}

/// The offset under which a program maps a page of doorbells.
pub(crate) const fn doorbell_offset(page: UarIndex) -> u64 {
    let index = page.value() as u64;
    (index & 0xff | HANDED_OUT << 8 | index >> 8 << 16) * PAGE
}
