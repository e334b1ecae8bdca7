//! How the device accesses memory: a type 1 container, iommufd, or unprotected physical addresses.

use super::error::VfioError;
use super::ioctl;
use super::pins::Pins;
use crate::memory::{Mapper, Piece, Placement, Stretch};
use crate::pci::{Address, Function, Tree};
use core::fmt;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use vfio_bindings::bindings::vfio::{VFIO_GROUP_FLAGS_VIABLE, VFIO_NOIOMMU_IOMMU};
use vfio_ioctls::{VfioContainer, VfioDevice, VfioError as CrateError};

/// IOMMU modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IommuKind {
    /// A group in a container with the type 1 version 2 interface.
    Type1,
    /// The device's own character device, in an iommufd address space.
    Iommufd,
    /// No IOMMU: the device gets physical addresses and can access all memory.
    None,
}

impl fmt::Display for IommuKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Type1 => "type 1",
            Self::Iommufd => "iommufd",
            Self::None => "no IOMMU",
        })
    }
}

/// The open files of each mode. Dropping them returns the device.
enum Way {
    Type1(GroupWay),
    Iommufd {
        device: OwnedFd,
        iommufd: File,
        ioas: u32,
    },
    /// Kept open: the group, its container, and the table of physical addresses.
    None {
        device: OwnedFd,
        _group: File,
        _container: File,
        pagemap: File,
        pins: Pins,
    },
}

/// Container, group and device of the crate `vfio-ioctls`.
struct GroupWay {
    device: ManuallyDrop<VfioDevice>,
    container: Arc<VfioContainer>,
    directory: PathBuf,
}

/// The open device and its view of memory.
pub struct Iommu {
    way: Way,
    placement: Placement,
}

impl fmt::Debug for Iommu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iommu").field("kind", &self.kind()).finish_non_exhaustive()
    }
}

/// Page size of the IOMMU.
const PAGE: u64 = 4096;
/// IOVA ranges to assume on a kernel that does not report them: 39 bits without the MSI window.
const USUAL_RANGES: [(u64, u64); 2] = [(0, 0xfedf_ffff), (0xfef0_0000, (1 << 39) - 1)];

impl Iommu {
    /// Opens the device of a function in the best mode available.
    pub(super) fn open(
        tree: &Tree,
        function: &Function,
        wanted: Option<IommuKind>,
    ) -> Result<Self, VfioError> {
        match wanted {
            Some(IommuKind::None) => Self::without(tree, function),
            Some(IommuKind::Type1) => Self::type1(tree, function),
            Some(IommuKind::Iommufd) => Self::iommufd(tree, function),
            None if function.vfio_device.is_some() && tree.path("dev/iommu").exists() => {
                Self::iommufd(tree, function)
            }
            None => Self::type1(tree, function),
        }
    }

    /// The mode in use.
    pub fn kind(&self) -> IommuKind {
        match self.way {
            Way::Type1(_) => IommuKind::Type1,
            Way::Iommufd { .. } => IommuKind::Iommufd,
            Way::None { .. } => IommuKind::None,
        }
    }

