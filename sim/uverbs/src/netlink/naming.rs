//! How responses identify a device and its port.

use super::message::Reply;
use crate::device_index::DeviceIndex;
use crate::uapi::{RDMA_NLDEV_ATTR_DEV_INDEX, RDMA_NLDEV_ATTR_DEV_NAME};

/// The only port of each device.
pub(super) const PORT: u32 = 1;

/// Number and name of a device.
pub(super) fn put_name(reply: &mut Reply, index: DeviceIndex) {
    reply.put_u32(RDMA_NLDEV_ATTR_DEV_INDEX, index.number().into());
    reply.put_text(RDMA_NLDEV_ATTR_DEV_NAME, &index.name());
}
