//! Commands that name memory by page lists, rewritten to name user memory: a program may not name pages.
//!
//! Pure. The device addresses in a list are consecutive, because the memory of this place is contiguous for the device.

use super::memory::UserMemoryPlace;
use super::objects::header_of;
use bareverbs_prm::command::cq::{CreateCqIn, ModifyCqIn};
use bareverbs_prm::command::mkey::CreateMkeyIn;
use bareverbs_prm::command::qp::CreateQpIn;
use bareverbs_prm::command::srq::CreateRmpIn;
use bareverbs_prm::numbering::{CommandOpcode, MkeyAccessMode, ServiceType};
use zerocopy::FromBytes;

/// The smallest pages, which are those of user memory.
const PAGE: u64 = 4096;
const LOG_PAGE: u8 = 12;
/// `op_mod` of MODIFY_CQ that gives the queue other memory.
const RESIZE: u16 = 1;
/// Rights in the low bits of an entry of a page list.
const RIGHTS: u64 = 3;

/// Why a command cannot be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Its memory could not be registered: an errno.
    Memory(i32),
    /// It names memory in a way in which a program may not.
    NotForPrograms(&'static str),
}

impl From<i32> for Obstacle {
    fn from(errno: i32) -> Self {
        Self::Memory(errno)
    }
}

/// The memory that a new memory key covers, which needs a registration of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyMemory {
    pub(super) address: u64,
    pub(super) length: u64,
}

/// The memory that a new key covers; `None` if the command creates no key, or one of other keys.
pub(super) fn key_memory(input: &[u8]) -> Result<Option<KeyMemory>, Obstacle> {
    if header_of(input).opcode() != CommandOpcode::CreateMkey {
        return Ok(None);
    }
    let (command, list) = CreateMkeyIn::read_from_prefix(input).map_err(|_| TOO_SHORT)?;
    let context = command.memory_key_mkey_entry();
    match MkeyAccessMode::from_raw(context.access_mode_4_2() << 2 | context.access_mode_1_0()) {
        MkeyAccessMode::Klms | MkeyAccessMode::Ksm => return Ok(None),
        MkeyAccessMode::Mtt if !context.free() && !context.length64() => {}
        MkeyAccessMode::Mtt => {
            return Err(Obstacle::NotForPrograms("a memory key whose pages work requests bring later"));
        }
        _ => return Err(Obstacle::NotForPrograms("a memory key for bus addresses")),
    }
    let page = 1_u64 << context.log_page_size().min(63);
    let first = first_page(list)?;
    Ok(Some(KeyMemory { address: first | context.start_addr() & (page - 1), length: context.length() }))
}

const TOO_SHORT: Obstacle = Obstacle::NotForPrograms("a command that is too short");

/// The first page of a list.
fn first_page(list: &[u8]) -> Result<u64, Obstacle> {
    let (entry, _) = u64::read_from_prefix(list).map_err(|_| TOO_SHORT)?;
    Ok(u64::from_be(entry) & !RIGHTS)
}

/// Makes CREATE_MKEY take the registration `id`, from its first byte on.
pub(super) fn use_key_memory(input: &mut Vec<u8>, id: u32) {
    if let Ok((command, _)) = CreateMkeyIn::mut_from_prefix(input) {
        command.set_mkey_umem_valid(true).set_mkey_umem_id(id).set_mkey_umem_offset(0);
        let context = command.memory_key_mkey_entry_mut();
        let lead = context.start_addr() % PAGE;
        let pages = context.length().saturating_add(lead).div_ceil(PAGE);
        let octwords = u32::try_from(pages.div_ceil(2)).unwrap_or(u32::MAX);
        context.set_log_page_size(LOG_PAGE).set_translations_octword_size(octwords);
        command.set_translations_octword_actual_size(octwords);
        input.truncate(CreateMkeyIn::SIZE);
    }
}

