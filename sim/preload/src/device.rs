//! The devices of this process: created when a device file is first opened, and gone with the process. A child after
//! `fork` has none until it opens one.

use crate::descriptors;
use crate::errno::keeping_errno;
use crate::link::Link;
use crate::nic_thread::{self, Round, ThreadCallbacks, Turn};
use crate::own_work::{self, OwnWork};
use crate::program::Program;
use crate::settings::Settings;
use bareverbs_network::{EndedProcess, Neighbours, OutsideNeighbours, Wire};
use bareverbs_prm::time::Time;
use bareverbs_serve::network::Ports;
use bareverbs_sim::nic::HostMemory;
use bareverbs_uverbs::uapi::{IoctlHeader, RDMA_USER_CM_CMD_GET_EVENT};

use bareverbs_uverbs::{
    CommandFailure, ConnectionFileId, Connections, DeviceIndex, Errno, EventFileId, FileId, Mapping, Uverbs,
    VirtualHost,
};
use core::cell::RefCell;
use core::ffi::c_int;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::os::fd::OwnedFd;
use std::panic::catch_unwind;
use std::sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::time::{Duration, Instant};

const HEADER: usize = size_of::<IoctlHeader>();
/// How long a request may wait for a neighbour (its bridge gives up earlier), and how long until the request
/// is tried again.
const NEIGHBOUR_LIMIT: Duration = Duration::from_secs(3);
const NEIGHBOUR_PAUSE: Duration = Duration::from_millis(1);
/// How many times the NIC's thread yields to others before it insists.
const COURTESY: usize = 100;

/// All devices of the host within this process.
struct Device {
    /// In index order.
    devices: Vec<Uverbs>,
    connections: Connections,
    program: Program,
    /// One per device; `None` after the NIC's thread has failed.
    links: Option<Vec<Link>>,
}

impl Device {
    /// Runs `work` on connection management. Messages are sent immediately, because the program may exit as soon as it
    /// has disconnected.
    fn manage_connections<T>(
        &mut self,
        work: impl FnOnce(&mut Connections, &mut [Uverbs], &mut Program) -> T,
    ) -> T {
        let Self { devices, connections, program, links } = self;
        let done = work(connections, devices, program);
        for (link, uverbs) in links.iter_mut().flatten().zip(devices) {
            link.transmit(program.time(), uverbs, program);
        }
        program.connection_files.show(|file| connections.waiting_events(file));
        done
    }

    /// A device, together with the calling program.
    fn at(&mut self, index: DeviceIndex) -> Result<(&mut Uverbs, &mut Program), Errno> {
        let device = self.devices.get_mut(usize::from(index.number())).ok_or(Errno::NoDevice)?;
        Ok((device, &mut self.program))
    }
}

/// The devices. They live until the process ends; null before the first file is opened, and in a new child.
static DEVICE: AtomicPtr<Mutex<Device>> = AtomicPtr::new(core::ptr::null_mut());
/// Held while the devices are created.
static MAKING: Mutex<()> = Mutex::new(());
/// Number of the program's threads waiting for the device.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The locked device, with the note that its thread works for this library. The lock is released first.
struct Locked {
    device: MutexGuard<'static, Device>,
    _own_work: OwnWork,
}

impl Deref for Locked {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Device {
        &mut self.device
    }
}

