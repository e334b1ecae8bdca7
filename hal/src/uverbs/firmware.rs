//! Executes the driver's commands. What the kernel has done already succeeds without it; what belongs to the kernel is refused; the rest is
//! passed on by DEVX.

use super::context::{Access, DoorbellPage, Handle, KernelContext, RegisteredMemory};
use super::doorbells::DoorbellPages;
use super::memory::KernelMemory;
use super::objects::{ObjectName, Route, header_of, route};
use super::rewrite::{Obstacle, key_memory, use_key_memory, use_queue_memory};
use crate::memory::Arena;
use bareverbs_prm::command::caps::GeneralCapabilities;
use bareverbs_prm::command::entry::CommandHeaderOut;
use bareverbs_prm::command::eq::CreateEqOut;
use bareverbs_prm::command::hca::{AccessRegisterIn, AccessRegisterOut, NopIn};
use bareverbs_prm::command::port::{
    ModifyNicVportContextIn, PmtuRegister, QueryNicVportContextIn, QueryNicVportContextOut,
};
use bareverbs_prm::command::uar::{AllocUarOut, DeallocUarIn};
use bareverbs_prm::ids::{Eqn, UarIndex};
use bareverbs_prm::numbering::{CapabilityType, CommandOpcode as Op, CommandStatus, RegisterId};
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Output of most commands.
const SHORT_OUTPUT: usize = 16;
/// `op_mod` of ACCESS_REG: read.
const READ: u16 = 1;
/// Offset of a capability page in the output of QUERY_HCA_CAP.
const CAPABILITIES: usize = 16;

/// An object that the driver has created.
#[derive(Debug)]
struct Created {
    name: ObjectName,
    handle: Handle,
    /// Memory that is registered for this object alone.
    memory: Option<RegisteredMemory>,
}

/// Why a command was refused here or by the kernel, which a status alone does not say.
pub(super) type Reason = String;

/// The executor and what it remembers.
#[derive(Debug)]
pub(super) struct Firmware {
    context: Arc<KernelContext>,
    arena: Arc<Arena<KernelMemory>>,
    pages: Arc<DoorbellPages>,
    /// Oldest first.
    objects: Vec<Created>,
    pub(super) last_refusal: Option<Reason>,
    /// Whether the kernel has lost the device.
    pub(super) is_gone: bool,
}

impl Firmware {
    pub(super) const fn new(
        context: Arc<KernelContext>,
        arena: Arc<Arena<KernelMemory>>,
        pages: Arc<DoorbellPages>,
    ) -> Self {
        Self { context, arena, pages, objects: Vec::new(), last_refusal: None, is_gone: false }
    }

    /// Executes a command and returns its output: `room` bytes, or status and syndrome.
    pub(super) fn execute(&mut self, input: Vec<u8>, room: usize) -> Vec<u8> {
        let opcode = header_of(&input).opcode();
        let result = match route(&input) {
            Route::General => self.general(&input, room),
            Route::Create => self.create(input, room),
            Route::Modify(name) => self.modify(name, input, room),
            Route::Query(name) => self.query(name, &input, room),
            Route::Destroy(name) => self.destroy(name),
            Route::Kernel => self.of_kernel(&input, room),
        };
        result.unwrap_or_else(|refusal| {
            self.last_refusal = Some(format!("{opcode}: {}", refusal.reason));
            refusal.output
        })
    }

    fn general(&mut self, input: &[u8], room: usize) -> Result<Vec<u8>, RefusedCommand> {
        let mut output = vec![0; room];
        let result = self.context.run(input, &mut output);
        self.settle(result, &output)?;
        let header = header_of(input);
        if header.opcode() == Op::QueryHcaCap
            && CapabilityType::from_raw((header.op_mod() >> 1) as u8) == CapabilityType::General
            && let Some(page) = output.get_mut(CAPABILITIES..)
            && let Ok((page, _)) = GeneralCapabilities::mut_from_prefix(page)
        {
            hide_what_programs_lack(page);
        }
        Ok(output)
    }

