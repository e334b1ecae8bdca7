//! The served device in terms of the protocol: regions, interrupts, reset and memory.

use super::VfioUserError;
use super::client::{Client, ClientError, Command, CommandSubject, Reply};
use crate::memory::{Mapper, Piece, Placement, Stretch};
use crate::pci::ids::{PciIdentity, Support, support};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_PCI, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_REGION_INFO_CAP_SPARSE_MMAP,
};

/// Offset of the PCI command register, and its bits.
const COMMAND: u64 = 4;
const MEMORY_SPACE: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;
/// Bytes of `struct vfio_region_info`. Its capabilities follow.
const REGION_INFO: usize = 32;
/// Longest reply to a region query, in bytes.
const REGION_ANSWER: u32 = 4096;
/// Read and write permission of a mapping.
const READ_WRITE: u32 = 3;

/// A region of the device.
#[derive(Debug)]
pub(super) struct BarRegion {
    pub(super) flags: u32,
    pub(super) size: u64,
    pub(super) offset: u64,
    /// The file to map and its mappable areas; an empty list means the whole region.
    pub(super) file: Option<File>,
    pub(super) areas: Vec<(u64, u64)>,
}

/// A device behind a connection.
#[derive(Debug)]
pub(super) struct RemoteDevice {
    client: Mutex<Client>,
    failure: Mutex<Option<String>>,
    broken: AtomicBool,
}

impl RemoteDevice {
    pub(super) fn connect(path: &Path, limit: Duration) -> Result<Self, VfioUserError> {
        let client = Client::connect(path, limit)?;
        let device =
            Self { client: Mutex::new(client), failure: Mutex::default(), broken: AtomicBool::new(false) };
        let answer = device.call(Command::GetInfo, &words(&[16, 0, 0, 0]), &[])?;
        match answer.word(4) {
            Some(flags) if flags & VFIO_DEVICE_FLAGS_PCI != 0 => Ok(device),
            _ => Err(garbage(Command::GetInfo, "it is not a PCI device").into()),
        }
    }

    /// Why the connection is unusable, if it is.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Refuses a device that the driver does not support.
    pub(super) fn check_identity(&self) -> Result<(), VfioUserError> {
        let PciIdentity { vendor, device, .. } = self.identity()?;
        match support(vendor, device) {
            Support::Supported => Ok(()),
            Support::Refused(why) => Err(VfioUserError::Unsupported { id: (vendor, device), why }),
        }
    }

    /// Identity of the function.
    pub(super) fn identity(&self) -> Result<PciIdentity, ClientError> {
        let mut bytes = [0; PciIdentity::BYTES];
        self.read_region(VFIO_PCI_CONFIG_REGION_INDEX, 0, &mut bytes)?;
        Ok(PciIdentity::from_configuration(&bytes))
    }

    pub(super) fn reset(&self) -> Result<(), ClientError> {
        self.call(Command::Reset, &[], &[]).map(drop)
    }

    pub(super) fn set_bus_master(&self, on: bool) -> Result<(), VfioUserError> {
        let old = self.read_command()?;
        let wanted = if on { old | MEMORY_SPACE | BUS_MASTER } else { old & !BUS_MASTER };
        let mut body = access(VFIO_PCI_CONFIG_REGION_INDEX, COMMAND, 2);
        body.extend(wanted.to_le_bytes());
        self.call(Command::RegionWrite, &body, &[])?;
        match self.read_command()? {
            found if found == wanted => Ok(()),
            found => Err(VfioUserError::Configuration { wanted, found }),
        }
    }

    fn read_command(&self) -> Result<u16, ClientError> {
        let mut bytes = [0; 2];
        self.read_region(VFIO_PCI_CONFIG_REGION_INDEX, COMMAND, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    pub(super) fn read_region(&self, region: u32, offset: u64, bytes: &mut [u8]) -> Result<(), ClientError> {
        let body = access(region, offset, bytes.len());
        let reply = self.call(Command::RegionRead, &body, &[])?;
        match reply.body.get(body.len()..) {
            Some(data) if data.len() == bytes.len() => {
                bytes.copy_from_slice(data);
                Ok(())
            }
            _ => Err(garbage(Command::RegionRead, "it has another length than was asked for")),
        }
    }

    /// Writes without waiting. A failure shows later.
    pub(super) fn post_region(&self, region: u32, offset: u64, bytes: &[u8]) {
        if self.broken.load(Ordering::Relaxed) {
            return;
        }
        let mut body = access(region, offset, bytes.len());
        body.extend(bytes);
        let posted = self.client().post(Command::RegionWrite, &body);
        let _ = self.note(posted);
    }

    pub(super) fn region(&self, index: u32) -> Result<BarRegion, VfioUserError> {
        let body = words(&[REGION_ANSWER, 0, index, 0, 0, 0, 0, 0]);
        let mut reply = self.call(Command::GetRegionInfo, &body, &[])?;
        let missing = || garbage(Command::GetRegionInfo, "it is too short");
        let (flags, size) = (reply.word(4).ok_or_else(missing)?, reply.long(16).ok_or_else(missing)?);
        let offset = reply.long(24).ok_or_else(missing)?;
        let areas = sparse_areas(&reply);
        Ok(BarRegion { flags, size, offset, file: reply.files.pop(), areas })
    }

    pub(super) fn vectors(&self) -> Result<u32, ClientError> {
        let reply = self.call(Command::GetIrqInfo, &words(&[16, 0, VFIO_PCI_MSIX_IRQ_INDEX, 0]), &[])?;
        reply.word(12).ok_or(garbage(Command::GetIrqInfo, "it is too short"))
    }

    pub(super) fn connect_vector(&self, vector: u32, event: BorrowedFd<'_>) -> Result<(), ClientError> {
        let action = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
        let body = words(&[20, action, VFIO_PCI_MSIX_IRQ_INDEX, vector, 1]);
        self.call(Command::SetIrqs, &body, &[event]).map(drop)
    }

    pub(super) fn disconnect_vectors(&self) -> Result<(), ClientError> {
        let action = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;
        self.call(Command::SetIrqs, &words(&[20, action, VFIO_PCI_MSIX_IRQ_INDEX, 0, 0]), &[]).map(drop)
    }

    fn call(&self, command: Command, body: &[u8], files: &[BorrowedFd<'_>]) -> Result<Reply, ClientError> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(ClientError::Broken {
                command: command.name(),
                subject: CommandSubject::of(command, body),
                error: io::ErrorKind::NotConnected.into(),
            });
        }
        let answer = self.client().call(command, body, files);
        self.note(answer)
    }

