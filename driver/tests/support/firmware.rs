//! The firmware: books of objects, a handler a command, and a script of misbehaviours.

use super::memory::Memory;
use bareverbs_prm::command::caps::{AtomicCapabilities, GeneralCapabilities, RoceCapabilities};
use bareverbs_prm::command::cq::CreateCqIn;
use bareverbs_prm::command::entry::{CommandHeaderIn, CommandMailbox, CommandQueueEntry};
use bareverbs_prm::command::eq::CreateEqIn;
use bareverbs_prm::command::mkey::CreateMkeyIn;
use bareverbs_prm::command::qp::CreateQpIn;
use bareverbs_prm::command::srq::{CreateRmpIn, RmpContext};
use bareverbs_prm::context::{CompletionQueueContext, EventQueueContext, MkeyContext, QueuePairContext};
use bareverbs_prm::cqe::{CQE_FORMAT_COMPRESSED, CompletionEntry, MINI_CQES, MiniEntry};
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::eqe::EventEntry;
use bareverbs_prm::numbering::{CommandOpcode as Op, CommandStatus, PortType};
use bareverbs_prm::time::{Duration, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zerocopy::{FromBytes, IntoBytes};

/// What firmware does wrong.
#[derive(Debug, Clone)]
pub enum Misbehaviour {
    /// Answers with this status and syndrome.
    Status(u8, u32),
    /// Does not accept the entry.
    Delivery(u8),
    /// Never answers.
    Silence,
    /// Answers later.
    Delay(Duration),
    /// Asks for pages (or gives some back, if negative) and answers only when it has them.
    WantPages(i32),
    /// Answers with these bytes behind the header, whatever the command was.
    Garbage(Vec<u8>),
}

struct Pending {
    slot: u8,
    due: Time,
    want_pages: Option<usize>,
}

/// A completion or event queue as the device sees it.
#[derive(Debug, Clone)]
pub struct Ring {
    pub base: u64,
    pub log_size: u8,
    pub producer: u32,
}

/// A queue pair as the device sees it.
#[derive(Debug, Clone)]
pub struct Pair {
    pub context: QueuePairContext,
    pub base: u64,
    pub modified: Vec<(Op, u32, QueuePairContext)>,
}

/// A receive memory pool as the device sees it.
#[derive(Debug, Clone)]
pub struct Pool {
    pub context: RmpContext,
    pub base: u64,
}

/// The books.
pub struct Firmware {
    pub initializing_until: Time,
    pub cmdif_rev: u16,
    pub geometry: u32,
    pub health: [u32; 16],
    pub boot_pages: i32,
    pub init_pages: i32,
    pub general: GeneralCapabilities,
    pub atomic: AtomicCapabilities,
    pub roce: RoceCapabilities,
    pub supported_issi: u32,
    /// Misbehaviours, each for one command of an opcode.
    pub script: BTreeMap<u16, VecDeque<Misbehaviour>>,
    /// A misbehaviour for the command of this number, counted from 0.
    pub at_command: Option<(usize, Misbehaviour)>,
    /// Commands that arrived: opcode, modifier, input.
    pub log: Vec<(Op, u16, Vec<u8>)>,
    pub enabled: bool,
    pub initialised: bool,
    pub pages: BTreeSet<u64>,
    pub uars: BTreeSet<u32>,
    pub event_queues: BTreeMap<u32, Ring>,
    pub domains: BTreeSet<u32>,
    pub keys: BTreeMap<u32, MkeyContext>,
    pub key_lists: BTreeMap<u32, Vec<u64>>,
    pub completion_queues: BTreeMap<u32, Ring>,
    pub pairs: BTreeMap<u32, Pair>,
    pub pools: BTreeMap<u32, Pool>,
    pub addresses: BTreeMap<u16, [u8; 32]>,
    pub roce_enabled: bool,
    pub refused_pages: usize,
    pub doorbells: Vec<u32>,
    queue: u64,
    next_number: u32,
    now: Time,
    pending: Vec<Pending>,
    stuck: Vec<u8>,
}

impl Default for Firmware {
    fn default() -> Self {
        Self {
            initializing_until: Time::ZERO,
            cmdif_rev: 5,
            geometry: 0x56,
            health: [0; 16],
            boot_pages: 3,
            init_pages: 300,
            general: general(),
            atomic: atomic(),
            roce: roce(),
            supported_issi: 3,
            script: BTreeMap::new(),
            at_command: None,
            log: Vec::new(),
            enabled: false,
            initialised: false,
            pages: BTreeSet::new(),
            uars: BTreeSet::new(),
            event_queues: BTreeMap::new(),
            domains: BTreeSet::new(),
            keys: BTreeMap::new(),
            key_lists: BTreeMap::new(),
            completion_queues: BTreeMap::new(),
            pairs: BTreeMap::new(),
            pools: BTreeMap::new(),
            addresses: BTreeMap::new(),
            roce_enabled: false,
            refused_pages: 0,
            doorbells: Vec::new(),
            queue: 0,
            next_number: 0x40,
            now: Time::ZERO,
            pending: Vec::new(),
            stuck: Vec::new(),
        }
    }
}

fn general() -> GeneralCapabilities {
    let mut page = GeneralCapabilities::new();
    page.set_log_max_qp(18)
        .set_log_max_qp_sz(15)
        .set_log_max_cq(24)
        .set_log_max_cq_sz(22)
        .set_log_max_mkey(24);
    page.set_log_max_eq(7).set_log_max_msg(30).set_log_max_ra_req_qp(4).set_log_max_ra_res_qp(4);
    page.set_port_type(PortType::Ethernet).set_num_ports(1).set_cqe_version(1).set_rc(true).set_atomic(true);
    page.set_log_max_srq(18).set_log_max_srq_sz(15);
    page.set_roce(true).set_roce_rw_supported(true).set_bf(true).set_log_bf_reg_size(9);
    page.set_max_wqe_sz_sq(1024).set_max_wqe_sz_rq(512).set_mkey_by_name(true).set_cmdif_checksum(3);
    page.set_imaicl(true).set_max_indirection(4).set_log_max_klm_list_size(16);
    page
}

fn atomic() -> AtomicCapabilities {
    let mut page = AtomicCapabilities::new();
    page.set_supported_atomic_req_8b_endianness_mode_1(true).set_atomic_operations(3).set_atomic_size_qp(8);
    page
}

fn roce() -> RoceCapabilities {
    let mut page = RoceCapabilities::new();
    page.set_roce_version(5).set_l3_type(6).set_roce_address_table_size(16).set_sw_r_roce_src_udp_port(true);
    page.set_r_roce_min_src_udp_port(0xc000).set_r_roce_max_src_udp_port(0xffff);
    page
}

/// Status and bytes behind the header.
type Answer = Result<Vec<u8>, CommandStatus>;

fn done() -> Answer {
    Ok(Vec::new())
}

fn number(n: u32) -> Answer {
    Ok(n.to_be_bytes().to_vec())
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_be_bytes(b.try_into().unwrap()))
}

