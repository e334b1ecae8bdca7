//! What the kernel reports about the port of its device, and the capabilities of the device before this HAL hides some of them.

use super::context::KernelContext;
use super::find::{find, port_text};
use super::request::Request;
use super::{PORT, UverbsError};
use bareverbs_core::port::PortState;
use bareverbs_core::port_link::{LaneRate, LinkSpeed, PhysicalState, PortLink};
use bareverbs_prm::command::caps::{GeneralCapabilities, QueryHcaCapIn};
use bareverbs_prm::ids::Gid;
use bareverbs_prm::numbering::{CapabilityType, CommandOpcode, PathMtu};
use bareverbs_uapi::*;
use std::io;
use std::net::Ipv6Addr;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Bytes of the output of QUERY_HCA_CAP: a header and a page of 4 KiB.
const CAPABILITY_HEADER: usize = 16;
const CAPABILITY_OUTPUT: usize = CAPABILITY_HEADER + 4096;
/// `op_mod` of QUERY_HCA_CAP: the page in its upper bits, and in the lowest one whether the values in force are meant.
const IN_FORCE: u16 = 1;
/// Entries of the P_Key table that Linux shows.
const PARTITION_KEYS: u16 = 128;
/// `IB_LINK_LAYER_INFINIBAND`.
const INFINIBAND: u8 = 1;

/// `enum ib_port_width`, and the number of lanes.
const WIDTHS: [(u8, u8); 5] = [(1, 1), (2, 4), (4, 8), (8, 12), (16, 2)];
/// `enum ib_port_speed`, and the rate of a lane.
const SPEEDS: [(u8, LaneRate); 8] = [
    (1, LaneRate::Sdr),
    (2, LaneRate::Ddr),
    (4, LaneRate::Qdr),
    (8, LaneRate::Fdr10),
    (16, LaneRate::Fdr),
    (32, LaneRate::Edr),
    (64, LaneRate::Hdr),
    (128, LaneRate::Ndr),
];
/// `max_vl_num`, and the number of data virtual lanes.
const VIRTUAL_LANES: [(u8, u8); 5] = [(1, 1), (2, 2), (3, 4), (4, 8), (5, 15)];

/// The port of a device that the kernel owns, as programs see it: the kernel passes on no register of the port from which a driver would
/// learn this.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "ibv_query_port")]
pub struct KernelPort {
    /// Whether the port carries packets.
    pub state: PortState,
    /// Physical state and speed; the kernel does not say how fast the port could be.
    pub link: PortLink,
    /// The largest path MTU of the port.
    pub max_mtu: PathMtu,
    /// The largest path MTU that fits the MTU in force.
    pub active_mtu: PathMtu,
    /// Number of data virtual lanes; `None` on Ethernet.
    pub virtual_lanes: Option<u8>,
    /// Entry 0 of the GID table; zero if it is empty.
    pub gid: Gid,
    /// Entries of the P_Key table.
    pub partition_keys: Vec<u16>,
}

/// Asks the kernel for the port of the device `name`, such as `mlx5_0`.
///
/// # Errors
/// The device cannot be opened, or the kernel refuses.
pub fn query_port(name: &str) -> Result<KernelPort, UverbsError> {
    let context = KernelContext::open(&find(name)?.file)?;
    let told = context.port().map_err(|errno| refused(name, "its port", errno))?;
    let gid = port_text(name, "gids/0").and_then(|gid| gid.parse::<Ipv6Addr>().ok());
    let keys = (0..PARTITION_KEYS).map_while(|index| port_text(name, &format!("pkeys/{index}")));
    let keys = keys.filter_map(|key| u16::from_str_radix(key.strip_prefix("0x")?, 16).ok());
    Ok(KernelPort {
        state: state(told.state),
        link: link(&told),
        max_mtu: PathMtu::from_raw(told.max_mtu),
        active_mtu: PathMtu::from_raw(told.active_mtu),
        virtual_lanes: looked_up(&VIRTUAL_LANES, told.max_vl_num),
        gid: gid.map_or(Gid([0; 16]), |gid| Gid(gid.octets())),
        partition_keys: keys.filter(|key| *key != 0).collect(),
    })
}

