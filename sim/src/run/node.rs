//! A node: a device, its host's memory, and the world's state for both.

use super::device::Device;
use super::latency::Latency;
use super::timer::Timer;
use bareverbs_prm::time::Time;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Node<M, D> {
    pub(crate) name: String,
    pub(crate) device: D,
    pub(crate) memory: M,
    pub(crate) latency: Latency,
    /// Card that its device is a function of.
    pub(crate) card: Option<u32>,
    /// Direction of the link that leaves this node.
    pub(crate) egress: Option<usize>,
    pub(crate) last_doorbell: Time,
    pub(super) timer: Timer,
    /// The timer is not called before this time.
    pub(crate) timer_floor: Time,
    pub(crate) interrupts: BTreeMap<u16, u64>,
}

impl<M, D: Device> Node<M, D> {
    pub(crate) fn new(name: String, device: D, memory: M, latency: Latency) -> Self {
        Self {
            name,
            device,
            memory,
            latency,
            card: None,
            egress: None,
            last_doorbell: Time::ZERO,
            timer: Timer::IDLE,
            timer_floor: Time::ZERO,
            interrupts: BTreeMap::new(),
        }
    }

    /// Collects the device's interrupts and passes each to `seen`.
    #[inline]
    pub(crate) fn collect_interrupts(&mut self, mut seen: impl FnMut(u16)) {
        while let Some(vector) = self.device.poll_interrupt() {
            seen(vector);
            *self.interrupts.entry(vector).or_default() += 1;
        }
    }

    /// When to schedule the node's timer, if its device's deadline is earlier than any scheduled one.
    #[inline(always)] // After every event of a node.
    pub(crate) fn arm_timer(&mut self, now: Time) -> Option<Time> {
        let due = self.device.poll_timeout()?.max(now).max(self.timer_floor);
        self.timer.arm(due).then_some(due)
    }
}