    fn create(&mut self, mut input: Vec<u8>, room: usize) -> Result<Vec<u8>, RefusedCommand> {
        let memory = match key_memory(&input)? {
            Some(memory) if !self.arena.mapper().contains(memory.address, memory.length) => {
                return Err(Obstacle::Memory(libc::EFAULT).into());
            }
            Some(memory) => {
                Some(self.context.register(memory.address, memory.length).map_err(Obstacle::Memory)?)
            }
            None => None,
        };
        if let Some(memory) = memory {
            use_key_memory(&mut input, memory.id);
        }
        use_queue_memory(&mut input, |address| self.arena.mapper().locate(address))?;
        let mut output = vec![0; room];
        let result = self.context.create(&input, &mut output);
        match self.settle(result, &output) {
            Ok(handle) => {
                let name = ObjectName::created(&input, &output);
                self.objects.push(Created { name, handle, memory });
                Ok(output)
            }
            Err(refusal) => {
                self.release(memory);
                Err(refusal)
            }
        }
    }

    fn release(&self, memory: Option<RegisteredMemory>) {
        if let Some(memory) = memory {
            // What the kernel does not give back stays pinned until its file is closed.
            let _ = self.context.deregister(memory.handle);
        }
    }

    fn modify(
        &mut self,
        name: ObjectName,
        mut input: Vec<u8>,
        room: usize,
    ) -> Result<Vec<u8>, RefusedCommand> {
        let handle = self.handle(name)?;
        use_queue_memory(&mut input, |address| self.arena.mapper().locate(address))?;
        let mut output = vec![0; room];
        let result = self.context.access(Access::Modify, handle, &input, &mut output);
        self.settle(result, &output)?;
        Ok(output)
    }

    fn query(&mut self, name: ObjectName, input: &[u8], room: usize) -> Result<Vec<u8>, RefusedCommand> {
        let handle = self.handle(name)?;
        let mut output = vec![0; room];
        let result = self.context.access(Access::Query, handle, input, &mut output);
        self.settle(result, &output)?;
        Ok(output)
    }

    fn destroy(&mut self, name: ObjectName) -> Result<Vec<u8>, RefusedCommand> {
        let handle = self.handle(name)?;
        let result = self.context.destroy(handle);
        self.settle(result, &[])?;
        if let Some(at) = self.objects.iter().position(|object| object.handle == handle) {
            let gone = self.objects.remove(at);
            self.release(gone.memory);
        }
        Ok(success(SHORT_OUTPUT))
    }

    fn handle(&self, name: ObjectName) -> Result<Handle, RefusedCommand> {
        let known = self.objects.iter().find(|object| object.name == name).map(|object| object.handle);
        known.ok_or_else(|| {
            RefusedCommand::new(CommandStatus::BadResource, "this program has created no such object")
        })
    }

    /// Destroys all objects, the newest first and again as long as that helps. Returns how many are left.
    fn destroy_all(&mut self) -> usize {
        let mut before = usize::MAX;
        while self.objects.len() < before {
            before = self.objects.len();
            for object in std::mem::take(&mut self.objects).into_iter().rev() {
                match self.context.destroy(object.handle) {
                    Ok(()) => self.release(object.memory),
                    Err(_) => self.objects.insert(0, object),
                }
            }
        }
        self.objects.len()
    }

    /// Commands of a driver that owns its device. Here the kernel owns the device, and has executed them.
    fn of_kernel(&mut self, input: &[u8], room: usize) -> Result<Vec<u8>, RefusedCommand> {
        match header_of(input).opcode() {
            // There are no pages to give: an output of zeros.
            Op::EnableHca | Op::DisableHca | Op::SetIssi | Op::QueryPages | Op::InitHca => Ok(success(room)),
            // The kernel has already set what the driver asks for. If it has not, the driver sees that when it queries.
            Op::SetHcaCap | Op::SetDriverVersion | Op::DestroyEq => Ok(success(room)),
            Op::TeardownHca => match self.destroy_all() {
                0 => Ok(success(room)),
                left => Err(RefusedCommand::new(
                    CommandStatus::ResourceBusy,
                    format!("{left} objects cannot be destroyed"),
                )),
            },
            Op::AccessReg => self.register(input, room),
            Op::ModifyNicVportContext if is_about_roce(input) => Ok(success(room)),
            Op::CreateEq => self.event_queue(),
            Op::AllocUar => self.allocate_doorbells(),
            Op::DeallocUar => self.free_doorbells(input),
            // It fills the RoCE address table from the addresses of its interfaces.
            Op::SetRoceAddress => Err(RefusedCommand::new(
                CommandStatus::BadOpcode,
                "the RoCE address table is the kernel's: give the address to its interface (`ip address add`)",
            )),
            _ => Err(RefusedCommand::new(
                CommandStatus::BadOpcode,
                "the kernel owns the device and does not pass this command on",
            )),
        }
    }

