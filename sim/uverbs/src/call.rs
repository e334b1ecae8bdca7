//! Context of a method call.

use crate::Errno;
use crate::device::Device;
use crate::event_record::EventFileKind;
use crate::files::{DeviceFile, FileId};
use crate::process::Process;
use crate::queues::Listener;
use crate::request::Request;

/// Everything that a method may access: the device, the calling process, and the file it calls through.
#[derive(Debug)]
pub(crate) struct Call<'a, P> {
    pub(crate) device: &'a mut Device,
    pub(crate) file_id: FileId,
    pub(crate) file: &'a mut DeviceFile,
    pub(crate) process: &'a mut P,
}

impl<P: Process> Call<'_, P> {
    /// The event file for a new queue: the one an attribute names, or the first.
    pub(crate) fn listener(
        &mut self,
        request: &Request<'_>,
        id: u16,
        element: u64,
    ) -> Result<Listener, Errno> {
        let events = &self.device.events;
        let file = match request.descriptor(id) {
            Some(descriptor) => {
                let kind = EventFileKind::Asynchronous;
                Some(events.find(self.process, descriptor, self.file_id, kind)?)
            }
            None => events.first_asynchronous(self.file_id),
        };
        Ok(Listener { element, file })
    }
}
