//! Completion queues: the device writes what became of work requests, the application polls.
//!
//! One queue may serve many queue pairs. It is polled by its owner alone (`&mut self`); queue pairs need only its
//! number, so that they may live in other threads. What an entry says is checked against the ledger before it is
//! believed.

use crate::command::{CommandError, Request};
use crate::device::control::Doomed;
use crate::device::{DeviceRef, DmaOf};
use crate::dma::{BLOCK, Dma, Window};
use crate::hal::{Barrier, Hal, HalError, Mmio};
use crate::ledger::{Identity, Refusal, retire_receive, retire_send};
use crate::ring::{Consumer, OwnedEntry, take_ownership};
use crate::trace::TraceEvent;
use crate::translation::PageRun;
use crate::work_completion::{WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus};
use bareverbs_prm::command::cq::{CreateCqIn, CreateCqOut};
use bareverbs_prm::cqe::{OP_OWN_INITIAL, OP_OWN_OFFSET};
use bareverbs_prm::doorbell::{CqArm, UAR_PAGE_SIZE, uar};
use bareverbs_prm::ids::{Cqn, Qpn};
use bareverbs_prm::numbering::{CommandOpcode, CqeOpcode, CqeSyndrome};
use core::fmt;

/// How a completion queue is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionQueueConfig {
    /// Completions that it must hold; rounded up to a power of two. It must be as many as can be outstanding: all
    /// signalled sends and all receives of all its queue pairs, and all sends once a queue pair fails.
    pub entries: u32,
}

impl Default for CompletionQueueConfig {
    fn default() -> Self {
        Self { entries: 256 }
    }
}

/// Why a completion queue could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionQueueError {
    /// Zero entries, or more than the device can do.
    Entries {
        /// Asked for.
        asked: u32,
        /// Most that the device can do.
        limit: u32,
    },
    /// There is no memory.
    Memory(HalError),
    /// The device refused.
    Command(CommandError),
}

impl fmt::Display for CompletionQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Entries { asked, limit } => {
                write!(f, "a completion queue of {asked} entries: ask for 1 to {limit}")
            }
            Self::Memory(error) => write!(f, "{error}"),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for CompletionQueueError {}

/// A completion entry that cannot be true. It has been consumed; the next call goes on behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PollError {
    /// It completes a work request that is not outstanding.
    NotOutstanding {
        /// The queue pair it names.
        qpn: Qpn,
        /// The counter it names.
        counter: u16,
    },
    /// It has an opcode that does not occur in this queue.
    UnexpectedOpcode {
        /// The opcode.
        opcode: CqeOpcode,
        /// The queue pair it names.
        qpn: Qpn,
    },
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotOutstanding { qpn, counter } => write!(
                f,
                "the device completes work request {counter:#x} of queue pair {qpn}, which is not outstanding: reset it"
            ),
            Self::UnexpectedOpcode { opcode, qpn } => {
                write!(
                    f,
                    "the device wrote a completion {opcode} of queue pair {qpn}, which cannot occur: reset it"
                )
            }
        }
    }
}

impl core::error::Error for PollError {}

/// A completion queue. Dropped before its queue pairs, it goes away after them.
#[doc(alias = "ibv_cq")]
pub struct CompletionQueue<D: DeviceRef> {
    device: D,
    /// Taken out only by `drop`.
    memory: Option<Dma<DmaOf<D>>>,
    /// The block behind the entries, which holds the doorbell record.
    record: usize,
    consumer: Consumer,
    cqn: Cqn,
    arm_sequence: u8,
    discarded: u64,
}

/// What one entry came to.
enum Outcome {
    Nothing,
    Discarded(Qpn),
    Completion(WorkCompletion),
}

struct Entry<'a, H> {
    hal: &'a H,
    window: Window<'a, BLOCK>,
}

