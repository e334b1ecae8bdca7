//! The port: its state, MTU and addresses.

use crate::command::{CommandError, Request};
use crate::device::Device;
use crate::executor::CommandOutput;
use crate::hal::Hal;
use bareverbs_prm::command::ib_port::{
    PvlcRegister, QueryHcaVportContextIn, QueryHcaVportContextOut, QueryHcaVportGidIn, QueryHcaVportGidOut,
    QueryHcaVportPkeyIn, QueryHcaVportPkeyOut,
};
use bareverbs_prm::command::port::{
    PmtuRegister, QueryNicVportContextIn, QueryNicVportContextOut, QueryVportStateIn, QueryVportStateOut,
};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::{CommandOpcode, PathMtu, PortType, RegisterId};
use core::fmt;

/// State, MTU and addresses of the port.
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
    /// The current MTU: bytes of the largest frame payload.
    pub operational_mtu: u16,
    /// The largest possible MTU, in bytes.
    pub max_mtu: u16,
    /// The permanent Ethernet address; zero on InfiniBand.
    pub mac: MacAddress,
    /// The LID that the subnet manager assigned; zero on Ethernet, and on InfiniBand before the assignment.
    pub lid: u16,
    /// LID mask control: the port has 2^n LIDs, and the first is a multiple of 2^n (IBTA v1.4 §4.1.3).
    pub lmc: u8,
    /// LID of the subnet manager; zero on Ethernet.
    pub subnet_manager_lid: u16,
}

/// What the managers of a subnet know and set of a port (IBTA v1.4 §14.2.5.6, `PortInfo`). All but
/// [`Self::queue_key_violations`] is zero on Ethernet, which has no such managers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortManagement {
    /// `CapabilityMask`.
    #[doc(alias = "port_cap_flags")]
    pub capability_mask: u32,
    /// `CapabilityMask2`; has a meaning if bit 15 of the first mask is set.
    #[doc(alias = "port_cap_flags2")]
    pub capability_mask2: u32,
    /// Packets with a P_Key that the port's table does not have.
    #[doc(alias = "bad_pkey_cntr")]
    pub partition_key_violations: u16,
    /// Packets with another Q_Key than that of their queue pair.
    #[doc(alias = "qkey_viol_cntr")]
    pub queue_key_violations: u16,
    /// Service level of packets to the subnet manager.
    #[doc(alias = "sm_sl")]
    pub subnet_manager_service_level: u8,
    /// `SubnetTimeOut`: a management packet needs at most 4.096 µs × 2^n to any port of the subnet.
    pub subnet_timeout: u8,
    /// `InitTypeReply`: which initialisation the subnet manager performed.
    pub init_type_reply: u8,
}

impl PortAttributes {
    /// The largest path MTU that the port could have.
    #[doc(alias = "max_mtu")]
    pub const fn max_path_mtu(&self) -> PathMtu {
        path_mtu(self.link_layer, self.max_mtu)
    }
}

impl<H: Hal> Device<H> {
    /// Queries the port.
    ///
    /// # Errors
    /// A command failed.
    #[doc(alias = "ibv_query_port")]
    pub fn port(&self) -> Result<PortAttributes, CommandError> {
        let mtu = self.mtu()?;
        let link_layer = self.capabilities().port_type;
        let port = PortAttributes {
            link_layer,
            state: PortState::Down,
            active_mtu: path_mtu(link_layer, mtu.oper_mtu()),
            operational_mtu: mtu.oper_mtu(),
            max_mtu: mtu.max_mtu(),
            mac: MacAddress::default(),
            lid: 0,
            lmc: 0,
            subnet_manager_lid: 0,
        };
        match link_layer {
            PortType::Ethernet => self.ethernet_port(port),
            _ => self.infiniband_port(port),
        }
    }

    fn ethernet_port(&self, port: PortAttributes) -> Result<PortAttributes, CommandError> {
        let output: QueryVportStateOut = self.call(&Request::new(&query_state()))?;
        let state = PortState::from_raw(output.state());
        let output: QueryNicVportContextOut = self.call(&Request::new(&query_context()))?;
        Ok(PortAttributes { state, mac: mac_of(&output), ..port })
    }

