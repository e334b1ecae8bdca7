//! CREATE_UMEM and DESTROY_UMEM, and the memory of queues: the page list of their command or a user memory
//! object.

use super::call::Call;
use crate::nic::Nic;
use crate::nic::buffer::PagedBuffer;
use crate::nic::doorbell_record::DoorbellRecord;
use crate::nic::firmware_state::limits::LOG_MAX_UMEM;
use crate::nic::page_list::BudgetUsedUp;
use crate::nic::syndrome::{self, Refusal};
use crate::nic::user_memory::{CutError, ENTRY_FLAGS, Need, PageRun, UserMemory};
use bareverbs_prm::command::srq::WorkQueueContext;
use bareverbs_prm::command::umem::{CreateUmemIn, CreateUmemOut, DestroyUmemIn, DestroyUmemOut};
use bareverbs_prm::ids::UmemId;
use std::sync::Arc;

/// Largest `log_page_size` of a buffer: pages of 4 GiB.
const MAXIMUM_LOG_PAGE: u8 = 20;
/// Bytes of an entry of most queues and the unit of `page_offset`, so that no entry crosses a page.
const ENTRY: u64 = 64;
/// Bytes of a doorbell record and its alignment.
const RECORD: u64 = 8;

/// A user memory object named by a command, and the offset of a buffer in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct UmemPlace {
    pub(super) id: u32,
    pub(super) offset: u64,
}

/// The location of a queue, as its command describes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct BufferPlace {
    /// Offset of the page list in the input.
    pub(super) list_at: usize,
    /// Pages of the list have `4 KiB << log_page_size`.
    pub(super) log_page_size: u8,
    /// Offset of the queue in the first page, in 64ths of a page.
    pub(super) page_offset: u8,
    /// The user memory object that replaces the page list, if the command names one.
    pub(super) umem: Option<UmemPlace>,
}

impl BufferPlace {
    /// The location of a work queue whose page list is at `list_at`.
    pub(super) fn of_work_queue(queue: &WorkQueueContext, list_at: usize) -> Self {
        let named = UmemPlace { id: queue.wq_umem_id(), offset: queue.wq_umem_offset() };
        Self {
            list_at,
            log_page_size: queue.log_wq_pg_sz(),
            page_offset: queue.page_offset(),
            umem: queue.wq_umem_valid().then_some(named),
        }
    }
}

/// The doorbell record of a work queue.
pub(super) fn work_queue_record(nic: &Nic, queue: &WorkQueueContext) -> Result<DoorbellRecord, Refusal> {
    record(nic, queue.dbr_umem_valid().then(|| queue.dbr_umem_id()), queue.dbr_addr())
}

/// The buffer of a queue with `length` bytes.
pub(super) fn queue_buffer(
    nic: &Nic,
    call: &mut Call<'_>,
    place: BufferPlace,
    need: Need,
    length: u64,
) -> Result<PagedBuffer, Refusal> {
    let Some(named) = place.umem else {
        return paged_buffer(nic, call, place.list_at, place.log_page_size, place.page_offset, length);
    };
    let buffer = PagedBuffer::cut(object(nic, named.id)?, named.offset, length, need).map_err(refusal)?;
    if buffer.base().is_multiple_of(ENTRY) { Ok(buffer) } else { Err(syndrome::UMEM_QUEUE_MISALIGNED) }
}

/// The object that a command names, and its pages under `length` bytes.
pub(super) fn umem_pages(
    nic: &Nic,
    place: UmemPlace,
    length: u64,
    writes: bool,
) -> Result<(Arc<UserMemory>, PageRun), Refusal> {
    let object = object(nic, place.id)?;
    let run = object.stretch(place.offset, length, Need::Read).map_err(refusal)?;
    if writes {
        object.stretch(place.offset, length, Need::Write).map_err(refusal)?;
    }
    Ok((object.clone(), run))
}

