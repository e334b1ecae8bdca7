//! Attributes that a modify command can change, and their place in the context.

use super::transitions::Attributes;
use crate::address_vector::AddressVector;
use crate::memory_region::AccessFlags;
use bareverbs_prm::context::{AddressPath, QueuePairContext};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::{PathMtu, ServiceType};
use bareverbs_prm::psn::Psn;

/// Attributes to set. The states determine which are required and allowed; see
/// [`TRANSITIONS`](super::transitions::TRANSITIONS).
///
/// ```
/// use bareverbs_core::queue_pair::{ModifyError, QueuePairAttributes};
/// use bareverbs_core::{DeviceRef, QueuePair, Rc};
/// use bareverbs_prm::numbering::QpState;
///
/// /// Has the peer wait 0.64 ms after an RNR NAK, while the connection works.
/// fn ease<D: DeviceRef>(queue: &mut QueuePair<D, Rc>) -> Result<(), ModifyError> {
///     let attributes = QueuePairAttributes { min_rnr_timer: Some(12), ..QueuePairAttributes::default() };
///     queue.modify(QpState::Rts, &attributes)
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "ibv_qp_attr")]
pub struct QueuePairAttributes {
    /// P_Key index.
    pub pkey_index: Option<u16>,
    /// Port number, from 1.
    pub port: Option<u8>,
    /// What peers may do.
    pub access: Option<AccessFlags>,
    /// Path to the peer.
    pub path: Option<AddressVector>,
    /// Path MTU.
    pub path_mtu: Option<PathMtu>,
    /// The peer's queue pair number.
    pub remote_qpn: Option<Qpn>,
    /// First PSN to receive.
    pub receive_psn: Option<Psn>,
    /// Log2 of the RDMA READs and atomics to serve concurrently.
    pub log_max_responder_reads: Option<u8>,
    /// How long a peer should wait after an RNR NAK, encoded (IBTA v1.4 §9.7.5.2.8, table 45).
    pub min_rnr_timer: Option<u8>,
    /// First PSN to send.
    pub send_psn: Option<Psn>,
    /// ACK timeout: 4.096 µs · 2^n; 0 means infinite.
    pub ack_timeout: Option<u8>,
    /// Retries after a timeout or a sequence error.
    pub retry_count: Option<u8>,
    /// Retries after an RNR NAK; 7 means unlimited.
    pub rnr_retry: Option<u8>,
    /// Log2 of the outstanding RDMA READs and atomics.
    pub log_max_requester_reads: Option<u8>,
    /// Q_Key that datagrams must carry.
    pub q_key: Option<u32>,
    /// Alternate path. Automatic path migration is not supported, so this is always refused, with the reason.
    pub alternate_path: Option<AddressVector>,
    /// Requests the "send queue drained" event when moving to SQD. mlx5 always raises it; the request documents that it
    /// is expected.
    pub drained_event: bool,
}

/// Bits of `opt_param_mask`.
mod optional {
    pub(super) const READ: u32 = 1 << 1;
    pub(super) const ATOMIC: u32 = 1 << 2;
    pub(super) const WRITE: u32 = 1 << 3;
    pub(super) const PKEY_INDEX: u32 = 1 << 4;
    pub(super) const Q_KEY: u32 = 1 << 5;
    pub(super) const RNR_TIMER: u32 = 1 << 6;
    pub(super) const PRIMARY_PATH: u32 = 1 << 7;
    pub(super) const REQUESTER_READS: u32 = 1 << 8;
    pub(super) const RESPONDER_READS: u32 = 1 << 9;
    pub(super) const RETRY_COUNT: u32 = 1 << 12;
    pub(super) const RNR_RETRY: u32 = 1 << 13;
    pub(super) const ACK_TIMEOUT: u32 = 1 << 14;
    pub(super) const PORT: u32 = 1 << 16;
}

/// `atomic_mode`: as defined by the InfiniBand architecture.
const ATOMIC_MODE_IB: u8 = 1;

impl QueuePairAttributes {
    /// The attributes of a connected queue pair in INIT: the first port, the first P_Key, and the peer's
    /// access rights.
    pub(crate) fn initial_access(access: AccessFlags) -> Self {
        Self { pkey_index: Some(0), port: Some(1), access: Some(access), ..Self::default() }
    }

    /// The attributes of a datagram queue pair in INIT.
    pub(crate) fn initial_q_key(key: u32) -> Self {
        Self { pkey_index: Some(0), port: Some(1), q_key: Some(key), ..Self::default() }
    }

    /// The attributes with another P_Key index.
    pub(crate) const fn with_partition_key(self, index: u16) -> Self {
        Self { pkey_index: Some(index), ..self }
    }

