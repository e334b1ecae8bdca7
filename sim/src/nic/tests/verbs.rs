//! Objects and work requests, written by hand.

use super::host::{CommandResult, Host};
use crate::nic::{LinkLayer, NicConfig};
use bareverbs_prm::command::cq::{CreateCqIn, CreateCqOut};
use bareverbs_prm::command::eq::{CreateEqIn, CreateEqOut};
use bareverbs_prm::command::mkey::{CreateMkeyIn, CreateMkeyOut};
use bareverbs_prm::command::pd::{AllocPdIn, AllocPdOut};
use bareverbs_prm::command::port::{SetRoceAddressIn, SetRoceAddressOut};
use bareverbs_prm::command::qp::{
    CreateQpIn, CreateQpOut, InitToRtrQpIn, QueryQpIn, QueryQpOut, ToErrorQpIn,
};
use bareverbs_prm::command::uar::{AllocUarIn, AllocUarOut};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::cqe::{CQE_SIZE, CompletionEntry, OP_OWN_INITIAL, OP_OWN_OFFSET};
use bareverbs_prm::doorbell::{CqArm, eq_doorbell, send_doorbell, uar};
use bareverbs_prm::eqe::{EQE_SIZE, EventEntry};
use bareverbs_prm::ids::{Cqn, Eqn, Gid, MacAddress, Mkey, MkeyIndex, Pdn, Qpn, UarIndex};
use bareverbs_prm::numbering::{
    CommandOpcode, CqeOpcode, PathMigration, PathMtu, QpState, RoceL3Type, RoceVersion, ServiceType,
    WqeOpcode,
};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::wqe::{
    AddressVector, AtomicSegment, ControlSegment, DataSegment, INVALID_LKEY, InlineHeader,
    RemoteAddressSegment, completion_mode,
};
use zerocopy::IntoBytes;

pub const LOG_SQ: u8 = 6;
pub const LOG_RQ: u8 = 4;
pub const LOG_RQ_STRIDE: u8 = 2;
pub const LOG_CQ: u8 = 8;
pub const MR_SIZE: u64 = 64 << 10;

/// All rights, in the order lr, lw, rr, rw, a.
pub const ALL_RIGHTS: [bool; 5] = [true; 5];

/// An event queue.
pub struct Eq {
    pub eqn: Eqn,
    buffer: u64,
    consumer: u32,
    log_size: u8,
}

/// A completion queue.
pub struct Cq {
    pub cqn: Cqn,
    pub buffer: u64,
    pub record: u64,
    pub consumer: u32,
    pub log_size: u8,
}

/// A queue pair and its rings.
pub struct Qp {
    pub qpn: Qpn,
    pub buffer: u64,
    pub record: u64,
    pub posted: u16,
    pub received: u16,
}

/// A memory region.
#[derive(Clone, Copy)]
pub struct Mr {
    pub key: Mkey,
    pub va: u64,
    pub iova: u64,
}

/// A booted host with one object of every kind.
pub struct Node {
    pub host: Host,
    pub uar: UarIndex,
    pub pd: Pdn,
    pub eq: Eq,
    pub cq: Cq,
    pub qp: Qp,
    pub mr: Mr,
    pub gid: Gid,
    pub mac: MacAddress,
}

/// One data segment.
#[derive(Clone, Copy)]
pub struct Sge {
    pub address: u64,
    pub length: u32,
    pub key: Mkey,
}

impl Mr {
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { address: self.va + offset, length, key: self.key }
    }
}

