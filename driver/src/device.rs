//! The device: opened by named steps, closed by the same steps backwards.
//!
//! Objects hold a handle to their device, anything that is [`DeviceRef`]: `&'static Device<H>` on bare metal, `Rc` or
//! `Arc` on a host. Commands go through one lock, which is waited for with [`Hal::relax`] and a deadline; the data path
//! never takes it. A device is `Sync` if its [`Hal`] is.

mod boot;
pub(crate) mod control;
pub(crate) mod ledgers;

use crate::capabilities::Capabilities;
use crate::command::{CommandError, CommandFailure, HealthReport, Request, Tail};
use crate::events::AsyncEvent;
use crate::gid::{GidEntry, set_address, version_name};
use crate::hal::{Hal, HalError};
use crate::page_supply::PageError;
use crate::port;
use crate::trace::Observer;
use bareverbs_prm::field::Layout;
use bareverbs_prm::ids::{Eqn, UarIndex};
use bareverbs_prm::numbering::{CommandOpcode, RegisterId, RoceVersion};
use bareverbs_prm::time::Duration;
use control::{Control, Doomed, Pieces};
use core::fmt;
use core::ops::Deref;
use ledgers::Ledgers;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A handle to a device, cloned into every object: `&Device<H>`, `Rc<Device<H>>`, `Arc<Device<H>>`.
pub trait DeviceRef: Clone {
    /// The place that the device lives in.
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

/// DMA memory of the device that `D` points to.
pub type DmaOf<D> = <<D as DeviceRef>::Hal as Hal>::Dma;

/// How to open a device. The default suits a device with a few dozen queue pairs.
#[derive(Clone, Copy)]
pub struct DeviceConfig {
    /// How long to wait for firmware to be ready.
    pub firmware_timeout: Duration,
    /// How long to wait for the answer to a command.
    pub command_timeout: Duration,
    /// How long to relax between two looks, if nothing wakes us earlier.
    pub poll_interval: Duration,
    /// Mailbox blocks of 512 bytes for commands, at most 1024: a page list needs one for 64 pages.
    pub mailbox_blocks: usize,
    /// Entries of the event queue.
    pub event_queue_entries: u32,
    /// Queue pairs and shared receive queues that may exist at a time, at most 131,072.
    pub queue_pairs: u32,
    /// Words of 8 bytes that remember posted work: two a basic block of a send queue, one an entry of a receive queue (but
    /// two at least), two an entry of a shared receive queue.
    pub ledger_words: u32,
    /// Logarithm of the largest page in page lists, 12 to 31.
    pub log_max_page: u8,
    /// Whether the device shall checksum its answers.
    pub checked: bool,
    /// Whether work queue entries may be written to doorbell registers, if the device can.
    pub blue_flame: bool,
    /// Who wants to know what the driver does.
    pub observer: Option<&'static dyn Observer>,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            firmware_timeout: Duration::from_secs(120),
            command_timeout: Duration::from_secs(10),
            poll_interval: Duration::from_micros(20),
            mailbox_blocks: 64,
            event_queue_entries: 256,
            queue_pairs: 64,
            ledger_words: 1 << 15,
            log_max_page: 21,
            checked: false,
            blue_flame: true,
            observer: None,
        }
    }
}

impl fmt::Debug for DeviceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceConfig")
            .field("command_timeout", &self.command_timeout)
            .field("mailbox_blocks", &self.mailbox_blocks)
            .field("queue_pairs", &self.queue_pairs)
            .field("ledger_words", &self.ledger_words)
            .finish_non_exhaustive()
    }
}

/// The steps of opening a device, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BootStep {
    /// Waiting for the `initializing` bit to clear.
    WaitForFirmware,
    /// Checking revision of the command interface and size of the window.
    CheckInterface,
    /// Allocating the command queue and telling the device where it is.
    CommandQueue,
    /// Waiting for the `initializing` bit again.
    WaitForCommandQueue,
    /// ENABLE_HCA; undone by DISABLE_HCA.
    EnableHca,
    /// QUERY_ISSI and SET_ISSI.
    SetIssi,
    /// Pages for booting; undone by taking all pages back.
    BootPages,
    /// Register HOST_ENDIANNESS.
    HostEndianness,
    /// QUERY_HCA_CAP and SET_HCA_CAP of the general, atomic and RoCE pages.
    SetCapabilities,
    /// Pages for initialising.
    InitPages,
    /// INIT_HCA; undone by TEARDOWN_HCA.
    InitHca,
    /// QUERY_HCA_CAP of what is in force.
    QueryCapabilities,
    /// ALLOC_UAR; undone by DEALLOC_UAR.
    AllocateUar,
    /// CREATE_EQ; undone by DESTROY_EQ.
    CreateEventQueue,
    /// MODIFY_NIC_VPORT_CONTEXT, switching RoCE on; undone by switching it off.
    EnableRoce,
    /// Memory that remembers posted work.
    AllocateLedgers,
}

