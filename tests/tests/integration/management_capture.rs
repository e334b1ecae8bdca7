//! tshark checks every management datagram of a subnet sweep: two hosts at two switches, partitions from a
//! file, and a cable that is pulled.

use bareverbs_core::device::{Device, DeviceConfig};
use bareverbs_core::hal::Hal as _;
use bareverbs_core::port::PortState;
use bareverbs_hal_sim::{MemoryConfig, SimWorld};
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::{LinkConfig, Partitions, SubnetConfig, SubnetSwitchConfig, SwitchConfig};
use bareverbs_sim::nic::{Nic, NicConfig, SubnetMembership};
use bareverbs_sim::run::Latency;
use bareverbs_tests::judges::{capture_path, tshark_fields};
use bareverbs_tests::node::Handle;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Class and attribute of datagrams that a sweep has: NodeDescription, NodeInfo, SwitchInfo, GUIDInfo, PortInfo, P_KeyTable, SLtoVLMappingTable,
/// VLArbitrationTable and LinearForwardingTable along directed routes; and the notice of a trap by LID.
const SWEPT: [(u8, u16); 10] = [
    (0x81, 0x10),
    (0x81, 0x11),
    (0x81, 0x12),
    (0x81, 0x14),
    (0x81, 0x15),
    (0x81, 0x16),
    (0x81, 0x17),
    (0x81, 0x18),
    (0x81, 0x19),
    (0x01, 0x02),
];

/// Captures the datagrams while the subnet comes up and a cable of the leaf is pulled and plugged in again.
/// Returns the number of frames.
fn captured_sweep(path: &PathBuf) -> usize {
    let world = SimWorld::<Nic>::new(7);
    let nodes = [1, 2].map(|number| {
        let mac = MacAddress([2, 0, 0, 0, 0, number]);
        let config =
            NicConfig { strict: true, subnet: SubnetMembership::Managed, ..NicConfig::infiniband(mac) };
        world.add_node(
            &format!("host{number}"),
            Nic::new(config),
            Latency::default(),
            MemoryConfig::unforgiving(),
        )
    });
    let partitions = Partitions::parse("Default=0x7fff : ALL=full; storage=0x8010 : ALL;").expect("a file");
    let (spine, leaf) = world.with(|world| {
        let config = SubnetConfig { partitions, ..SubnetConfig::default() };
        let further = SubnetSwitchConfig { guid: 0x51, ports: 4, description: "leaf".to_owned() };
        let switch = SwitchConfig::default();
        (world.add_subnet("spine", switch, config), world.add_subnet_switch("leaf", switch, &further))
    });
    let rate = LinkConfig::gigabits(100);
    world.with(|world| world.connect(spine, leaf, rate)).expect("a cable");
    world.connect(nodes[0], spine, rate).expect("a cable");
    let pulled = world.connect(nodes[1], leaf, rate).expect("a cable");
    let file = std::fs::File::create(path).expect("a capture");
    world.with(|world| world.start_capture(Box::new(std::io::BufWriter::new(file))));
    let devices = nodes.map(|node| {
        std::rc::Rc::new(Device::open(world.hal(node), DeviceConfig::default()).expect("a device"))
    });
    wait_for_ports(&world, &devices);
    for up in [false, true] {
        world.with(|world| world.set_link_up(pulled, up)).expect("a cable");
        world.run_until(world.now() + Duration::from_secs(2));
    }
    wait_for_ports(&world, &devices);
    world.with(|world| world.finish_capture()).expect("the capture") as usize
}

fn wait_for_ports(world: &SimWorld<Nic>, devices: &[Handle]) {
    let deadline = world.now() + Duration::from_secs(20);
    let is_active = |device: &Handle| device.port().expect("a port").state == PortState::Active;
    while !devices.iter().all(is_active) {
        assert!(world.now() < deadline, "no active ports");
        devices.iter().for_each(|device| device.hal().relax(deadline));
    }
}

#[test]
fn tshark_dissects_every_datagram_of_a_sweep() {
    let path = capture_path(env!("CARGO_TARGET_TMPDIR"), "sweep");
    let frames = captured_sweep(&path);
    let fields = [
        "frame.number",
        "infiniband.mad.mgmtclass",
        "infiniband.mad.attributeid",
        "_ws.malformed",
        "frame.protocols",
    ];
    let Some(rows) = tshark_fields(&path, &fields) else { return };
    assert_eq!(rows.len(), frames, "tshark counts other frames than were captured");
    let number = |text: &str| u16::from_str_radix(text.trim_start_matches("0x"), 16).expect("a number");
    let mut seen = BTreeSet::new();
    for row in &rows {
        assert!(row[3].is_empty(), "frame {} is malformed to tshark: {}", row[0], row[4]);
        assert!(!row[1].is_empty(), "frame {} is no management datagram to tshark: {}", row[0], row[4]);
        seen.insert((number(&row[1]) as u8, number(&row[2])));
    }
    let unseen: Vec<_> = SWEPT.iter().filter(|wanted| !seen.contains(wanted)).collect();
    assert!(unseen.is_empty(), "not in the capture: {unseen:x?}; but: {seen:x?}");
    println!("tshark: {frames} management datagrams of {} kinds, none malformed", seen.len());
}