impl<H: Hal> OwnedEntry for Entry<'_, H> {
    #[inline(always)]
    fn last_byte(&self) -> u8 {
        self.window.load_u8::<OP_OWN_OFFSET>()
    }
    #[inline(always)]
    fn synchronize(&self) {
        self.hal.barrier(Barrier::FromDevice);
    }
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Creates a queue.
    #[doc(alias = "ibv_create_cq")]
    pub fn create(device: D, config: CompletionQueueConfig) -> Result<Self, CompletionQueueError> {
        let limit = device.device().capabilities().max_completion_queue_entries;
        if config.entries == 0 || config.entries > limit {
            return Err(CompletionQueueError::Entries { asked: config.entries, limit });
        }
        let entries = config.entries.next_power_of_two() as usize;
        let hal = device.device().hal();
        let memory = Dma::allocate(hal, (entries + 1) * BLOCK, 4096).map_err(CompletionQueueError::Memory)?;
        for window in (0..entries).filter_map(|index| memory.block(index)) {
            window.store_be32::<60>(OP_OWN_INITIAL as u32);
        }
        let log_size = entries.trailing_zeros() as u8;
        let cqn = match create(&device, &memory, log_size) {
            Ok(cqn) => cqn,
            Err(error) => {
                if error.status().is_none() {
                    core::mem::forget(memory);
                }
                return Err(CompletionQueueError::Command(error));
            }
        };
        let consumer = Consumer::new(log_size);
        Ok(Self {
            device,
            memory: Some(memory),
            record: entries,
            consumer,
            cqn,
            arm_sequence: 0,
            discarded: 0,
        })
    }

    /// The number that the device gave.
    pub fn number(&self) -> Cqn {
        self.cqn
    }

    /// Completions that it holds.
    pub fn entries(&self) -> u32 {
        self.consumer.size()
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Completions of queue pairs that were gone when they were polled.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Fills `completions` with what is there, and says how many. An entry that cannot be true ends the call; it is
    /// reported by the call that finds it first.
    #[inline]
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll(&mut self, completions: &mut [WorkCompletion]) -> Result<usize, PollError> {
        let mut count = 0;
        let mut consumed = false;
        let mut result = Ok(());
        while let Some(place) = completions.get_mut(count) {
            match self.look() {
                Ok(Outcome::Nothing) => break,
                Ok(Outcome::Completion(completion)) => {
                    *place = completion;
                    count += 1;
                }
                Ok(Outcome::Discarded(qpn)) => self.discard(qpn),
                Err(_) if count > 0 => break,
                Err(error) => result = Err(error),
            }
            consumed = true;
            self.consumer.advance();
            if result.is_err() {
                break;
            }
        }
        if consumed {
            self.store_consumer();
        }
        result.map(|()| count)
    }

    /// The next completion, if there is one.
    #[inline]
    pub fn poll_one(&mut self) -> Result<Option<WorkCompletion>, PollError> {
        let mut completion = [WorkCompletion::EMPTY];
        Ok((self.poll(&mut completion)? > 0).then_some(completion[0]))
    }

    /// Asks for an event when the next completion (or the next solicited one) arrives. What is there already does not
    /// count: poll once more afterwards.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self, solicited_only: bool) {
        let consumer_index = self.consumer.counter();
        let arm = CqArm { sequence: self.arm_sequence, solicited_only, consumer_index, cqn: self.cqn };
        let device = self.device.device();
        if let Some(record) = self.memory.as_ref().and_then(|memory| memory.block(self.record)) {
            record.store_be32::<4>(arm.arm_word());
        }
        device.hal().barrier(Barrier::ToDevice);
        device
            .hal()
            .mmio()
            .write64(device.uar().value() as usize * UAR_PAGE_SIZE + uar::CQ_ARM, arm.to_raw());
        device.hal().barrier(Barrier::FlushMmio);
    }

    /// The event of an arming came: the next arming is another one.
    pub fn acknowledge_event(&mut self) {
        self.arm_sequence = (self.arm_sequence + 1) & 3;
    }

    /// Marks all entries of a queue pair that is reset, so that they are thrown away when they are reached.
    pub(crate) fn disown(&mut self, user_index: u32) {
        let device = self.device.clone();
        let Some(memory) = self.memory.as_ref() else { return };
        let mut at = self.consumer;
        for _ in 0..at.size() {
            let Some(window) = memory.block(at.slot()) else { break };
            if !take_ownership(&Entry { hal: device.device().hal(), window }, at.phase()) {
                break;
            }
            if window.load_be32::<32>() & 0xff_ffff == user_index {
                window.store_be32::<32>(0xff_ffff);
            }
            at.advance();
        }
    }

    /// Looks at the next entry without consuming it.
    #[inline(always)]
    fn look(&self) -> Result<Outcome, PollError> {
        let device = self.device.device();
        let Some(window) = self.memory.as_ref().and_then(|memory| memory.block(self.consumer.slot())) else {
            return Ok(Outcome::Nothing);
        };
        if !take_ownership(&Entry { hal: device.hal(), window }, self.consumer.phase()) {
            return Ok(Outcome::Nothing);
        }
        let tail = Tail(window.load_be64::<56>());
        let identity = Identity::from_parts(Identity::queue(self.cqn), window.load_be32::<32>(), tail.qpn());
        let ledgers = device.ledgers();
        if tail.opcode() != 0 {
            return self.look_rare(window, tail, identity);
        }
        match retire_send(ledgers, ledgers.records(), identity, tail.counter()) {
            Ok(retired) => Ok(Outcome::Completion(WorkCompletion {
                wr_id: retired.id,
                byte_count: window.load_be32::<44>(),
                immediate: None,
                qpn: Qpn::from_low_bits(tail.qpn()),
                status: WorkCompletionStatus::Success,
                vendor_syndrome: 0,
                opcode: WorkCompletionOpcode::from_kind(retired.posted.kind()),
            })),
            Err(refusal) => self.refused(refusal, tail),
        }
    }

    /// Everything but a requester's success.
    #[inline(never)]
    fn look_rare(
        &self,
        window: Window<'_, BLOCK>,
        tail: Tail,
        identity: Identity,
    ) -> Result<Outcome, PollError> {
        let ledgers = self.device.device().ledgers();
        let opcode = CqeOpcode::from_raw(tail.opcode());
        let send = |opcode| matches!(opcode, CqeOpcode::RequesterError);
        let mut completion = WorkCompletion { qpn: Qpn::from_low_bits(tail.qpn()), ..WorkCompletion::EMPTY };
        if send(opcode) {
            match retire_send(ledgers, ledgers.records(), identity, tail.counter()) {
                Ok(retired) => {
                    completion.wr_id = retired.id;
                    completion.opcode = WorkCompletionOpcode::from_kind(retired.posted.kind());
                }
                Err(refusal) => return self.refused(refusal, tail),
            }
        } else if is_responder(opcode) {
            match retire_receive(ledgers, ledgers.records(), identity, tail.counter()) {
                Ok(id) => completion.wr_id = id,
                Err(refusal) => return self.refused(refusal, tail),
            }
            fill_received(&mut completion, &window, opcode);
        } else {
            return Err(PollError::UnexpectedOpcode { opcode, qpn: completion.qpn });
        }
        if matches!(opcode, CqeOpcode::RequesterError | CqeOpcode::ResponderError) {
            completion.status = WorkCompletionStatus::Failed(CqeSyndrome::from_raw(window.load_u8::<55>()));
            completion.vendor_syndrome = window.load_u8::<54>();
        }
        Ok(Outcome::Completion(completion))
    }

    #[cold]
    fn refused(&self, refusal: Refusal, tail: Tail) -> Result<Outcome, PollError> {
        let qpn = Qpn::from_low_bits(tail.qpn());
        match refusal {
            Refusal::Stranger => Ok(Outcome::Discarded(qpn)),
            Refusal::NotOutstanding => Err(PollError::NotOutstanding { qpn, counter: tail.counter() }),
        }
    }

    #[cold]
    fn discard(&mut self, qpn: Qpn) {
        self.discarded += 1;
        if let Some(observer) = self.device.device().config().observer {
            observer.observe(&TraceEvent::CompletionDiscarded { cqn: self.cqn, qpn });
        }
    }

    /// Lets the device write the consumed entries again; the loads from them come first.
    #[inline(always)]
    fn store_consumer(&self) {
        self.device.device().hal().barrier(Barrier::FromDevice);
        if let Some(record) = self.memory.as_ref().and_then(|memory| memory.block(self.record)) {
            record.store_be32::<0>(self.consumer.counter());
        }
    }
}