/// Why a device did not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenError {
    /// The step that failed. What was done before it has been undone.
    pub step: BootStep,
    /// Why it failed.
    pub cause: OpenCause,
}

/// Why a step of opening failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenCause {
    /// Firmware did not become ready.
    FirmwareNotReady {
        /// How long it was waited for.
        waited: Duration,
        /// What it says of its health.
        health: HealthReport,
    },
    /// The command interface has another revision than 5.
    UnknownInterface {
        /// Its revision.
        found: u16,
    },
    /// The command queue does not fit a page, or has no slot beside the reserved one.
    BadQueueGeometry {
        /// Logarithm of its slots.
        log_size: u8,
        /// Logarithm of the bytes between slots.
        log_stride: u8,
    },
    /// The window into BAR0 is too small.
    WindowTooSmall {
        /// Bytes needed.
        needed: usize,
        /// Bytes there are.
        found: usize,
    },
    /// The device does not support issue 1 of the interface.
    NoIssi1 {
        /// Bit mask of what it supports.
        supported: u32,
    },
    /// The device lacks what this driver cannot do without.
    Missing {
        /// The capability.
        feature: &'static str,
    },
    /// A command failed.
    Command(CommandError),
    /// Pages could not be given to the device.
    Pages(PageError),
    /// There is no memory.
    Memory(HalError),
}

impl From<CommandError> for OpenCause {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl From<PageError> for OpenCause {
    fn from(error: PageError) -> Self {
        Self::Pages(error)
    }
}

impl From<HalError> for OpenCause {
    fn from(error: HalError) -> Self {
        Self::Memory(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "opening the device failed at {:?}: {}", self.step, self.cause)
    }
}

impl fmt::Display for OpenCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FirmwareNotReady { waited, health } => {
                write!(f, "firmware is not ready after {waited}; {health}")
            }
            Self::UnknownInterface { found } => {
                write!(f, "command interface revision {found}, this driver speaks 5: is this an mlx5 device?")
            }
            Self::BadQueueGeometry { log_size, log_stride } => {
                write!(f, "a command queue of 2^{log_size} slots of 2^{log_stride} bytes cannot be used")
            }
            Self::WindowTooSmall { needed, found } => {
                write!(f, "the window into BAR0 has {found} bytes, {needed} are needed: map the whole BAR")
            }
            Self::NoIssi1 { supported } => {
                write!(f, "issue 1 is not among the supported ones ({supported:#x})")
            }
            Self::Missing { feature } => write!(f, "the device lacks {feature}"),
            Self::Command(error) => write!(f, "{error}"),
            Self::Pages(error) => write!(f, "{error}"),
            Self::Memory(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for OpenError {}

/// Why a device did not close cleanly. The memory that the device may still use is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseCause {
    /// A command failed.
    Command {
        /// The step that was to be undone.
        step: BootStep,
        /// What the device said.
        error: CommandError,
    },
    /// Pages could not be taken back.
    Pages(PageError),
    /// The device was closed although it kept pages.
    PagesKept {
        /// How many.
        held: u32,
    },
    /// A command that was given up is still with the device.
    CommandsUnderWay,
}

/// A failed close, with the place given back.
pub struct CloseError<H> {
    /// Why.
    pub cause: CloseCause,
    /// The place.
    pub hal: H,
}

impl<H> fmt::Debug for CloseError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloseError").field("cause", &self.cause).finish_non_exhaustive()
    }
}

impl<H> fmt::Display for CloseError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("closing the device failed: ")?;
        match self.cause {
            CloseCause::Command { step, error } => write!(f, "undoing {step:?}: {error}"),
            CloseCause::Pages(error) => write!(f, "{error}"),
            CloseCause::PagesKept { held } => write!(f, "the device keeps {held} pages; reset it"),
            CloseCause::CommandsUnderWay => {
                f.write_str("a command that timed out is still under way; reset it")
            }
        }
    }
}

