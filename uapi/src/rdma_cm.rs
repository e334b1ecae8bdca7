//! `rdma_user_cm.h` and `ib_user_sa.h`: commands that are written to `/dev/infiniband/rdma_cm`, and what is read back.
//!
//! Socket addresses are bytes here: `rdma_cm::address` reads them. A `sockaddr_in6` has 28 bytes, a
//! `__kernel_sockaddr_storage` 128.

use super::AhAttr;

/// Revision of the interface; a macro in the header.
pub const RDMA_USER_CM_ABI_VERSION: u32 = 4;
/// Bytes of a `struct sockaddr_in6`.
pub const SOCKADDR_IN6: usize = 28;
/// Bytes of a `struct __kernel_sockaddr_storage`.
pub const SOCKADDR_STORAGE: usize = 128;

structures! {
    /// The header of every command.
    pub struct CmHeader = "rdma_ucm_cmd_hdr" { cmd: u32, r#in: u16, out: u16 }

    pub struct CmCreateId = "rdma_ucm_create_id" {
        uid: u64,
        response: u64,
        ps: u16,
        qp_type: u8,
        reserved: [u8; 5],
    }
    pub struct CmCreateIdResp = "rdma_ucm_create_id_resp" { id: u32 }

    pub struct CmDestroyId = "rdma_ucm_destroy_id" { response: u64, id: u32, reserved: u32 }
    pub struct CmDestroyIdResp = "rdma_ucm_destroy_id_resp" { events_reported: u32 }

    pub struct CmBindIp = "rdma_ucm_bind_ip" { response: u64, addr: [u8; SOCKADDR_IN6], id: u32 }
    pub struct CmBind = "rdma_ucm_bind" {
        id: u32,
        addr_size: u16,
        reserved: u16,
        addr: [u8; SOCKADDR_STORAGE],
    }

    pub struct CmResolveIp = "rdma_ucm_resolve_ip" {
        src_addr: [u8; SOCKADDR_IN6],
        dst_addr: [u8; SOCKADDR_IN6],
        id: u32,
        timeout_ms: u32,
    }
    pub struct CmResolveAddr = "rdma_ucm_resolve_addr" {
        id: u32,
        timeout_ms: u32,
        src_size: u16,
        dst_size: u16,
        reserved: u32,
        src_addr: [u8; SOCKADDR_STORAGE],
        dst_addr: [u8; SOCKADDR_STORAGE],
    }
    pub struct CmResolveRoute = "rdma_ucm_resolve_route" { id: u32, timeout_ms: u32 }

    pub struct CmQuery = "rdma_ucm_query" { response: u64, id: u32, option: u32 }
    pub struct CmQueryRouteResp = "rdma_ucm_query_route_resp" {
        node_guid: u64,
        ib_route: [UserPathRecord; 2],
        src_addr: [u8; SOCKADDR_IN6],
        dst_addr: [u8; SOCKADDR_IN6],
        num_paths: u32,
        port_num: u8,
        reserved: [u8; 3],
        ibdev_index: u32,
        reserved1: u32,
    }
    pub struct CmQueryAddrResp = "rdma_ucm_query_addr_resp" {
        node_guid: u64,
        port_num: u8,
        reserved: u8,
        pkey: u16,
        src_size: u16,
        dst_size: u16,
        src_addr: [u8; SOCKADDR_STORAGE],
        dst_addr: [u8; SOCKADDR_STORAGE],
        ibdev_index: u32,
        reserved1: u32,
    }
    /// Path records follow.
    pub struct CmQueryPathResp = "rdma_ucm_query_path_resp" { num_paths: u32, reserved: u32 }

    pub struct CmConnParam = "rdma_ucm_conn_param" {
        qp_num: u32,
        qkey: u32,
        private_data: [u8; 256],
        private_data_len: u8,
        srq: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        valid: u8,
    }
    pub struct CmUdParam = "rdma_ucm_ud_param" {
        qp_num: u32,
        qkey: u32,
        ah_attr: AhAttr,
        private_data: [u8; 256],
        private_data_len: u8,
        reserved: [u8; 7],
    }
    pub struct CmEce = "rdma_ucm_ece" { vendor_id: u32, attr_mod: u32 }
    pub struct CmConnect = "rdma_ucm_connect" { conn_param: CmConnParam, id: u32, reserved: u32, ece: CmEce }
    pub struct CmListen = "rdma_ucm_listen" { id: u32, backlog: u32 }
    pub struct CmAccept = "rdma_ucm_accept" {
        uid: u64,
        conn_param: CmConnParam,
        id: u32,
        reserved: u32,
        ece: CmEce,
    }
    pub struct CmReject = "rdma_ucm_reject" {
        id: u32,
        private_data_len: u8,
        reason: u8,
        reserved: [u8; 2],
        private_data: [u8; 256],
    }
    pub struct CmDisconnect = "rdma_ucm_disconnect" { id: u32 }
    pub struct CmInitQpAttr = "rdma_ucm_init_qp_attr" { response: u64, id: u32, qp_state: u32 }
    pub struct CmNotify = "rdma_ucm_notify" { id: u32, event: u32 }
    pub struct CmJoinIpMulticast = "rdma_ucm_join_ip_mcast" {
        response: u64,
        uid: u64,
        addr: [u8; SOCKADDR_IN6],
        id: u32,
    }
    pub struct CmJoinMulticast = "rdma_ucm_join_mcast" {
        response: u64,
        uid: u64,
        id: u32,
        addr_size: u16,
        join_flags: u16,
        addr: [u8; SOCKADDR_STORAGE],
    }
    pub struct CmGetEvent = "rdma_ucm_get_event" { response: u64 }
    /// `param` is a [`CmConnParam`] or a [`CmUdParam`].
    pub struct CmEventResp = "rdma_ucm_event_resp" {
        uid: u64,
        id: u32,
        event: u32,
        status: u32,
        param: [u8; 304],
        reserved: u32,
        ece: CmEce,
    }
    pub struct CmSetOption = "rdma_ucm_set_option" {
        optval: u64,
        id: u32,
        level: u32,
        optname: u32,
        optlen: u32,
    }
    pub struct CmMigrateId = "rdma_ucm_migrate_id" { response: u64, id: u32, fd: u32 }
    pub struct CmMigrateResp = "rdma_ucm_migrate_resp" { events_reported: u32 }

    /// A path record for old libraries; numbers of the subnet in big-endian order.
    pub struct UserPathRecord = "ib_user_path_rec" {
        dgid: [u8; 16],
        sgid: [u8; 16],
        dlid: u16,
        slid: u16,
        raw_traffic: u32,
        flow_label: u32,
        reversible: u32,
        mtu: u32,
        pkey: u16,
        hop_limit: u8,
        traffic_class: u8,
        numb_path: u8,
        sl: u8,
        mtu_selector: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }
    /// A path record in the subnet administration's format (IBTA v1.4 §15.2.5.16).
    pub struct PathRecordData = "ib_path_rec_data" { flags: u32, reserved: u32, path_rec: [u8; 64] }

    /// The attributes to set on a queue pair.
    pub struct UverbsQpAttr = "ib_uverbs_qp_attr" {
        qp_attr_mask: u32,
        qp_state: u32,
        cur_qp_state: u32,
        path_mtu: u32,
        path_mig_state: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        ah_attr: AhAttr,
        alt_ah_attr: AhAttr,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
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
        reserved: [u8; 5],
    }
}

numbers! {
    RDMA_USER_CM_CMD_CREATE_ID: u32 = 0;
    RDMA_USER_CM_CMD_DESTROY_ID: u32 = 1;
    RDMA_USER_CM_CMD_BIND_IP: u32 = 2;
    RDMA_USER_CM_CMD_RESOLVE_IP: u32 = 3;
    RDMA_USER_CM_CMD_RESOLVE_ROUTE: u32 = 4;
    RDMA_USER_CM_CMD_QUERY_ROUTE: u32 = 5;
    RDMA_USER_CM_CMD_CONNECT: u32 = 6;
    RDMA_USER_CM_CMD_LISTEN: u32 = 7;
    RDMA_USER_CM_CMD_ACCEPT: u32 = 8;
    RDMA_USER_CM_CMD_REJECT: u32 = 9;
    RDMA_USER_CM_CMD_DISCONNECT: u32 = 10;
    RDMA_USER_CM_CMD_INIT_QP_ATTR: u32 = 11;
    RDMA_USER_CM_CMD_GET_EVENT: u32 = 12;
    RDMA_USER_CM_CMD_GET_OPTION: u32 = 13;
    RDMA_USER_CM_CMD_SET_OPTION: u32 = 14;
    RDMA_USER_CM_CMD_NOTIFY: u32 = 15;
    RDMA_USER_CM_CMD_JOIN_IP_MCAST: u32 = 16;
    RDMA_USER_CM_CMD_LEAVE_MCAST: u32 = 17;
    RDMA_USER_CM_CMD_MIGRATE_ID: u32 = 18;
    RDMA_USER_CM_CMD_QUERY: u32 = 19;
    RDMA_USER_CM_CMD_BIND: u32 = 20;
    RDMA_USER_CM_CMD_RESOLVE_ADDR: u32 = 21;
    RDMA_USER_CM_CMD_JOIN_MCAST: u32 = 22;
    RDMA_PS_IPOIB: u16 = 0x0002;
    RDMA_PS_IB: u16 = 0x013f;
    RDMA_PS_TCP: u16 = 0x0106;
    RDMA_PS_UDP: u16 = 0x0111;
    RDMA_USER_CM_QUERY_ADDR: u32 = 0;
    RDMA_USER_CM_QUERY_PATH: u32 = 1;
    RDMA_USER_CM_QUERY_GID: u32 = 2;
    RDMA_OPTION_ID: u32 = 0;
    RDMA_OPTION_IB: u32 = 1;
    RDMA_OPTION_ID_TOS: u32 = 0;
    RDMA_OPTION_ID_REUSEADDR: u32 = 1;
    RDMA_OPTION_ID_AFONLY: u32 = 2;
    RDMA_OPTION_ID_ACK_TIMEOUT: u32 = 3;
    RDMA_OPTION_IB_PATH: u32 = 1;
}