fn part<T: FromBytes>(input: &[u8], at: usize) -> Result<T, CommandStatus> {
    let rest = input.get(at..).ok_or(CommandStatus::BadInputLength)?;
    T::read_from_prefix(rest).map(|(value, _)| value).map_err(|_| CommandStatus::BadInputLength)
}

fn addresses(input: &[u8], at: usize) -> Vec<u64> {
    input
        .get(at..)
        .unwrap_or(&[])
        .chunks_exact(8)
        .map(|b| u64::from_be_bytes(b.try_into().unwrap()))
        .collect()
}

impl Firmware {
    /// Makes the next command of `opcode` misbehave; may be called again for the ones after it.
    pub fn misbehave(&mut self, opcode: Op, how: Misbehaviour) {
        self.script.entry(opcode.raw()).or_default().push_back(how);
    }

    /// Whether nothing is left of a driver.
    pub fn is_down(&self) -> bool {
        !self.enabled && !self.initialised && self.pages.is_empty() && self.has_no_objects()
    }

    pub fn has_no_objects(&self) -> bool {
        self.uars.is_empty()
            && self.event_queues.is_empty()
            && self.domains.is_empty()
            && self.keys.is_empty()
            && self.completion_queues.is_empty()
            && self.pairs.is_empty()
            && self.pools.is_empty()
    }

    pub fn opcodes(&self) -> Vec<Op> {
        self.log.iter().map(|(opcode, ..)| *opcode).collect()
    }