impl Node {
    pub fn new(number: u8, config: NicConfig) -> Self {
        let mac = MacAddress([2, 0, 0, 0, 0, number]);
        let mut host = Host::booted(NicConfig { mac, ..config });
        let (uar, _): (AllocUarOut, _) = host.run(CommandOpcode::AllocUar, 0, AllocUarIn::new()).unwrap();
        let (pd, _): (AllocPdOut, _) = host.run(CommandOpcode::AllocPd, 0, AllocPdIn::new()).unwrap();
        let (uar, pd) = (uar.uar(), pd.pd());
        let gid = Gid::from_ipv4([10, 0, 0, number]);
        if config.link_layer == LinkLayer::Ethernet {
            set_gid(&mut host, 1, gid, mac);
        }
        let eq = create_eq(&mut host, uar, 6, !(1 << 10)).unwrap();
        let cq = create_cq(&mut host, uar, eq.eqn, LOG_CQ).unwrap();
        let qp = create_qp(&mut host, uar, pd, cq.cqn, |_| {}).unwrap();
        let mr = create_mr(&mut host, pd, ALL_RIGHTS);
        Self { host, uar, pd, eq, cq, qp, mr, gid, mac }
    }

    /// Writes a send WQE: segments, padded to basic blocks.
    pub fn write_wqe(&mut self, opcode: WqeOpcode, edit: impl Fn(&mut ControlSegment), segments: &[u8]) {
        let mut control = ControlSegment::new();
        control.set_opcode(opcode).set_wqe_index(self.qp.posted).set_qpn(self.qp.qpn);
        control.set_ds((1 + segments.len().div_ceil(16)) as u8).set_completion_mode(completion_mode::ALWAYS);
        edit(&mut control);
        let mut bytes = control.as_bytes().to_vec();
        bytes.extend_from_slice(segments);
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        self.write_blocks(&bytes);
    }

    /// Writes basic blocks into the ring, across its end if necessary.
    pub fn write_blocks(&mut self, bytes: &[u8]) {
        let ring = self.send_ring();
        for block in bytes.chunks_exact(64) {
            let slot = u64::from(self.qp.posted) & ((1 << LOG_SQ) - 1);
            self.host.memory.put(ring + slot * 64, block);
            self.qp.posted = self.qp.posted.wrapping_add(1);
        }
        let counter = u32::from(self.qp.posted).to_be_bytes();
        self.host.memory.put(self.qp.record + 4, &counter);
    }

    pub fn send_ring(&self) -> u64 {
        self.qp.buffer + (1 << (LOG_RQ + 4 + LOG_RQ_STRIDE))
    }

    /// Rings the send doorbell.
    pub fn ring(&mut self) {
        let at = u64::from(self.uar.value()) * 4096 + uar::SEND as u64;
        self.host.write_bytes(at, &send_doorbell(self.qp.qpn).to_be_bytes());
    }

    pub fn post(&mut self, opcode: WqeOpcode, segments: &[u8]) {
        self.write_wqe(opcode, |_| {}, segments);
        self.ring();
    }

    /// Posts a receive.
    pub fn post_receive(&mut self, list: &[Sge]) {
        let stride = 16u64 << LOG_RQ_STRIDE;
        let slot = u64::from(self.qp.received) & ((1 << LOG_RQ) - 1);
        let mut bytes: Vec<u8> = list.iter().flat_map(|sge| data(*sge)).collect();
        if bytes.len() < stride as usize {
            bytes.extend(data(Sge { address: 0, length: 0, key: INVALID_LKEY }));
        }
        self.host.memory.put(self.qp.buffer + slot * stride, &bytes);
        self.qp.received = self.qp.received.wrapping_add(1);
        self.host.memory.put(self.qp.record, &u32::from(self.qp.received).to_be_bytes());
    }

    /// The next completion, if there is one.
    pub fn poll(&mut self) -> Option<CompletionEntry> {
        poll_cq(&mut self.host, &mut self.cq)
    }

    /// The next completion, which must be there.
    #[track_caller]
    pub fn expect(&mut self) -> CompletionEntry {
        self.poll().expect("a completion")
    }

    #[track_caller]
    pub fn expect_none(&mut self) {
        if let Some(entry) = self.poll() {
            panic!("an unexpected completion: {entry:?}");
        }
    }

    /// The next event, if there is one.
    pub fn poll_event(&mut self) -> Option<EventEntry> {
        poll_eq(&self.host, &mut self.eq)
    }

