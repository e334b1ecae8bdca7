//! `ib_user_verbs.h` and `ib_user_ioctl_verbs.h`: requests and responses about memory, queues and addresses.

structures! {
    pub struct RegMr = "ib_uverbs_reg_mr" {
        response: u64,
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }

    pub struct RegMrResp = "ib_uverbs_reg_mr_resp" { mr_handle: u32, lkey: u32, rkey: u32 }

    pub struct ReregMr = "ib_uverbs_rereg_mr" {
        response: u64,
        mr_handle: u32,
        flags: u32,
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }

    pub struct ReregMrResp = "ib_uverbs_rereg_mr_resp" { lkey: u32, rkey: u32 }

    pub struct AllocMw = "ib_uverbs_alloc_mw" {
        response: u64,
        pd_handle: u32,
        mw_type: u8,
        reserved: [u8; 3],
    }

    pub struct AllocMwResp = "ib_uverbs_alloc_mw_resp" { mw_handle: u32, rkey: u32 }

    pub struct CreateCompChannelResp = "ib_uverbs_create_comp_channel_resp" { fd: u32 }

    pub struct ResizeCq = "ib_uverbs_resize_cq" { response: u64, cq_handle: u32, cqe: u32 }

    pub struct ResizeCqResp = "ib_uverbs_resize_cq_resp" { cqe: u32, reserved: u32 }

    /// `attr` is a `ib_uverbs_cq_moderation`: count and period in microseconds.
    pub struct ExModifyCq = "ib_uverbs_ex_modify_cq" {
        cq_handle: u32,
        attr_mask: u32,
        attr: [u16; 2],
        reserved: u32,
    }

    pub struct DestroyCqResp = "ib_uverbs_destroy_cq_resp" {
        comp_events_reported: u32,
        async_events_reported: u32,
    }

    pub struct DestroyQpResp = "ib_uverbs_destroy_qp_resp" { events_reported: u32 }

    pub struct DestroySrqResp = "ib_uverbs_destroy_srq_resp" { events_reported: u32 }

    pub struct QpCap = "ib_uverbs_qp_cap" {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    pub struct QpDest = "ib_uverbs_qp_dest" {
        dgid: [u8; 16],
        flow_label: u32,
        dlid: u16,
        reserved: u16,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    pub struct QueryQp = "ib_uverbs_query_qp" { response: u64, qp_handle: u32, attr_mask: u32 }

    pub struct QueryQpResp = "ib_uverbs_query_qp_resp" {
        dest: QpDest,
        alt_dest: QpDest,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        sq_sig_all: u8,
        reserved: [u8; 5],
    }

    pub struct ModifyQp = "ib_uverbs_modify_qp" {
        dest: QpDest,
        alt_dest: QpDest,
        qp_handle: u32,
        attr_mask: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
        en_sqd_async_notify: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        reserved: [u8; 2],
    }

    pub struct ExModifyQp = "ib_uverbs_ex_modify_qp" { base: ModifyQp, rate_limit: u32, reserved: u32 }

    pub struct ExModifyQpResp = "ib_uverbs_ex_modify_qp_resp" { comp_mask: u32, response_length: u32 }

    pub struct GlobalRoute = "ib_uverbs_global_route" {
        dgid: [u8; 16],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        reserved: u8,
    }

    pub struct AhAttr = "ib_uverbs_ah_attr" {
        grh: GlobalRoute,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
        reserved: u8,
    }

    pub struct CreateAh = "ib_uverbs_create_ah" {
        response: u64,
        user_handle: u64,
        pd_handle: u32,
        reserved: u32,
        attr: AhAttr,
    }

    pub struct CreateAhResp = "ib_uverbs_create_ah_resp" { ah_handle: u32 }

    /// The same structure attaches and detaches.
    pub struct AttachMcast = "ib_uverbs_attach_mcast" {
        gid: [u8; 16],
        qp_handle: u32,
        mlid: u16,
        reserved: u16,
    }

    pub struct ModifySrq = "ib_uverbs_modify_srq" {
        srq_handle: u32,
        attr_mask: u32,
        max_wr: u32,
        srq_limit: u32,
    }

    pub struct QuerySrq = "ib_uverbs_query_srq" { response: u64, srq_handle: u32, reserved: u32 }

    pub struct QuerySrqResp = "ib_uverbs_query_srq_resp" {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
        reserved: u32,
    }

    pub struct OpenXrcd = "ib_uverbs_open_xrcd" { response: u64, fd: u32, oflags: u32 }

    pub struct OpenXrcdResp = "ib_uverbs_open_xrcd_resp" { xrcd_handle: u32 }
}