    pub fn next_due(&self) -> Option<Time> {
        self.pending.iter().filter(|p| p.want_pages.is_none()).map(|p| p.due).min()
    }

    pub fn read32(&mut self, offset: usize) -> u32 {
        match offset {
            init_segment::CMDIF_REV => (self.cmdif_rev as u32) << 16,
            init_segment::CMDQ_ADDRESS_LOW => self.queue as u32 & !0xfff | self.geometry,
            init_segment::INITIALIZING => ((self.now < self.initializing_until) as u32) << 31,
            0x200..0x240 => self.health[(offset - 0x200) / 4],
            _ => 0,
        }
    }

    pub fn write32(&mut self, offset: usize, value: u32, now: Time) {
        self.now = now;
        match offset {
            init_segment::CMDQ_ADDRESS_HIGH => self.queue = (value as u64) << 32,
            init_segment::CMDQ_ADDRESS_LOW => self.queue |= value as u64,
            init_segment::COMMAND_DOORBELL => {
                self.doorbells.push(value);
                let slots = (0..32).filter(|slot| value >> slot & 1 != 0);
                self.pending.extend(slots.map(|slot| Pending { slot, due: now, want_pages: None }));
            }
            _ => (),
        }
    }

    pub fn step(&mut self, memory: &Memory, now: Time) {
        self.now = now;
        let pending = std::mem::take(&mut self.pending);
        // The reserved slot first: others may wait for what it brings.
        let (reserved, regular): (Vec<_>, Vec<_>) = pending.into_iter().partition(|p| p.slot == 31);
        for one in reserved.into_iter().chain(regular) {
            if let Some(one) = self.work(memory, one) {
                self.pending.push(one);
            }
        }
    }

    /// Works on one command; gives it back if it is not finished.
    fn work(&mut self, memory: &Memory, mut one: Pending) -> Option<Pending> {
        if let Some(pages) = one.want_pages {
            if self.pages.len() < pages && self.refused_pages == 0 {
                return Some(one);
            }
            self.finish(memory, one.slot, None);
            return None;
        }
        if one.due > self.now {
            return Some(one);
        }
        let (entry, input) = self.fetch(memory, one.slot);
        assert!(entry.ownership(), "a doorbell for an entry that is software's");
        assert_eq!(entry.as_bytes().iter().fold(0, |x, b| x ^ b), 0xff, "the entry is signed");
        let header = part::<CommandHeaderIn>(&input, 0).unwrap();
        let index = self.log.len();
        self.log.push((header.opcode(), header.op_mod(), input));
        let scripted = self.script.get_mut(&header.opcode().raw()).and_then(VecDeque::pop_front);
        let counted = self.at_command.as_ref().filter(|(at, _)| *at == index).map(|(_, how)| how.clone());
        match scripted.or(counted) {
            Some(Misbehaviour::Delay(delay)) => {
                self.log.pop();
                one.due = self.now + delay;
                return Some(one);
            }
            Some(Misbehaviour::WantPages(count)) => {
                one.want_pages = Some((self.pages.len() as i64 + count as i64).max(0) as usize);
                self.request_pages(memory, count);
                return Some(one);
            }
            Some(Misbehaviour::Silence) => self.stuck.push(one.slot),
            how => self.finish(memory, one.slot, how),
        }
        None
    }

    /// Finishes commands that were never answered.
    pub fn unstick(&mut self, memory: &Memory) {
        for slot in std::mem::take(&mut self.stuck) {
            self.finish(memory, slot, Some(Misbehaviour::Status(0, 0)));
        }
    }

    fn request_pages(&mut self, memory: &Memory, count: i32) {
        let mut event = EventEntry::new();
        let mut data = [0; 28];
        data[4..8].copy_from_slice(&count.to_be_bytes());
        event.set_kind(bareverbs_prm::numbering::EventType::PageRequest).set_data(data);
        self.event(memory, event);
    }