    /// The kernel does not pass on registers. Two have another source: the byte order of the host, which the kernel has
    /// set, and the MTU of the port.
    fn register(&mut self, input: &[u8], room: usize) -> Result<Vec<u8>, RefusedCommand> {
        let register = AccessRegisterIn::read_from_prefix(input).map(|(input, _)| input.register_id());
        match register {
            Ok(RegisterId::HostEndianness) => Ok(success(room)),
            Ok(RegisterId::Pmtu) if header_of(input).op_mod() == READ => self.port_mtu(),
            _ => Err(RefusedCommand::new(
                CommandStatus::BadOpcode,
                "the kernel does not pass on access to the registers of the port",
            )),
        }
    }

    /// Register PMTU, with the MTU of the virtual port, which a program may query.
    fn port_mtu(&mut self) -> Result<Vec<u8>, RefusedCommand> {
        let mut query = QueryNicVportContextIn::new();
        query.set_opcode(Op::QueryNicVportContext);
        let mut context = QueryNicVportContextOut::new();
        let result = self.context.run(query.as_bytes(), context.as_mut_bytes());
        self.settle(result, context.as_bytes())?;
        let mtu = context.nic_vport_context().mtu();
        let mut register = PmtuRegister::new();
        register.set_local_port(1).set_max_mtu(mtu).set_admin_mtu(mtu).set_oper_mtu(mtu);
        Ok([AccessRegisterOut::new().as_bytes(), register.as_bytes()].concat())
    }

    /// The kernel's event queue stands for the driver's, which stays empty: completion queues are polled.
    fn event_queue(&mut self) -> Result<Vec<u8>, RefusedCommand> {
        let result = self.context.event_queue();
        let number = self.settle(result, &[])?;
        let mut output = CreateEqOut::new();
        output.set_eq_number(Eqn::from_low_bits(number));
        Ok(output.as_bytes().to_vec())
    }

    fn allocate_doorbells(&mut self) -> Result<Vec<u8>, RefusedCommand> {
        let result = self.context.allocate_doorbells();
        let page = self.settle(result, &[])?;
        let DoorbellPage { handle, index, .. } = page;
        if let Err(reason) = self.pages.add(&self.context, page) {
            let _ = self.context.free_doorbells(handle);
            return Err(RefusedCommand::new(CommandStatus::NoResources, reason));
        }
        let mut output = AllocUarOut::new();
        output.set_uar(UarIndex::from_low_bits(index));
        Ok(output.as_bytes().to_vec())
    }

    /// The mapping of the page stays until this place is dropped, and the kernel keeps the page as long.
    fn free_doorbells(&mut self, input: &[u8]) -> Result<Vec<u8>, RefusedCommand> {
        let index = DeallocUarIn::read_from_prefix(input).map_or(0, |(input, _)| input.uar().value());
        let handle = self.pages.retire(index);
        let handle = handle
            .ok_or_else(|| RefusedCommand::new(CommandStatus::BadResource, "no such page of doorbells"))?;
        let result = self.context.free_doorbells(handle);
        self.settle(result, &[])?;
        Ok(success(SHORT_OUTPUT))
    }

