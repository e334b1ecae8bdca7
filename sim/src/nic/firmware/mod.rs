//! The firmware: it takes command queue entries apart, checks them, runs one handler per command, and answers.
//!
//! `entry` moves bytes between the command queue and a `Call`; this module decides who handles it and in which
//! state of the device; the other modules each handle one family. A handler gets a typed input and fills a typed output;
//! it never sees the queue.

pub(crate) mod call;
mod capabilities;
mod completion_queue;
mod domain;
mod entry;
mod ethernet;
mod event_queue;
mod ib_port;
mod mad;
mod memory_key;
mod multicast;
mod pages;
mod port;
mod port_counters;
mod queue_counter;
mod queue_pair;
mod register;
mod shared_receive;
pub mod syndrome;
mod system;
mod transition;
mod umem;

pub(crate) use capabilities::Capabilities;
pub(crate) use pages::PageSupply;
pub(crate) use port_counters::Cleared;
pub(crate) use umem::FIRST_UMEM;

use super::{CommandRecord, HostMemory, Nic, NicConfig, strict};
use bareverbs_prm::command::entry::CommandHeaderOut;
use bareverbs_prm::field::Layout;
use bareverbs_prm::init_segment::HealthBuffer;
use bareverbs_prm::numbering::{CommandOpcode, CommandStatus};
use bareverbs_prm::time::Time;
use call::Call;
use std::collections::BTreeMap;
use syndrome::Refusal;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// How far the device has been brought up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SystemState {
    /// Before ENABLE_HCA and after DISABLE_HCA.
    Disabled,
    /// After ENABLE_HCA and after TEARDOWN_HCA.
    Enabled,
    /// After INIT_HCA.
    Initialized,
}

/// States in which a command is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allowed {
    Disabled,
    Enabled,
    EnabledOrInitialized,
    Initialized,
}

impl Allowed {
    fn includes(self, state: SystemState) -> bool {
        match self {
            Self::Disabled => state == SystemState::Disabled,
            Self::Enabled => state == SystemState::Enabled,
            Self::EnabledOrInitialized => state != SystemState::Disabled,
            Self::Initialized => state == SystemState::Initialized,
        }
    }
}

/// What firmware remembers besides the objects.
#[derive(Debug)]
pub(crate) struct Firmware {
    pub(crate) state: SystemState,
    pub(crate) issi: u16,
    pub(crate) capabilities: Capabilities,
    pub(crate) pages: PageSupply,
    /// Address of the command queue; `None` until the driver wrote it.
    pub(crate) queue: Option<u64>,
    /// What the health buffer shows.
    pub(crate) health: HealthBuffer,
    pub(crate) node_description: [u8; 64],
    pub(crate) driver_version: [u8; 64],
    pub(crate) admin_mtu: u16,
    /// Commands by opcode that this device does not have.
    pub(crate) unknown: BTreeMap<u16, u64>,
}

impl Firmware {
    pub(crate) fn new(config: &NicConfig) -> Self {
        let [major, minor, subminor] = config.firmware_revision.map(u32::from);
        let mut health = HealthBuffer::new();
        health.set_fw_version(major << 24 | (minor & 0xff) << 16 | subminor & 0xffff);
        health.set_hw_id(config.device_id.into());
        Self {
            state: SystemState::Disabled,
            issi: 0,
            capabilities: Capabilities::new(config),
            pages: PageSupply::new(config.boot_pages, config.init_pages),
            queue: None,
            health,
            node_description: [0; 64],
            driver_version: [0; 64],
            admin_mtu: config.mtu,
            unknown: BTreeMap::new(),
        }
    }
}

impl Nic {
    /// The command doorbell: every slot whose bit is set is worked off, lowest first.
    pub(crate) fn handle_command_doorbell<M: HostMemory>(&mut self, now: Time, memory: &mut M, vector: u32) {
        for slot in (0..32).filter(|slot| vector >> slot & 1 != 0) {
            entry::handle_slot(self, now, memory, slot);
        }
    }
}

