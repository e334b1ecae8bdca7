//! A method at work.

use crate::attributes::DeviceAttributes;
use crate::commands::CommandQueue;
use crate::files::DeviceFile;

/// Everything that a method may touch: the device, who asks, and the file through which.
#[derive(Debug)]
pub(crate) struct Call<'a, P> {
    pub(crate) commands: &'a mut CommandQueue,
    pub(crate) attributes: &'a DeviceAttributes,
    pub(crate) file: &'a mut DeviceFile,
    pub(crate) process: &'a mut P,
}
