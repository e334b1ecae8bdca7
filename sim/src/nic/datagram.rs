//! Unreliable datagrams of an InfiniBand port, and those of management: from one queue pair of the device straight to
//! another (IBTA v1.4 §9.8.3).
//!
//! **What it may not do.** Nothing leaves the device: a datagram for another port is lost and counted, as one to a LID that
//! nobody has. Multicast is not modelled.

use super::receive_queue::{Landing, Taken, Taker};
use super::send_queue::{FetchContext, Fetched};
use super::wqe::{self, Envelope};
use super::{HostMemory, Nic, cqe};
use crate::transport::{ReceiveCompletion, ReceiveKind, ReceiveStatus};
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::numbering::{EventType, QpState, ServiceType};
use bareverbs_prm::time::Time;

/// Bytes of a global route header; so many bytes lie before the payload in every receive (IBTA v1.4 §11.4.1.2).
const GRH: usize = 40;
/// `next_header` of a global route header: an InfiniBand transport header follows.
const NEXT_HEADER: u8 = 0x1b;
/// Base and datagram headers and the invariant CRC, as the route header counts them.
const OTHER_HEADERS: usize = 12 + 8 + 4;
/// `grh_gid_fl`: there is a global route header.
const HAS_GRH: u32 = 1 << 30;
/// A Q_Key with this bit in a work request stands for that of the queue pair.
const CONTROLLED_QKEY: u32 = 1 << 31;
/// The numbers that every port has (IBTA v1.4 §3.9.2), and the Q_Key of the second (§9.2.4).
const MANAGEMENT: u32 = 0;
const GENERAL_SERVICES: u32 = 1;
const GENERAL_SERVICES_QKEY: u32 = 0x8001_0000;

/// A datagram on its way inside the device.
struct Datagram {
    source: Qpn,
    qkey: u32,
    service_level: u8,
    grh: Option<[u8; GRH]>,
    payload: Vec<u8>,
    immediate: Option<u32>,
    solicited: bool,
}

