//! How a requester handles ACK, NAK, RNR NAK, READ response and atomic response. IBTA v1.4 §9.7.5.2.

use super::Requester;
use crate::transport::outstanding::Message;
use crate::transport::parameters::rnr_timer;
use crate::transport::request::{Operation, Placement, RequesterError, RetransmissionCause};
use crate::wire::{Extension, NakCode, OperationKind, Packet, Syndrome};
use bareverbs_prm::time::Time;

impl Requester {
    /// Takes a response (`opcode.is_response()`) and returns where its payload belongs. Place the payload
    /// before polling completions; if that fails, call [`Self::fail`] with its token.
    pub fn handle_response(&mut self, now: Time, packet: &Packet<'_>) -> Placement {
        let Some(sequence) = self.sequence_in_flight(packet.bth.psn) else {
            self.counters.ghosts += 1;
            return Placement::None;
        };
        match packet.bth.opcode.kind() {
            OperationKind::Acknowledge => self.handle_acknowledge(now, sequence, packet.extension),
            OperationKind::ReadResponse => return self.handle_data(now, sequence, packet),
            OperationKind::AtomicAcknowledge => return self.handle_data(now, sequence, packet),
            _ => self.counters.ghosts += 1,
        }
        Placement::None
    }

    fn handle_acknowledge(&mut self, now: Time, sequence: u64, extension: Extension) {
        match extension.aeth().map(|aeth| aeth.syndrome) {
            Some(Syndrome::Ack(_)) => self.handle_ack(now, sequence),
            Some(Syndrome::RnrNak(timer)) => self.handle_rnr_nak(now, sequence, timer),
            Some(Syndrome::Nak(code)) => self.handle_nak(now, sequence, code),
            Some(Syndrome::Unknown(_)) | None => self.counters.ghosts += 1,
        }
    }

    fn handle_ack(&mut self, now: Time, sequence: u64) {
        if let Err(missing) = self.acknowledge_before(now, sequence + 1)
            // Only an ACK for the last packet of a READ proves that its data is lost rather than still on its
            // way.
            && missing.end <= sequence + 1
        {
            self.handle_implied_nak(now);
        }
    }

    fn handle_nak(&mut self, now: Time, sequence: u64, code: NakCode) {
        if self.acknowledge_before(now, sequence).is_err() {
            return self.handle_implied_nak(now);
        }
        match code {
            NakCode::SequenceError => self.handle_sequence_nak(now),
            NakCode::InvalidRequest => self.fail_oldest(RequesterError::RemoteInvalidRequest),
            NakCode::RemoteAccess => self.fail_oldest(RequesterError::RemoteAccess),
            NakCode::RemoteOperational => self.fail_oldest(RequesterError::RemoteOperational),
            NakCode::InvalidRdRequest | NakCode::Unknown(_) => self.fail_oldest(RequesterError::BadResponse),
        }
    }

    fn handle_sequence_nak(&mut self, now: Time) {
        if self.timers.is_recovering() {
            self.counters.ghosts += 1;
        } else {
            self.counters.sequence_naks += 1;
            self.retry(now, RetransmissionCause::SequenceNak);
        }
    }

    /// Handles a response to a later request while the oldest READ or atomic has none. IBTA v1.4 §9.7.5.2.6.
    fn handle_implied_nak(&mut self, now: Time) {
        if self.timers.is_recovering() {
            self.counters.ghosts += 1;
        } else {
            self.counters.implied_naks += 1;
            self.retry(now, RetransmissionCause::ImpliedNak);
        }
    }

    fn handle_rnr_nak(&mut self, now: Time, sequence: u64, timer: u8) {
        if self.timers.is_waiting_for_receiver() {
            self.counters.ghosts += 1;
            return;
        }
        if self.acknowledge_before(now, sequence).is_err() {
            return self.handle_implied_nak(now);
        }
        self.counters.rnr_naks += 1;
        if !self.is_in_flight() {
            return;
        }
        match self.timers.wait_for_receiver(now, rnr_timer(timer)) {
            Ok(()) => self.rewind(RetransmissionCause::ReceiverNotReady),
            Err(_) => self.fail_oldest(RequesterError::RnrRetryExceeded),
        }
    }

    /// Handles a READ or atomic response, which acknowledges everything before it.
    fn handle_data(&mut self, now: Time, sequence: u64, packet: &Packet<'_>) -> Placement {
        if self.acknowledge_before(now, sequence).is_err() {
            self.handle_implied_nak(now);
            return Placement::None;
        }
        let (_, number) = self.outstanding.unacknowledged();
        let message = self.outstanding.get(number);
        let placed = message.and_then(|message| Some((self.place(message, sequence, packet)?, message.end)));
        let Some((placement, end)) = placed else {
            self.fail_oldest(RequesterError::BadResponse);
            return Placement::None;
        };
        self.outstanding.acknowledge_data(end);
        self.progress(now);
        placement
    }

    fn place(&self, message: &Message, sequence: u64, packet: &Packet<'_>) -> Option<Placement> {
        let token = message.request.token;
        match (message.request.operation, packet.bth.opcode.kind()) {
            (Operation::Read { .. }, OperationKind::ReadResponse) => {
                let offset = self.mtu.offset((sequence - message.start) as u32);
                self.is_good_response(message, sequence, offset, packet)
                    .then_some(Placement::Payload { token, offset })
            }
            (operation, OperationKind::AtomicAcknowledge) if operation.is_atomic() => {
                match packet.extension {
                    Extension::AtomicAck(aeth, old) if is_ack(aeth.syndrome) => {
                        Some(Placement::Atomic { token, old })
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Checks length, op-code and syndrome of a READ response for its position. IBTA v1.4 §9.7.5.2.9.
    fn is_good_response(&self, message: &Message, sequence: u64, offset: u32, packet: &Packet<'_>) -> bool {
        let ends = sequence + 1 == message.end;
        let left = message.request.length.saturating_sub(offset);
        let expected = if ends { left } else { self.mtu.bytes() };
        let acknowledged = packet.extension.aeth().is_none_or(|aeth| is_ack(aeth.syndrome));
        acknowledged
            && packet.bth.opcode.position().ends() == ends
            && packet.payload.len() == expected as usize
    }
}

fn is_ack(syndrome: Syndrome) -> bool {
    matches!(syndrome, Syndrome::Ack(_))
}
