//! Compares every declared field, length and number with tables made from the headers of Linux and rdma-core.

use bareverbs_prm::LAYOUTS;
use bareverbs_prm::doorbell::{init_segment, uar};
use bareverbs_prm::field::{ByteOrder, FieldInfo, LayoutInfo};
use bareverbs_prm::numbering::{NUMBERINGS, NumberInfo, NumberingInfo};
use bareverbs_prm::wqe::completion_mode;
use bareverbs_tests::prm_tables::{Comparison, Tables};

/// Fewer comparisons than this mean that the walk is broken, not that the layouts are right.
const FIELD_FLOOR: usize = 1900;
const NESTED_FLOOR: usize = 2300;
const NUMBER_FLOOR: usize = 470;

/// Lengths that the tables measure differently or lack, with the reason. An unused entry is a fault.
const LENGTHS: &[(&str, &str)] = &[
    ("PortEvent", "the C structure ends after the port byte; event data are always 28 bytes"),
    ("QueuePairRecord", "no C definition; a doorbell record of a queue pair is two dwords"),
    ("CompletionQueueRecord", "no C definition; a doorbell record of a completion queue is two dwords"),
    (
        "EthernetSegment",
        "rdma-core's structure goes on with 16 inline bytes, Linux' ends where the segment does",
    ),
    (
        "InitToInitQpIn",
        "Linux' structure ends where the context does, rdma-core's goes on with the extension: 464 bytes",
    ),
    ("AliasOut", "neither header has it; UCX' ib_mlx5_ifc.h has 80 bytes"),
    ("UarRegisters", "no C definition; declared up to the last event queue doorbell"),
];

/// Numbers that the tables lack, with their origin. An unused entry is a fault.
const NUMBERS: &[(&str, &str)] = &[
    ("CommandOpcode::MLX5_CMD_OP_RTS2SQD_QP", "Linux 3.11 to 4.1, include/linux/mlx5/device.h, as 0x508"),
    ("CommandOpcode::MLX5_CMD_OP_SQD2SQD_QP", "Linux 3.11 to 4.1, include/linux/mlx5/device.h, as 0x511"),
];

/// Removes the faults of explained numbers. Every explanation must be used.
fn without_explained_numbers(faults: &mut Vec<String>) {
    for (name, origin) in NUMBERS {
        let before = faults.len();
        faults.retain(|line| line != &format!("{name}: not in the tables"));
        assert!(faults.len() < before, "{name} needs no exception ({origin})");
    }
}

/// Removes the faults of explained lengths. Every explanation must be used.
fn without_explained_lengths(faults: &mut Vec<String>) {
    for (name, reason) in LENGTHS {
        let before = faults.len();
        let about_length = |line: &str| line.contains("bytes long") || line.contains("no length");
        faults.retain(|line| !(line.starts_with(&format!("{name} (")) && about_length(line)));
        assert!(faults.len() < before, "{name} needs no exception ({reason})");
    }
}

#[test]
fn every_field_lies_where_the_tables_put_it() {
    let (tables, mut out) = (Tables::load(), Comparison::default());
    LAYOUTS.iter().for_each(|info| tables.compare_layout(info, &mut out));
    println!(
        "prm oracle: {} structures, {} fields, {} fields again below their containers, {} lengths ({} explained)",
        LAYOUTS.len(),
        out.fields,
        out.nested_fields,
        out.sizes,
        LENGTHS.len()
    );
    without_explained_lengths(&mut out.faults);
    assert!(out.faults.is_empty(), "{} faults:\n{}", out.faults.len(), out.faults.join("\n"));
    assert!(out.left_out.is_empty(), "not compared inside their containers: {:?}", out.left_out);
    assert!(out.fields >= FIELD_FLOOR, "only {} fields were compared", out.fields);
    assert!(out.nested_fields >= NESTED_FLOOR, "only {} nested fields were compared", out.nested_fields);
}

#[test]
fn every_number_is_the_tables_number() {
    let (tables, mut out) = (Tables::load(), Comparison::default());
    NUMBERINGS.iter().for_each(|info| tables.compare_numbering(info, &mut out));
    let explained = NUMBERS.len();
    println!("prm oracle: {} numbers in {} numberings ({explained} explained)", out.fields, NUMBERINGS.len());
    without_explained_numbers(&mut out.faults);
    assert!(out.faults.is_empty(), "{} faults:\n{}", out.faults.len(), out.faults.join("\n"));
    assert!(out.fields >= NUMBER_FLOOR, "only {} numbers were compared", out.fields);
}

#[test]
fn every_structure_is_declared_once() {
    let mut names: Vec<_> = LAYOUTS.iter().map(|info| info.prm_name).collect();
    names.sort_unstable();
    let declared = names.len();
    names.dedup();
    assert_eq!(names.len(), declared, "a structure of the tables is declared twice");
}

/// The faults of one layout.
fn faults_of(info: &LayoutInfo) -> Vec<String> {
    let mut out = Comparison::default();
    Tables::load().compare_layout(info, &mut out);
    out.faults
}

