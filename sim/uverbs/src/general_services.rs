//! The kernel's general services queue pair (IBTA v1.4 §3.9.2): sends and receives MADs as queue pair 1 of the port,
//! like `mlx5_ib`. It works through the device like any queue pair, from kernel memory.

use crate::commands::{Command, CommandFailure, CommandQueue};
use crate::kernel_completions::KernelCompletions;
use crate::kernel_memory::{PAGE, page_list};
use crate::key_changes::KernelObjects;
use crate::process::Process;
use alloc::vec::Vec;
use bareverbs_cm::Sender;
use bareverbs_prm::command::mkey::{CreateMkeyIn, CreateMkeyOut};
use bareverbs_prm::command::pd::{AllocPdIn, AllocPdOut};
use bareverbs_prm::command::qp::{CreateQpIn, CreateQpOut, ResetToInitQpIn, ResetToInitQpOut};
use bareverbs_prm::command::uar::{AllocUarIn, AllocUarOut};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::cqe::CompletionEntry;
use bareverbs_prm::doorbell::{UAR_PAGE_SIZE, send_doorbell, uar};
use bareverbs_prm::ids::{Cqn, Eqn, Gid, MacAddress, Mkey, Pdn, Qpn, UarIndex};
use bareverbs_prm::numbering::{
    CommandOpcode, CqeOpcode, MkeyAccessMode, PathMigration, PathMtu, ServiceType, WqeOpcode,
};
use bareverbs_prm::time::Time;
use bareverbs_prm::wqe::{
    AddressVector, BASIC_BLOCK, ControlSegment, DataSegment, InlineHeader, SEGMENT, completion_mode,
};
use bareverbs_sim::nic::{HostMemory, LinkLayer};
use zerocopy::IntoBytes;

/// Bytes of a management datagram, and of what precedes it in a receive.
const DATAGRAM: usize = 256;
const ROUTE_HEADER: usize = 40;
/// Offset of the source address of an IPv4 header, which is at the end of the route header's room, and of an
/// IPv6 header.
const IPV4_HEADER_AT: usize = 20;
const IPV4_SOURCE: usize = 12;
const IPV6_SOURCE: usize = 8;
/// `roce_l3_header_type` of a datagram behind an IPv4 header.
const IPV4: u8 = 2;
/// Number of posted receives, logarithm, and bytes of each.
const LOG_RECEIVES: u8 = 6;
const RECEIVES: u16 = 1 << LOG_RECEIVES;
const RECEIVE_STRIDE: u64 = 512;
/// A send takes this many blocks: control segment, address vector and the inline datagram.
const SEGMENTS: usize = 1 + 3 + (size_of::<InlineHeader>() + DATAGRAM).div_ceil(SEGMENT);
const BLOCKS: u16 = (SEGMENTS * SEGMENT).div_ceil(BASIC_BLOCK) as u16;
/// Blocks of the send queue.
const LOG_SEND_BLOCKS: u8 = 8;
const SEND_BLOCKS: u16 = 1 << LOG_SEND_BLOCKS;
/// Q_Key of general services (IBTA v1.4 §9.2.4), and the queue pair number that they have at every port.
const Q_KEY: u32 = 0x8001_0000;
const GENERAL_SERVICES: Qpn = Qpn::from_low_bits(1);
const HOPS: u8 = 64;
/// First UDP port of RoCEv2.
const SOURCE_PORT: u16 = 0xc000;
const PORT: u8 = 1;
/// Any queue pair may use the key.
const ANY_QUEUE_PAIR: Qpn = Qpn::from_low_bits(0xff_ffff);
const OWN_RECEIVES: u8 = 0;

/// An outgoing management datagram.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) receiver: Receiver,
    pub(crate) payload: &'a [u8; DATAGRAM],
}

/// The receiver of a management datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiver {
    Ethernet {
        mac: MacAddress,
        gid: Gid,
        /// Index of its source in the own GID table.
        source_index: u8,
    },
    /// By LID, within the subnet.
    InfiniBand { lid: u16 },
}

/// A management datagram that has arrived.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) sender: Sender,
    pub(crate) payload: [u8; DATAGRAM],
}

/// The queue pair; see the module's comment.
#[derive(Debug)]
pub(crate) struct GeneralServices {
    qpn: Qpn,
    completions: KernelCompletions,
    key: Mkey,
    pd: Pdn,
    page: UarIndex,
    places: Places,
    /// Blocks of sends that were posted, and of those that have completed.
    posted: u16,
    completed: u16,
    received: u16,
}

/// The objects that the queue pair uses.
struct Uses {
    pd: Pdn,
    cqn: Cqn,
    page: UarIndex,
}

/// Addresses in the kernel's memory.
#[derive(Debug, Clone, Copy)]
struct Places {
    queues: u64,
    record: u64,
    receives: u64,
}

impl Places {
    fn allocate(commands: &mut CommandQueue) -> Self {
        let pages = |bytes: usize| bytes.div_ceil(PAGE as usize);
        let queues = (SEGMENT << LOG_RECEIVES) + (BASIC_BLOCK << LOG_SEND_BLOCKS);
        Self {
            queues: commands.kernel.allocate(pages(queues)),
            record: commands.kernel.allocate(1),
            receives: commands.kernel.allocate(pages((RECEIVE_STRIDE << LOG_RECEIVES) as usize)),
        }
    }