    fn client(&self) -> MutexGuard<'_, Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the first failure that makes the connection unusable.
    fn note<T>(&self, result: Result<T, ClientError>) -> Result<T, ClientError> {
        if let Err(error @ (ClientError::Broken { .. } | ClientError::Garbage { .. })) = &result {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert_with(|| error.to_string());
            self.broken.store(true, Ordering::Relaxed);
        }
        result
    }
}

/// Maps memory of this process for the served device.
#[derive(Debug)]
pub struct RemoteMemory {
    device: Arc<RemoteDevice>,
    placement: Placement,
}

impl RemoteMemory {
    pub(super) fn new(device: Arc<RemoteDevice>) -> Self {
        Self { device, placement: Placement::new([(0, (1 << 47) - 1)]) }
    }
}

/// Encodes address and size after the flags and offset of DMA_MAP, or the flags of DMA_UNMAP.
fn range(head: &[u32], offset: Option<u64>, stretch: &Stretch) -> Vec<u8> {
    let mut body = words(head);
    let numbers = offset.into_iter().chain([stretch.iova, stretch.length as u64]);
    body.extend(numbers.flat_map(u64::to_ne_bytes));
    body
}

// SAFETY: the stretch is the whole piece (`Placement::place`). Another process maps the piece's own file, which keeps its pages where they are;
// after `unmap` it was told to forget them, and a server that does not can still reach nothing of this process but that file.
unsafe impl Mapper for RemoteMemory {
    unsafe fn map(&self, piece: &Piece<'_>) -> Result<Vec<Stretch>, i32> {
        let file = piece.file.ok_or(libc::ENOTSUP)?;
        let stretch = self.placement.place(piece).ok_or(libc::ENOSPC)?;
        let body = range(&[32, READ_WRITE], Some(0), &stretch);
        match self.device.call(Command::DmaMap, &body, &[file.as_fd()]) {
            Ok(_) => Ok(vec![stretch]),
            Err(error) => {
                self.placement.give_back(&stretch);
                Err(match error {
                    ClientError::Refused { errno, .. } if errno != 0 => errno as i32,
                    _ => libc::EIO,
                })
            }
        }
    }

    /// Addresses that cannot be unmapped are never reused.
    fn unmap(&self, stretch: &Stretch) {
        if self.device.call(Command::DmaUnmap, &range(&[24, 0], None, stretch), &[]).is_ok() {
            self.placement.give_back(stretch);
        }
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The body of a region access, without its data.
fn access(region: u32, offset: u64, length: usize) -> Vec<u8> {
    let mut body = offset.to_ne_bytes().to_vec();
    body.extend(words(&[region, length as u32]));
    body
}

fn garbage(command: Command, what: &'static str) -> ClientError {
    ClientError::Garbage { command: command.name(), what }
}

/// Mappable areas of a region (offset and length), from its capability list.
fn sparse_areas(reply: &Reply) -> Vec<(u64, u64)> {
    let mut at = reply.word(12).unwrap_or(0) as usize;
    while at >= REGION_INFO {
        let (Some(id), Some(next)) = (reply.word(at), reply.word(at + 4)) else { break };
        if id & 0xffff == VFIO_REGION_INFO_CAP_SPARSE_MMAP {
            let count = reply.word(at + 8).unwrap_or(0) as usize;
            let area =
                |index: usize| Some((reply.long(at + 16 + 16 * index)?, reply.long(at + 24 + 16 * index)?));
            return (0..count).map_while(area).collect();
        }
        // A list that points backwards would never end.
        at = if next as usize > at { next as usize } else { 0 };
    }
    Vec::new()
}
