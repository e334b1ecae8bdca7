//! The driver's command encoder against the boot of a real ConnectX-4: the same fields must give the same
//! bytes in queue entry and mailboxes, and the recorded answers must come back through the driver.

use bareverbs_core::device::{Device, DeviceConfig};
use bareverbs_core::testing::{
    CommandExecutor, CommandOutput, CommandQueue, CommandQueueConfig, CommandTiming, Lane, Request, Tail,
};
use bareverbs_hal_sim::{MemoryConfig, SimHal, SimWorld};
use bareverbs_prm::command::entry::CommandHeaderIn;
use bareverbs_prm::command::{eq, hca, pages, uar};
use bareverbs_prm::numbering::CommandOpcode;
use bareverbs_prm::time::Duration;
use bareverbs_sim::nic::{Nic, NicConfig};
use bareverbs_sim::run::Latency;
use bareverbs_tests::boot_trace::{self, Exchange};
use bareverbs_tests::replay::ReplayDevice;
use bareverbs_tests::tap::Tap;
use zerocopy::{FromBytes, IntoBytes};

const LOG_STRIDE: u8 = 6;

/// A driver's command queue in front of a device that replays `script`.
struct Bench {
    world: SimWorld<ReplayDevice>,
    hal: SimHal<ReplayDevice>,
    queue: CommandQueue<bareverbs_hal_sim::SimDma>,
}

impl Bench {
    fn new(script: Vec<Exchange>) -> Self {
        let world = SimWorld::new(1);
        let device = ReplayDevice::new(script, LOG_STRIDE.into());
        let node = world.add_node("host", device, Latency::default(), MemoryConfig::default());
        let hal = world.hal(node);
        let config = CommandQueueConfig { log_size: 5, log_stride: LOG_STRIDE, mailbox_blocks: 512 };
        let mut queue = CommandQueue::allocate(&hal, config).expect("memory for a command queue");
        queue.announce(&hal);
        Self { world, hal, queue }
    }

    /// Executes a command as the driver does and returns its output.
    fn execute(&mut self, request: &Request<'_>, output_length: usize) -> Vec<u8> {
        let mut output = vec![0; output_length];
        let timing =
            CommandTiming { timeout: Duration::from_millis(10), poll_interval: Duration::from_micros(1) };
        let mut executor =
            CommandExecutor { hal: &self.hal, queue: &mut self.queue, timing, observer: None, limit: None };
        executor
            .execute(
                request,
                CommandOutput { buffer: &mut output, length: output_length },
                Lane::Regular,
                |_| {},
            )
            .unwrap_or_else(|error| panic!("{error}"));
        output
    }
}

/// The addresses after the fixed part of an input; zeros where the log ends before the command.
fn addresses(inbox: &[u8], offset: usize, length: usize) -> Vec<u64> {
    let mut bytes = inbox[offset..].to_vec();
    bytes.resize(length - offset, 0);
    bytes.chunks_exact(8).map(|chunk| u64::from_be_bytes(chunk.try_into().unwrap())).collect()
}

/// A new structure in which each named field has the value that it has in another.
macro_rules! rebuild {
    ($from:expr => $to:expr; $($get:ident $set:ident),+ $(,)?) => { $( $to.$set($from.$get()); )+ };
}

fn read<T: FromBytes>(inbox: &[u8]) -> T {
    T::read_from_prefix(inbox).expect("the log has the fixed part").0
}

