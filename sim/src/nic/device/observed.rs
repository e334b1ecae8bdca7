//! What an observer of the device asks for and is given.

use super::Nic;
use crate::nic::observer::{DeviceEvent, DeviceRecord, FrameOrigin, Observer};
use bareverbs_prm::time::Time;

impl Nic {
    /// Begins to keep a [`DeviceRecord`] of every step, and the origin of every frame, or ends it; a reset does not change it. Nothing
    /// that the device does depends on it.
    pub fn observe(&mut self, on: bool) {
        if on != self.attached.observer.is_some() {
            self.attached.observer = on.then(Box::default);
        }
    }

    /// The oldest record that was not fetched. Fetch them after every input: the 65,537th that waits is lost.
    pub fn poll_record(&mut self) -> Option<DeviceRecord> {
        self.attached.observer.as_mut().and_then(|observer| observer.pop())
    }

    /// Records that were lost since the last call, because too many waited.
    pub fn take_lost_records(&mut self) -> u64 {
        self.attached.observer.as_mut().map_or(0, |observer| observer.take_lost())
    }

    /// Whose the frame is that the last [`Self::poll_transmit`] gave, if the device is observed and the frame is of a queue.
    pub fn take_frame_origin(&mut self) -> Option<FrameOrigin> {
        self.attached.observer.as_mut().and_then(|observer| observer.take_frame())
    }

    /// Tells the observer, if there is one.
    #[inline]
    pub(in crate::nic) fn tell_observer(&mut self, now: Time, event: impl FnOnce() -> DeviceEvent) {
        if let Some(observer) = &mut self.attached.observer {
            Observer::push(observer, now, event());
        }
    }
}