/// What a forking thread holds, so that the child finds consistent state. The device is released first.
struct Held {
    device: Option<Locked>,
    _making: MutexGuard<'static, ()>,
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

extern "C" fn hold_for_fork() {
    let making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let held = Held { device: lock(), _making: making };
    // A thread that ends forks no more.
    let _ = HELD.try_with(|place| *place.borrow_mut() = Some(held));
}

extern "C" fn release_in_parent() {
    let _ = HELD.try_with(|held| held.borrow_mut().take());
}

/// The child leaves network and event files to its parent. The device's memory is leaked, because nothing refers to it.
extern "C" fn forget_in_child() {
    let held = HELD.try_with(|held| held.borrow_mut().take()).ok().flatten();
    DEVICE.store(core::ptr::null_mut(), Ordering::Release);
    WAITING.store(0, Ordering::Relaxed);
    descriptors::inherit();
    if let Some(Held { device: Some(mut device), .. }) = held {
        device.links.take().into_iter().flatten().for_each(Link::abandon);
        device.program.event_files.clear();
        device.program.connection_files.clear();
    }
}

/// Locks the device, if there is one. After another thread's panic the device can still answer.
fn lock() -> Option<Locked> {
    let device = DEVICE.load(Ordering::Acquire);
    // SAFETY: what was stored in `make` is a leaked box: it is never freed.
    let device = unsafe { device.as_ref()? };
    let own_work = OwnWork::begin();
    Some(Locked { device: device.lock().unwrap_or_else(PoisonError::into_inner), _own_work: own_work })
}

/// Why the device is not available immediately.
enum Unavailable {
    /// A thread holds it, possibly this one.
    Busy,
    /// There is no device.
    Gone,
}

/// Locks the device if no thread holds it.
fn try_lock() -> Result<Locked, Unavailable> {
    let device = DEVICE.load(Ordering::Acquire);
    // SAFETY: as in `lock`.
    let device = unsafe { device.as_ref() }.ok_or(Unavailable::Gone)?;
    let own_work = OwnWork::begin();
    let device = match device.try_lock() {
        Ok(device) => device,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(Unavailable::Busy),
    };
    Ok(Locked { device, _own_work: own_work })
}

/// Locks the device for a thread of the program, which has priority over the NIC's thread.
fn device() -> Result<Locked, Errno> {
    WAITING.fetch_add(1, Ordering::Relaxed);
    let device = lock();
    WAITING.fetch_sub(1, Ordering::Relaxed);
    device.filter(|device| device.links.is_some()).ok_or(Errno::Io)
}

/// Registers for forks and for the end of the process. Must be called before the first descriptor is recorded.
pub(crate) fn watch_forks() {
    static AT_FORK: Once = Once::new();
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    AT_FORK.call_once(|| unsafe {
        libc::pthread_atfork(Some(hold_for_fork), Some(release_in_parent), Some(forget_in_child));
        libc::atexit(part_at_exit);
    });
}

/// Creates the device, unless another thread was faster. Reports a failure as a sentence, because the program only sees
/// an errno.
fn make() -> Result<(), Errno> {
    watch_forks();
    let _own_work = OwnWork::begin();
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if !DEVICE.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let made = assemble().map_err(|error| {
        eprintln!("bareverbs run: no device: {error}");
        Errno::Io
    })?;
    DEVICE.store(Box::into_raw(Box::new(Mutex::new(made))), Ordering::Release);
    nic_thread::start(ThreadCallbacks { take_turn, give_up }).map_err(|error| {
        eprintln!("bareverbs run: no device: its thread cannot be started: {error}");
        give_up();
        Errno::Io
    })
}

fn assemble() -> Result<Device, String> {
    let settings = Settings::read()?;
    let (hosts, network) = (&settings.ports, &settings.network);
    let host = hosts.first().ok_or("the host has no device")?;
    let capture = settings.capture()?;
    let wires = Wire::plug_all(network, hosts).map_err(|error| error.to_string())?;
    let number = wires.first().map_or(0, Wire::number);
    let ports = Ports::of(network, host.name(), number).map_err(|error| error.to_string())?;
    let outside = OutsideNeighbours::new(network.clone(), host);
    let mut program = Program::new(Neighbours::new(network.clone()), outside, ports);
    let boot = |host: &VirtualHost| {
        let device = Uverbs::boot(settings.nic_config(host, number), &host.port_addresses(), &mut program)?;
        let mut device = device.numbered(host.device());
        device.observe(capture.is_some());
        Ok(device)
    };
    let devices = hosts.iter().map(boot).collect::<Result<Vec<_>, CommandFailure>>();
    let mut devices = devices.map_err(|error| error.to_string())?;
    let connections = Connections::new(&devices, &mut program);
    let link = |(wire, host)| Link::new(wire, &settings, host, capture.as_ref());
    let mut links: Vec<Link> = wires.into_iter().zip(hosts).map(link).collect();
    // The program may ask for the state of its ports before the NIC's thread has its first turn.
    for (link, device) in links.iter_mut().zip(&mut devices) {
        link.report_cable(program.time(), device, &mut program);
    }
    Ok(Device { devices, connections, program, links: Some(links) })
}

/// Runs a round in a thread of the program, unless another thread holds the device: a program that waits for the device
/// lends its processor.
pub(crate) fn drive() {
    if !own_work::may_work_here() {
        return;
    }
    keeping_errno(|| {
        let driven = catch_unwind(|| {
            if let Ok(mut device) = try_lock() {
                device.program.driven_rounds += 1;
                round(&mut device);
            }
        });
        if driven.is_err() {
            nic_thread::fail(give_up);
        }
    });
}

/// A turn of the NIC's thread. The program's threads have priority, and it does not wait for one that holds the device:
/// waking this thread would cost that one more than a round.
fn take_turn() -> Turn {
    for _ in 0..COURTESY {
        if WAITING.load(Ordering::Relaxed) == 0 {
            break;
        }
        std::thread::yield_now();
    }
    match try_lock() {
        Ok(mut device) => round(&mut device).map_or(Turn::Over, Turn::Done),
        Err(Unavailable::Busy) => Turn::Elsewhere,
        Err(Unavailable::Gone) => Turn::Over,
    }
}

/// One round: moves frames, messages and events, and advances time. `None` after a round has failed.
fn round(device: &mut Device) -> Option<Round> {
    let Device { devices, connections, program, links } = device;
    let links = links.as_mut()?;
    let now = program.time();
    let mut busy =
        program.directly(|program| work(now, NicThreadParts { devices, connections, links, program }));
    program.event_files.flush();
    for uverbs in &mut *devices {
        while let Some(record) = uverbs.poll_event() {
            program.event_files.put(record);
            busy = true;
        }
    }
    program.connection_files.show(|file| connections.waiting_events(file));
    let of_devices = devices.iter().filter_map(Uverbs::next_wakeup);
    let of_links = links.iter().filter_map(Link::next_wakeup);
    let wakeup = of_devices.chain(of_links).chain(connections.next_wakeup()).min();
    Some(Round { now: program.time(), busy, wakeup })
}

/// What the NIC's thread works on.
struct NicThreadParts<'a> {
    devices: &'a mut [Uverbs],
    connections: &'a mut Connections,
    links: &'a mut [Link],
    program: &'a mut Program,
}

