//! The device: opened by named steps, closed by the same steps in reverse.
//!
//! Every object holds a handle to its device, a [`DeviceRef`]: `&'static Device<H>` on bare metal, `Rc` or `Arc` on a
//! host. Commands are serialized by a lock. A thread waits for it in [`Hal::relax`], with a deadline. The data path
//! never takes the lock. A device is `Sync` if its [`Hal`] is.

mod blue_flame;
mod boot;
mod capability_query;
mod config;
mod control;
mod error;
mod event_queue_health;
mod gid_table;
pub(crate) mod ledgers;
mod register;
mod requests;
mod shutdown;

pub use self::config::DeviceConfig;
pub use self::error::{CloseCause, CloseError, OpenCause, OpenError};
pub use self::event_queue_health::EventQueueError;
pub use self::gid_table::GidError;
pub use crate::boot_step::BootStep;
pub use crate::page_supply::PageError;

pub(crate) use self::control::DestroyCommand;
pub(crate) use self::event_queue_health::check_event_queue;

use self::blue_flame::BlueFlameRegisters;
use self::boot::Booted;
use self::control::{Control, ObjectMemory};
use self::ledgers::Ledgers;
use crate::capabilities::Capabilities;
use crate::command::{
    CommandError, CommandFailure, DeviceLoss, HealthReport, InterfaceBusy, Message, Request,
};
use crate::dma::Dma;
use crate::events::AsyncEvent;
use crate::executor::CommandOutput;
use crate::hal::Hal;
use bareverbs_prm::command::entry::CommandHeaderOut;
use bareverbs_prm::command::hca::NopIn;
use bareverbs_prm::ids::{Eqn, UarIndex};
use bareverbs_prm::numbering::CommandOpcode;
use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{AtomicU8, Ordering};
use scopeguard::ScopeGuard;

/// A handle to a device, cloned into every object: `&Device<H>`, `Rc<Device<H>>`, `Arc<Device<H>>`.
pub trait DeviceRef: Clone {
    /// The HAL of the device.
    type Hal: Hal;
    /// The device.
    fn device(&self) -> &Device<Self::Hal>;
}

impl<H: Hal, D: Clone + Deref<Target = Device<H>>> DeviceRef for D {
    type Hal = H;
    #[inline(always)]
    fn device(&self) -> &Device<H> {
        self
    }
}

/// Whether two handles belong to one device. Object numbers have no meaning on another device.
pub(crate) fn is_same<D: DeviceRef>(a: &D, b: &D) -> bool {
    core::ptr::eq(a.device(), b.device())
}

/// DMA memory of the device that `D` points to.
pub type DmaOf<D> = <<D as DeviceRef>::Hal as Hal>::Dma;

/// An open device.
///
/// ```
/// use bareverbs_core::hal::Hal;
/// use bareverbs_core::{Device, DeviceConfig, GidEntry};
/// use bareverbs_prm::ids::Gid;
/// use std::error::Error;
/// use std::rc::Rc;
///
/// fn open<H: Hal + 'static>(place: H, address: [u8; 4]) -> Result<Rc<Device<H>>, Box<dyn Error>> {
///     let device = Rc::new(Device::open(place, DeviceConfig::default())?);
///     let mac = device.port()?.mac;
///     device.set_gid(0, GidEntry::roce_v2(Gid::from_ipv4(address), mac))?;
///     Ok(device)
/// }
/// ```
#[doc(alias = "ibv_context")]
pub struct Device<H: Hal> {
    /// The guard takes the device down when it is dropped. Unlike an `Option`, it costs the data path no check.
    up: ScopeGuard<Up<H>, fn(Up<H>)>,
}

/// The state of an open device.
struct Up<H: Hal> {
    hal: H,
    config: DeviceConfig,
    booted: Booted<H>,
    blue_flame: BlueFlameRegisters,
    /// Variant byte of the last memory key.
    key_variant: AtomicU8,
}

impl<H: Hal> Device<H> {
    /// Brings up the device behind `hal`.
    ///
    /// # Errors
    /// The step that failed, and why. The steps before it have been undone.
    #[doc(alias = "ibv_open_device")]
    pub fn open(hal: H, config: DeviceConfig) -> Result<Self, OpenError> {
        let booted = boot::open(&hal, &config)?;
        let blue_flame = BlueFlameRegisters::new(config.blue_flame);
        let up = Up { hal, config, booted, blue_flame, key_variant: AtomicU8::new(0) };
        Ok(Self { up: scopeguard::guard(up, Up::end) })
    }

    /// Takes the device down and returns the HAL.
    ///
    /// # Errors
    /// The first step that could not be undone. The others have been undone, and the error contains the HAL.
    #[doc(alias = "ibv_close_device")]
    pub fn close(self) -> Result<H, CloseError<H>> {
        match ScopeGuard::into_inner(self.up).release() {
            (hal, Ok(())) => Ok(hal),
            (hal, Err(cause)) => Err(CloseError { cause, hal }),
        }
    }

    /// The HAL.
    #[inline(always)]
    pub fn hal(&self) -> &H {
        &self.up.hal
    }

    /// Limits and features of the device.
    #[inline]
    pub fn capabilities(&self) -> &Capabilities {
        &self.up.booted.capabilities
    }

