//! Duplicate packets. IBTA v1.4 §9.7.5.1.4.

use super::{Rejection, Responder};
use crate::transport::host::{RemoteAccess, ResponderError, ResponderHost};
use crate::transport::replies::ReadReply;
use crate::wire::{OperationKind, Packet, Reth};
use bareverbs_prm::mutation::mutated;

impl<R: Clone> Responder<R> {
    /// Handles a duplicate: SEND and WRITE are only acknowledged again, a READ is executed again, and an
    /// atomic is answered from the replay memory.
    pub(super) fn handle_duplicate<H: ResponderHost<Range = R>>(
        &mut self,
        packet: &Packet<'_>,
        distance: i32,
        host: &mut H,
    ) {
        let Some(sequence) = self.expected.checked_add_signed(i64::from(distance)) else {
            self.counters.dropped += 1;
            return;
        };
        self.counters.duplicates += 1;
        if mutated("repeated_delivery") && self.execute(packet, host).is_ok() {
            return;
        }
        match packet.bth.opcode.kind() {
            OperationKind::ReadRequest => self.repeat_read(packet, sequence, host),
            OperationKind::CompareSwap | OperationKind::FetchAdd => self.repeat_atomic(sequence),
            _ if packet.bth.opcode.is_acknowledged() => self.acknowledge(),
            _ => self.counters.dropped += 1,
        }
    }

    fn repeat_read<H: ResponderHost<Range = R>>(&mut self, packet: &Packet<'_>, sequence: u64, host: &mut H) {
        let asked = packet.extension.reth().filter(|reth| self.replay.covers_read(sequence, *reth, self.mtu));
        let Some(reth) = asked else {
            self.counters.dropped += 1;
            return;
        };
        if self.replies.repeat_read(sequence) {
            return;
        }
        if let Err(Rejection::Break(error)) = self.read_again(sequence, reth, host) {
            self.break_connection(sequence, error, host);
        }
    }

    /// Executes a READ again. The key is checked again, since it may have been revoked.
    fn read_again<H: ResponderHost<Range = R>>(
        &mut self,
        sequence: u64,
        reth: Reth,
        host: &mut H,
    ) -> Result<(), Rejection> {
        let Reth { address, rkey, length } = reth;
        let range = host
            .check_remote(RemoteAccess::Read, rkey, address, length)
            .map_err(|_| Rejection::Break(ResponderError::RemoteAccess))?;
        self.replies.push_read(ReadReply::new(range, length, self.numbers(sequence), false));
        Ok(())
    }

    fn repeat_atomic(&mut self, sequence: u64) {
        match self.replay.atomic(sequence) {
            Some(old) => self.replies.push_atomic(self.numbers(sequence), old),
            None => self.counters.dropped += 1,
        }
    }
}