impl Nic {
    /// Works off everything that was posted to a queue pair without a connection.
    pub(super) fn work_off_sends<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn) {
        while let Some(qp) = self.queue_pairs.get_mut(qpn.value()).filter(|qp| qp.state() == QpState::Rts) {
            let context = FetchContext {
                mkeys: &self.mkeys,
                accessor: qp.accessor,
                log_max_message: qp.context.log_msg_max().min(12),
                max_wqe: self.config.limits.max_send_wqe,
                strom: false,
                strict: self.config.strict,
                format: qp.format(),
            };
            match qp.send.fetch(memory, &context) {
                Fetched::Datagram { token, envelope, solicited } => {
                    self.counters.wqes += 1;
                    self.send_datagram(now, memory, qpn, (token, &envelope, solicited));
                }
                Fetched::KeyUpdate(pending) => {
                    self.end_update(memory, qpn, &pending);
                    self.refresh_ended(now, memory, qpn);
                }
                Fetched::Nop => {
                    self.counters.wqes += 1;
                    self.end_wqe(now, memory, qpn, Ok(()));
                }
                Fetched::Nothing | Fetched::Request(_) => return,
            }
        }
    }

    /// The work request ends when the datagram has left, whatever becomes of it.
    fn send_datagram<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        (token, envelope, solicited): (u64, &Envelope, bool),
    ) {
        let Some(qp) = self.queue_pairs.get(qpn.value()) else { return };
        let length = qp.send.slot(token).map_or(0, |slot| slot.pieces.length()) as usize;
        let mut payload = vec![0; length];
        if qp.send.gather(memory, &self.mkeys, token, 0, &mut payload).is_err() {
            self.end_wqe(now, memory, qpn, Err(wqe::DATA_ACCESS));
            self.move_to_error(now, memory, qpn);
            return;
        }
        let vector = &envelope.vector;
        let controlled = vector.qkey() & CONTROLLED_QKEY != 0;
        let datagram = Datagram {
            source: self.shown_number(qpn),
            qkey: if controlled { self.own_qkey(qpn) } else { vector.qkey() },
            service_level: vector.stat_rate_sl() & 0xf,
            grh: (vector.grh_gid_fl() & HAS_GRH != 0).then(|| self.route_header(envelope, length)),
            payload,
            immediate: envelope.immediate,
            solicited,
        };
        self.end_wqe(now, memory, qpn, Ok(()));
        match self.datagram_target(envelope) {
            Some(target) => self.receive_datagram(now, memory, target, &datagram),
            None => self.counters.frames_without_path += 1,
        }
    }

    /// The number under which peers see a queue pair.
    fn shown_number(&self, qpn: Qpn) -> Qpn {
        match self.queue_pairs.get(qpn.value()).map(|qp| qp.context.st()) {
            Some(ServiceType::Qp0) => Qpn::from_low_bits(MANAGEMENT),
            Some(ServiceType::Qp1) => Qpn::from_low_bits(GENERAL_SERVICES),
            _ => qpn,
        }
    }

    fn own_qkey(&self, qpn: Qpn) -> u32 {
        match self.queue_pairs.get(qpn.value()) {
            Some(qp) if qp.context.st() == ServiceType::Qp1 => GENERAL_SERVICES_QKEY,
            Some(qp) => qp.context.q_key(),
            None => 0,
        }
    }

    fn route_header(&self, envelope: &Envelope, length: usize) -> [u8; GRH] {
        let vector = &envelope.vector;
        let first = 6 << 28 | u32::from(vector.tclass()) << 20 | vector.grh_gid_fl() & 0xf_ffff;
        let immediate = if envelope.immediate.is_some() { 4 } else { 0 };
        let rest = length.next_multiple_of(4) + OTHER_HEADERS + immediate;
        let source = self.port.address((vector.grh_gid_fl() >> 20) as u8).or(self.port.address(0));
        let mut header = [0; GRH];
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&(rest as u16).to_be_bytes());
        header[6] = NEXT_HEADER;
        header[7] = vector.hop_limit();
        header[8..24].copy_from_slice(&source.map_or([0; 16], |entry| entry.source_l3_address()));
        header[24..].copy_from_slice(&vector.rgid());
        header
    }

    /// The queue pair of this device that a datagram is for.
    fn datagram_target(&mut self, envelope: &Envelope) -> Option<Qpn> {
        let vector = &envelope.vector;
        let ours = vector.rlid() == self.port.hca_vport.lid();
        let addressed = vector.grh_gid_fl() & HAS_GRH == 0 || self.port.owns(Gid(vector.rgid()));
        let number = vector.destination() & 0xff_ffff;
        let special = match number {
            MANAGEMENT => Some(ServiceType::Qp0),
            GENERAL_SERVICES => Some(ServiceType::Qp1),
            _ => None,
        };
        let found = match special {
            Some(service) => {
                self.queue_pairs.iter().find(|(_, qp)| qp.context.st() == service).map(|(n, _)| n)
            }
            None => Some(number),
        };
        let known = found.filter(|&number| self.queue_pairs.get(number).is_some_and(|qp| qp.is_datagram()));
        known.filter(|_| ours && addressed).map(Qpn::from_low_bits)
    }

    fn receive_datagram<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn, datagram: &Datagram) {
        let qkey = self.own_qkey(qpn);
        let Some(qp) = self.queue_pairs.get(qpn.value()) else { return };
        let receives = matches!(qp.state(), QpState::Rtr | QpState::Rts);
        // Management packets have no Q_Key to be checked (IBTA v1.4 §9.8.3.2).
        if !receives || qp.context.st() != ServiceType::Qp0 && datagram.qkey != qkey {
            self.counters.datagrams_bad_qkey += u64::from(receives);
            self.counters.datagrams_dropped += u64::from(!receives);
            return;
        }
        let mut landing = Landing::default();
        match self.take_datagram(memory, qpn, &mut landing) {
            Taken::Empty => {
                self.counters.datagrams_dropped += 1;
                self.count_out_of_buffer(qpn);
            }
            Taken::Broken(_) if self.queue_pairs.get(qpn.value()).is_some_and(|qp| qp.shared.is_some()) => {
                // Nobody can say which entry it is.
                self.post_queue_event(memory, qpn, EventType::WqCatasError);
                self.move_to_error(now, memory, qpn);
            }
            Taken::Broken(fault) => self.fail_receive(now, memory, qpn, (0, fault)),
            Taken::Receive { index, capacity } if capacity < (GRH + datagram.payload.len()) as u64 => {
                self.fail_receive(now, memory, qpn, (index, wqe::RECEIVE));
            }
            Taken::Receive { index, .. } => {
                let written = self.write_datagram(memory, &landing, datagram);
                match written {
                    Ok(()) => self.complete_datagram(now, memory, (qpn, index), datagram),
                    Err(_) => self.fail_receive(now, memory, qpn, (index, wqe::DATA_KEY)),
                }
            }
        }
        if let Some(shared) = self.queue_pairs.get(qpn.value()).and_then(|qp| qp.shared) {
            self.watch_shared(memory, shared);
        }
    }

    fn take_datagram<M: HostMemory>(&mut self, memory: &mut M, qpn: Qpn, landing: &mut Landing) -> Taken {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return Taken::Empty };
        let taker = Taker { mkeys: &self.mkeys, accessor: qp.accessor, strict: self.config.strict };
        match qp.shared.and_then(|number| self.shared_receives.get_mut(number.value())) {
            Some(shared) => shared.take(memory, taker, landing),
            None => qp.receive.as_mut().map_or(Taken::Empty, |queue| queue.take(memory, taker, landing)),
        }
    }

    /// The route header, if there is one; its place is left as it was if there is none.
    fn write_datagram<M: HostMemory>(
        &self,
        memory: &mut M,
        landing: &Landing,
        datagram: &Datagram,
    ) -> Result<(), super::DmaFault> {
        if let Some(header) = &datagram.grh {
            landing.scatter(memory, &self.mkeys, 0, header)?;
        }
        landing.scatter(memory, &self.mkeys, GRH as u64, &datagram.payload)
    }

    fn complete_datagram<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        (qpn, index): (Qpn, u16),
        datagram: &Datagram,
    ) {
        let bytes = (GRH + datagram.payload.len()) as u64;
        self.counters.frames_looped_back += 1;
        self.counters.bytes_looped_back += bytes;
        self.counters.frames_received += 1;
        self.counters.bytes_received += bytes;
        let lid = self.port.hca_vport.lid();
        let Some(qp) = self.queue_pairs.get(qpn.value()) else { return };
        let completion = ReceiveCompletion {
            length: bytes as u32,
            immediate: datagram.immediate,
            solicited: datagram.solicited,
            kind: if datagram.immediate.is_some() { ReceiveKind::SendImmediate } else { ReceiveKind::Send },
            status: ReceiveStatus::Success,
        };
        let mut entry = cqe::responder(&qp.context, qpn, index, &completion, now);
        entry.set_slid(lid).set_remote_qpn(datagram.source).set_service_level(datagram.service_level);
        entry.set_grh(datagram.grh.is_some().into());
        let cqn = qp.context.cqn_rcv();
        self.completions.post(memory, &mut self.events, cqn, &mut entry, datagram.solicited);
    }

    fn fail_receive<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        (index, fault): (u16, wqe::WorkFault),
    ) {
        let Some(qp) = self.queue_pairs.get(qpn.value()) else { return };
        let mut entry = cqe::responder_error(&qp.context, qpn, index, fault);
        let cqn = qp.context.cqn_rcv();
        self.completions.post(memory, &mut self.events, cqn, &mut entry, true);
        self.move_to_error(now, memory, qpn);
    }
}