    /// Turns the kernel's answer into that of a device. `output` has firmware's status and syndrome if firmware refused.
    fn settle<T>(&mut self, result: Result<T, i32>, output: &[u8]) -> Result<T, RefusedCommand> {
        let errno = match result {
            Ok(value) => return Ok(value),
            Err(errno) => errno,
        };
        let header = CommandHeaderOut::read_from_prefix(output).map(|(header, _)| header);
        if let Ok(header) = header
            && header.status() != CommandStatus::Ok
        {
            return Err(RefusedCommand::of_firmware(&header));
        }
        if errno == libc::ENODEV || errno == libc::EIO && self.is_lost() {
            self.is_gone = true;
        }
        Err(RefusedCommand::of_kernel(errno))
    }

    /// Whether the kernel does not even pass on a NOP.
    fn is_lost(&self) -> bool {
        let mut nop = NopIn::new();
        nop.set_opcode(Op::Nop);
        matches!(self.context.run(nop.as_bytes(), &mut [0; SHORT_OUTPUT]), Err(libc::EIO | libc::ENODEV))
    }
}

/// Why a command failed, and its output.
#[derive(Debug)]
struct RefusedCommand {
    output: Vec<u8>,
    reason: Reason,
}

impl RefusedCommand {
    fn new(status: CommandStatus, reason: impl Into<Reason>) -> Self {
        let mut header = CommandHeaderOut::new_zeroed();
        header.set_status(status);
        Self { output: header.as_bytes().to_vec(), reason: reason.into() }
    }

    fn of_firmware(header: &CommandHeaderOut) -> Self {
        let reason = format!("firmware refused it: {}, syndrome {:#x}", header.status(), header.syndrome());
        Self { output: header.as_bytes().to_vec(), reason }
    }

    /// A refusal by the kernel, or one by firmware that a kernel before 5.18 reports only as an errno.
    fn of_kernel(errno: i32) -> Self {
        let status = match errno {
            libc::ENOMEM => CommandStatus::ExceedsLimit,
            libc::EBUSY => CommandStatus::ResourceBusy,
            libc::EAGAIN => CommandStatus::NoResources,
            libc::EIO | libc::ENODEV => CommandStatus::InternalError,
            libc::EOPNOTSUPP | libc::EPROTONOSUPPORT => CommandStatus::BadOpcode,
            _ => CommandStatus::BadParameter,
        };
        let error = std::io::Error::from_raw_os_error(errno);
        Self::new(status, format!("the kernel refused it: {error}"))
    }
}

impl From<Obstacle> for RefusedCommand {
    fn from(obstacle: Obstacle) -> Self {
        match obstacle {
            Obstacle::Memory(libc::ENOMEM) => Self::new(
                CommandStatus::ExceedsLimit,
                "the kernel does not pin its memory: raise the limit of locked memory (ulimit -l)",
            ),
            Obstacle::Memory(libc::EFAULT) => {
                Self::new(CommandStatus::BadParameter, "its memory is not mapped for the device")
            }
            Obstacle::Memory(errno) => Self::of_kernel(errno),
            Obstacle::NotForPrograms(what) => {
                Self::new(CommandStatus::BadParameter, format!("a program may not create {what}"))
            }
        }
    }
}

fn success(room: usize) -> Vec<u8> {
    vec![0; room]
}

/// Signed answers, BlueFlame and XRC: signatures are between kernel and firmware, the doorbell pages are not write-combining, and XRC needs
/// queues that name no memory.
fn hide_what_programs_lack(page: &mut GeneralCapabilities) {
    page.set_cmdif_checksum(0).set_bf(false).set_xrc(false);
}

/// MODIFY_NIC_VPORT_CONTEXT that switches RoCE and nothing else: the kernel has switched it on, and keeps it on.
fn is_about_roce(input: &[u8]) -> bool {
    let Ok((input, _)) = ModifyNicVportContextIn::read_from_prefix(input) else { return false };
    let mut only = ModifyNicVportContextIn::new();
    only.set_opcode(Op::ModifyNicVportContext).set_field_select_roce_en(true);
    only.nic_vport_context_mut().set_roce_en(input.nic_vport_context().roce_en());
    input.as_bytes() == only.as_bytes()
}
