//! Device attributes, queried from firmware once at boot.

use crate::mapping::CLOCK_INFO_VERSIONS;
use crate::uapi::{
    AllocUcontextResp, CqModerationCaps, ExQueryDeviceResp, IB_UVERBS_DEVICE_BAD_PKEY_CNTR,
    IB_UVERBS_DEVICE_BAD_QKEY_CNTR, IB_UVERBS_DEVICE_CHANGE_PHY_PORT, IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS,
    IB_UVERBS_DEVICE_MEM_WINDOW, IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B, IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT,
    IB_UVERBS_DEVICE_RC_RNR_NAK_GEN, IB_UVERBS_DEVICE_SYS_IMAGE_GUID, IB_UVERBS_DEVICE_XRC,
    MLX5_USER_CMDS_SUPP_UHW_CREATE_AH, MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE, Mlx5QueryDeviceResp,
    QueryDeviceResp,
};
use alloc::vec::Vec;
use bareverbs_prm::command::caps::{AtomicCapabilities, GeneralCapabilities, RoceCapabilities};
use bareverbs_prm::ids::Gid;
use zerocopy::FromZeros;

/// Bytes of a data segment, a control segment and a remote address segment.
const SEGMENT: u32 = 16;
/// mlx5's own limit of a send WQE, whatever the device could do.
const LONGEST_SEND_WQE: u32 = 512;
/// Bytes between doorbell records.
const CACHE_LINE: u32 = 64;
/// Compare and swap, fetch and add.
const BASIC_ATOMICS: u16 = 0b11;
/// Bit of `atomic_size_qp` for 8 bytes.
const EIGHT_BYTES: u16 = 1 << 3;
/// `IB_ATOMIC_HCA`: atomic among the accesses of this device.
const ATOMIC_HCA: u32 = 1;
/// Entries of a P_Key table whose size code is 0.
const PKEYS: u16 = 128;
/// Longest period of moderation in microseconds.
pub(crate) const LONGEST_PERIOD: u16 = 0xfff;
/// `MLX5_IB_TIMESTAMP_MASK`: time stamps of completions have 63 bits.
const TIMESTAMP_MASK: u64 = u64::MAX >> 1;
/// The port needs no inline headers.
const NO_INLINE_HEADERS: u8 = 1;

/// Device attributes as reported by firmware.
#[derive(Debug, Clone)]
pub struct DeviceAttributes {
    /// Major, minor, subminor.
    pub firmware_revision: [u16; 3],
    /// PCI device ID.
    pub device_id: u16,
    /// IEEE vendor ID (OUI).
    pub vendor_id: u32,
    /// PSID of the board, zero-terminated.
    pub board_id: [u8; 16],
    /// Node GUID (EUI-64).
    pub node_guid: u64,
    /// System image GUID (EUI-64) of the card.
    pub system_image_guid: u64,
    /// GIDs of port 1, for RoCEv2 or InfiniBand.
    pub gids: Vec<Gid>,
    /// State of an InfiniBand port; `None` on Ethernet.
    pub infiniband: Option<InfiniBandPort>,
    pub(crate) general: GeneralCapabilities,
    pub(crate) atomic: AtomicCapabilities,
    pub(crate) roce: RoceCapabilities,
}

/// Attributes that the SM has given to an InfiniBand port (IBTA v1.4 §14.2.5.6), encoded as there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InfiniBandPort {
    /// Base LID.
    pub lid: u16,
    /// LMC: the port has `1 << lmc` LIDs.
    pub lmc: u8,
    /// LID of the SM.
    pub sm_lid: u16,
    /// SL of the SM.
    pub sm_sl: u8,
    /// Port state: 4 is active.
    pub state: u8,
    /// Port physical state: 5 is up.
    pub physical_state: u8,
    /// Capability mask.
    pub capabilities: u32,
    /// `SubnetTimeOut`: code of the longest time that a management packet may take.
    pub subnet_timeout: u8,
    /// P_Key violations and Q_Key violations.
    pub violations: [u16; 2],
}

impl DeviceAttributes {
    /// Entries of the port's GID table, most of them empty.
    pub(crate) fn gid_table_length(&self) -> u32 {
        match self.infiniband {
            Some(_) => 8 << self.general.gid_table_size().min(4),
            None => self.roce.roce_address_table_size().into(),
        }
    }

    /// Entries of the port's P_Key table: one on Ethernet.
    pub(crate) fn pkey_table_length(&self) -> u16 {
        match self.infiniband {
            Some(_) => PKEYS << self.general.pkey_table_size().min(5),
            None => 1,
        }
    }

    pub(crate) fn device_flags(&self) -> u32 {
        let general = &self.general;
        let always = IB_UVERBS_DEVICE_CHANGE_PHY_PORT
            | IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS
            | IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT
            | IB_UVERBS_DEVICE_SYS_IMAGE_GUID
            | IB_UVERBS_DEVICE_RC_RNR_NAK_GEN;
        let pkey = if general.pkv() { IB_UVERBS_DEVICE_BAD_PKEY_CNTR } else { 0 };
        let qkey = if general.qkv() { IB_UVERBS_DEVICE_BAD_QKEY_CNTR } else { 0 };
        let windows = if general.imaicl() {
            IB_UVERBS_DEVICE_MEM_WINDOW | IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B
        } else {
            0
        };
        let xrc = if general.xrc() { IB_UVERBS_DEVICE_XRC } else { 0 };
        always | pkey | qkey | windows | xrc
    }