    /// Reads entry and input of a slot, checking the mailboxes.
    fn fetch(&self, memory: &Memory, slot: u8) -> (CommandQueueEntry, Vec<u8>) {
        let bytes = memory.read(self.entry_address(slot), 64);
        let entry = CommandQueueEntry::read_from_bytes(&bytes).unwrap();
        assert_eq!(entry.kind(), 7);
        let length = entry.input_length() as usize;
        let mut input = entry.command_input_inline_data().to_vec();
        let pointer = (entry.input_mailbox_pointer_63_32() as u64) << 32
            | (entry.input_mailbox_pointer_31_9() as u64) << 9;
        for (_, block) in blocks(memory, pointer, length, entry.token()) {
            input.extend_from_slice(&block.mailbox_data());
        }
        input.truncate(length);
        (entry, input)
    }

    fn entry_address(&self, slot: u8) -> u64 {
        self.queue + ((slot as u64) << (self.geometry & 0xf))
    }

    fn finish(&mut self, memory: &Memory, slot: u8, how: Option<Misbehaviour>) {
        let (mut entry, input) = self.fetch(memory, slot);
        let mut out = vec![0; entry.output_length() as usize];
        match how {
            Some(Misbehaviour::Delivery(status)) => {
                entry.set_status(status);
            }
            Some(Misbehaviour::Status(status, syndrome)) => {
                out[0] = status;
                out[4..8].copy_from_slice(&syndrome.to_be_bytes());
            }
            Some(Misbehaviour::Garbage(bytes)) => {
                let room = out.len() - 8;
                out[8..].iter_mut().zip(bytes.iter().cycle()).take(room).for_each(|(o, b)| *o = *b);
            }
            _ => self.answer(&input, memory, &mut out),
        }
        self.deliver(memory, slot, entry, &out);
    }

    fn answer(&mut self, input: &[u8], memory: &Memory, out: &mut [u8]) {
        match self.execute(input, memory) {
            Ok(bytes) => {
                assert!(
                    bytes.len() + 8 <= out.len(),
                    "an output of {} for {} bytes",
                    out.len(),
                    bytes.len() + 8
                );
                out[8..8 + bytes.len()].copy_from_slice(&bytes);
            }
            Err(status) => {
                out[0] = status.raw();
                let opcode = be32(input, 0) >> 16;
                out[4..8].copy_from_slice(&(0xdead_0000 | opcode).to_be_bytes());
            }
        }
    }

    fn deliver(&self, memory: &Memory, slot: u8, mut entry: CommandQueueEntry, out: &[u8]) {
        let mut inline = [0; 16];
        let head = out.len().min(16);
        inline[..head].copy_from_slice(&out[..head]);
        let pointer = (entry.output_mailbox_pointer_63_32() as u64) << 32
            | (entry.output_mailbox_pointer_31_9() as u64) << 9;
        let chain = blocks(memory, pointer, out.len(), entry.token());
        for ((at, mut block), data) in chain.into_iter().zip(out[head..].chunks(512)) {
            block.as_mut_bytes()[..data.len()].copy_from_slice(data);
            sign_block(&mut block);
            memory.write(at, block.as_bytes());
        }
        entry.set_command_output_inline_data(inline).set_ownership(false).set_signature(0);
        let signature = !entry.as_bytes().iter().fold(0, |x, b| x ^ b);
        entry.set_signature(signature);
        memory.write(self.entry_address(slot), entry.as_bytes());
    }

