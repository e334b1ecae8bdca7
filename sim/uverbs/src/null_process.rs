//! A process without resources, for a device that is only queried.

use crate::Errno;
use crate::connection_names::{ConnectionFileId, Port, SubnetPort};
use crate::event_record::{EventFileId, EventFileKind};
use crate::process::Process;
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::{DmaFault, HostMemory};

/// A process without memory, descriptors or neighbours. For a device that is only queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NullProcess;

impl HostMemory for NullProcess {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        Err(DmaFault { iova, length: buffer.len(), write: false })
    }

    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        Err(DmaFault { iova, length: bytes.len(), write: true })
    }
}

impl Process for NullProcess {
    fn now(&mut self) -> Time {
        Time::ZERO
    }

    fn open_event_file(&mut self, _: EventFileId, _: EventFileKind) -> Result<i32, Errno> {
        Err(Errno::NotSupported)
    }

    fn event_file(&mut self, _: i32) -> Option<EventFileId> {
        None
    }

    fn discard_events(&mut self, _: EventFileId, _: u64) -> u32 {
        0
    }

    fn hang_up(&mut self, _: EventFileId) {}

    fn has_memory(&mut self, _: u64, _: u64, _: bool) -> bool {
        false
    }

    fn resolve(&mut self, _: Gid) -> Result<MacAddress, Errno> {
        Err(Errno::TimedOut)
    }

    fn is_reachable(&mut self, _: Gid) -> bool {
        false
    }

    fn is_outside(&mut self, _: Gid) -> bool {
        false
    }

    fn find_subnet_port(&mut self, _: Gid) -> Option<SubnetPort> {
        None
    }

    fn gid_of_lid(&mut self, _: u16) -> Option<Gid> {
        None
    }

    fn claim_port(&mut self, _: Port) -> Result<(), Errno> {
        Err(Errno::AddressNotAvailable)
    }

    fn release_port(&mut self, _: Port) {}

    fn has_owner(&mut self, _: Port) -> bool {
        false
    }

    fn is_first(&mut self) -> bool {
        false
    }

    fn connection_file(&mut self, _: i32) -> Option<ConnectionFileId> {
        None
    }

    fn seed(&mut self) -> u64 {
        0
    }

    fn wall_clock(&mut self) -> u64 {
        0
    }

    fn inode(&mut self, _: i32) -> Option<(u64, u64)> {
        None
    }
}
