//! Host pages lent to the device: QUERY_PAGES and MANAGE_PAGES (PRM; Linux
//! `drivers/net/ethernet/mellanox/mlx5/core/pagealloc.c`).

use super::SystemState;
use super::call::Call;
use super::syndrome::{self, Refusal};
use crate::nic::{HostMemory, Nic};
use bareverbs_prm::command::pages::{ManagePagesIn, ManagePagesOut, QueryPagesIn, QueryPagesOut};
use bareverbs_prm::eqe::PageRequestEvent;
use bareverbs_prm::numbering::{EventType, ManagePagesMode, QueryPagesStage};
use std::collections::BTreeSet;

/// Pages that the device can hold: 64 GiB of 4 KiB pages.
const MAXIMUM: usize = 1 << 24;

/// What the device asks for and what it holds.
#[derive(Debug)]
pub(crate) struct PageSupply {
    boot: u32,
    init: u32,
    /// Pages asked for by events and not yet given.
    wanted: u32,
    held: Vec<u64>,
    known: BTreeSet<u64>,
    /// How often a driver said that it cannot give.
    pub(crate) denied: u64,
}

impl PageSupply {
    pub(crate) const fn new(boot: u32, init: u32) -> Self {
        Self { boot, init, wanted: 0, held: Vec::new(), known: BTreeSet::new(), denied: 0 }
    }

    /// Pages held.
    pub(crate) const fn held(&self) -> usize {
        self.held.len()
    }

    fn needed(&self) -> usize {
        self.boot as usize + self.init as usize
    }

    /// Whether boot and init pages are there.
    pub(crate) fn is_supplied(&self) -> bool {
        self.held.len() >= self.needed()
    }

    pub(crate) fn clear(&mut self) {
        self.held.clear();
        self.known.clear();
        self.wanted = 0;
    }

    fn missing(&self, stage: QueryPagesStage) -> Option<u32> {
        let held = self.held.len() as u32;
        match stage {
            QueryPagesStage::BootPages => Some(self.boot.saturating_sub(held)),
            QueryPagesStage::InitPages => Some((self.boot + self.init).saturating_sub(held)),
            QueryPagesStage::RegularPages => Some(self.wanted),
            _ => None,
        }
    }

    fn give(&mut self, pages: &[u64]) -> Result<(), Refusal> {
        // Behind an IOMMU, 0 is an address like any other, and rdma-core's VFIO driver gives it first. Linux keeps it to
        // itself for a reason of its own: by it the kernel knows an address that was never set.
        if pages.iter().any(|page| page & 0xfff != 0) {
            return Err(syndrome::PAGE_MISALIGNED);
        }
        if self.held.len().saturating_add(pages.len()) > MAXIMUM {
            return Err(syndrome::TOO_MANY_PAGES);
        }
        let fresh: BTreeSet<u64> = pages.iter().copied().collect();
        if fresh.len() != pages.len() || !fresh.is_disjoint(&self.known) {
            return Err(syndrome::PAGE_GIVEN_TWICE);
        }
        self.wanted = self.wanted.saturating_sub(pages.len() as u32);
        self.held.extend_from_slice(pages);
        self.known.extend(fresh);
        Ok(())
    }

    /// Gives back up to `count` pages beyond those that are in use.
    fn take(&mut self, count: usize, in_use: usize) -> Vec<u64> {
        let keep = in_use.max(self.held.len().saturating_sub(count)).min(self.held.len());
        let back = self.held.split_off(keep);
        for page in &back {
            self.known.remove(page);
        }
        back
    }
}

impl Nic {
    /// Asks for `count` more pages by an event, or, if negative, asks to be relieved of that many. What firmware does
    /// when its tables grow or shrink; a driver must answer with MANAGE_PAGES at any moment.
    pub fn request_pages<M: HostMemory>(&mut self, memory: &mut M, count: i32) {
        self.firmware.pages.wanted = self.firmware.pages.wanted.saturating_add(count.max(0).unsigned_abs());
        let mut data = PageRequestEvent::new();
        data.set_num_pages(count as u32);
        self.events.post(memory, EventType::PageRequest, 0, &data);
    }

    /// Host pages that the device holds.
    pub const fn held_pages(&self) -> usize {
        self.firmware.pages.held()
    }
}

pub(super) fn query<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &QueryPagesIn,
    output: &mut QueryPagesOut,
) -> Result<(), Refusal> {
    check_function(input.function_id(), input.embedded_cpu_function())?;
    let stage = QueryPagesStage::from_raw(call.op_mod());
    output.set_num_pages(nic.firmware.pages.missing(stage).ok_or(syndrome::BAD_OP_MOD)?);
    Ok(())
}

pub(super) fn manage<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &ManagePagesIn,
    output: &mut ManagePagesOut,
) -> Result<(), Refusal> {
    check_function(input.function_id(), input.embedded_cpu_function())?;
    let count = input.input_num_entries();
    match ManagePagesMode::from_raw(call.op_mod()) {
        ManagePagesMode::CannotGive => {
            nic.firmware.pages.denied += 1;
            Ok(())
        }
        ManagePagesMode::Give => {
            let pages = call.list(ManagePagesIn::PAS_OFFSET, count.into())?;
            nic.firmware.pages.give(&pages)
        }
        ManagePagesMode::TakeBack => take_back(nic, call, count as usize, output),
        _ => Err(syndrome::BAD_OP_MOD),
    }
}

fn take_back<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    count: usize,
    output: &mut ManagePagesOut,
) -> Result<(), Refusal> {
    let room = call.output_length.saturating_sub(ManagePagesOut::PAS_OFFSET) / 8;
    let pages = &mut nic.firmware.pages;
    let in_use = if nic.firmware.state == SystemState::Initialized { pages.needed() } else { 0 };
    let back = pages.take(count.min(room), in_use);
    output.set_output_num_entries(back.len() as u32);
    call.tail.extend(back.iter().flat_map(|page| page.to_be_bytes()));
    Ok(())
}

fn check_function(function: u16, embedded_cpu: bool) -> Result<(), Refusal> {
    if function == 0 && !embedded_cpu { Ok(()) } else { Err(syndrome::BAD_FUNCTION) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_in_use_stay() {
        let mut supply = PageSupply::new(1, 2);
        supply.give(&[0x1000, 0x2000, 0x3000, 0x4000]).unwrap();
        assert_eq!(supply.give(&[0x5000, 0x5000]), Err(syndrome::PAGE_GIVEN_TWICE));
        assert_eq!(supply.give(&[0x4000]), Err(syndrome::PAGE_GIVEN_TWICE));
        assert_eq!(supply.give(&[0x6100]), Err(syndrome::PAGE_MISALIGNED));
        assert_eq!(supply.give(&[0x0800]), Err(syndrome::PAGE_MISALIGNED));
        supply.give(&[0]).unwrap();
        assert_eq!(supply.give(&[0]), Err(syndrome::PAGE_GIVEN_TWICE));
        assert_eq!(supply.take(10, 3), [0x4000, 0]);
        assert_eq!(supply.take(2, 0), [0x2000, 0x3000]);
        assert_eq!(supply.take(2, 0), [0x1000]);
        assert!(supply.take(2, 0).is_empty());
        assert_eq!(supply.missing(QueryPagesStage::InitPages), Some(3));
    }
}
