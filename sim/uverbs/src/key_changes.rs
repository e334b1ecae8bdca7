//! The kernel's queue pair for memory key updates by work requests (UMR), like in `mlx5_ib`: a region keeps its key
//! when its access rights or its domain change (`mlx5r_umr_rereg_pd_access`).

use crate::Errno;
use crate::commands::{Command, CommandFailure, CommandQueue};
use crate::kernel_completions::KernelCompletions;
use crate::kernel_memory::page_list;
use crate::process::Process;
use bareverbs_prm::command::qp::{CreateQpIn, CreateQpOut, ResetToInitQpIn, ResetToInitQpOut};
use bareverbs_prm::context::{MkeyContext, QueuePairContext};
use bareverbs_prm::doorbell::{UAR_PAGE_SIZE, uar};
use bareverbs_prm::ids::{Eqn, Mkey, Pdn, Qpn, UarIndex};
use bareverbs_prm::numbering::{CommandOpcode, CqeOpcode, PathMigration, ServiceType, WqeOpcode};
use bareverbs_prm::wqe::{
    BASIC_BLOCK, ControlSegment, KeyUpdateSegment, SEGMENT, completion_mode, umr_flags,
};
use zerocopy::IntoBytes;

/// Blocks of the send queue, and of a change: control, update, context.
const LOG_BLOCKS: u8 = 3;
const ENTRY: usize = size_of::<ControlSegment>() + size_of::<KeyUpdateSegment>() + size_of::<MkeyContext>();
const ENTRY_BLOCKS: u16 = ENTRY.div_ceil(BASIC_BLOCK) as u16;
const BYTES: usize = BASIC_BLOCK << LOG_BLOCKS;
const NO_RECEIVES: u8 = 3;
const PORT: u8 = 1;
/// Most packets of other queue pairs that a change waits for.
const MOST_TURNS: usize = 4096;

/// The parts of a key that change.
#[derive(Debug)]
pub(crate) struct KeyChange {
    pub(crate) key: Mkey,
    /// See `bareverbs_prm::wqe::mkey_mask`.
    pub(crate) mask: u64,
    pub(crate) context: MkeyContext,
}

/// The kernel's objects that the queue pair uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelObjects {
    pub(crate) pd: Pdn,
    pub(crate) page: UarIndex,
    pub(crate) events: Eqn,
}

/// The queue pair; see the module's comment.
#[derive(Debug)]
pub(crate) struct KeyChanges {
    qpn: Qpn,
    page: UarIndex,
    completions: KernelCompletions,
    queue: u64,
    record: u64,
    /// Blocks that were posted. Each change is waited for, so the queue is empty before the next.
    posted: u16,
}

impl KeyChanges {
    pub(crate) fn create<P: Process>(
        commands: &mut CommandQueue,
        process: &mut P,
        kernel_objects: KernelObjects,
    ) -> Result<Self, CommandFailure> {
        let KernelObjects { pd, page, events } = kernel_objects;
        let completions = KernelCompletions::create(commands, process, page, events)?;
        let (queue, record) = (commands.kernel.allocate(1), commands.kernel.allocate(1));
        let mut input = CreateQpIn::new();
        let context = input.qpc_mut();
        context.set_st(ServiceType::RegUmr).set_pm_state(PathMigration::Migrated).set_rq_type(NO_RECEIVES);
        context.set_pd(pd).set_cqn_snd(completions.number()).set_cqn_rcv(completions.number());
        context.set_uar_page(page).set_dbr_addr(record).set_log_sq_size(LOG_BLOCKS);
        let create = Command::new(CommandOpcode::CreateQp, 0, &input).list(&page_list(queue, BYTES));
        let qpn = commands.run::<_, CreateQpOut>(process, &create)?.qpn();
        let mut context = QueuePairContext::new();
        context.set_pm_state(PathMigration::Migrated).primary_address_path_mut().set_vhca_port_num(PORT);
        for step in [CommandOpcode::ResetToInitQp, CommandOpcode::InitToRtrQp, CommandOpcode::RtrToRtsQp] {
            // The commands of all transitions share one layout.
            let mut input = ResetToInitQpIn::new();
            input.set_qpn(qpn).qpc_mut().clone_from(&context);
            commands.run::<_, ResetToInitQpOut>(process, &Command::new(step, 0, &input))?;
        }
        Ok(Self { qpn, page, completions, queue, record, posted: 0 })
    }

    /// Changes a key and waits for the result. Other queue pairs may send packets first.
    pub(crate) fn run<P: Process>(
        &mut self,
        commands: &mut CommandQueue,
        process: &mut P,
        change: &KeyChange,
    ) -> Result<(), Errno> {
        self.post(commands, process, change);
        for _ in 0..MOST_TURNS {
            let is_busy = commands.send_early(process);
            match self.completions.next(commands).map(|entry| entry.opcode()) {
                Some(CqeOpcode::Requester) => return Ok(()),
                Some(_) => return Err(Errno::Fault),
                None if is_busy => {}
                None => return Err(Errno::Io),
            }
        }
        Err(Errno::Busy)
    }

    fn post<P: Process>(&mut self, commands: &mut CommandQueue, process: &mut P, change: &KeyChange) {
        let mut control = ControlSegment::new();
        control.set_wqe_index(self.posted).set_opcode(WqeOpcode::Umr).set_qpn(self.qpn);
        control.set_ds((ENTRY / SEGMENT) as u8).set_completion_mode(completion_mode::ALWAYS);
        control.set_immediate(change.key.value());
        let mut update = KeyUpdateSegment::new();
        update.set_flags(umr_flags::FAIL_IF_FREE).set_mkey_mask(change.mask);
        let entry = [control.as_bytes(), update.as_bytes(), change.context.as_bytes()].concat();
        for (block, bytes) in (self.posted..).zip(entry.chunks(BASIC_BLOCK)) {
            let at = u64::from(block % (1 << LOG_BLOCKS)) * BASIC_BLOCK as u64;
            commands.kernel.put(self.queue + at, bytes);
        }
        self.posted = self.posted.wrapping_add(ENTRY_BLOCKS);
        commands.kernel.put(self.record + 4, &u32::from(self.posted).to_be_bytes());
        let register = u64::from(self.page.value()) * UAR_PAGE_SIZE as u64 + uar::SEND as u64;
        let doorbell = u64::from(self.qpn.value()) << 8;
        let now = process.now();
        commands.write_register(now, process, register, &doorbell.to_be_bytes());
    }
}
