//! The responder of an unreliable connection, with one small function for each check of the specification. A
//! faulty message is dropped, and the receive that it took is kept for the next message (IBTA v1.4 §9.9.3.1,
//! classes D and D1). A receive of a shared queue cannot be kept and ends as aborted (class E).

use crate::transport::host::{
    ReceiveBuffer, ReceiveKind, ReceiveStatus, RemoteAccess, ResponderError, ResponderHost,
};
use crate::transport::parameters::ConnectionParameters;
use crate::transport::responder::{ResponderCounters, failed_receive, finished_send, finished_write};
use crate::transport::segment::{MAX_MESSAGE, PathMtu};
use crate::wire::{OperationKind, Packet, Position, Reth};
use bareverbs_prm::psn::Psn;
use core::mem;

/// The responder of an unreliable connection.
///
/// ```
/// use bareverbs_prm::psn::Psn;
/// use bareverbs_sim::transport::UnreliableResponder;
/// # use bareverbs_sim::transport::ConnectionParameters;
/// # let parameters = ConnectionParameters {
/// #     path_mtu: 1024, send_psn: Psn::new(100), receive_psn: Psn::new(200), ack_timeout: 14, ack_timeout_factor: 1,
/// #     retry_count: 7, rnr_retry: 7, min_rnr_timer: 12, max_outstanding_reads: 16, max_remembered_reads: 16,
/// # };
///
/// let responder: UnreliableResponder<(u64, u32)> = UnreliableResponder::new(&parameters);
/// assert_eq!(responder.expected_psn(), Psn::new(200));
/// ```
#[derive(Debug)]
pub struct UnreliableResponder<R> {
    mtu: PathMtu,
    expected: Psn,
    current: UnreliableMessage<R>,
    /// The receive of a dropped message, kept for the next message that needs one.
    kept: Option<ReceiveBuffer>,
    /// Packets are dropped until one begins a message.
    dropping: bool,
    broken: bool,
    counters: ResponderCounters,
}

/// A message whose first packet has arrived and whose last has not.
#[derive(Debug, Clone)]
enum UnreliableMessage<R> {
    None,
    Send { buffer: ReceiveBuffer, offset: u32 },
    Write { range: R, length: u32, offset: u32 },
}

/// Why a packet was not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnreliableRejection {
    /// The message is dropped.
    Drop,
    /// A local fault: the queue pair moves to the error state.
    Break,
}

impl<R: Clone> UnreliableResponder<R> {
    /// A responder that expects the first packet.
    pub fn new(parameters: &ConnectionParameters) -> Self {
        Self {
            mtu: PathMtu::new(parameters.path_mtu),
            expected: parameters.receive_psn,
            current: UnreliableMessage::None,
            kept: None,
            dropping: false,
            broken: false,
            counters: ResponderCounters::default(),
        }
    }

    /// The counters.
    pub fn counters(&self) -> ResponderCounters {
        self.counters
    }

    /// The expected PSN.
    pub fn expected_psn(&self) -> Psn {
        self.expected
    }

    /// Handles a request.
    pub fn handle_request<H: ResponderHost<Range = R>>(&mut self, packet: &Packet<'_>, host: &mut H) {
        if self.broken {
            self.counters.dropped += 1;
            return;
        }
        let carried_out = self.check_sequence(packet, host).and_then(|()| self.execute(packet, host));
        self.expected = packet.bth.psn.add(1);
        match carried_out {
            Ok(()) => self.counters.packets += 1,
            Err(UnreliableRejection::Drop) => {
                self.counters.dropped += 1;
                self.dropping = true;
                self.forget_message(host);
            }
            Err(UnreliableRejection::Break) => {
                self.broken = true;
                host.connection_error(ResponderError::Operational);
            }
        }
    }

    /// A packet that begins a message is accepted whatever its PSN and ends the message before it. Any other
    /// packet must be the next one of the current message. IBTA v1.4 §9.8.2.2.1 to §9.8.2.2.3.
    fn check_sequence<H: ResponderHost<Range = R>>(
        &mut self,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), UnreliableRejection> {
        let in_sequence = packet.bth.psn == self.expected;
        self.counters.out_of_sequence += u64::from(!in_sequence);
        if packet.bth.opcode.position().begins() {
            self.dropping = false;
            self.forget_message(host);
            return Ok(());
        }
        let goes_on = matches!(
            (&self.current, packet.bth.opcode.kind()),
            (UnreliableMessage::Send { .. }, OperationKind::Send)
                | (UnreliableMessage::Write { .. }, OperationKind::Write)
        );
        if in_sequence && goes_on && !self.dropping { Ok(()) } else { Err(UnreliableRejection::Drop) }
    }

    fn execute<H: ResponderHost<Range = R>>(
        &mut self,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), UnreliableRejection> {
        self.check_packet_length(packet)?;
        match packet.bth.opcode.kind() {
            OperationKind::Send => self.do_send(packet, host),
            OperationKind::Write => self.do_write(packet, host),
            _ => Err(UnreliableRejection::Drop),
        }
    }

    /// Every packet but the last is full, and the last one is not empty. IBTA v1.4 §9.8.2.2.6.
    fn check_packet_length(&self, packet: &Packet<'_>) -> Result<(), UnreliableRejection> {
        let mtu = self.mtu.bytes() as usize;
        let length = packet.payload.len();
        let good = match packet.bth.opcode.position() {
            Position::First | Position::Middle => length == mtu,
            Position::Last => (1..=mtu).contains(&length),
            Position::Only => length <= mtu,
        };
        if good { Ok(()) } else { Err(UnreliableRejection::Drop) }
    }

