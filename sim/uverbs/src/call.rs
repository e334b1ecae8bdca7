//! A method at work.

use crate::Errno;
use crate::device::Device;
use crate::event_record::EventFileKind;
use crate::files::{DeviceFile, FileId};
use crate::process::Process;
use crate::queues::Listener;
use crate::request::Request;

/// Everything that a method may touch: the device, who asks, and the file through which.
#[derive(Debug)]
pub(crate) struct Call<'a, P> {
    pub(crate) device: &'a mut Device,
    pub(crate) file_id: FileId,
    pub(crate) file: &'a mut DeviceFile,
    pub(crate) process: &'a mut P,
}

impl<P: Process> Call<'_, P> {
    /// Who is to be told of a new queue: the file that an attribute names, or the first that there is.
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
