//! Queries of a process that received an open device file and the handles of its objects
//! (`ibv_import_device`, `ibv_import_pd`, `ibv_import_mr`), and the response for a port without an embedded
//! switch (`mlx5dv_query_port`).

use crate::support;

use bareverbs_uverbs::Errno;
use bareverbs_uverbs::uapi::*;
use support::attribute;
use support::libmlx5::*;

#[test]
fn query_context_returns_what_the_context_was_created_with() {
    let mut peer = Peer::new("a");
    let at = peer.allocate(256);
    let attributes = [
        attribute(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, 4, at),
        attribute(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, 8, at + 8),
        attribute(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, size_of::<AllocUcontextResp>(), at + 16),
    ];
    peer.call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, &attributes).unwrap();
    let vectors: u32 = peer.read(at);
    let support: u64 = peer.read(at + 8);
    let told: AllocUcontextResp = peer.read(at + 16);
    assert!(vectors > 0);
    assert_eq!(support, IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS);
    assert_eq!((told.cqe_version, told.num_ports, told.log_uar_size), (1, 1, 12));
    assert_eq!(told.response_length as usize, size_of::<AllocUcontextResp>());
}

#[test]
fn queries_by_handle_return_a_region_and_its_domain() {
    let mut peer = Peer::new("a");
    let (data, at) = (peer.allocate(4096), peer.allocate(64));
    let region = peer.reg_mr(data, 4096, 0).unwrap();
    let asked = |handle: u32| {
        [
            attribute(UVERBS_ATTR_QUERY_MR_HANDLE, 0, handle.into()),
            attribute(UVERBS_ATTR_QUERY_MR_RESP_LKEY, 4, at),
            attribute(UVERBS_ATTR_QUERY_MR_RESP_RKEY, 4, at + 4),
            attribute(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, 8, at + 8),
            attribute(UVERBS_ATTR_QUERY_MR_RESP_IOVA, 8, at + 16),
        ]
    };
    peer.call(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, &asked(region.mr_handle)).unwrap();
    assert_eq!(peer.read::<[u32; 2]>(at), [region.lkey, region.rkey]);
    assert_eq!(peer.read::<[u64; 2]>(at + 8), [4096, data]);
    let of_no_region = peer.call(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, &asked(peer.pd));
    assert_eq!(of_no_region.unwrap_err(), Errno::Invalid);

    let domain = |handle: u32| {
        [
            attribute(MLX5_IB_ATTR_QUERY_PD_HANDLE, 0, handle.into()),
            attribute(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, 4, at),
        ]
    };
    let (first, other) = (peer.pd, peer.alloc_pd());
    let numbers = [first, other].map(|handle| {
        peer.call(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, &domain(handle)).unwrap();
        peer.read::<u32>(at)
    });
    assert_ne!(numbers[0], numbers[1]);
    let of_no_domain = peer.call(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, &domain(region.mr_handle));
    assert_eq!(of_no_domain.unwrap_err(), Errno::Invalid);
}

#[test]
fn query_port_returns_zeros_for_the_only_port() {
    let mut peer = Peer::new("a");
    let at = peer.allocate(64);
    peer.program.put(at, &[0xff; 40]);
    let asked = |port: u64| {
        [
            attribute(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, 4, port),
            attribute(MLX5_IB_ATTR_QUERY_PORT, size_of::<Mlx5QueryPort>(), at),
        ]
    };
    peer.call(UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT, &asked(1)).unwrap();
    assert_eq!(peer.read::<[u64; 5]>(at), [0; 5]);
    let of_another = peer.call(UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT, &asked(2));
    assert_eq!(of_another.unwrap_err(), Errno::Invalid);
}
