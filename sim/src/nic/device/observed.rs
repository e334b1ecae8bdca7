//! The interface of a device for its observer.

use super::Nic;
use crate::nic::observer::{DeviceEvent, DeviceRecord, FrameOrigin, Observer};
use bareverbs_prm::time::Time;

impl Nic {
    /// Starts or stops recording a [`DeviceRecord`] of every step and the origin of every frame. A reset does not
    /// change this. The device behaves the same either way.
    pub fn observe(&mut self, on: bool) {
        if on != self.shared.optional.observer.is_some() {
            self.shared.optional.observer = on.then(Box::default);
        }
    }

    /// The oldest record not yet fetched. Fetch them after every input: at most 65,536 can wait, further ones are lost.
    pub fn poll_record(&mut self) -> Option<DeviceRecord> {
        self.shared.optional.observer.as_mut().and_then(|observer| observer.pop())
    }

    /// Number of records lost since the last call, because too many were waiting.
    pub fn take_lost_records(&mut self) -> u64 {
        self.shared.optional.observer.as_mut().map_or(0, |observer| observer.take_lost())
    }

    /// Origin of the frame from the last [`Self::poll_transmit`], if the device is observed and a queue sent the frame.
    pub fn take_frame_origin(&mut self) -> Option<FrameOrigin> {
        self.shared.optional.observer.as_mut().and_then(|observer| observer.take_frame())
    }

    /// Reports an event to the observer, if there is one.
    #[inline]
    pub(in crate::nic) fn tell_observer(&mut self, now: Time, event: impl FnOnce() -> DeviceEvent) {
        if let Some(observer) = &mut self.shared.optional.observer {
            Observer::push(observer, now, event());
        }
    }
}
