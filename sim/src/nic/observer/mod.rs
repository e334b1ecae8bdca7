//! The observer: records what a device does, step by step, for visualization. Off by default. When on, the device keeps
//! typed records in a ring of [`Observer::KEPT`] entries, counts those that did not fit, and remembers the work request
//! of each frame.
//!
//! **What it may not do.** It does not influence the device: an observed run has the same digest as an unobserved one.
//!
//! * `event`: the records and their text form in captures. `words`: parsing of that text.

mod event;
#[cfg(test)]
mod tests;
mod words;

pub use event::{DeviceEvent, FrameOrigin, FrameWork, WorkName};
pub use words::{TextError, TextWords};

use super::memory::{DmaFault, HostMemory};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::time::Time;
use std::collections::VecDeque;

/// What happened, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRecord {
    /// The time passed to the device.
    pub time: Time,
    /// What it did.
    pub event: DeviceEvent,
}

/// Records that have not been fetched yet.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    records: VecDeque<DeviceRecord>,
    lost: u64,
    /// Origin of the frame that was written last.
    frame: Option<FrameOrigin>,
    /// Origin of the Ethernet packets that wait to be sent, all of which belong to one work request.
    packets: Option<FrameOrigin>,
}

impl Observer {
    /// The maximum number of records kept until someone fetches them; further ones are counted and dropped.
    pub(crate) const KEPT: usize = 1 << 16;

    #[cold]
    pub(crate) fn push(&mut self, time: Time, event: DeviceEvent) {
        if self.records.len() < Self::KEPT {
            self.records.push_back(DeviceRecord { time, event });
        } else {
            self.lost += 1;
        }
    }

    /// The oldest record that has not been fetched.
    pub(crate) fn pop(&mut self) -> Option<DeviceRecord> {
        self.records.pop_front()
    }

    /// Number of records dropped since the last call.
    pub(crate) const fn take_lost(&mut self) -> u64 {
        core::mem::replace(&mut self.lost, 0)
    }

    /// A frame was written.
    #[cold]
    pub(crate) const fn set_frame(&mut self, origin: Option<FrameOrigin>) {
        self.frame = origin;
    }

    /// Records that the frame written last was looped back inside the device.
    #[cold]
    pub(crate) fn frame_looped_back(&mut self, now: Time) {
        if let Some(origin) = self.frame.take() {
            self.push(now, DeviceEvent::LoopedBack(origin));
        }
    }

    /// Records that an Ethernet send queue produced the packets that are sent next.
    #[cold]
    pub(crate) fn begin_packets(&mut self, now: Time, qpn: Qpn, work: WorkName) {
        let work = FrameWork::Wqe(work);
        self.packets = Some(FrameOrigin { qpn, work, psn: None, again: None, built: Some(now) });
    }

    /// Records that the frame written last is one of those packets.
    #[cold]
    pub(crate) const fn set_packet(&mut self) {
        self.frame = self.packets;
    }

    /// Takes the origin of the frame that was written last.
    pub(crate) const fn take_frame(&mut self) -> Option<FrameOrigin> {
        self.frame.take()
    }
}

/// Host memory that records its reads as reads of a kernel.
pub(crate) struct ObservedMemory<'a> {
    pub(crate) memory: &'a mut dyn HostMemory,
    pub(crate) observer: &'a mut Observer,
    pub(crate) now: Time,
}

impl HostMemory for ObservedMemory<'_> {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        let bytes = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        self.observer.push(self.now, DeviceEvent::KernelRead { address: iova, bytes });
        self.memory.read(iova, buffer)
    }

    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        self.memory.write(iova, bytes)
    }
}
