//! System calls of VFIO and iommufd. Errors are the kernel's.

use rustix::io::Errno;
use std::ffi::{CStr, c_int, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use vfio_bindings::bindings::vfio::{
    VFIO_BASE, VFIO_TYPE, vfio_device_attach_iommufd_pt, vfio_device_bind_iommufd, vfio_device_info,
    vfio_group_status, vfio_iommu_type1_info, vfio_irq_info, vfio_irq_set, vfio_region_info,
};

/// A request number without direction and size: `_IO(type, number)`.
const fn vfio(number: u32) -> c_ulong {
    ((VFIO_TYPE as u32) << 8 | (VFIO_BASE + number)) as c_ulong
}

/// `_IO(';', 0x80 + number)` of iommufd.
const fn iommufd(number: u32) -> c_ulong {
    ((b';' as u32) << 8 | (0x80 + number)) as c_ulong
}

const CHECK_EXTENSION: c_ulong = vfio(1);
const SET_IOMMU: c_ulong = vfio(2);
const GROUP_GET_STATUS: c_ulong = vfio(3);
const GROUP_SET_CONTAINER: c_ulong = vfio(4);
const GROUP_GET_DEVICE_FD: c_ulong = vfio(6);
const DEVICE_GET_INFO: c_ulong = vfio(7);
const DEVICE_GET_REGION_INFO: c_ulong = vfio(8);
const DEVICE_GET_IRQ_INFO: c_ulong = vfio(9);
const DEVICE_SET_IRQS: c_ulong = vfio(10);
const DEVICE_RESET: c_ulong = vfio(11);
/// Number 12 means something else for containers than for devices.
const IOMMU_GET_INFO: c_ulong = vfio(12);
const DEVICE_BIND_IOMMUFD: c_ulong = vfio(18);
const DEVICE_ATTACH_IOMMUFD_PT: c_ulong = vfio(19);
const IOAS_ALLOC: c_ulong = iommufd(1);
const IOAS_IOVA_RANGES: c_ulong = iommufd(4);
const IOAS_MAP: c_ulong = iommufd(5);
const IOAS_UNMAP: c_ulong = iommufd(6);

/// `struct iommu_ioas_alloc`.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct IoasAlloc {
    size: u32,
    flags: u32,
    pub(super) ioas: u32,
}

/// `struct iommu_ioas_iova_ranges`.
#[repr(C)]
#[derive(Debug, Default)]
struct IoasIovaRanges {
    size: u32,
    ioas: u32,
    count: u32,
    reserved: u32,
    ranges: u64,
    alignment: u64,
}

/// `struct iommu_ioas_map`.
#[repr(C)]
#[derive(Debug, Default)]
struct IoasMap {
    size: u32,
    flags: u32,
    ioas: u32,
    reserved: u32,
    user: u64,
    length: u64,
    iova: u64,
}

/// `struct iommu_ioas_unmap`.
#[repr(C)]
#[derive(Debug, Default)]
struct IoasUnmap {
    size: u32,
    ioas: u32,
    iova: u64,
    length: u64,
}

/// Fixed IOVA; device and processor may read and write.
const MAP_FIXED_READ_WRITE: u32 = 1 | 2 | 4;
/// Most address ranges to ask for; a machine has a handful.
const RANGES: usize = 64;

/// Converts a result of the kernel; negative values are errnos.
fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A request whose argument is a number.
fn with_number(fd: BorrowedFd<'_>, request: c_ulong, number: u32) -> io::Result<c_int> {
    #[cfg(test)]
    if let Some(answer) = fake::answer(fd, request, fake::Argument::Number(number)) {
        return answer;
    }
    // SAFETY: requests that are made here take a number, and the kernel touches no memory of this process.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request as _, c_ulong::from(number)) })
}

/// A request whose argument is memory: a structure that starts with its size, a number to return, or a name.
fn with_memory(fd: BorrowedFd<'_>, request: c_ulong, argument: &mut [u8]) -> io::Result<c_int> {
    #[cfg(test)]
    if let Some(answer) = fake::answer(fd, request, fake::Argument::Memory(argument)) {
        return answer;
    }
    // SAFETY: the bytes are what the kernel's interface wants for this request: they begin with their own length, or are as long
    // as what the request always takes, or end with a zero byte. The kernel reads and writes no more than that.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request as _, argument.as_mut_ptr()) })
}

/// A structure of the kernel's interface.
///
/// # Safety
/// It consists of integers without padding, and every bit pattern is a valid value.
unsafe trait KernelStruct {}

/// Structures of integers.
macro_rules! kernel_structs {
    ($($name:ty),+ $(,)?) => {$(
        // SAFETY: `repr(C)`, integers only, and the sizes of its fields add up to its own.
        unsafe impl KernelStruct for $name {}
    )+};
}

kernel_structs!(
    c_int,
    vfio_group_status,
    vfio_device_info,
    vfio_region_info,
    vfio_irq_info,
    vfio_device_bind_iommufd,
    vfio_device_attach_iommufd_pt,
    IoasAlloc,
    IoasIovaRanges,
    IoasMap,
    IoasUnmap,
);