    pub fn arm_cq(&mut self, solicited_only: bool) {
        let arm = CqArm { sequence: 0, solicited_only, consumer_index: self.cq.consumer, cqn: self.cq.cqn };
        let at = u64::from(self.uar.value()) * 4096 + uar::CQ_ARM as u64;
        self.host.write_bytes(at, &arm.to_raw().to_be_bytes());
    }

    pub fn arm_eq(&mut self) {
        let at = u64::from(self.uar.value()) * 4096 + uar::EQ_ARM as u64;
        let value = eq_doorbell(self.eq.eqn, self.eq.consumer);
        self.host.write_bytes(at, &value.to_be_bytes());
    }

    pub fn state(&mut self) -> QpState {
        let mut input = QueryQpIn::new();
        input.set_qpn(self.qp.qpn);
        let (output, _): (QueryQpOut, _) = self.host.run(CommandOpcode::QueryQp, 0, input).unwrap();
        output.qpc().state()
    }

    /// Runs a modify command; all of them share one layout.
    pub fn modify(
        &mut self,
        opcode: CommandOpcode,
        edit: impl Fn(&mut QueuePairContext),
    ) -> CommandResult<[u8; 16]> {
        let mut input = InitToRtrQpIn::new();
        input.set_qpn(self.qp.qpn);
        edit(input.qpc_mut());
        self.host.run(opcode, 0, input)
    }

    pub fn short(&mut self, opcode: CommandOpcode) -> CommandResult<[u8; 16]> {
        let mut input = ToErrorQpIn::new();
        input.set_qpn(self.qp.qpn);
        self.host.run(opcode, 0, input)
    }

    /// Moves the queue pair to RTS.
    pub fn connect(&mut self, remote: (Qpn, Gid, MacAddress), edit: impl Fn(&mut QueuePairContext) + Copy) {
        self.modify(CommandOpcode::ResetToInitQp, |c| init(c, edit)).unwrap();
        self.modify(CommandOpcode::InitToRtrQp, |c| rtr(c, remote, edit)).unwrap();
        self.modify(CommandOpcode::RtrToRtsQp, |c| rts(c, edit)).unwrap();
    }
}

pub fn init(context: &mut QueuePairContext, edit: impl Fn(&mut QueuePairContext)) {
    context.set_rre(true).set_rwe(true).set_rae(true).set_pm_state(PathMigration::Migrated);
    context.primary_address_path_mut().set_vhca_port_num(1);
    edit(context);
}

pub fn rtr(
    context: &mut QueuePairContext,
    (qpn, gid, mac): (Qpn, Gid, MacAddress),
    edit: impl Fn(&mut QueuePairContext),
) {
    context.set_mtu(PathMtu::Mtu1024).set_log_msg_max(30).set_remote_qpn(qpn);
    context.set_next_rcv_psn(Psn::new(0xff_fff0)).set_log_rra_max(4).set_min_rnr_nak(1);
    let path = context.primary_address_path_mut();
    path.set_rgid_rip(gid.0).set_rmac_47_32(mac.high()).set_rmac_31_0(mac.low()).set_src_addr_index(1);
    path.set_hop_limit(64);
    edit(context);
}

pub fn rts(context: &mut QueuePairContext, edit: impl Fn(&mut QueuePairContext)) {
    context.set_next_send_psn(Psn::new(0xff_fff0)).set_retry_count(7).set_rnr_retry(7).set_log_sra_max(4);
    context.primary_address_path_mut().set_ack_timeout(14);
    edit(context);
}

/// A buffer and its page list.
fn paged(host: &mut Host, length: u64) -> (u64, Vec<u8>) {
    let pages = length.div_ceil(4096);
    let first = host.memory.allocate(pages * 4096);
    let list = (0..pages).flat_map(|page| (first + page * 4096).to_be_bytes()).collect();
    (first, list)
}