    fn infiniband_port(&self, port: PortAttributes) -> Result<PortAttributes, CommandError> {
        let output: QueryHcaVportContextOut = self.call(&Request::new(&query_infiniband()))?;
        let context = output.hca_vport_context();
        Ok(PortAttributes {
            state: PortState::of_infiniband(context.port_state()),
            lid: context.lid(),
            lmc: context.lmc(),
            subnet_manager_lid: context.sm_lid(),
            ..port
        })
    }

    /// Queries what managers of the subnet know and set of the port.
    ///
    /// # Errors
    /// The command failed.
    #[doc(alias = "ibv_query_port")]
    pub fn port_management(&self) -> Result<PortManagement, CommandError> {
        if self.capabilities().port_type == PortType::Ethernet {
            let output: QueryNicVportContextOut = self.call(&Request::new(&query_context()))?;
            let queue_key_violations = output.nic_vport_context().qkey_violation_counter();
            return Ok(PortManagement { queue_key_violations, ..PortManagement::default() });
        }
        let output: QueryHcaVportContextOut = self.call(&Request::new(&query_infiniband()))?;
        let context = output.hca_vport_context();
        Ok(PortManagement {
            capability_mask: context.cap_mask1(),
            capability_mask2: context.cap_mask2(),
            partition_key_violations: context.pkey_violation_counter(),
            queue_key_violations: context.qkey_violation_counter(),
            subnet_manager_service_level: context.sm_sl(),
            subnet_timeout: context.subnet_timeout(),
            init_type_reply: context.init_type_reply(),
        })
    }

    /// Entry `index` of the GID table of an InfiniBand port. It consists of the subnet prefix and a GUID of
    /// the port. For the RoCE address table of an Ethernet port see [`Self::gid`].
    ///
    /// # Errors
    /// The device refuses an index beyond its table, and refuses the command on an Ethernet port.
    pub fn infiniband_gid(&self, index: u16) -> Result<Gid, CommandError> {
        let input = query_gid(index);
        let request = Request::new(&input);
        let mut output = [0; QueryHcaVportGidOut::GID_OFFSET + size_of::<Gid>()];
        let length = output.len();
        self.execute(&request, CommandOutput { buffer: &mut output, length })?;
        Ok(Gid(output.last_chunk().copied().unwrap_or_default()))
    }

    /// Entry `index` of the P_Key table: 15 bits of partition, and in bit 15 whether the port is a full
    /// member. 0 is an empty entry.
    ///
    /// # Errors
    /// The device refuses an index beyond its table.
    #[doc(alias = "ibv_query_pkey")]
    pub fn partition_key(&self, index: u16) -> Result<u16, CommandError> {
        let mut input = QueryHcaVportPkeyIn::new();
        input.set_opcode(CommandOpcode::QueryHcaVportPkey).set_port_num(1).set_pkey_index(index);
        let mut output = [0; QueryHcaVportPkeyOut::PKEY_OFFSET + size_of::<u32>()];
        let length = output.len();
        self.execute(&Request::new(&input), CommandOutput { buffer: &mut output, length })?;
        // An entry is a dword with the key in its lower half.
        Ok(u16::from_be_bytes(output.last_chunk().copied().unwrap_or_default()))
    }

    /// Number of data virtual lanes of an InfiniBand port: 1, 2, 4, 8 or 15 (`VLCap` of IBTA v1.4 §14.2.5.6, register PVLC).
    ///
    /// # Errors
    /// The command failed, as it does on an Ethernet port: that has priorities and no such register.
    #[doc(alias = "max_vl_num")]
    pub fn virtual_lanes(&self) -> Result<u8, CommandError> {
        let mut selector = PvlcRegister::new();
        selector.set_local_port(1);
        let register: PvlcRegister = self.register(RegisterId::Pvlc, &selector)?;
        Ok(register.vl_hw_cap())
    }

    fn mtu(&self) -> Result<PmtuRegister, CommandError> {
        self.register(RegisterId::Pmtu, &pmtu())
    }
}

