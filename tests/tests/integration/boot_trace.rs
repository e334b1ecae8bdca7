//! The boot of a real ConnectX-4, command by command, against the layouts, the driver's encoder and the simulator.

use bareverbs_prm::command::entry::{CommandHeaderIn, CommandHeaderOut};
use bareverbs_prm::command::{caps, eq, hca, pages, uar};
use bareverbs_prm::field::{Layout, LayoutInfo};
use bareverbs_prm::numbering::{CapabilityType, CommandOpcode, CommandStatus, PortType};
use bareverbs_tests::boot_trace::{self, Dump, Exchange};
use zerocopy::{FromBytes, IntoBytes};

/// Input and output layouts of the commands in the trace.
fn layouts(opcode: CommandOpcode) -> (&'static LayoutInfo, &'static LayoutInfo) {
    use CommandOpcode::*;
    match opcode {
        EnableHca => (&hca::EnableHcaIn::INFO, &hca::EnableHcaOut::INFO),
        QueryIssi => (&hca::QueryIssiIn::INFO, &hca::QueryIssiOut::INFO),
        SetIssi => (&hca::SetIssiIn::INFO, &hca::SetIssiOut::INFO),
        QueryPages => (&pages::QueryPagesIn::INFO, &pages::QueryPagesOut::INFO),
        ManagePages => (&pages::ManagePagesIn::INFO, &pages::ManagePagesOut::INFO),
        AccessReg => (&hca::AccessRegisterIn::INFO, &hca::AccessRegisterOut::INFO),
        QueryHcaCap => (&caps::QueryHcaCapIn::INFO, &caps::QueryHcaCapOut::INFO),
        SetHcaCap => (&caps::SetHcaCapIn::INFO, &caps::SetHcaCapOut::INFO),
        InitHca => (&hca::InitHcaIn::INFO, &hca::InitHcaOut::INFO),
        QueryAdapter => (&hca::QueryAdapterIn::INFO, &hca::QueryAdapterOut::INFO),
        AllocUar => (&uar::AllocUarIn::INFO, &uar::AllocUarOut::INFO),
        CreateEq => (&eq::CreateEqIn::INFO, &eq::CreateEqOut::INFO),
        other => panic!("{other} is in the trace and has no layout"),
    }
}

fn opcode_of(exchange: &Exchange) -> CommandOpcode {
    CommandOpcode::from_raw(exchange.opcode)
}

#[test]
fn the_trace_has_a_whole_boot() {
    let trace = boot_trace::load();
    let opcodes: Vec<_> = trace.iter().map(|exchange| opcode_of(exchange).name()).collect();
    assert_eq!(trace.len(), 42);
    assert_eq!(opcodes[..5], ["ENABLE_HCA", "QUERY_ISSI", "SET_ISSI", "QUERY_PAGES", "MANAGE_PAGES"]);
    assert_eq!(opcodes.iter().filter(|name| **name == "CREATE_EQ").count(), 15);
}

#[test]
fn every_entry_is_a_command_queue_entry() {
    let trace = boot_trace::load();
    for (index, exchange) in trace.iter().enumerate() {
        let (sent, answered) = (&exchange.input.entry, &exchange.output.entry);
        assert_eq!((sent.kind(), sent.ownership(), sent.status()), (7, true, 0), "{sent:?}");
        assert_eq!((answered.ownership(), answered.status()), (false, 0), "{answered:?}");
        assert_eq!(usize::from(sent.token()), index + 1, "the driver counted its tokens");
        assert_eq!(sent.signature(), boot_trace::signature_of(sent.as_bytes()));
        let header = CommandHeaderIn::read_from_prefix(&exchange.inbox()).unwrap().0;
        assert_eq!(header.opcode().raw(), exchange.opcode);
    }
}

/// Linux chains more blocks than the length needs, so the last block dumped may point to another.
fn check_chain(dump: &Dump, first: (u32, u32)) {
    let mut address = first;
    for (number, block) in dump.blocks.iter().enumerate() {
        assert_ne!(address, (0, 0), "block {number} is reached by a pointer");
        assert_eq!((block.block_number() as usize, block.token()), (number, dump.entry.token()));
        address = (block.next_pointer_63_32(), block.next_pointer_31_10());
    }
}

#[test]
fn every_mailbox_chain_is_linked() {
    let mut blocks = 0;
    for exchange in boot_trace::load() {
        let (sent, answered) = (&exchange.input.entry, &exchange.output.entry);
        check_chain(&exchange.input, (sent.input_mailbox_pointer_63_32(), sent.input_mailbox_pointer_31_9()));
        let output = (answered.output_mailbox_pointer_63_32(), answered.output_mailbox_pointer_31_9());
        check_chain(&exchange.output, output);
        blocks += exchange.input.blocks.len() + exchange.output.blocks.len();
    }
    println!("boot trace: {blocks} mailbox blocks");
    assert_eq!(blocks, 300, "the log has 300 dumps of a command block");
}

#[test]
fn every_bit_that_linux_set_lies_in_a_declared_field() {
    let (mut commands, mut bytes) = (0, 0);
    for exchange in boot_trace::load() {
        let (input, output) = layouts(opcode_of(&exchange));
        let (inbox, outbox) = (exchange.inbox(), exchange.outbox());
        if !matches!(opcode_of(&exchange), CommandOpcode::SetHcaCap) {
            assert_eq!(boot_trace::undeclared_bits(input, &inbox), [0; 0], "{}", input.name);
        }
        if !matches!(opcode_of(&exchange), CommandOpcode::QueryHcaCap) {
            assert_eq!(boot_trace::undeclared_bits(output, &outbox), [0; 0], "{}", output.name);
        }
        commands += 1;
        bytes += inbox.len() + outbox.len();
    }
    println!("boot trace: {commands} commands, {bytes} bytes in and out; capability pages apart");
}