/// Moves frames and messages and advances time. Returns whether there was anything to move.
fn work(now: Time, NicThreadParts { devices, connections, links, program }: NicThreadParts<'_>) -> bool {
    let mut busy = false;
    for (uverbs, link) in devices.iter_mut().zip(&mut *links) {
        busy |= uverbs.sweep(now, program);
        busy |= link.take_in(now, uverbs, program, connections);
        uverbs.advance(now, program);
    }
    for link in &mut *links {
        while let Some(EndedProcess { mac, number }) = link.poll_ended(now) {
            let host = program.gids_of(mac);
            connections.handle_ended_peer(devices, program, &host, number);
        }
    }
    connections.advance(now, devices, program);
    busy |= connections.settle(now, devices, program);
    for (uverbs, link) in devices.iter_mut().zip(&mut *links) {
        busy |= link.transmit(now, uverbs, program);
    }
    busy
}

/// The NIC's thread has failed: unplugs the device, which answers no more.
fn give_up() {
    if let Some(mut device) = lock() {
        device.links = None;
    }
}

/// Opens a device file.
pub(crate) fn open(index: DeviceIndex) -> Result<FileId, Errno> {
    make()?;
    Ok(device()?.at(index)?.0.open())
}

/// Closes a device file.
pub(crate) fn close(file: FileId) {
    if let Ok(mut device) = device()
        && let Ok((uverbs, program)) = device.at(file.device())
    {
        uverbs.close(program, file);
    }
}