    /// The set of attributes that are present.
    pub fn given(&self) -> Attributes {
        let mut set = Attributes::NONE;
        let mut add = |given: bool, attribute| set = if given { set | attribute } else { set };
        add(self.pkey_index.is_some(), Attributes::PKEY_INDEX);
        add(self.port.is_some(), Attributes::PORT);
        add(self.access.is_some(), Attributes::ACCESS);
        add(self.path.is_some(), Attributes::PATH);
        add(self.path_mtu.is_some(), Attributes::PATH_MTU);
        add(self.remote_qpn.is_some(), Attributes::REMOTE_QPN);
        add(self.receive_psn.is_some(), Attributes::RECEIVE_PSN);
        add(self.log_max_responder_reads.is_some(), Attributes::MAX_RESPONDER_READS);
        add(self.min_rnr_timer.is_some(), Attributes::MIN_RNR_TIMER);
        add(self.send_psn.is_some(), Attributes::SEND_PSN);
        add(self.ack_timeout.is_some(), Attributes::ACK_TIMEOUT);
        add(self.retry_count.is_some(), Attributes::RETRY_COUNT);
        add(self.rnr_retry.is_some(), Attributes::RNR_RETRY);
        add(self.log_max_requester_reads.is_some(), Attributes::MAX_REQUESTER_READS);
        add(self.q_key.is_some(), Attributes::Q_KEY);
        add(self.alternate_path.is_some(), Attributes::ALTERNATE_PATH);
        add(self.drained_event, Attributes::DRAINED_EVENT);
        set
    }

    /// Writes the present attributes to the context; everything else stays.
    pub(crate) fn fill(&self, context: &mut QueuePairContext) {
        self.fill_path(context.primary_address_path_mut());
        if let Some(access) = self.access {
            fill_access(context, access);
        }
        set(self.path_mtu, |mtu| context.set_mtu(mtu));
        set(self.remote_qpn, |qpn| context.set_remote_qpn(qpn));
        set(self.receive_psn, |psn| context.set_next_rcv_psn(psn));
        set(self.send_psn, |psn| context.set_next_send_psn(psn));
        set(self.log_max_responder_reads, |log| context.set_log_rra_max(log));
        set(self.log_max_requester_reads, |log| context.set_log_sra_max(log));
        set(self.min_rnr_timer, |timer| context.set_min_rnr_nak(timer));
        set(self.retry_count, |count| context.set_retry_count(count));
        set(self.rnr_retry, |count| context.set_rnr_retry(count));
        set(self.q_key, |key| context.set_q_key(key));
    }

    fn fill_path(&self, path: &mut AddressPath) {
        set(self.pkey_index, |index| path.set_pkey_index(index));
        set(self.port, |port| path.set_vhca_port_num(port));
        set(self.ack_timeout, |timeout| path.set_ack_timeout(timeout));
        match &self.path {
            Some(vector) if vector.lid != 0 => fill_infiniband(path, vector),
            Some(vector) => fill_ethernet(path, vector),
            None => {}
        }
    }

    /// `opt_param_mask` for those of `optional` that are present. On an unreliable connection, where no peer
    /// can read, the rights to do so are left out: firmware would refuse them.
    pub(crate) fn optional_mask(&self, optional: Attributes, service: ServiceType) -> u32 {
        let rights = match service {
            ServiceType::Uc => optional::WRITE,
            _ => optional::READ | optional::ATOMIC | optional::WRITE,
        };
        let bits = [
            (Attributes::ACCESS, rights),
            (Attributes::PKEY_INDEX, optional::PKEY_INDEX),
            (Attributes::PORT, optional::PORT),
            (Attributes::Q_KEY, optional::Q_KEY),
            (Attributes::PATH, optional::PRIMARY_PATH),
            (Attributes::MIN_RNR_TIMER, optional::RNR_TIMER),
            (Attributes::MAX_REQUESTER_READS, optional::REQUESTER_READS),
            (Attributes::MAX_RESPONDER_READS, optional::RESPONDER_READS),
            (Attributes::RETRY_COUNT, optional::RETRY_COUNT),
            (Attributes::RNR_RETRY, optional::RNR_RETRY),
            (Attributes::ACK_TIMEOUT, optional::ACK_TIMEOUT),
        ];
        let given = self.given();
        let chosen =
            bits.iter().filter(|(attribute, _)| given.contains(*attribute) && optional.contains(*attribute));
        chosen.fold(0, |mask, (_, bit)| mask | bit)
    }
}

fn fill_route(path: &mut AddressPath, vector: &AddressVector) {
    path.set_src_addr_index(vector.gid_index)
        .set_hop_limit(vector.hop_limit)
        .set_tclass(vector.traffic_class)
        .set_flow_label(vector.flow_label & 0xf_ffff)
        .set_rgid_rip(vector.gid.0)
        .set_sl(vector.service_level & 0xf);
}

fn fill_ethernet(path: &mut AddressPath, vector: &AddressVector) {
    fill_route(path, vector);
    path.set_dscp(vector.traffic_class >> 2)
        .set_udp_sport(vector.udp_source_port)
        .set_eth_prio(vector.service_level & 7)
        .set_rmac_47_32(vector.mac.high())
        .set_rmac_31_0(vector.mac.low());
}

/// A global route header is used between subnets, or where the peer wants one (IBTA v1.4 §8.3).
fn fill_infiniband(path: &mut AddressPath, vector: &AddressVector) {
    fill_route(path, vector);
    path.set_rlid(vector.lid).set_grh(!vector.gid.is_zero());
}

fn set<T, R>(value: Option<T>, setter: impl FnOnce(T) -> R) {
    if let Some(value) = value {
        setter(value);
    }
}

fn fill_access(context: &mut QueuePairContext, access: AccessFlags) {
    let atomic = access.contains(AccessFlags::REMOTE_ATOMIC);
    context
        .set_rre(access.contains(AccessFlags::REMOTE_READ))
        .set_rwe(access.contains(AccessFlags::REMOTE_WRITE))
        .set_rae(atomic)
        .set_atomic_mode(if atomic { ATOMIC_MODE_IB } else { 0 });
}