/// Queries the general capabilities in force of the device `name`. [`Device::capability_page`](bareverbs_core::Device::capability_page) gives
/// the same without what programs lack on a device of the kernel: signed commands, BlueFlame, XRC.
///
/// # Errors
/// The device cannot be opened, or refuses.
pub fn query_capabilities(name: &str) -> Result<GeneralCapabilities, UverbsError> {
    let context = KernelContext::open(&find(name)?.file)?;
    let mut query = QueryHcaCapIn::new();
    query
        .set_opcode(CommandOpcode::QueryHcaCap)
        .set_op_mod(u16::from(CapabilityType::General.raw()) << 1 | IN_FORCE);
    let mut output = vec![0; CAPABILITY_OUTPUT];
    let done = context.run(query.as_bytes(), &mut output);
    done.map_err(|errno| refused(name, "its capabilities", errno))?;
    let page = GeneralCapabilities::read_from_prefix(&output[CAPABILITY_HEADER..]);
    page.map(|(page, _)| page).map_err(|_| refused(name, "its capabilities", libc::EPROTO))
}

fn refused(name: &str, what: &'static str, errno: i32) -> UverbsError {
    UverbsError::Query { name: name.to_owned(), what, error: io::Error::from_raw_os_error(errno) }
}

impl KernelContext {
    fn port(&self) -> Result<QueryPortResp, i32> {
        let mut answer = QueryPortRespEx::new_zeroed();
        Request::new(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
            .number(UVERBS_ATTR_QUERY_PORT_PORT_NUM, PORT.into())
            .output(UVERBS_ATTR_QUERY_PORT_RESP, answer.as_mut_bytes())
            .run(self.file())?;
        Ok(answer.legacy_resp)
    }
}

fn looked_up<T: Copy>(table: &[(u8, T)], code: u8) -> Option<T> {
    table.iter().find(|(known, _)| *known == code).map(|(_, value)| *value)
}

/// `enum ib_port_state`.
const fn state(raw: u8) -> PortState {
    match raw {
        1 => PortState::Down,
        2 => PortState::Initialize,
        3 => PortState::Armed,
        4 => PortState::Active,
        other => PortState::Unknown(other),
    }
}

/// `enum ib_port_phys_state`.
const fn physical(raw: u8) -> PhysicalState {
    match raw {
        1 => PhysicalState::Sleep,
        2 => PhysicalState::Polling,
        3 => PhysicalState::Disabled,
        4 => PhysicalState::Training,
        5 => PhysicalState::LinkUp,
        6 => PhysicalState::Recovery,
        7 => PhysicalState::Test,
        other => PhysicalState::Unknown(other),
    }
}

/// Physical state and speed. Without a link the kernel also reports some speed (mlx5_ib: that of QDR), which means nothing.
fn link(told: &QueryPortResp) -> PortLink {
    let physical = physical(told.phys_state);
    let speed = looked_up(&WIDTHS, told.active_width).zip(looked_up(&SPEEDS, told.active_speed));
    let speed = speed.map(|(lanes, rate)| LinkSpeed {
        megabits: rate.megabits() * u32::from(lanes),
        lanes,
        rate: (told.link_layer == INFINIBAND).then_some(rate),
    });
    PortLink { physical, speed: speed.filter(|_| physical == PhysicalState::LinkUp), fastest: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(physical: u8, width: u8, speed: u8, layer: u8) -> PortLink {
        link(&QueryPortResp {
            phys_state: physical,
            active_width: width,
            active_speed: speed,
            link_layer: layer,
            ..QueryPortResp::new_zeroed()
        })
    }

    #[test]
    fn a_speed_is_lanes_times_rate() {
        let speed = told(5, 2, 32, 2).speed.unwrap();
        assert_eq!((speed.megabits, speed.lanes, speed.rate), (100_000, 4, None));
        let speed = told(5, 16, 64, INFINIBAND).speed.unwrap();
        assert_eq!((speed.megabits, speed.lanes, speed.rate), (100_000, 2, Some(LaneRate::Hdr)));
        assert_eq!(told(5, 2, 0, 2).speed, None, "a rate that nobody knows");
    }

    #[test]
    fn without_a_link_there_is_no_speed() {
        let down = told(3, 2, 4, 2);
        assert_eq!((down.physical, down.speed), (PhysicalState::Disabled, None));
        assert_eq!((state(1), state(5)), (PortState::Down, PortState::Unknown(5)));
    }
}