/// The program has closed an event file.
pub(crate) fn close_event_file(file: EventFileId) {
    if let Ok(mut device) = device()
        && let Ok((uverbs, program)) = device.at(file.device())
    {
        uverbs.close_event_file(file);
        program.event_files.remove(file);
    }
}

/// `RDMA_VERBS_IOCTL` with the request at `address`. A request that waits until a neighbour outside the
/// network is resolved releases the device meanwhile.
pub(crate) fn ioctl(file: FileId, address: u64) -> Result<(), Errno> {
    let start = Instant::now();
    loop {
        let mut device = device()?;
        // Neighbours of earlier requests have nothing to do with this one.
        device.program.take_awaited_neighbour();
        let done = answer(&mut device, file, address);
        if done != Err(Errno::Again) || !device.program.take_awaited_neighbour() {
            return done;
        }
        drop(device);
        if start.elapsed() > NEIGHBOUR_LIMIT {
            return Err(Errno::TimedOut);
        }
        std::thread::sleep(NEIGHBOUR_PAUSE);
    }
}

fn answer(device: &mut Device, file: FileId, address: u64) -> Result<(), Errno> {
    let (uverbs, program) = device.at(file.device())?;
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

/// Longest connection management command in bytes.
const LONGEST_COMMAND: usize = 512;

/// Result of a connection management command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    Done,
    Failed(Errno),
    /// It asks for an event, but none is waiting.
    NoEvent,
    /// The descriptor has become something else.
    NotOurs,
    /// The same, for a command that asks for an event.
    EventNotOurs,
}

/// Opens the connection management file and returns a descriptor for the program.
pub(crate) fn open_connections() -> Result<(ConnectionFileId, OwnedFd), Errno> {
    make()?;
    let mut device = device()?;
    let Device { devices, connections, program, .. } = &mut *device;
    let file = connections.open();
    match program.connection_files.open(file) {
        Ok(descriptor) => Ok((file, descriptor)),
        Err(_) => {
            connections.close(devices, program, file);
            Err(Errno::NoMemory)
        }
    }
}

/// Closes a connection management file.
pub(crate) fn close_connections(file: ConnectionFileId) {
    if let Ok(mut device) = device() {
        device.manage_connections(|connections, devices, program| connections.close(devices, program, file));
        device.program.connection_files.remove(file);
    }
}

/// Runs at normal process exit: open connections are closed and their peers told, as the kernel would. Peers of a
/// killed process find out through transport timeouts.
extern "C" fn part_at_exit() {
    if let Ok(mut device) = device() {
        device.manage_connections(Connections::close_all);
    }
}

/// Executes a command of `length` bytes at `address` that the program writes to a file.
pub(crate) fn write_connections(
    file: ConnectionFileId,
    descriptor: c_int,
    address: u64,
    length: usize,
) -> Written {
    let mut device = match device() {
        Ok(device) => device,
        Err(error) => return Written::Failed(error),
    };
    let mut command = vec![0; length.min(LONGEST_COMMAND)];
    let done = device.program.read(address, &mut command).map_err(Errno::from);
    if !device.program.is_connection_file(file, descriptor) {
        let asks_for_event = command.starts_with(&RDMA_USER_CM_CMD_GET_EVENT.to_ne_bytes());
        return if asks_for_event { Written::EventNotOurs } else { Written::NotOurs };
    }
    let done = done.and_then(|()| {
        device.manage_connections(|connections, devices, program| {
            connections.write(devices, program, file, &command)
        })
    });
    match done {
        Ok(()) => Written::Done,
        Err(Errno::Again) => {
            device.program.connection_files.begin_wait(file);
            Written::NoEvent
        }
        Err(error) => Written::Failed(error),
    }
}

/// A thread has stopped waiting for an event.
pub(crate) fn end_connection_wait(file: ConnectionFileId) {
    if let Ok(mut device) = device() {
        device.program.connection_files.end_wait(file);
    }
}

/// Resolves an `mmap` of the file.
pub(crate) fn map(file: FileId, offset: u64, length: u64) -> Result<Mapping, Errno> {
    let mut device = device()?;
    let (uverbs, program) = device.at(file.device())?;
    uverbs.map(program, file, offset, length)
}