    /// The send queue follows the receive queue.
    const fn sends(&self) -> u64 {
        self.queues + ((SEGMENT as u64) << LOG_RECEIVES)
    }
}

impl GeneralServices {
    /// Creates the queue pair and everything that it needs, and posts its receives.
    pub(crate) fn create<P: Process>(
        commands: &mut CommandQueue,
        process: &mut P,
        events: Eqn,
    ) -> Result<Self, CommandFailure> {
        let places = Places::allocate(commands);
        let alloc = Command::new(CommandOpcode::AllocUar, 0, &AllocUarIn::new());
        let page = commands.run::<_, AllocUarOut>(process, &alloc)?.uar();
        let alloc = Command::new(CommandOpcode::AllocPd, 0, &AllocPdIn::new());
        let pd = commands.run::<_, AllocPdOut>(process, &alloc)?.pd();
        let key = create_key(commands, process, pd)?;
        let completions = KernelCompletions::create(commands, process, page, events)?;
        let qpn = create_queue(commands, process, &places, &Uses { pd, cqn: completions.number(), page })?;
        let mut services =
            Self { qpn, completions, key, pd, page, places, posted: 0, completed: 0, received: 0 };
        services.bring_up(commands, process)?;
        for _ in 0..RECEIVES {
            services.post_receive(commands);
        }
        let now = process.now();
        services.completions.arm(commands, now, process);
        Ok(services)
    }

    /// The objects that the kernel's other queue pairs use as well.
    pub(crate) const fn kernel_objects(&self, events: Eqn) -> KernelObjects {
        KernelObjects { pd: self.pd, page: self.page, events }
    }

    /// The completion queue, which events name.
    pub(crate) const fn completion_queue(&self) -> Cqn {
        self.completions.number()
    }

    fn bring_up<P: Process>(
        &self,
        commands: &mut CommandQueue,
        process: &mut P,
    ) -> Result<(), CommandFailure> {
        let mut context = QueuePairContext::new();
        context.set_pm_state(PathMigration::Migrated).set_q_key(Q_KEY);
        context.set_mtu(PathMtu::Mtu256).set_log_msg_max(DATAGRAM.ilog2() as u8);
        context.primary_address_path_mut().set_vhca_port_num(PORT);
        for step in [CommandOpcode::ResetToInitQp, CommandOpcode::InitToRtrQp, CommandOpcode::RtrToRtsQp] {
            // The commands of all transitions share one layout.
            let mut input = ResetToInitQpIn::new();
            input.set_qpn(self.qpn).qpc_mut().clone_from(&context);
            commands.run::<_, ResetToInitQpOut>(process, &Command::new(step, 0, &input))?;
        }
        Ok(())
    }

    fn post_receive(&mut self, commands: &mut CommandQueue) {
        let slot = u64::from(self.received % RECEIVES);
        let mut segment = DataSegment::new();
        segment.set_byte_count((ROUTE_HEADER + DATAGRAM) as u32).set_lkey(self.key);
        segment.set_address(self.places.receives + slot * RECEIVE_STRIDE);
        commands.kernel.put(self.places.queues + slot * SEGMENT as u64, segment.as_bytes());
        self.received = self.received.wrapping_add(1);
        commands.kernel.put(self.places.record, &u32::from(self.received).to_be_bytes());
    }

    /// Whether there is room for a datagram.
    pub(crate) const fn has_room(&self) -> bool {
        self.posted.wrapping_sub(self.completed) + BLOCKS <= SEND_BLOCKS - BLOCKS
    }

    /// Posts a datagram. The caller has checked [`Self::has_room`].
    pub(crate) fn send<P: Process>(
        &mut self,
        commands: &mut CommandQueue,
        now: Time,
        process: &mut P,
        datagram: &Outgoing<'_>,
    ) {
        let entry = self.entry(datagram);
        for (block, bytes) in (self.posted..).zip(entry.chunks(BASIC_BLOCK)) {
            let at = u64::from(block % SEND_BLOCKS) * BASIC_BLOCK as u64;
            commands.kernel.put(self.places.sends() + at, bytes);
        }
        self.posted = self.posted.wrapping_add(BLOCKS);
        commands.kernel.put(self.places.record + 4, &u32::from(self.posted).to_be_bytes());
        let register = u64::from(self.page.value()) * UAR_PAGE_SIZE as u64 + uar::SEND as u64;
        commands.write_register(now, process, register, &send_doorbell(self.qpn).to_be_bytes());
    }