    /// The device's file.
    pub(super) fn device(&self) -> BorrowedFd<'_> {
        match &self.way {
            // SAFETY: the crate's device keeps its file open as long as it lives, which is as long as `self`.
            Way::Type1(way) => unsafe { BorrowedFd::borrow_raw(way.device.as_raw_fd()) },
            Way::Iommufd { device, .. } | Way::None { device, .. } => device.as_fd(),
        }
    }

    fn type1(tree: &Tree, function: &Function) -> Result<Self, VfioError> {
        let failed = |error| from_crate(function.address, error);
        let container = Arc::new(VfioContainer::new(None).map_err(failed)?);
        let directory = tree.directory(function.address);
        let device = VfioDevice::new(&directory, container.clone(), false).map_err(failed)?;
        // SAFETY: the container's file is open as long as the container lives.
        let file = unsafe { BorrowedFd::borrow_raw(container.as_raw_fd()) };
        let ranges = ioctl::iommu_info(file).ok().and_then(|bytes| iova_ranges(&bytes));
        let way = GroupWay { device: ManuallyDrop::new(device), container, directory };
        Ok(Self::new(Way::Type1(way), ranges))
    }

    fn iommufd(tree: &Tree, function: &Function) -> Result<Self, VfioError> {
        let address = function.address;
        let name = function.vfio_device.as_ref().ok_or(VfioError::NoCharacterDevice { address })?;
        let device = open(tree.path("dev/vfio/devices").join(name))?;
        let iommufd = open(tree.path("dev/iommu"))?;
        let failed =
            |error| VfioError::System { what: "joining an address space of iommufd", address, error };
        let ioas = ioctl::join_iommufd(device.as_fd(), iommufd.as_fd()).map_err(failed)?;
        let ranges = ioctl::ioas_ranges(iommufd.as_fd(), ioas).map_err(failed)?;
        Ok(Self::new(Way::Iommufd { device: device.into(), iommufd, ioas }, Some(ranges)))
    }

    fn without(tree: &Tree, function: &Function) -> Result<Self, VfioError> {
        let address = function.address;
        let failed = |what| move |error| VfioError::System { what, address, error };
        let group = function.group.ok_or(VfioError::NoUnsafeMode { address })?;
        let container = open(tree.path("dev/vfio/vfio"))?;
        if !ioctl::has_extension(container.as_fd(), VFIO_NOIOMMU_IOMMU) {
            return Err(VfioError::NoUnsafeMode { address });
        }
        let group = open(tree.path(format!("dev/vfio/noiommu-{group}")))?;
        let flags = ioctl::group_flags(group.as_fd()).map_err(failed("asking for the state of the group"))?;
        if flags & VFIO_GROUP_FLAGS_VIABLE == 0 {
            return Err(VfioError::GroupNotViable { address });
        }
        ioctl::set_container(group.as_fd(), container.as_fd())
            .map_err(failed("putting the group into a container"))?;
        ioctl::set_iommu(container.as_fd(), VFIO_NOIOMMU_IOMMU)
            .map_err(failed("choosing to have no IOMMU"))?;
        let name = CString::new(address.to_string()).unwrap_or_default();
        let device = ioctl::device_of_group(group.as_fd(), &name).map_err(failed("opening the device"))?;
        let pagemap = File::open("/proc/self/pagemap").map_err(failed("opening /proc/self/pagemap"))?;
        let way = Way::None { device, _group: group, _container: container, pagemap, pins: Pins::default() };
        Ok(Self::new(way, Some(Vec::new())))
    }

    fn new(way: Way, ranges: Option<Vec<(u64, u64)>>) -> Self {
        let ranges = ranges.unwrap_or_else(|| USUAL_RANGES.to_vec());
        Self { way, placement: Placement::new(ranges) }
    }

    /// # Safety
    /// As [`Mapper::map`].
    unsafe fn map_at(&self, piece: &Piece<'_>, iova: u64) -> Result<(), i32> {
        match &self.way {
            Way::Type1(way) => {
                // SAFETY: the caller promises that the bytes stay valid and unreferenced.
                let mapped = unsafe { way.container.vfio_dma_map(iova, piece.length, piece.start.as_ptr()) };
                mapped.map_err(|error| errno_of(&error))
            }
            Way::Iommufd { iommufd, ioas, .. } => {
                let user = piece.start.as_ptr().expose_provenance();
                // SAFETY: as above.
                unsafe { ioctl::ioas_map(iommufd.as_fd(), *ioas, user, piece.length, iova) }
                    .map_err(|error| errno(&error))
            }
            Way::None { .. } => Err(libc::ENOTSUP),
        }
    }
}

#[cfg(test)]
impl Iommu {
    /// [`Mapper::map`] for tests, whose fake kernel lets no device access memory.
    pub(super) fn map_test_memory(&self, piece: &Piece<'_>) -> Result<Vec<Stretch>, i32> {
        // SAFETY: no device gets the address of the bytes.
        unsafe { self.map(piece) }
    }
}