/// Decides who handles a command, and refuses those that are unknown.
#[rustfmt::skip]
fn dispatch<M: HostMemory>(nic: &mut Nic, call: &mut Call<'_, M>) -> Result<(), Refusal> {
    use Allowed::{Disabled, Enabled, EnabledOrInitialized, Initialized};
    use CommandOpcode as Op;
    match call.opcode() {
        Op::EnableHca => run(nic, call, Disabled, system::enable),
        Op::DisableHca => run(nic, call, Enabled, system::disable),
        Op::InitHca => run_sized(nic, call, Enabled, 16, system::init),
        Op::TeardownHca => run(nic, call, Initialized, system::teardown),
        Op::QueryIssi => run(nic, call, EnabledOrInitialized, system::query_issi),
        Op::SetIssi => run(nic, call, Enabled, system::set_issi),
        Op::QueryAdapter => run(nic, call, EnabledOrInitialized, system::query_adapter),
        Op::SetDriverVersion => run(nic, call, EnabledOrInitialized, system::set_driver_version),
        Op::Nop => run(nic, call, EnabledOrInitialized, system::nop),
        Op::QueryPages => run(nic, call, EnabledOrInitialized, pages::query),
        Op::ManagePages => run(nic, call, EnabledOrInitialized, pages::manage),
        Op::QueryHcaCap => run(nic, call, EnabledOrInitialized, capabilities::query),
        Op::SetHcaCap => run_sized(nic, call, Enabled, 16, capabilities::set),
        Op::AccessReg => run(nic, call, EnabledOrInitialized, register::access),
        Op::CreateEq => run(nic, call, Initialized, event_queue::create),
        Op::DestroyEq => run(nic, call, Initialized, event_queue::destroy),
        Op::QueryEq => run(nic, call, Initialized, event_queue::query),
        Op::CreateCq => run(nic, call, Initialized, completion_queue::create),
        Op::DestroyCq => run(nic, call, Initialized, completion_queue::destroy),
        Op::QueryCq => run(nic, call, Initialized, completion_queue::query),
        Op::ModifyCq => run(nic, call, Initialized, completion_queue::modify),
        Op::AllocPd => run(nic, call, Initialized, domain::alloc_pd),
        Op::DeallocPd => run(nic, call, Initialized, domain::dealloc_pd),
        Op::AllocUar => run(nic, call, Initialized, domain::alloc_uar),
        Op::DeallocUar => run(nic, call, Initialized, domain::dealloc_uar),
        Op::CreateUmem => run(nic, call, Initialized, umem::create),
        Op::DestroyUmem => run(nic, call, Initialized, umem::destroy),
        Op::CreateMkey => run(nic, call, Initialized, memory_key::create),
        Op::DestroyMkey => run(nic, call, Initialized, memory_key::destroy),
        Op::QueryMkey => run(nic, call, Initialized, memory_key::query),
        Op::CreateQp => run(nic, call, Initialized, queue_pair::create),
        Op::DestroyQp => run(nic, call, Initialized, queue_pair::destroy),
        Op::QueryQp => run(nic, call, Initialized, queue_pair::query),
        Op::ResetToInitQp => run(nic, call, Initialized, transition::reset_to_init),
        Op::InitToInitQp => run(nic, call, Initialized, transition::init_to_init),
        Op::InitToRtrQp => run(nic, call, Initialized, transition::init_to_rtr),
        Op::RtrToRtsQp => run(nic, call, Initialized, transition::rtr_to_rts),
        Op::RtsToRtsQp => run(nic, call, Initialized, transition::rts_to_rts),
        Op::SqErrorToRtsQp => run(nic, call, Initialized, transition::sq_error_to_rts),
        Op::RtsToSqdQp => run(nic, call, Initialized, transition::rts_to_sqd),
        Op::SqdToSqdQp => run(nic, call, Initialized, transition::sqd_to_sqd),
        Op::SqdToRtsQp => run(nic, call, Initialized, transition::sqd_to_rts),
        Op::ToErrorQp => run(nic, call, Initialized, transition::to_error),
        Op::ToResetQp => run(nic, call, Initialized, transition::to_reset),
        Op::AttachToMcg => run(nic, call, Initialized, multicast::attach),
        Op::DetachFromMcg => run(nic, call, Initialized, multicast::detach),
        Op::SetRoceAddress => run(nic, call, Initialized, port::set_roce_address),
        Op::QueryRoceAddress => run(nic, call, Initialized, port::query_roce_address),
        Op::QueryVportState => run(nic, call, Initialized, port::query_vport_state),
        Op::QueryNicVportContext => run(nic, call, Initialized, port::query_vport_context),
        Op::QueryVportCounter => run(nic, call, Initialized, ib_port::query_counters),
        Op::QueryHcaVportContext => run(nic, call, Initialized, ib_port::query_context),
        Op::ModifyHcaVportContext => run(nic, call, Initialized, ib_port::modify_context),
        Op::QueryHcaVportGid => run(nic, call, Initialized, ib_port::query_gid),
        Op::QueryHcaVportPkey => run(nic, call, Initialized, ib_port::query_pkey),
        Op::MadIfc => run(nic, call, Initialized, mad::ask),
        Op::AllocQCounter => run(nic, call, Initialized, queue_counter::alloc),
        Op::DeallocQCounter => run(nic, call, Initialized, queue_counter::dealloc),
        Op::QueryQCounter => run(nic, call, Initialized, queue_counter::query),
        Op::QueryCongStatistics => run(nic, call, Initialized, queue_counter::query_congestion),
        Op::AllocXrcd => run(nic, call, Initialized, shared_receive::alloc_xrcd),
        Op::DeallocXrcd => run(nic, call, Initialized, shared_receive::dealloc_xrcd),
        Op::CreateRmp => run(nic, call, Initialized, shared_receive::create_rmp),
        Op::ModifyRmp => run(nic, call, Initialized, shared_receive::modify_rmp),
        Op::DestroyRmp => run(nic, call, Initialized, shared_receive::destroy_rmp),
        Op::QueryRmp => run(nic, call, Initialized, shared_receive::query_rmp),
        Op::CreateXrcSrq => run(nic, call, Initialized, shared_receive::create_xrc_srq),
        Op::DestroyXrcSrq => run(nic, call, Initialized, shared_receive::destroy_xrc_srq),
        Op::QueryXrcSrq => run(nic, call, Initialized, shared_receive::query_xrc_srq),
        Op::ArmXrcSrq => run(nic, call, Initialized, shared_receive::arm_xrc_srq),
        Op::ModifyNicVportContext => run(nic, call, Initialized, port::modify_vport_context),
        _ if !nic.port.is_infiniband() => ethernet::dispatch(nic, call),
        _ => refuse_unknown(nic, call),
    }
}

