//! Bringing the device up and down: named steps, each undone in reverse.

use super::control::{Control, Doomed};
use super::ledgers::Ledgers;
use super::{BootStep, CloseCause, DeviceConfig, OpenCause, OpenError, Up};
use crate::capabilities::{Capabilities, negotiate, negotiate_atomic, negotiate_roce};
use crate::command::execute::Patience;
use crate::command::{CommandError, CommandQueue, CommandQueueConfig, HealthReport, Request, Tail};
use crate::events::{EventQueue, event_mask};
use crate::hal::{Hal, Mmio};
use crate::port;
use crate::trace::TraceEvent;
use bareverbs_prm::command::caps::{AtomicCapabilities, GeneralCapabilities, RoceCapabilities};
use bareverbs_prm::command::entry::CommandHeaderIn;
use bareverbs_prm::command::eq::CreateEqOut;
use bareverbs_prm::command::hca::{HostEndiannessRegister, QueryIssiIn, QueryIssiOut, SetIssiIn};
use bareverbs_prm::command::uar::{AllocUarIn, AllocUarOut};
use bareverbs_prm::doorbell::{UAR_PAGE_SIZE, init_segment};
use bareverbs_prm::ids::UarIndex;
use bareverbs_prm::numbering::{CapabilityType, CommandOpcode, CommandStatus, QueryPagesStage, RegisterId};
use zerocopy::{FromBytes, IntoBytes};

/// Revision of the command interface that this driver speaks.
const COMMAND_INTERFACE: u16 = 5;
/// Bytes of QUERY_HCA_CAP's output and SET_HCA_CAP's input, and of a page.
const CAPABILITY_MESSAGE: usize = 4112;
const CAPABILITY_PAGE: usize = 256;
/// Modes of QUERY_HCA_CAP.
const MAXIMUM: u16 = 0;
const CURRENT: u16 = 1;
/// Interrupt vector of the queue of asynchronous events.
const ASYNC_VECTOR: u16 = 0;
/// The `cqe_version` that carries the `user_index`.
const COMPLETION_VERSION: u8 = 1;

/// Opens the device behind `hal`. What was done is undone if a step fails.
pub(super) fn open<H: Hal>(hal: H, config: &DeviceConfig) -> Result<Up<H>, OpenError> {
    let mut boot = Boot { hal: &hal, config, step: BootStep::WaitForFirmware };
    let mut control = boot.command_interface().map_err(|cause| boot.failed(cause))?;
    match boot.bring_up(&mut control) {
        Ok((capabilities, uar, ledgers)) => {
            let eqn = control.events.as_ref().map_or_else(Default::default, |events| events.eqn);
            let config = *config;
            Ok(Up { hal, control: spin::Mutex::new(control), ledgers, capabilities, uar, eqn, config })
        }
        Err(cause) => {
            let error = boot.failed(cause);
            release(&hal, control).ok();
            Err(error)
        }
    }
}

/// Takes the device down and frees what it no longer knows.
pub(super) fn release<H: Hal>(hal: &H, mut control: Control<H>) -> Result<(), CloseCause> {
    let result = take_down(hal, &mut control);
    let held = control.pages.held();
    control.pages.leak();
    if result.is_err() {
        // The device may still fetch commands or write events: none of this memory may be used again.
        core::mem::forget(control);
        return result;
    }
    match held {
        0 => Ok(()),
        held => Err(CloseCause::PagesKept { held }),
    }
}

struct Boot<'a, H> {
    hal: &'a H,
    config: &'a DeviceConfig,
    step: BootStep,
}

