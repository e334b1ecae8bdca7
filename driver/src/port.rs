//! The port: state, MTU and address.

use bareverbs_prm::command::hca::AccessRegisterIn;
use bareverbs_prm::command::port::{
    ModifyNicVportContextIn, PmtuRegister, QueryNicVportContextIn, QueryNicVportContextOut, QueryVportStateIn,
};
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::numbering::{CommandOpcode, PathMtu, PortType, RegisterId};
use core::fmt;

/// What the port is like now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_port_attr")]
#[doc(alias = "ibv_query_port")]
pub struct PortAttributes {
    /// Link layer.
    pub link_layer: PortType,
    /// Whether there is a link.
    pub state: PortState,
    /// The largest path MTU that fits the operational MTU.
    pub active_mtu: PathMtu,
    /// Bytes of the largest frame payload in force.
    pub operational_mtu: u16,
    /// Bytes of the largest frame payload possible.
    pub max_mtu: u16,
    /// The permanent Ethernet address; zero on InfiniBand.
    pub mac: MacAddress,
}

/// State of the virtual port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_port_state")]
pub enum PortState {
    /// No link.
    Down,
    /// There is a link.
    Active,
    /// Follows another port.
    Follow,
    /// A number that this driver does not know.
    Unknown(u8),
}

impl PortState {
    pub(crate) const fn from_raw(raw: u8) -> Self {
        match raw {
            0 => Self::Down,
            1 => Self::Active,
            2 => Self::Follow,
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.write_str("down"),
            Self::Active => f.write_str("active"),
            Self::Follow => f.write_str("follows another port"),
            Self::Unknown(raw) => write!(f, "unknown state {raw}"),
        }
    }
}

/// Bytes of headers that an Ethernet MTU leaves to RoCE: GRH or IPv6, UDP, BTH, RETH or AtomicETH, ICRC.
const ROCE_HEADERS: u16 = 40 + 8 + 12 + 28 + 4;

/// The largest path MTU that fits frames of `payload` bytes on such a link.
pub(crate) const fn path_mtu(link: PortType, payload: u16) -> PathMtu {
    let room = match link {
        PortType::Ethernet => payload.saturating_sub(ROCE_HEADERS),
        _ => payload,
    };
    match room {
        4096.. => PathMtu::Mtu4096,
        2048.. => PathMtu::Mtu2048,
        1024.. => PathMtu::Mtu1024,
        512.. => PathMtu::Mtu512,
        _ => PathMtu::Mtu256,
    }
}

pub(crate) fn query_state() -> QueryVportStateIn {
    let mut input = QueryVportStateIn::new();
    input.set_opcode(CommandOpcode::QueryVportState);
    input
}

pub(crate) fn query_context() -> QueryNicVportContextIn {
    let mut input = QueryNicVportContextIn::new();
    input.set_opcode(CommandOpcode::QueryNicVportContext);
    input
}

pub(crate) fn mac_of(output: &QueryNicVportContextOut) -> MacAddress {
    let address = output.nic_vport_context().permanent_address();
    MacAddress::from_parts(address.mac_addr_47_32(), address.mac_addr_31_0())
}

/// MODIFY_NIC_VPORT_CONTEXT that switches RoCE on or off.
pub(crate) fn set_roce(on: bool) -> ModifyNicVportContextIn {
    let mut input = ModifyNicVportContextIn::new();
    input.set_opcode(CommandOpcode::ModifyNicVportContext).set_field_select_roce_en(true);
    input.nic_vport_context_mut().set_roce_en(on);
    input
}

/// ACCESS_REG that reads or writes `register`; `op_mod` 0 writes, 1 reads.
pub(crate) fn access(register: RegisterId, read: bool) -> AccessRegisterIn {
    let mut input = AccessRegisterIn::new();
    input.set_opcode(CommandOpcode::AccessReg).set_op_mod(read as u16).set_register_id(register);
    input
}

/// Bytes of the output of ACCESS_REG before the register.
pub(crate) const REGISTER_HEADER: usize = 16;
/// Bytes of the largest register that this driver reads: PPCNT.
pub(crate) const LARGEST_REGISTER: usize = 256;

/// PMTU of port 1.
pub(crate) fn pmtu() -> PmtuRegister {
    let mut register = PmtuRegister::new();
    register.set_local_port(1);
    register
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_mtu_leaves_room_for_headers() {
        assert_eq!(path_mtu(PortType::Ethernet, 1500), PathMtu::Mtu1024);
        assert_eq!(path_mtu(PortType::Ethernet, 4200), PathMtu::Mtu4096);
        assert_eq!(path_mtu(PortType::Ethernet, 4096), PathMtu::Mtu2048);
        assert_eq!(path_mtu(PortType::Ib, 4096), PathMtu::Mtu4096);
        assert_eq!(path_mtu(PortType::Ethernet, 0), PathMtu::Mtu256);
    }
}