    fn new_number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    fn execute(&mut self, input: &[u8], memory: &Memory) -> Answer {
        let header = part::<CommandHeaderIn>(input, 0)?;
        let argument = be32(input, 8);
        match header.opcode() {
            Op::EnableHca => self.enable(),
            Op::DisableHca => self.disable(),
            Op::InitHca => self.initialise(),
            Op::TeardownHca => self.tear_down(),
            Op::QueryIssi => self.issi(),
            Op::QueryPages => self.query_pages(header.op_mod()),
            Op::ManagePages => self.manage_pages(header.op_mod(), input, memory),
            Op::QueryHcaCap => self.capability(header.op_mod()),
            Op::SetHcaCap => self.set_capability(header.op_mod(), input),
            Op::AccessReg => Ok(access(argument)),
            Op::AllocUar => {
                self.uars.insert(0x10);
                number(0x10)
            }
            Op::DeallocUar => remove(&mut self.uars, argument),
            Op::CreateEq => self.create_event_queue(input),
            Op::DestroyEq => {
                self.event_queues.remove(&argument).map(|_| Vec::new()).ok_or(CommandStatus::BadIndex)
            }
            Op::AllocPd => {
                let n = self.new_number();
                self.domains.insert(n);
                number(n)
            }
            Op::DeallocPd => self.free_domain(argument),
            Op::CreateMkey => self.create_key(input),
            Op::DestroyMkey => self.keys.remove(&argument).map(|_| Vec::new()).ok_or(CommandStatus::BadIndex),
            Op::CreateCq => self.create_completion_queue(input),
            Op::DestroyCq => self.free_completion_queue(argument),
            Op::CreateRmp => self.create_pool(input),
            Op::DestroyRmp => self.free_pool(argument),
            Op::CreateQp => self.create_pair(input),
            Op::DestroyQp => self.pairs.remove(&argument).map(|_| Vec::new()).ok_or(CommandStatus::BadIndex),
            Op::QueryQp => self.query_pair(argument),
            Op::QueryVportState => Ok(vec![0, 0, 0, 0, 0, 0, 0, 0x11]),
            Op::QueryNicVportContext => Ok(nic_context()),
            Op::ModifyNicVportContext => {
                self.roce_enabled = be32(input, 256) & 1 != 0;
                done()
            }
            Op::SetRoceAddress => {
                self.addresses.insert((argument >> 16) as u16, input[16..48].try_into().unwrap());
                done()
            }
            Op::SetIssi | Op::Nop => done(),
            opcode => self.modify_pair(opcode, input),
        }
    }

    fn enable(&mut self) -> Answer {
        match std::mem::replace(&mut self.enabled, true) {
            true => Err(CommandStatus::BadSystemState),
            false => done(),
        }
    }

    fn disable(&mut self) -> Answer {
        match !self.initialised && std::mem::replace(&mut self.enabled, false) {
            true => done(),
            false => Err(CommandStatus::BadSystemState),
        }
    }

    fn initialise(&mut self) -> Answer {
        match self.enabled && self.pages.len() as i32 >= self.boot_pages.max(0) + self.init_pages.max(0) {
            true => self.initialised = true,
            false => return Err(CommandStatus::NoResources),
        }
        done()
    }

    fn tear_down(&mut self) -> Answer {
        if !std::mem::replace(&mut self.initialised, false) {
            return Err(CommandStatus::BadSystemState);
        }
        self.uars.clear();
        self.event_queues.clear();
        self.domains.clear();
        self.keys.clear();
        self.completion_queues.clear();
        self.pairs.clear();
        self.pools.clear();
        done()
    }

    fn issi(&self) -> Answer {
        let mut out = vec![0; 104];
        out[100..104].copy_from_slice(&self.supported_issi.to_be_bytes());
        Ok(out)
    }

    fn query_pages(&self, stage: u16) -> Answer {
        let count = if stage == 1 { self.boot_pages } else { self.init_pages };
        let mut out = vec![0; 8];
        out[4..].copy_from_slice(&count.to_be_bytes());
        Ok(out)
    }

    fn manage_pages(&mut self, mode: u16, input: &[u8], memory: &Memory) -> Answer {
        let count = be32(input, 12) as usize;
        match mode {
            0 => self.refused_pages += 1,
            1 => {
                let list = addresses(input, 16);
                assert_eq!(list.len(), count);
                for page in list {
                    assert!(memory.is_mapped(page, 4096), "page {page:#x} is not mapped");
                    assert!(self.pages.insert(page), "page {page:#x} was given before");
                }
            }
            _ => {
                let list: Vec<u64> = self.pages.iter().copied().take(count).collect();
                let mut out = vec![0; 8];
                out[..4].copy_from_slice(&(list.len() as u32).to_be_bytes());
                for page in list {
                    self.pages.remove(&page);
                    out.extend_from_slice(&page.to_be_bytes());
                }
                return Ok(out);
            }
        }
        done()
    }

    fn capability(&self, op_mod: u16) -> Answer {
        let page: &[u8] = match op_mod >> 1 {
            0 => self.general.as_bytes(),
            3 => self.atomic.as_bytes(),
            4 => self.roce.as_bytes(),
            _ => return Err(CommandStatus::BadParameter),
        };
        Ok([&[0; 8], page].concat())
    }

    fn set_capability(&mut self, op_mod: u16, input: &[u8]) -> Answer {
        match op_mod >> 1 {
            0 => self.general = part(input, 16)?,
            3 => self.atomic = part(input, 16)?,
            4 => self.roce = part(input, 16)?,
            _ => return Err(CommandStatus::BadParameter),
        }
        done()
    }

