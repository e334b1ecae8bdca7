//! The device of this process: made when a device file is opened for the first time, gone with the process. A child after
//! `fork` has none until it opens one.

use crate::descriptors;
use crate::program::Program;
use bareverbs_sim::nic::HostMemory;
use bareverbs_uverbs::uapi::IoctlHeader;
use bareverbs_uverbs::{CommandFailure, Errno, FileId, Mapping, Uverbs, VirtualHost};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Environment variable with the name of the virtual host.
const HOST: &str = "BAREVERBS_RUN_HOST";
const HEADER: usize = size_of::<IoctlHeader>();

struct Device {
    uverbs: Uverbs,
    program: Program,
}

/// The device, which lives until the process ends; null before the first file is opened, and in a new child.
static DEVICE: AtomicPtr<Mutex<Device>> = AtomicPtr::new(core::ptr::null_mut());

extern "C" fn forget_in_child() {
    DEVICE.store(core::ptr::null_mut(), Ordering::Release);
    descriptors::inherit();
}

/// The device, if there is one. A panic of another thread leaves a device behind that can still answer.
fn device() -> Option<MutexGuard<'static, Device>> {
    let device = DEVICE.load(Ordering::Acquire);
    // SAFETY: what was stored in `make` is a leaked box: it is never freed.
    let device = unsafe { device.as_ref()? };
    Some(device.lock().unwrap_or_else(PoisonError::into_inner))
}

fn make() -> Result<(), CommandFailure> {
    static AT_FORK: Once = Once::new();
    // SAFETY: the handler touches atomics only.
    AT_FORK.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(forget_in_child));
    });
    let name = std::env::var(HOST).unwrap_or_default();
    let Some(host) = VirtualHost::new(&name).or_else(|| VirtualHost::new("host")) else { return Ok(()) };
    let mut program = Program::new(host.clone());
    let uverbs = Uverbs::boot(host.nic_config(), &host.gids(), &mut program)?;
    let made = Box::into_raw(Box::new(Mutex::new(Device { uverbs, program })));
    let raced = DEVICE.compare_exchange(core::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
    if raced.is_err() {
        // SAFETY: another thread was faster, so nobody has seen this box.
        drop(unsafe { Box::from_raw(made) });
    }
    Ok(())
}

/// Opens the device file.
pub(crate) fn open() -> Result<FileId, Errno> {
    if device().is_none() {
        make()?;
    }
    device().map(|mut device| device.uverbs.open()).ok_or(Errno::Io)
}

/// Closes a file of the device.
pub(crate) fn close(file: FileId) {
    if let Some(mut device) = device() {
        let Device { uverbs, program } = &mut *device;
        uverbs.close(program, file);
    }
}

/// `RDMA_VERBS_IOCTL` with the request at `address`.
pub(crate) fn ioctl(file: FileId, address: u64) -> Result<(), Errno> {
    let mut device = device().ok_or(Errno::Io)?;
    let Device { uverbs, program } = &mut *device;
    let mut length = [0; 2];
    program.read(address, &mut length)?;
    let length = usize::from(u16::from_ne_bytes(length));
    if !(HEADER..=4096).contains(&length) {
        return Err(Errno::Invalid);
    }
    let mut request = vec![0; length];
    program.read(address, &mut request)?;
    uverbs.ioctl(program, file, &mut request)?;
    Ok(program.write(address + HEADER as u64, &request[HEADER..])?)
}

/// What `mmap` of the file means.
pub(crate) fn map(file: FileId, offset: u64, length: u64) -> Result<Mapping, Errno> {
    device().ok_or(Errno::Io)?.uverbs.map(file, offset, length)
}
