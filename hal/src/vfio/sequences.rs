//! Tests of VFIO modes that Debian's kernels lack: checks every request, its structure and its order against a fake
//! kernel that is as strict as Linux (`include/uapi/linux/vfio.h`, `iommufd.h`).

use super::error::VfioError;
use super::ioctl::fake::{self, Argument};
use super::iommu::{Iommu, IommuKind};
use crate::memory::{Mapper, Piece};
use crate::pci::fake::FakeTree;
use crate::pci::{Address, VFIO_PCI};
use std::cell::RefCell;
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::ptr::NonNull;
use std::rc::Rc;

const NIC: &str = "0000:3b:00.0";
const PAGE: usize = 4096;
/// IDs that the fake kernel returns.
const IOAS: u32 = 7;
const DEVICE: u32 = 3;
/// IOVA ranges that it allows.
const RANGES: [u64; 4] = [0x1_0000, 0xfedf_ffff, 0xfef0_0000, (1 << 39) - 1];

/// Request numbers from the headers.
mod request {
    pub(super) const CHECK_EXTENSION: u32 = 0x3b65;
    pub(super) const SET_IOMMU: u32 = 0x3b66;
    pub(super) const GROUP_GET_STATUS: u32 = 0x3b67;
    pub(super) const GROUP_SET_CONTAINER: u32 = 0x3b68;
    pub(super) const GROUP_GET_DEVICE_FD: u32 = 0x3b6a;
    pub(super) const DEVICE_BIND_IOMMUFD: u32 = 0x3b76;
    pub(super) const DEVICE_ATTACH_IOMMUFD_PT: u32 = 0x3b77;
    pub(super) const IOAS_ALLOC: u32 = 0x3b81;
    pub(super) const IOAS_IOVA_RANGES: u32 = 0x3b84;
    pub(super) const IOAS_MAP: u32 = 0x3b85;
    pub(super) const IOAS_UNMAP: u32 = 0x3b86;
}

/// State of the fake kernel.
#[derive(Default)]
struct Kernel {
    /// Granted requests, in order.
    granted: Vec<&'static str>,
    /// A request to refuse unconditionally, with its errno.
    broken: Option<(u32, i32)>,
    bound: bool,
    space: bool,
    attached: bool,
    mapped: Vec<(u64, u64)>,
    in_container: bool,
    chosen: bool,
    /// Whether no-IOMMU mode is enabled, and whether the group is viable.
    unsafe_mode: bool,
    viable: bool,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

/// A condition whose violation makes Linux return EINVAL.
fn require(condition: bool) -> Result<(), i32> {
    if condition { Ok(()) } else { Err(libc::EINVAL) }
}

impl Kernel {
    fn answer(&mut self, file: &str, request: u32, argument: Argument<'_>) -> Result<i32, i32> {
        if let Some((_, errno)) = self.broken.filter(|broken| broken.0 == request) {
            return Err(errno);
        }
        let (name, answer) = match argument {
            Argument::Number(number) => self.answer_number(file, request, number)?,
            Argument::Memory(bytes) => self.answer_memory(file, request, bytes)?,
        };
        self.granted.push(name);
        Ok(answer)
    }

    fn answer_number(&mut self, file: &str, request: u32, number: u32) -> Result<(&'static str, i32), i32> {
        match (file, request, number) {
            ("vfio", request::CHECK_EXTENSION, 8) => Ok(("CHECK_EXTENSION", self.unsafe_mode.into())),
            ("vfio", request::SET_IOMMU, 8) => {
                require(self.in_container)?;
                self.chosen = true;
                Ok(("SET_IOMMU", 0))
            }
            _ => Err(libc::ENOTTY),
        }
    }

    fn answer_memory(
        &mut self,
        file: &str,
        request: u32,
        bytes: &mut [u8],
    ) -> Result<(&'static str, i32), i32> {
        match (file, request) {
            ("vfio3", request::DEVICE_BIND_IOMMUFD) => self.bind(bytes),
            ("vfio3", request::DEVICE_ATTACH_IOMMUFD_PT) => self.attach(bytes),
            ("iommu", request::IOAS_ALLOC) => self.allocate(bytes),
            ("iommu", request::IOAS_IOVA_RANGES) => self.ranges(bytes),
            ("iommu", request::IOAS_MAP) => self.map(bytes),
            ("iommu", request::IOAS_UNMAP) => self.unmap(bytes),
            ("noiommu-7", request::GROUP_GET_STATUS) => {
                require(word(bytes, 0) == 8)?;
                put(bytes, 4, self.viable.into());
                Ok(("GROUP_GET_STATUS", 0))
            }
            ("noiommu-7", request::GROUP_SET_CONTAINER) => {
                require(bytes.len() == 4 && name_of(word(bytes, 0)) == "vfio")?;
                self.in_container = true;
                Ok(("GROUP_SET_CONTAINER", 0))
            }
            ("noiommu-7", request::GROUP_GET_DEVICE_FD) => {
                require(self.chosen && bytes == format!("{NIC}\0").as_bytes())?;
                Ok(("GROUP_GET_DEVICE_FD", File::open("/dev/null").unwrap().into_raw_fd()))
            }
            _ => Err(libc::ENOTTY),
        }
    }

