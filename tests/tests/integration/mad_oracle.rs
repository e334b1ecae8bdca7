//! Compares every field of management datagrams with tables made from libibmad, OpenSM and Linux.

use bareverbs_prm::field::{Layout as _, LayoutInfo};
use bareverbs_sim::wire::management::MadHeader;
use bareverbs_sim::wire::management::administration::*;
use bareverbs_sim::wire::management::attributes::*;
use bareverbs_tests::prm_tables::vector;
use std::collections::BTreeMap;

const LAYOUTS: &[LayoutInfo] = &[
    MadHeader::INFO,
    NodeInfo::INFO,
    SwitchInfo::INFO,
    Notice::INFO,
    GidDetails::INFO,
    CapabilityDetails::INFO,
    KeyDetails::INFO,
    SwitchKeyDetails::INFO,
    IssuedNotice::INFO,
    InformInfo::INFO,
    PortInfo::INFO,
    SmInfo::INFO,
    ClassPortInfo::INFO,
    PortCounters::INFO,
    PortCountersExtended::INFO,
    RmppHeader::INFO,
    SaHeader::INFO,
    NodeRecord::INFO,
    PortInfoRecord::INFO,
    SwitchInfoRecord::INFO,
    LinearForwardingTableRecord::INFO,
    PartitionKeyTableRecord::INFO,
    SlToVlRecord::INFO,
    VlArbitrationRecord::INFO,
    GuidInfoRecord::INFO,
    MulticastForwardingTableRecord::INFO,
    SmInfoRecord::INFO,
    MultiPathRecord::INFO,
    InformInfoRecord::INFO,
    LinkRecord::INFO,
    ServiceRecord::INFO,
    PathRecord::INFO,
    McMemberRecord::INFO,
];
/// The files that declare layouts of management datagrams. They show whether a layout is missing above.
const SOURCES: [&str; 3] = [
    include_str!("../../../sim/src/wire/management/mod.rs"),
    include_str!("../../../sim/src/wire/management/attributes.rs"),
    include_str!("../../../sim/src/wire/management/administration.rs"),
];
/// Fields that the tables lack, with the reason.
const WITHOUT: [(&str, &str, &str); 2] = [
    ("IssuedNotice", "Notice", "the sources have the fields of the notice itself there"),
    ("SMInfoRecord", "SMInfo", "the sources have the fields of SMInfo itself there"),
];
/// Fewer exact matches than this mean that the tables have become coarser.
const EXACT_FLOOR: usize = 259;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    offset: u32,
    width: u32,
}

impl Place {
    const fn contains(self, other: Self) -> bool {
        self.offset <= other.offset && other.offset + other.width <= self.offset + self.width
    }
}

/// Places by structure and field.
fn table() -> BTreeMap<(String, String), Place> {
    let mut reader = csv::Reader::from_path(vector("mad/fields.csv")).expect("the table");
    let rows = reader.records().map(|row| {
        let row = row.expect("a row");
        let number = |column: usize| row[column].parse().expect("a number");
        ((row[0].to_owned(), row[1].to_owned()), Place { offset: number(4), width: number(5) })
    });
    rows.collect()
}

/// How many fields are exactly where the table has them; the faults; and the fields that the table lacks.
fn compare(layouts: &[LayoutInfo]) -> (usize, Vec<String>, Vec<(String, String)>) {
    let table = table();
    let (mut exact, mut wrong, mut missing) = (0, Vec::new(), Vec::new());
    for info in layouts {
        for field in info.fields {
            let declared = Place { offset: field.bit_offset, width: field.bit_width };
            let key = (info.prm_name.to_owned(), field.path.to_owned());
            match table.get(&key) {
                Some(place) if *place == declared => exact += 1,
                Some(place) if place.contains(declared) => {}
                Some(place) => wrong.push(format!(
                    "{}.{}: bits {}+{}, the table says {}+{}",
                    key.0, key.1, declared.offset, declared.width, place.offset, place.width
                )),
                None => missing.push(key),
            }
        }
    }
    (exact, wrong, missing)
}

#[test]
fn every_field_of_a_management_datagram_lies_where_other_programs_put_it() {
    let (exact, wrong, missing) = compare(LAYOUTS);
    println!("mad oracle: {} structures, {exact} fields at just their places", LAYOUTS.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let explained: Vec<_> =
        WITHOUT.iter().map(|(layout, field, _)| ((*layout).to_owned(), (*field).to_owned())).collect();
    assert_eq!(missing, explained, "unexplained, or explained needlessly");
    assert!(exact >= EXACT_FLOOR, "only {exact}");
}

#[test]
fn every_declared_layout_is_compared() {
    let declared: usize = SOURCES.iter().map(|source| source.matches("layout! {").count()).sum();
    assert_eq!(LAYOUTS.len(), declared);
}

#[test]
fn the_comparison_can_fail() {
    use bareverbs_prm::field::{ByteOrder, FieldInfo};
    const fn moved(bit_offset: u32, bit_width: u32) -> LayoutInfo {
        const fn lid(bit_offset: u32, bit_width: u32) -> FieldInfo {
            FieldInfo {
                path: "LID",
                bit_offset,
                bit_width,
                order: ByteOrder::BigEndian,
                part: None,
                is_alternative: false,
            }
        }
        const RIGHT: &[FieldInfo] = &[lid(128, 16)];
        const BESIDE: &[FieldInfo] = &[lid(129, 16)];
        const WIDE: &[FieldInfo] = &[lid(128, 17)];
        let fields = match (bit_offset, bit_width) {
            (128, 16) => RIGHT,
            (128, _) => WIDE,
            _ => BESIDE,
        };
        LayoutInfo { name: "PortInfo", prm_name: "PortInfo", dwords: 16, fields }
    }
    assert_eq!(compare(&[moved(128, 16)]).1, [""; 0]);
    assert_eq!([moved(129, 16), moved(128, 17)].map(|layout| compare(&[layout]).1.len()), [1, 1]);
    let unknown = LayoutInfo { prm_name: "PortInformation", ..moved(128, 16) };
    assert_eq!(compare(&[unknown]).2.len(), 1);
}