pub fn set_gid(host: &mut Host, index: u16, gid: Gid, mac: MacAddress) {
    let mut input = SetRoceAddressIn::new();
    input.set_roce_address_index(index);
    let kind = if gid.to_ipv4().is_some() { RoceL3Type::Ipv4 } else { RoceL3Type::Ipv6 };
    let entry = input.roce_address_mut();
    entry.set_source_l3_address(gid.0).set_roce_l3_type(kind).set_roce_version(RoceVersion::Version2);
    entry.set_source_mac_47_32(mac.high()).set_source_mac_31_0(mac.low());
    host.run::<_, SetRoceAddressOut>(CommandOpcode::SetRoceAddress, 0, input).unwrap();
}

/// An event queue for the event types whose bits are set in `mask`.
pub fn create_eq(host: &mut Host, uar: UarIndex, log_size: u8, mask: u64) -> Result<Eq, u32> {
    let (buffer, list) = paged(host, 64 << log_size);
    for slot in 0..1u64 << log_size {
        let mut entry = EventEntry::new();
        host.memory.put(buffer + slot * EQE_SIZE as u64, entry.set_owner(true).as_bytes());
    }
    let mut input = CreateEqIn::new();
    input.eq_context_entry_mut().set_log_eq_size(log_size).set_uar_page(uar).set_intr(5);
    let mut bitmask = [0; 32];
    bitmask[..8].copy_from_slice(&mask.to_be_bytes());
    input.set_event_bitmask(bitmask);
    let (output, _): (CreateEqOut, _) =
        host.command(CommandOpcode::CreateEq, 0, input, &list, 16).map_err(|(_, syndrome)| syndrome)?;
    Ok(Eq { eqn: output.eq_number(), buffer, consumer: 0, log_size })
}

/// Marks all entries of a completion queue as not written.
pub fn clear_cq(host: &mut Host, buffer: u64, log_size: u8) {
    for slot in 0..1u64 << log_size {
        host.memory.put(op_own(buffer, slot), &[OP_OWN_INITIAL]);
    }
}

/// Address of the byte with opcode and owner of an entry.
pub const fn op_own(buffer: u64, slot: u64) -> u64 {
    buffer + slot * CQE_SIZE as u64 + OP_OWN_OFFSET as u64
}

pub fn create_cq(host: &mut Host, uar: UarIndex, eqn: Eqn, log_size: u8) -> Result<Cq, u32> {
    let (buffer, list) = paged(host, 64 << log_size);
    clear_cq(host, buffer, log_size);
    let record = host.memory.allocate(8);
    let mut input = CreateCqIn::new();
    let context = input.cq_context_mut();
    context.set_log_cq_size(log_size).set_uar_page(uar).set_c_eqn_or_apu_element(eqn.value());
    context.set_dbr_addr(record);
    let (output, _): (CreateCqOut, _) =
        host.command(CommandOpcode::CreateCq, 0, input, &list, 16).map_err(|(_, syndrome)| syndrome)?;
    Ok(Cq { cqn: output.cqn(), buffer, record, consumer: 0, log_size })
}

pub fn create_qp(
    host: &mut Host,
    uar: UarIndex,
    pd: Pdn,
    cqn: Cqn,
    edit: impl Fn(&mut QueuePairContext),
) -> Result<Qp, u32> {
    let length = (1u64 << (LOG_RQ + 4 + LOG_RQ_STRIDE)) + (64 << LOG_SQ);
    let (buffer, list) = paged(host, length);
    let record = host.memory.allocate(8);
    let mut input = CreateQpIn::new();
    let context = input.qpc_mut();
    context.set_st(ServiceType::Rc).set_pd(pd).set_uar_page(uar).set_cqn_snd(cqn).set_cqn_rcv(cqn);
    context.set_log_sq_size(LOG_SQ).set_log_rq_size(LOG_RQ).set_log_rq_stride(LOG_RQ_STRIDE);
    context.set_dbr_addr(record).set_user_index(0xabcdef).set_pm_state(PathMigration::Migrated);
    edit(context);
    let (output, _): (CreateQpOut, _) =
        host.command(CommandOpcode::CreateQp, 0, input, &list, 16).map_err(|(_, syndrome)| syndrome)?;
    Ok(Qp { qpn: output.qpn(), buffer, record, posted: 0, received: 0 })
}

