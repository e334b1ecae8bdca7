//! The firmware of the simulated device processes the raw bytes that Linux wrote for a real ConnectX-4:
//! entry, mailboxes and addresses are unchanged.

use bareverbs_prm::command::caps::GeneralCapabilities;
use bareverbs_prm::command::entry::{CommandHeaderIn, CommandHeaderOut, CommandQueueEntry};
use bareverbs_prm::command::eq::CreateEqIn;
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::eqe::{CommandEvent, EQE_SIZE, EventEntry, OWNER_OFFSET};
use bareverbs_prm::numbering::{CapabilityType, CommandOpcode, CommandStatus, EventType};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::nic::{HostMemory, Nic, NicConfig};
use bareverbs_tests::boot_trace::{self, Exchange};
use bareverbs_tests::trace_memory::SparseMemory;
use zerocopy::{FromBytes, IntoBytes};

/// "descriptor at dma" in the log.
const QUEUE: u64 = 0x7_af3d_0000;
/// Linux keeps the last slot for MANAGE_PAGES, and the log shows its doorbell bit.
const PAGES_SLOT: u32 = 31;

/// A simulated device that asks for as many pages as the ConnectX-4 did, and the memory of its host.
struct Bench {
    nic: Nic,
    memory: SparseMemory,
    now: Time,
}

impl Bench {
    fn new() -> Self {
        let config = NicConfig { boot_pages: 6, init_pages: 12868, ..NicConfig::default() };
        let mut bench = Self { nic: Nic::new(config), memory: SparseMemory::default(), now: Time::ZERO };
        bench.nic.handle_mmio_read(bench.now, init_segment::INITIALIZING as u64);
        bench.now += Duration::from_millis(100);
        assert_eq!(bench.nic.handle_mmio_read(bench.now, init_segment::INITIALIZING as u64) >> 31, 0);
        bench.write(init_segment::CMDQ_ADDRESS_HIGH, (QUEUE >> 32) as u32);
        bench.write(init_segment::CMDQ_ADDRESS_LOW, QUEUE as u32);
        bench
    }

    fn write(&mut self, offset: usize, value: u32) {
        self.nic.handle_mmio_write(self.now, &mut self.memory, offset as u64, &value.to_be_bytes());
    }

    /// Runs a command of the log and gives the entry and the output that the device left.
    fn run(&mut self, exchange: &Exchange) -> (CommandQueueEntry, Vec<u8>) {
        let slot = if opcode_of(exchange) == CommandOpcode::ManagePages { PAGES_SLOT } else { 0 };
        let at = QUEUE + u64::from(slot) * 64;
        self.memory.lay_out(exchange, at);
        self.write(init_segment::COMMAND_DOORBELL, 1 << slot);
        (self.memory.get(at), self.memory.output(at))
    }
}

fn opcode_of(exchange: &Exchange) -> CommandOpcode {
    CommandOpcode::from_raw(exchange.opcode)
}

fn op_mod_of(exchange: &Exchange) -> u16 {
    CommandHeaderIn::read_from_prefix(&exchange.inbox()).unwrap().0.op_mod()
}

/// The status that the simulated device must return, and why if it is not OK.
fn expected(exchange: &Exchange) -> (CommandStatus, &'static str) {
    const OK: (CommandStatus, &str) = (CommandStatus::Ok, "");
    match opcode_of(exchange) {
        CommandOpcode::QueryHcaCap => match CapabilityType::from_raw((op_mod_of(exchange) >> 1) as u8) {
            CapabilityType::General
            | CapabilityType::Atomic
            | CapabilityType::Roce
            | CapabilityType::EthernetOffloads
            | CapabilityType::FlowTable => OK,
            _ => (CommandStatus::BadParameter, "the model has no such page"),
        },
        CommandOpcode::SetHcaCap => {
            (CommandStatus::BadParameter, "a ConnectX-4 has more than the model's maxima")
        }
        _ => OK,
    }
}

/// Commands whose output differs from device to device: capabilities, name, numbers.
fn has_own_output(exchange: &Exchange) -> bool {
    use CommandOpcode::{AccessReg, CreateEq, QueryAdapter, QueryHcaCap, QueryIssi, SetHcaCap};
    matches!(opcode_of(exchange), QueryIssi | AccessReg | QueryHcaCap | SetHcaCap | QueryAdapter | CreateEq)
}