/// State of the port. An Ethernet port is down or active; an InfiniBand port has the states of its link (IBTA v1.4 §7.2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_port_state")]
pub enum PortState {
    /// No link.
    Down,
    /// There is a link.
    Active,
    /// Follows another port.
    Follow,
    /// InfiniBand: the link is up, and the subnet manager has not configured the port yet.
    Initialize,
    /// InfiniBand: the subnet manager has configured the port but not activated it yet.
    Armed,
    /// A value that this driver does not know.
    Unknown(u8),
}

impl PortState {
    /// Whether the port carries no packets: it has no link, or the subnet manager has not activated it.
    pub const fn is_down(self) -> bool {
        matches!(self, Self::Down | Self::Initialize | Self::Armed)
    }

    const fn from_raw(raw: u8) -> Self {
        match raw {
            0 => Self::Down,
            1 => Self::Active,
            2 => Self::Follow,
            other => Self::Unknown(other),
        }
    }

    /// From `PortState` of an InfiniBand port (IBTA v1.4 §14.2.5.6).
    const fn of_infiniband(raw: u8) -> Self {
        match raw {
            1 => Self::Down,
            2 => Self::Initialize,
            3 => Self::Armed,
            4 => Self::Active,
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
            Self::Initialize => f.write_str("waiting for the subnet manager"),
            Self::Armed => f.write_str("armed, not active yet"),
            Self::Unknown(raw) => write!(f, "unknown state {raw}"),
        }
    }
}

/// Bytes of RoCE headers in an Ethernet payload: GRH or IPv6, UDP, BTH, RETH or AtomicETH, ICRC.
const ROCE_HEADERS: u16 = 40 + 8 + 12 + 28 + 4;

/// The largest path MTU for frames of `payload` bytes on this link layer.
const fn path_mtu(link: PortType, payload: u16) -> PathMtu {
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

fn query_state() -> QueryVportStateIn {
    let mut input = QueryVportStateIn::new();
    input.set_opcode(CommandOpcode::QueryVportState);
    input
}

/// QUERY_NIC_VPORT_CONTEXT of the function itself.
pub(crate) fn query_context() -> QueryNicVportContextIn {
    let mut input = QueryNicVportContextIn::new();
    input.set_opcode(CommandOpcode::QueryNicVportContext);
    input
}

/// QUERY_HCA_VPORT_CONTEXT of port 1.
pub(crate) fn query_infiniband() -> QueryHcaVportContextIn {
    let mut input = QueryHcaVportContextIn::new();
    input.set_opcode(CommandOpcode::QueryHcaVportContext).set_port_num(1);
    input
}

/// QUERY_HCA_VPORT_GID of one entry of port 1.
fn query_gid(index: u16) -> QueryHcaVportGidIn {
    let mut input = QueryHcaVportGidIn::new();
    input.set_opcode(CommandOpcode::QueryHcaVportGid).set_port_num(1).set_gid_index(index);
    input
}

fn mac_of(output: &QueryNicVportContextOut) -> MacAddress {
    let address = output.nic_vport_context().permanent_address();
    MacAddress::from_parts(address.mac_addr_47_32(), address.mac_addr_31_0())
}

/// PMTU of port 1.
fn pmtu() -> PmtuRegister {
    let mut register = PmtuRegister::new();
    register.set_local_port(1);
    register
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_both_link_layers_have_their_own_numbers() {
        assert_eq!([0, 1].map(PortState::from_raw), [PortState::Down, PortState::Active]);
        let states = [PortState::Down, PortState::Initialize, PortState::Armed, PortState::Active];
        assert_eq!([1, 2, 3, 4].map(PortState::of_infiniband), states);
        assert_eq!(PortState::of_infiniband(0), PortState::Unknown(0));
    }

    #[test]
    fn path_mtu_leaves_room_for_headers() {
        assert_eq!(path_mtu(PortType::Ethernet, 1500), PathMtu::Mtu1024);
        assert_eq!(path_mtu(PortType::Ethernet, 4200), PathMtu::Mtu4096);
        assert_eq!(path_mtu(PortType::Ethernet, 4096), PathMtu::Mtu2048);
        assert_eq!(path_mtu(PortType::Ib, 4096), PathMtu::Mtu4096);
        assert_eq!(path_mtu(PortType::Ethernet, 0), PathMtu::Mtu256);
    }
}