/// A request whose argument is a structure that the kernel may modify.
fn with_struct<T: KernelStruct>(fd: BorrowedFd<'_>, request: c_ulong, argument: &mut T) -> io::Result<c_int> {
    // SAFETY: the bytes of `argument`, which nobody else reaches meanwhile; see above for why they may be written.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(core::ptr::from_mut(argument).cast(), size_of::<T>()) };
    with_memory(fd, request, bytes)
}

fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: the kernel has just made this file descriptor for the caller, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

pub(super) fn has_extension(container: BorrowedFd<'_>, kind: u32) -> bool {
    with_number(container, CHECK_EXTENSION, kind).is_ok_and(|answer| answer == 1)
}

pub(super) fn set_iommu(container: BorrowedFd<'_>, kind: u32) -> io::Result<()> {
    with_number(container, SET_IOMMU, kind).map(drop)
}

pub(super) fn group_flags(group: BorrowedFd<'_>) -> io::Result<u32> {
    let mut status = vfio_group_status { argsz: size_of::<vfio_group_status>() as u32, flags: 0 };
    with_struct(group, GROUP_GET_STATUS, &mut status)?;
    Ok(status.flags)
}

pub(super) fn set_container(group: BorrowedFd<'_>, container: BorrowedFd<'_>) -> io::Result<()> {
    let mut container = container.as_raw_fd();
    with_struct(group, GROUP_SET_CONTAINER, &mut container).map(drop)
}

pub(super) fn device_of_group(group: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    with_memory(group, GROUP_GET_DEVICE_FD, &mut name.to_bytes_with_nul().to_vec()).map(owned)
}

pub(super) fn device_info(device: BorrowedFd<'_>) -> io::Result<vfio_device_info> {
    let mut info = vfio_device_info { argsz: size_of::<vfio_device_info>() as u32, ..Default::default() };
    with_struct(device, DEVICE_GET_INFO, &mut info)?;
    Ok(info)
}

pub(super) fn region_info(device: BorrowedFd<'_>, index: u32) -> io::Result<vfio_region_info> {
    let argsz = size_of::<vfio_region_info>() as u32;
    let mut info = vfio_region_info { argsz, index, ..Default::default() };
    with_struct(device, DEVICE_GET_REGION_INFO, &mut info)?;
    Ok(info)
}

pub(super) fn irq_info(device: BorrowedFd<'_>, index: u32) -> io::Result<vfio_irq_info> {
    let mut info = vfio_irq_info { argsz: size_of::<vfio_irq_info>() as u32, index, ..Default::default() };
    with_struct(device, DEVICE_GET_IRQ_INFO, &mut info)?;
    Ok(info)
}

/// Connects interrupts of `index`, from vector 0, to event file descriptors. An empty list disconnects them all.
pub(super) fn set_irqs(device: BorrowedFd<'_>, index: u32, action: u32, events: &[c_int]) -> io::Result<()> {
    // A `vfio_irq_set` followed by its data. The first field is the size of both.
    let length = size_of::<vfio_irq_set>() + size_of_val(events);
    let header = [length as u32, action, index, 0, events.len() as u32];
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(events.iter().flat_map(|event| event.to_ne_bytes()));
    with_memory(device, DEVICE_SET_IRQS, &mut bytes).map(drop)
}

pub(super) fn reset(device: BorrowedFd<'_>) -> io::Result<()> {
    with_number(device, DEVICE_RESET, 0).map(drop)
}

/// The container's IOMMU information, with capabilities.
pub(super) fn iommu_info(container: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let header = size_of::<vfio_iommu_type1_info>();
    let mut wanted = header;
    for _ in 0..2 {
        let mut bytes = vec![0; wanted];
        bytes[..4].copy_from_slice(&(wanted as u32).to_ne_bytes());
        with_memory(container, IOMMU_GET_INFO, &mut bytes)?;
        let told = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        if told <= wanted || told > 1 << 16 {
            return Ok(bytes);
        }
        wanted = told;
    }
    Err(Errno::NOSPC.into())
}

/// Creates an iommufd address space and attaches a device to it. Returns the ID of the address space.
pub(super) fn join_iommufd(device: BorrowedFd<'_>, iommufd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bind = vfio_device_bind_iommufd {
        argsz: size_of::<vfio_device_bind_iommufd>() as u32,
        iommufd: iommufd.as_raw_fd(),
        ..Default::default()
    };
    // Kernels before 6.17 do not have the token at the end of the structure and accept only the shorter size.
    bind.argsz -= size_of::<u64>() as u32;
    with_struct(device, DEVICE_BIND_IOMMUFD, &mut bind)?;
    let mut space = IoasAlloc { size: size_of::<IoasAlloc>() as u32, ..Default::default() };
    with_struct(iommufd, IOAS_ALLOC, &mut space)?;
    let mut attach = vfio_device_attach_iommufd_pt { pt_id: space.ioas, ..Default::default() };
    attach.argsz = size_of::<vfio_device_attach_iommufd_pt>() as u32 - size_of::<u32>() as u32;
    with_struct(device, DEVICE_ATTACH_IOMMUFD_PT, &mut attach)?;
    Ok(space.ioas)
}

