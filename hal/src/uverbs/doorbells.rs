//! Pages of doorbells that the kernel has allocated and mapped.

use super::context::{DoorbellPage, Handle, KernelContext};
use crate::mapped_bar::MappedBar;
use bareverbs_prm::doorbell::UAR_PAGE_SIZE;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most pages of doorbells of one place. A driver allocates one.
const MOST_PAGES: usize = 4;

/// A page of doorbells in this process.
#[derive(Debug)]
struct Page {
    index: usize,
    handle: Handle,
    registers: MappedBar,
    /// Whether the driver has freed it.
    is_retired: AtomicBool,
}

/// All pages of doorbells, in the order of their allocation. None is unmapped before the place is dropped, so that ringing needs no lock.
#[derive(Debug, Default)]
pub(super) struct DoorbellPages {
    pages: [OnceLock<Page>; MOST_PAGES],
}

impl DoorbellPages {
    /// Maps a page. The error is a sentence.
    pub(super) fn add(&self, context: &KernelContext, page: DoorbellPage) -> Result<(), String> {
        let length = page.length as usize;
        if length != UAR_PAGE_SIZE {
            return Err(format!(
                "the kernel maps doorbells in pages of {length} bytes and does not report where in a page \
                 the device's doorbells are: use a kernel with pages of {UAR_PAGE_SIZE} bytes"
            ));
        }
        let slot = self.pages.iter().find(|slot| slot.get().is_none());
        let slot = slot.ok_or_else(|| format!("at most {MOST_PAGES} pages of doorbells can be mapped"))?;
        let registers = MappedBar::new(context.as_fd(), page.offset, length)
            .map_err(|error| format!("mapping a page of doorbells failed: {error}"))?;
        let index = page.index as usize;
        let page = Page { index, handle: page.handle, registers, is_retired: AtomicBool::new(false) };
        slot.set(page).map_err(|_| "another thread has taken the page's place".to_owned())
    }

    /// Takes a page out of use; its mapping stays. `None` if there is no such page.
    pub(super) fn retire(&self, index: u32) -> Option<Handle> {
        let page = self.find(index as usize)?;
        page.is_retired.store(true, Ordering::Relaxed);
        Some(page.handle)
    }

    fn find(&self, index: usize) -> Option<&Page> {
        let known = self.pages.iter().map_while(OnceLock::get);
        known.into_iter().find(|page| page.index == index && !page.is_retired.load(Ordering::Relaxed))
    }

    /// The registers at an offset of BAR0, and the offset in them.
    #[inline]
    pub(super) fn registers(&self, offset: usize) -> Option<(&MappedBar, usize)> {
        let page = self.find(offset / UAR_PAGE_SIZE)?;
        Some((&page.registers, offset % UAR_PAGE_SIZE))
    }
}
