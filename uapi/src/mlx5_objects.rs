//! `mlx5-abi.h`: what mlx5's provider adds to the creation of objects.

structures! {
    pub struct Mlx5QueryPort = "mlx5_ib_uapi_query_port" {
        flags: u64,
        vport: u16,
        vport_vhca_id: u16,
        esw_owner_vhca_id: u16,
        rsvd0: u16,
        vport_steering_icm_rx: u64,
        vport_steering_icm_tx: u64,
        reg_c0: u64,
    }

    pub struct Mlx5CreateCq = "mlx5_ib_create_cq" {
        buf_addr: u64,
        db_addr: u64,
        cqe_size: u32,
        cqe_comp_en: u8,
        cqe_comp_res_format: u8,
        flags: u16,
        uar_page_index: u16,
        reserved0: u16,
        reserved1: u32,
    }

    pub struct Mlx5CreateCqResp = "mlx5_ib_create_cq_resp" { cqn: u32, reserved: u32 }

    pub struct Mlx5ResizeCq = "mlx5_ib_resize_cq" {
        buf_addr: u64,
        cqe_size: u16,
        reserved0: u16,
        reserved1: u32,
    }

    pub struct Mlx5CreateQp = "mlx5_ib_create_qp" {
        buf_addr: u64,
        db_addr: u64,
        sq_wqe_count: u32,
        rq_wqe_count: u32,
        rq_wqe_shift: u32,
        flags: u32,
        uidx: u32,
        bfreg_index: u32,
        sq_buf_addr: u64,
        ece_options: u32,
        dci_streams: u16,
        reserved: u16,
    }

    pub struct Mlx5CreateQpResp = "mlx5_ib_create_qp_resp" {
        bfreg_index: u32,
        ece_options: u32,
        comp_mask: u32,
        tirn: u32,
        tisn: u32,
        rqn: u32,
        sqn: u32,
        reserved1: u32,
        tir_icm_addr: u64,
    }

    pub struct Mlx5ModifyQp = "mlx5_ib_modify_qp" {
        comp_mask: u32,
        burst_info: [u32; 2],
        ece_options: u32,
    }

    pub struct Mlx5ModifyQpResp = "mlx5_ib_modify_qp_resp" {
        response_length: u32,
        dctn: u32,
        ece_options: u32,
        reserved: u32,
    }

    pub struct Mlx5CreateSrq = "mlx5_ib_create_srq" {
        buf_addr: u64,
        db_addr: u64,
        flags: u32,
        reserved0: u32,
        uidx: u32,
        reserved1: u32,
    }

    pub struct Mlx5CreateSrqResp = "mlx5_ib_create_srq_resp" { srqn: u32, reserved: u32 }

    pub struct Mlx5CreateAhResp = "mlx5_ib_create_ah_resp" {
        response_length: u32,
        dmac: [u8; 6],
        reserved: [u8; 6],
    }

    pub struct Mlx5AllocMw = "mlx5_ib_alloc_mw" {
        comp_mask: u32,
        num_klms: u8,
        reserved1: u8,
        reserved2: u16,
    }
}
