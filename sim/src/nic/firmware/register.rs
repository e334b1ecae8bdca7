//! ACCESS_REG: the host and port registers that drivers read and write.

use super::call::Call;
use super::ethernet::port_register;
use super::port_counters;
use super::register_data::{bytes, check_port, read};
use crate::nic::syndrome::{self, Refusal};
use crate::nic::{LinkLayer, Nic};
use bareverbs_prm::command::ethernet_port::PcamRegister;
use bareverbs_prm::command::hca::{AccessRegisterIn, AccessRegisterOut, HostEndiannessRegister};
use bareverbs_prm::command::ib_port::PvlcRegister;
use bareverbs_prm::command::port::{PaosRegister, PmtuRegister, PtysRegister};
use bareverbs_prm::numbering::RegisterId;
use bareverbs_prm::time::Time;

/// `proto_mask` of PTYS: InfiniBand, Ethernet.
const INFINIBAND: u8 = 1;
const ETHERNET: u8 = 4;
/// A read must send the bytes that select the part of a register, at least its first word; the rest counts as
/// zero.
const NAMED: usize = 4;
/// Bytes of the largest register, PPCNT.
const LARGEST: usize = 256;
/// Number of the first register in the list of PCAM.
const FIRST_PORT_REGISTER: u16 = 0x5000;
/// Smallest Ethernet payload that IPv4 allows.
const MINIMUM_MTU: u16 = 68;

/// `op_mod`: 0 writes, 1 reads. A write returns the new contents of the register.
pub(super) fn access(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &AccessRegisterIn,
    _: &mut AccessRegisterOut,
) -> Result<(), Refusal> {
    let write = match call.op_mod() {
        0 => true,
        1 => false,
        _ => return Err(syndrome::BAD_OP_MOD),
    };
    let data = call.input.get(AccessRegisterIn::REGISTER_DATA_OFFSET..).unwrap_or(&[]);
    let mut data = data[..data.len().min(LARGEST)].to_vec();
    if !write && data.len() >= NAMED {
        data.resize(data.len().max(LARGEST), 0);
    }
    let data = &data;
    call.tail = match input.register_id() {
        RegisterId::HostEndianness => host_endianness(data, write),
        RegisterId::Pmtu => port_mtu(nic, data, write),
        RegisterId::Ptys => port_type_and_speed(nic, data, write),
        RegisterId::Paos => port_state(nic, data, write),
        RegisterId::Pvlc => virtual_lanes(nic, data, write),
        RegisterId::NodeDesc => node_description(nic, call.now, data, write),
        RegisterId::Ppcnt => port_counters::access(nic, data, write),
        RegisterId::Pcam => port_registers(nic, data, write),
        other if !nic.shared.port.is_infiniband() => ethernet_register(nic, other, data, write),
        _ => Err(syndrome::REGISTER_UNKNOWN),
    }?;
    Ok(())
}

fn ethernet_register(nic: &mut Nic, id: RegisterId, data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    match id {
        RegisterId::Pfcc => port_register::flow_control(&mut nic.flow, data, write),
        RegisterId::Pplm => port_register::error_correction(nic, data, write),
        RegisterId::Pmlp => port_register::module_lanes(data, write),
        _ => Err(syndrome::REGISTER_UNKNOWN),
    }
}

/// The host is little-endian. One that declares itself big-endian is refused.
fn host_endianness(data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    let requested: HostEndiannessRegister = read(data)?;
    if write && requested.he() {
        return Err(syndrome::REGISTER_VALUE);
    }
    bytes(&HostEndiannessRegister::new())
}

fn port_mtu(nic: &mut Nic, data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    let requested: PmtuRegister = read(data)?;
    check_port(requested.local_port())?;
    if write {
        if !(MINIMUM_MTU..=nic.config.mtu).contains(&requested.admin_mtu()) {
            return Err(syndrome::REGISTER_VALUE);
        }
        nic.firmware.admin_mtu = requested.admin_mtu();
    }
    let mut register = PmtuRegister::new();
    register.set_local_port(1).set_max_mtu(nic.config.mtu);
    register.set_admin_mtu(nic.firmware.admin_mtu).set_oper_mtu(nic.firmware.admin_mtu);
    bytes(&register)
}