/// Builds the input of a command from its fields, with the layouts that the driver uses, and executes it.
fn execute_again(bench: &mut Bench, exchange: &Exchange) -> Vec<u8> {
    use CommandOpcode::*;
    let inbox = exchange.inbox();
    let lengths =
        (exchange.input.entry.input_length() as usize, exchange.output.entry.output_length() as usize);
    match CommandOpcode::from_raw(exchange.opcode) {
        EnableHca => {
            let (from, mut to) = (read::<hca::EnableHcaIn>(&inbox), hca::EnableHcaIn::new());
            rebuild!(from => to; opcode set_opcode, op_mod set_op_mod, function_id set_function_id);
            bench.execute(&Request::new(&to), lengths.1)
        }
        QueryIssi | InitHca | QueryAdapter => {
            let (from, mut to) = (read::<CommandHeaderIn>(&inbox), CommandHeaderIn::new());
            rebuild!(from => to; opcode set_opcode, op_mod set_op_mod);
            bench.execute(&Request::new(&to), lengths.1)
        }
        SetIssi => {
            let (from, mut to) = (read::<hca::SetIssiIn>(&inbox), hca::SetIssiIn::new());
            rebuild!(from => to; opcode set_opcode, op_mod set_op_mod, current_issi set_current_issi);
            bench.execute(&Request::new(&to), lengths.1)
        }
        QueryPages => {
            let (from, mut to) = (read::<pages::QueryPagesIn>(&inbox), pages::QueryPagesIn::new());
            rebuild!(from => to; opcode set_opcode, op_mod set_op_mod, function_id set_function_id);
            bench.execute(&Request::new(&to), lengths.1)
        }
        ManagePages => manage_pages_again(bench, &inbox, lengths),
        AccessReg => {
            let (from, mut to) = (read::<hca::AccessRegisterIn>(&inbox), hca::AccessRegisterIn::new());
            rebuild!(from => to; opcode set_opcode, op_mod set_op_mod, register_id set_register_id, argument set_argument);
            bench.execute(&Request::new(&to).padded_to(lengths.0), lengths.1)
        }
        QueryHcaCap | SetHcaCap => capabilities_again(bench, &inbox, lengths),
        AllocUar => {
            let (from, mut to) = (read::<uar::AllocUarIn>(&inbox), uar::AllocUarIn::new());
            rebuild!(from => to; opcode set_opcode, op_mod set_op_mod);
            bench.execute(&Request::new(&to), lengths.1)
        }
        CreateEq => create_eq_again(bench, &inbox, lengths),
        other => panic!("{other} is in the trace and not in this test"),
    }
}

fn manage_pages_again(bench: &mut Bench, inbox: &[u8], lengths: (usize, usize)) -> Vec<u8> {
    let (from, mut to) = (read::<pages::ManagePagesIn>(inbox), pages::ManagePagesIn::new());
    rebuild!(from => to; opcode set_opcode, op_mod set_op_mod, input_num_entries set_input_num_entries);
    let list = addresses(inbox, pages::ManagePagesIn::PAS_OFFSET, lengths.0);
    bench.execute(&Request::with_tail(&to, Tail::Addresses(&list)), lengths.1)
}

fn capabilities_again(bench: &mut Bench, inbox: &[u8], lengths: (usize, usize)) -> Vec<u8> {
    let (from, mut to) = (read::<CommandHeaderIn>(inbox), CommandHeaderIn::new());
    rebuild!(from => to; opcode set_opcode, op_mod set_op_mod);
    bench.execute(&Request::with_tail(&to, Tail::Bytes(&inbox[to.as_bytes().len()..])), lengths.1)
}

fn create_eq_again(bench: &mut Bench, inbox: &[u8], lengths: (usize, usize)) -> Vec<u8> {
    let (from, mut to) = (read::<eq::CreateEqIn>(inbox), eq::CreateEqIn::new());
    rebuild!(from => to; opcode set_opcode, op_mod set_op_mod, event_bitmask set_event_bitmask);
    let (from, context) = (from.eq_context_entry(), to.eq_context_entry_mut());
    rebuild!(from => context; status set_status, st set_st, oi set_oi, ec set_ec, page_offset set_page_offset,
        log_eq_size set_log_eq_size, uar_page set_uar_page, intr set_intr, log_page_size set_log_page_size);
    let list = addresses(inbox, eq::CreateEqIn::PAS_OFFSET, lengths.0);
    bench.execute(&Request::with_tail(&to, Tail::Addresses(&list)), lengths.1)
}

#[test]
fn the_driver_encodes_and_decodes_the_boot_of_a_connectx4() {
    let trace = boot_trace::load();
    let mut bench = Bench::new(trace.clone());
    for exchange in &trace {
        let output = execute_again(&mut bench, exchange);
        let recorded = exchange.outbox();
        assert_eq!(output[..recorded.len()], recorded, "output of {:#x}", exchange.opcode);
    }
    bench.world.with(|world| {
        let node = bench.hal.node();
        let device = world.device(node);
        assert_eq!(device.left(), 0);
        let tally = &device.tally;
        assert!(tally.faults.is_empty(), "{} faults:\n{}", tally.faults.len(), tally.faults.join("\n"));
        println!("boot trace: driver sent {} commands, {} bytes as Linux did", tally.commands, tally.bytes);
        println!("boot trace: inputs that the log has only in part: {}", partial(&trace));
        assert_eq!(tally.commands, 42);
        assert!(tally.bytes >= 42 * 64 + 200 * 576);
    });
}

