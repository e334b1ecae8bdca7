//! The firmware: books of objects, a handler a command, and a script of misbehaviours.

mod capabilities;
mod commands;
mod events;

use super::memory::Memory;
use bareverbs_prm::command::caps::{AtomicCapabilities, GeneralCapabilities, RoceCapabilities};
use bareverbs_prm::command::entry::{CommandHeaderIn, CommandMailbox, CommandQueueEntry};
use bareverbs_prm::command::srq::RmpContext;
use bareverbs_prm::context::{MkeyContext, QueuePairContext};
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::eqe::{EventEntry, PageRequestEvent};
use bareverbs_prm::numbering::CommandOpcode as Op;
use bareverbs_prm::time::{Duration, Time};
use capabilities::{atomic, general, roce};
use commands::{be32, part};
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
    /// Leaves the bus.
    Removal,
    /// Is reset by somebody else.
    Reset,
    /// Answers with these bytes behind the header, whatever the command was.
    Garbage(Vec<u8>),
}

struct Pending {
    slot: u8,
    due: Time,
    want_pages: Option<usize>,
    /// The script has had its say.
    delayed: bool,
}

/// A completion or event queue as the device sees it.
#[derive(Debug, Clone)]
pub struct Ring {
    pub base: u64,
    pub log_size: u8,
    pub producer: u32,
    /// Entries have 128 bytes, of which the device writes the last 64.
    pub wide: bool,
}

impl Ring {
    pub fn new(base: u64, log_size: u8) -> Self {
        Self { base, log_size, producer: 0, wide: false }
    }

    /// Where the 64 bytes of entry `number` are.
    pub fn place(&self, number: u32) -> u64 {
        let slot = u64::from(number & ((1 << self.log_size) - 1));
        self.base + if self.wide { slot * 128 + 64 } else { slot * 64 }
    }

    /// The owner bit of the entry that is written next.
    pub fn owner(&self) -> bool {
        self.producer >> self.log_size & 1 != 0
    }
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
    /// A completion queue that is resized does not end its old ring.
    pub omits_resize_entry: bool,
    pub refused_pages: usize,
    pub doorbells: Vec<u32>,
    /// The device has left the bus.
    pub removed: bool,
    /// It works on nothing any more.
    pub asleep: bool,
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
            omits_resize_entry: false,
            refused_pages: 0,
            doorbells: Vec::new(),
            removed: false,
            asleep: false,
            queue: 0,
            next_number: 0x40,
            now: Time::ZERO,
            pending: Vec::new(),
            stuck: Vec::new(),
        }
    }
}

impl Firmware {
    /// Forgets the driver, as a reset by somebody else makes it.
    pub fn reset(&mut self) {
        *self = Self { doorbells: std::mem::take(&mut self.doorbells), ..Self::default() };
    }

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
            _ if self.removed => u32::MAX,
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
                self.pending.extend(slots.map(|slot| Pending {
                    slot,
                    due: now,
                    want_pages: None,
                    delayed: false,
                }));
            }
            _ => (),
        }
    }

    pub fn step(&mut self, memory: &Memory, now: Time) {
        self.now = now;
        if self.removed || self.asleep {
            return;
        }
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
        let script = self.script.get_mut(&header.opcode().raw()).filter(|_| !one.delayed);
        let scripted = script.and_then(VecDeque::pop_front);
        let counted = self.at_command.as_ref().filter(|(at, _)| *at == index).map(|(_, how)| how.clone());
        match scripted.or(counted) {
            Some(Misbehaviour::Delay(delay)) => {
                self.log.pop();
                (one.due, one.delayed) = (self.now + delay, true);
                return Some(one);
            }
            Some(Misbehaviour::WantPages(count)) => {
                one.want_pages = Some((self.pages.len() as i64 + count as i64).max(0) as usize);
                self.request_pages(memory, count);
                return Some(one);
            }
            Some(Misbehaviour::Silence) => self.stuck.push(one.slot),
            Some(Misbehaviour::Removal) => self.removed = true,
            Some(Misbehaviour::Reset) => self.reset(),
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
        let (mut event, mut request) = (EventEntry::new(), PageRequestEvent::new());
        request.set_num_pages(count.cast_unsigned());
        event
            .set_kind(bareverbs_prm::numbering::EventType::PageRequest)
            .set_data(zerocopy::transmute!(request));
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
