//! Where each transition leads, and what `opt_param_mask` may select: one row per command, one column per
//! service.
//!
//! The masks are those of Linux's mlx5_ib for each transition and service. SQD2SQD is missing there; its row
//! is the table of optional attributes in IBTA v1.4 §11.2.5.2, in mlx5's bits.

use bareverbs_prm::numbering::{QpState, ServiceType};

/// Bits of `opt_param_mask`.
pub(super) mod optional {
    pub(crate) const ALTERNATE_PATH: u32 = 1 << 0;
    pub(crate) const RRE: u32 = 1 << 1;
    pub(crate) const RAE: u32 = 1 << 2;
    pub(crate) const RWE: u32 = 1 << 3;
    pub(crate) const PKEY_INDEX: u32 = 1 << 4;
    pub(crate) const Q_KEY: u32 = 1 << 5;
    pub(crate) const RNR_TIMER: u32 = 1 << 6;
    pub(crate) const PRIMARY_PATH: u32 = 1 << 7;
    pub(crate) const REQUESTER_READS: u32 = 1 << 8;
    pub(crate) const RESPONDER_READS: u32 = 1 << 9;
    pub(crate) const PATH_MIGRATION: u32 = 1 << 10;
    pub(crate) const RETRY_COUNT: u32 = 1 << 12;
    pub(crate) const RNR_RETRY: u32 = 1 << 13;
    pub(crate) const ACK_TIMEOUT: u32 = 1 << 14;
    pub(crate) const PORT: u32 = 1 << 16;
    pub(crate) const COUNTER_SET: u32 = 1 << 25;
    pub(crate) const RIGHTS: u32 = RRE | RAE | RWE;
    pub(crate) const MIGRATION: u32 = ALTERNATE_PATH | PATH_MIGRATION;
}
use optional::*;

/// One row: the states of a transition, and its optional parameters by service.
pub(super) struct Transition {
    pub(super) from: QpState,
    pub(super) to: QpState,
    /// Reliable connections, and XRC, whose parameters are the same.
    reliable: u32,
    unreliable: u32,
    /// Datagrams, including management.
    datagram: u32,
}

impl Transition {
    /// What `opt_param_mask` may select for a service.
    pub(super) fn optional(&self, service: ServiceType) -> u32 {
        match service {
            ServiceType::Rc | ServiceType::Xrc => self.reliable,
            ServiceType::Uc => self.unreliable,
            ServiceType::Ud | ServiceType::Qp0 | ServiceType::Qp1 => self.datagram,
            _ => 0,
        }
    }
}

pub(super) const RESET_TO_INIT: Transition =
    Transition { from: QpState::Reset, to: QpState::Init, reliable: 0, unreliable: 0, datagram: 0 };
pub(super) const INIT_TO_INIT: Transition = Transition {
    from: QpState::Init,
    to: QpState::Init,
    reliable: RIGHTS | PKEY_INDEX | PORT,
    unreliable: RWE | PKEY_INDEX | PORT,
    datagram: PKEY_INDEX | PORT | Q_KEY,
};
pub(super) const INIT_TO_RTR: Transition = Transition {
    from: QpState::Init,
    to: QpState::Rtr,
    reliable: ALTERNATE_PATH | RIGHTS | PKEY_INDEX,
    unreliable: ALTERNATE_PATH | RWE | PKEY_INDEX,
    datagram: PKEY_INDEX | Q_KEY,
};
pub(super) const RTR_TO_RTS: Transition = Transition {
    from: QpState::Rtr,
    to: QpState::Rts,
    reliable: MIGRATION | RIGHTS | RNR_TIMER,
    unreliable: MIGRATION | RWE,
    datagram: Q_KEY,
};
pub(super) const RTS_TO_RTS: Transition = Transition {
    from: QpState::Rts,
    to: QpState::Rts,
    reliable: RTR_TO_RTS.reliable | COUNTER_SET,
    unreliable: RTR_TO_RTS.unreliable | COUNTER_SET,
    datagram: RTR_TO_RTS.datagram | COUNTER_SET,
};
pub(super) const SQ_ERROR_TO_RTS: Transition = Transition {
    from: QpState::SqError,
    to: QpState::Rts,
    reliable: RIGHTS | RNR_TIMER,
    unreliable: RWE,
    datagram: Q_KEY,
};
pub(super) const SQD_TO_RTS: Transition = Transition { from: QpState::SqDrained, ..SQ_ERROR_TO_RTS };
pub(super) const RTS_TO_SQD: Transition =
    Transition { from: QpState::Rts, to: QpState::SqDraining, ..RESET_TO_INIT };
pub(super) const SQD_TO_SQD: Transition = Transition {
    from: QpState::SqDrained,
    to: QpState::SqDrained,
    reliable: MIGRATION
        | RIGHTS
        | RNR_TIMER
        | PKEY_INDEX
        | PORT
        | PRIMARY_PATH
        | REQUESTER_READS
        | RESPONDER_READS
        | RETRY_COUNT
        | RNR_RETRY
        | ACK_TIMEOUT,
    unreliable: MIGRATION | RWE | PKEY_INDEX | PRIMARY_PATH,
    datagram: PKEY_INDEX | Q_KEY,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_no_q_key_and_datagrams_no_path() {
        for row in [
            RESET_TO_INIT,
            INIT_TO_INIT,
            INIT_TO_RTR,
            RTR_TO_RTS,
            RTS_TO_RTS,
            SQ_ERROR_TO_RTS,
            SQD_TO_RTS,
            SQD_TO_SQD,
        ] {
            assert_eq!((row.reliable | row.unreliable) & Q_KEY, 0);
            assert_eq!(row.datagram & !(Q_KEY | PKEY_INDEX | PORT | COUNTER_SET), 0);
            assert_eq!(row.unreliable & (RRE | RAE | RNR_TIMER), 0, "UC has no RNR wait and no READs");
        }
    }
}