    /// Polls for an asynchronous event. Also serves page requests of the device.
    ///
    /// # Errors
    /// Another thread held the command interface until [`DeviceConfig::command_timeout`].
    #[doc(alias = "ibv_get_async_event")]
    pub fn poll_event(&self) -> Result<Option<AsyncEvent>, InterfaceBusy> {
        self.control(Control::poll_event)
    }

    /// Sends a NOP command and waits for the answer.
    pub fn ping(&self) -> Result<(), CommandError> {
        let mut input = NopIn::new();
        input.set_opcode(CommandOpcode::Nop);
        self.call::<CommandHeaderOut>(&Request::new(&input)).map(|_| ())
    }

    /// Reads the health buffer of the firmware.
    pub fn health(&self) -> HealthReport {
        HealthReport::read(self.hal())
    }

    /// Checks that the device is still the one that was opened, by reading two registers. A lost device stays lost.
    ///
    /// While another thread uses the command interface, this checks nothing: that thread will notice, and the next call
    /// reports it.
    ///
    /// # Errors
    /// The device left the bus, or another party reset it. Drop everything that belongs to it.
    pub fn check_presence(&self) -> Result<(), DeviceLoss> {
        let Up { hal, booted, .. } = &*self.up;
        booted.control.try_lock().map_or(Ok(()), |mut control| control.check_presence(hal))
    }

    /// Number of objects that the device refused to destroy although nothing uses them. The driver never
    /// reuses their memory.
    pub fn leaked_objects(&self) -> u32 {
        self.control(|control, _| control.leaked()).unwrap_or(0)
    }

    /// Number of host pages that the device holds.
    pub fn pages_held(&self) -> u32 {
        self.control(|control, _| control.pages.held()).unwrap_or(0)
    }

    #[inline(always)]
    pub(crate) fn ledgers(&self) -> &Ledgers<H::Dma> {
        &self.up.booted.ledgers
    }

    pub(crate) fn uar(&self) -> UarIndex {
        self.up.booted.uar
    }

    pub(crate) fn eqn(&self) -> Eqn {
        self.up.booted.eqn
    }

    pub(crate) fn config(&self) -> &DeviceConfig {
        &self.up.config
    }

    pub(crate) fn blue_flame(&self) -> &BlueFlameRegisters {
        &self.up.blue_flame
    }

    /// The variant byte of the next memory key. It changes with every key, so that a stale key does not soon match a new
    /// key of the same index.
    pub(crate) fn next_key_variant(&self) -> u8 {
        self.up.key_variant.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Executes a command whose output has a fixed size.
    pub(crate) fn call<O: Message>(&self, request: &Request<'_>) -> Result<O, CommandError> {
        let mut message = O::new_zeroed();
        let output = CommandOutput { buffer: message.as_mut_bytes(), length: size_of::<O>() };
        self.execute(request, output)?;
        Ok(message)
    }

    /// Executes a command.
    pub(crate) fn execute(
        &self,
        request: &Request<'_>,
        output: CommandOutput<'_>,
    ) -> Result<(), CommandError> {
        self.control(|control, hal| control.execute(hal, request, output))
            .map_err(|busy| request.error(CommandFailure::InterfaceBusy(busy)))?
    }

    /// Destroys an object and frees its memory, now or when nothing uses it any more.
    pub(crate) fn destroy(&self, command: DestroyCommand, memory: Option<Dma<H::Dma>>) {
        self.destroy_pieces(command, [memory, None]);
    }

    /// Like [`Self::destroy`], with memory in two pieces.
    pub(crate) fn destroy_pieces(&self, command: DestroyCommand, memory: ObjectMemory<H::Dma>) {
        let mut memory = Some(memory);
        let done = self.control(|control, hal| {
            control.destroy(hal, command, memory.take().unwrap_or([None, None]));
        });
        if done.is_err() {
            // The device still has the object and may use its memory.
            core::mem::forget(memory);
        }
    }

    /// Destroys an object that has no memory to free.
    pub(crate) fn destroy_now(&self, command: DestroyCommand) -> Result<(), CommandError> {
        self.call::<CommandHeaderOut>(&Request::new(&command.input())).map(|_| ())
    }

    /// Calls `work` with the control part and the HAL, under the lock.
    ///
    /// # Errors
    /// Another thread held the lock until the command timeout.
    pub(crate) fn control<T>(&self, work: impl FnOnce(&mut Control<H>, &H) -> T) -> Result<T, InterfaceBusy> {
        let Up { hal, booted, config, .. } = &*self.up;
        let start = hal.now();
        let deadline = start + config.command_timeout;
        loop {
            if let Some(mut control) = booted.control.try_lock() {
                return Ok(work(&mut control, hal));
            }
            let now = hal.now();
            if now >= deadline {
                return Err(InterfaceBusy { waited: now.since(start) });
            }
            hal.relax(deadline.min(now + config.poll_interval));
        }
    }
}

impl<H: Hal> Up<H> {
    /// Takes the device down, then frees the ledgers.
    fn release(self) -> (H, Result<(), CloseCause>) {
        let Self { hal, booted: Booted { control, ledgers, .. }, .. } = self;
        let result = shutdown::release(&hal, control.into_inner());
        drop(ledgers);
        (hal, result)
    }

    /// Takes a device down that was not closed. Only the observer learns of failures.
    fn end(self) {
        self.release().1.ok();
    }
}

impl<H: Hal> fmt::Debug for Device<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("capabilities", self.capabilities()).finish_non_exhaustive()
    }
}