    /// `argsz`, `flags`, `iommufd`, `out_devid`. Kernels from 6.17 have a token after that.
    fn bind(&mut self, bytes: &mut [u8]) -> Result<(&'static str, i32), i32> {
        require(word(bytes, 0) == 16 && word(bytes, 4) == 0 && !self.bound)?;
        require(name_of(word(bytes, 8)) == "iommu")?;
        self.bound = true;
        put(bytes, 12, DEVICE);
        Ok(("BIND_IOMMUFD", 0))
    }

    /// `size`, `flags`, `out_ioas_id`.
    fn allocate(&mut self, bytes: &mut [u8]) -> Result<(&'static str, i32), i32> {
        require(word(bytes, 0) == 12 && word(bytes, 4) == 0)?;
        self.space = true;
        put(bytes, 8, IOAS);
        Ok(("IOAS_ALLOC", 0))
    }

    /// `argsz`, `flags`, `pt_id`. Kernels from 6.16 have a PASID after that.
    fn attach(&mut self, bytes: &mut [u8]) -> Result<(&'static str, i32), i32> {
        require(word(bytes, 0) == 12 && word(bytes, 4) == 0 && self.bound && self.space)?;
        require(word(bytes, 8) == IOAS)?;
        self.attached = true;
        Ok(("ATTACH_IOMMUFD_PT", 0))
    }

    /// `size`, `ioas_id`, `num_iovas`, reserved, `allowed_iovas`, `out_iova_alignment`.
    fn ranges(&mut self, bytes: &mut [u8]) -> Result<(&'static str, i32), i32> {
        require(word(bytes, 0) == 32 && word(bytes, 4) == IOAS && word(bytes, 12) == 0)?;
        let room = word(bytes, 8) as usize;
        put(bytes, 8, 2);
        if room < 2 {
            return Err(libc::EMSGSIZE);
        }
        fake::write_user(long(bytes, 16), &RANGES);
        bytes[24..32].copy_from_slice(&4096u64.to_ne_bytes());
        Ok(("IOAS_IOVA_RANGES", 0))
    }

    /// `size`, `flags`, `ioas_id`, reserved, `user_va`, `length`, `iova`.
    fn map(&mut self, bytes: &mut [u8]) -> Result<(&'static str, i32), i32> {
        const FIXED_READ_WRITE: u32 = 7;
        require(word(bytes, 0) == 40 && word(bytes, 4) == FIXED_READ_WRITE && word(bytes, 8) == IOAS)?;
        let (user, length, iova) = (long(bytes, 16), long(bytes, 24), long(bytes, 32));
        require(
            word(bytes, 12) == 0
                && (user | length | iova).is_multiple_of(4096)
                && length > 0
                && self.attached,
        )?;
        let last = iova + length - 1;
        require(RANGES.chunks(2).any(|range| range[0] <= iova && last <= range[1]))?;
        if self.mapped.iter().any(|&(start, size)| iova < start + size && start <= last) {
            return Err(libc::EEXIST);
        }
        self.mapped.push((iova, length));
        Ok(("IOAS_MAP", 0))
    }

    /// `size`, `ioas_id`, `iova`, `length`. Only a whole mapping can be unmapped.
    fn unmap(&mut self, bytes: &mut [u8]) -> Result<(&'static str, i32), i32> {
        require(word(bytes, 0) == 24 && word(bytes, 4) == IOAS)?;
        let whole = (long(bytes, 8), long(bytes, 16));
        let at = self.mapped.iter().position(|&mapped| mapped == whole).ok_or(libc::ENOENT)?;
        self.mapped.remove(at);
        Ok(("IOAS_UNMAP", 0))
    }
}

fn name_of(fd: u32) -> String {
    fake::name_of(fd as i32).unwrap_or_default()
}

fn install(kernel: Kernel) -> Rc<RefCell<Kernel>> {
    let kernel = Rc::new(RefCell::new(kernel));
    let own = kernel.clone();
    fake::install(Box::new(move |file, request, argument| own.borrow_mut().answer(file, request, argument)));
    kernel
}

/// A machine with iommufd, on which the function has its own character device.
fn machine() -> (FakeTree, Address) {
    let tree = FakeTree::new();
    let address = tree.function(NIC, 0x1017, Some(VFIO_PCI), Some(7));
    tree.directory(&format!("sys/bus/pci/devices/{NIC}/vfio-dev/vfio3"));
    for file in ["dev/vfio/devices/vfio3", "dev/iommu", "dev/vfio/vfio", "dev/vfio/noiommu-7"] {
        tree.file(file, "");
    }
    (tree, address)
}

fn open(kind: Option<IommuKind>) -> Result<Iommu, VfioError> {
    let (tree, address) = machine();
    let function = tree.tree().function(address)?;
    Iommu::open(&tree.tree(), &function, kind)
}

/// Page-aligned memory of this process.
struct Pages {
    bytes: Vec<u8>,
    count: usize,
}

impl Pages {
    fn new(count: usize) -> Self {
        Self { bytes: vec![1; (count + 1) * PAGE], count }
    }

