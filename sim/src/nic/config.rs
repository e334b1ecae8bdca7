//! Configuration of a simulated device.

use super::guids::Guids;
use bareverbs_prm::ids::{MacAddress, Qpn, VhcaId};
use bareverbs_prm::time::Duration;

/// PCI device ID of ConnectX-5.
pub const CONNECTX5: u16 = 0x1017;

/// The configuration in which simulated devices differ.
///
/// ```
/// use bareverbs_prm::ids::MacAddress;
/// use bareverbs_sim::nic::{LinkLayer, NicConfig, PortSpeed, SubnetMembership};
///
/// let ethernet = NicConfig::new(MacAddress([2, 0, 0, 0, 0, 1]));
/// let infiniband = NicConfig {
///     link_layer: LinkLayer::InfiniBand,
///     subnet: SubnetMembership::Managed,
///     speed: PortSpeed::Gbps50,
///     ..ethernet
/// };
/// assert_eq!((ethernet.speed, infiniband.mac), (PortSpeed::Gbps100, ethernet.mac));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NicConfig {
    /// Permanent MAC address of the port.
    pub mac: MacAddress,
    /// GUIDs, if they are not derived from the MAC address.
    pub guids: Option<Guids>,
    /// Link layer of the port.
    pub link_layer: LinkLayer,
    /// Whether an SM manages an InfiniBand port.
    pub subnet: SubnetMembership,
    /// Port of the card that this device is, counted from 1: a ConnectX-5 has one function per port.
    pub card_port: u8,
    /// Function of a card with several. `None` for a device that shares nothing.
    pub card: Option<CardFunction>,
    /// PCI device ID.
    pub device_id: u16,
    /// Firmware version: major, minor, subminor.
    pub firmware_revision: [u16; 3],
    /// Pages of BAR0, a power of two. All but the first 16 are available as UARs.
    pub bar_pages: u32,
    /// Number of MSI-X vectors, at most 2048.
    pub vectors: u16,
    /// Limits of objects and queues.
    pub limits: Limits,
    /// The device's range of queue pair numbers.
    pub queue_pair_numbers: QueuePairNumbers,
    /// Pages that QUERY_PAGES requests for boot.
    pub boot_pages: u32,
    /// Pages that QUERY_PAGES requests for INIT_HCA.
    pub init_pages: u32,
    /// Highest speed of the port.
    pub speed: PortSpeed,
    /// Link speed, if the port negotiated less than its highest speed.
    pub cable: Option<PortSpeed>,
    /// Largest MTU of the port: Ethernet payload in bytes.
    pub mtu: u16,
    /// MTU after power-on and reset, if not the largest.
    pub initial_mtu: Option<u16>,
    /// RoCE versions of an Ethernet port.
    pub roce: RoceSupport,
    /// Whether RoCEv2 packets are ECN-capable (`ROCE_CC_PRIO_MASK_P1`).
    pub congestion_control: bool,
    /// Whether pause frames are enabled after power-on and reset (PFCC).
    pub starts_with_pause: bool,
    /// Receive buffer of an Ethernet port whose host is slower than the wire. `None` accepts everything at once.
    pub receive_buffer: Option<PortBuffer>,
    /// Whether work requests may replace translations of memory keys (UMR; `umr_modify_entity_size_disabled` is off).
    /// If so, Linux offers fast registration to its storage drivers, and fills a cache of thousands of keys.
    pub translation_updates: bool,
    /// Whether doorbells accept a whole WQE (BlueFlame, `bf`). Linux probes once whether its processor combines the
    /// writes.
    pub blue_flame: bool,
    /// Whether there are user contexts (`log_max_uctx`). If so, `mlx5_ib` offers DEVX: programs send it commands of the PRM, and it adds
    /// the number of their user context.
    pub user_contexts: bool,
    /// Whether StRoM's opcodes and send WQEs are accepted. **Not mlx5.**
    pub strom: bool,
    /// Factor by which the local ACK timer exceeds its nominal time, 1 to 4 (IBTA v1.4 §9.7.6.1.3).
    pub ack_timeout_factor: u8,
    /// Strict mode: reserved bits must be zero in commands, work queue entries and doorbells.
    pub strict: bool,
    /// Initialization time of the firmware after power-on, at [`Time::ZERO`](bareverbs_prm::time::Time::ZERO), and
    /// after a reset.
    pub firmware_ready_after: Duration,
    /// Whether the port stays down after power-on and reset until software enables it (PAOS).
    pub starts_down: bool,
}

