//! Bringing the device up, in named steps. If a step fails, [`shutdown`](super::shutdown) undoes the steps before it.

use super::config::DeviceConfig;
use super::control::{Control, PrivateControl};
use super::error::{OpenCause, OpenError};
use super::ledgers::Ledgers;
use super::requests::{command_header, set_roce};
use super::shutdown::release;
use crate::boot_step::BootStep;
use crate::capabilities::{Capabilities, negotiate, negotiate_atomic, negotiate_roce};
use crate::capability_page::{
    CAPABILITY_MESSAGE, CapabilityPage, CapabilityValues, page_buffer, page_of, page_output, query_page,
};
use crate::command::{
    CommandError, CommandQueue, CommandQueueConfig, HealthReport, REGISTER_HEADER, RegisterAccess, Request,
    Tail, access_register,
};
use crate::dma::PrivateBox;
use crate::events::{EventQueue, event_mask};
use crate::executor::CommandOutput;
use crate::hal::{Hal, Mmio};
use crate::trace::TraceEvent;
use bareverbs_prm::command::caps::{AtomicCapabilities, GeneralCapabilities, RoceCapabilities};
use bareverbs_prm::command::eq::CreateEqOut;
use bareverbs_prm::command::hca::{HostEndiannessRegister, QueryIssiIn, QueryIssiOut, SetIssiIn};
use bareverbs_prm::command::uar::{AllocUarIn, AllocUarOut};
use bareverbs_prm::doorbell::{UAR_PAGE_SIZE, init_segment};
use bareverbs_prm::ids::{Eqn, UarIndex};
use bareverbs_prm::numbering::{CapabilityType, CommandOpcode, CommandStatus, QueryPagesStage, RegisterId};
use zerocopy::IntoBytes;

/// Revision of the command interface that this driver speaks.
const COMMAND_INTERFACE: u16 = 5;
/// Interrupt vector of the queue of asynchronous events.
const ASYNC_VECTOR: u16 = 0;
/// The `cqe_version` that carries the `user_index`.
const COMPLETION_VERSION: u8 = 1;

/// What the boot steps leave behind.
pub(super) struct Booted<H: Hal> {
    pub(super) control: spin::Mutex<PrivateControl<H>>,
    pub(super) ledgers: Ledgers<H::Dma>,
    pub(super) capabilities: Capabilities,
    pub(super) uar: UarIndex,
    pub(super) eqn: Eqn,
}

/// Opens the device behind `hal`. If a step fails, the steps before it are undone.
pub(super) fn open<H: Hal>(hal: &H, config: &DeviceConfig) -> Result<Booted<H>, OpenError> {
    let mut boot = Boot { hal, config, step: BootStep::WaitForFirmware };
    let mut control = boot.command_interface().map_err(|cause| boot.failed(cause))?;
    match boot.bring_up(&mut control) {
        Ok(Resources { capabilities, uar, eqn, ledgers }) => {
            Ok(Booted { control: spin::Mutex::new(control), ledgers, capabilities, uar, eqn })
        }
        Err(cause) => {
            let error = boot.failed(cause);
            release(hal, control).ok();
            Err(error)
        }
    }
}

/// What [`Boot::bring_up`] finds and allocates.
struct Resources<M> {
    capabilities: Capabilities,
    uar: UarIndex,
    eqn: Eqn,
    ledgers: Ledgers<M>,
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

    fn command_interface(&mut self) -> Result<PrivateControl<H>, OpenCause> {
        self.at(BootStep::WaitForFirmware);
        self.wait_for_firmware()?;
        self.at(BootStep::CheckInterface);
        let queue = self.check_interface()?;
        self.at(BootStep::CommandQueue);
        let commands = CommandQueue::allocate(self.hal, queue)?;
        let control = Control::new(commands, self.config.command_timing(), self.config.observer);
        let mut control = PrivateBox::new(self.hal, control)?;
        control.commands.announce(self.hal);
        Ok(control)
    }

    /// Bit 31 of the register at 0x1fc reads as one while firmware initializes.
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

