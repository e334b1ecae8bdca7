//! Completion queue events: arming, waiting, moderation.
//!
//! **The race.** A completion may arrive between the last poll and the arming, and nobody may sleep through
//! it. So [`CompletionQueue::arm`] tells the device how far software has polled, checks the queue once more,
//! and returns [`Arming::Ready`] if there is something to poll; only after [`Arming::Armed`] may the caller
//! wait. The device closes the remaining gap: completions beyond the reported index raise the event at once.
//! [`CompletionQueue::wait`] does all of this.
//!
//! One arming raises one event. An event that arrives although `arm` returned `Ready` is harmless: a caller
//! that wakes up and finds nothing arms again.

use super::{CompletionQueue, CompletionQueueError};
use crate::capabilities::Capabilities;
use crate::command::Request;
use crate::device::DeviceRef;
use crate::hal::{Barrier, Hal, Mmio};
use bareverbs_prm::command::cq::{ModifyCqIn, ModifyCqOut};
use bareverbs_prm::context::CompletionQueueContext;
use bareverbs_prm::doorbell::{CqArm, UAR_PAGE_SIZE, uar};
use bareverbs_prm::numbering::CommandOpcode;
use bareverbs_prm::time::Duration;

/// Largest `cq_period`, in microseconds.
const LONGEST_PERIOD: u64 = 0xfff;
/// `modify_field_select` of MODIFY_CQ: period, count, period mode.
const SELECT: u32 = 0b1_0011;

/// Which completion raises the event of an arming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    /// The next one.
    Next,
    /// The next one that the peer sent as solicited, or that failed.
    Solicited,
}

/// The result of arming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "after `Ready` there is something to poll; only after `Armed` may one wait"]
pub enum Arming {
    /// There is something to poll.
    Ready,
    /// There is nothing; an event will come.
    Armed,
}

/// How many completions, or how much time, an event waits for, whichever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_moderate_cq")]
pub struct Moderation {
    /// Number of completions. 0 and 1 do not wait for more, unless there is a period.
    pub completions: u16,
    /// Period in whole microseconds, up to 4095; zero for none.
    pub period: Duration,
    /// When the period begins.
    pub from: PeriodStart,
}

/// When the period of a moderation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeriodStart {
    /// At the last event.
    LastEvent,
    /// At the last completion.
    LastCompletion,
}

impl Moderation {
    /// Every matching completion raises its event at once.
    pub const NONE: Self = Self { completions: 0, period: Duration::ZERO, from: PeriodStart::LastEvent };

    fn micros(&self) -> u64 {
        self.period.as_nanos().div_ceil(1000)
    }

    /// Whether the device supports it.
    pub(super) fn check(&self, capabilities: &Capabilities) -> Result<(), CompletionQueueError> {
        if *self != Self::NONE && !capabilities.completion_moderation {
            return Err(CompletionQueueError::NotOffered { feature: "moderation (cq_moderation)" });
        }
        if self.micros() > LONGEST_PERIOD {
            return Err(CompletionQueueError::Period { asked: self.period });
        }
        Ok(())
    }

    pub(super) fn write(&self, context: &mut CompletionQueueContext) {
        context.set_cq_max_count(self.completions).set_cq_period(self.micros() as u16);
        context.set_cq_period_mode((self.from == PeriodStart::LastCompletion).into());
    }
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Requests an event, and checks whether there is something to poll already.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self, notify: Notify) -> Arming {
        let consumer_index = self.consumer.counter();
        let solicited_only = notify == Notify::Solicited;
        let arm = CqArm { sequence: self.arm_sequence, solicited_only, consumer_index, cqn: self.cqn };
        let device = self.device.device();
        self.rings.record().store_be32::<4>(arm.arm_word());
        device.hal().barrier(Barrier::ToDevice);
        device
            .hal()
            .mmio()
            .write64(device.uar().value() as usize * UAR_PAGE_SIZE + uar::CQ_ARM, arm.to_raw());
        device.hal().barrier(Barrier::FlushMmio);
        match self.take_entry(self.consumer) {
            Ok(None) => Arming::Armed,
            Ok(Some(_)) | Err(_) => Arming::Ready,
        }
    }

    /// Records that the event of an arming arrived, so that the next arming is a new one. [`Self::wait`] does
    /// this itself.
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn acknowledge_event(&mut self) {
        self.arm_sequence = (self.arm_sequence + 1) & 3;
    }

    /// Sets the moderation of later events.
    #[doc(alias = "ibv_modify_cq")]
    pub fn set_moderation(&mut self, moderation: Moderation) -> Result<(), CompletionQueueError> {
        let device = self.device.device();
        moderation.check(device.capabilities())?;
        let mut input = ModifyCqIn::new();
        input.set_opcode(CommandOpcode::ModifyCq).set_cqn(self.cqn);
        input.set_modify_field_select_resize_field_select_modify_field_select_modify_field_select(SELECT);
        moderation.write(input.cq_context_mut());
        device.call::<ModifyCqOut>(&Request::new(&input)).map_err(CompletionQueueError::Command)?;
        Ok(())
    }
}