const fn field(path: &'static str, bit_offset: u32, bit_width: u32) -> FieldInfo {
    FieldInfo { path, bit_offset, bit_width, order: ByteOrder::BigEndian, part: None, is_alternative: false }
}

const fn alloc_pd_out(fields: &'static [FieldInfo]) -> LayoutInfo {
    LayoutInfo { name: "AllocPdOut", prm_name: "alloc_pd_out", dwords: 4, fields }
}

#[test]
fn the_comparison_can_fail() {
    assert_eq!(faults_of(&alloc_pd_out(const { &[field("pd", 72, 24)] })), [""; 0]);
    for (what, wrong) in [
        ("one bit beside its place", alloc_pd_out(const { &[field("pd", 71, 24)] })),
        ("one bit too wide", alloc_pd_out(const { &[field("pd", 72, 25)] })),
        ("not in the tables", alloc_pd_out(const { &[field("pdn", 72, 24)] })),
        ("a dword too long", LayoutInfo { dwords: 5, ..alloc_pd_out(&[]) }),
        ("an unknown structure", LayoutInfo { prm_name: "alloc_pd", ..alloc_pd_out(&[]) }),
    ] {
        assert_eq!(faults_of(&wrong).len(), 1, "{what} was not found");
    }
}

#[test]
fn a_structure_at_a_wrong_offset_is_found() {
    const CONTEXT: LayoutInfo = LayoutInfo {
        name: "CqContext",
        prm_name: "cqc",
        dwords: 16,
        fields: &[field("c_eqn_or_apu_element", 160, 32)],
    };
    const fn create_cq(bit_offset: u32) -> LayoutInfo {
        const RIGHT: &[FieldInfo] = &[part(128)];
        const WRONG: &[FieldInfo] = &[part(160)];
        let fields = if bit_offset == 128 { RIGHT } else { WRONG };
        LayoutInfo { name: "CreateCqIn", prm_name: "create_cq_in", dwords: 68, fields }
    }
    const fn part(bit_offset: u32) -> FieldInfo {
        FieldInfo { part: Some(&CONTEXT), ..field("cq_context", bit_offset, 512) }
    }
    assert_eq!(faults_of(&create_cq(128)), [""; 0]);
    assert_eq!(faults_of(&create_cq(160)).len(), 1);
}

#[test]
fn a_wrong_number_is_found() {
    const RIGHT: NumberInfo = NumberInfo { value: 3, name: "RTS", prm_name: "MLX5_QP_STATE_RTS" };
    const WRONG: NumberInfo = NumberInfo { value: 4, ..RIGHT };
    for (row, faults) in
        [(&[RIGHT], 0), (&[WRONG], 1), (&[NumberInfo { prm_name: "MLX5_QP_STATE_RDY", ..RIGHT }], 1)]
    {
        let mut out = Comparison::default();
        Tables::load().compare_numbering(
            &NumberingInfo { name: "QpState", prm_group: "qp_state", rows: row },
            &mut out,
        );
        assert_eq!(out.faults.len(), faults);
    }
}

/// Byte offset of a field whose first bit is in the tables, for the registers whose offsets are constants.
fn byte_of(tables: &Tables, structure: &str, path: &str) -> usize {
    let place =
        tables.place(structure, path).unwrap_or_else(|| panic!("{structure}.{path} is not in the tables"));
    (place.offset / 32 * 4) as usize
}

#[test]
fn registers_that_are_addressed_singly_have_the_tables_offsets() {
    let tables = Tables::load();
    for (constant, structure, path) in [
        (uar::CQ_ARM, "uar_page", "cq_doorbell_ci"),
        (uar::EQ_ARM, "uar_page", "eq_doorbell_arm_ci"),
        (uar::EQ_CONSUME, "uar_page", "eq_doorbell_noarm_ci"),
        (uar::SEND, "uar_page", "sq_doorbell_bfreg0"),
        (init_segment::FW_REV, "initial_seg", "fw_rev_minor"),
        (init_segment::CMDIF_REV, "initial_seg", "cmd_interface_rev"),
        (init_segment::CMDQ_ADDRESS_HIGH, "init_seg_cmdq", "cmdq_addr_hi"),
        (init_segment::CMDQ_ADDRESS_LOW, "init_seg_cmdq", "cmdq_addr_lo"),
        (init_segment::COMMAND_DOORBELL, "init_seg_cmdq", "cmd_doorbell"),
        (init_segment::INITIALIZING, "init_seg_cmdq", "initializing"),
        (init_segment::HEALTH_COUNTER, "initial_seg", "health_counter"),
    ] {
        assert_eq!(constant, byte_of(&tables, structure, path), "{structure}.{path}");
    }
}

#[test]
fn completion_modes_are_the_tables_flags() {
    let tables = Tables::load();
    let flags: Vec<_> = tables.group("wqe_ctrl_flags").collect();
    for (mode, name) in [
        (completion_mode::ALWAYS, "MLX5_WQE_CTRL_CQ_UPDATE"),
        (completion_mode::ALWAYS_AND_EVENT, "MLX5_WQE_CTRL_CQ_UPDATE_AND_EQE"),
    ] {
        assert!(flags.contains(&(name, u64::from(mode) << 2)), "{name} is not {mode} << 2");
    }
}
