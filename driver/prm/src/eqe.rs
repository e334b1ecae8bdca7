//! Event queue entries (PRM, event queue entry format).

use crate::ids::{Cqn, Qpn};
use crate::layout;
use crate::numbering::{CqErrorSyndrome, EventType};

/// Bytes of an event queue entry.
pub const EQE_SIZE: usize = 64;
/// Offset of the byte that carries the owner bit; the device writes it last.
pub const OWNER_OFFSET: usize = 63;

layout! {
    /// An event queue entry of 64 bytes; the data are one of the `*Event` layouts of this module.
    pub struct EventEntry, "mlx5_eqe", 16;
    bits kind / set_kind: EventType = 0[23:16], "type";
    bits sub_type / set_sub_type: u8 = 0[7:0], "sub_type";
    bytes data / set_data: 28 = 8, "data";
    bits signature / set_signature: u8 = 15[15:8], "signature";
    bits owner / set_owner: bool = 15[0:0], "owner.owner";
}

layout! {
    /// Data of a completion event.
    pub struct CompletionEvent, "mlx5_eqe_comp", 7;
    bits cqn / set_cqn: Cqn = 6[23:0], "cqn.cqn";
}

layout! {
    /// Data of a command completion event.
    pub struct CommandEvent, "mlx5_eqe_cmd", 7;
    /// Bit `n` is set if the command of slot `n` has completed.
    bits vector / set_vector: u32 = 0[31:0], "vector";
}

layout! {
    /// Data of a page request event.
    pub struct PageRequestEvent, "mlx5_eqe_page_req", 7;
    bits embedded_cpu / set_embedded_cpu: bool = 0[31:31], "ec_function.ec_function";
    bits release_all / set_release_all: bool = 0[30:30], "ec_function.release_all_pages";
    bits function_id / set_function_id: u16 = 0[15:0], "func_id";
    /// Signed: negative when the device gives pages back.
    bits num_pages / set_num_pages: u32 = 1[31:0], "num_pages";
}

layout! {
    /// Data of a CQ error event.
    pub struct CqErrorEvent, "mlx5_eqe_cq_err", 3;
    bits cqn / set_cqn: Cqn = 0[23:0], "cqn.cqn";
    bits syndrome / set_syndrome: CqErrorSyndrome = 2[7:0], "syndrome";
}

layout! {
    /// Data of queue pair and shared receive queue events.
    pub struct QueueEvent, "mlx5_eqe_qp_srq", 7;
    /// 0 a queue pair, 1 a receive queue, 2 a send queue.
    bits kind / set_kind: u8 = 5[31:24], "type";
    bits number / set_number: Qpn = 6[23:0], "qp_srq_n.number";
}

layout! {
    /// Data of a port change event; the port is in the upper half of a byte.
    pub struct PortEvent, "mlx5_eqe_port_state", 7;
    bits port / set_port: u8 = 2[31:28], "port.port";
}
