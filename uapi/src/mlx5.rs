//! `mlx5-abi.h`: what mlx5's provider adds.

structures! {
    pub struct AllocUcontextReq = "mlx5_ib_alloc_ucontext_req_v2" {
        total_num_bfregs: u32,
        num_low_latency_bfregs: u32,
        flags: u32,
        comp_mask: u32,
        max_cqe_version: u8,
        reserved0: u8,
        reserved1: u16,
        reserved2: u32,
        lib_caps: u64,
    }

    pub struct AllocUcontextResp = "mlx5_ib_alloc_ucontext_resp" {
        qp_tab_size: u32,
        bf_reg_size: u32,
        tot_bfregs: u32,
        cache_line_size: u32,
        max_sq_desc_sz: u16,
        max_rq_desc_sz: u16,
        max_send_wqebb: u32,
        max_recv_wr: u32,
        max_srq_recv_wr: u32,
        num_ports: u16,
        flow_action_flags: u16,
        comp_mask: u32,
        response_length: u32,
        cqe_version: u8,
        cmds_supp_uhw: u8,
        eth_min_inline: u8,
        clock_info_versions: u8,
        hca_core_clock_offset: u64,
        log_uar_size: u32,
        num_uars_per_page: u32,
        num_dyn_bfregs: u32,
        dump_fill_mkey: u32,
    }

    pub struct TsoCaps = "mlx5_ib_tso_caps" { max_tso: u32, supported_qpts: u32 }

    pub struct Mlx5RssCaps = "mlx5_ib_rss_caps" {
        rx_hash_fields_mask: u64,
        rx_hash_function: u8,
        reserved: [u8; 7],
    }

    pub struct CqeCompCaps = "mlx5_ib_cqe_comp_caps" { max_num: u32, supported_format: u32 }

    pub struct PacketPacingCaps = "mlx5_packet_pacing_caps" {
        qp_rate_limit_min: u32,
        qp_rate_limit_max: u32,
        supported_qpts: u32,
        cap_flags: u8,
        reserved: [u8; 3],
    }

    pub struct SwParsingCaps = "mlx5_ib_sw_parsing_caps" { sw_parsing_offloads: u32, supported_qpts: u32 }

    pub struct StridingRqCaps = "mlx5_ib_striding_rq_caps" {
        min_single_stride_log_num_of_bytes: u32,
        max_single_stride_log_num_of_bytes: u32,
        min_single_wqe_log_num_of_strides: u32,
        max_single_wqe_log_num_of_strides: u32,
        supported_qpts: u32,
        reserved: u32,
    }

    pub struct DciStreamsCaps = "mlx5_ib_dci_streams_caps" {
        max_log_num_concurent: u8,
        max_log_num_errored: u8,
    }

    pub struct Mlx5QueryDeviceResp = "mlx5_ib_query_device_resp" {
        comp_mask: u32,
        response_length: u32,
        tso_caps: TsoCaps,
        rss_caps: Mlx5RssCaps,
        cqe_comp_caps: CqeCompCaps,
        packet_pacing_caps: PacketPacingCaps,
        mlx5_ib_support_multi_pkt_send_wqes: u32,
        flags: u32,
        sw_parsing_caps: SwParsingCaps,
        striding_rq_caps: StridingRqCaps,
        tunnel_offloads_caps: u32,
        dci_streams_caps: DciStreamsCaps,
        reserved: u16,
    }

    pub struct Mlx5ClockInfo = "mlx5_ib_clock_info" {
        sign: u32,
        resv: u32,
        nsec: u64,
        cycles: u64,
        frac: u64,
        mult: u32,
        shift: u32,
        mask: u64,
        overflow_period: u64,
    }

    pub struct Mlx5AllocPdResp = "mlx5_ib_alloc_pd_resp" { pdn: u32 }
}