impl<D: DeviceRef> fmt::Debug for CompletionQueue<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("cqn", &self.cqn)
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}

impl<D: DeviceRef> Drop for CompletionQueue<D> {
    #[doc(alias = "ibv_destroy_cq")]
    fn drop(&mut self) {
        let doomed = Doomed { opcode: CommandOpcode::DestroyCq, number: self.cqn.value() };
        self.device.device().destroy(doomed, self.memory.take());
    }
}

/// The last 8 bytes of an entry: send opcode, queue pair, counter, signature, opcode and owner.
#[derive(Clone, Copy)]
struct Tail(u64);

impl Tail {
    #[inline(always)]
    const fn qpn(self) -> u32 {
        (self.0 >> 32) as u32 & 0xff_ffff
    }
    #[inline(always)]
    const fn counter(self) -> u16 {
        (self.0 >> 16) as u16
    }
    #[inline(always)]
    const fn opcode(self) -> u8 {
        self.0 as u8 >> 4
    }
}

fn is_responder(opcode: CqeOpcode) -> bool {
    matches!(
        opcode,
        CqeOpcode::ResponderWriteImmediate
            | CqeOpcode::ResponderSend
            | CqeOpcode::ResponderSendImmediate
            | CqeOpcode::ResponderSendInvalidate
            | CqeOpcode::ResponderError
    )
}

