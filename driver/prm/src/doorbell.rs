//! Doorbell records in host memory, registers of a UAR page, and registers of the initialization segment that drivers
//! address singly (PRM, UAR page format and doorbell records).

use crate::ids::{Cqn, Eqn, Qpn};
use crate::layout;
use crate::wqe::ControlSegment;

/// Bytes between UAR pages in BAR0.
pub const UAR_PAGE_SIZE: usize = 4096;

/// Byte offsets in a UAR page.
pub mod uar {
    /// CQ doorbell, 8 bytes: a [`CqArm`](super::CqArm) word and the CQN.
    pub const CQ_ARM: usize = 0x20;
    /// EQ doorbell that arms, 4 bytes.
    pub const EQ_ARM: usize = 0x40;
    /// EQ doorbell that only moves the consumer index, 4 bytes.
    pub const EQ_CONSUME: usize = 0x48;
    /// First send doorbell, 8 bytes; also the first BlueFlame register.
    pub const SEND: usize = 0x800;
    /// BlueFlame registers of one page: two regular, two of the fast path.
    pub const BLUEFLAME_REGISTERS: usize = 4;
}

/// Byte offsets in the initialization segment of the registers that are written or polled.
pub mod init_segment {
    /// Firmware revision: minor, major.
    pub const FW_REV: usize = 0x00;
    /// Command interface revision and firmware subminor revision.
    pub const CMDIF_REV: usize = 0x04;
    /// Command queue address, high half; written first.
    pub const CMDQ_ADDRESS_HIGH: usize = 0x10;
    /// Command queue address, low half; reads give the logarithms of size and stride.
    pub const CMDQ_ADDRESS_LOW: usize = 0x14;
    /// Command doorbell: bit `n` starts slot `n`.
    pub const COMMAND_DOORBELL: usize = 0x18;
    /// Bit 31 reads one while firmware initialises.
    pub const INITIALIZING: usize = 0x1fc;
    /// Health buffer, 64 bytes.
    pub const HEALTH_BUFFER: usize = 0x200;
    /// Free-running timer, high half.
    pub const INTERNAL_TIMER_HIGH: usize = 0x1000;
    /// Free-running timer, low half.
    pub const INTERNAL_TIMER_LOW: usize = 0x1004;
    /// Health syndrome and the counter that ticks while firmware lives.
    pub const HEALTH_COUNTER: usize = 0x1010;
    /// Bytes of the segment.
    pub const SIZE: usize = 0x2010;
}

layout! {
    /// Doorbell record of a queue pair: counters of posted work, modulo 2^16.
    pub struct QueuePairRecord, "dbrec_qp", 2;
    /// Receive WQEs posted.
    bits receive_counter / set_receive_counter: u16 = 0[15:0], "receive_counter";
    /// Basic blocks posted to the send queue.
    bits send_counter / set_send_counter: u16 = 1[15:0], "send_counter";
}

layout! {
    /// Doorbell record of a completion queue.
    pub struct CompletionQueueRecord, "dbrec_cq", 2;
    bits consumer_index / set_consumer_index: u32 = 0[23:0], "set_ci";
    bits arm_sequence / set_arm_sequence: u8 = 1[29:28], "arm_sn";
    bits arm_solicited_only / set_arm_solicited_only: bool = 1[24:24], "arm_solicited_only";
    bits arm_consumer_index / set_arm_consumer_index: u32 = 1[23:0], "arm_ci";
}

layout! {
    /// Start of a UAR page up to the EQ doorbells.
    pub struct UarRegisters, "uar_page", 20;
    bits cq_sequence / set_cq_sequence: u8 = 8[29:28], "cq_doorbell_sn";
    bits cq_solicited_only / set_cq_solicited_only: bool = 8[24:24], "cq_doorbell_solicited_only";
    bits cq_consumer_index / set_cq_consumer_index: u32 = 8[23:0], "cq_doorbell_ci";
    bits cqn / set_cqn: u32 = 9[31:0], "cq_doorbell_cqn";
    bits eq_arm_eqn / set_eq_arm_eqn: Eqn = 16[31:24], "eq_doorbell_arm_eqn";
    bits eq_arm_consumer_index / set_eq_arm_consumer_index: u32 = 16[23:0], "eq_doorbell_arm_ci";
    bits eq_consume_eqn / set_eq_consume_eqn: Eqn = 18[31:24], "eq_doorbell_noarm_eqn";
    bits eq_consume_consumer_index / set_eq_consume_consumer_index: u32 = 18[23:0], "eq_doorbell_noarm_ci";
}

/// The CQ doorbell as software writes it: 64 bits, big-endian on the bus.
///
/// ```
/// use bareverbs_prm::doorbell::CqArm;
/// use bareverbs_prm::ids::Cqn;
///
/// let cqn = Cqn::from_low_bits(0x42);
/// let arm = CqArm { sequence: 1, solicited_only: false, consumer_index: 5, cqn };
/// assert_eq!(arm.to_raw(), 0x1000_0005_0000_0042);
/// assert_eq!(CqArm::from_raw(0x1000_0005_0000_0042), arm);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CqArm {
    /// Sequence number of the arming, 2 bits.
    pub sequence: u8,
    /// Whether only solicited completions raise an event.
    pub solicited_only: bool,
    /// Consumer index, 24 bits.
    pub consumer_index: u32,
    /// The queue.
    pub cqn: Cqn,
}

impl CqArm {
    /// The 64 bits to write.
    pub const fn to_raw(self) -> u64 {
        (self.arm_word() as u64) << 32 | self.cqn.value() as u64
    }
    /// The first word, which also goes into the doorbell record.
    pub const fn arm_word(self) -> u32 {
        (self.sequence as u32 & 3) << 28
            | (self.solicited_only as u32) << 24
            | self.consumer_index & 0xff_ffff
    }
    /// What was written.
    pub const fn from_raw(raw: u64) -> Self {
        let word = (raw >> 32) as u32;
        Self {
            sequence: (word >> 28) as u8 & 3,
            solicited_only: word >> 24 & 1 != 0,
            consumer_index: word & 0xff_ffff,
            cqn: Cqn::from_low_bits(raw as u32),
        }
    }
}

/// The EQ doorbell as software writes it: 32 bits, big-endian on the bus.
pub const fn eq_doorbell(eqn: Eqn, consumer_index: u32) -> u32 {
    eqn.value() << 24 | consumer_index & 0xff_ffff
}

/// The send doorbell of a queue pair as software may write it: the first 8 bytes of a WQE's control segment, big-endian on the
/// bus. The device only reads the queue pair number.
pub const fn send_doorbell(qpn: Qpn) -> u64 {
    ControlSegment::FIELDS.qpn.in_word(0).put(qpn.value() as u64)
}

/// Queue pair number of a send doorbell: the first 8 bytes of the WQE's control segment, big-endian.
pub const fn send_doorbell_qpn(raw: u64) -> Qpn {
    Qpn::from_low_bits(ControlSegment::FIELDS.qpn.in_word(0).get(raw) as u32)
}
