//! The table of cases: what is broken, and what is in order.

use super::super::facts::Facts;
use super::scenes::*;
use crate::traffic::TrafficConfig;
use bareverbs_core::hal::Hal as _;
use bareverbs_core::hal::Mmio as _;
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::time::Duration;
use bareverbs_sim::nic::{NicConfig, PortBuffer, PortSpeed, RoceSupport};

/// One rule, broken.
pub(super) struct Case {
    pub(super) id: &'static str,
    /// What is broken, in words.
    pub(super) broken: &'static str,
    /// Further rules that report the same fault.
    pub(super) with: &'static [&'static str],
    /// Words that the evidence must contain.
    pub(super) says: &'static [&'static str],
    pub(super) facts: fn() -> Facts,
}

/// A name, and how to gather the facts of the scene.
pub(super) type Baseline = (&'static str, fn() -> Facts);

/// Scenes in which nothing is broken.
pub(super) const BASELINES: &[Baseline] = &[
    ("RoCE", roce),
    ("InfiniBand", subnet),
    ("machine", || ready_machine().facts(None)),
    ("container", || contained(&container("eth0", "10.0.0.1"))),
    ("traffic", || counted(TrafficConfig::default(), false, |_| ())),
];

/// Both ends of a cable between Ethernet ports.
fn roce() -> Facts {
    between("10.0.0.1/24", "10.0.0.2/24")
}

fn subnet() -> Facts {
    Scene::managed(vec![0xffff]).both(["", ""])
}

/// RoCE between these addresses.
fn between(own: &str, peer: &str) -> Facts {
    Scene::new([ethernet(1), ethernet(2)]).both([own, peer])
}

/// Both ends of a cable between these ports, in one network.
fn joined(ports: [NicConfig; 2]) -> Facts {
    Scene::new(ports).both(["10.0.0.1/24", "10.0.0.2/24"])
}

/// A host that reads one gigabit per second from a port of a hundred, with a buffer of this many bytes.
fn slow_receiver(bytes: u32) -> TrafficConfig {
    let receive_buffer = Some(PortBuffer { bytes, bits_per_second: 1_000_000_000 });
    TrafficConfig { receive_buffer, ..TrafficConfig::default() }
}

/// A card that supports only one version of RoCE, or none.
const V1: RoceSupport = RoceSupport { version_1: true, version_2: false };
const V2: RoceSupport = RoceSupport { version_1: false, version_2: true };
const CABLE: Option<PortSpeed> = Some(PortSpeed::Gbps25);
const MTU: Option<u16> = Some(1500);

fn lossy() -> TrafficConfig {
    TrafficConfig { seed: 3, loss: 0.1, ..TrafficConfig::default() }
}

/// A machine after a change.
fn machine(change: impl FnOnce(&Files)) -> Facts {
    let files = ready_machine();
    change(&files);
    files.facts(None)
}

const DEVICE: &str = "sys/bus/pci/devices/ffff:3b:00.0";

/// Points the command queue to an address without memory, and rings its doorbell (PRM, initialization
/// segment).
fn lose_the_command_queue(device: &bareverbs_core::Device<bareverbs_hal_sim::SimHal>) {
    let mmio = device.hal().mmio();
    mmio.write32(init_segment::CMDQ_ADDRESS_HIGH, 0x7fff_ffff);
    mmio.write32(init_segment::CMDQ_ADDRESS_LOW, 0xffff_f000);
    mmio.write32(init_segment::COMMAND_DOORBELL, 1);
}

macro_rules! cases {
    ($($id:literal, $broken:literal, with [$($with:literal),*], says [$($says:literal),*], $facts:expr;)*) => {
        /// Every rule, in order.
        pub(super) const CASES: &[Case] = &[
            $(Case { id: $id, broken: $broken, with: &[$($with),*], says: &[$($says),*], facts: $facts },)*
        ];
    };
}

cases! {
    "host.device-id", "tree of files: device id of a ConnectX-3", with [], says ["15b3:1003"],
        || machine(|files| files.write(&format!("{DEVICE}/device"), "0x1003\n"));
    "host.driver", "tree of files: `mlx5_core` has the function", with [], says ["mlx5_core"],
        || machine(|files| files.link("sys/bus/pci/drivers/mlx5_core", &format!("{DEVICE}/driver")));
    "host.iommu", "tree of files: no IOMMU group", with [], says ["no IOMMU"],
        || machine(|files| {
            files.remove(&format!("{DEVICE}/iommu_group"));
            files.remove("sys/kernel/iommu_groups");
        });
    "host.iommu-group", "tree of files: a function with a kernel driver in the group", with [], says ["not viable", "ffff:3b:00.1"],
        || machine(|files| {
            let other = "sys/bus/pci/devices/ffff:3b:00.1";
            files.write(&format!("{other}/vendor"), "0x15b3\n");
            files.write(&format!("{other}/device"), "0x1017\n");
            files.link("sys/bus/pci/drivers/mlx5_core", &format!("{other}/driver"));
            files.write("sys/kernel/iommu_groups/7/devices/ffff:3b:00.1", "");
        });
    "host.permission", "tree of files: `/dev/vfio/7` is missing", with [], says ["/dev/vfio/7"],
        || machine(|files| files.remove("dev/vfio/7"));
    "host.memlock", "limit of 8 MiB", with [], says ["8192 KiB"], || ready_machine().facts(Some(8 << 20));
    "host.hugepages", "tree of files: no huge page is free", with [], says ["0 of 64"],
        || machine(|files| files.write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n"));
    "host.pcie-link", "tree of files: 8 of 16 lanes", with [], says ["8 lanes", "16"],
        || machine(|files| files.write(&format!("{DEVICE}/current_link_width"), "8\n"));
    "container.no-netdev", "tree of files: GIDs of `eth0` in a namespace that has `net1`", with [], says ["mlx5_0", "eth0"],
        || contained(&container("net1", "10.0.0.1"));
    "container.foreign-address", "tree of files: a GID of 10.9.9.9 in a namespace that has 10.0.0.1", with [], says ["10.9.9.9", "10.0.0.1"],
        || contained(&container("eth0", "10.9.9.9"));
    "device.unreachable", "tree of files with a function that is ready; VFIO of the machine that runs the test does not know it", with [], says ["ffff:3b:00.0"],
        || {
            let mut facts = ready_machine().facts(None);
            open(&mut facts, FUNCTION);
            facts
        };
    "firmware.not-ready", "simulator: firmware that initialises for 1,000 s", with [], says ["not ready"],
        || Scene::new([NicConfig { firmware_ready_after: NEVER, ..ethernet(1) }, ethernet(2)]).facts(0, "");
    "device.open", "simulator: BAR0 too small for a doorbell page", with [], says ["opening the device failed"],
        || Scene::new([NicConfig { bar_pages: 16, ..ethernet(1) }, ethernet(2)]).facts(0, "");
    "firmware.health", "simulator: the command queue is where no memory is", with [], says ["health"],
        || Scene::new([ethernet(1), ethernet(2)]).facts_after(0, "", |_, device| lose_the_command_queue(device));
    "port.link-type", "simulator: InfiniBand at one end of the cable, Ethernet at the other", with [], says ["InfiniBand", "LINK_TYPE_P1=IB(1)"],
        || Scene::new([infiniband(1), ethernet(2)]).both(["", ""]);
    "port.disabled", "simulator: the port is down until software brings it up", with [], says ["Disabled"],
        || Scene::new([NicConfig { starts_down: true, ..ethernet(1) }, ethernet(2)]).facts(0, "");
    "port.polling", "simulator: the cable is pulled out", with [], says ["PORT_DOWN", "polls"],
        || {
            let scene = Scene::new([ethernet(1), ethernet(2)]);
            scene.world.with(|world| world.set_link_up(scene.link, false)).expect("a link");
            scene.facts(0, "")
        };
    "port.no-sm", "simulator: InfiniBand ports back to back, without a manager", with [], says ["PORT_INIT"],
        || Scene::new([infiniband(1), infiniband(2)]).facts(0, "");
    "port.slow", "simulator: a cable of 25 Gbit/s in ports of 100", with [], says ["25000", "100000"],
        || joined([1, 2].map(|number| NicConfig { cable: CABLE, ..ethernet(number) }));
    "pkey.ends", "simulator: subnets with different partitions", with [], says ["0x8001", "0x8002"],
        || Facts { peer: Scene::managed(vec![0x8002]).facts(1, "").port().cloned(), ..Scene::managed(vec![0x8001]).facts(0, "") };
    "gid.empty", "simulator: RoCE is switched off in the card", with [], says ["empty"],
        || joined([NicConfig { roce: RoceSupport::OFF, ..ethernet(1) }, ethernet(2)]);
    "gid.link-local", "simulator: no address at this end", with [], says ["10.0.0.2", "fe80::"], || between("", "10.0.0.2/24");
    "gid.family", "simulator: IPv4 here, IPv6 there", with [], says ["2001:db8::2 (IPv6)", "10.0.0.1"],
        || between("10.0.0.1/24", "2001:db8::2/64");
    "gid.version", "simulator: a card that offers version 2 only, and one that offers version 1 only", with [], says ["RoCEv1", "10.0.0.1 v2"],
        || joined([NicConfig { roce: V2, ..ethernet(1) }, NicConfig { roce: V1, ..ethernet(2) }]);
    "gid.vlan", "simulator: VLAN 7 there, no tag here", with [], says ["VLAN 7", "no VLAN"],
        || between("10.0.0.1/24", "10.0.0.2/24@7");
    "gid.no-route", "simulator: networks without a router", with [], says ["10.0.1.2", "10.0.0.1/24"],
        || between("10.0.0.1/24", "10.0.1.2/24");
    "mtu.ends", "simulator: an MTU of 1,500 at the peer", with [], says ["10218", "1500"],
        || joined([ethernet(1), NicConfig { initial_mtu: MTU, ..ethernet(2) }]);
    "mtu.small", "simulator: an MTU of 1,500 at both ends, whose ports can do more", with [], says ["1024 bytes", "1500"],
        || joined([1, 2].map(|number| NicConfig { initial_mtu: MTU, ..ethernet(number) }));
    "flow.pause-off", "simulator: pause frames are off", with [], says ["PFCC"],
        || Scene::new([1, 2].map(|number| NicConfig { starts_with_pause: false, ..ethernet(number) })).facts(0, "");
    "flow.ecn-off", "simulator: congestion control is off in the card", with [], says ["QUERY_CONG_STATUS"],
        || Scene::new([1, 2].map(|number| NicConfig { congestion_control: false, ..ethernet(number) })).facts(0, "");
    "counters.retransmission", "simulator: the wire loses a tenth of the frames", with [], says ["packet_seq_err", "packets"],
        || counted(lossy(), false, |_| ());
    "counters.loss-unmarked", "simulator: the same, at the receiver", with ["counters.retransmission"], says ["out_of_sequence", "no packet was marked"],
        || counted(lossy(), true, |_| ());
    "counters.not-ready", "simulator: receives are posted too late", with [], says ["rnr_nak_retry_err"],
        || counted(TrafficConfig { ready: false, ..TrafficConfig::default() }, false, |_| ());
    "counters.fault", "simulator: a WRITE beyond the memory of the peer", with [], says ["req_remote_access_errors = 1"],
        || counted(TrafficConfig::default(), false, |traffic| traffic.trespass().expect("refused"));
    "counters.link", "simulator: the cable of an InfiniBand port is pulled out and plugged in again", with [], says ["link_downed = 1"],
        || {
            let scene = Scene::managed(vec![0xffff]);
            scene.facts_after(0, "", |scene, _| {
                for up in [false, true] {
                    scene.world.with(|world| world.set_link_up(scene.link, up)).expect("a link");
                    later(&scene.world, Duration::from_secs(2));
                }
            })
        };
    "counters.discard", "simulator: a receiver that is slower than its wire, without pause frames", with ["counters.retransmission"],
        says ["rx_prio0_discards = "],
        || counted(slow_receiver(4096), true, |_| ());
    "counters.paused", "simulator: a receiver that is slower than its wire, with pause frames", with [], says ["rx_pause_ctrl_phy = ", "rx_prio0_pause = "],
        || counted(TrafficConfig { pause: true, ..slow_receiver(8192) }, false, |_| ());
    "counters.congestion", "simulator: a switch whose way to the receiver is slower marks packets", with [], says ["np_ecn_marked_roce_packets = "],
        || counted(TrafficConfig { marked_from: Some(2048), ..TrafficConfig::default() }, true, |_| ());
}