// SAFETY: with an IOMMU the stretch is the whole piece (`Placement::place`); the kernel pins its pages and maps them there until `unmap`.
// Without one the stretches are the pages that the kernel names (`physical`), pinned before they are asked for (`Pins::map`).
unsafe impl Mapper for Iommu {
    unsafe fn map(&self, piece: &Piece<'_>) -> Result<Vec<Stretch>, i32> {
        if let Way::None { pagemap, pins, .. } = &self.way {
            // SAFETY: the caller promises that the pages stay mapped.
            return unsafe { pins.map(piece, |piece| physical(pagemap, piece)) };
        }
        let stretch = self.placement.place(piece).ok_or(libc::ENOSPC)?;
        // SAFETY: the caller's promises are handed on.
        match unsafe { self.map_at(piece, stretch.iova) } {
            Ok(()) => Ok(vec![stretch]),
            Err(errno) => {
                self.placement.give_back(&stretch);
                Err(errno)
            }
        }
    }

    /// Addresses that cannot be unmapped are never reused.
    fn unmap(&self, stretch: &Stretch) {
        let unmapped = match &self.way {
            Way::Type1(way) => way.container.vfio_dma_unmap(stretch.iova, stretch.length).is_ok(),
            Way::Iommufd { iommufd, ioas, .. } => {
                ioctl::ioas_unmap(iommufd.as_fd(), *ioas, stretch.iova, stretch.length).is_ok()
            }
            Way::None { pins, .. } => return pins.unmap(stretch),
        };
        if unmapped {
            self.placement.give_back(stretch);
        }
    }
}

impl Drop for GroupWay {
    /// The crate looks up the group in sysfs and panics if the device is gone. In that case we only close its file,
    /// which is what the kernel waits for.
    fn drop(&mut self) {
        if self.directory.join("iommu_group").exists() {
            // SAFETY: the device is not used after this: `self` is being dropped.
            unsafe { ManuallyDrop::drop(&mut self.device) };
        } else {
            // SAFETY: the file is open, since the crate's device still holds it, and is closed by nobody else: the crate's
            // device is never dropped on this branch.
            unsafe { libc::close(self.device.as_raw_fd()) };
        }
    }
}