impl<H: Hal> Boot<'_, H> {
    fn failed(&self, cause: OpenCause) -> OpenError {
        OpenError { step: self.step, cause }
    }

    /// Begins a step.
    fn at(&mut self, step: BootStep) {
        self.step = step;
        if let Some(observer) = self.config.observer {
            observer.observe(&TraceEvent::Step { step, undo: false });
        }
    }

    fn command_interface(&mut self) -> Result<Control<H>, OpenCause> {
        self.at(BootStep::WaitForFirmware);
        self.wait_for_firmware()?;
        self.at(BootStep::CheckInterface);
        let queue = self.check_interface()?;
        self.at(BootStep::CommandQueue);
        let commands = CommandQueue::allocate(self.hal, queue)?;
        let patience = Patience { timeout: self.config.command_timeout, interval: self.config.poll_interval };
        let mut control = Control::new(commands, patience, self.config.observer, self.config.blue_flame);
        control.commands.announce(self.hal);
        control.progress.announced = true;
        Ok(control)
    }

    /// Bit 31 of the register at 0x1fc reads one while firmware initialises.
    fn wait_for_firmware(&self) -> Result<(), OpenCause> {
        let start = self.hal.now();
        let deadline = start + self.config.firmware_timeout;
        loop {
            let value = self.hal.mmio().read32(init_segment::INITIALIZING);
            let now = self.hal.now();
            if value >> 31 == 0 {
                return Ok(());
            }
            if now >= deadline || value == u32::MAX {
                let health = HealthReport::read(self.hal);
                return Err(OpenCause::FirmwareNotReady { waited: now.since(start), health });
            }
            self.hal.relax(deadline.min(now + self.config.poll_interval));
        }
    }

    fn check_interface(&self) -> Result<CommandQueueConfig, OpenCause> {
        let mmio = self.hal.mmio();
        if mmio.len() < init_segment::SIZE {
            return Err(OpenCause::WindowTooSmall { needed: init_segment::SIZE, found: mmio.len() });
        }
        let revision = (mmio.read32(init_segment::CMDIF_REV) >> 16) as u16;
        if revision != COMMAND_INTERFACE {
            return Err(OpenCause::UnknownInterface { found: revision });
        }
        let geometry = mmio.read32(init_segment::CMDQ_ADDRESS_LOW);
        let queue = CommandQueueConfig {
            log_size: (geometry >> 4) as u8 & 0xf,
            log_stride: geometry as u8 & 0xf,
            mailbox_blocks: self.config.mailbox_blocks,
        };
        if queue.is_usable() {
            return Ok(queue);
        }
        Err(OpenCause::BadQueueGeometry { log_size: queue.log_size, log_stride: queue.log_stride })
    }

    fn bring_up(
        &mut self,
        control: &mut Control<H>,
    ) -> Result<(Capabilities, UarIndex, Ledgers<H::Dma>), OpenCause> {
        self.at(BootStep::WaitForCommandQueue);
        self.wait_for_firmware()?;
        self.at(BootStep::EnableHca);
        control.run(self.hal, &Request::new(&header(CommandOpcode::EnableHca, 0)))?;
        control.progress.enabled = true;
        self.at(BootStep::SetIssi);
        self.set_issi(control)?;
        self.at(BootStep::BootPages);
        control.with_pages(self.hal, |pages, shell| pages.serve_stage(shell, QueryPagesStage::BootPages))?;
        self.at(BootStep::HostEndianness);
        self.set_host_endianness(control)?;
        self.at(BootStep::SetCapabilities);
        self.set_capabilities(control)?;
        self.at(BootStep::InitPages);
        control.with_pages(self.hal, |pages, shell| pages.serve_stage(shell, QueryPagesStage::InitPages))?;
        self.at(BootStep::InitHca);
        control.run(self.hal, &Request::new(&header(CommandOpcode::InitHca, 0)).padded_to(32))?;
        control.progress.initialised = true;
        self.at(BootStep::QueryCapabilities);
        let capabilities = self.capabilities(control)?;
        self.at(BootStep::AllocateUar);
        let uar = self.allocate_uar(control)?;
        self.at(BootStep::CreateEventQueue);
        self.create_event_queue(control, uar, event_mask(&capabilities))?;
        self.at(BootStep::EnableRoce);
        if capabilities.roce {
            control.run(self.hal, &Request::new(&port::set_roce(true)))?;
            control.progress.roce = true;
        }
        self.at(BootStep::AllocateLedgers);
        let ledgers = Ledgers::allocate(self.hal, self.config.queue_pairs, self.config.ledger_words)?;
        Ok((capabilities, uar, ledgers))
    }

    /// Issue 1 of the interface; a device that knows no issues has issue 0, which is not enough.
    fn set_issi(&self, control: &mut Control<H>) -> Result<(), OpenCause> {
        let mut input = QueryIssiIn::new();
        input.set_opcode(CommandOpcode::QueryIssi);
        let supported = match control.call::<QueryIssiOut>(self.hal, &Request::new(&input)) {
            Ok(output) => output.supported_issi_dw0(),
            Err(error) if error.status() == Some(CommandStatus::BadOpcode) => 1,
            Err(error) => return Err(error.into()),
        };
        if supported & 2 == 0 {
            return Err(OpenCause::NoIssi1 { supported });
        }
        let mut input = SetIssiIn::new();
        input.set_opcode(CommandOpcode::SetIssi).set_current_issi(1);
        Ok(control.run(self.hal, &Request::new(&input))?)
    }

    fn set_host_endianness(&self, control: &mut Control<H>) -> Result<(), CommandError> {
        let input = port::access(RegisterId::HostEndianness, false);
        let mut register = HostEndiannessRegister::new();
        register.set_he(cfg!(target_endian = "big"));
        let request = Request::with_tail(&input, Tail::Bytes(register.as_bytes()));
        control.execute(self.hal, &request, &mut [], 32)
    }

    fn set_capabilities(&self, control: &mut Control<H>) -> Result<(), OpenCause> {
        let current: GeneralCapabilities = self.query(control, CapabilityType::General, CURRENT)?;
        let max: GeneralCapabilities = self.query(control, CapabilityType::General, MAXIMUM)?;
        if max.cqe_version() < COMPLETION_VERSION {
            return Err(OpenCause::Missing { feature: "completion entries of version 1 (cqe_version)" });
        }
        if !max.rc() {
            return Err(OpenCause::Missing { feature: "reliable connected queue pairs (rc)" });
        }
        let page = negotiate(&current, &max, self.config.checked);
        self.set(control, CapabilityType::General, page.as_bytes())?;
        control.commands.set_checked(page.cmdif_checksum() != 0);
        if max.atomic() {
            let max: AtomicCapabilities = self.query(control, CapabilityType::Atomic, MAXIMUM)?;
            if let Some(page) = negotiate_atomic(&max) {
                self.set(control, CapabilityType::Atomic, page.as_bytes())?;
            }
        }
        if max.roce() {
            let current: RoceCapabilities = self.query(control, CapabilityType::Roce, CURRENT)?;
            let max: RoceCapabilities = self.query(control, CapabilityType::Roce, MAXIMUM)?;
            if let Some(page) = negotiate_roce(&current, &max) {
                self.set(control, CapabilityType::Roce, page.as_bytes())?;
            }
        }
        Ok(())
    }

    /// What is in force after INIT_HCA.
    fn capabilities(&self, control: &mut Control<H>) -> Result<Capabilities, CommandError> {
        let general: GeneralCapabilities = self.query(control, CapabilityType::General, CURRENT)?;
        let atomic = match general.atomic() {
            true => self.query(control, CapabilityType::Atomic, CURRENT)?,
            false => AtomicCapabilities::new(),
        };
        let roce = match general.roce() {
            true => self.query(control, CapabilityType::Roce, CURRENT)?,
            false => RoceCapabilities::new(),
        };
        Ok(Capabilities::new(&general, &atomic, &roce))
    }

    fn query<T: FromBytes + Default>(
        &self,
        control: &mut Control<H>,
        page: CapabilityType,
        mode: u16,
    ) -> Result<T, CommandError> {
        let input = header(CommandOpcode::QueryHcaCap, (page.raw() as u16) << 1 | mode);
        let mut output = [0; 16 + CAPABILITY_PAGE];
        control.execute(self.hal, &Request::new(&input), &mut output, CAPABILITY_MESSAGE)?;
        Ok(T::read_from_prefix(&output[16..]).map_or_else(|_| T::default(), |(page, _)| page))
    }

    fn set(&self, control: &mut Control<H>, page: CapabilityType, bytes: &[u8]) -> Result<(), CommandError> {
        let input = header(CommandOpcode::SetHcaCap, (page.raw() as u16) << 1);
        control.run(self.hal, &Request::with_tail(&input, Tail::Bytes(bytes)).padded_to(CAPABILITY_MESSAGE))
    }

    fn allocate_uar(&self, control: &mut Control<H>) -> Result<UarIndex, OpenCause> {
        let mut input = AllocUarIn::new();
        input.set_opcode(CommandOpcode::AllocUar);
        let output: AllocUarOut = control.call(self.hal, &Request::new(&input))?;
        let uar = output.uar();
        control.progress.uar = Some(uar);
        let needed = (uar.value() as usize + 1) * UAR_PAGE_SIZE;
        if needed > self.hal.mmio().len() {
            return Err(OpenCause::WindowTooSmall { needed, found: self.hal.mmio().len() });
        }
        Ok(uar)
    }

    fn create_event_queue(
        &self,
        control: &mut Control<H>,
        uar: UarIndex,
        mask: u64,
    ) -> Result<(), OpenCause> {
        let mut queue = EventQueue::allocate(self.hal, self.config.event_queue_entries, uar)?;
        let (input, run) = queue.create_input(self.config.log_max_page, ASYNC_VECTOR, mask);
        let output = control.call::<CreateEqOut>(self.hal, &Request::with_tail(&input, run.list(0)));
        match output {
            Ok(output) => queue.eqn = output.eq_number(),
            Err(error) => {
                if error.status().is_none() {
                    core::mem::forget(queue);
                }
                return Err(error.into());
            }
        }
        control.events = Some(queue);
        Ok(())
    }
}