    fn piece(&mut self) -> Piece<'_> {
        let lead = self.bytes.as_ptr().align_offset(PAGE);
        let start = NonNull::from(&mut self.bytes[lead..]).cast();
        Piece { start, length: self.count * PAGE, page: PAGE, file: None }
    }
}

#[test]
fn iommufd_is_joined_in_its_order() {
    let kernel = install(Kernel::default());
    let iommu = open(None).unwrap();
    assert_eq!(iommu.kind(), IommuKind::Iommufd, "where there is one, it is taken");
    assert_eq!(
        kernel.borrow().granted,
        ["BIND_IOMMUFD", "IOAS_ALLOC", "ATTACH_IOMMUFD_PT", "IOAS_IOVA_RANGES"]
    );
}

#[test]
fn memory_is_mapped_and_unmapped_through_iommufd() {
    let kernel = install(Kernel::default());
    let iommu = open(None).unwrap();
    let mut pages = [Pages::new(3), Pages::new(512)];
    let [first, second] = pages.each_mut().map(|pages| iommu.map_test_memory(&pages.piece()).unwrap()[0]);
    assert_eq!((first.length, second.length), (3 * PAGE, 512 * PAGE));
    let mapped = [first, second].map(|stretch| (stretch.iova, stretch.length as u64));
    assert_eq!(kernel.borrow().mapped, mapped);
    assert!(mapped.iter().all(|&(iova, _)| iova >= RANGES[0]), "the ranges of the kernel are heeded");
    [first, second].iter().for_each(|stretch| iommu.unmap(stretch));
    assert_eq!(kernel.borrow().mapped, []);
    assert_eq!(iommu.map_test_memory(&pages[0].piece()).unwrap()[0].iova, first.iova, "and used again");
}

#[test]
fn an_address_that_the_kernel_refuses_is_given_back() {
    let kernel = install(Kernel::default());
    let iommu = open(None).unwrap();
    let mut pages = Pages::new(1);
    let wanted = iommu.map_test_memory(&pages.piece()).unwrap()[0];
    iommu.unmap(&wanted);
    kernel.borrow_mut().broken = Some((request::IOAS_MAP, libc::ENOMEM));
    assert_eq!(iommu.map_test_memory(&pages.piece()), Err(libc::ENOMEM));
    kernel.borrow_mut().broken = Some((request::IOAS_UNMAP, libc::EIO));
    assert_eq!(iommu.map_test_memory(&pages.piece()).unwrap()[0], wanted);
    iommu.unmap(&wanted);
    let next = iommu.map_test_memory(&pages.piece()).unwrap()[0];
    assert_ne!(next.iova, wanted.iova, "what could not be unmapped is not used again");
}

#[test]
fn every_step_of_iommufd_that_fails_is_named() {
    for request in [
        request::DEVICE_BIND_IOMMUFD,
        request::IOAS_ALLOC,
        request::DEVICE_ATTACH_IOMMUFD_PT,
        request::IOAS_IOVA_RANGES,
    ] {
        install(Kernel { broken: Some((request, libc::EACCES)), ..Kernel::default() });
        let error = open(Some(IommuKind::Iommufd)).unwrap_err();
        let VfioError::System { what, error, .. } = &error else { panic!("{error:?}") };
        assert_eq!(
            (*what, error.raw_os_error()),
            ("joining an address space of iommufd", Some(libc::EACCES))
        );
    }
}

fn lawless() -> Kernel {
    Kernel { unsafe_mode: true, viable: true, ..Kernel::default() }
}

#[test]
fn no_iommu_is_chosen_in_its_order() {
    let kernel = install(lawless());
    let iommu = open(Some(IommuKind::None)).unwrap();
    assert_eq!(iommu.kind(), IommuKind::None);
    assert_eq!(
        kernel.borrow().granted,
        ["CHECK_EXTENSION", "GROUP_GET_STATUS", "GROUP_SET_CONTAINER", "SET_IOMMU", "GROUP_GET_DEVICE_FD"]
    );
}

#[test]
fn no_iommu_needs_the_unsafe_mode_and_a_viable_group() {
    install(Kernel { unsafe_mode: false, ..lawless() });
    assert!(matches!(open(Some(IommuKind::None)), Err(VfioError::NoUnsafeMode { .. })));
    install(Kernel { viable: false, ..lawless() });
    assert!(matches!(open(Some(IommuKind::None)), Err(VfioError::GroupNotViable { .. })));
    for (request, step) in [
        (request::GROUP_GET_STATUS, "asking for the state of the group"),
        (request::GROUP_SET_CONTAINER, "putting the group into a container"),
        (request::SET_IOMMU, "choosing to have no IOMMU"),
        (request::GROUP_GET_DEVICE_FD, "opening the device"),
    ] {
        install(Kernel { broken: Some((request, libc::EPERM)), ..lawless() });
        let error = open(Some(IommuKind::None)).unwrap_err();
        let VfioError::System { what, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*what, step);
    }
}