fn open(path: PathBuf) -> Result<File, VfioError> {
    File::options().read(true).write(true).open(&path).map_err(|error| VfioError::Open { path, error })
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

fn errno_of(error: &CrateError) -> i32 {
    match error {
        CrateError::IommuDmaMap(error) | CrateError::IommuDmaUnmap(error) => error.errno(),
        _ => libc::EIO,
    }
}

fn from_crate(address: Address, error: CrateError) -> VfioError {
    match error {
        CrateError::OpenContainer(error) => VfioError::Open { path: "/dev/vfio/vfio".into(), error },
        CrateError::OpenGroup(error, group) => {
            VfioError::Open { path: format!("/dev/vfio/{group}").into(), error }
        }
        CrateError::GroupViable => VfioError::GroupNotViable { address },
        CrateError::ContainerSetIOMMU(error) => {
            let error = io::Error::from_raw_os_error(error.errno());
            VfioError::System { what: "choosing the IOMMU of the container", address, error }
        }
        CrateError::GroupGetDeviceFD(error) => {
            let error = io::Error::from_raw_os_error(error.errno());
            VfioError::System { what: "opening the device", address, error }
        }
        other => VfioError::Refused { address, why: other.to_string() },
    }
}

/// IOVA ranges in an answer to VFIO_IOMMU_GET_INFO, as first and last address; `None` if it has none.
fn iova_ranges(info: &[u8]) -> Option<Vec<(u64, u64)>> {
    const HAS_CAPABILITIES: u32 = 2;
    const IOVA_RANGES: u16 = 1;
    let word = |at: usize| {
        info.get(at..at.checked_add(4)?)
            .map(|bytes| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    let long = |at: usize| Some(u64::from(word(at)?) | u64::from(word(at.checked_add(4)?)?) << 32);
    if word(4)? & HAS_CAPABILITIES == 0 {
        return None;
    }
    let mut at = word(16)? as usize;
    while at != 0 {
        let next = word(at.checked_add(4)?)? as usize;
        if word(at)? as u16 == IOVA_RANGES {
            let count = word(at + 8)? as usize;
            return (0..count)
                .map(|index| Some((long(at + 16 + 16 * index)?, long(at + 24 + 16 * index)?)))
                .collect();
        }
        // A list that points backwards would never end.
        at = if next > at { next } else { 0 };
    }
    None
}

/// Physical addresses of a piece, with adjacent pages merged. The pages must be pinned, and the process privileged.
/// Reads no byte of the piece: pinning has faulted the pages in, so a page that is not present is an error.
fn physical(pagemap: &File, piece: &Piece<'_>) -> Result<Vec<Stretch>, i32> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let mut stretches: Vec<Stretch> = Vec::new();
    for offset in (0..piece.length).step_by(PAGE as usize) {
        let page = (piece.start.as_ptr().addr() + offset) as u64 / PAGE;
        let mut entry = [0; 8];
        pagemap.read_exact_at(&mut entry, page * 8).map_err(|error| errno(&error))?;
        let entry = u64::from_ne_bytes(entry);
        let address = (entry & FRAME) * PAGE;
        if entry & PRESENT == 0 || address == 0 {
            // The kernel hides page frame numbers from processes without CAP_SYS_ADMIN.
            return Err(libc::EPERM);
        }
        match stretches.last_mut().filter(|last| last.iova + last.length as u64 == address) {
            Some(last) => last.length += PAGE as usize,
            None => stretches.push(Stretch { offset, iova: address, length: PAGE as usize }),
        }
    }
    Ok(stretches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::NonNull;

    fn info(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// A page table of three pages from `start`: page frame number and present bit.
    fn pagemap(start: usize, pages: [(u64, bool); 3]) -> File {
        let table = tempfile::tempfile().unwrap();
        let entries = pages.map(|(frame, present)| (frame | u64::from(present) << 63).to_ne_bytes()).concat();
        table.write_all_at(&entries, (start as u64 / PAGE) * 8).unwrap();
        table
    }

    #[test]
    fn physical_addresses_are_those_of_the_table() {
        let mut bytes = vec![1u8; 4 * PAGE as usize];
        let lead = bytes.as_ptr().align_offset(PAGE as usize);
        let start = NonNull::from(&mut bytes[lead..]).cast();
        let piece = Piece { start, length: 3 * PAGE as usize, page: PAGE as usize, file: None };
        let table = |pages| pagemap(start.as_ptr().addr(), pages);
        let stretch = |page: usize, frame, count: usize| Stretch {
            offset: page * PAGE as usize,
            iova: frame * PAGE,
            length: count * PAGE as usize,
        };
        let neighbours = table([(5, true), (6, true), (9, true)]);
        assert_eq!(physical(&neighbours, &piece), Ok(vec![stretch(0, 5, 2), stretch(2, 9, 1)]));
        assert_eq!(physical(&table([(5, true), (6, false), (9, true)]), &piece), Err(libc::EPERM));
        assert_eq!(physical(&table([(0, true); 3]), &piece), Err(libc::EPERM), "numbers are hidden");
        assert_eq!(physical(&tempfile::tempfile().unwrap(), &piece), Err(libc::EIO), "cut short");
    }

    #[test]
    fn ranges_are_read_from_the_list_of_capabilities() {
        let words = [
            80,
            3,
            0x1000,
            0,
            24,
            0,
            0x0001_0002,
            40,
            0,
            0,
            1 | 1 << 16,
            0,
            2,
            0,
            0x1000,
            0,
            0x1fff,
            0,
            0,
            1,
            u32::MAX,
            1,
        ];
        assert_eq!(iova_ranges(&info(&words)), Some(vec![(0x1000, 0x1fff), (1 << 32, 0x1_ffff_ffff)]));
        assert_eq!(iova_ranges(&info(&words[..20])), None, "cut short");
        assert_eq!(iova_ranges(&info(&[24, 1, 0x1000, 0, 0, 0])), None, "no capabilities");
        let endless = [80, 2, 0, 0, 24, 0, 2, 24, 0, 0];
        assert_eq!(iova_ranges(&info(&endless)), None, "a list that goes back");
        assert_eq!(iova_ranges(&[]), None);
    }
}