#[test]
fn every_reply_says_ok_and_what_linux_read_from_it() {
    for exchange in boot_trace::load() {
        let outbox = exchange.outbox();
        let header = CommandHeaderOut::read_from_prefix(&outbox).unwrap().0;
        assert_eq!((header.status(), header.syndrome()), (CommandStatus::Ok, 0));
        for (phrase, number) in [
            ("requested", pages::QueryPagesOut::read_from_prefix(&outbox).unwrap().0.num_pages()),
            ("allocated uar index", uar::AllocUarOut::read_from_prefix(&outbox).unwrap().0.uar().value()),
            (
                "allocated completion EQN",
                eq::CreateEqOut::read_from_prefix(&outbox).unwrap().0.eq_number().value(),
            ),
        ] {
            let said = exchange.noted(phrase);
            assert!(said.is_none_or(|said| said == u64::from(number)), "{phrase} {said:?}, decoded {number}");
        }
    }
}

/// Maximum and current mode of QUERY_HCA_CAP, the low bit of its `op_mod`.
const MAXIMUM: u16 = 0;
const CURRENT: u16 = 1;

/// The capability pages of one type in the trace as (mode, page).
fn capability_pages(kind: CapabilityType) -> Vec<(u16, Vec<u8>)> {
    let queries = boot_trace::load().into_iter().filter(|e| opcode_of(e) == CommandOpcode::QueryHcaCap);
    let page = |e: Exchange| {
        let op_mod = CommandHeaderIn::read_from_prefix(&e.inbox()).unwrap().0.op_mod();
        (op_mod, e.outbox().split_off(16))
    };
    let of_kind = |(op_mod, _): &(u16, Vec<u8>)| op_mod >> 1 == u16::from(kind.raw());
    queries.map(page).filter(of_kind).map(|(op_mod, page)| (op_mod & 1, page)).collect()
}

fn general_pages() -> Vec<(u16, caps::GeneralCapabilities)> {
    let pages = capability_pages(CapabilityType::General);
    pages.into_iter().map(|(mode, page)| (mode, FromBytes::read_from_prefix(&page).unwrap().0)).collect()
}

/// Bits that this firmware of 2016 sets and that today's tables reserve.
const RESERVED_SINCE: [u32; 3] = [525, 526, 553];

#[test]
fn the_general_capabilities_of_a_connectx4() {
    let pages = general_pages();
    assert_eq!(pages.iter().map(|page| page.0).collect::<Vec<_>>(), [MAXIMUM, CURRENT, CURRENT, MAXIMUM]);
    for (_, general) in &pages {
        assert_eq!(
            boot_trace::undeclared_bits(&caps::GeneralCapabilities::INFO, general.as_bytes()),
            RESERVED_SINCE
        );
        assert_eq!(
            (general.port_type(), general.num_ports(), general.log_pg_sz()),
            (PortType::Ethernet, 1, 12)
        );
        assert_eq!((general.log_max_cq(), general.log_max_mkey(), general.log_max_eq()), (24, 24, 8));
        assert_eq!((general.log_max_qp_sz(), general.log_max_cq_sz(), general.log_max_msg()), (15, 22, 30));
        assert_eq!(
            (general.log_bf_reg_size(), general.max_wqe_sz_sq(), general.max_wqe_sz_rq()),
            (9, 1024, 512)
        );
        assert!(general.rc() && general.roce() && general.bf());
    }
}

#[test]
fn the_device_has_the_values_that_linux_set() {
    let trace = boot_trace::load();
    let set = trace.iter().find(|e| opcode_of(e) == CommandOpcode::SetHcaCap).unwrap();
    let asked = caps::GeneralCapabilities::read_from_prefix(&set.inbox()[16..]).unwrap().0;
    let [(_, maximum), (_, before), (_, after), _] = general_pages()[..] else { panic!("four pages") };
    assert_eq!((maximum.log_max_qp(), before.log_max_qp()), (23, 14));
    assert_eq!((asked.log_max_qp(), after.log_max_qp()), (17, 17));
    let pkeys = 128u64 << before.pkey_table_size();
    let noted = trace.iter().find_map(|exchange| exchange.noted("Current Pkey table size"));
    assert_eq!(noted, Some(pkeys));
}

#[test]
fn the_atomic_and_roce_pages_of_a_connectx4() {
    let atomic = &capability_pages(CapabilityType::Atomic)[0].1;
    assert_eq!(boot_trace::undeclared_bits(&caps::AtomicCapabilities::INFO, atomic), [0; 0]);
    let atomic = caps::AtomicCapabilities::read_from_prefix(atomic).unwrap().0;
    assert_eq!((atomic.atomic_operations(), atomic.atomic_size_qp()), (0xf, 0x3c));

    let roce = &capability_pages(CapabilityType::Roce)[0].1;
    assert_eq!(boot_trace::undeclared_bits(&caps::RoceCapabilities::INFO, roce), [1], "reserved since");
    let roce = caps::RoceCapabilities::read_from_prefix(roce).unwrap().0;
    assert_eq!(roce.r_roce_dest_udp_port(), 4791, "RoCEv2 A17.3.2.2");
    assert_eq!((roce.r_roce_min_src_udp_port(), roce.r_roce_max_src_udp_port()), (0xc000, 0xffff));
    assert_eq!(roce.roce_address_table_size(), 256);
}
