use super::*;
use bareverbs_core::device::{Device, DeviceConfig, OpenCause};
use bareverbs_core::hal::Mmio;
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time;
use bareverbs_serve::vfio_user::{Server, ServerConfig};
use bareverbs_sim::nic::NicConfig;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use tempfile::TempDir;
use vfio_bindings::bindings::vfio::{
    VFIO_REGION_INFO_FLAG_MMAP, vfio_region_info, vfio_region_sparse_mmap_area,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, ServerBackend, ServerRegion, SparseArea};

fn small() -> VfioUserConfig {
    VfioUserConfig {
        memory: ArenaConfig { segment: 4 << 20, ..ArenaConfig::default() },
        ..VfioUserConfig::default()
    }
}

/// Serves the simulated NIC from a thread until `clients` clients have disconnected.
fn serve(nic: NicConfig, clients: usize) -> (TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nic");
    let config = ServerConfig::new(nic);
    let mut server = Server::bind(&path, config).unwrap();
    std::thread::spawn(move || (0..clients).for_each(|_| drop(server.serve())));
    (directory, path)
}

const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

#[test]
fn a_driver_brings_a_served_device_up_twice() {
    let (_directory, path) = serve(NicConfig::new(MAC), 2);
    for _ in 0..2 {
        let hal = VfioUserHal::connect(&path, small()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((hal.vectors(), hal.shared_register_bytes()), (1, 0));
        let device = Device::open(hal, DeviceConfig::default()).unwrap_or_else(|error| panic!("{error}"));
        device.ping().unwrap();
        assert_eq!(device.port().unwrap().mac, MAC);
        let hal = device.close().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((hal.memory().used, hal.failure()), (0, None), "{}", hal.memory());
    }
}

#[test]
fn memory_of_the_application_is_refused() {
    let (_directory, path) = serve(NicConfig::new(MAC), 1);
    let hal = VfioUserHal::connect(&path, small()).unwrap();
    let mut bytes = [0u64; 16];
    // SAFETY: the bytes outlive the call, which maps nothing.
    let refused = unsafe { hal.map_user(NonNull::new(bytes.as_mut_ptr().cast()).unwrap(), 128) };
    assert_eq!(refused.err(), Some(HalError::MapFailed { length: 128, errno: libc::ENOTSUP }));
}

#[test]
fn a_device_of_another_kind_is_refused_with_a_sentence() {
    let (_directory, path) = serve(NicConfig { device_id: 0x1003, ..NicConfig::new(MAC) }, 1);
    let error = VfioUserHal::connect(&path, small()).unwrap_err();
    assert!(error.to_string().contains("15b3:1003 is refused: it is an mlx4 device"), "{error}");
}

#[test]
fn firmware_that_is_never_ready_ends_in_a_deadline() {
    let never = NicConfig { firmware_ready_after: time::Duration::from_secs(1 << 20), ..NicConfig::new(MAC) };
    let (_directory, path) = serve(never, 1);
    let hal = VfioUserHal::connect(&path, small()).unwrap();
    let config =
        DeviceConfig { firmware_timeout: time::Duration::from_millis(20), ..DeviceConfig::default() };
    let error = Device::open(hal, config).map(drop).unwrap_err();
    assert!(matches!(error.cause, OpenCause::FirmwareNotReady { .. }), "{error}");
}

#[test]
fn a_server_that_is_gone_reads_as_ones() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leaving");
    let file = tempfile::tempfile().unwrap();
    let irqs = (0..5).map(|index| IrqInfo { index, flags: 1, count: u32::from(index == 2) }).collect();
    let regions = (0..9).map(|index| ServerRegion {
        sparse_areas: Vec::new(),
        mmap_fd: None,
        ..paged_region(index, &file)
    });
    let server = vfio_user::Server::new(&path, true, irqs, regions.collect()).unwrap();
    std::thread::spawn(move || server.run(&mut Fake { leaves: true }));
    let hal = VfioUserHal::connect(&path, small()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((hal.mmio().read32(0), hal.mmio().read32(4)), (u32::MAX, u32::MAX));
    let failure = hal.failure().expect("it is gone");
    assert!(failure.contains("REGION_READ") && failure.contains("the server is gone"), "{failure}");
    hal.mmio().write32(0, 1);
    assert!(hal.allocate_dma(8 << 20, 64).is_err(), "nobody maps it");
    let error = Device::open(hal, DeviceConfig::default()).map(drop).unwrap_err();
    assert!(error.to_string().contains("the device has left the bus"), "{error}");
}

/// A fake server without a device.
struct Fake {
    /// Whether it exits when a register of BAR0 is read.
    leaves: bool,
}

impl ServerBackend for Fake {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        assert!(region == 7 || !self.leaves, "the end of this server");
        let identity = [0xb3, 0x15, 0x17, 0x10, 6, 0, 0x10, 0, 0];
        data.fill(0x11);
        if region == 7 {
            let from = &identity[offset as usize..];
            data.copy_from_slice(&from[..data.len()]);
        }
        Ok(())
    }
    fn region_write(&mut self, _: u32, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn dma_map(&mut self, _: DmaMapFlags, _: u64, _: u64, _: u64, _: Option<File>) -> io::Result<()> {
        Ok(())
    }
    fn dma_unmap(&mut self, _: DmaUnmapFlags, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn reset(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn set_irqs(&mut self, _: u32, _: u32, _: u32, _: u32, _: Vec<File>) -> io::Result<()> {
        Ok(())
    }
}

fn paged_region(index: u32, file: &File) -> ServerRegion {
    let size = if matches!(index, 0 | 7) { 4 << 12 } else { 0 };
    let mut region_info = vfio_region_info { argsz: 32, flags: 3, index, size, ..Default::default() };
    let mut region = ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None };
    if index == 0 {
        region_info.flags |= VFIO_REGION_INFO_FLAG_MMAP;
        let area = |offset, size| SparseArea { area: vfio_region_sparse_mmap_area { offset, size } };
        // The second area is not a whole page and the third exceeds the region: both are ignored.
        region.sparse_areas = vec![area(4096, 4096), area(8192, 100), area(12288, 1 << 20)];
        region.mmap_fd = Some(file.as_raw_fd());
        region.region_info = region_info;
    }
    region
}

#[test]
fn doorbells_go_through_shared_pages_where_they_are_offered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("paged");
    let file = File::from(memfd_create("bar", MemfdFlags::ALLOW_SEALING).unwrap());
    file.set_len(4 << 12).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    let irqs = (0..5).map(|index| IrqInfo { index, flags: 1, count: u32::from(index == 2) }).collect();
    let regions = (0..9).map(|index| paged_region(index, &file)).collect();
    let server = vfio_user::Server::new(&path, true, irqs, regions).unwrap();
    std::thread::spawn(move || drop(server.run(&mut Fake { leaves: false })));
    let hal = VfioUserHal::connect(&path, small()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(hal.shared_register_bytes(), 4096);
    hal.mmio().write64(4096 + 0x800, 0x0102_0304_0506_0708);
    hal.mmio().write32(8192, 7);
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 4096 + 0x800).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
    file.read_exact_at(&mut bytes, 8192).unwrap();
    assert_eq!(bytes, [0; 8], "a register that is not shared is a message");
    assert_eq!((hal.mmio().read32(4096 + 0x804), hal.mmio().read32(0)), (0x0506_0708, 0x1111_1111));
}

#[test]
fn pages_of_a_file_that_can_be_cut_short_are_not_mapped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("unsealed");
    let file = File::from(memfd_create("bar", MemfdFlags::ALLOW_SEALING).unwrap());
    file.set_len(4 << 12).unwrap();
    let irqs = (0..5).map(|index| IrqInfo { index, flags: 1, count: u32::from(index == 2) }).collect();
    let regions = (0..9).map(|index| paged_region(index, &file)).collect();
    let server = vfio_user::Server::new(&path, true, irqs, regions).unwrap();
    std::thread::spawn(move || drop(server.run(&mut Fake { leaves: false })));
    let hal = VfioUserHal::connect(&path, small()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(hal.shared_register_bytes(), 0);
    file.set_len(0).unwrap();
    assert_eq!(hal.mmio().read32(4096 + 0x804), 0x1111_1111, "the register is a message");
}