impl<H> core::error::Error for CloseError<H> {}

/// Why an entry of the RoCE address table could not be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GidError {
    /// The table is shorter.
    IndexOutOfRange {
        /// Index asked for.
        index: u16,
        /// Entries that can be used.
        entries: u16,
    },
    /// The device does not speak this version of RoCE.
    Version {
        /// Index asked for.
        index: u16,
        /// Version asked for.
        version: RoceVersion,
    },
    /// The device refused.
    Command(CommandError),
}

impl From<CommandError> for GidError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl fmt::Display for GidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IndexOutOfRange { index, entries } => {
                write!(f, "address index {index}: the RoCE address table has {entries} entries")
            }
            Self::Version { index, version } => write!(
                f,
                "address index {index}: the device does not speak {}; see Capabilities::roce_v1 and roce_v2",
                version_name(version)
            ),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for GidError {}

/// An open device.
#[doc(alias = "ibv_context")]
#[doc(alias = "ibv_open_device")]
pub struct Device<H: Hal> {
    up: Option<Up<H>>,
}

/// Everything of an open device.
struct Up<H: Hal> {
    hal: H,
    control: spin::Mutex<Control<H>>,
    ledgers: Ledgers<H::Dma>,
    capabilities: Capabilities,
    uar: UarIndex,
    eqn: Eqn,
    config: DeviceConfig,
}

impl<H: Hal> Device<H> {
    /// Brings the device behind `hal` up. If a step fails, what was done is undone.
    pub fn open(hal: H, config: DeviceConfig) -> Result<Self, OpenError> {
        boot::open(hal, &config).map(|up| Self { up: Some(up) })
    }

    /// Takes the device down and gives the place back.
    #[doc(alias = "ibv_close_device")]
    pub fn close(mut self) -> Result<H, CloseError<H>> {
        match self.up.take() {
            Some(Up { hal, control, ledgers, .. }) => {
                let result = boot::release(&hal, control.into_inner());
                drop(ledgers);
                match result {
                    Ok(()) => Ok(hal),
                    Err(cause) => Err(CloseError { cause, hal }),
                }
            }
            None => unreachable!("only close and drop take the device down, and both end its life"),
        }
    }

    /// The place.
    #[inline(always)]
    pub fn hal(&self) -> &H {
        &self.up().hal
    }

    /// What the device can do.
    #[inline]
    pub fn capabilities(&self) -> &Capabilities {
        &self.up().capabilities
    }

    /// Reads a register; `register` says of what.
    pub(crate) fn register<R>(&self, id: RegisterId, register: &R) -> Result<R, CommandError>
    where
        R: Layout + IntoBytes + FromBytes + Immutable + Default,
    {
        const { assert!(R::SIZE <= port::LARGEST_REGISTER) };
        let input = port::access(id, true);
        let request = Request::with_tail(&input, Tail::Bytes(register.as_bytes()));
        let mut output = [0; port::REGISTER_HEADER + port::LARGEST_REGISTER];
        let length = port::REGISTER_HEADER + R::SIZE;
        self.control(&request, |control, hal| {
            control.execute(hal, &request, &mut output[..length], length)
        })??;
        Ok(R::read_from_bytes(&output[port::REGISTER_HEADER..length]).unwrap_or_default())
    }

    /// Sets entry `index` of the RoCE address table; an entry whose GID is all zero clears it.
    #[doc(alias = "ibv_query_gid")]
    pub fn set_gid(&self, index: u16, entry: GidEntry) -> Result<(), GidError> {
        let entries = self.capabilities().roce_addresses.min(control::GIDS as u16);
        if index >= entries {
            return Err(GidError::IndexOutOfRange { index, entries });
        }
        if !entry.gid.is_zero() && !self.capabilities().speaks(entry.version) {
            return Err(GidError::Version { index, version: entry.version });
        }
        let input = set_address(index, &entry);
        let request = Request::new(&input);
        self.control(&request, |control, hal| {
            control.run(hal, &request)?;
            control.gids[index as usize] = (!entry.gid.is_zero()).then_some(entry);
            Ok::<_, CommandError>(())
        })??;
        Ok(())
    }

    /// Entry `index` of the RoCE address table as it was set.
    pub fn gid(&self, index: u16) -> Option<GidEntry> {
        let nothing = bareverbs_prm::command::entry::CommandHeaderIn::new();
        self.control(&Request::new(&nothing), |control, _| {
            control.gids.get(index as usize).copied().flatten()
        })
        .ok()
        .flatten()
    }