/// A function within its card, such as the host's or the Arm cores' of a BlueField.
///
/// ```
/// use bareverbs_prm::ids::{MacAddress, VhcaId};
/// use bareverbs_sim::nic::{CardFunction, NicConfig};
///
/// // The host's function of a BlueField-3.
/// let card = CardFunction::bluefield3(VhcaId::from_low_bits(1));
/// let host = NicConfig { card: Some(card), ..NicConfig::new(MacAddress([2, 0, 0, 0, 0, 1])) };
/// assert!(host.card.unwrap().shares_indirect_keys);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CardFunction {
    /// Its VHCA ID.
    pub vhca_id: VhcaId,
    /// Whether other functions may alias indirect keys. A BlueField-3 permits it. A ConnectX-7 reports the
    /// same capabilities but refuses (UCX pull request 10980): software has to try.
    pub shares_indirect_keys: bool,
}

impl CardFunction {
    /// A function of a BlueField-3.
    pub const fn bluefield3(vhca_id: VhcaId) -> Self {
        Self { vhca_id, shares_indirect_keys: true }
    }
}

/// Link layers of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLayer {
    /// Ethernet: RDMA is RoCEv2; other packets have queues of their own.
    Ethernet,
    /// InfiniBand.
    InfiniBand,
}

/// First queue pair number that the device allocates; lower ones are reserved or look reserved.
const FIRST_QP: u32 = 0x40;
/// log2 of the numbers in a block.
const BLOCK_BITS: u32 = 16;

/// Range of a device's queue pair numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuePairNumbers {
    /// All numbers.
    All,
    /// The 65536 numbers with these upper 8 bits. Devices with other blocks have the same MAC address and
    /// GIDs: together they form one device whose queue pairs are spread over several processes. Frames for
    /// this address and another block leave through the port.
    Block(u8),
}

impl QueuePairNumbers {
    /// The first number.
    pub(crate) const fn first(self) -> u32 {
        match self {
            Self::All => FIRST_QP,
            Self::Block(upper) => (upper as u32) << BLOCK_BITS | FIRST_QP,
        }
    }

    /// How many numbers the range has.
    pub(crate) const fn count(self) -> u64 {
        match self {
            Self::All => (1 << 24) - FIRST_QP as u64,
            Self::Block(_) => (1 << BLOCK_BITS) - FIRST_QP as u64,
        }
    }

    /// Whether a queue pair with this number would belong to the device.
    pub(crate) const fn contains(self, number: Qpn) -> bool {
        match self {
            Self::All => true,
            Self::Block(upper) => number.value() >> BLOCK_BITS == upper as u32,
        }
    }
}

/// Management of an InfiniBand port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubnetMembership {
    /// None: the port is a subnet of its own, has LID 1, and is active while its link is up.
    Alone,
    /// An SM assigns a LID and activates the port.
    Managed,
}