#[test]
fn the_simulated_firmware_takes_the_boot_of_a_connectx4() {
    let (mut bench, mut equal, mut refused) = (Bench::new(), 0, 0);
    let trace = boot_trace::load();
    for exchange in &trace {
        let (entry, output) = bench.run(exchange);
        let (name, (status, why)) = (opcode_of(exchange).name(), expected(exchange));
        assert_eq!((entry.ownership(), entry.status()), (false, 0), "{name} was not delivered");
        let header = CommandHeaderOut::read_from_prefix(&output).unwrap().0;
        assert_eq!(
            header.status(),
            status,
            "{name} with op_mod {:#x}, syndrome {:#x}",
            op_mod_of(exchange),
            header.syndrome()
        );
        if status != CommandStatus::Ok {
            println!("boot trace: the model answers {name} {:#x} with {status}: {why}", op_mod_of(exchange));
            refused += 1;
        } else if !has_own_output(exchange) {
            assert_eq!(output, exchange.outbox(), "{name}");
            equal += 1;
        }
    }
    println!(
        "boot trace: {} commands of Linux delivered, {equal} answered byte for byte as by the ConnectX-4",
        trace.len()
    );
    assert_eq!((trace.len(), equal, refused), (42, 11, 1));
}

/// Initialises the entries of the event queue that a CREATE_EQ describes, as Linux does before it hands the
/// queue to the device, and returns the addresses of the entries.
fn prepare_event_queue(memory: &mut SparseMemory, exchange: &Exchange) -> Vec<u64> {
    let inbox = exchange.inbox();
    let context = *CreateEqIn::read_from_prefix(&inbox).unwrap().0.eq_context_entry();
    let (entries, per_page) = (1 << context.log_eq_size(), (4096 << context.log_page_size()) / EQE_SIZE);
    let page = |at: usize| u64::from_be_bytes(inbox[at..at + 8].try_into().unwrap());
    let address = |index: usize| {
        page(CreateEqIn::PAS_OFFSET + index / per_page * 8) + (index % per_page * EQE_SIZE) as u64
    };
    let addresses: Vec<_> = (0..entries).map(address).collect();
    for &address in &addresses {
        memory.write(address + OWNER_OFFSET as u64, &[1]).unwrap();
    }
    addresses
}

#[test]
fn commands_raise_the_events_that_linux_saw() {
    let (mut bench, trace) = (Bench::new(), boot_trace::load());
    let mut queue = Vec::new();
    for exchange in &trace {
        if opcode_of(exchange) == CommandOpcode::CreateEq && queue.is_empty() {
            queue = prepare_event_queue(&mut bench.memory, exchange);
        }
        bench.run(exchange);
    }
    let seen =
        trace.iter().flat_map(|e| &e.notes).filter(|note| note.ends_with("MLX5_EVENT_TYPE_CMD")).count();
    let events: Vec<EventEntry> = queue.iter().map(|&address| bench.memory.get(address)).collect();
    let written = events.iter().take_while(|event| !event.owner()).count();
    assert_eq!(written, seen, "the log has an event for every command after the first CREATE_EQ");
    for event in &events[..written] {
        assert_eq!(event.kind(), EventType::Cmd);
        assert_eq!(CommandEvent::read_from_bytes(&event.data()).unwrap().vector(), 1, "slot 0");
    }
    println!("boot trace: {written} command events, as Linux saw them");
}

#[test]
fn the_change_that_linux_made_to_its_capabilities_is_taken_from_the_models_own_page() {
    let (mut bench, trace) = (Bench::new(), boot_trace::load());
    let find =
        |opcode, op_mod| trace.iter().find(|e| opcode_of(e) == opcode && op_mod_of(e) == op_mod).unwrap();
    let (query, set) = (find(CommandOpcode::QueryHcaCap, 1), find(CommandOpcode::SetHcaCap, 0).clone());
    trace.iter().take(6).for_each(|exchange| {
        bench.run(exchange);
    });
    let asked = GeneralCapabilities::read_from_prefix(&set.inbox()[16..]).unwrap().0;
    let mut page = GeneralCapabilities::read_from_prefix(&bench.run(query).1[16..]).unwrap().0;
    page.set_log_max_qp(asked.log_max_qp());
    let mut changed = set;
    let mut data = [0; 512];
    data[..page.as_bytes().len()].copy_from_slice(page.as_bytes());
    changed.input.blocks.iter_mut().for_each(|block| {
        block.set_mailbox_data([0; 512]);
    });
    changed.input.blocks[0].set_mailbox_data(data);
    let status = CommandHeaderOut::read_from_prefix(&bench.run(&changed).1).unwrap().0.status();
    assert_eq!(status, CommandStatus::Ok);
    let after = GeneralCapabilities::read_from_prefix(&bench.run(query).1[16..]).unwrap().0;
    assert_eq!(after.log_max_qp(), 17);
}