    fn bring_up(&mut self, control: &mut Control<H>) -> Result<Resources<H::Dma>, OpenCause> {
        self.at(BootStep::WaitForCommandQueue);
        self.wait_for_firmware()?;
        self.at(BootStep::EnableHca);
        let enabled = control.run(self.hal, &Request::new(&command_header(CommandOpcode::EnableHca, 0)));
        enabled.map_err(|error| match error.status() {
            Some(CommandStatus::BadSystemState) => OpenCause::AlreadyOpen(error),
            _ => OpenCause::Command(error),
        })?;
        control.progress.enabled = true;
        self.at(BootStep::SetIssi);
        self.set_issi(control)?;
        self.at(BootStep::BootPages);
        control.serve_stage(self.hal, QueryPagesStage::BootPages)?;
        self.at(BootStep::HostEndianness);
        self.set_host_endianness(control)?;
        self.at(BootStep::SetCapabilities);
        self.set_capabilities(control)?;
        self.at(BootStep::InitPages);
        control.serve_stage(self.hal, QueryPagesStage::InitPages)?;
        self.at(BootStep::InitHca);
        control.run(self.hal, &Request::new(&command_header(CommandOpcode::InitHca, 0)).padded_to(32))?;
        control.progress.initialised = true;
        self.at(BootStep::QueryCapabilities);
        let capabilities = self.capabilities(control)?;
        self.at(BootStep::AllocateUar);
        let uar = self.allocate_uar(control)?;
        self.at(BootStep::CreateEventQueue);
        let eqn = self.create_event_queue(control, uar, event_mask(&capabilities))?;
        self.at(BootStep::EnableRoce);
        if capabilities.roce {
            control.run(self.hal, &Request::new(&set_roce(true)))?;
            control.progress.roce = true;
        }
        self.at(BootStep::AllocateLedgers);
        let ledgers = Ledgers::allocate(self.hal, self.config.queue_pairs, self.config.ledger_words)?;
        Ok(Resources { capabilities, uar, eqn, ledgers })
    }

    /// Sets ISSI 1. A device without ISSI support only has ISSI 0, which is not enough.
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
        let input = access_register(RegisterId::HostEndianness, RegisterAccess::Write);
        let mut register = HostEndiannessRegister::new();
        register.set_he(cfg!(target_endian = "big"));
        let request = Request::with_tail(&input, Tail::Bytes(register.as_bytes()));
        let output =
            CommandOutput { buffer: &mut [], length: REGISTER_HEADER + HostEndiannessRegister::SIZE };
        control.execute(self.hal, &request, output)
    }

    fn set_capabilities(&self, control: &mut Control<H>) -> Result<(), OpenCause> {
        let current: GeneralCapabilities = self.query(control, CapabilityValues::Current)?;
        let max: GeneralCapabilities = self.query(control, CapabilityValues::Maximum)?;
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
            let max: AtomicCapabilities = self.query(control, CapabilityValues::Maximum)?;
            if let Some(page) = negotiate_atomic(&max) {
                self.set(control, CapabilityType::Atomic, page.as_bytes())?;
            }
        }
        if max.roce() {
            let current: RoceCapabilities = self.query(control, CapabilityValues::Current)?;
            let max: RoceCapabilities = self.query(control, CapabilityValues::Maximum)?;
            if let Some(page) = negotiate_roce(&current, &max) {
                self.set(control, CapabilityType::Roce, page.as_bytes())?;
            }
        }
        Ok(())
    }

    /// The capabilities in force after INIT_HCA.
    fn capabilities(&self, control: &mut Control<H>) -> Result<Capabilities, CommandError> {
        let general: GeneralCapabilities = self.query(control, CapabilityValues::Current)?;
        let atomic = match general.atomic() {
            true => self.query(control, CapabilityValues::Current)?,
            false => AtomicCapabilities::new(),
        };
        let roce = match general.roce() {
            true => self.query(control, CapabilityValues::Current)?,
            false => RoceCapabilities::new(),
        };
        Ok(Capabilities::new(&general, &atomic, &roce))
    }

    fn query<P: CapabilityPage>(
        &self,
        control: &mut Control<H>,
        values: CapabilityValues,
    ) -> Result<P, CommandError> {
        let mut buffer = page_buffer();
        control.execute(self.hal, &Request::new(&query_page(P::TYPE, values)), page_output(&mut buffer))?;
        Ok(page_of(&buffer))
    }

    fn set(&self, control: &mut Control<H>, page: CapabilityType, bytes: &[u8]) -> Result<(), CommandError> {
        let input = command_header(CommandOpcode::SetHcaCap, (page.raw() as u16) << 1);
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
    ) -> Result<Eqn, OpenCause> {
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
        let eqn = queue.eqn;
        control.events = Some(queue);
        Ok(eqn)
    }
}