/// A region of [`MR_SIZE`] bytes at a virtual address that differs from its I/O virtual address.
pub fn create_mr(host: &mut Host, pd: Pdn, rights: [bool; 5]) -> Mr {
    let iova = host.memory.allocate(MR_SIZE);
    let va = 0x7f00_0000_0000;
    let list: Vec<u8> =
        (0..MR_SIZE / 4096).flat_map(|page| ((iova + page * 4096) | 3).to_be_bytes()).collect();
    let mut input = CreateMkeyIn::new();
    input.set_translations_octword_actual_size((MR_SIZE / 8192) as u32);
    let context = input.memory_key_mkey_entry_mut();
    let [lr, lw, rr, rw, a] = rights;
    context.set_lr(lr).set_lw(lw).set_rr(rr).set_rw(rw).set_a(a).set_access_mode_1_0(1);
    context.set_qpn(Qpn::from_low_bits(0xff_ffff)).set_mkey_7_0(0x42).set_pd(pd).set_umr_en(true);
    context.set_start_addr(va).set_length(MR_SIZE).set_log_page_size(12);
    context.set_translations_octword_size((MR_SIZE / 8192) as u32);
    let (output, _): (CreateMkeyOut, _) =
        host.command(CommandOpcode::CreateMkey, 0, input, &list, 16).unwrap();
    Mr { key: Mkey::from_parts(MkeyIndex::from_low_bits(output.mkey_index().value()), 0x42), va, iova }
}

pub fn poll_cq(host: &mut Host, cq: &mut Cq) -> Option<CompletionEntry> {
    let slot = u64::from(cq.consumer) & ((1 << cq.log_size) - 1);
    let entry: CompletionEntry = host.memory.load(cq.buffer + slot * 64);
    let owner = cq.consumer >> cq.log_size & 1 != 0;
    if entry.opcode() == CqeOpcode::Invalid || entry.owner() != owner {
        return None;
    }
    cq.consumer += 1;
    host.memory.put(cq.record, &(cq.consumer & 0xff_ffff).to_be_bytes());
    Some(entry)
}

pub fn poll_eq(host: &Host, eq: &mut Eq) -> Option<EventEntry> {
    let slot = u64::from(eq.consumer) & ((1 << eq.log_size) - 1);
    let entry: EventEntry = host.memory.load(eq.buffer + slot * 64);
    if entry.owner() != (eq.consumer >> eq.log_size & 1 != 0) {
        return None;
    }
    eq.consumer += 1;
    Some(entry)
}

pub fn data(sge: Sge) -> Vec<u8> {
    let mut segment = DataSegment::new();
    segment.set_byte_count(sge.length).set_lkey(sge.key).set_address(sge.address);
    segment.as_bytes().to_vec()
}

/// The address vector of a datagram to a queue pair.
pub fn vector_to(qpn: Qpn, qkey: u32) -> AddressVector {
    let mut vector = AddressVector::new();
    vector.set_qkey(qkey).set_extended(true).set_dqpn(qpn);
    vector
}

pub fn remote(address: u64, key: Mkey) -> Vec<u8> {
    let mut segment = RemoteAddressSegment::new();
    segment.set_address(address).set_rkey(key);
    segment.as_bytes().to_vec()
}

pub fn operands(swap_add: u64, compare: u64) -> Vec<u8> {
    let mut segment = AtomicSegment::new();
    segment.set_swap_add(swap_add).set_compare(compare);
    segment.as_bytes().to_vec()
}

pub fn inline(bytes: &[u8]) -> Vec<u8> {
    let mut header = InlineHeader::new();
    header.set_inline(true).set_byte_count(bytes.len() as u16);
    let mut segment = [header.as_bytes(), bytes].concat();
    segment.resize(segment.len().next_multiple_of(16), 0);
    segment
}