    fn do_send<H: ResponderHost<Range = R>>(
        &mut self,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), UnreliableRejection> {
        let (buffer, offset) = match self.current {
            UnreliableMessage::Send { buffer, offset } => (buffer, offset),
            _ => (self.take_receive(host)?, 0),
        };
        let length = offset.saturating_add(packet.payload.len() as u32);
        // From here on the message owns the receive, so dropping the message keeps the receive.
        self.current = UnreliableMessage::Send { buffer, offset: length };
        if u64::from(length) > buffer.capacity || length > MAX_MESSAGE {
            return Err(UnreliableRejection::Drop);
        }
        if !packet.payload.is_empty() && host.scatter(buffer, u64::from(offset), packet.payload).is_err() {
            self.current = UnreliableMessage::None;
            host.complete_receive(buffer, failed_receive(ReceiveKind::Send, ReceiveStatus::Protection));
            return Err(UnreliableRejection::Break);
        }
        if packet.bth.opcode.position().ends() {
            self.current = UnreliableMessage::None;
            host.complete_receive(buffer, finished_send(packet, length));
        }
        Ok(())
    }

    /// Takes the receive of a dropped message or a new one. Without a receive the message is dropped, because
    /// an unreliable service cannot ask the peer to wait.
    fn take_receive<H: ResponderHost<Range = R>>(
        &mut self,
        host: &mut H,
    ) -> Result<ReceiveBuffer, UnreliableRejection> {
        match self.kept.take() {
            Some(buffer) => Ok(buffer),
            None => {
                host.take_receive().map_err(|_| UnreliableRejection::Break)?.ok_or(UnreliableRejection::Drop)
            }
        }
    }

    fn do_write<H: ResponderHost<Range = R>>(
        &mut self,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), UnreliableRejection> {
        let (range, total, offset) = self.write_target(packet, host)?;
        let ends = packet.bth.opcode.position().ends();
        let done = offset.saturating_add(packet.payload.len() as u32);
        if ends && done != total || !ends && done >= total {
            return Err(UnreliableRejection::Drop);
        }
        let immediate = packet.extension.immediate();
        let receive = immediate.map(|data| Ok((self.take_receive(host)?, data))).transpose()?;
        let written =
            packet.payload.is_empty() || host.write_remote(&range, offset.into(), packet.payload).is_ok();
        match receive {
            Some((buffer, data)) if written => {
                host.complete_receive(buffer, finished_write(packet, total, data));
            }
            Some((buffer, _)) => self.keep(buffer, host),
            None => {}
        }
        self.current = if ends {
            UnreliableMessage::None
        } else {
            UnreliableMessage::Write { range, length: total, offset: done }
        };
        if written { Ok(()) } else { Err(UnreliableRejection::Drop) }
    }

    /// The target range of a WRITE: checked at the first packet, kept for the others. IBTA v1.4 §9.8.2.2.5.
    fn write_target<H: ResponderHost<Range = R>>(
        &self,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(R, u32, u32), UnreliableRejection> {
        if let UnreliableMessage::Write { range, length, offset } = &self.current {
            return Ok((range.clone(), *length, *offset));
        }
        let Reth { address, rkey, length } = packet.extension.reth().ok_or(UnreliableRejection::Drop)?;
        if length > MAX_MESSAGE || !host.permits(RemoteAccess::Write) {
            return Err(UnreliableRejection::Drop);
        }
        let range = host
            .check_remote(RemoteAccess::Write, rkey, address, length)
            .map_err(|_| UnreliableRejection::Drop)?;
        Ok((range, length, 0))
    }

    fn forget_message<H: ResponderHost<Range = R>>(&mut self, host: &mut H) {
        if let UnreliableMessage::Send { buffer, .. } =
            mem::replace(&mut self.current, UnreliableMessage::None)
        {
            self.keep(buffer, host);
        }
    }

    fn keep<H: ResponderHost<Range = R>>(&mut self, buffer: ReceiveBuffer, host: &mut H) {
        if host.shares_receives() {
            host.complete_receive(buffer, failed_receive(ReceiveKind::Send, ReceiveStatus::Aborted));
        } else {
            self.kept = Some(buffer);
        }
    }

    /// Stops when the queue pair leaves its receiving states: it takes nothing more. Returns the receive that
    /// was taken.
    pub fn flush(&mut self) -> Option<ReceiveBuffer> {
        self.broken = true;
        match mem::replace(&mut self.current, UnreliableMessage::None) {
            UnreliableMessage::Send { buffer, .. } => Some(buffer),
            _ => self.kept.take(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tests::model::{Host, header, packet, parameters};
    use crate::wire::{BthOpcode, Extension};

    /// A receive may be longer than a message may be. The byte that would be the last is refused by the memory, the next
    /// one by the length.
    #[test]
    fn a_send_ends_at_the_length_of_the_longest_message() {
        for (payload, errors, dropped) in
            [(&[1][..], &[ResponderError::Operational][..], 0), (&[1, 1], &[], 1)]
        {
            let (mut responder, mut host) = (UnreliableResponder::new(&parameters()), Host::new(0));
            host.scatter_fails = true;
            let buffer = ReceiveBuffer { token: 0, capacity: u64::MAX };
            responder.current = UnreliableMessage::Send { buffer, offset: MAX_MESSAGE - 1 };
            let last = header(BthOpcode::SendLast, 100, Extension::None);
            responder.handle_request(&packet(last, payload), &mut host);
            assert_eq!((&host.errors[..], responder.counters().dropped), (errors, dropped));
        }
    }
}