/// Makes a command that gives memory to a queue take it from user memory, at the place that `locate` tells for a device address.
pub(super) fn use_queue_memory(
    input: &mut Vec<u8>,
    mut locate: impl FnMut(u64) -> Result<UserMemoryPlace, i32>,
) -> Result<(), Obstacle> {
    let header = header_of(input);
    let length = match header.opcode() {
        CommandOpcode::CreateCq => {
            let (command, list) = CreateCqIn::mut_from_prefix(input).map_err(|_| TOO_SHORT)?;
            let ring = locate(first_page(list)?)?;
            command.set_cq_umem_valid(true).set_cq_umem_id(ring.id).set_cq_umem_offset(ring.offset);
            let context = command.cq_context_mut();
            let record = locate(context.dbr_addr())?;
            context.set_dbr_umem_valid(true).set_dbr_umem_id(record.id).set_dbr_addr(record.offset);
            context.set_log_page_size(0);
            CreateCqIn::SIZE
        }
        CommandOpcode::ModifyCq if header.op_mod() == RESIZE => {
            let (command, list) = ModifyCqIn::mut_from_prefix(input).map_err(|_| TOO_SHORT)?;
            let ring = locate(first_page(list)?)?;
            command.set_cq_umem_valid(true).set_cq_umem_id(ring.id).set_cq_umem_offset(ring.offset);
            command.cq_context_mut().set_log_page_size(0);
            ModifyCqIn::SIZE
        }
        CommandOpcode::CreateQp => {
            let (command, list) = CreateQpIn::mut_from_prefix(input).map_err(|_| TOO_SHORT)?;
            if command.qpc().st() == ServiceType::Xrc {
                return Err(Obstacle::NotForPrograms("a queue pair of XRC"));
            }
            let rings = locate(first_page(list)?)?;
            command.set_wq_umem_valid(true).set_wq_umem_id(rings.id).set_wq_umem_offset(rings.offset);
            let context = command.qpc_mut();
            let record = locate(context.dbr_addr())?;
            context.set_dbr_umem_valid(true).set_dbr_umem_id(record.id).set_dbr_addr(record.offset);
            context.set_log_page_size(0);
            CreateQpIn::SIZE
        }
        CommandOpcode::CreateRmp => {
            let (command, list) = CreateRmpIn::mut_from_prefix(input).map_err(|_| TOO_SHORT)?;
            let ring = locate(first_page(list)?)?;
            let queue = command.ctx_mut().wq_mut();
            let record = locate(queue.dbr_addr())?;
            queue.set_wq_umem_valid(true).set_wq_umem_id(ring.id).set_wq_umem_offset(ring.offset);
            queue.set_dbr_umem_valid(true).set_dbr_umem_id(record.id).set_dbr_addr(record.offset);
            queue.set_log_wq_pg_sz(0);
            CreateRmpIn::SIZE
        }
        _ => return Ok(()),
    };
    input.truncate(length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    /// Memory at 0x10_0000 is object 7.
    fn locate(address: u64) -> Result<UserMemoryPlace, i32> {
        let offset =
            address.checked_sub(0x10_0000).filter(|offset| *offset < 0x10_0000).ok_or(libc::EFAULT)?;
        Ok(UserMemoryPlace { id: 7, offset })
    }

    fn with_list(command: &[u8], pages: &[u64]) -> Vec<u8> {
        let list: Vec<u8> = pages.iter().flat_map(|page| page.to_be_bytes()).collect();
        [command, &list].concat()
    }

    #[test]
    fn a_queue_pair_names_its_rings_and_its_record() {
        let mut command = CreateQpIn::new();
        command.set_opcode(CommandOpcode::CreateQp);
        command.qpc_mut().set_st(ServiceType::Rc).set_log_page_size(4).set_dbr_addr(0x14_0080);
        let mut input = with_list(command.as_bytes(), &[0x12_0000, 0x13_0000]);
        use_queue_memory(&mut input, locate).unwrap();
        assert_eq!(input.len(), CreateQpIn::SIZE, "the list is gone");
        let command = CreateQpIn::read_from_bytes(&input).unwrap();
        let context = command.qpc();
        assert_eq!((command.wq_umem_id(), command.wq_umem_offset()), (7, 0x2_0000));
        assert_eq!((context.dbr_umem_id(), context.dbr_addr()), (7, 0x4_0080));
        assert!(command.wq_umem_valid() && context.dbr_umem_valid() && context.log_page_size() == 0);
    }

    #[test]
    fn memory_that_is_not_mapped_is_refused() {
        let mut command = CreateCqIn::new();
        command.set_opcode(CommandOpcode::CreateCq).cq_context_mut().set_dbr_addr(0x10_0000);
        let mut input = with_list(command.as_bytes(), &[0x30_0000]);
        assert_eq!(use_queue_memory(&mut input, locate), Err(Obstacle::Memory(libc::EFAULT)));
        assert_eq!(use_queue_memory(&mut command.as_bytes().to_vec(), locate), Err(TOO_SHORT));
    }

    #[test]
    fn a_key_begins_where_its_address_says() {
        let mut command = CreateMkeyIn::new();
        command.set_opcode(CommandOpcode::CreateMkey);
        let context = command.memory_key_mkey_entry_mut();
        context.set_access_mode_1_0(MkeyAccessMode::Mtt.raw()).set_log_page_size(16);
        context.set_start_addr(0x7_2345).set_length(0x2_0000);
        let mut input = with_list(command.as_bytes(), &[0x15_0003, 0x16_0003, 0x17_0003]);
        let memory = KeyMemory { address: 0x15_2345, length: 0x2_0000 };
        assert_eq!(key_memory(&input), Ok(Some(memory)));
        use_key_memory(&mut input, 9);
        let command = CreateMkeyIn::read_from_bytes(&input).unwrap();
        assert!(command.mkey_umem_valid());
        assert_eq!((command.mkey_umem_id(), command.mkey_umem_offset()), (9, 0));
        let context = command.memory_key_mkey_entry();
        assert_eq!((context.log_page_size(), context.translations_octword_size()), (12, 17));
    }

    #[test]
    fn keys_of_keys_pass_and_keys_without_memory_do_not() {
        let mut command = CreateMkeyIn::new();
        command.set_opcode(CommandOpcode::CreateMkey);
        command.memory_key_mkey_entry_mut().set_access_mode_1_0(MkeyAccessMode::Klms.raw());
        assert_eq!(key_memory(command.as_bytes()), Ok(None));
        command.memory_key_mkey_entry_mut().set_access_mode_1_0(MkeyAccessMode::Pa.raw());
        assert!(matches!(key_memory(command.as_bytes()), Err(Obstacle::NotForPrograms(_))));
        command.memory_key_mkey_entry_mut().set_access_mode_1_0(MkeyAccessMode::Mtt.raw()).set_free(true);
        assert!(matches!(key_memory(command.as_bytes()), Err(Obstacle::NotForPrograms(_))));
    }
}