    /// Builds a send WQE.
    fn entry(&self, datagram: &Outgoing<'_>) -> Vec<u8> {
        let mut control = ControlSegment::new();
        control.set_wqe_index(self.posted).set_opcode(WqeOpcode::Send).set_qpn(self.qpn);
        control.set_ds(SEGMENTS as u8).set_completion_mode(completion_mode::ALWAYS);
        let mut address = AddressVector::new();
        address.set_qkey(Q_KEY).set_extended(true).set_dqpn(GENERAL_SERVICES);
        match datagram.receiver {
            Receiver::Ethernet { mac, gid, source_index } => {
                address.set_udp_sport(SOURCE_PORT).set_remote_mac(mac).set_hop_limit(HOPS).set_rgid(gid.0);
                address.set_grh(true).set_sgid_index(source_index);
            }
            Receiver::InfiniBand { lid } => {
                address.set_rlid(lid);
            }
        }
        let mut inline = InlineHeader::new();
        inline.set_inline(true).set_byte_count(DATAGRAM as u16);
        let parts = [control.as_bytes(), address.as_bytes(), inline.as_bytes(), datagram.payload];
        let mut entry = parts.concat();
        entry.resize(SEGMENTS * SEGMENT, 0);
        entry
    }

    /// Takes all completions, returns the datagrams that have arrived, and arms the queue again.
    pub(crate) fn drain<P: Process>(
        &mut self,
        commands: &mut CommandQueue,
        now: Time,
        process: &mut P,
    ) -> Vec<Incoming> {
        let mut datagrams = Vec::new();
        while let Some(entry) = self.completions.next(commands) {
            match entry.opcode() {
                CqeOpcode::Requester => self.completed = entry.wqe_counter().wrapping_add(BLOCKS),
                CqeOpcode::ResponderSend => {
                    let slot = u64::from(entry.wqe_counter() % RECEIVES);
                    datagrams.extend(self.read(commands, slot, &entry));
                    self.post_receive(commands);
                }
                // A datagram that was too long has used up its receive.
                CqeOpcode::ResponderError => self.post_receive(commands),
                _ => {}
            }
        }
        self.completions.arm(commands, now, process);
        datagrams
    }

    /// The datagram in a receive; `None` if it is shorter than a management datagram.
    fn read(&self, commands: &mut CommandQueue, slot: u64, entry: &CompletionEntry) -> Option<Incoming> {
        let mut bytes = [0; ROUTE_HEADER + DATAGRAM];
        if entry.byte_count() as usize != bytes.len() {
            return None;
        }
        commands.kernel.read(self.places.receives + slot * RECEIVE_STRIDE, &mut bytes).ok()?;
        let (header, payload) = bytes.split_at(ROUTE_HEADER);
        Some(Incoming { sender: sender(commands, header, entry), payload: payload.try_into().ok()? })
    }
}

/// The sender of a datagram.
fn sender(commands: &CommandQueue, header: &[u8], entry: &CompletionEntry) -> Sender {
    if commands.nic.config().link_layer == LinkLayer::InfiniBand && entry.grh() == 0 {
        return Sender::Lid(entry.slid());
    }
    let mut gid = [0; 16];
    if entry.roce_l3_header_type() == IPV4 {
        let at = IPV4_HEADER_AT + IPV4_SOURCE;
        let mut address = [0; 4];
        address.copy_from_slice(&header[at..at + 4]);
        return Sender::Gid(Gid::from_ipv4(address));
    }
    gid.copy_from_slice(&header[IPV6_SOURCE..IPV6_SOURCE + 16]);
    Sender::Gid(Gid(gid))
}

/// Creates a key for all of the kernel's memory. Only the kernel's queue pairs may use it, because it has
/// their domain.
fn create_key<P: Process>(
    commands: &mut CommandQueue,
    process: &mut P,
    pd: Pdn,
) -> Result<Mkey, CommandFailure> {
    let mut input = CreateMkeyIn::new();
    let context = input.memory_key_mkey_entry_mut();
    context.set_access_mode_1_0(MkeyAccessMode::Pa.raw()).set_pd(pd).set_length64(true);
    context.set_lr(true).set_lw(true).set_qpn(ANY_QUEUE_PAIR);
    let command = Command::new(CommandOpcode::CreateMkey, 0, &input);
    Ok(Mkey::from_parts(commands.run::<_, CreateMkeyOut>(process, &command)?.mkey_index(), 0))
}

fn create_queue<P: Process>(
    commands: &mut CommandQueue,
    process: &mut P,
    places: &Places,
    parts: &Uses,
) -> Result<Qpn, CommandFailure> {
    let mut input = CreateQpIn::new();
    let context = input.qpc_mut();
    context.set_st(ServiceType::Qp1).set_pm_state(PathMigration::Migrated).set_rq_type(OWN_RECEIVES);
    context
        .set_pd(parts.pd)
        .set_cqn_snd(parts.cqn)
        .set_cqn_rcv(parts.cqn)
        .set_uar_page(parts.page)
        .set_dbr_addr(places.record);
    context.set_log_rq_size(LOG_RECEIVES).set_log_rq_stride(0).set_log_sq_size(LOG_SEND_BLOCKS);
    let list = page_list(places.queues, (SEGMENT << LOG_RECEIVES) + (BASIC_BLOCK << LOG_SEND_BLOCKS));
    let command = Command::new(CommandOpcode::CreateQp, 0, &input).list(&list);
    Ok(commands.run::<_, CreateQpOut>(process, &command)?.qpn())
}