    /// Looks for events. Page requests are served on the way.
    #[doc(alias = "ibv_get_async_event")]
    pub fn poll_event(&self) -> Result<Option<AsyncEvent>, CommandError> {
        let nothing = bareverbs_prm::command::entry::CommandHeaderIn::new();
        self.control(&Request::new(&nothing), |control, hal| {
            control.serve(hal);
            control.inbox.pop()
        })
    }

    /// Asks the device to do nothing and waits for the answer.
    pub fn ping(&self) -> Result<(), CommandError> {
        let mut input = bareverbs_prm::command::hca::NopIn::new();
        input.set_opcode(CommandOpcode::Nop);
        let request = Request::new(&input);
        self.control(&request, |control, hal| control.run(hal, &request))?
    }

    /// What firmware says of its health.
    pub fn health(&self) -> HealthReport {
        HealthReport::read(self.hal())
    }

    /// Objects that the device refused to destroy although nothing uses them; their memory is never used again.
    pub fn leaked_objects(&self) -> u32 {
        let nothing = bareverbs_prm::command::entry::CommandHeaderIn::new();
        self.control(&Request::new(&nothing), |control, _| control.leaked()).unwrap_or(0)
    }

    /// Host pages that the device holds.
    pub fn pages_held(&self) -> u32 {
        let nothing = bareverbs_prm::command::entry::CommandHeaderIn::new();
        self.control(&Request::new(&nothing), |control, _| control.pages.held()).unwrap_or(0)
    }

    #[inline(always)]
    fn up(&self) -> &Up<H> {
        match &self.up {
            Some(up) => up,
            None => unreachable!("only close and drop take the device down, and both end its life"),
        }
    }

    #[inline(always)]
    pub(crate) fn ledgers(&self) -> &Ledgers<H::Dma> {
        &self.up().ledgers
    }

    pub(crate) fn uar(&self) -> UarIndex {
        self.up().uar
    }

    pub(crate) fn eqn(&self) -> Eqn {
        self.up().eqn
    }

    pub(crate) fn config(&self) -> &DeviceConfig {
        &self.up().config
    }

    /// Executes a command whose output is fixed.
    pub(crate) fn call<O: crate::command::Message>(&self, request: &Request<'_>) -> Result<O, CommandError> {
        self.control(request, |control, hal| control.call(hal, request))?
    }

    /// Destroys an object and frees its memory, now or when nothing uses it any more.
    pub(crate) fn destroy(&self, object: Doomed, memory: Option<crate::dma::Dma<H::Dma>>) {
        self.destroy_pieces(object, [memory, None]);
    }

    /// As [`Self::destroy`], with memory in two pieces.
    pub(crate) fn destroy_pieces(&self, object: Doomed, memory: Pieces<H::Dma>) {
        let nothing = bareverbs_prm::command::entry::CommandHeaderIn::new();
        let mut memory = Some(memory);
        let done = self.control(&Request::new(&nothing), |control, hal| {
            control.destroy(hal, object, memory.take().unwrap_or([None, None]));
        });
        if done.is_err() {
            // Nobody can ask the device now: it may use the memory for ever.
            core::mem::forget(memory);
        }
    }

    /// Works on the control part alone; `request` is what an error says was attempted.
    pub(crate) fn control<T>(
        &self,
        request: &Request<'_>,
        work: impl FnOnce(&mut Control<H>, &H) -> T,
    ) -> Result<T, CommandError> {
        let Up { hal, control, config, .. } = self.up();
        let start = hal.now();
        let deadline = start + config.command_timeout;
        loop {
            if let Some(mut control) = control.try_lock() {
                return Ok(work(&mut control, hal));
            }
            let now = hal.now();
            if now >= deadline {
                return Err(request.error(CommandFailure::InterfaceBusy { waited: now.since(start) }));
            }
            hal.relax(deadline.min(now + config.poll_interval));
        }
    }
}

impl<H: Hal> Drop for Device<H> {
    /// Takes the device down if it was not closed; what goes wrong is told the observer only.
    fn drop(&mut self) {
        if let Some(Up { hal, control, ledgers, .. }) = self.up.take() {
            boot::release(&hal, control.into_inner()).ok();
            drop(ledgers);
        }
    }
}

impl<H: Hal> fmt::Debug for Device<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("capabilities", self.capabilities()).finish_non_exhaustive()
    }
}
