//! Registers PCAM and PPLM: which registers the port has, and its forward error correction.

use super::host::Host;
use crate::nic::syndrome;
use crate::nic::{NicConfig, PortSpeed};
use bareverbs_prm::command::ethernet_port::{PcamRegister, PplmRegister};
use bareverbs_prm::command::hca::{AccessRegisterIn, AccessRegisterOut};
use bareverbs_prm::command::port::PaosRegister;
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::numbering::{CommandOpcode, RegisterId};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the longer of the two registers.
const LONGEST: usize = 80;
const NO_FEC: u32 = 1 << 0;
const RS_528_514: u32 = 1 << 2;

/// Reads or writes a register; a refusal is its syndrome.
fn access(host: &mut Host, id: RegisterId, write: bool, register: &[u8]) -> Result<Vec<u8>, u32> {
    let mut input = AccessRegisterIn::new();
    input.set_register_id(id);
    let op_mod = u16::from(!write);
    let result =
        host.command::<_, AccessRegisterOut>(CommandOpcode::AccessReg, op_mod, input, register, 16 + LONGEST);
    result.map(|(_, register)| register).map_err(|(_, syndrome)| syndrome)
}

fn pplm(host: &mut Host) -> PplmRegister {
    let mut register = PplmRegister::new();
    register.set_local_port(1);
    let bytes = access(host, RegisterId::Pplm, false, register.as_bytes()).unwrap();
    PplmRegister::read_from_prefix(&bytes).unwrap().0
}

fn pcam(host: &mut Host) -> PcamRegister {
    let bytes = access(host, RegisterId::Pcam, false, PcamRegister::new().as_bytes()).unwrap();
    PcamRegister::read_from_prefix(&bytes).unwrap().0
}

/// Each register of the list, by its number, is answered; what is not on it is unknown, or is for another link layer.
fn check_list(mut host: Host) {
    let list = pcam(&mut host);
    let mask = list.registers().as_bytes().iter().fold(0_u128, |mask, byte| mask << 8 | u128::from(*byte));
    assert_ne!(mask, 0);
    for bit in 0..0x80_u16 {
        let mut selector = [0; LONGEST];
        // The local port; PCAM has its feature group there, and no other than 0.
        selector[1] = u8::from(bit != 0x7f);
        let id = RegisterId::from_raw(0x5000 + bit);
        let refusal = match id {
            // On an Ethernet port.
            RegisterId::Pvlc => syndrome::LINK_LAYER,
            _ => syndrome::REGISTER_UNKNOWN,
        };
        let result = access(&mut host, id, false, &selector);
        let is_missing = result.is_err_and(|why| why == refusal.syndrome);
        assert_eq!(mask >> bit & 1 == 0, is_missing, "register {:#x}", 0x5000 + bit);
    }
}

#[test]
fn pcam_lists_the_registers_that_the_port_answers() {
    check_list(Host::booted(NicConfig::default()));
    check_list(Host::booted(NicConfig::infiniband(MacAddress([2, 0, 0, 0, 0, 1]))));
}

#[test]
fn pcam_has_one_group_and_is_read_only() {
    let mut host = Host::booted(NicConfig::default());
    assert_eq!(pcam(&mut host).features().as_bytes(), [0; 16], "no enhanced features");
    let mut register = PcamRegister::new();
    let written = access(&mut host, RegisterId::Pcam, true, register.as_bytes());
    assert_eq!(written, Err(syndrome::REGISTER_READ_ONLY.syndrome));
    register.set_feature_group(1);
    let other = access(&mut host, RegisterId::Pcam, false, register.as_bytes());
    assert_eq!(other, Err(syndrome::REGISTER_VALUE.syndrome));
    register.set_feature_group(0).set_access_reg_group(1);
    let other = access(&mut host, RegisterId::Pcam, false, register.as_bytes());
    assert_eq!(other, Err(syndrome::REGISTER_VALUE.syndrome));
}

#[test]
fn error_correction_follows_the_speed_of_the_link() {
    let config = NicConfig::default();
    for (speed, active) in [
        (PortSpeed::Gbps10, NO_FEC),
        (PortSpeed::Gbps25, RS_528_514),
        (PortSpeed::Gbps40, NO_FEC),
        (PortSpeed::Gbps50, RS_528_514),
        (PortSpeed::Gbps100, RS_528_514),
    ] {
        let register = pplm(&mut Host::booted(NicConfig { cable: Some(speed), ..config }));
        assert_eq!(register.fec_mode_active(), active, "{speed:?}");
        assert_eq!(u32::from(register.fec_override_cap_100g()), RS_528_514, "the port could do more");
        let port = pplm(&mut Host::booted(NicConfig { speed, ..config }));
        assert_eq!(port.fec_mode_active(), active, "{speed:?}");
        assert_eq!(u32::from(port.fec_override_cap_10g_40g()), NO_FEC);
        assert_eq!(port.fec_override_cap_100g() != 0, speed == PortSpeed::Gbps100, "{speed:?}");
        assert_eq!(port.fec_override_cap_25g() != 0, speed != PortSpeed::Gbps10, "{speed:?}");
    }
}

#[test]
fn without_a_link_no_error_correction_is_active() {
    let mut host = Host::booted(NicConfig::default());
    let mut paos = PaosRegister::new();
    paos.set_local_port(1).set_admin_status(2).set_ase(true);
    access(&mut host, RegisterId::Paos, true, paos.as_bytes()).unwrap();
    let register = pplm(&mut host);
    assert_eq!((register.fec_mode_active(), u32::from(register.fec_override_cap_100g())), (0, RS_528_514));
    paos.set_admin_status(1);
    access(&mut host, RegisterId::Paos, true, paos.as_bytes()).unwrap();
    let mut register = pplm(&mut host);
    assert_eq!(register.fec_mode_active(), RS_528_514);
    register.set_fec_override_admin_100g(1);
    let written = access(&mut host, RegisterId::Pplm, true, register.as_bytes());
    assert_eq!(written, Err(syndrome::REGISTER_READ_ONLY.syndrome), "the mode cannot be chosen");
}