    /// Atomics are offered if both operations support 8 bytes in host byte order.
    fn atomic_capability(&self) -> u32 {
        let operations = self.atomic.atomic_operations() & BASIC_ATOMICS == BASIC_ATOMICS;
        let size = self.atomic.atomic_size_qp() & EIGHT_BYTES != 0;
        let host_order = self.atomic.atomic_req_8b_endianness_mode() == 1;
        if operations && size && host_order { ATOMIC_HCA } else { 0 }
    }

    fn receive_segments(&self) -> u32 {
        u32::from(self.general.max_wqe_sz_rq()) / SEGMENT
    }

    fn send_segments(&self) -> u32 {
        let wqe = u32::from(self.general.max_wqe_sz_sq()).min(LONGEST_SEND_WQE);
        wqe.saturating_sub(2 * SEGMENT) / SEGMENT
    }

    /// Limits of objects, computed like `mlx5_ib` does. What this crate cannot create (raw packet queue pairs) is not
    /// offered, whatever the device supports.
    pub(crate) fn query_device(&self) -> QueryDeviceResp {
        let general = &self.general;
        let [major, minor, subminor] = self.firmware_revision.map(u64::from);
        let groups = 1_u32 << general.log_max_mcg();
        let initiator = 1 << general.log_max_ra_req_qp();
        let queue_pairs: u32 = 1 << general.log_max_qp();
        QueryDeviceResp {
            fw_ver: major << 32 | minor << 16 | subminor,
            node_guid: self.node_guid.to_be(),
            sys_image_guid: self.system_image_guid.to_be(),
            max_mr_size: u64::MAX,
            page_size_cap: !((1 << general.log_pg_sz()) - 1),
            vendor_id: self.vendor_id,
            vendor_part_id: self.device_id.into(),
            max_qp: queue_pairs,
            max_qp_wr: 1 << general.log_max_qp_sz(),
            device_cap_flags: self.device_flags(),
            max_sge: self.receive_segments().min(self.send_segments()),
            max_sge_rd: (LONGEST_SEND_WQE - 2 * SEGMENT) / SEGMENT,
            max_cq: 1 << general.log_max_cq(),
            max_cqe: (1 << general.log_max_cq_sz()) - 1,
            max_mr: 1 << general.log_max_mkey(),
            max_pd: 1 << general.log_max_pd(),
            max_qp_rd_atom: initiator,
            max_res_rd_atom: initiator.saturating_mul(queue_pairs),
            max_qp_init_rd_atom: 1 << general.log_max_ra_res_qp(),
            atomic_cap: self.atomic_capability(),
            max_mw: 1 << general.log_max_mkey(),
            max_mcast_grp: groups,
            max_mcast_qp_attach: general.max_qp_mcg(),
            max_total_mcast_qp_attach: groups.saturating_mul(general.max_qp_mcg()),
            max_ah: i32::MAX as u32,
            max_srq: 1 << general.log_max_srq(),
            max_srq_wr: (1 << general.log_max_srq_sz()) - 1,
            max_srq_sge: self.receive_segments() - 1,
            max_pkeys: PKEYS,
            local_ca_ack_delay: general.local_ca_ack_delay(),
            phys_port_cnt: general.num_ports(),
            ..QueryDeviceResp::new_zeroed()
        }
    }

    /// The extended attributes: adds the timestamp clock, in kHz.
    pub(crate) fn query_device_extended(&self) -> ExQueryDeviceResp {
        ExQueryDeviceResp {
            base: self.query_device(),
            response_length: size_of::<ExQueryDeviceResp>() as u32,
            timestamp_mask: TIMESTAMP_MASK,
            hca_core_clock: self.general.device_frequency_khz().into(),
            cq_moderation_caps: CqModerationCaps {
                max_cq_moderation_count: u16::MAX,
                max_cq_moderation_period: LONGEST_PERIOD,
                reserved: 0,
            },
            device_cap_flags_ex: self.device_flags().into(),
            ..ExQueryDeviceResp::new_zeroed()
        }
    }

    /// libmlx5's extended queries. None of those features are offered.
    pub(crate) fn query_device_mlx5(&self, length: usize) -> Mlx5QueryDeviceResp {
        let length = length.min(size_of::<Mlx5QueryDeviceResp>());
        Mlx5QueryDeviceResp { response_length: length as u32, ..Mlx5QueryDeviceResp::new_zeroed() }
    }

    /// What libmlx5 must know before it creates objects. Write-combining registers are not offered: they save a PCIe
    /// read, which a device in the same process does not do.
    pub(crate) fn user_context(&self, cqe_version: u8, length: usize) -> AllocUcontextResp {
        let general = &self.general;
        let work_requests = 1 << general.log_max_qp_sz();
        AllocUcontextResp {
            qp_tab_size: 1 << general.log_max_qp(),
            cache_line_size: CACHE_LINE,
            max_sq_desc_sz: general.max_wqe_sz_sq(),
            max_rq_desc_sz: general.max_wqe_sz_rq(),
            max_send_wqebb: work_requests,
            max_recv_wr: work_requests,
            max_srq_recv_wr: 1 << general.log_max_srq_sz(),
            num_ports: general.num_ports().into(),
            response_length: length.min(size_of::<AllocUcontextResp>()) as u32,
            cqe_version,
            cmds_supp_uhw: MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
            eth_min_inline: NO_INLINE_HEADERS,
            clock_info_versions: CLOCK_INFO_VERSIONS,
            log_uar_size: 12,
            num_uars_per_page: 1,
            num_dyn_bfregs: 1024,
            ..AllocUcontextResp::new_zeroed()
        }
    }
}
