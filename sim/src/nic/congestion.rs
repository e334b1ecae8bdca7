//! Congestion notification: packets that a switch marked make the device tell their sender (RoCEv2 A17.9.3).
//!
//! This is the notification point, and of the reaction point only the count: senders do not slow down here.

use super::Nic;
use super::queue_pair::QueuePair;
use super::transmit::{Transmit, TransmitClass};
use crate::wire::{
    BthOpcode, DEFAULT_PARTITION_KEY, Extension, FrameWriter, HeaderTemplate, Network, Packet, PacketHeader,
    ServiceClass, ServiceHeader,
};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::QpState;
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::{Duration, Time};

/// The two low bits of a traffic class: congestion experienced (RFC 3168).
const CONGESTION_EXPERIENCED: u8 = 0b11;
/// The operation that, in its class, is the notification: op-code 0x81.
const NOTIFICATION: BthOpcode = BthOpcode::Unknown(1);
/// Bytes of zeros that it carries (RoCEv2 A17.9.3).
const RESERVED: usize = 16;
/// Traffic class of notifications: DSCP 48, as ConnectX does unless told otherwise.
const TRAFFIC_CLASS: u8 = 48 << 2;
/// A queue pair is told of at most once in this time, as ConnectX does unless told otherwise.
const INTERVAL: Duration = Duration::from_micros(4);

/// What a device has counted, under the names of the PRM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CongestionCounters {
    /// `np_ecn_marked_roce_packets`
    pub(crate) marked: u64,
    /// `np_cnp_sent`
    pub(crate) sent: u64,
    /// `rp_cnp_handled`
    pub(crate) handled: u64,
    /// `rp_cnp_ignored`
    pub(crate) ignored: u64,
}

/// What a queue pair remembers as notification point.
#[derive(Debug, Default)]
pub(crate) struct NotificationPoint {
    /// A notification is to be sent.
    pub(crate) due: bool,
    last: Option<Time>,
}

impl Nic {
    /// Whether the packet is a notification; if so it has been dealt with.
    pub(super) fn take_notification(&mut self, packet: &Packet<'_>) -> bool {
        if packet.bth.service != ServiceClass::CongestionNotification {
            return false;
        }
        let network = &packet.route.network;
        let is_ours = |qp: &QueuePair| {
            matches!(qp.state(), QpState::Rts | QpState::SqDraining)
                && qp.path.as_ref().is_some_and(|path| path.leads_to_sender(network))
        };
        let known = self.queue_pairs.get(packet.bth.destination.value()).is_some_and(is_ours);
        if known && packet.bth.opcode == NOTIFICATION && self.port.is_addressed(network, packet.route.vlan) {
            self.congestion.handled += 1;
        } else {
            self.congestion.ignored += 1;
        }
        true
    }

    /// Looks whether a packet for a connected queue pair was marked on its way. In a global route header, on InfiniBand or of
    /// RoCE version 1, the traffic class belongs to the sender as a whole: it has no such mark (IBTA v1.4 §8.3).
    #[inline]
    pub(super) fn notice_congestion(&mut self, now: Time, qpn: Qpn, packet: &Packet<'_>) {
        let marked = packet.route.traffic_class & CONGESTION_EXPERIENCED == CONGESTION_EXPERIENCED;
        if marked && matches!(packet.route.network, Network::V4 { .. } | Network::V6 { .. }) {
            self.notify_sender(now, qpn);
        }
    }

    #[cold]
    fn notify_sender(&mut self, now: Time, qpn: Qpn) {
        self.congestion.marked += 1;
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        if qp.notification.last.is_some_and(|last| now < last + INTERVAL) {
            return;
        }
        qp.notification = NotificationPoint { due: true, last: Some(now) };
        self.schedule.wake(qp);
    }

    /// The notification that is due, as a frame.
    pub(super) fn transmit_notification(&mut self, qpn: Qpn, frame: &mut Vec<u8>) -> Option<Transmit> {
        let software_port = self.firmware.capabilities.software_source_port();
        let qp = self.queue_pairs.get_mut(qpn.value()).filter(|qp| qp.notification.due)?;
        qp.notification.due = false;
        let mut route = self.port.route(&qp.context, qpn.value(), software_port)?;
        route.traffic_class = TRAFFIC_CLASS;
        let template = HeaderTemplate::new(&route, qp.context.remote_qpn(), DEFAULT_PARTITION_KEY)
            .of_service(ServiceClass::CongestionNotification)
            .with_backward_notification();
        let header = PacketHeader {
            opcode: NOTIFICATION,
            psn: Psn::new(0),
            solicited: false,
            ack_request: false,
            service_header: ServiceHeader::None,
            extension: Extension::None,
        };
        let mut writer = FrameWriter::begin(frame, &template, &header, RESERVED).ok()?;
        writer.payload_mut().fill(0);
        let icrc = writer.finish();
        self.congestion.sent += 1;
        Some(Transmit { class: TransmitClass::Response, qpn, icrc })
    }

    /// What was counted since the last clearing.
    pub(crate) const fn congestion_counters(&mut self, clear: bool) -> CongestionCounters {
        let counters = self.congestion;
        if clear {
            self.congestion = CongestionCounters { marked: 0, sent: 0, handled: 0, ignored: 0 };
        }
        counters
    }
}
