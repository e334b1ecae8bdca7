//! A method at work.

use crate::device::Device;
use crate::files::{DeviceFile, FileId};

/// Everything that a method may touch: the device, who asks, and the file through which.
#[derive(Debug)]
pub(crate) struct Call<'a, P> {
    pub(crate) device: &'a mut Device,
    pub(crate) file_id: FileId,
    pub(crate) file: &'a mut DeviceFile,
    pub(crate) process: &'a mut P,
}
