//! Congestion notification: when a switch has marked a packet, the device notifies the sender (RoCEv2
//! A17.9.3).
//!
//! This is the notification point. The reaction point is the queue pair's congestion controller, see
//! [`reaction`](super::reaction); a sender without one does not slow down.

use super::frames::{Transmit, TransmitClass};
use super::notification_point::NotificationPoint;
use super::{Bus, QueuePair};
use crate::wire::{
    BthOpcode, DEFAULT_PARTITION_KEY, Extension, FrameBuffer, FrameWriter, HeaderTemplate, Network, Packet,
    PacketHeader, ServiceClass, ServiceHeader,
};
use bareverbs_prm::numbering::QpState;
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Duration;

/// The two ECN bits of a traffic class: congestion experienced (RFC 3168).
const CONGESTION_EXPERIENCED: u8 = 0b11;
/// The operation of the CNP in its service class: op-code 0x81.
const NOTIFICATION: BthOpcode = BthOpcode::Unknown(1);
/// Bytes of zeros that a CNP carries (RoCEv2 A17.9.3).
const RESERVED: usize = 16;
/// Traffic class of CNPs: DSCP 48, the default of ConnectX.
const TRAFFIC_CLASS: u8 = 48 << 2;
/// The shortest time between two CNPs of one queue pair: the default of ConnectX.
const INTERVAL: Duration = Duration::from_micros(4);

/// Whether a packet is a CNP, the only operation of its service class.
pub(crate) fn is_notification(packet: &Packet<'_>) -> bool {
    packet.bth.opcode == NOTIFICATION
}

impl QueuePair {
    /// Whether a CNP concerns what this queue pair sends.
    pub(crate) fn accepts_notification(&self, packet: &Packet<'_>) -> bool {
        matches!(self.state(), QpState::Rts | QpState::SqDraining)
            && self.path.as_ref().is_some_and(|path| path.leads_to_sender(&packet.route.network))
    }

    /// Checks whether a switch marked a packet. A global route header, on InfiniBand or RoCE v1, has no such
    /// mark: its whole traffic class belongs to the sender (IBTA v1.4 §8.3).
    #[inline]
    pub(super) fn notice_congestion<M>(&mut self, bus: &mut Bus<'_, M>, packet: &Packet<'_>) {
        let marked = packet.route.traffic_class & CONGESTION_EXPERIENCED == CONGESTION_EXPERIENCED;
        if marked && matches!(packet.route.network, Network::V4 { .. } | Network::V6 { .. }) {
            self.notify_sender(bus);
        }
    }

    #[cold]
    fn notify_sender<M>(&mut self, bus: &mut Bus<'_, M>) {
        bus.shared.congestion.marked += 1;
        if self.notification.last.is_none_or(|last| bus.now >= last + INTERVAL) {
            self.notification = NotificationPoint { due: true, last: Some(bus.now) };
        }
    }

    /// Writes the CNP that is due.
    #[cold]
    pub(super) fn transmit_notification<M>(
        &mut self,
        bus: &mut Bus<'_, M>,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        self.notification.due = false;
        let qpn = self.number();
        let mut route =
            bus.shared.port.route(&self.context, qpn.value(), bus.features.software_source_port)?;
        route.traffic_class = TRAFFIC_CLASS;
        let template = HeaderTemplate::new(&route, self.context.remote_qpn(), DEFAULT_PARTITION_KEY)
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
        bus.shared.congestion.sent += 1;
        self.observe_response(bus, header.psn);
        Some(Transmit { class: TransmitClass::Response, qpn, icrc })
    }
}