    fn create_event_queue(&mut self, input: &[u8]) -> Answer {
        let context = part::<EventQueueContext>(input, 16)?;
        let base = *addresses(input, CreateEqIn::PAS_OFFSET).first().ok_or(CommandStatus::BadInputLength)?;
        self.event_queues.insert(1, Ring { base, log_size: context.log_eq_size(), producer: 0 });
        number(1)
    }

    fn free_domain(&mut self, domain: u32) -> Answer {
        let used = self.keys.values().any(|key| key.pd().value() == domain)
            || self.pairs.values().any(|pair| pair.context.pd().value() == domain);
        match used {
            true => Err(CommandStatus::BadResourceState),
            false => remove(&mut self.domains, domain),
        }
    }

    fn create_key(&mut self, input: &[u8]) -> Answer {
        let context = part::<MkeyContext>(input, 16)?;
        if !self.domains.contains(&context.pd().value()) {
            return Err(CommandStatus::BadParameter);
        }
        let n = self.new_number();
        self.keys.insert(n, context);
        self.key_lists.insert(n, addresses(input, CreateMkeyIn::KLM_PAS_MTT_OFFSET));
        number(n)
    }

    fn create_completion_queue(&mut self, input: &[u8]) -> Answer {
        let context = part::<CompletionQueueContext>(input, 16)?;
        let base = *addresses(input, CreateCqIn::PAS_OFFSET).first().ok_or(CommandStatus::BadInputLength)?;
        let n = self.new_number();
        self.completion_queues.insert(n, Ring { base, log_size: context.log_cq_size(), producer: 0 });
        number(n)
    }

    fn free_completion_queue(&mut self, queue: u32) -> Answer {
        let used =
            |pair: &Pair| pair.context.cqn_snd().value() == queue || pair.context.cqn_rcv().value() == queue;
        if self.pairs.values().any(used) {
            return Err(CommandStatus::BadResourceState);
        }
        self.completion_queues.remove(&queue).map(|_| Vec::new()).ok_or(CommandStatus::BadIndex)
    }

    fn create_pool(&mut self, input: &[u8]) -> Answer {
        let context = part::<RmpContext>(input, 32)?;
        let base = *addresses(input, CreateRmpIn::SIZE).first().ok_or(CommandStatus::BadInputLength)?;
        let n = self.new_number();
        self.pools.insert(n, Pool { context, base });
        number(n)
    }

    fn free_pool(&mut self, pool: u32) -> Answer {
        if self.pairs.values().any(|pair| pair.context.srqn_rmpn_xrqn() == pool) {
            return Err(CommandStatus::BadResourceState);
        }
        self.pools.remove(&pool).map(|_| Vec::new()).ok_or(CommandStatus::BadIndex)
    }

    fn create_pair(&mut self, input: &[u8]) -> Answer {
        let context = part::<QueuePairContext>(input, 24)?;
        let base = *addresses(input, CreateQpIn::PAS_OFFSET).first().ok_or(CommandStatus::BadInputLength)?;
        let n = self.new_number();
        self.pairs.insert(n, Pair { context, base, modified: Vec::new() });
        number(n)
    }

    fn query_pair(&self, number: u32) -> Answer {
        let pair = self.pairs.get(&number).ok_or(CommandStatus::BadIndex)?;
        let mut context = pair.context;
        if let Some((_, _, rtr)) = pair.modified.iter().rfind(|(opcode, ..)| *opcode == Op::InitToRtrQp) {
            context.set_remote_qpn(rtr.remote_qpn());
        }
        Ok([&[0; 16], context.as_bytes()].concat())
    }

    fn modify_pair(&mut self, opcode: Op, input: &[u8]) -> Answer {
        use bareverbs_prm::numbering::QpState;
        let state = match opcode {
            Op::ResetToInitQp | Op::InitToInitQp => QpState::Init,
            Op::InitToRtrQp => QpState::Rtr,
            Op::RtrToRtsQp | Op::RtsToRtsQp | Op::SqdToRtsQp => QpState::Rts,
            Op::ToErrorQp => QpState::Error,
            Op::ToResetQp => QpState::Reset,
            _ => return Err(CommandStatus::BadOpcode),
        };
        let pair = self.pairs.get_mut(&be32(input, 8)).ok_or(CommandStatus::BadIndex)?;
        pair.context.set_state(state);
        if input.len() > 16 {
            pair.modified.push((opcode, be32(input, 16), part(input, 24)?));
        }
        done()
    }