/// A buffer on pages of `4 KiB << log_page_size` bytes. It has `length` bytes and starts `page_offset` 64ths
/// of a page into the first page (Linux `drivers/infiniband/hw/mlx5/devx.c`).
pub(super) fn paged_buffer(
    nic: &Nic,
    call: &mut Call<'_>,
    list_at: usize,
    log_page_size: u8,
    page_offset: u8,
    length: u64,
) -> Result<PagedBuffer, Refusal> {
    let log_page = log_page(log_page_size)?;
    let lead = u64::from(page_offset) << (log_page - 6);
    let count = (lead + length).div_ceil(1 << log_page);
    let pages = call.list(list_at, count)?;
    if pages.iter().any(|page| page & 0xfff != 0) {
        return Err(syndrome::BUFFER_MISALIGNED);
    }
    let run = PageRun { pages, log_page, lead };
    PagedBuffer::new(&nic.pages, run, length).map_err(|BudgetUsedUp| syndrome::PAGE_BUDGET)
}

/// A doorbell record at an I/O virtual address or, if the command names a user memory object, at an offset in
/// it. It must be aligned to 8 bytes. A zero address means that the driver forgot the record; a zero offset
/// is valid.
pub(super) fn record(nic: &Nic, umem: Option<u32>, place: u64) -> Result<DoorbellRecord, Refusal> {
    let Some(id) = umem else {
        let wrong = place == 0 || !place.is_multiple_of(RECORD);
        return if wrong { Err(syndrome::DOORBELL_RECORD_MISALIGNED) } else { Ok(DoorbellRecord::at(place)) };
    };
    let object = object(nic, id)?;
    let address = PagedBuffer::cut(object, place, RECORD, Need::Read).map_err(refusal)?.base();
    if !address.is_multiple_of(RECORD) {
        return Err(syndrome::DOORBELL_RECORD_MISALIGNED);
    }
    Ok(DoorbellRecord::within(object.clone(), address))
}

fn object(nic: &Nic, id: u32) -> Result<&Arc<UserMemory>, Refusal> {
    nic.user_memory.get(id).ok_or(syndrome::UMEM_UNKNOWN)
}

const fn refusal(error: CutError) -> Refusal {
    match error {
        CutError::Range => syndrome::UMEM_RANGE,
        CutError::Right => syndrome::UMEM_RIGHT,
        CutError::Budget => syndrome::PAGE_BUDGET,
    }
}

fn log_page(log_page_size: u8) -> Result<u8, Refusal> {
    if log_page_size > MAXIMUM_LOG_PAGE { Err(syndrome::BUFFER_PAGE_SIZE) } else { Ok(log_page_size + 12) }
}

pub(super) fn create(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateUmemIn,
    output: &mut CreateUmemOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    if input.ats() {
        return Err(syndrome::UMEM_FEATURE);
    }
    let log_page = log_page(input.log_page_size())?;
    let lead = u64::from(input.page_offset());
    if input.num_of_mtt() == 0 || lead >= 1 << log_page {
        return Err(syndrome::UMEM_SIZE);
    }
    let entries = call.list(CreateUmemIn::MTT_OFFSET, input.num_of_mtt())?;
    if entries.iter().any(|entry| entry & ((1 << log_page) - 1) & !ENTRY_FLAGS != 0) {
        return Err(syndrome::UMEM_MISALIGNED);
    }
    let number = nic.user_memory.next_number(1 << LOG_MAX_UMEM).ok_or(syndrome::UMEM_LIMIT)?;
    let entries = nic.pages.hold(entries).map_err(|BudgetUsedUp| syndrome::PAGE_BUDGET)?;
    nic.user_memory.insert(number, Arc::new(UserMemory::new(entries, log_page, lead)));
    output.set_umem_id(UmemId::from_low_bits(number));
    Ok(())
}

pub(super) fn destroy(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroyUmemIn,
    _: &mut DestroyUmemOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let number = input.umem_id().value();
    // Every part cut from an object holds a reference to it.
    if Arc::strong_count(object(nic, number)?) > 1 {
        return Err(syndrome::UMEM_BUSY);
    }
    nic.user_memory.remove(number);
    Ok(())
}