/// IOVA ranges that the device may use, as first and last address.
pub(super) fn ioas_ranges(iommufd: BorrowedFd<'_>, ioas: u32) -> io::Result<Vec<(u64, u64)>> {
    let mut ranges = [[0u64; 2]; RANGES];
    let mut request = IoasIovaRanges {
        size: size_of::<IoasIovaRanges>() as u32,
        ioas,
        count: RANGES as u32,
        ranges: ranges.as_mut_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    with_struct(iommufd, IOAS_IOVA_RANGES, &mut request)?;
    Ok(ranges.iter().take(request.count as usize).map(|[first, last]| (*first, *last)).collect())
}

/// Maps `length` bytes of this process from `user` for the device.
///
/// # Safety
/// As [`Mapper::map`](crate::memory::Mapper::map): the device writes to them until [`ioas_unmap`].
pub(super) unsafe fn ioas_map(
    iommufd: BorrowedFd<'_>,
    ioas: u32,
    user: usize,
    length: usize,
    iova: u64,
) -> io::Result<()> {
    let mut map = IoasMap {
        size: size_of::<IoasMap>() as u32,
        flags: MAP_FIXED_READ_WRITE,
        ioas,
        reserved: 0,
        user: user as u64,
        length: length as u64,
        iova,
    };
    with_struct(iommufd, IOAS_MAP, &mut map).map(drop)
}

pub(super) fn ioas_unmap(iommufd: BorrowedFd<'_>, ioas: u32, iova: u64, length: usize) -> io::Result<()> {
    let size = size_of::<IoasUnmap>() as u32;
    with_struct(iommufd, IOAS_UNMAP, &mut IoasUnmap { size, ioas, iova, length: length as u64 }).map(drop)
}

/// A fake kernel, for what no available kernel has.
#[cfg(test)]
pub(super) mod fake {
    use super::*;
    use std::cell::RefCell;

    /// Argument of a request.
    pub(in crate::vfio) enum Argument<'a> {
        Number(u32),
        Memory(&'a mut [u8]),
    }

    /// Answers a request on the file of this name, or refuses it with an errno.
    pub(in crate::vfio) type Kernel = Box<dyn FnMut(&str, u32, Argument<'_>) -> Result<c_int, i32>>;

    thread_local!(static KERNEL: RefCell<Option<Kernel>> = const { RefCell::new(None) });

    /// Replaces the real kernel in this thread.
    pub(in crate::vfio) fn install(kernel: Kernel) {
        KERNEL.with_borrow_mut(|place| *place = Some(kernel));
    }

    /// Name of the file behind a file descriptor of this process, even if it has been unlinked.
    pub(in crate::vfio) fn name_of(fd: c_int) -> Option<String> {
        let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        Some(path.file_name()?.to_str()?.trim_end_matches(" (deleted)").to_owned())
    }

    pub(super) fn answer(
        fd: BorrowedFd<'_>,
        request: c_ulong,
        argument: Argument<'_>,
    ) -> Option<io::Result<c_int>> {
        let name = name_of(fd.as_raw_fd())?;
        KERNEL.with_borrow_mut(|kernel| {
            let answer = kernel.as_mut()?(&name, request as u32, argument);
            Some(answer.map_err(io::Error::from_raw_os_error))
        })
    }

    /// Writes to memory of this process that a request named, as a kernel would.
    pub(in crate::vfio) fn write_user(address: u64, words: &[u64]) {
        let to = core::ptr::with_exposed_provenance_mut::<u64>(address as usize);
        // SAFETY: the tests' kernel writes where and as much as the request that it answers permits: to an array that the caller
        // has exposed and does not touch before the answer.
        unsafe { core::ptr::copy_nonoverlapping(words.as_ptr(), to, words.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_kernel() {
        let sizes = [
            size_of::<IoasAlloc>(),
            size_of::<IoasIovaRanges>(),
            size_of::<IoasMap>(),
            size_of::<IoasUnmap>(),
        ];
        assert_eq!(sizes, [12, 32, 40, 24]);
        assert_eq!((vfio(0), iommufd(0)), (0x3b64, 0x3b80));
    }

    #[test]
    fn requests_to_a_file_of_another_kind_return_the_kernels_error() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let file = std::os::fd::AsFd::as_fd(&file);
        assert_eq!(device_info(file).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        assert!(
            region_info(file, 0).is_err() && set_irqs(file, 2, 0x24, &[1]).is_err() && reset(file).is_err()
        );
        assert!(!has_extension(file, 3) && iommu_info(file).is_err() && ioas_ranges(file, 1).is_err());
    }
}
