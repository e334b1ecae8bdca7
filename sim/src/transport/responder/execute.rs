//! Executes the expected packet after checking its place in the message, its length and its key.

use super::{PartialMessage, Rejection, Responder, failed_receive};
use crate::transport::arithmetic::AtomicOperation;
use crate::transport::host::{
    ReceiveBuffer, ReceiveCompletion, ReceiveKind, ReceiveStatus, RemoteAccess, ResponderError,
    ResponderHost, RpcPacket,
};
use crate::transport::replay::Remembered;
use crate::transport::replies::{ReadReply, ResponseNumbers};
use crate::transport::segment::MAX_MESSAGE;
use crate::wire::{BthOpcode, Extension, OperationKind, Packet, Position, Reth};
use bareverbs_prm::mutation::mutated;
use core::mem;

const INVALID: Rejection = Rejection::Break(ResponderError::InvalidRequest);
const ACCESS: Rejection = Rejection::Break(ResponderError::RemoteAccess);
const OPERATIONAL: Rejection = Rejection::Break(ResponderError::Operational);

impl<R: Clone> Responder<R> {
    /// Checks and executes one packet and returns the number of PSNs that it occupies. A refused packet
    /// changes no state that a retry would need.
    pub(super) fn execute<H: ResponderHost<Range = R>>(
        &mut self,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<u32, Rejection> {
        self.check_operation_sequence(packet.bth.opcode)?;
        self.check_packet_length(packet)?;
        match packet.bth.opcode.kind() {
            OperationKind::Send => self.do_send(packet, host),
            OperationKind::Write => {
                check_permission(RemoteAccess::Write, host)?;
                self.do_write(packet, host)
            }
            OperationKind::ReadRequest => {
                check_permission(RemoteAccess::Read, host)?;
                self.do_read(packet, host)
            }
            OperationKind::CompareSwap | OperationKind::FetchAdd => {
                check_permission(RemoteAccess::Atomic, host)?;
                self.do_atomic(packet, host)
            }
            OperationKind::RpcParams | OperationKind::RpcWrite => self.do_rpc(packet, host),
            _ => Err(INVALID),
        }
    }

    /// A message continues with packets of its own kind and ends before another begins. IBTA v1.4 §9.7.4.1.3.
    fn check_operation_sequence(&self, opcode: BthOpcode) -> Result<(), Rejection> {
        let begins = opcode.position().begins();
        match (&self.current, opcode.kind()) {
            (PartialMessage::None, _) if begins => Ok(()),
            (PartialMessage::Send { .. }, OperationKind::Send) if !begins => Ok(()),
            (PartialMessage::Write { .. }, OperationKind::Write) if !begins => Ok(()),
            (PartialMessage::Rpc { .. }, OperationKind::RpcWrite) if !begins => Ok(()),
            _ => Err(INVALID),
        }
    }

    /// Every packet but the last is full, and the last one is not empty. IBTA v1.4 §9.7.4.1.6.
    fn check_packet_length(&self, packet: &Packet<'_>) -> Result<(), Rejection> {
        let mtu = self.mtu.bytes() as usize;
        let length = packet.payload.len();
        let carries_data = packet.bth.opcode.is_acknowledged();
        let good = match packet.bth.opcode.position() {
            Position::First | Position::Middle => length == mtu,
            Position::Last if mutated("empty_last") => length <= mtu,
            Position::Last => (1..=mtu).contains(&length),
            Position::Only => length <= if carries_data { mtu } else { 0 },
        };
        if good { Ok(()) } else { Err(INVALID) }
    }

    fn do_send<H: ResponderHost<Range = R>>(
        &mut self,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<u32, Rejection> {
        let (buffer, offset) = match mem::replace(&mut self.current, PartialMessage::None) {
            PartialMessage::Send { buffer, offset } => (buffer, offset),
            _ => (take_receive(host)?, 0),
        };
        let received = self.receive_payload(buffer, offset, packet, host);
        let length = received.map_err(|(status, refusal)| {
            host.complete_receive(buffer, failed_receive(ReceiveKind::Send, status));
            refusal
        })?;
        if packet.bth.opcode.position().ends() {
            host.complete_receive(buffer, finished_send(packet, length));
        } else {
            self.current = PartialMessage::Send { buffer, offset: length };
        }
        Ok(1)
    }

    /// Scatters the payload of a SEND and returns the bytes of the message so far.
    fn receive_payload<H: ResponderHost<Range = R>>(
        &self,
        buffer: ReceiveBuffer,
        offset: u32,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<u32, (ReceiveStatus, Rejection)> {
        let length = offset.saturating_add(packet.payload.len() as u32);
        if u64::from(length) > buffer.capacity || length > MAX_MESSAGE {
            return Err((ReceiveStatus::Length, INVALID));
        }
        if !packet.payload.is_empty() {
            host.scatter(buffer, u64::from(offset), packet.payload)
                .map_err(|_| (ReceiveStatus::Protection, OPERATIONAL))?;
        }
        if let Some(key) = packet.extension.invalidate() {
            host.invalidate(key).map_err(|_| (ReceiveStatus::Protection, ACCESS))?;
        }
        Ok(length)
    }

    fn do_write<H: ResponderHost<Range = R>>(
        &mut self,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<u32, Rejection> {
        let (range, total, offset) = self.write_target(packet, host)?;
        let done = check_progress(packet, total, offset)?;
        let receive = packet.extension.immediate().map(|data| Ok((take_receive(host)?, data))).transpose()?;
        if !packet.payload.is_empty() && host.write_remote(&range, u64::from(offset), packet.payload).is_err()
        {
            if let Some((buffer, _)) = receive {
                let failed = failed_receive(ReceiveKind::WriteImmediate, ReceiveStatus::Access);
                host.complete_receive(buffer, failed);
            }
            return Err(ACCESS);
        }
        if let Some((buffer, data)) = receive {
            host.complete_receive(buffer, finished_write(packet, total, data));
        }
        self.current = match packet.bth.opcode.position().ends() {
            true => PartialMessage::None,
            false => PartialMessage::Write { range, length: total, offset: done },
        };
        Ok(1)
    }

    /// The target range of a WRITE: checked at the first packet, kept for the others.
    fn write_target<H: ResponderHost<Range = R>>(
        &self,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(R, u32, u32), Rejection> {
        if let PartialMessage::Write { range, length, offset } = &self.current {
            return Ok((range.clone(), *length, *offset));
        }
        let Reth { address, rkey, length } = packet.extension.reth().ok_or(INVALID)?;
        check_message_length(length)?;
        let range = host.check_remote(RemoteAccess::Write, rkey, address, length).map_err(|_| ACCESS)?;
        Ok((range, length, 0))
    }

    fn do_read<H: ResponderHost<Range = R>>(
        &mut self,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<u32, Rejection> {
        let reth = packet.extension.reth().ok_or(INVALID)?;
        check_message_length(reth.length)?;
        self.check_read_resources()?;
        let range = host
            .check_remote(RemoteAccess::Read, reth.rkey, reth.address, reth.length)
            .map_err(|_| ACCESS)?;
        let span = self.mtu.packets(reth.length);
        self.replay.remember(self.expected, span, Remembered::Read(reth));
        let numbers = self.numbers_of_data();
        self.replies.push_read(ReadReply::new(range, reth.length, numbers, true));
        Ok(span)
    }

    /// Refuses READs beyond the agreed number. IBTA v1.4 §9.7.4.1.7.
    fn check_read_resources(&self) -> Result<(), Rejection> {
        if self.replies.new_reads() < self.read_limit { Ok(()) } else { Err(INVALID) }
    }

    fn do_atomic<H: ResponderHost<Range = R>>(
        &mut self,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<u32, Rejection> {
        let (atomic, operation) = AtomicOperation::of_packet(packet).ok_or(INVALID)?;
        if self.read_limit == 0 || atomic.address & 7 != 0 {
            return Err(INVALID);
        }
        let range =
            host.check_remote(RemoteAccess::Atomic, atomic.rkey, atomic.address, 8).map_err(|_| ACCESS)?;
        let old = host.atomic(&range, operation).map_err(|_| ACCESS)?;
        self.replay.remember(self.expected, 1, Remembered::Atomic(old));
        let numbers = self.numbers_of_data();
        self.replies.push_atomic(numbers, old);
        Ok(1)
    }

    /// The numbers of a data response to the expected packet. The response also acknowledges everything before
    /// it.
    fn numbers_of_data(&mut self) -> ResponseNumbers {
        let merged = self.replies.drop_last_ack();
        self.counters.merged_acks += u64::from(merged);
        ResponseNumbers { sequence: self.expected, msn: self.next_msn() }
    }

    fn do_rpc<H: ResponderHost<Range = R>>(
        &mut self,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<u32, Rejection> {
        if !host.accepts_rpc() {
            return Err(INVALID);
        }
        let (rpc_opcode, region, total, offset) = self.rpc_target(packet)?;
        let done = check_progress(packet, total, offset)?;
        let parameters = packet.bth.opcode.kind() == OperationKind::RpcParams;
        host.rpc(RpcPacket { rpc_opcode, region, parameters, total, offset, payload: packet.payload });
        self.current = match packet.bth.opcode.position().ends() {
            true => PartialMessage::None,
            false => PartialMessage::Rpc { rpc_opcode, region, total, offset: done },
        };
        Ok(1)
    }

    fn rpc_target(&self, packet: &Packet<'_>) -> Result<(u64, u32, u32, u32), Rejection> {
        if let PartialMessage::Rpc { rpc_opcode, region, total, offset } = self.current {
            return Ok((rpc_opcode, region, total, offset));
        }
        let Reth { address, rkey, length } = packet.extension.reth().ok_or(INVALID)?;
        check_message_length(length)?;
        Ok((address, rkey, length, 0))
    }
}

fn take_receive<H: ResponderHost>(host: &mut H) -> Result<ReceiveBuffer, Rejection> {
    host.take_receive().map_err(|_| OPERATIONAL)?.ok_or(Rejection::NotReady)
}

fn check_message_length(length: u32) -> Result<(), Rejection> {
    if length <= MAX_MESSAGE { Ok(()) } else { Err(INVALID) }
}

/// Checks whether the queue pair permits its peer this operation. IBTA v1.4 §11.6.2, "remote invalid request
/// error".
fn check_permission<H: ResponderHost>(access: RemoteAccess, host: &H) -> Result<(), Rejection> {
    if host.permits(access) { Ok(()) } else { Err(INVALID) }
}

/// Checks that the packets of a message add up to the length in its RETH; returns the bytes so far. IBTA v1.4
/// §9.7.4.1.6.
fn check_progress(packet: &Packet<'_>, total: u32, offset: u32) -> Result<u32, Rejection> {
    let done = offset.saturating_add(packet.payload.len() as u32);
    let good = if packet.bth.opcode.position().ends() { done == total } else { done < total };
    if good { Ok(done) } else { Err(INVALID) }
}

pub(in crate::transport) fn finished_send(packet: &Packet<'_>, length: u32) -> ReceiveCompletion {
    let (kind, immediate) = match packet.extension {
        Extension::Immediate(data) => (ReceiveKind::SendImmediate, Some(data)),
        Extension::Ieth(key) => (ReceiveKind::SendInvalidate, Some(key)),
        _ => (ReceiveKind::Send, None),
    };
    ReceiveCompletion {
        kind,
        length,
        immediate,
        solicited: packet.bth.solicited,
        status: ReceiveStatus::Success,
    }
}

pub(in crate::transport) fn finished_write(
    packet: &Packet<'_>,
    length: u32,
    immediate: u32,
) -> ReceiveCompletion {
    ReceiveCompletion {
        kind: ReceiveKind::WriteImmediate,
        length,
        immediate: Some(immediate),
        solicited: packet.bth.solicited,
        status: ReceiveStatus::Success,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tests::model::{Host, header, packet, parameters};
    use crate::wire::{NakCode, Syndrome};

    /// A receive may be longer than a message may be. The byte that would be the last is refused by the memory, the next
    /// one by the length.
    #[test]
    fn a_send_ends_at_the_length_of_the_longest_message() {
        for (payload, refusal) in [(&[1][..], NakCode::RemoteOperational), (&[1, 1], NakCode::InvalidRequest)]
        {
            let (mut responder, mut host) = (Responder::new(&parameters()), Host::new(0));
            host.scatter_fails = true;
            let buffer = ReceiveBuffer { token: 0, capacity: u64::MAX };
            responder.current = PartialMessage::Send { buffer, offset: MAX_MESSAGE - 1 };
            let last = header(BthOpcode::SendLast, 100, Extension::None);
            responder.handle_request(&packet(last, payload), &mut host);
            let syndrome = responder.poll_transmit().and_then(|answer| answer.header.extension.aeth());
            assert_eq!(syndrome.map(|aeth| aeth.syndrome), Some(Syndrome::Nak(refusal)));
        }
    }
}