/// Limits of objects and queues, as reported in the capability pages. `log_` means log2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// log2 of the number of queue pairs.
    pub log_max_qp: u8,
    /// log2 of the number of completion queues.
    pub log_max_cq: u8,
    /// log2 of the number of event queues; at most 7.
    pub log_max_eq: u8,
    /// log2 of the number of protection domains.
    pub log_max_pd: u8,
    /// log2 of the number of memory keys.
    pub log_max_mkey: u8,
    /// log2 of the WQEs of a receive queue or the basic blocks of a send queue.
    pub log_max_qp_size: u8,
    /// log2 of the entries of a completion queue.
    pub log_max_cq_size: u8,
    /// log2 of the entries of an event queue.
    pub log_max_eq_size: u8,
    /// log2 of the bytes of a message; at most 31.
    pub log_max_message: u8,
    /// log2 of the READs and atomics outstanding as requester.
    pub log_max_initiator_depth: u8,
    /// log2 of the READs and atomics remembered as responder.
    pub log_max_responder_resources: u8,
    /// Bytes of a send WQE.
    pub max_send_wqe: u16,
    /// Bytes of a receive WQE.
    pub max_receive_wqe: u16,
    /// An InfiniBand port has `8 << n` GIDs, n up to 4.
    pub gid_table_size: u16,
    /// RoCE address table size of an Ethernet port. Each IP address takes one entry per RoCE version, and again for
    /// each VLAN.
    pub roce_addresses: u16,
}

/// RoCE versions of a card. With none, RoCE is disabled (`devlink dev param set … enable_roce value false`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoceSupport {
    /// Version 1, within one Ethernet.
    pub version_1: bool,
    /// Version 2, over UDP.
    pub version_2: bool,
}

impl RoceSupport {
    /// Both versions, as on a ConnectX-5.
    pub const BOTH: Self = Self { version_1: true, version_2: true };
    /// RoCE is disabled.
    pub const OFF: Self = Self { version_1: false, version_2: false };

    /// `roce_version` of the RoCE capabilities: one bit per version.
    pub(crate) const fn versions(self) -> u8 {
        (self.version_1 as u8) | (self.version_2 as u8) << 2
    }
}

/// Receive buffer of a port: frames arrive from the wire and drain at the rate of the host's PCIe slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortBuffer {
    /// Size in bytes. A frame that does not fit is dropped and counted by its priority.
    pub bytes: u32,
    /// Rate at which the host drains it.
    pub bits_per_second: u64,
}

/// Speeds that the PTYS register can report.
///
/// ```
/// use bareverbs_sim::nic::PortSpeed;
///
/// assert_eq!(PortSpeed::from_gbps(25), Some(PortSpeed::Gbps25));
/// assert_eq!(PortSpeed::from_gbps(400), None, "a ConnectX-5 has no such port");
/// assert_eq!(PortSpeed::Gbps25.bits_per_second(), 25_000_000_000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortSpeed {
    /// 10 Gbit/s.
    Gbps10,
    /// 25 Gbit/s.
    Gbps25,
    /// 40 Gbit/s.
    Gbps40,
    /// 50 Gbit/s.
    Gbps50,
    /// 100 Gbit/s.
    Gbps100,
}

impl PortSpeed {
    /// The speed of this many Gbit/s, if a port supports it.
    pub const fn from_gbps(gbps: u32) -> Option<Self> {
        Some(match gbps {
            10 => Self::Gbps10,
            25 => Self::Gbps25,
            40 => Self::Gbps40,
            50 => Self::Gbps50,
            100 => Self::Gbps100,
            _ => return None,
        })
    }

    /// The bit of `eth_proto_oper` for a copper cable of this speed.
    pub const fn ethernet_protocol(self) -> u32 {
        1 << match self {
            Self::Gbps10 => 12,
            Self::Gbps25 => 27,
            Self::Gbps40 => 6,
            Self::Gbps50 => 30,
            Self::Gbps100 => 20,
        }
    }

    /// `ib_link_width_oper` and `ib_proto_oper`: a bit for 1, 2 or 4 lanes, a bit for SDR, DDR, QDR, FDR10, FDR, EDR.
    pub const fn infiniband_protocol(self) -> (u16, u16) {
        match self {
            Self::Gbps10 => (1 << 2, 1 << 0),
            Self::Gbps25 => (1 << 0, 1 << 5),
            Self::Gbps40 => (1 << 2, 1 << 2),
            Self::Gbps50 => (1 << 1, 1 << 5),
            Self::Gbps100 => (1 << 2, 1 << 5),
        }
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        1_000_000_000
            * match self {
                Self::Gbps10 => 10,
                Self::Gbps25 => 25,
                Self::Gbps40 => 40,
                Self::Gbps50 => 50,
                Self::Gbps100 => 100,
            }
    }
}