    /// Writes an event, owner last.
    pub fn event(&mut self, memory: &Memory, mut event: EventEntry) {
        let Some(ring) = self.event_queues.get_mut(&1) else { return };
        event.set_owner(ring.producer >> ring.log_size & 1 != 0);
        let slot = ring.producer & ((1 << ring.log_size) - 1);
        memory.write(ring.base + slot as u64 * 64, event.as_bytes());
        ring.producer += 1;
    }

    /// Writes a completion, owner last.
    pub fn complete(&mut self, memory: &Memory, cqn: u32, mut entry: CompletionEntry) {
        let ring = self.completion_queues.get_mut(&cqn).expect("the queue exists");
        entry.set_owner(ring.producer >> ring.log_size & 1 != 0);
        let slot = ring.producer & ((1 << ring.log_size) - 1);
        memory.write(ring.base + slot as u64 * 64, entry.as_bytes());
        ring.producer += 1;
    }

    /// Writes a compressed run: arrays of eight mini entries, then the title.
    pub fn complete_run(
        &mut self,
        memory: &Memory,
        cqn: u32,
        mut title: CompletionEntry,
        minis: &[MiniEntry],
    ) {
        let ring = self.completion_queues.get_mut(&cqn).expect("the queue exists");
        let mask = (1 << ring.log_size) - 1;
        let place = |number: usize| ring.base + ((ring.producer + number as u32) & mask) as u64 * 64;
        for (number, array) in minis.chunks(MINI_CQES).enumerate() {
            let at = place(if number == 0 { 1 } else { number * MINI_CQES });
            for (index, mini) in array.iter().enumerate() {
                memory.write(at + index as u64 * 8, mini.as_bytes());
            }
        }
        title.set_owner(ring.producer >> ring.log_size & 1 != 0);
        title.set_byte_count(minis.len() as u32).set_format(CQE_FORMAT_COMPRESSED);
        memory.write(place(0), title.as_bytes());
        ring.producer += minis.len() as u32;
    }
}

/// The blocks of a chain for `length` bytes, with their addresses; checks numbers, tokens and signatures.
fn blocks(memory: &Memory, mut pointer: u64, length: usize, token: u8) -> Vec<(u64, CommandMailbox)> {
    let mut chain = Vec::new();
    for number in 0..length.saturating_sub(16).div_ceil(512) {
        let bytes = memory.read(pointer, CommandMailbox::SIZE);
        let block = CommandMailbox::read_from_bytes(&bytes).unwrap();
        assert_eq!((block.block_number(), block.token()), (number as u32, token));
        assert_eq!(pointer % 1024, 0);
        chain.push((pointer, block));
        pointer = (block.next_pointer_63_32() as u64) << 32 | (block.next_pointer_31_10() as u64) << 10;
    }
    chain
}

fn sign_block(block: &mut CommandMailbox) {
    let xor = |bytes: &[u8]| !bytes.iter().fold(0, |x, b| x ^ b);
    block.set_ctrl_signature(0).set_signature(0);
    let control = xor(&block.as_bytes()[512..]);
    block.set_ctrl_signature(control);
    let whole = xor(block.as_bytes());
    block.set_signature(whole);
}

fn remove(set: &mut BTreeSet<u32>, number: u32) -> Answer {
    if set.remove(&number) { done() } else { Err(CommandStatus::BadIndex) }
}

fn access(register: u32) -> Vec<u8> {
    let mut out = vec![0; 24];
    if register == 0x5003 {
        out[12..14].copy_from_slice(&9000u16.to_be_bytes());
        out[20..22].copy_from_slice(&4200u16.to_be_bytes());
    }
    out
}

fn nic_context() -> Vec<u8> {
    let mut out = vec![0; 8 + 256];
    out[8 + 61 * 4 + 2..8 + 62 * 4 + 4].copy_from_slice(&[2, 0, 0, 0, 0xaa, 7]);
    out
}
