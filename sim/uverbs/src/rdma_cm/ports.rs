//! Ports of the host: which this process has, and which it may take.

use super::call::CmCall;
use super::identifier::{Identifier, Stage};
use crate::Errno;
use crate::connection_names::Port;
use crate::process::Process;

/// The range of ports for identifiers that name none, as in Linux.
const FIRST_EPHEMERAL: u16 = 32768;
const EPHEMERAL: u16 = 60999 - FIRST_EPHEMERAL;

impl<P: Process> CmCall<'_, P> {
    /// Takes a port for an identifier; number 0 stands for any.
    pub(super) fn take_port(&mut self, id: u32, wanted: Port) -> Result<Port, Errno> {
        if wanted.number != 0 {
            self.take_named_port(id, wanted)?;
            return Ok(wanted);
        }
        for _ in 0..EPHEMERAL {
            self.cm.next_ephemeral = self.cm.next_ephemeral.wrapping_add(1);
            let port = Port { number: FIRST_EPHEMERAL + self.cm.next_ephemeral % EPHEMERAL, ..wanted };
            match self.take_named_port(id, port) {
                Err(Errno::AddressInUse) => {}
                done => return done.map(|()| port),
            }
        }
        Err(Errno::AddressNotAvailable)
    }

    /// Within the process, identifiers that allow it may share a port, as long as none of them listens.
    fn take_named_port(&mut self, id: u32, port: Port) -> Result<(), Errno> {
        let shares = self.cm.identifiers.get(&id).is_some_and(|known| known.shares_port);
        let is_good = |known: &Identifier| shares && known.shares_port && known.stage != Stage::Listening;
        let mut others = self.cm.identifiers.values().filter(|known| known.port == Some(port)).peekable();
        if others.peek().is_none() {
            self.process.claim_port(port)?;
        } else if !others.all(is_good) {
            return Err(Errno::AddressInUse);
        }
        if let Some(known) = self.cm.identifiers.get_mut(&id) {
            known.port = Some(port);
        }
        Ok(())
    }

    /// Releases the port of an identifier if it was the last user.
    pub(super) fn leave_port(&mut self, known: &Identifier) {
        let Some(port) = known.port else { return };
        if !self.cm.identifiers.values().any(|other| other.port == Some(port)) {
            self.process.release_port(port);
        }
    }

    fn has_port(&self, port: Port) -> bool {
        self.cm.identifiers.values().any(|known| known.port == Some(port))
    }

    /// Whether this process has to refuse requests for a port because nobody else of the host listens there:
    /// it owns the port, or nobody does and it speaks for the host.
    pub(super) fn refuses(&mut self, port: Option<Port>) -> bool {
        let has_port = port.is_some_and(|port| self.has_port(port));
        has_port || !port.is_some_and(|port| self.process.has_owner(port)) && self.process.is_first()
    }

    /// Whether this process may still listen on a port: no other process has it.
    pub(super) fn may_listen(&mut self, port: Option<Port>) -> bool {
        port.is_some_and(|port| self.has_port(port) || !self.process.has_owner(port))
    }
}