/// A command that is nothing but its header.
fn header(opcode: CommandOpcode, op_mod: u16) -> CommandHeaderIn {
    let mut input = CommandHeaderIn::new();
    input.set_opcode(opcode).set_op_mod(op_mod);
    input
}

/// The steps of [`Boot::bring_up`] backwards. Goes on when one fails and reports the first failure.
fn take_down<H: Hal>(hal: &H, control: &mut Control<H>) -> Result<(), CloseCause> {
    let mut result = Ok(());
    let mut keep = |step: BootStep, outcome: Result<(), CommandError>| {
        let outcome = outcome.map_err(|error| CloseCause::Command { step, error });
        result = result.and(outcome);
        outcome.is_ok()
    };
    control.retry_parked(hal);
    if core::mem::take(&mut control.progress.roce) {
        undo(control, BootStep::EnableRoce);
        keep(BootStep::EnableRoce, control.run(hal, &Request::new(&port::set_roce(false))));
    }
    keep(BootStep::CreateEventQueue, destroy_event_queue(hal, control));
    if let Some(uar) = control.progress.uar.take() {
        undo(control, BootStep::AllocateUar);
        let doomed = Doomed { opcode: CommandOpcode::DeallocUar, number: uar.value() };
        keep(BootStep::AllocateUar, control.destroy_now(hal, doomed));
    }
    let mut forgotten = true;
    if core::mem::take(&mut control.progress.initialised) {
        undo(control, BootStep::InitHca);
        let request = header(CommandOpcode::TeardownHca, 0);
        forgotten = keep(BootStep::InitHca, control.run(hal, &Request::new(&request)));
    }
    control.settle_parked(forgotten);
    if core::mem::take(&mut control.progress.enabled) {
        undo(control, BootStep::BootPages);
        let reclaimed = control.with_pages(hal, |pages, shell| pages.reclaim(shell));
        undo(control, BootStep::EnableHca);
        let request = header(CommandOpcode::DisableHca, 0);
        keep(BootStep::EnableHca, control.run(hal, &Request::new(&request)));
        result = result.and(reclaimed.map_err(CloseCause::Pages));
    }
    if control.commands.is_idle() { result } else { result.and(Err(CloseCause::CommandsUnderWay)) }
}

fn undo<H: Hal>(control: &Control<H>, step: BootStep) {
    control.observe(TraceEvent::Step { step, undo: true });
}

fn destroy_event_queue<H: Hal>(hal: &H, control: &mut Control<H>) -> Result<(), CommandError> {
    control.serve(hal);
    let Some(queue) = control.events.take() else { return Ok(()) };
    undo(control, BootStep::CreateEventQueue);
    let doomed = Doomed { opcode: CommandOpcode::DestroyEq, number: queue.eqn.value() };
    let result = control.destroy_now(hal, doomed);
    if result.is_err() {
        core::mem::forget(queue);
    }
    result
}
