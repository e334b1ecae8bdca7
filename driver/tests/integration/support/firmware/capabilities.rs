//! Capability pages.

use super::Firmware;
use super::commands::{CommandResult, done, part};
use bareverbs_prm::command::caps::{AtomicCapabilities, GeneralCapabilities, RoceCapabilities};
use bareverbs_prm::numbering::{CommandStatus, PortType};
use zerocopy::IntoBytes;

pub(super) fn general() -> GeneralCapabilities {
    let mut page = GeneralCapabilities::new();
    page.set_log_max_qp(18)
        .set_log_max_qp_sz(15)
        .set_log_max_cq(24)
        .set_log_max_cq_sz(22)
        .set_log_max_mkey(24);
    page.set_log_max_eq(7).set_log_max_msg(30).set_log_max_ra_req_qp(4).set_log_max_ra_res_qp(4);
    page.set_port_type(PortType::Ethernet).set_num_ports(1).set_cqe_version(1).set_rc(true).set_atomic(true);
    page.set_log_max_srq(18).set_log_max_srq_sz(15);
    page.set_roce(true).set_roce_rw_supported(true).set_bf(true).set_log_bf_reg_size(9);
    page.set_max_wqe_sz_sq(1024).set_max_wqe_sz_rq(512).set_mkey_by_name(true).set_cmdif_checksum(3);
    page.set_imaicl(true).set_max_indirection(4).set_log_max_klm_list_size(16);
    page
}

pub(super) fn atomic() -> AtomicCapabilities {
    let mut page = AtomicCapabilities::new();
    page.set_supported_atomic_req_8b_endianness_mode_1(true).set_atomic_operations(3).set_atomic_size_qp(8);
    page
}

pub(super) fn roce() -> RoceCapabilities {
    let mut page = RoceCapabilities::new();
    page.set_roce_version(5).set_l3_type(6).set_roce_address_table_size(16).set_sw_r_roce_src_udp_port(true);
    page.set_r_roce_min_src_udp_port(0xc000).set_r_roce_max_src_udp_port(0xffff);
    page
}

impl Firmware {
    pub(super) fn capability(&self, op_mod: u16) -> CommandResult {
        let page: &[u8] = match op_mod >> 1 {
            0 => self.general.as_bytes(),
            3 => self.atomic.as_bytes(),
            4 => self.roce.as_bytes(),
            _ => return Err(CommandStatus::BadParameter),
        };
        Ok([&[0; 8], page].concat())
    }

    pub(super) fn set_capability(&mut self, op_mod: u16, input: &[u8]) -> CommandResult {
        match op_mod >> 1 {
            0 => self.general = part(input, 16)?,
            3 => self.atomic = part(input, 16)?,
            4 => self.roce = part(input, 16)?,
            _ => return Err(CommandStatus::BadParameter),
        }
        done()
    }
}