impl NicConfig {
    /// A ConnectX-5 at 100 Gbit/s with jumbo frames and small page requests.
    pub const fn new(mac: MacAddress) -> Self {
        Self {
            mac,
            guids: None,
            link_layer: LinkLayer::Ethernet,
            subnet: SubnetMembership::Alone,
            card_port: 1,
            card: None,
            device_id: CONNECTX5,
            firmware_revision: [16, 35, 4030],
            bar_pages: 4096,
            vectors: 64,
            limits: Limits::CONNECTX5,
            queue_pair_numbers: QueuePairNumbers::All,
            boot_pages: 3,
            init_pages: 5,
            speed: PortSpeed::Gbps100,
            cable: None,
            mtu: 10_218,
            initial_mtu: None,
            roce: RoceSupport::BOTH,
            congestion_control: false,
            starts_with_pause: false,
            receive_buffer: None,
            translation_updates: true,
            blue_flame: true,
            user_contexts: false,
            strom: false,
            ack_timeout_factor: 1,
            strict: false,
            firmware_ready_after: Duration::from_millis(1),
            starts_down: false,
        }
    }
}

impl NicConfig {
    /// Like [`Self::new`], with an InfiniBand port and 4096-byte packets.
    pub const fn infiniband(mac: MacAddress) -> Self {
        Self { link_layer: LinkLayer::InfiniBand, mtu: 4096, blue_flame: false, ..Self::new(mac) }
    }

    /// Speed of the link when it is up.
    pub const fn link_speed(&self) -> PortSpeed {
        match self.cable {
            Some(cable) if cable.bits_per_second() < self.speed.bits_per_second() => cable,
            _ => self.speed,
        }
    }

    /// The MTU of the port after power-on and reset.
    pub const fn first_mtu(&self) -> u16 {
        match self.initial_mtu {
            Some(mtu) if mtu < self.mtu => mtu,
            _ => self.mtu,
        }
    }

    /// The same configuration for real time, where peers that share processors pause: the local ACK timer
    /// takes as long as the standard permits.
    #[must_use]
    pub const fn with_longest_ack_timeout(self) -> Self {
        Self { ack_timeout_factor: 4, ..self }
    }
}

impl NicConfig {
    /// The same configuration behind a bus that does not combine writes: every register write is a message of
    /// its own.
    #[must_use]
    pub const fn without_write_combining(self) -> Self {
        Self { blue_flame: false, ..self }
    }
}

impl Default for NicConfig {
    fn default() -> Self {
        Self::new(MacAddress([0x02, 0xc9, 0, 0, 0, 1]))
    }
}

impl Limits {
    /// Approximately what a ConnectX-5 reports.
    pub const CONNECTX5: Self = Self {
        log_max_qp: 18,
        log_max_cq: 18,
        log_max_eq: 7,
        log_max_pd: 20,
        log_max_mkey: 22,
        log_max_qp_size: 15,
        log_max_cq_size: 22,
        log_max_eq_size: 18,
        log_max_message: 30,
        log_max_initiator_depth: 4,
        log_max_responder_resources: 4,
        max_send_wqe: 1024,
        max_receive_wqe: 512,
        gid_table_size: 0,
        roce_addresses: 128,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_numbers_do_not_overlap() {
        let (third, fourth) = (QueuePairNumbers::Block(3), QueuePairNumbers::Block(4));
        let numbers = [third.first(), third.first() + third.count() as u32 - 1];
        assert_eq!(numbers, [0x3_0040, 0x3_ffff]);
        for number in numbers.map(Qpn::from_low_bits) {
            assert!(
                third.contains(number) && !fourth.contains(number) && QueuePairNumbers::All.contains(number)
            );
        }
    }
}