/// Counts and refuses a command that the device does not have.
fn refuse_unknown<M: HostMemory>(nic: &mut Nic, call: &Call<'_, M>) -> Result<(), Refusal> {
    let unknown = call.opcode();
    *nic.firmware.unknown.entry(unknown.raw()).or_default() += 1;
    Err(Refusal::unknown_opcode(unknown))
}

/// A handler of one command: input in, output out, or a refusal that has changed nothing.
type Handler<M, I, O> = fn(&mut Nic, &mut Call<'_, M>, &I, &mut O) -> Result<(), Refusal>;

fn run<M, I, O>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    allowed: Allowed,
    handler: Handler<M, I, O>,
) -> Result<(), Refusal>
where
    M: HostMemory,
    I: Layout + FromBytes + IntoBytes + Immutable,
    O: Layout + FromZeros + IntoBytes + Immutable,
{
    run_sized(nic, call, allowed, I::SIZE, handler)
}

/// Checks state, lengths and reserved bits, then runs a handler. Inputs shorter than the newest layout but not shorter
/// than `minimum` are read as if zeros followed: older drivers send less.
fn run_sized<M, I, O>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    allowed: Allowed,
    minimum: usize,
    handler: Handler<M, I, O>,
) -> Result<(), Refusal>
where
    M: HostMemory,
    I: Layout + FromBytes + IntoBytes + Immutable,
    O: Layout + FromZeros + IntoBytes + Immutable,
{
    if !allowed.includes(nic.firmware.state) {
        return Err(syndrome::WRONG_STATE);
    }
    if call.input.len() < minimum {
        return Err(syndrome::INPUT_TOO_SHORT);
    }
    if call.output_length < minimum_output::<O>() {
        return Err(syndrome::OUTPUT_TOO_SHORT);
    }
    let mut input = I::new_zeroed();
    let length = call.input.len().min(I::SIZE);
    input.as_mut_bytes()[..length].copy_from_slice(&call.input[..length]);
    if nic.config.strict && !strict::is_clear(&I::INFO, input.as_bytes(), call.open_part()) {
        return Err(syndrome::RESERVED_NOT_CLEAR);
    }
    if call.uid() != 0 && I::INFO.fields.iter().any(|field| field.path == "uid") {
        return Err(syndrome::UID_UNKNOWN);
    }
    let mut output = O::new_zeroed();
    handler(nic, call, &input, &mut output)?;
    call.answer(output.as_bytes());
    Ok(())
}

/// Output bytes that a driver must have room for. Query outputs have grown over the years; 272 bytes hold what every
/// driver reads, the rest is cut where the driver's room ends.
const fn minimum_output<O: Layout>() -> usize {
    if O::SIZE > 272 { 272 } else { O::SIZE }
}

/// Runs a command and gives the bytes of its output.
fn execute<M: HostMemory>(nic: &mut Nic, call: &mut Call<'_, M>) -> Vec<u8> {
    nic.counters.commands += 1;
    if let Err(refusal) = dispatch(nic, call) {
        nic.counters.commands_refused += 1;
        nic.last_refusal = Some((call.opcode(), refusal));
        call.refuse(refusal);
    }
    nic.trace.push(record(call));
    core::mem::take(&mut call.output)
}

fn record<M: HostMemory>(call: &Call<'_, M>) -> CommandRecord {
    let header =
        CommandHeaderOut::read_from_prefix(&call.output).map(|(header, _)| header).unwrap_or_default();
    CommandRecord {
        opcode: call.opcode(),
        op_mod: call.op_mod(),
        subject: call.input.get(8..12).and_then(|word| word.try_into().ok()).map_or(0, u32::from_be_bytes),
        input_length: call.input.len(),
        output_length: call.output_length,
        status: header.status(),
        syndrome: header.syndrome(),
    }
}

/// The output of a refused command: status and syndrome, nothing else.
fn refusal_bytes(refusal: Refusal) -> Vec<u8> {
    let mut header = CommandHeaderOut::new();
    header.set_status(refusal.status).set_syndrome(refusal.syndrome);
    debug_assert_ne!(refusal.status, CommandStatus::Ok);
    header.as_bytes().to_vec()
}