fn port_type_and_speed(nic: &Nic, data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    let requested: PtysRegister = read(data)?;
    check_port(requested.local_port())?;
    if write {
        return Err(syndrome::REGISTER_READ_ONLY);
    }
    let mut register = PtysRegister::new();
    register.set_local_port(1);
    if nic.config.link_layer == LinkLayer::InfiniBand {
        let (width, speed) = nic.config.speed.infiniband_protocol();
        let (running_width, running_speed) = nic.config.link_speed().infiniband_protocol();
        register.set_proto_mask(INFINIBAND);
        register.set_ib_link_width_capability(width).set_ib_proto_capability(speed);
        register.set_ib_link_width_admin(width).set_ib_proto_admin(speed);
        if nic.shared.port.is_up() {
            register.set_ib_link_width_oper(running_width).set_ib_proto_oper(running_speed);
        }
        return bytes(&register);
    }
    let speed = nic.config.speed.ethernet_protocol();
    register.set_proto_mask(ETHERNET);
    register.set_eth_proto_capability(speed).set_eth_proto_admin(speed);
    let running = nic.config.link_speed().ethernet_protocol();
    register.set_eth_proto_oper(if nic.shared.port.is_up() { running } else { 0 });
    bytes(&register)
}

/// Status 1 is up, 2 is down.
fn port_state(nic: &mut Nic, data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    let requested: PaosRegister = read(data)?;
    check_port(requested.local_port())?;
    let was_up = nic.shared.port.is_up();
    if write && requested.ase() {
        nic.shared.port.link.set_wanted(match requested.admin_status() {
            1 => true,
            2 => false,
            _ => return Err(syndrome::REGISTER_VALUE),
        });
        nic.link_changed |= nic.shared.port.is_up() != was_up;
        nic.times_down += u64::from(was_up && !nic.shared.port.is_up());
    }
    let mut register = PaosRegister::new();
    register.set_local_port(1).set_admin_status(if nic.shared.port.link.is_wanted() { 1 } else { 2 });
    register.set_oper_status(if nic.shared.port.is_up() { 1 } else { 2 });
    bytes(&register)
}

/// Which of the registers 0x5000 to 0x507f the port has, and no enhanced features of them.
fn port_registers(nic: &Nic, data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    let requested: PcamRegister = read(data)?;
    if write {
        return Err(syndrome::REGISTER_READ_ONLY);
    }
    if requested.feature_group() != 0 || requested.access_reg_group() != 0 {
        return Err(syndrome::REGISTER_VALUE);
    }
    let mut register = PcamRegister::new();
    let mask = register.registers_mut();
    mask.set_registers_127_to_96(bit(RegisterId::Pcam, 96)).set_ppcnt(true);
    let common = [RegisterId::Pmtu, RegisterId::Ptys, RegisterId::Paos].map(|id| bit(id, 0) as u8);
    let common = common.iter().fold(0, |mask, bit| mask | bit);
    if nic.shared.port.is_infiniband() {
        mask.set_registers_7_to_0(common).set_registers_31_to_13(bit(RegisterId::Pvlc, 13));
    } else {
        let ethernet = bit(RegisterId::Pfcc, 0) | bit(RegisterId::Pmlp, 0);
        mask.set_registers_7_to_0(common | ethernet as u8).set_pplm(true);
    }
    bytes(&register)
}

/// The bit of a register in the part of the mask that begins with register 0x5000 + `first`.
const fn bit(id: RegisterId, first: u16) -> u32 {
    1 << (id.raw() - FIRST_PORT_REGISTER - first)
}

/// One virtual lane.
fn virtual_lanes(nic: &Nic, data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    let requested: PvlcRegister = read(data)?;
    check_port(requested.local_port())?;
    if nic.config.link_layer != LinkLayer::InfiniBand {
        return Err(syndrome::LINK_LAYER);
    }
    if write && requested.vl_admin() != 1 {
        return Err(syndrome::REGISTER_VALUE);
    }
    let mut register = PvlcRegister::new();
    register.set_local_port(1).set_vl_hw_cap(1).set_vl_admin(1).set_vl_operational(1);
    bytes(&register)
}

fn node_description(nic: &mut Nic, now: Time, data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    if write {
        let requested = read(data)?;
        if nic.firmware.node_description != requested {
            nic.firmware.node_description = requested;
            nic.shared.port.note_description(now);
        }
    }
    Ok(nic.firmware.node_description.to_vec())
}