fn fill_received(completion: &mut WorkCompletion, window: &Window<'_, BLOCK>, opcode: CqeOpcode) {
    completion.opcode = match opcode {
        CqeOpcode::ResponderWriteImmediate => WorkCompletionOpcode::ReceiveRdmaWithImmediate,
        _ => WorkCompletionOpcode::Receive,
    };
    completion.byte_count = window.load_be32::<44>();
    if matches!(opcode, CqeOpcode::ResponderWriteImmediate | CqeOpcode::ResponderSendImmediate) {
        completion.immediate = Some(window.load_be32::<36>());
    }
}

fn create<D: DeviceRef>(device: &D, memory: &Dma<DmaOf<D>>, log_size: u8) -> Result<Cqn, CommandError> {
    let device = device.device();
    let entries = BLOCK << log_size;
    let run = PageRun::of_buffer(memory.iova(), entries, device.config().log_max_page);
    let mut input = CreateCqIn::new();
    input.set_opcode(CommandOpcode::CreateCq);
    input
        .cq_context_mut()
        .set_log_cq_size(log_size)
        .set_uar_page(device.uar())
        .set_c_eqn_or_apu_element(device.eqn().value())
        .set_log_page_size(run.log_page_size())
        .set_dbr_addr(memory.iova() + entries as u64);
    let output: CreateCqOut = device.call(&Request::with_tail(&input, run.list(0)))?;
    Ok(output.cqn())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::cqe::CompletionEntry;
    use zerocopy::IntoBytes;

    #[test]
    fn offsets_are_those_of_the_layout() {
        let mut cqe = CompletionEntry::new();
        cqe.set_user_index(0x12_3456).set_immediate(7).set_byte_count(9).set_qpn(Qpn::from_low_bits(0x77));
        cqe.set_wqe_counter(0xabcd).set_opcode(CqeOpcode::ResponderSend).set_owner(true);
        let bytes = cqe.as_bytes();
        let be32 = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((be32(32), be32(36), be32(44)), (0x12_3456, 7, 9));
        let tail = Tail(u64::from_be_bytes(bytes[56..].try_into().unwrap()));
        assert_eq!((tail.qpn(), tail.counter(), tail.opcode()), (0x77, 0xabcd, 2));
        let mut error = bareverbs_prm::cqe::ErrorEntry::new();
        error.set_syndrome(CqeSyndrome::RemoteAccess).set_vendor_syndrome(0x88);
        assert_eq!((error.as_bytes()[55], error.as_bytes()[54]), (0x13, 0x88));
    }
}