fn partial(trace: &[Exchange]) -> String {
    let partial = trace.iter().filter(|exchange| !exchange.inbox_is_whole());
    let name = |exchange: &Exchange| {
        let (has, all) = (exchange.inbox().len(), exchange.input.entry.input_length());
        format!("{} {has} of {all} bytes", CommandOpcode::from_raw(exchange.opcode).name())
    };
    partial.map(name).collect::<Vec<_>>().join(", ")
}

#[test]
fn one_wrong_bit_of_a_command_is_found() {
    let mut trace = boot_trace::load();
    trace.truncate(1);
    let mut wrong = trace[0].clone();
    let mut inline = wrong.input.entry.command_input_inline_data();
    inline[11] ^= 1;
    wrong.input.entry.set_command_input_inline_data(inline);
    let mut bench = Bench::new(vec![wrong]);
    execute_again(&mut bench, &trace[0]);
    let faults = bench.world.with(|world| world.device(bench.hal.node()).tally.faults.len());
    assert_eq!(faults, 1);
}

/// Opens the driver on the simulated NIC, and returns the inputs of its commands.
fn boot_of_the_driver() -> Vec<Vec<u8>> {
    let world = SimWorld::new(1);
    let config = NicConfig { boot_pages: 6, ..NicConfig::default() };
    let node =
        world.add_node("host", Tap::new(Nic::new(config)), Latency::default(), MemoryConfig::default());
    let device =
        Device::open(world.hal(node), DeviceConfig::default()).unwrap_or_else(|error| panic!("{error}"));
    let inputs = world.with(|world| world.device(node).inputs.clone());
    drop(device);
    inputs
}

/// Opcode and modifier of an input.
fn name_of(inbox: &[u8]) -> (CommandOpcode, u16) {
    let header = read::<CommandHeaderIn>(inbox);
    (header.opcode(), header.op_mod())
}

/// Ranges of an input that depend on this machine and this device: page addresses, capabilities, the number
/// of pages, and the vector, events and address of the event queue.
fn own_bytes(opcode: CommandOpcode) -> &'static [(usize, usize)] {
    match opcode {
        CommandOpcode::ManagePages => &[(12, usize::MAX)],
        CommandOpcode::SetHcaCap => &[(16, usize::MAX)],
        CommandOpcode::CreateEq => &[(38, 40), (88, 120), (272, 280)],
        _ => &[],
    }
}

/// Offsets at which two inputs differ. The shorter one is padded with zeros, because later versions lengthen
/// a command.
fn differing(a: &[u8], b: &[u8]) -> Vec<usize> {
    let byte = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
    (0..a.len().max(b.len())).filter(|&at| byte(a, at) != byte(b, at)).collect()
}

#[test]
fn the_driver_boots_with_the_commands_that_linux_sent() {
    let trace: Vec<_> = boot_trace::load().iter().map(Exchange::inbox).collect();
    let (mut compared, mut identical, mut others) = (0, 0, Vec::new());
    for input in boot_of_the_driver() {
        let (opcode, op_mod) = name_of(&input);
        let Some(linux) = trace.iter().find(|inbox| name_of(inbox) == (opcode, op_mod)) else {
            others.push(format!("{} {op_mod:#x}", opcode.name()));
            continue;
        };
        let differing = differing(linux, &input);
        let strange =
            differing.iter().find(|at| !own_bytes(opcode).iter().any(|&(from, to)| (from..to).contains(*at)));
        assert_eq!(
            strange, None,
            "byte of {opcode}, op_mod {op_mod:#x}: Linux {linux:02x?}, driver {input:02x?}"
        );
        compared += 1;
        identical += usize::from(differing.is_empty());
    }
    println!(
        "boot trace: {compared} commands of the driver's own boot, {identical} of them byte for byte Linux's"
    );
    println!("boot trace: commands of the driver that the log does not have: {}", others.join(", "));
    assert!(compared >= 20 && identical >= 16, "{compared} compared, {identical} identical");
}
